// SPDX-License-Identifier: Apache-2.0
// Sums of the lanes of many vectors of floats. Per target, as simd-inl.h.
#if defined(TENON_CPU_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_LANE_SUMS_INL_H_
#undef TENON_CPU_LANE_SUMS_INL_H_
#else
#define TENON_CPU_LANE_SUMS_INL_H_
#endif

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Halves the number of vectors until one is left, whose lane k is the sum of vector k.
template <int kWidth, class V>
HWY_INLINE void fold_vectors(V* v) {
  if constexpr (kWidth > 0) {
    const hn::ScalableTag<float> d;
#pragma GCC unroll 8
    for (int k = 0; k < kWidth; ++k)
      v[k] = hn::Add(hn::ConcatEven(d, v[2 * k + 1], v[2 * k]),
                     hn::ConcatOdd(d, v[2 * k + 1], v[2 * k]));
    fold_vectors<kWidth / 2>(v);
  }
}

// to[k] += the sum of the lanes of vector k, for k in [0, count). Reads whole vectors of vectors.
HWY_INLINE void add_lane_sums(const float* vectors, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  constexpr auto kWidth = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t t = 0; t < count; t += kWidth) {
    hn::Vec<decltype(d)> v[kWidth];
#pragma GCC unroll 16
    for (int64_t k = 0; k < kWidth; ++k) v[k] = hn::LoadU(d, vectors + (t + k) * kWidth);
    fold_vectors<kWidth / 2>(v);
    if (count - t >= kWidth) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + t), v[0]), d, to + t);
    } else {
      const auto n = static_cast<size_t>(count - t);
      store_n(d, hn::Add(load_n(d, to + t, n), v[0]), to + t, n);
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
