// SPDX-License-Identifier: Apache-2.0
// batch_linear, of the family matmul.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Form {
  const char* id;
  const char* sentence;
  Dims a;
  Dims widths;  // of the results
  bool trans_a = false, trans_b = false, bias = false;
  double alpha = 1;
  int64_t terms() const { return trans_a ? a[0] : a.back(); }
  Dims matrix(size_t t) const {
    return trans_b ? Dims{widths[t], terms()} : Dims{terms(), widths[t]};
  }
};

// The operands of a form; all of their magnitudes with `sizes`.
op::batch_linear node_of(CaseBuilder& b, const Form& f, tenon_dtype bias_dtype,
                         const Fill& fill = Fill::normal()) {
  op::batch_linear n{.trans_a = f.trans_a,
                     .trans_b = f.trans_b,
                     .alpha = f.alpha,
                     .a = b.input("a", f.a, fill),
                     .count_ys = f.widths.size()};
  for (size_t t = 0; t < f.widths.size(); ++t)
    n.bs.push_back(b.input("b" + std::to_string(t), f.matrix(t), fill));
  for (size_t t = 0; f.bias && t < f.widths.size(); ++t)
    n.biases.push_back(b.input("bias" + std::to_string(t), bias_dtype, {f.widths[t]}, fill));
  return n;
}

// All results, each with the product of absolute values as its error scale.
void put_out(CaseBuilder& b, const op::batch_linear& n) {
  const Node node = b.add(n);
  for (size_t t = 0; t < n.count_ys; ++t) {
    const std::string name = "y" + std::to_string(t);
    b.output(name, node[t]);
    b.scale(name, [&] {
      const Value size = b.add(op::matmul{.trans_a = n.trans_a,
                                          .trans_b = n.trans_b,
                                          .alpha = std::fabs(n.alpha),
                                          .a = b.abs(n.a),
                                          .b = b.abs(n.bs[t])});
      return n.biases.empty() ? size : b.binary("add", size, b.abs(n.biases[t]));
    });
  }
}

void form_rows(Suite& s) {
  for (const Form& f : {
           Form{"plain", "three of odd sizes", {5, 7}, {3, 4, 9}},
           Form{"two", "two of one width", {6, 8}, {5, 5}},
           Form{"one", "one alone", {4, 7}, {3}},
           Form{"five", "five, one of a single column", {9, 17}, {1, 33, 8, 2, 65}},
           Form{"bias", "with biases", {5, 7}, {4, 2, 2}, false, false, true},
           Form{"alpha", "a factor, with biases", {5, 7}, {4, 3}, false, false, true, -0.37},
           Form{"ta", "a given transposed", {7, 5}, {3, 4}, true},
           Form{"tb", "b given transposed", {5, 7}, {3, 6}, false, true},
           Form{"ta-tb", "both given transposed", {7, 5}, {3, 6}, true, true, true},
           Form{"row", "one row, as in decoding", {1, 257}, {128, 33, 33}},
           Form{"row-tb", "one row, b transposed", {1, 257}, {130, 33, 70}, false, true, true},
           Form{"rows-few", "three rows", {3, 65}, {129, 64, 31}, false, false, true},
           Form{"few-tb", "three rows, b transposed", {3, 72}, {40, 16, 9}, false, true, true},
           Form{"more-tb",
                "rows over a tile, b transposed",
                {2, 9, 200},
                {24, 65},
                false,
                true,
                false,
                -0.6},
           Form{"vector", "a vector", {19}, {6, 5}, false, false, true},
           Form{"batch", "a batch of rows", {2, 3, 9}, {5, 2, 2}, false, false, true},
           Form{"tile", "sizes just over a tile", {33, 65}, {129, 17, 17}},
           Form{"high", "more rows than columns", {150, 70}, {33, 16, 16}, false, false, true},
           Form{
               "high-tb", "more rows than columns, b transposed", {150, 70}, {33, 16}, false, true},
           Form{"wide", "more columns than rows", {20, 1030}, {90, 45, 45}},
           Form{"thin", "many rows and a column or two", {130, 40}, {1, 2}, false, false, true},
           Form{"no-rows", "no rows", {0, 7}, {3, 2}, false, false, true},
           Form{"no-columns", "one without columns", {5, 7}, {3, 0, 4}, false, false, true},
           Form{"no-terms", "sums of nothing are the bias", {5, 0}, {3, 2}, false, false, true},
       }) {
    const bool small = f.terms() < 20 && f.terms() > 0 && f.a[0] > 0 && f.a[0] < 20;
    s.add({.id = std::string("batch-linear-") + f.id,
           .sentence = std::string("batch_linear: ") + f.sentence,
           .build = [f](CaseBuilder& b) { put_out(b, node_of(b, f, b.own())); },
           .tolerance = product_of(f.terms()),
           .decomposed = 2,
           .gradient = small,
           .second_order = f.bias && small && f.widths.size() == 2,
           .scales = {0.05, 4}});
  }
}

void option_rows(Suite& s) {
  s.add({.id = "batch-linear-out-f32",
         .sentence = "batch_linear: half operands, f32 results and biases",
         .dtypes = kHalves,
         .build =
             [](CaseBuilder& b) {
               op::batch_linear n =
                   node_of(b, {"", "", {6, 33}, {5, 9}, false, false, true}, b.own_acc());
               n.out_dtype = b.as(f32);
               put_out(b, n);
             },
         .tolerance = product_of(33),
         .decomposed = 2});
  s.add(
      {.id = "batch-linear-bias-f32",
       .sentence = "batch_linear: biases of the accumulation dtype",
       .build =
           [](CaseBuilder& b) {
             put_out(b, node_of(b, {"", "", {2, 9, 33}, {17, 4}, false, true, true}, b.own_acc()));
           },
       .tolerance = product_of(33),
       .decomposed = 2});
  s.add({.id = "batch-linear-tf32",
         .sentence = "batch_linear: precision tf32 may cut f32 to 16 bits of significand",
         .dtypes = {f16, bf16, f64},
         .build =
             [](CaseBuilder& b) {
               op::batch_linear n = node_of(b, {"", "", {33, 65}, {40, 24}}, b.own());
               n.f32_precision = "tf32";
               put_out(b, n);
             },
         .tolerance = product_of(65),
         .decomposed = 2});
  for (const Form& f :
       {Form{"few", "three rows", {3, 72}, {40, 16, 9}, false, true, true},
        Form{"pieces", "three rows of whole pieces", {3, 80}, {40, 16, 9}, false, true, true},
        Form{"more", "150 rows", {2, 75, 72}, {96, 70, 70}, false, true, true}}) {
    Tolerance tolerance = product_of(f.terms());
    tolerance.factor *= 1 << 13;  // a term has 11 bits
    s.add({.id = std::string("batch-linear-tf32-") + f.id,
           .sentence = std::string("batch_linear: b transposed, of tf32, ") + f.sentence,
           .dtypes = {f32},
           .build =
               [f](CaseBuilder& b) {
                 op::batch_linear n = node_of(b, f, b.own());
                 n.f32_precision = "tf32";
                 put_out(b, n);
               },
           .tolerance = tolerance,
           .decomposed = 2});
  }
  struct Size {
    int64_t rows, terms, columns, others = 16;
    bool tf32 = false;  // and b transposed
  };
  for (const Size z :
       {Size{2, 3, 40}, Size{37, 64, 64}, Size{100, 64, 48}, Size{150, 64, 72, 64, true}})
    s.add({.id = "batch-linear-special-" + std::to_string(z.rows),
           .sentence = "batch_linear: zero times infinity and NaN stay in their rows and columns",
           .dtypes = z.tf32 ? DTypes{f32} : kFloats,
           .build =
               [z](CaseBuilder& b) {
                 const auto ones = [](int64_t n) {
                   return std::vector<double>(static_cast<size_t>(n), 1);
                 };
                 const auto at = [](int64_t row, int64_t cols, int64_t col) {
                   return static_cast<size_t>(row * cols + col);
                 };
                 const auto at_b = [&](int64_t term, int64_t cols, int64_t col) {
                   return z.tf32 ? at(col, z.terms, term) : at(term, cols, col);
                 };
                 const auto dims = [&](int64_t cols) {
                   return z.tf32 ? Dims{cols, z.terms} : Dims{z.terms, cols};
                 };
                 std::vector<double> a = ones(z.rows * z.terms), b0 = ones(z.terms * z.columns),
                                     b1 = ones(z.terms * z.others);
                 a[1] = 0, a[at(1, z.terms, 0)] = std::nan("");
                 b0[at_b(1, z.columns, 5)] = kInf;
                 b1[at_b(2, z.others, 1)] = std::nan(""), b1[at_b(0, z.others, 15)] = -kInf;
                 op::batch_linear n{.trans_b = z.tf32,
                                    .f32_precision = z.tf32 ? "tf32" : "ieee",
                                    .a = b.input("a", {z.rows, z.terms}, Fill::list(a)),
                                    .count_ys = 2};
                 n.bs = {b.input("b0", dims(z.columns), Fill::list(b0)),
                         b.input("b1", dims(z.others), Fill::list(b1))};
                 const Node y = b.add(n);
                 b.output("y0", y[0]);
                 b.output("y1", y[1]);
               },
           .tolerance = product_of(z.terms)});
}

void refused_rows(Suite& s) {
  const auto refused = [&](const char* id, const char* sentence, tenon_code error, const char* text,
                           std::function<op::batch_linear(CaseBuilder&)> node) {
    s.add({.id = std::string("batch-linear-") + id + "-refused",
           .sentence = std::string("batch_linear: ") + sentence + " is refused",
           .dtypes = {f32},
           .build = [node](CaseBuilder& b) { b.output("y", b.add(node(b))[0]); },
           .error = error,
           .error_text = text});
  };
  refused("length", "a contracted length that differs", TENON_SHAPE_MISMATCH,
          "operand bs: entry 1: expected a contracted length of 4", [](CaseBuilder& b) {
            return op::batch_linear{.a = b.input("a", {3, 4}),
                                    .bs = {b.input("b", {4, 2}), b.input("c", {5, 2})},
                                    .count_ys = 2};
          });
  refused("rank", "a batch of matrices", TENON_SHAPE_MISMATCH, "operand bs: entry 0",
          [](CaseBuilder& b) {
            return op::batch_linear{
                .a = b.input("a", {3, 4}), .bs = {b.input("b", {2, 4, 2})}, .count_ys = 1};
          });
  refused("bias", "a bias of another length", TENON_SHAPE_MISMATCH, "operand biases: entry 0",
          [](CaseBuilder& b) {
            return op::batch_linear{.a = b.input("a", {3, 4}),
                                    .bs = {b.input("b", {4, 2})},
                                    .biases = {b.input("c", {3})},
                                    .count_ys = 1};
          });
}

}  // namespace

void matmul_batch_rows(Suite& s) {
  form_rows(s);
  option_rows(s);
  refused_rows(s);
}

}  // namespace tenon::conform
