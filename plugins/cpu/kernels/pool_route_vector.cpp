// SPDX-License-Identifier: Apache-2.0
// Gradients of a max pool: each lane finds the largest tap of one window, and adds to it.
#include <algorithm>
#include <array>
#include <limits>

#include "nontemporal.hpp"
#include "pool_vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool_route_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The taps of a row of windows: `rows` rows of spread columns, `step` elements apart.
struct RouteRow {
  int64_t rows, step, taps, n;
  const int64_t* offsets;
};

// Taps are numbered in the order that decides between equal ones. Returns true if a window has no
// tap above -inf.
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

// The destination of the gradient of a window of 2 x 2, which has a tap in every lane.
template <class D>
struct Quarter {
  using V = hn::Vec<D>;
  HWY_INLINE Quarter(D, V a, V b, V c, V e, V up) {
    auto best = a;
    const auto wins = [&](V v) HWY_ATTR {
      const auto better = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
      best = hn::IfThenElse(better, v, best);
      return better;
    };
    const auto second = wins(b), third = wins(c), fourth = wins(e);
    to[3] = hn::IfThenElseZero(fourth, up);
    const auto three = hn::IfThenZeroElse(fourth, up);
    to[2] = hn::IfThenElseZero(third, three);
    const auto two = hn::IfThenZeroElse(third, three);
    to[1] = hn::IfThenElseZero(second, two);
    to[0] = hn::IfThenZeroElse(second, two);
  }
  V to[4];
};

// One row of windows, which are two rows of the image.
template <class T>
HWY_INLINE void route_quarters(const PoolLine& w, const T* dy, const T* x, T* dx) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), row = w.size;
  int64_t j = 0;
  for (; j + lanes <= w.count; j += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved2(d, x + 2 * j, a, b);
    hn::LoadInterleaved2(d, x + row + 2 * j, c, e);
    const Quarter q(d, a, b, c, e, hn::LoadU(d, dy + j));
    hn::StoreInterleaved2(q.to[0], q.to[1], d, dx + 2 * j);
    hn::StoreInterleaved2(q.to[2], q.to[3], d, dx + row + 2 * j);
  }
  for (; j < w.count; ++j) {
    const T* at = x + 2 * j;
    T* to = dx + 2 * j;
    const Quarter q(one, hn::LoadU(one, at), hn::LoadU(one, at + 1), hn::LoadU(one, at + row),
                    hn::LoadU(one, at + row + 1), hn::LoadU(one, dy + j));
    hn::StoreU(q.to[0], one, to);
    hn::StoreU(q.to[1], one, to + 1);
    hn::StoreU(q.to[2], one, to + row);
    hn::StoreU(q.to[3], one, to + row + 1);
  }
  std::fill(dx + 2 * j, dx + row, T{0});
  std::fill(dx + row + 2 * j, dx + 2 * row, T{0});
}

template <class T>
void route_planes(const PoolPlan& p, const T* dy, const T* x, T* dx, int64_t planes,
                  bool nontemporal) {
  const PoolLine &h = p.windows.h, &w = p.windows.w;
  NontemporalRow<T> rows(nontemporal, 2 * w.size);
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t i = 0; i < h.count; ++i, dy += w.count, x += 2 * w.size, dx += 2 * w.size) {
      route_quarters(w, dy, x, rows.at(dx));
      rows.done(dx);
    }
    const int64_t left = (h.size - 2 * h.count) * w.size;
    std::fill_n(dx, left, T{0});
    x += left, dx += left;
  }
}

void quarters_target(const PoolPlan& p, const void* dy, const void* x, void* dx, int64_t planes,
                     bool nontemporal) {
  const auto as = [&]<class T>(T) {
    route_planes(p, static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<T*>(dx),
                 planes, nontemporal);
  };
  if (p.dtype == TENON_DTYPE_F64) return as(double{});
  as(float{});
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

HWY_EXPORT(quarters_target);
HWY_EXPORT(route_target);
HWY_EXPORT(join_target);

void pool_route_quarters(const PoolPlan& p, const void* dy, const void* x, void* dx, int64_t planes,
                         bool nontemporal) {
  HWY_DYNAMIC_DISPATCH(quarters_target)(p, dy, x, dx, planes, nontemporal);
}
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
