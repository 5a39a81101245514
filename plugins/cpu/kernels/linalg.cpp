// SPDX-License-Identifier: Apache-2.0
// lu triangular_solve cholesky dense_solve. Each thread takes some of the matrices.
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

sdk::Kernel make_lu(const sdk::op::lu& n, const sdk::Node&) {
  const Squares s(n.a.type());
  return sdk::with_type(kSolved, "a", n.a.type().dtype, [&]<class T>(T) {
    const int64_t row = padded_row<T>(s.n);
    const Slots slots = make_slots(s.count, s.n * row * kBytes<T>, s.cube() / 3);
    sdk::Kernel kernel{.scratch = slots.scratch()};
    kernel.cost = static_cast<double>(s.count * s.cube()) / 1e11;
    kernel.run = [=, policy = n.on_singular](const sdk::Call& c) {
      Singular singular(s.count);
      slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
        const Augmented<T> rows{reinterpret_cast<T*>(area), s.n, row, nullptr};
        for (int64_t k = begin; k < end; ++k) {
          Augmented<T> one = rows;
          one.perm = c.out<int32_t>(1) + k * s.n;
          T* const y = c.out<T>(0) + k * s.size();
          for (int64_t i = 0; i < s.n; ++i) {
            std::copy_n(c.in<T>(0) + k * s.size() + i * s.n, s.n, one.data + i * row);
            std::fill_n(one.data + i * row + s.n, row - s.n, T{0});
          }
          if (linalg_factor(one, policy == "keep") || policy == "keep") {
            copy_rows(one.data, row, y, s.n, s.n, s.n);
            continue;
          }
          singular.found(k);
          std::fill_n(y, s.size(), kNan<T>);
          own_order(one.perm, s.n);
        }
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
  void run(const sdk::Call& c, const Slots& slots) const {
    Singular singular(a.count);
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* at) {
      Augmented<T> rows{reinterpret_cast<T*>(at), a.n, row,
                        reinterpret_cast<int32_t*>(at + perm_at<T>())};
      T* const x = reinterpret_cast<T*>(at + x_at<T>());
      for (int64_t k = begin; k < end; ++k) {
        if (perm >= 0) rows.perm = c.out<int32_t>(perm) + k * a.n;
        if (!solve(c, k, rows, x)) singular.found(k);
      }
    });
    singular.finish(policy, "singular");
  }

 private:
  template <class T>
  bool solve(const sdk::Call& c, int64_t k, const Augmented<T>& rows, T* x) const {
    const T* const from = c.in<T>(0) + k * a.size();
    const T* const right = c.in<T>(b) + k * a.n * m;
    T* const to = c.out<T>(0) + k * a.n * m;
    for (int64_t i = 0; i < a.n; ++i) {
      T* const own = rows.data + i * row;
      std::copy_n(from + i * a.n, a.n, own);
      std::copy_n(right + i * m, m, own + a.n);
      std::fill_n(own + a.n + m, row - a.n - m, T{0});
    }
    T* const factors = lu >= 0 ? c.out<T>(lu) + k * a.size() : nullptr;
    if (!linalg_factor(rows, false)) {
      std::fill_n(to, a.n * m, kNan<T>);
      if (factors) std::fill_n(factors, a.size(), kNan<T>);
      own_order(rows.perm, a.n);
      return false;
    }
    if (factors) copy_rows(rows.data, row, factors, a.n, a.n, a.n);
    if (m == 0) return true;
    for (int64_t i = 0; i < a.n; ++i) {
      std::copy_n(rows.data + i * row + a.n, m, x + i * x_row);
      std::fill_n(x + i * x_row + m, x_row - m, T{0});
    }
    linalg_substitute(Triangle<T>{rows.data, a.n, row, 1, false, false}, x, m, x_row);
    copy_rows(x, x_row, to, m, a.n, m);
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
    const Slots slots = make_slots(s.a.count, s.area<T>(), work);
    sdk::Kernel kernel{.scratch = slots.scratch()};
    kernel.cost = static_cast<double>(s.a.count * work) / 2e10;
    kernel.run = [=](const sdk::Call& c) { s.run<T>(c, slots); };
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

sdk::Kernel make_cholesky(const sdk::op::cholesky& n, const sdk::Node&) {
  const Squares s(n.a.type());
  return sdk::with_type(kSolved, "a", n.a.type().dtype, [&]<class T>(T) {
    const int64_t row = padded_row<T>(s.n);
    const Slots slots = make_slots(s.count, s.n * row * kBytes<T>, s.cube() / 6);
    sdk::Kernel kernel{.scratch = slots.scratch()};
    kernel.cost = static_cast<double>(s.count * s.cube()) / 1e11;
    kernel.run = [=, policy = n.on_singular](const sdk::Call& c) {
      Singular singular(s.count);
      slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
        T* const upper = reinterpret_cast<T*>(area);
        for (int64_t k = begin; k < end; ++k) {
          const T* const x = c.in<T>(0) + k * s.size();
          T* const y = c.out<T>(0) + k * s.size();
          for (int64_t i = 0; i < s.n; ++i)
            for (int64_t j = 0; j <= i; ++j) upper[j * row + i] = x[i * s.n + j];
          if (!linalg_cholesky(upper, s.n, row)) {
            singular.found(k);
            std::fill_n(y, s.size(), kNan<T>);
            continue;
          }
          for (int64_t i = 0; i < s.n; ++i)
            for (int64_t j = 0; j < s.n; ++j) y[i * s.n + j] = j <= i ? upper[j * row + i] : T{0};
        }
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
