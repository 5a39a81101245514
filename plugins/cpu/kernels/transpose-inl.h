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
// 4 * b + k of the four vectors. May run in place.
template <class V>
HWY_INLINE void transpose_in_blocks(const V* from, V* to) {
  const hn::ScalableTag<float> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto join = [&](V low, V high, V* lower, V* upper) {
    const auto a = hn::BitCast(wide, low), b = hn::BitCast(wide, high);
    *lower = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
    *upper = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
  };
  const V low01 = hn::InterleaveLower(d, from[0], from[1]),
          low23 = hn::InterleaveLower(d, from[2], from[3]),
          high01 = hn::InterleaveUpper(d, from[0], from[1]),
          high23 = hn::InterleaveUpper(d, from[2], from[3]);
  join(low01, low23, to, to + 1);
  join(high01, high23, to + 2, to + 3);
}

// Transposes as many rows as a vector has lanes. Overwrites r, and passes the columns to
// columns(i, v), in any order.
template <class D, class V, class Columns>
HWY_INLINE void transpose(D d, V* r, Columns&& columns) {
  constexpr int kLanes = hn::MaxLanes(D());
#pragma GCC unroll 4
  for (int g = 0; g < kLanes; g += 4) transpose_in_blocks(r + g, r + g);
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) {
    if constexpr (kLanes == 4) {
      columns(t, r[t]);
    } else if constexpr (kLanes == 8) {
      columns(t, hn::ConcatLowerLower(d, r[4 + t], r[t]));
      columns(4 + t, hn::ConcatUpperUpper(d, r[4 + t], r[t]));
    } else {
      static_assert(kLanes == 16);
      const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(r[4 + t]), r[t]);
      const V odd01 = hn::OddEvenBlocks(r[4 + t], hn::SwapAdjacentBlocks(r[t]));
      const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(r[12 + t]), r[8 + t]);
      const V odd23 = hn::OddEvenBlocks(r[12 + t], hn::SwapAdjacentBlocks(r[8 + t]));
      columns(t, hn::ConcatLowerLower(d, even23, even01));
      columns(4 + t, hn::ConcatLowerLower(d, odd23, odd01));
      columns(8 + t, hn::ConcatUpperUpper(d, even23, even01));
      columns(12 + t, hn::ConcatUpperUpper(d, odd23, odd01));
    }
  }
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
