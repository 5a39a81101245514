// SPDX-License-Identifier: Apache-2.0
// lu triangular_solve cholesky dense_solve. Each thread takes some of the matrices. Where there are few
// large ones, all threads share each of them. Both ways give the same bits.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "linalg_vector.hpp"
#include "slots.hpp"
#include "tenon/shapes.hpp"

namespace tenon::cpu {
namespace {

constexpr auto kSolved = sdk::Types<float, double>{};

template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

struct Squares {
  int64_t count = 1, n = 0;

  explicit Squares(const sdk::Type& a) : n(a.dims[a.rank - 1]) {
    for (int i = 0; i < a.rank - 2; ++i) count *= a.dims[i];
  }
  int64_t size() const { return n * n; }
  int64_t cube() const { return n * n * n; }
};

// The first matrix without a result, whichever thread finds it.
class Singular {
 public:
  explicit Singular(int64_t count) : count_(count), first_(count) {}
  void found(int64_t matrix) {
    for (int64_t seen = first_; matrix < seen && !first_.compare_exchange_weak(seen, matrix);) {
    }
  }
  void finish(const std::string& policy, const char* what) const {
    const int64_t first = first_;
    if (policy != "error" || first == count_) return;
    throw sdk::Failure(TENON_NUMERIC_ERROR,
                       "operand a: matrix " + std::to_string(first) + " is " + what, first);
  }

 private:
  const int64_t count_;
  std::atomic<int64_t> first_;
};

template <class T>
void copy_rows(const T* from, int64_t from_row, T* to, int64_t to_row, int64_t rows,
               int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * from_row, columns, to + i * to_row);
}

void own_order(int32_t* perm, int64_t n) {
  for (int64_t i = 0; i < n; ++i) perm[i] = static_cast<int32_t>(i);
}

template <class T>
constexpr auto kBytes = static_cast<int64_t>(sizeof(T));

// How the matrices of a run are given to threads. bytes, cost: of one matrix, see make_slots.
class Plan {
 public:
  Plan(const Squares& s, int64_t bytes, int64_t cost)
      : large_(s.n >= kLarge), slots_(make_slots(s.count, bytes, cost)) {}
  uint64_t scratch() const { return slots_.scratch(); }

  // Calls body(matrix, area, shared). If shared, the body may use all threads.
  template <class Body>
  void run(void* scratch, const Body& body) const {
    if (large_ && slots_.rows < 4 * width()) {
      for (int64_t k = 0; k < slots_.rows; ++k) body(k, static_cast<char*>(scratch), true);
      return;
    }
    slots_.run(scratch, [&](int64_t begin, int64_t end, char* area) {
      for (int64_t k = begin; k < end; ++k) body(k, area, false);
    });
  }

 private:
  static constexpr int64_t kLarge = 192;
  bool large_;
  Slots slots_;
};

// Calls body(begin, end) for all of [0, n), in pieces of `grain` if the threads share them.
template <class Body>
void pieces(bool shared, int64_t n, int64_t grain, const Body& body) {
  if (shared)
    parallel_for(n, grain, body);
  else if (n > 0)
    body(0, n);
}

constexpr int64_t kStripe = 64;        // columns that a thread takes
constexpr int64_t kRowsPerPiece = 32;  // rows that a thread copies

// Calls body(j, end) for stripes of columns [begin, end).
template <class Body>
void stripes(bool shared, int64_t begin, int64_t end, const Body& body) {
  pieces(shared, (end - begin + kStripe - 1) / kStripe, 1, [&](int64_t first, int64_t last) {
    body(begin + first * kStripe, std::min(end, begin + last * kStripe));
  });
}

template <class T>
bool factor(const Augmented<T>& m, bool keep, bool shared) {
  own_order(m.perm, m.n);
  bool regular = true;
  for (int64_t first = 0; first < m.n; first += kLinalgBlock) {
    const int64_t end = std::min(first + kLinalgBlock, m.n);
    regular &= linalg_factor_block(m, first, end, keep);
    if (!regular && !keep) return false;
    stripes(shared, std::min(first + kLinalgBlock, whole_vectors<T>(m.n)), m.row,
            [&](int64_t j, int64_t j_end) { linalg_factor_columns(m, first, end, j, j_end); });
  }
  return regular;
}

// Factors a matrix. The columns of its rows from n on are zeros.
template <class T>
bool cholesky(T* a, int64_t n, int64_t row, bool shared) {
  for (int64_t first = 0; first < n; first += kLinalgBlock) {
    const int64_t end = std::min(first + kLinalgBlock, n);
    if (!linalg_cholesky_block(a, row, first, end)) return false;
    if (end == n) break;
    stripes(shared, end, whole_vectors<T>(n),
            [&](int64_t j, int64_t j_end) { linalg_cholesky_rows(a, row, first, end, j, j_end); });
    stripes(shared, end, whole_vectors<T>(n), [&](int64_t j, int64_t j_end) {
      linalg_cholesky_columns(a, n, row, first, end, j, j_end);
    });
  }
  return true;
}

sdk::Kernel make_lu(const sdk::op::lu& n, const sdk::Node&) {
  const Squares s(n.a.type());
  return sdk::with_type(kSolved, "a", n.a.type().dtype, [&]<class T>(T) {
    const int64_t row = padded_row<T>(s.n);
    const Plan plan(s, s.n * row * kBytes<T>, s.cube() / 3);
    sdk::Kernel kernel{.scratch = plan.scratch()};
    kernel.cost = static_cast<double>(s.count * s.cube()) / 1e11;
    kernel.run = [=, policy = n.on_singular](const sdk::Call& c) {
      Singular singular(s.count);
      plan.run(c.scratch, [&](int64_t k, char* area, bool shared) {
        const Augmented<T> m{reinterpret_cast<T*>(area), s.n, row, c.out<int32_t>(1) + k * s.n};
        T* const y = c.out<T>(0) + k * s.size();
        pieces(shared, s.n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            std::copy_n(c.in<T>(0) + k * s.size() + i * s.n, s.n, m.data + i * row);
            std::fill_n(m.data + i * row + s.n, row - s.n, T{0});
          }
        });
        if (factor(m, policy == "keep", shared) || policy == "keep") {
          pieces(shared, s.n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
            copy_rows(m.data + begin * row, row, y + begin * s.n, s.n, end - begin, s.n);
          });
          return;
        }
        singular.found(k);
        std::fill_n(y, s.size(), kNan<T>);
        own_order(m.perm, s.n);
      });
      singular.finish(policy, "singular");
    };
    return kernel;
  });
}

// Several matrices of right sides.
struct Solution {
  Squares a;
  int64_t m;           // columns of b
  int64_t row, x_row;  // of [A | B], and of x while it is solved
  int b = 1, lu = -1, perm = -1;
  std::string policy{};

  // A work area: [A | B], x, and the order of rows.
  template <class T>
  int64_t x_at() const {
    return a.n * row * kBytes<T>;
  }
  template <class T>
  int64_t perm_at() const {
    return x_at<T>() + a.n * x_row * kBytes<T>;
  }
  template <class T>
  int64_t area() const {
    return perm_at<T>() + a.n * kBytes<int32_t>;
  }

  template <class T>
  void run(const sdk::Call& c, const Plan& plan) const {
    Singular singular(a.count);
    plan.run(c.scratch, [&](int64_t k, char* at, bool shared) {
      Augmented<T> rows{reinterpret_cast<T*>(at), a.n, row,
                        reinterpret_cast<int32_t*>(at + perm_at<T>())};
      if (perm >= 0) rows.perm = c.out<int32_t>(perm) + k * a.n;
      if (!solve(c, k, rows, reinterpret_cast<T*>(at + x_at<T>()), shared)) singular.found(k);
    });
    singular.finish(policy, "singular");
  }

 private:
  template <class T>
  bool solve(const sdk::Call& c, int64_t k, const Augmented<T>& rows, T* x, bool shared) const {
    const T* const from = c.in<T>(0) + k * a.size();
    const T* const right = c.in<T>(b) + k * a.n * m;
    T* const to = c.out<T>(0) + k * a.n * m;
    pieces(shared, a.n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* const own = rows.data + i * row;
        std::copy_n(from + i * a.n, a.n, own);
        std::copy_n(right + i * m, m, own + a.n);
        std::fill_n(own + a.n + m, row - a.n - m, T{0});
      }
    });
    T* const factors = lu >= 0 ? c.out<T>(lu) + k * a.size() : nullptr;
    if (!factor(rows, false, shared)) {
      std::fill_n(to, a.n * m, kNan<T>);
      if (factors) std::fill_n(factors, a.size(), kNan<T>);
      own_order(rows.perm, a.n);
      return false;
    }
    if (factors) copy_rows(rows.data, row, factors, a.n, a.n, a.n);
    if (m == 0) return true;
    const Triangle<T> upper{rows.data, a.n, row, 1, false, false};
    stripes(shared, 0, m, [&](int64_t j, int64_t j_end) {
      for (int64_t i = 0; i < a.n; ++i) {
        T* const own = x + i * x_row + j;
        std::copy_n(rows.data + i * row + a.n + j, j_end - j, own);
        if (j_end == m) std::fill_n(own + m - j, x_row - m, T{0});
      }
      linalg_substitute(upper, x + j, m == 1 ? 1 : std::max<int64_t>(j_end - j, 2), x_row);
      copy_rows(x + j, x_row, to + j, m, a.n, j_end - j);
    });
    return true;
  }
};

sdk::Kernel make_dense_solve(const sdk::op::dense_solve& n, const sdk::Node& node) {
  const sdk::Type &a = n.a.type(), &b = n.b.type();
  const bool vectors = b.rank == a.rank - 1;
  bool same = vectors || a.rank == b.rank;
  for (int i = 0; same && i < a.rank - 2; ++i) same = a.dims[i] == b.dims[i];
  if (!same) throw sdk::Refusal::shape("the batch dims of a and b differ");
  return sdk::with_type(kSolved, "a", a.dtype, [&]<class T>(T) {
    Solution s{.a = Squares(a), .m = vectors ? 1 : b.dims[b.rank - 1], .row = 0, .x_row = 0};
    s.row = padded_row<T>(s.a.n + s.m);
    s.x_row = s.m == 1 ? 1 : padded_row<T>(s.m);
    s.b = n.b.position(), s.lu = node.out(1).position(), s.perm = node.out(2).position();
    s.policy = n.on_singular;
    const int64_t work = s.a.cube() / 3 + s.a.size() * s.m;
    const Plan plan(s.a, s.area<T>(), work);
    sdk::Kernel kernel{.scratch = plan.scratch()};
    kernel.cost = static_cast<double>(s.a.count * work) / 2e10;
    kernel.run = [=](const sdk::Call& c) { s.run<T>(c, plan); };
    return kernel;
  });
}

sdk::Kernel make_triangular_solve(const sdk::op::triangular_solve& n, const sdk::Node& node) {
  constexpr int64_t kBlock = 64;  // columns that a thread solves at a time
  sdk::Type a = n.a.type(), b = n.b.type(), batch = node.out(0).type();
  const int64_t size = b.dims[b.rank - 2], columns = b.dims[b.rank - 1];
  a.rank -= 2, b.rank -= 2, batch.rank -= 2;
  // Where the matrices of each item of the batch begin.
  std::vector<std::array<int64_t, 2>> places;
  sdk::walk(batch, std::array{sdk::broadcast_strides(a, batch), sdk::broadcast_strides(b, batch)},
            [&](int64_t, const auto& at) { places.push_back(at); });
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  const auto items = static_cast<int64_t>(places.size()) * blocks;
  return sdk::with_type(kSolved, "a", a.dtype, [&]<class T>(T) {
    const int64_t row = columns == 1 ? 1 : padded_row<T>(std::min(columns, kBlock));
    const int64_t work = size * size * std::min(columns, kBlock) / 2;
    const Slots slots = make_slots(items, size * row * kBytes<T>, work);
    Triangle<T> triangle{nullptr, size, size, 1, n.upper == n.trans_a, n.unit_diagonal};
    if (n.trans_a) std::swap(triangle.row, triangle.column);
    sdk::Kernel kernel{.scratch = slots.scratch()};
    kernel.cost = static_cast<double>(items * work) / 2e10;
    kernel.run = [=](const sdk::Call& c) {
      slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
        T* const x = reinterpret_cast<T*>(area);
        for (int64_t k = begin; k < end; ++k) {
          const int64_t first = k % blocks * kBlock, count = std::min(kBlock, columns - first);
          const auto& at = places[static_cast<size_t>(k / blocks)];
          Triangle<T> own = triangle;
          own.a = c.in<T>(0) + at[0];
          copy_rows(c.in<T>(1) + at[1] + first, columns, x, row, size, count);
          for (int64_t i = 0; i < size; ++i) std::fill_n(x + i * row + count, row - count, T{0});
          linalg_substitute(own, x, columns == 1 ? 1 : std::max<int64_t>(count, 2), row);
          copy_rows(x, row, c.out<T>(0) + k / blocks * size * columns + first, columns, size,
                    count);
        }
      });
    };
    return kernel;
  });
}

// Calls body(i, j) for the elements on and below the diagonal of rows [begin, end), in squares: one of
// the two matrices is walked down its columns.
template <class Body>
void lower_triangle(int64_t begin, int64_t end, const Body& body) {
  constexpr int64_t kSide = 16;
  for (int64_t j = 0; j < end; j += kSide)
    for (int64_t i = std::max(begin, j); i < end; ++i)
      for (int64_t own = j; own < std::min(j + kSide, i + 1); ++own) body(i, own);
}

sdk::Kernel make_cholesky(const sdk::op::cholesky& n, const sdk::Node&) {
  const Squares s(n.a.type());
  return sdk::with_type(kSolved, "a", n.a.type().dtype, [&]<class T>(T) {
    const int64_t row = padded_row<T>(s.n);
    const Plan plan(s, s.n * row * kBytes<T>, s.cube() / 6);
    sdk::Kernel kernel{.scratch = plan.scratch()};
    kernel.cost = static_cast<double>(s.count * s.cube()) / 1e11;
    kernel.run = [=, policy = n.on_singular](const sdk::Call& c) {
      Singular singular(s.count);
      plan.run(c.scratch, [&](int64_t k, char* area, bool shared) {
        T* const upper = reinterpret_cast<T*>(area);
        const T* const x = c.in<T>(0) + k * s.size();
        T* const y = c.out<T>(0) + k * s.size();
        pieces(shared, s.n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
          lower_triangle(begin, end,
                         [&](int64_t i, int64_t j) { upper[j * row + i] = x[i * s.n + j]; });
          for (int64_t i = begin; i < end; ++i) std::fill_n(upper + i * row + s.n, row - s.n, T{0});
        });
        if (!cholesky(upper, s.n, row, shared)) {
          singular.found(k);
          std::fill_n(y, s.size(), kNan<T>);
          return;
        }
        pieces(shared, s.n, kRowsPerPiece, [&](int64_t begin, int64_t end) {
          lower_triangle(begin, end,
                         [&](int64_t i, int64_t j) { y[i * s.n + j] = upper[j * row + i]; });
          for (int64_t i = begin; i < end; ++i) std::fill_n(y + i * s.n + i + 1, s.n - i - 1, T{0});
        });
      });
      singular.finish(policy, "not positive definite");
    };
    return kernel;
  });
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::lu, make_lu>(),
    sdk::row<sdk::op::triangular_solve, make_triangular_solve>(),
    sdk::row<sdk::op::cholesky, make_cholesky>(),
    sdk::row<sdk::op::dense_solve, make_dense_solve>(),
};

}  // namespace

std::span<const sdk::Row> linalg_rows() { return kRows; }

}  // namespace tenon::cpu
