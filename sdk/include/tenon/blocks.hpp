// SPDX-License-Identifier: Apache-2.0
// The elements of blocks (types.h: TENON_DTYPE_BLOCKS): the reference for kernels.
//
//   float x[256];  // the most elements of a block
//   tenon::sdk::decode_block(TENON_DTYPE_Q4_K, bytes, x);
//
// Each product and each difference is one operation of the result's type. With float, and if the
// compiler does not contract them (-ffp-contract=off), the bits are those of other readers of these
// formats. encode_q8_0() and encode_f8e4m3_128() are the only encoders here.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "dtype.hpp"

namespace tenon::sdk {

// The value of an f16, from its bits. (half.hpp is for apps: its types are not those of sdk.)
inline float f16_value(unsigned bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
  // An exact product moves the exponent, that of subnormals too.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// The bits of the f16 nearest to a number from 0 to 65504, ties to even.
inline uint16_t f16_bits_of(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  if (x < 0x1p-14f) {
    // Subnormal: the sum with .5 has units of 2^-24, as the result has.
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(x + 0.5f) - 0x3f000000u);
  }
  bits += 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>((bits - 0x38000000u) >> 13);
}

// The fields of a block. `at` counts bytes.
struct BlockBytes {
  const unsigned char* data;
  int operator[](int at) const { return data[at]; }
  int i8(int at) const { return static_cast<signed char>(data[at]); }
  uint16_t u16(int at) const { return static_cast<uint16_t>(data[at] | data[at + 1] << 8); }
  float f16(int at) const { return f16_value(u16(at)); }
  float f32(int at) const {
    float f;
    std::memcpy(&f, data + at, 4);
    return f;
  }
  // Bit i, the lowest of a byte first.
  int bit(int at, int i) const { return data[at + i / 8] >> i % 8 & 1; }
  // The code, of four bits, of element i. Elements i and i + half share a byte, the first in its low
  // bits.
  int nibble(int at, int i, int half) const {
    return data[at + i / (2 * half) * half + i % half] >> i / half % 2 * 4 & 15;
  }
  // The code, of two bits, of element i. Elements i, i + 32, i + 64 and i + 96 share a byte.
  int two_bits(int at, int i) const {
    return data[at + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
  }
};

// The levels of iq4_nl and iq4_xs.
inline constexpr signed char kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
// The 4-bit float e2m1: twice its value.
inline constexpr signed char kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

// Half of the scale of mxfp4: 2^(code - 128). Codes 0 and 1 are subnormal floats.
inline float mxfp4_half_scale(int code) {
  const auto bits = static_cast<uint32_t>(code);
  return std::bit_cast<float>(code < 2 ? UINT32_C(0x200000) << bits : (bits - 1) << 23);
}
// The scales of nvfp4: 0x7f is 0, and of all others bit 7 is not read.
inline float ue4m3_value(int code) {
  if (code == 0x7f) return 0;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(static_cast<uint32_t>((exponent + 120) << 23 | mantissa << 20));
}

// The value of an f8e4m3: no infinities, and 0x7f and 0xff are NaN.
inline float f8e4m3_value(unsigned code) {
  const unsigned magnitude = code & 0x7f;
  // As an f16 it is 2^8 smaller, which an exact product puts right.
  const float value = magnitude == 0x7f ? std::bit_cast<float>(UINT32_C(0x7fc00000))
                                        : f16_value(magnitude << 7) * 0x1p8f;
  return (code & 0x80) != 0 ? -value : value;
}
// The code of the f8e4m3 nearest to x, ties to even; 448 for larger magnitudes. x: not NaN.
inline unsigned char f8e4m3_code(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 24 & 0x80;
  const float a = std::fmin(std::fabs(x), 448.0f);
  // Subnormal: the sum with 2^14 has units of 2^-9, as the result has.
  if (a < 0x1p-6f)
    return static_cast<unsigned char>(sign | (std::bit_cast<uint32_t>(a + 0x1p14f) - 0x46800000u));
  auto bits = std::bit_cast<uint32_t>(a);
  bits += 0x7ffffu + (bits >> 20 & 1u);
  return static_cast<unsigned char>(sign | (bits - 0x3c000000u) >> 20);
}

// The scale and the minimum, of six bits each, of the 32 elements `group` of q4_k and q5_k.
struct ScaleAndMin {
  int scale, min;
};
inline ScaleAndMin q4_k_scales(BlockBytes b, int at, int group) {
  if (group < 4) return {b[at + group] & 63, b[at + group + 4] & 63};
  return {(b[at + group + 4] & 15) | (b[at + group - 4] >> 6) << 4,
          (b[at + group + 4] >> 4) | (b[at + group] >> 6) << 4};
}
// The scale, of six bits, of the 16 elements `group` of q3_k.
inline int q3_k_scale(BlockBytes b, int at, int group) {
  const int low = group < 8 ? b[at + group] & 15 : b[at + group - 8] >> 4;
  const int high = b[at + 8 + group % 4] >> 2 * (group / 4) & 3;
  return (low | high << 4) - 32;
}
// Element i of tq1_0: -1, 0 or 1. A byte holds five of them as a fraction of 256 in base 3.
inline int tq1_0_level(BlockBytes b, int i) {
  constexpr int kPower[] = {1, 3, 9, 27, 81};
  const auto digit = [&](int at, int k, int n) {
    return (b[at + k % n] * kPower[k / n] & 255) * 3;
  };
  const int top = i < 160   ? digit(0, i, 32)
                  : i < 240 ? digit(32, i - 160, 16)
                            : digit(48, i - 240, 4);
  return (top >> 8) - 1;
}

// Writes the elements of one block of a dtype that is_decodable(). T: float or double.
template <class T>
void decode_block(tenon_dtype dtype, const void* block, T* to) {
  const BlockBytes b{static_cast<const unsigned char*>(block)};
  const auto real = [](auto x) { return static_cast<T>(x); };
  // Write the elements from..from + count: scale times level(i), less or plus a number.
  const auto scaled = [&](int from, int count, T scale, auto level) {
    for (int i = from; i < from + count; ++i) to[i] = scale * real(level(i));
  };
  const auto scaled_less = [&](int from, int count, T scale, T min, auto level) {
    for (int i = from; i < from + count; ++i) to[i] = scale * real(level(i)) - min;
  };
  const auto scaled_plus = [&](int from, int count, T scale, T add, auto level) {
    for (int i = from; i < from + count; ++i) to[i] = scale * real(level(i)) + add;
  };
  // Group g of q4_k and q5_k.
  const auto q4_k_group = [&](int g, auto level) {
    const ScaleAndMin s = q4_k_scales(b, 4, g);
    scaled_less(32 * g, 32, real(b.f16(0)) * real(s.scale), real(b.f16(2)) * real(s.min), level);
  };
  switch (dtype) {
    case TENON_DTYPE_Q4_0:
      return scaled(0, 32, real(b.f16(0)), [&](int i) { return b.nibble(2, i, 16) - 8; });
    case TENON_DTYPE_Q4_1:
      return scaled_plus(0, 32, real(b.f16(0)), real(b.f16(2)),
                         [&](int i) { return b.nibble(4, i, 16); });
    case TENON_DTYPE_Q5_0:
      return scaled(0, 32, real(b.f16(0)),
                    [&](int i) { return (b.nibble(6, i, 16) | b.bit(2, i) << 4) - 16; });
    case TENON_DTYPE_Q5_1:
      return scaled_plus(0, 32, real(b.f16(0)), real(b.f16(2)),
                         [&](int i) { return b.nibble(8, i, 16) | b.bit(4, i) << 4; });
    case TENON_DTYPE_Q8_0:
      return scaled(0, 32, real(b.f16(0)), [&](int i) { return b.i8(2 + i); });
    case TENON_DTYPE_Q8_1:
      return scaled(0, 32, real(b.f16(0)), [&](int i) { return b.i8(4 + i); });
    case TENON_DTYPE_Q2_K:
      for (int g = 0; g < 16; ++g)
        scaled_less(16 * g, 16, real(b.f16(80)) * real(b[g] & 15),
                    real(b.f16(82)) * real(b[g] >> 4), [&](int i) { return b.two_bits(16, i); });
      return;
    case TENON_DTYPE_Q3_K:
      for (int g = 0; g < 16; ++g)
        scaled(16 * g, 16, real(b.f16(108)) * real(q3_k_scale(b, 96, g)),
               [&](int i) { return (b.two_bits(32, i) | (b[i % 32] >> i / 32 & 1) << 2) - 4; });
      return;
    case TENON_DTYPE_Q4_K:
      for (int g = 0; g < 8; ++g) q4_k_group(g, [&](int i) { return b.nibble(16, i, 32); });
      return;
    case TENON_DTYPE_Q5_K:
      for (int g = 0; g < 8; ++g)
        q4_k_group(
            g, [&](int i) { return b.nibble(48, i, 32) | (b[16 + i % 32] >> i / 32 & 1) << 4; });
      return;
    case TENON_DTYPE_Q6_K:
      for (int g = 0; g < 16; ++g)
        scaled(16 * g, 16, real(b.f16(208)) * real(b.i8(192 + g)),
               [&](int i) { return (b.nibble(0, i, 64) | b.two_bits(128, i) << 4) - 32; });
      return;
    case TENON_DTYPE_Q8_K:
      return scaled(0, 256, real(b.f32(0)), [&](int i) { return b.i8(4 + i); });
    case TENON_DTYPE_IQ4_NL:
      return scaled(0, 32, real(b.f16(0)), [&](int i) { return kIq4Levels[b.nibble(2, i, 16)]; });
    case TENON_DTYPE_IQ4_XS:
      for (int g = 0; g < 8; ++g) {
        const int scale = b.nibble(4, g, 1) | (b.u16(2) >> 2 * g & 3) << 4;
        scaled(32 * g, 32, real(b.f16(0)) * real(scale - 32),
               [&](int i) { return kIq4Levels[b.nibble(8, i, 16)]; });
      }
      return;
    case TENON_DTYPE_TQ1_0:
      return scaled(0, 256, real(b.f16(52)), [&](int i) { return tq1_0_level(b, i); });
    case TENON_DTYPE_TQ2_0:
      return scaled(0, 256, real(b.f16(64)), [&](int i) { return b.two_bits(0, i) - 1; });
    case TENON_DTYPE_MXFP4:
      return scaled(0, 32, real(mxfp4_half_scale(b[0])),
                    [&](int i) { return kE2m1Doubled[b.nibble(1, i, 16)]; });
    case TENON_DTYPE_NVFP4:
      for (int g = 0; g < 4; ++g)
        scaled(16 * g, 16, real(ue4m3_value(b[g])) * real(0.5),
               [&](int i) { return kE2m1Doubled[b.nibble(4, i, 8)]; });
      return;
    case TENON_DTYPE_Q1_0:
      for (int i = 0; i < 128; ++i) to[i] = b.bit(2, i) ? real(b.f16(0)) : -real(b.f16(0));
      return;
    case TENON_DTYPE_Q2_0:
      return scaled(0, 64, real(b.f16(0)),
                    [&](int i) { return (b[2 + i / 4] >> i % 4 * 2 & 3) - 1; });
    case TENON_DTYPE_F8E4M3_128:
      return scaled(0, 128, real(b.f32(0)),
                    [&](int i) { return f8e4m3_value(static_cast<unsigned>(b[4 + i])); });
    default:
      return;
  }
}

// Stores 32 numbers as a block of q8_0, 34 bytes: a scale in f16, and 32 levels. The scale is the
// largest magnitude / 127, rounded to f16 and at most 65504. A level is the integer nearest to the
// number over the scale before this rounding, ties away from 0; all are 0 if that scale has no finite
// inverse. If a number is not finite, the scale is NaN, and so are all elements.
inline void encode_q8_0(const float* x, unsigned char* block) {
  float most = 0, sum = 0;
  for (int i = 0; i < 32; ++i) {
    most = std::fmax(most, std::fabs(x[i]));
    sum += x[i] * 0.0f;  // NaN if a number is not finite
  }
  const float scale = most / 127;
  float inverse = 1 / scale;
  if (!std::isfinite(inverse)) inverse = 0;
  const uint16_t bits = sum == 0 ? f16_bits_of(std::fmin(scale, 65504.0f)) : uint16_t{0x7e00};
  block[0] = static_cast<unsigned char>(bits);
  block[1] = static_cast<unsigned char>(bits >> 8);
  for (int i = 0; i < 32; ++i) {
    const float level = sum == 0 ? std::round(x[i] * inverse) : 0;
    const float clamped = std::fmin(std::fmax(level, -127.0f), 127.0f);
    block[2 + i] = static_cast<unsigned char>(static_cast<signed char>(clamped));
  }
}

// Stores 128 numbers as a block of f8e4m3_128, 132 bytes: a scale in f32, and 128 numbers of f8e4m3.
// The scale is the largest magnitude / 448. A number is the f8e4m3 nearest to the element over the
// scale, ties to even; all are 0 if the scale is. If an element is not finite, the scale is NaN, and so
// are all elements.
inline void encode_f8e4m3_128(const float* x, unsigned char* block) {
  float most = 0, sum = 0;
  for (int i = 0; i < 128; ++i) {
    most = std::fmax(most, std::fabs(x[i]));
    sum += x[i] * 0.0f;  // NaN if an element is not finite
  }
  const bool finite = sum == 0;
  const float scale = finite ? most / 448 : std::bit_cast<float>(UINT32_C(0x7fc00000));
  std::memcpy(block, &scale, sizeof scale);
  for (int i = 0; i < 128; ++i)
    block[4 + i] = finite && scale > 0 ? f8e4m3_code(x[i] / scale) : static_cast<unsigned char>(0);
}

}  // namespace tenon::sdk
