// SPDX-License-Identifier: Apache-2.0
// Transposes blocks of floats. Per target, as simd-inl.h.
#if defined(TENON_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_TRANSPOSE_INL_H_
#undef TENON_CPU_TRANSPOSE_INL_H_
#else
#define TENON_CPU_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four vectors of floats become their columns: block b of to[k], of four floats, has element
// 4 * b + k of the four vectors.
template <class V>
HWY_INLINE void transpose_in_blocks(const V* from, V* to) {
  const hn::ScalableTag<float> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto join = [&](V low, V high, V* lower, V* upper) {
    const auto a = hn::BitCast(wide, low), b = hn::BitCast(wide, high);
    *lower = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
    *upper = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
  };
  join(hn::InterleaveLower(d, from[0], from[1]), hn::InterleaveLower(d, from[2], from[3]), to,
       to + 1);
  join(hn::InterleaveUpper(d, from[0], from[1]), hn::InterleaveUpper(d, from[2], from[3]), to + 2,
       to + 3);
}

// columns[k * pitch + r] = element k of from[r], for four vectors and all lanes.
template <class V>
HWY_INLINE void store_columns(const V* from, float* columns, int64_t pitch) {
  const hn::ScalableTag<float> d;
  const hn::Full128<float> d4;
  constexpr int kBlocks = static_cast<int>(hn::MaxLanes(d)) / 4;
  V to[4];
  transpose_in_blocks(from, to);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    alignas(64) float line[hn::MaxLanes(d)];
    hn::Store(to[k], d, line);
#pragma GCC unroll 4
    for (int block = 0; block < kBlocks; ++block)
      hn::StoreU(hn::Load(d4, line + 4 * block), d4, columns + (4 * block + k) * pitch);
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
