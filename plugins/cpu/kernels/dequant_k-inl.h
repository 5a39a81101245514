// SPDX-License-Identifier: Apache-2.0
// Unpacks blocks of 256 elements. Per target, as simd-inl.h.
#if defined(TENON_CPU_DEQUANT_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_K_INL_H_
#undef TENON_CPU_DEQUANT_K_INL_H_
#else
#define TENON_CPU_DEQUANT_K_INL_H_
#endif

#include <hwy/highway.h>

#include "dequant_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <>
struct Format<TENON_DTYPE_Q2_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(2, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      put<kFlip>(d, bit_pairs(d, from + 16 + 32 * n + l), 0, to.level + 128 * n + l);
    });
    const auto scales = nibbles(Bytes16(), from);
    scales_of<uint8_t>(scales.low, 0, half_at(from + 80), to.scale);
    scales_of<uint8_t>(scales.high, 0, -half_at(from + 82), to.add);
  }
};

template <>
struct Format<TENON_DTYPE_Q3_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(2, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      auto codes = bit_pairs(d, from + 32 + 32 * n + l);
      const auto high = hn::LoadU(d, from + l);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        codes.at[j] = hn::Or(codes.at[j], bit_as(d, high, 1 << (4 * n + j), 4));
      put<kFlip>(d, codes, 4, to.level + 128 * n + l);
    });
    const uint32_t a = word(from + 96), b = word(from + 100), c = word(from + 104);
    constexpr uint32_t kLow = 0x0f0f0f0f, kTwo = 0x03030303;
    const hn::FixedTag<uint64_t, 2> d64;
    const auto low =
        hn::Set(d64, both((a & kLow) | (c & kTwo) << 4, (b & kLow) | (c >> 2 & kTwo) << 4));
    const auto high = hn::Set(
        d64, both((a >> 4 & kLow) | (c >> 4 & kTwo) << 4, (b >> 4 & kLow) | (c >> 6 & kTwo) << 4));
    scales_of<uint8_t>(hn::BitCast(Bytes16(), hn::InterleaveLower(d64, low, high)), 32,
                       half_at(from + 108), to.scale);
  }
};

// The six-bit scales and minima of q4_k and q5_k.
HWY_INLINE void scales_and_adds(const uint8_t* from, Unpacked& to) {
  const uint32_t a = word(from + 4), b = word(from + 8), c = word(from + 12);
  constexpr uint32_t kSix = 0x3f3f3f3f, kLow = 0x0f0f0f0f, kTwo = 0x03030303;
  scales_of<uint8_t>(twice(both(a & kSix, (c & kLow) | (a >> 6 & kTwo) << 4)), 0, half_at(from),
                     to.scale);
  scales_of<uint8_t>(twice(both(b & kSix, (c >> 4 & kLow) | (b >> 6 & kTwo) << 4)), 0,
                     -half_at(from + 2), to.add);
}

template <>
struct Format<TENON_DTYPE_Q4_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(4, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      put<kFlip>(d, nibbles(d, from + 16 + 32 * n + l), 0, to.level + 64 * n + l, 32);
    });
    scales_and_adds(from, to);
  }
};
template <>
struct Format<TENON_DTYPE_Q5_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(4, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      auto codes = nibbles(d, from + 48 + 32 * n + l);
      const auto high = hn::LoadU(d, from + 16 + l);
      codes.low = hn::Or(codes.low, bit_as(d, high, 1 << 2 * n, 16));
      codes.high = hn::Or(codes.high, bit_as(d, high, 2 << 2 * n, 16));
      put<kFlip>(d, codes, 0, to.level + 64 * n + l, 32);
    });
    scales_and_adds(from, to);
  }
};
template <>
struct Format<TENON_DTYPE_Q6_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(2, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      const auto a = nibbles(d, from + 64 * n + l), b = nibbles(d, from + 64 * n + 32 + l);
      const auto high = hn::LoadU(d, from + 128 + 32 * n + l), two = hn::Set(d, uint8_t{0x30});
      const Quarters<hn::Vec<Bytes32>> codes{
          {hn::Or(a.low, hn::And(hn::ShiftLeft<4>(high), two)),
           hn::Or(b.low, hn::And(hn::ShiftLeft<2>(high), two)), hn::Or(a.high, hn::And(high, two)),
           hn::Or(b.high, hn::And(hn::ShiftRight<2>(high), two))}};
      put<kFlip>(d, codes, 32, to.level + 128 * n + l);
    });
    scales_of<int8_t>(hn::LoadU(Bytes16(), from + 192), 0, half_at(from + 208), to.scale);
  }
};
template <>
struct Format<TENON_DTYPE_Q8_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    put_bytes<kFlip>(from + 4, 256, to.level);
    one_scale(sdk::BlockBytes{from}.f32(0), to);
  }
};
template <>
struct Format<TENON_DTYPE_IQ4_XS> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes16 d;
    for (int g = 0; g < 8; ++g)
      put<kFlip>(d, looked_up(sdk::kIq4Levels, nibbles(d, from + 8 + 16 * g)), 0, to.level + 32 * g,
                 16);
    // Four bits of each scale in a nibble, two in a field of 16 bits.
    uint64_t six = 0;
    const uint64_t low = word(from + 4), high = sdk::BlockBytes{from}.u16(2);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) six |= ((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) << 8 * g;
    scales_of<uint8_t>(twice(six), 32, half_at(from), to.scale);
  }
};
template <>
struct Format<TENON_DTYPE_TQ2_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    each_vector(2, [&](size_t n, size_t l) HWY_ATTR {
      const Bytes32 d;
      put<kFlip>(d, bit_pairs(d, from + 32 * n + l), 1, to.level + 128 * n + l);
    });
    one_scale(half_at(from + 64), to);
  }
};
template <>
struct Format<TENON_DTYPE_TQ1_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    // The top digit of base 3, times 256: from 86 on it is 1, from 171 on 2.
    const auto digits = [&](int at, int count, int each, int8_t* level) {
      for (int i = 0; i < count; ++i) {
        auto byte = from[at + i];
        for (int t = 0; t < each; ++t, byte = static_cast<uint8_t>(byte * 3))
          level[t * count + i] = static_cast<int8_t>((byte >= 86) + (byte >= 171) - 1 - kFlip);
      }
    };
    digits(0, 32, 5, to.level);
    digits(32, 16, 5, to.level + 160);
    digits(48, 4, 4, to.level + 240);
    one_scale(half_at(from + 52), to);
  }
};

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
