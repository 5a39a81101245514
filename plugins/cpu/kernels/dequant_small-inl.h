// SPDX-License-Identifier: Apache-2.0
// Unpacks blocks of 32, 64 and 128 elements. Per target, as simd-inl.h.
#if defined(TENON_CPU_DEQUANT_SMALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_SMALL_INL_H_
#undef TENON_CPU_DEQUANT_SMALL_INL_H_
#else
#define TENON_CPU_DEQUANT_SMALL_INL_H_
#endif

#include <hwy/highway.h>

#include "dequant_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The scales, and the adds, of up to eight blocks of 32 elements that begin with them.
template <tenon_dtype kFormat>
struct HalfScales {
  static HWY_INLINE void scales(const uint8_t* from, int blocks, Unpacked& to) {
    const int64_t bytes = tenon_dtype_block(kFormat).bytes;
    block_halves(from, bytes, blocks, to.scale);
    if (has_adds(kFormat)) block_halves(from + 2, bytes, blocks, to.add);
  }
};
// Codes of five bits: the top ones are those of `high`.
HWY_INLINE Halves<hn::Vec<Bytes16>> five_bits(const uint8_t* from, uint32_t high) {
  const auto four = nibbles(Bytes16(), from);
  return {hn::Or(four.low, bits_as(high, 0, 16)), hn::Or(four.high, bits_as(high, 16, 16))};
}

template <>
struct Format<TENON_DTYPE_Q4_0> : HalfScales<TENON_DTYPE_Q4_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), nibbles(Bytes16(), from + 2), 8, to.level + 32 * b, 16);
  }
};
template <>
struct Format<TENON_DTYPE_Q4_1> : HalfScales<TENON_DTYPE_Q4_1> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), nibbles(Bytes16(), from + 4), 0, to.level + 32 * b, 16);
  }
};
template <>
struct Format<TENON_DTYPE_Q5_0> : HalfScales<TENON_DTYPE_Q5_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), five_bits(from + 6, word(from + 2)), 16, to.level + 32 * b, 16);
  }
};
template <>
struct Format<TENON_DTYPE_Q5_1> : HalfScales<TENON_DTYPE_Q5_1> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), five_bits(from + 8, word(from + 4)), 0, to.level + 32 * b, 16);
  }
};
template <>
struct Format<TENON_DTYPE_Q8_0> : HalfScales<TENON_DTYPE_Q8_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put_bytes<kFlip>(from + 2, 32, to.level + 32 * b);
  }
};
template <>
struct Format<TENON_DTYPE_Q8_1> : HalfScales<TENON_DTYPE_Q8_1> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put_bytes<kFlip>(from + 4, 32, to.level + 32 * b);
  }
};
template <>
struct Format<TENON_DTYPE_IQ4_NL> : HalfScales<TENON_DTYPE_IQ4_NL> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), looked_up(sdk::kIq4Levels, nibbles(Bytes16(), from + 2)), 0,
               to.level + 32 * b, 16);
  }
};
template <>
struct Format<TENON_DTYPE_MXFP4> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    put<kFlip>(Bytes16(), looked_up(sdk::kE2m1Doubled, nibbles(Bytes16(), from + 1)), 0,
               to.level + 32 * b, 16);
    to.scale[2 * b] = to.scale[2 * b + 1] = sdk::mxfp4_half_scale(from[0]);
  }
};

template <>
struct Format<TENON_DTYPE_NVFP4> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    const Bytes16 d;
    for (int g = 0; g < 4; ++g) {
      // Eight bytes: the low halves of the codes are the first eight elements.
      const hn::Half<Bytes16> d8;
      const auto codes = nibbles(d8, from + 4 + 8 * g);
      const auto both = hn::Combine(d, codes.high, codes.low);
      put<kFlip>(d, looked_up(sdk::kE2m1Doubled, both), 0, to.level + 64 * b + 16 * g);
      to.scale[4 * b + g] = sdk::ue4m3_value(from[g]) * 0.5f;
    }
  }
};
template <>
struct Format<TENON_DTYPE_Q1_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    for (int g = 0; g < 8; ++g) {
      const uint32_t bits = from[2 + 2 * g] | static_cast<uint32_t>(from[3 + 2 * g]) << 8;
      put<kFlip>(Bytes16(), bits_as(bits, 0, 2), 1, to.level + 128 * b + 16 * g);
      to.scale[8 * b + g] = half_at(from);
    }
  }
};
template <>
struct Format<TENON_DTYPE_Q2_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    for (int i = 0; i < 64; ++i)
      to.level[64 * b + i] = static_cast<int8_t>((from[2 + i / 4] >> 2 * (i % 4) & 3) - 1 - kFlip);
    for (int g = 0; g < 4; ++g) to.scale[4 * b + g] = half_at(from);
  }
};

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
