// SPDX-License-Identifier: Apache-2.0
// Passes over a row, with one body for whole vectors and for the remainder. Sums have a small
// error, and their order depends only on the length of the row. Per target, as simd-inl.h.
#if defined(TENON_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_ROWS_INL_H_
#undef TENON_CPU_ROWS_INL_H_
#else
#define TENON_CPU_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// A position in the row: Whole, a full vector, or Rest, where only the first n lanes exist.
struct Whole {
  int64_t i;
};
struct Rest {
  int64_t i;
  size_t n;
};
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Whole at) {
  return load(d, p + at.i);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Rest at) {
  return load_n(d, p + at.i, at.n);
}
template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Whole at) {
  store(d, v, p + at.i);
}
template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Rest at) {
  store_n(d, v, p + at.i, at.n);
}
// Prefetches the cache line of p at this position; beyond a tensor, this has no effect. The last
// pass over a row prefetches the next row, so that computing and reading overlap.
template <class T, class At>
HWY_INLINE void prefetch(const T* p, At at) {
  hwy::Prefetch(p + at.i);
}
// Sets lanes that do not exist to `other`.
template <class D>
HWY_INLINE hn::Vec<D> existing(D, hn::Vec<D> v, hn::Vec<D>, Whole) {
  return v;
}
template <class D>
HWY_INLINE hn::Vec<D> existing(D d, hn::Vec<D> v, hn::Vec<D> other, Rest at) {
  return hn::IfThenElse(hn::FirstN(d, at.n), v, other);
}

// Calls f(at) over [begin, end).
template <class D, class F>
HWY_INLINE void each(D d, int64_t begin, int64_t end, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) f(Whole{i});
  if (i < end) f(Rest{i, static_cast<size_t>(end - i)});
}

// Folds N values at once: f(at) returns an array of N vectors; `join` combines two vectors lane by
// lane, starting from `start`. Four partial results hide the latency.
template <size_t N, class D, class F, class Join>
HWY_INLINE std::array<hn::Vec<D>, N> fold(D d, int64_t begin, int64_t end, hn::Vec<D> start, F&& f,
                                          Join&& join) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  std::array<hn::Vec<D>, N> a, b, c, e;
  for (size_t k = 0; k < N; ++k) a[k] = b[k] = c[k] = e[k] = start;
  const auto take = [&](std::array<hn::Vec<D>, N>& into, auto at) HWY_ATTR {
    const std::array<hn::Vec<D>, N> v = f(at);
    for (size_t k = 0; k < N; ++k) into[k] = join(into[k], existing(d, v[k], start, at));
  };
  int64_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    take(a, Whole{i});
    take(b, Whole{i + lanes});
    take(c, Whole{i + 2 * lanes});
    take(e, Whole{i + 3 * lanes});
  }
  for (; i + lanes <= end; i += lanes) take(a, Whole{i});
  if (i < end) take(b, Rest{i, static_cast<size_t>(end - i)});
  for (size_t k = 0; k < N; ++k) a[k] = join(join(a[k], b[k]), join(c[k], e[k]));
  return a;
}

// Sums over [0, n) in double; blocks are short enough for a small rounding error.
template <size_t N, class D, class F>
HWY_INLINE std::array<double, N> sums(D d, int64_t n, F&& f) {
  constexpr int64_t kBlock = 8192;
  std::array<double, N> total{};
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const auto part = fold<N>(d, begin, std::min(n, begin + kBlock), hn::Zero(d), f,
                              [](auto u, auto v) HWY_ATTR { return hn::Add(u, v); });
    for (size_t k = 0; k < N; ++k) total[k] += hn::GetLane(hn::SumOfLanes(d, part[k]));
  }
  return total;
}

// The largest f(at) over [0, n): NaN if one is NaN, -inf for n = 0.
template <class D, class F>
HWY_INLINE hn::TFromD<D> max_of(D d, int64_t n, F&& f) {
  const auto lowest = hn::Set(d, -static_cast<hn::TFromD<D>>(__builtin_inf()));
  const auto v = fold<1>(
      d, 0, n, lowest, [&](auto at) HWY_ATTR { return std::array{f(at)}; },
      [&](auto u, auto w) HWY_ATTR { return max_nan(d, u, w); })[0];
  alignas(64) hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  hn::TFromD<D> largest = lanes[0];
  for (size_t k = 1; k < hn::Lanes(d); ++k)
    largest = lanes[k] > largest || lanes[k] != lanes[k] ? lanes[k] : largest;
  return largest;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
