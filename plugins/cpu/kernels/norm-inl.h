// SPDX-License-Identifier: Apache-2.0
// Means of rows and distances from them, without the rounding error of the accumulation type. Per
// target, as simd-inl.h.
#if defined(TENON_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_NORM_INL_H_
#undef TENON_CPU_NORM_INL_H_
#else
#define TENON_CPU_NORM_INL_H_
#endif

#include <array>
#include <cmath>

#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// A double as the sum of two numbers of the accumulation type.
template <class D>
struct Split {
  HWY_INLINE Split(D d, double v)
      : hi(hn::Set(d, static_cast<hn::TFromD<D>>(v))),
        lo(hn::Set(d, static_cast<hn::TFromD<D>>(v - static_cast<hn::TFromD<D>>(v)))) {}
  HWY_INLINE hn::Vec<D> taken_from(hn::Vec<D> v) const { return hn::Sub(hn::Sub(v, hi), lo); }
  hn::Vec<D> hi, lo;
};

// The mean of value(at) over a row of n > 0 elements. Averages the distances from the row's first
// value: exact for a constant row, and accurate for a large mean. Where these overflow, averages
// them again, made smaller by a power of two.
template <class D, class F>
HWY_INLINE double mean_of(D d, int64_t n, F&& value) {
  using T = hn::TFromD<D>;
  const T first = hn::GetLane(value(Rest{0, 1}));
  const auto pivot = hn::Set(d, first);
  const double distances =
      sums<1>(d, n, [&](auto at) HWY_ATTR { return std::array{hn::Sub(value(at), pivot)}; })[0];
  if (std::isfinite(distances) || !std::isfinite(first)) return first + distances / n;
  constexpr T kSmaller = static_cast<T>(0x1p-40);
  const auto smaller = hn::Set(d, kSmaller), small_pivot = hn::Set(d, first * kSmaller);
  const double small = sums<1>(d, n, [&](auto at) HWY_ATTR {
    return std::array{hn::Sub(hn::Mul(value(at), smaller), small_pivot)};
  })[0];
  return first + small / n / kSmaller;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
