// SPDX-License-Identifier: Apache-2.0
// The forward pools: reduces each row of windows down the image, spreads it, and reduces it across.
#include "pool_vector.hpp"

#include <algorithm>
#include <array>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <PoolKind kind, class A>
constexpr A kIdentity = kind == PoolKind::max ? -std::numeric_limits<A>::infinity() : A{0};

template <PoolKind kind, class D>
HWY_INLINE hn::Vec<D> joined(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (kind == PoolKind::max) return max_nan(d, a, b);
  return hn::Add(a, b);
}

// Reduces tap(k) for k < taps. Long sums are split into blocks, for a small rounding error.
template <PoolKind kind, class D, class F>
HWY_INLINE hn::Vec<D> fold_taps(D d, int64_t taps, F&& tap) {
  constexpr int64_t kBlock = 32;
  auto total = hn::Set(d, kIdentity<kind, hn::TFromD<D>>);
  for (int64_t begin = 0; begin < taps; begin += kBlock) {
    const int64_t end = std::min(taps, begin + kBlock);
    auto part = tap(begin);
    for (int64_t k = begin + 1; k < end; ++k) part = joined<kind>(d, part, tap(k));
    total = begin == 0 ? part : joined<kind>(d, total, part);
  }
  return total;
}

// Calls f with the number of taps, as a constant if it is a usual one: such loops are unrolled.
template <class F>
HWY_INLINE void with_taps(int64_t taps, F&& f) {
  if (taps == 2) return f(std::integral_constant<int64_t, 2>());
  if (taps == 3) return f(std::integral_constant<int64_t, 3>());
  f(taps);
}

// area: the spread columns, the unspread columns, the divisors.
template <PoolKind kind, class T>
void forward_rows(const PoolPlan& p, const T* x, T* y, int64_t begin, int64_t end, Acc<T>* area) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const PoolLine &h = p.windows.h, &w = p.windows.w;
  const Spread spread(w);
  A* columns = area + w.spread();
  A* divisors = columns + w.size;
  std::fill(area, columns, kIdentity<kind, A>);
  if constexpr (kind == PoolKind::sum) std::copy_n(p.divide_columns, w.count, divisors);
  int64_t plane = begin / h.count, o = begin % h.count - 1;
  for (int64_t row = begin; row < end; ++row) {
    if (++o == h.count) o = 0, ++plane;
    const PoolLine::Range taps = h.taps(o);
    const int64_t top = plane * h.size + h.first(o) + taps.begin * h.dilation;
    const T* from = taps.count() > 0 ? x + top * w.size : x;
    with_taps(taps.count(), [&](auto count) HWY_ATTR {
      const auto down = [&](auto at) HWY_ATTR {
        const auto tap = [&](int64_t k)
                             HWY_ATTR { return load(d, from + k * h.dilation * w.size, at); };
        return fold_taps<kind>(d, count, tap);
      };
      if (w.stride == 2) return spread_pairs(d, spread, area, down);
      A* to = w.stride == 1 ? area + w.before : columns;
      each(d, 0, w.size, [&](auto at) HWY_ATTR { store(d, down(at), to, at); });
      if (w.stride != 1) spread_row(spread, columns, area);
    });
    with_taps(w.kernel, [&](auto count) HWY_ATTR {
      each(d, 0, w.count, [&](auto at) HWY_ATTR {
        const auto tap = [&](int64_t k) HWY_ATTR { return load(d, area + p.offsets[k], at); };
        auto v = fold_taps<kind>(d, count, tap);
        if constexpr (kind == PoolKind::sum)
          v = hn::Div(v,
                      hn::Mul(hn::Set(d, static_cast<A>(p.divide_rows[o])), load(d, divisors, at)));
        store(d, v, y + row * w.count, at);
      });
    });
  }
}

void forward_target(const PoolPlan& p, const void* x, void* y, int64_t begin, int64_t end,
                    void* area) {
  with_storage(p.dtype, [&]<class T>(T) {
    const auto run =
        p.kind == PoolKind::max ? forward_rows<PoolKind::max, T> : forward_rows<PoolKind::sum, T>;
    run(p, static_cast<const T*>(x), static_cast<T*>(y), begin, end, static_cast<Acc<T>*>(area));
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

HWY_EXPORT(forward_target);
HWY_EXPORT(add_row_target);

void pool_forward(const PoolPlan& p, const void* x, void* y, int64_t begin, int64_t end,
                  void* area) {
  HWY_DYNAMIC_DISPATCH(forward_target)(p, x, y, begin, end, area);
}
void pool_add_row(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums) {
  HWY_DYNAMIC_DISPATCH(add_row_target)(dtype, row, n, divisor, sums);
}

}  // namespace tenon::cpu
#endif
