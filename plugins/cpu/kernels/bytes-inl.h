// SPDX-License-Identifier: Apache-2.0
// Vectors of f32 and i32 as whole numbers and as bytes. Per target, as simd-inl.h.
#if defined(TENON_CPU_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_BYTES_INL_H_
#undef TENON_CPU_BYTES_INL_H_
#else
#define TENON_CPU_BYTES_INL_H_
#endif

#include <hwy/highway.h>

#include <array>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// Adding 1.5 2^23 to a number below 2^22 rounds it, halves to even: the whole number is in the low bits.
// Highway's conversions also look for numbers that do not fit.
inline constexpr float kRoundingFloat = 12582912.f;
inline constexpr int32_t kRoundingBits = 0x4B400000;

// The lanes of four vectors in a row, which fit into bytes of the sign of Y.
template <class D, class Y>
HWY_INLINE void store_bytes(D, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, Y* to) {
  const hn::Repartition<int16_t, D> d16;
  const hn::Repartition<uint8_t, D> d8;
  const hn::Repartition<uint32_t, D> d32;
  // Each block of 128 bits has four lanes of each vector, a and c, b and e side by side.
  const auto pairs = hn::Or(hn::And(hn::ReorderDemote2To(d16, a, b), hn::Set(d16, int16_t{0xFF})),
                            hn::ShiftLeft<8>(hn::ReorderDemote2To(d16, c, e)));
  alignas(16) static constexpr uint8_t kApart[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                     1, 3, 5, 7, 9, 11, 13, 15};
  const auto apart =
      hn::BitCast(d32, hn::TableLookupBytes(hn::BitCast(d8, pairs), hn::LoadDup128(d8, kApart)));
  constexpr size_t kLanes = hn::MaxLanes(d32), kBlocks = kLanes / 4;
  static constexpr std::array<uint32_t, kLanes> kOrder = [] {
    std::array<uint32_t, kLanes> order{};
    for (size_t i = 0; i < kLanes; ++i)
      order[i] = static_cast<uint32_t>(i % kBlocks * 4 + i / kBlocks);
    return order;
  }();
  const auto bytes = hn::TableLookupLanes(apart, hn::SetTableIndices(d32, kOrder.data()));
  hn::StoreU(hn::BitCast(d8, bytes), d8, reinterpret_cast<uint8_t*>(to));
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
