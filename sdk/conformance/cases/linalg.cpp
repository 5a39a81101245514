// SPDX-License-Identifier: Apache-2.0
// lu triangular_solve cholesky dense_solve lu_solve inverse det. Matrices are well conditioned, and
// most need an exchange of rows at every step.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const DTypes kSolved = {f32, f64};

// The identity, its rows moved down by `shift`, times `size`.
Value shifted_identity(CaseBuilder& b, int64_t n, int64_t shift, double size) {
  std::vector<double> x(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>((i + shift) % n * n + i)] = size;
  return b.input("shift", {n, n}, Fill::list(x).fixed());
}

// Noise around a large permutation: its condition is about 3, whatever n is.
Value mixed(CaseBuilder& b, Dims batch, int64_t n, int64_t shift = 1) {
  batch.push_back(n);
  batch.push_back(n);
  const Value noise = b.input("a", batch, Fill::normal());
  if (n < 2) return b.binary("add", noise, b.number(5));
  return b.binary("add", noise,
                  shifted_identity(b, n, shift, 4 * std::sqrt(static_cast<double>(n))));
}

// r·rᵀ + n·I
Value definite(CaseBuilder& b, Dims batch, int64_t n) {
  batch.push_back(n);
  batch.push_back(n);
  const Value noise = b.input("a", batch, Fill::normal());
  const Value square = b.graph().add(op::matmul{.trans_b = true, .a = noise, .b = noise});
  return b.binary("add", square, shifted_identity(b, n, 0, static_cast<double>(n)));
}

// An output of numbers that are accurate relative to the largest one.
void give(CaseBuilder& b, const char* name, Value y) {
  b.output(name, y);
  b.scale(name, [&] { return largest_of(b, y); });
}

struct Size {
  const char* id;
  Dims batch;
  int64_t n;
  bool gradient = false;
};
const std::vector<Size>& sizes() {
  static const std::vector<Size> all = {
      {"one", {3}, 1, true}, {"two", {5}, 2, true}, {"five", {2, 3}, 5, true},
      {"single", {}, 4},     {"sixteen", {19}, 16}, {"odd", {3}, 31},
      {"32", {3}, 32},       {"33", {2}, 33},       {"large", {2}, 128},
      {"64", {2}, 64},       {"70", {3}, 70},       {"very-large", {}, 203},
      {"many", {300}, 8},    {"no-batch", {0}, 4},  {"empty", {3}, 0},
  };
  return all;
}

CaseRow row(const std::string& id, const std::string& sentence, const Size& c, Build build) {
  return {.id = id + "-" + c.id,
          .sentence = sentence,
          .dtypes = kSolved,
          .build = std::move(build),
          .tolerance = scaled(20.0 + 8 * static_cast<double>(c.n)),
          .decomposed = 2,
          .strided = c.n < 100,
          .gradient = c.gradient,
          .second_order = c.gradient && c.n == 2,
          .scales = {1}};
}

void factor_rows(Suite& s, const Size& c) {
  if (c.n < 64)  // of larger matrices, equal pivots but for rounding are not rare
    s.add(row("lu", "lu: factors and the order of rows", c, [c](CaseBuilder& b) {
      const Node y = b.add(op::lu{.a = mixed(b, c.batch, c.n)});
      give(b, "lu", y[0]);
      b.output("perm", y[1]);
    }));
  s.add(row("cholesky", "cholesky: the lower factor", c, [c](CaseBuilder& b) {
    give(b, "l", b.add(op::cholesky{.a = definite(b, c.batch, c.n)}));
  }));
  s.add(row("inverse", "inverse", c, [c](CaseBuilder& b) {
    if (c.n > 0) give(b, "y", b.add(op::inverse{.a = mixed(b, c.batch, c.n)}));
    if (c.n == 0) b.output("y", b.add(op::inverse{.a = mixed(b, c.batch, c.n)}));
  }));
  if (c.n < 20)
    s.add(row("det", "determinants", c, [c](CaseBuilder& b) {
      const Value y = b.add(op::det{.a = mixed(b, c.batch, c.n, c.n / 2)});
      b.output("y", y);
      b.scale("y", [&] { return b.abs(y); });
    }));
}

void solve_rows(Suite& s, const Size& c) {
  for (const int64_t m : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{40}}) {
    if (m == 40 && c.n != 16 && c.n != 33) continue;
    const std::string right = m == 0 ? "vectors" : std::to_string(m);
    s.add(row("solve-" + right, "dense_solve", c, [=](CaseBuilder& b) {
      Dims dims = c.batch;
      dims.push_back(c.n);
      if (m > 0) dims.push_back(m);
      give(b, "x", b.add(op::dense_solve{.a = mixed(b, c.batch, c.n), .b = b.input("b", dims)}));
    }));
  }
  if (c.n >= 64) return;
  s.add(row("solve-factors", "dense_solve that keeps its factors, and a solution by them", c,
            [=](CaseBuilder& b) {
              Dims dims = c.batch;
              dims.push_back(c.n);
              op::dense_solve n{.a = mixed(b, c.batch, c.n), .b = b.input("b", dims)};
              n.want_lu = n.want_perm = true;
              const Node y = b.add(n);
              give(b, "x", y[0]);
              b.side_output("lu", y[1]);
              b.scale("lu", [&] { return largest_of(b, y[1]); });
              b.output("perm", y[2]);
              for (const bool trans : {false, true}) {
                const Value again =
                    b.add(op::lu_solve{.trans_a = trans, .lu = y[1], .perm = y[2], .b = n.b});
                const char* const name = trans ? "transposed" : "again";
                b.side_output(name, again);
                b.scale(name, [&] { return largest_of(b, again); });
              }
            }));
}

void triangular_rows(Suite& s, const Size& c) {
  for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const bool upper = kind & 1, trans = kind & 2, unit = kind & 4;
    const std::string id = std::string("triangular") + (upper ? "-upper" : "-lower") +
                           (trans ? "-trans" : "") + (unit ? "-unit" : "");
    s.add(row(id, "triangular_solve", c, [=](CaseBuilder& b) {
      Dims a = c.batch, right = c.batch;
      a.push_back(c.n), a.push_back(c.n);
      right.push_back(c.n), right.push_back(c.n == 16 ? 40 : 3);
      // Rows of small numbers, so that unit triangles are well conditioned too.
      const double size = 1 / std::max(1.0, static_cast<double>(c.n));
      const Value noise = b.input("a", a, Fill::normal(size));
      const Value diagonal = shifted_identity(b, c.n, 0, unit ? 7 : 2);
      give(b, "x",
           b.add(op::triangular_solve{.upper = upper,
                                      .trans_a = trans,
                                      .unit_diagonal = unit,
                                      .a = b.binary("add", noise, diagonal),
                                      .b = b.input("b", right)}));
    }));
  }
}

void broadcast_rows(Suite& s) {
  const Size c{"broadcast", {2, 1}, 3, true};
  s.add(row("solve", "one matrix for several right sides, and the reverse", c, [](CaseBuilder& b) {
    const Value a = mixed(b, {2, 1}, 3);
    give(b, "x", b.add(op::dense_solve{.a = a, .b = b.input("b", {1, 5, 3, 2})}));
    give(b, "y", b.add(op::dense_solve{.a = a, .b = b.input("c", {1, 4, 3})}));
    give(b, "z", b.add(op::triangular_solve{.a = a, .b = b.input("d", {4, 2, 5, 3, 1})}));
  }));
  s.add(row("solve-other", "matrices of fewer axes than their right sides", c, [](CaseBuilder& b) {
    give(b, "x", b.add(op::dense_solve{.a = mixed(b, {}, 3), .b = b.input("b", {2, 4, 3, 2})}));
  }));
}

// The matrix in the middle is singular.
Value singular(CaseBuilder& b) {
  return b.input("a", {3, 2, 2}, Fill::list({2, 0, 0, 4, 1, 2, 2, 4, 0, 1, 1, 0}));
}

void known_rows(Suite& s) {
  s.add({.id = "lu-known",
         .sentence = "lu: the first of equal pivots; a column of zeros is kept",
         .dtypes = kSolved,
         .build = [](CaseBuilder& b) {
           const Value a = b.input(
               "a", {2, 3, 3}, Fill::list({1, 2, 3, -4, 0, 4, 4, 8, 4, 0, 1, 2, 0, 2, 3, 0, 4, 8}));
           const Node y = b.add(op::lu{.a = a});
           b.output("lu", y[0]);
           b.expect("lu", {-4, 0, 4, -1, 8, 8, -0.25, 0.25, 2, 0, 1, 2, 0, 4, 8, 0, 0.5, -1});
           b.output("perm", y[1]);
           b.expect("perm", {1, 2, 0, 0, 2, 1});
         }});
  s.add({.id = "det-known",
         .sentence = "determinants: singular, odd and even orders of rows, none",
         .dtypes = kSolved,
         .build = [](CaseBuilder& b) {
           b.output("y", b.add(op::det{.a = singular(b)}));
           b.expect("y", {8, 0, -1});
           b.output("z", b.add(op::det{.a = b.input("empty", {2, 0, 0})}));
           b.expect("z", {1, 1});
         }});
  for (const char* policy : {"nan", "keep"})
    s.add({.id = std::string("lu-singular-") + policy,
           .sentence = "lu of a singular matrix among others",
           .dtypes = kSolved,
           .build = [=](CaseBuilder& b) {
             const bool nan = std::string_view(policy) == "nan";
             const Node y = b.add(op::lu{.on_singular = policy, .a = singular(b)});
             b.output("lu", y[0]);
             if (nan)
               b.expect("lu", {2, 0, 0, 4, kNan, kNan, kNan, kNan, 1, 0, 0, 1});
             else
               b.expect("lu", {2, 0, 0, 4, 2, 4, 0.5, 0, 1, 0, 0, 1});
             b.output("perm", y[1]);
             b.expect("perm", nan ? std::vector<double>{0, 1, 0, 1, 1, 0}
                                  : std::vector<double>{0, 1, 1, 0, 1, 0});
           }});
  s.add({.id = "solve-singular-nan",
         .sentence = "a singular matrix gives NaN, the others their solutions",
         .dtypes = kSolved,
         .build = [](CaseBuilder& b) {
           const Value a = singular(b);
           const Value right = b.input("b", {3, 2}, Fill::list({2, 4, 1, 1, 3, 5}));
           b.output("x", b.add(op::dense_solve{.on_singular = "nan", .a = a, .b = right}));
           b.expect("x", {1, 1, kNan, kNan, 5, 3});
           b.output("y", b.add(op::inverse{.on_singular = "nan", .a = a}));
           b.expect("y", {0.5, 0, 0, 0.25, kNan, kNan, kNan, kNan, 0, 1, 1, 0});
         }});
  s.add({.id = "solve-not-finite",
         .sentence = "a pivot that is not finite counts as singular",
         .dtypes = kSolved,
         .build = [](CaseBuilder& b) {
           const double inf = std::numeric_limits<double>::infinity();
           const Value a =
               b.input("a", {3, 2, 2}, Fill::list({1, 0, 0, 1, inf, 0, 0, 1, 1, 0, kNan, 1}));
           b.output("x",
                    b.add(op::dense_solve{
                        .on_singular = "nan", .a = a, .b = b.input("b", {3, 2}, Fill::list({1}))}));
           b.expect("x", {1, 1, kNan, kNan, kNan, kNan});
         }});
  s.add(
      {.id = "cholesky-not-definite",
       .sentence = "cholesky of a matrix that is not positive definite is NaN",
       .dtypes = kSolved,
       .build = [](CaseBuilder& b) {
         const Value a = b.input("a", {3, 2, 2}, Fill::list({4, 99, 2, 5, 1, 2, 2, 1, 0, 0, 0, 1}));
         b.output("l", b.add(op::cholesky{.on_singular = "nan", .a = a}));
         b.expect("l", {2, 0, 1, 2, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan});
       }});
  for (const tenon_dtype t : kSolved) {
    const std::string own = t == f64 ? "-f64" : "";
    s.add_failure(
        "lu-singular" + own, "lu of a singular matrix is an error on demand",
        [](CaseBuilder& b) {
          b.output("lu", b.add(op::lu{.on_singular = "error", .a = singular(b)})[0]);
        },
        TENON_NUMERIC_ERROR, "matrix 1", t);
    s.add_failure(
        "solve-singular" + own, "a singular matrix is an error",
        [](CaseBuilder& b) {
          b.output("x", b.add(op::dense_solve{.a = singular(b), .b = b.input("b", {3, 2})}));
        },
        TENON_NUMERIC_ERROR, "matrix 1", t);
    s.add_failure(
        "cholesky-not-definite-error" + own, "a matrix that is not positive definite is an error",
        [](CaseBuilder& b) { b.output("l", b.add(op::cholesky{.a = singular(b)})); },
        TENON_NUMERIC_ERROR, "matrix 1", t);
  }
}

}  // namespace

void linalg_cases(Suite& s) {
  s.floor({.joined = 400, .own_joined = 18});
  for (const Size& c : sizes()) factor_rows(s, c), solve_rows(s, c), triangular_rows(s, c);
  broadcast_rows(s);
  known_rows(s);
}

}  // namespace tenon::conform
