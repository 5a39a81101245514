// SPDX-License-Identifier: Apache-2.0
// Shared by the vector steps of attention: elementary functions of floats and of doubles. Per
// target, as simd-inl.h.
#if defined(TENON_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_ATTENTION_INL_H_
#undef TENON_CPU_ATTENTION_INL_H_
#else
#define TENON_CPU_ATTENTION_INL_H_
#endif

#include <cmath>

#include "math-inl.h"
#include "simd-inl.h"
#include "tenon/types.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// For double, which serves accuracy, not speed: lane by lane.
template <class V, class F>
HWY_INLINE V by_lane(V x, F&& f) {
  const hn::DFromV<V> d;
  alignas(64) hn::TFromV<V> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}
template <class D>
HWY_INLINE hn::Vec<D> weight(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    return vexp_weight(d, x);
  } else {
    return by_lane(x, [](double v) { return std::exp(v); });
  }
}
template <class D>
HWY_INLINE hn::Vec<D> tanh_of(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    return vtanh(d, x);
  } else {
    return by_lane(x, [](double v) { return std::tanh(v); });
  }
}

// Calls f with a null pointer of the accumulation type.
template <class F>
void with_sum(tenon_dtype sum, F&& f) {
  if (sum == TENON_DTYPE_F64) {
    f(double{});
  } else {
    f(float{});
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
