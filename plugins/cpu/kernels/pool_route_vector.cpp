// SPDX-License-Identifier: Apache-2.0
// Gradients of a max pool: windows in lanes find their greatest taps and add to them.
#include <algorithm>
#include <array>
#include <limits>

#include "pool_vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool_route_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Taps of a row of windows: `rows` rows of spread columns, `step` elements apart.
struct RouteRow {
  int64_t rows, step, taps, n;
  const int64_t* offsets;
};

// Taps are numbered in the order that decides between equal ones. True when a window found none.
template <class T>
HWY_INLINE bool route_row(const RouteRow& r, const Acc<T>* x, const T* dy, Acc<T>* dx) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const auto none = hn::Set(d, A{-1});
  auto missed = hn::Eq(none, hn::Zero(d));
  each(d, 0, r.n, [&](auto at) HWY_ATTR {
    auto best = hn::Set(d, -std::numeric_limits<A>::infinity()), tap = none;
    A number = 0;
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t k = 0; k < r.taps; ++k, ++number) {
        const auto v = load(d, x + i * r.step + r.offsets[k], at);
        const auto better = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
        best = hn::IfThenElse(better, v, best);
        tap = hn::IfThenElse(better, hn::Set(d, number), tap);
      }
    missed = hn::Or(missed, hn::Eq(existing(d, tap, hn::Zero(d), at), none));
    const auto up = load(d, dy, at);
    number = 0;
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t k = 0; k < r.taps; ++k, ++number) {
        A* to = dx + i * r.step + r.offsets[k];
        const auto mine = hn::IfThenElseZero(hn::Eq(tap, hn::Set(d, number)), up);
        store(d, hn::Add(load(d, to, at), mine), to, at);
      }
  });
  return !hn::AllFalse(d, missed);
}

template <class T>
bool route_plane(const PoolPlan& p, const T* dy, const T* x, Acc<T>* spread_x, Acc<T>* spread_dx) {
  const PoolLine &h = p.windows.h, &w = p.windows.w;
  const Spread spread(w);
  const int64_t row = w.spread();
  bool missed = false;
  std::fill_n(spread_dx, h.size * row, Acc<T>{0});
  for (int64_t r = 0; r < h.size; ++r) spread_row(spread, x + r * w.size, spread_x + r * row);
  for (int64_t i = 0; i < h.count; ++i) {
    const PoolLine::Range taps = h.taps(i);
    if (taps.count() == 0) continue;
    const int64_t top = (h.first(i) + taps.begin * h.dilation) * row;
    const RouteRow r{taps.count(), h.dilation * row, w.kernel, w.count, p.offsets};
    if (route_row<T>(r, spread_x + top, dy + i * w.count, spread_dx + top)) missed = true;
  }
  return missed;
}

void route_target(const PoolPlan& p, const void* dy, const void* x, void* spread_x, void* spread_dx,
                  bool& missed) {
  with_storage(p.dtype, [&]<class T>(T) {
    missed = route_plane(p, static_cast<const T*>(dy), static_cast<const T*>(x),
                         static_cast<Acc<T>*>(spread_x), static_cast<Acc<T>*>(spread_dx));
  });
}
void join_target(const PoolPlan& p, void* from, void* plane) {
  with_storage(p.dtype, [&]<class T>(T) {
    const PoolLine& w = p.windows.w;
    const Spread spread(w);
    for (int64_t r = 0; r < p.windows.h.size; ++r)
      join_row(spread, static_cast<Acc<T>*>(from) + r * w.spread(),
               static_cast<T*>(plane) + r * w.size);
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(route_target);
HWY_EXPORT(join_target);

bool pool_route(const PoolPlan& p, const void* dy, const void* x, void* spread_x, void* spread_dx) {
  bool missed = false;
  HWY_DYNAMIC_DISPATCH(route_target)(p, dy, x, spread_x, spread_dx, missed);
  return missed;
}
void pool_join(const PoolPlan& p, void* spread, void* plane) {
  HWY_DYNAMIC_DISPATCH(join_target)(p, spread, plane);
}

}  // namespace tenon::cpu
#endif
