// SPDX-License-Identifier: Apache-2.0
// Folds of the taps of a pool: down the rows of an image, and across a row whose columns are spread
// by phase, so that every tap is a contiguous stretch.
#include "pool_vector.hpp"

#include <algorithm>
#include <array>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <PoolKind kind, class D>
HWY_INLINE hn::Vec<D> identity(D d) {
  using A = hn::TFromD<D>;
  return hn::Set(d, kind == PoolKind::max ? -std::numeric_limits<A>::infinity() : A{0});
}
template <PoolKind kind, class D>
HWY_INLINE hn::Vec<D> joined(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (kind == PoolKind::max) return max_nan(d, a, b);
  return hn::Add(a, b);
}

// Of tap(k) for k < taps; a long sum is made of sums of blocks, which lose little.
template <PoolKind kind, class D, class F>
HWY_INLINE hn::Vec<D> fold_taps(D d, int64_t taps, F&& tap) {
  constexpr int64_t kBlock = 32;
  auto total = identity<kind>(d);
  for (int64_t begin = 0; begin < taps; begin += kBlock) {
    const int64_t end = std::min(taps, begin + kBlock);
    auto part = tap(begin);
    for (int64_t k = begin + 1; k < end; ++k) part = joined<kind>(d, part, tap(k));
    total = joined<kind>(d, total, part);
  }
  return total;
}

// Calls f with the kind as a constant.
template <class F>
HWY_INLINE void with_kind(PoolKind kind, F&& f) {
  if (kind == PoolKind::max) return f(std::integral_constant<PoolKind, PoolKind::max>{});
  f(std::integral_constant<PoolKind, PoolKind::sum>{});
}

void down_target(tenon_dtype dtype, PoolKind which, const void* data, int64_t step, int64_t taps,
                 int64_t n, void* to) {
  with_storage(dtype, [&]<class T>(T) {
    const hn::ScalableTag<Acc<T>> d;
    const T* x = static_cast<const T*>(data);
    Acc<T>* column = static_cast<Acc<T>*>(to);
    with_kind(which, [&](auto kind) HWY_ATTR {
      each(d, 0, n, [&](auto at) HWY_ATTR {
        const auto tap = [&](int64_t k) HWY_ATTR { return load(d, x + k * step, at); };
        store(d, fold_taps<kind.value>(d, taps, tap), column, at);
      });
    });
  });
}

struct Across {
  const void* columns;
  const int64_t* offsets;
  int64_t taps, n;
  double divisor;
  const void* divisors;
  void* y;
};
template <class T>
void across(PoolKind which, const Across& a) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* columns = static_cast<const A*>(a.columns);
  const A* divisors = static_cast<const A*>(a.divisors);
  const auto divisor = hn::Set(d, static_cast<A>(a.divisor));
  T* y = static_cast<T*>(a.y);
  with_kind(which, [&](auto kind) HWY_ATTR {
    each(d, 0, a.n, [&](auto at) HWY_ATTR {
      const auto tap = [&](int64_t k) HWY_ATTR { return load(d, columns + a.offsets[k], at); };
      auto v = fold_taps<kind.value>(d, a.taps, tap);
      if constexpr (kind.value == PoolKind::sum)
        v = hn::Div(v, hn::Mul(divisor, load(d, divisors, at)));
      store(d, v, y, at);
    });
  });
}
void across_target(tenon_dtype dtype, PoolKind kind, const void* columns, const int64_t* offsets,
                   int64_t taps, int64_t n, double divisor, const void* divisors, void* y) {
  with_storage(dtype, [&]<class T>(T) {
    across<T>(kind, {columns, offsets, taps, n, divisor, divisors, y});
  });
}

void add_row_target(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums) {
  with_storage(dtype, [&]<class T>(T) {
    using A = Acc<T>;
    const hn::ScalableTag<A> d;
    const auto by = hn::Set(d, static_cast<A>(divisor));
    A* to = static_cast<A*>(sums);
    map(
        d, n, [&](auto, auto sum, auto v) HWY_ATTR { return hn::Add(sum, hn::Div(v, by)); }, to, to,
        static_cast<const T*>(row));
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(down_target);
HWY_EXPORT(across_target);
HWY_EXPORT(add_row_target);

void pool_down(tenon_dtype dtype, PoolKind kind, const void* x, int64_t step, int64_t taps,
               int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(down_target)(dtype, kind, x, step, taps, n, to);
}
void pool_across(tenon_dtype dtype, PoolKind kind, const void* columns, const int64_t* offsets,
                 int64_t taps, int64_t n, double divisor, const void* divisors, void* y) {
  HWY_DYNAMIC_DISPATCH(across_target)(dtype, kind, columns, offsets, taps, n, divisor, divisors, y);
}
void pool_add_row(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums) {
  HWY_DYNAMIC_DISPATCH(add_row_target)(dtype, row, n, divisor, sums);
}

}  // namespace tenon::cpu
#endif
