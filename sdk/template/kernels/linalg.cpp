// SPDX-License-Identifier: Apache-2.0
// lu triangular_solve cholesky: one matrix after the other, in double.
#include <algorithm>
#include <string>
#include <vector>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

constexpr auto kSolved = Types<float, double>{};

struct Squares {
  int64_t count = 1, n = 0;
};
Squares squares_of(const Type& a) {
  Squares s{.n = a.dims[a.rank - 1]};
  for (int i = 0; i < a.rank - 2; ++i) s.count *= a.dims[i];
  return s;
}

// What becomes of matrices without a result.
class Singular {
 public:
  explicit Singular(const std::string& policy) : error_(policy == "error") {}
  void found(int64_t matrix) {
    if (first_ < 0) first_ = matrix;
  }
  void finish(const char* what) const {
    if (!error_ || first_ < 0) return;
    throw sdk::Failure(TENON_NUMERIC_ERROR,
                       "operand a: matrix " + std::to_string(first_) + " is " + what, first_);
  }

 private:
  bool error_;
  int64_t first_ = -1;
};

// Returns false if a pivot is 0 or not finite.
bool factor(double* a, int64_t n, int32_t* perm) {
  bool regular = true;
  for (int64_t i = 0; i < n; ++i) perm[i] = static_cast<int32_t>(i);
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::fabs(a[i * n + k]) > std::fabs(a[best * n + k])) best = i;
    if (best != k) std::swap_ranges(a + k * n, a + k * n + n, a + best * n);
    std::swap(perm[k], perm[best]);
    const double pivot = a[k * n + k];
    regular = regular && pivot != 0 && std::isfinite(pivot);
    if (pivot == 0) continue;
    for (int64_t i = k + 1; i < n; ++i) {
      const double l = a[i * n + k] /= pivot;
      for (int64_t j = k + 1; j < n; ++j) a[i * n + j] -= l * a[k * n + j];
    }
  }
  return regular;
}

}  // namespace

Kernel make_lu(const op::lu& n, const Node&) {
  const Type& a = n.a.type();
  return with_type(kSolved, "a", a.dtype, [&]<class T>(T) {
    const auto run = [s = squares_of(a), policy = n.on_singular](const sdk::Call& c) {
      Singular singular(policy);
      std::vector<double> rows(static_cast<size_t>(s.n * s.n));
      for (int64_t m = 0; m < s.count; ++m) {
        const int64_t size = s.n * s.n;
        int32_t* const perm = c.out<int32_t>(1) + m * s.n;
        std::copy_n(c.in<T>(0) + m * size, size, rows.begin());
        if (!factor(rows.data(), s.n, perm) && policy != "keep") {
          singular.found(m);
          std::fill(rows.begin(), rows.end(), std::numeric_limits<double>::quiet_NaN());
          for (int64_t i = 0; i < s.n; ++i) perm[i] = static_cast<int32_t>(i);
        }
        std::transform(rows.begin(), rows.end(), c.out<T>(0) + m * size, narrow<T, double>);
      }
      singular.finish("singular");
    };
    return Kernel{.run = run};
  });
}

Kernel make_triangular_solve(const op::triangular_solve& n, const Node& node) {
  Type a = n.a.type(), b = n.b.type(), batch = node.out(0).type();
  const int64_t size = b.dims[b.rank - 2], columns = b.dims[b.rank - 1];
  a.rank -= 2, b.rank -= 2, batch.rank -= 2;
  const std::array<Dims, 2> strides{broadcast_strides(a, batch), broadcast_strides(b, batch)};
  return with_type(kSolved, "a", n.a.type().dtype, [&]<class T>(T) {
    const auto run = [=, upper = n.upper, trans = n.trans_a,
                      unit = n.unit_diagonal](const sdk::Call& c) {
      std::vector<double> x(static_cast<size_t>(size));
      walk(batch, strides, [&](int64_t k, const auto& at) {
        const T* const a = c.in<T>(0) + at[0];
        const T* const b = c.in<T>(1) + at[1];
        T* const y = c.out<T>(0) + k * size * columns;
        const auto element = [&](int64_t i, int64_t j) {
          return static_cast<double>(trans ? a[j * size + i] : a[i * size + j]);
        };
        for (int64_t column = 0; column < columns; ++column) {
          for (int64_t step = 0; step < size; ++step) {
            const bool down = upper == trans;
            const int64_t i = down ? step : size - 1 - step;
            double sum = static_cast<double>(b[i * columns + column]);
            const int64_t first = down ? 0 : i + 1, end = down ? i : size;
            for (int64_t j = first; j < end; ++j) sum -= element(i, j) * x[static_cast<size_t>(j)];
            x[static_cast<size_t>(i)] = unit ? sum : sum / element(i, i);
          }
          for (int64_t i = 0; i < size; ++i)
            y[i * columns + column] = narrow<T>(x[static_cast<size_t>(i)]);
        }
      });
    };
    return Kernel{.run = run};
  });
}

Kernel make_cholesky(const op::cholesky& n, const Node&) {
  const Type& a = n.a.type();
  return with_type(kSolved, "a", a.dtype, [&]<class T>(T) {
    const auto run = [s = squares_of(a), policy = n.on_singular](const sdk::Call& c) {
      Singular singular(policy);
      std::vector<double> l(static_cast<size_t>(s.n * s.n));
      for (int64_t m = 0; m < s.count; ++m) {
        const T* const from = c.in<T>(0) + m * s.n * s.n;
        std::fill(l.begin(), l.end(), 0.0);
        bool definite = true;
        for (int64_t i = 0; i < s.n; ++i)
          for (int64_t j = 0; j <= i; ++j) {
            const auto at = [&](int64_t row, int64_t column) -> double& {
              return l[static_cast<size_t>(row * s.n + column)];
            };
            double sum = static_cast<double>(from[i * s.n + j]);
            for (int64_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
            if (i == j) definite = definite && sum > 0 && std::isfinite(sum);
            at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
          }
        if (!definite) {
          singular.found(m);
          std::fill(l.begin(), l.end(), std::numeric_limits<double>::quiet_NaN());
        }
        std::transform(l.begin(), l.end(), c.out<T>(0) + m * s.n * s.n, narrow<T, double>);
      }
      singular.finish("not positive definite");
    };
    return Kernel{.run = run};
  });
}

}  // namespace tenon::sample
