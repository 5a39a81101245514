// SPDX-License-Identifier: Apache-2.0
// Vector code of the float reductions. Short blocks are summed in the accumulation type, and their
// sums in double. So the error is about that of one short block.
#include <algorithm>
#include <array>
#include <cmath>

#include "reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "math-inl.h"
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class T>
double product(const T* x, int64_t n) {
  double p = 1;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, double>)
      p *= x[i];
    else
      p *= to_float(x[i]);
  }
  return p;
}

template <class D>
HWY_INLINE hn::Vec<D> term(ReduceKind kind, D, hn::Vec<D> v) {
  if (kind == ReduceKind::sum_square) return hn::Mul(v, v);
  if (kind == ReduceKind::l1) return hn::Abs(v);
  return v;
}

template <class T>
Partial run_of(ReduceKind kind, const T* x, int64_t n) {
  const hn::ScalableTag<Acc<T>> d;
  switch (kind) {
    case ReduceKind::max:
      return {max_of(d, n, [&](auto at) HWY_ATTR { return load(d, x, at); })};
    case ReduceKind::min:
      return {-max_of(d, n, [&](auto at) HWY_ATTR { return hn::Neg(load(d, x, at)); })};
    case ReduceKind::prod:
      return {product(x, n)};
    case ReduceKind::logsumexp: {
      const auto row_max = max_of(d, n, [&](auto at) HWY_ATTR { return load(d, x, at); });
      if (!std::isfinite(row_max)) return {row_max, row_max == row_max && row_max < 0 ? 0.0 : 1.0};
      if constexpr (std::is_same_v<T, double>) {
        double scale = 0;
        for (int64_t i = 0; i < n; ++i) scale += std::exp(x[i] - row_max);
        return {row_max, scale};
      } else {
        const auto m = hn::Set(d, row_max);
        return {row_max, sums<1>(d, n, [&](auto at) HWY_ATTR {
                  return std::array{vexp(d, hn::Sub(load(d, x, at), m))};
                })[0]};
      }
    }
    default:
      return {sums<1>(
          d, n, [&](auto at) HWY_ATTR { return std::array{term(kind, d, load(d, x, at))}; })[0]};
  }
}

Partial run_target(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t n) {
  Partial p;
  with_storage(dtype, [&]<class T>(T) { p = run_of(kind, static_cast<const T*>(x), n); });
  return p;
}

// A tile of columns stays in the first-level cache: `acc` accumulates a block of rows, `total` the
// blocks.
constexpr int64_t kColumns = 1024, kBlockRows = 256;

// Combines acc[0, n) with `rows` rows, four at a time: fewer passes over acc, more loads in flight.
template <class T, class Join>
HWY_INLINE void join_rows(const T* x, int64_t rows, int64_t stride, int64_t n, Acc<T>* acc,
                          Join&& join) {
  const hn::ScalableTag<Acc<T>> d;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * stride)
    each(d, 0, n, [&](auto at) HWY_ATTR {
      const auto row = [&](int64_t k) HWY_ATTR {
        // The hardware prefetches no row that begins in another page.
        hwy::Prefetch(x + (k + 4) * stride + at.i);
        return load(d, x + k * stride, at);
      };
      const auto low = join(row(0), row(1)), high = join(row(2), row(3));
      store(d, join(load(d, acc, at), join(low, high)), acc, at);
    });
  for (; r < rows; ++r, x += stride)
    each(d, 0, n,
         [&](auto at) HWY_ATTR { store(d, join(load(d, acc, at), load(d, x, at)), acc, at); });
}

template <class T>
void columns_of(ReduceKind kind, const T* x, int64_t rows, int64_t stride, int64_t n, double* y) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const bool is_max = kind == ReduceKind::max, is_min = kind == ReduceKind::min;
  const A start = is_max ? -static_cast<A>(INFINITY) : is_min ? static_cast<A>(INFINITY) : A{0};
  alignas(64) A acc[kColumns];
  for (int64_t from = 0; from < n; from += kColumns) {
    const int64_t width = std::min(kColumns, n - from);
    double* total = y + from;
    std::fill_n(total, width, static_cast<double>(start));
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      std::fill_n(acc, width, start);
      const T* block = x + row * stride + from;
      const int64_t count = std::min(rows - row, kBlockRows);
      const auto take = [&](auto join)
                            HWY_ATTR { join_rows(block, count, stride, width, acc, join); };
      if (is_max) {
        take([&](auto a, auto b) HWY_ATTR { return max_nan(d, a, b); });
      } else if (is_min) {
        take([&](auto a, auto b) HWY_ATTR { return min_nan(d, a, b); });
      } else if (kind == ReduceKind::sum) {
        take([&](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
      } else {
        for (int64_t r = 0; r < count; ++r)
          each(d, 0, width, [&](auto at) HWY_ATTR {
            const auto v = term(kind, d, load(d, block + r * stride, at));
            store(d, hn::Add(load(d, acc, at), v), acc, at);
          });
      }
      for (int64_t c = 0; c < width; ++c) {
        const double v = acc[c];
        if (is_max)
          total[c] = v > total[c] || v != v ? v : total[c];
        else if (is_min)
          total[c] = v < total[c] || v != v ? v : total[c];
        else
          total[c] += v;
      }
    }
  }
}

void columns_target(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t rows, int64_t stride,
                    int64_t n, double* y) {
  with_storage(dtype,
               [&]<class T>(T) { columns_of(kind, static_cast<const T*>(x), rows, stride, n, y); });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(run_target);
HWY_EXPORT(columns_target);

Partial reduce_run(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_target)(kind, dtype, x, n);
}
void reduce_columns(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t rows, int64_t stride,
                    int64_t n, double* y) {
  HWY_DYNAMIC_DISPATCH(columns_target)(kind, dtype, x, rows, stride, n, y);
}

}  // namespace tenon::cpu
#endif
