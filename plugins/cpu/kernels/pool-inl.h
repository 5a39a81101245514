// SPDX-License-Identifier: Apache-2.0
// Converts image rows to spread columns and back (pool_windows.hpp). Per target, as simd-inl.h.
#if defined(TENON_CPU_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_POOL_INL_H_
#undef TENON_CPU_POOL_INL_H_
#else
#define TENON_CPU_POOL_INL_H_
#endif

#include <type_traits>

#include "pool_windows.hpp"
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The parameters of an axis for spreading a row.
struct Spread {
  explicit Spread(const PoolLine& w)
      : n(w.size), before(w.before), stride(w.stride), phase(w.phase()) {}
  int64_t n, before, stride, phase;

  // For stride 2: positions of the columns 0, 2, .. and 1, 3, ...
  template <class A>
  HWY_INLINE A* even(A* to) const {
    return to + before % 2 * phase + before / 2;
  }
  template <class A>
  HWY_INLINE A* odd(A* to) const {
    return to + (before + 1) % 2 * phase + (before + 1) / 2;
  }
  // Calls f(column, its position), starting at a column.
  template <class A, class F>
  HWY_INLINE void each_column(int64_t first, A* to, F&& f) const {
    if (first >= n) return;
    int64_t in = (before + first) % stride, at = (before + first) / stride;
    for (int64_t k = first; k < n; ++k) {
      f(k, to[in * phase + at]);
      if (++in == stride) in = 0, ++at;
    }
  }
};

// For stride 2: spreads the row whose columns at a place load(place) returns.
template <class D, class F>
HWY_INLINE void spread_pairs(D d, const Spread& s, hn::TFromD<D>* to, F&& load) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto *even_columns = s.even(to), *odd_columns = s.odd(to);
  int64_t k = 0;
  for (; k + 2 * lanes <= s.n; k += 2 * lanes) {
    const auto low = load(Whole{k}), high = load(Whole{k + lanes});
    hn::StoreU(hn::ConcatEven(d, high, low), d, even_columns + k / 2);
    hn::StoreU(hn::ConcatOdd(d, high, low), d, odd_columns + k / 2);
  }
  if (const int64_t left = s.n - k; left > 0) {
    const auto low = load(Rest{k, static_cast<size_t>(std::min(left, lanes))});
    const auto high =
        left > lanes ? load(Rest{k + lanes, static_cast<size_t>(left - lanes)}) : hn::Zero(d);
    store_n(d, hn::ConcatEven(d, high, low), even_columns + k / 2,
            static_cast<size_t>((left + 1) / 2));
    store_n(d, hn::ConcatOdd(d, high, low), odd_columns + k / 2, static_cast<size_t>(left / 2));
  }
}

template <class T>
HWY_INLINE void spread_row(const Spread& s, const T* row, Acc<T>* to) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  if (s.stride == 1) {
    map(
        d, s.n, [](auto, auto v) HWY_ATTR { return v; }, to + s.before, row);
    return;
  }
  if constexpr (std::is_same_v<T, A>) {
    if (s.stride == 2)
      return spread_pairs(d, s, to, [&](auto at) HWY_ATTR { return load(d, row, at); });
  }
  s.each_column(0, to, [&](int64_t at, A& column) {
    if constexpr (std::is_same_v<T, double>) {
      column = row[at];
    } else {
      column = to_float(row[at]);
    }
  });
}

template <class T>
HWY_INLINE void join_row(const Spread& s, Acc<T>* from, T* row) {
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
    const A *even = s.even(from), *odd = s.odd(from);
    for (; s.stride == 2 && k + 2 * lanes <= s.n; k += 2 * lanes)
      hn::StoreInterleaved2(hn::LoadU(d, even + k / 2), hn::LoadU(d, odd + k / 2), d, row + k);
  }
  s.each_column(k, from, [&](int64_t at, A& column) {
    if constexpr (std::is_same_v<T, double>) {
      row[at] = column;
    } else {
      from_float(column, row + at);
    }
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
