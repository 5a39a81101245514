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

// ---- spread columns

// Where the columns 0, 2, .. and 1, 3, .. begin when the stride is 2.
template <class A>
struct TwoPhases {
  A *even, *odd;
  TwoPhases(const PoolSpread& s, A* to)
      : even(to + s.before % 2 * s.phase + s.before / 2),
        odd(to + (s.before + 1) % 2 * s.phase + (s.before + 1) / 2) {}
};
template <class A, class F>
HWY_INLINE void each_column(const PoolSpread& s, int64_t first, A* to, F&& f) {
  int64_t phase = (s.before + first) % s.stride, at = (s.before + first) / s.stride;
  for (int64_t k = first; k < s.n; ++k) {
    f(k, to[phase * s.phase + at]);
    if (++phase == s.stride) phase = 0, ++at;
  }
}

template <class T>
Acc<T> wide(T v) {
  if constexpr (std::is_same_v<T, double>)
    return v;
  else
    return to_float(v);
}
template <class T>
void set_narrow(Acc<T> v, T* to) {
  if constexpr (std::is_same_v<T, double>)
    *to = v;
  else
    from_float(v, to);
}

template <class T>
void spread_row(const PoolSpread& s, const T* row, Acc<T>* to) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  if (s.stride == 1) {
    map(
        d, s.n, [](auto, auto v) HWY_ATTR { return v; }, to + s.before, row);
    return;
  }
  int64_t k = 0;
  if constexpr (std::is_same_v<T, A>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const TwoPhases<A> two(s, to);
    for (; s.stride == 2 && k + 2 * lanes <= s.n; k += 2 * lanes) {
      hn::Vec<decltype(d)> even, odd;
      hn::LoadInterleaved2(d, row + k, even, odd);
      hn::StoreU(even, d, two.even + k / 2);
      hn::StoreU(odd, d, two.odd + k / 2);
    }
  }
  each_column(s, k, to, [&](int64_t at, A& column) { column = wide(row[at]); });
}
template <class T>
void join_row(const PoolSpread& s, Acc<T>* from, T* row) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  if (s.stride == 1) {
    map(
        d, s.n, [](auto, auto v) HWY_ATTR { return v; }, row, from + s.before);
    return;
  }
  int64_t k = 0;
  if constexpr (std::is_same_v<T, A>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const TwoPhases<A> two(s, from);
    for (; s.stride == 2 && k + 2 * lanes <= s.n; k += 2 * lanes)
      hn::StoreInterleaved2(hn::LoadU(d, two.even + k / 2), hn::LoadU(d, two.odd + k / 2), d,
                            row + k);
  }
  each_column(s, k, from, [&](int64_t at, A& column) { set_narrow(column, row + at); });
}

void spread_target(tenon_dtype dtype, const PoolSpread& s, const void* row, void* to) {
  with_storage(dtype, [&]<class T>(T) {
    spread_row(s, static_cast<const T*>(row), static_cast<Acc<T>*>(to));
  });
}
void join_target(tenon_dtype dtype, const PoolSpread& s, void* from, void* row) {
  with_storage(dtype,
               [&]<class T>(T) { join_row(s, static_cast<Acc<T>*>(from), static_cast<T*>(row)); });
}

// Taps are numbered in the order that decides between equal ones.
template <class T>
bool route(const PoolRoute& r, const T* dy) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* x = static_cast<const A*>(r.x);
  A* dx = static_cast<A*>(r.dx);
  const auto none = hn::Set(d, A{-1});
  bool missed = false;
  each(d, 0, r.n, [&](auto at) HWY_ATTR {
    auto best = identity<PoolKind::max>(d), tap = none;
    A number = 0;
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t k = 0; k < r.taps; ++k, ++number) {
        const auto v = load(d, x + i * r.row_step + r.offsets[k], at);
        const auto better = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
        best = hn::IfThenElse(better, v, best);
        tap = hn::IfThenElse(better, hn::Set(d, number), tap);
      }
    const auto present = existing(d, tap, hn::Zero(d), at);
    missed = missed || !hn::AllFalse(d, hn::Eq(present, none));
    const auto up = load(d, dy, at);
    number = 0;
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t k = 0; k < r.taps; ++k, ++number) {
        A* to = dx + i * r.row_step + r.offsets[k];
        const auto mine = hn::IfThenElseZero(hn::Eq(tap, hn::Set(d, number)), up);
        store(d, hn::Add(load(d, to, at), mine), to, at);
      }
  });
  return missed;
}
void route_target(tenon_dtype dtype, const PoolRoute& r, const void* dy, bool& missed) {
  with_storage(dtype, [&]<class T>(T) { missed = route(r, static_cast<const T*>(dy)); });
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
HWY_EXPORT(spread_target);
HWY_EXPORT(join_target);
HWY_EXPORT(route_target);
HWY_EXPORT(add_row_target);

void pool_down(tenon_dtype dtype, PoolKind kind, const void* x, int64_t step, int64_t taps,
               int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(down_target)(dtype, kind, x, step, taps, n, to);
}
void pool_across(tenon_dtype dtype, PoolKind kind, const void* columns, const int64_t* offsets,
                 int64_t taps, int64_t n, double divisor, const void* divisors, void* y) {
  HWY_DYNAMIC_DISPATCH(across_target)(dtype, kind, columns, offsets, taps, n, divisor, divisors, y);
}
void pool_spread(tenon_dtype dtype, const PoolSpread& s, const void* row, void* to) {
  HWY_DYNAMIC_DISPATCH(spread_target)(dtype, s, row, to);
}
void pool_join(tenon_dtype dtype, const PoolSpread& s, void* from, void* row) {
  HWY_DYNAMIC_DISPATCH(join_target)(dtype, s, from, row);
}
bool pool_route(tenon_dtype dtype, const PoolRoute& r, const void* dy) {
  bool missed = false;
  HWY_DYNAMIC_DISPATCH(route_target)(dtype, r, dy, missed);
  return missed;
}
void pool_add_row(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums) {
  HWY_DYNAMIC_DISPATCH(add_row_target)(dtype, row, n, divisor, sums);
}

}  // namespace tenon::cpu
#endif
