// SPDX-License-Identifier: Apache-2.0
// The elements of blocks (types.h: TENON_DTYPE_BLOCKS), one at a time: the reference for kernels.
//
//   float x = tenon::sdk::block_element<float>(TENON_DTYPE_Q4_K, bytes, 17);
//
// Each product and each difference is one operation of T: with float, and without contraction of
// both into one, the bits are those of other readers of these formats.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dtype.hpp"

namespace tenon::sdk {

// The value of an f16, from its bits.
inline float f16_value(unsigned bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
  // An exact product moves the exponent, that of subnormals too.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// The fields of a block. `at` counts bytes.
struct BlockBytes {
  const unsigned char* data;
  int operator[](int at) const { return data[at]; }
  int i8(int at) const { return static_cast<signed char>(data[at]); }
  unsigned u16(int at) const { return data[at] | static_cast<unsigned>(data[at + 1]) << 8; }
  float f16(int at) const { return f16_value(u16(at)); }
  float f32(int at) const {
    float f;
    std::memcpy(&f, data + at, 4);
    return f;
  }
  // Bit i, the lowest of a byte first.
  int bit(int at, int i) const { return data[at + i / 8] >> i % 8 & 1; }
  // The four bits of `shift` 0 or 4.
  int nibble(int at, int shift) const { return data[at] >> shift & 15; }
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
  return exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                       : std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
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
// Element i of tq1_0: -1, 0 or 1. A byte holds five of them as a number of base 3, in 256ths.
inline int tq1_0_level(BlockBytes b, int i) {
  int byte, digit;
  if (i < 160)
    byte = b[i % 32], digit = i / 32;
  else if (i < 240)
    byte = b[32 + (i - 160) % 16], digit = (i - 160) / 16;
  else
    byte = b[48 + (i - 240) % 4], digit = (i - 240) / 4;
  for (; digit > 0; --digit) byte = byte * 3 & 255;
  return (byte * 3 >> 8) - 1;
}

// Element i of a block of a dtype that is_decodable(), in T: float or double.
template <class T>
T block_element(tenon_dtype dtype, const void* block, int i) {
  const BlockBytes b{static_cast<const unsigned char*>(block)};
  const auto real = [](auto x) { return static_cast<T>(x); };
  const int half = i / 16 % 2 * 4;                      // of blocks of 32: the half of a byte
  const int n = i / 128, l = i % 32, j = i % 128 / 32;  // of blocks of 256
  switch (dtype) {
    case TENON_DTYPE_Q4_0:
      return real(b.f16(0)) * real(b.nibble(2 + i % 16, half) - 8);
    case TENON_DTYPE_Q4_1:
      return real(b.f16(0)) * real(b.nibble(4 + i % 16, half)) + real(b.f16(2));
    case TENON_DTYPE_Q5_0:
      return real(b.f16(0)) * real((b.nibble(6 + i % 16, half) | b.bit(2, i) << 4) - 16);
    case TENON_DTYPE_Q5_1:
      return real(b.f16(0)) * real(b.nibble(8 + i % 16, half) | b.bit(4, i) << 4) + real(b.f16(2));
    case TENON_DTYPE_Q8_0:
      return real(b.f16(0)) * real(b.i8(2 + i));
    case TENON_DTYPE_Q8_1:
      return real(b.f16(0)) * real(b.i8(4 + i));
    case TENON_DTYPE_Q2_K: {
      const int scales = b[i / 16], q = b[16 + 32 * n + l] >> 2 * j & 3;
      return real(b.f16(80)) * real(scales & 15) * real(q) - real(b.f16(82)) * real(scales >> 4);
    }
    case TENON_DTYPE_Q3_K: {
      const int high = b[l] >> (4 * n + j) & 1, low = b[32 + 32 * n + l] >> 2 * j & 3;
      return real(b.f16(108)) * real(q3_k_scale(b, 96, i / 16)) * real(low + 4 * high - 4);
    }
    case TENON_DTYPE_Q4_K: {
      const ScaleAndMin s = q4_k_scales(b, 4, i / 32);
      const int q = b.nibble(16 + 32 * (i / 64) + l, i / 32 % 2 * 4);
      return real(b.f16(0)) * real(s.scale) * real(q) - real(b.f16(2)) * real(s.min);
    }
    case TENON_DTYPE_Q5_K: {
      const ScaleAndMin s = q4_k_scales(b, 4, i / 32);
      const int q = b.nibble(48 + 32 * (i / 64) + l, i / 32 % 2 * 4) | (b[16 + l] >> i / 32 & 1)
                                                                           << 4;
      return real(b.f16(0)) * real(s.scale) * real(q) - real(b.f16(2)) * real(s.min);
    }
    case TENON_DTYPE_Q6_K: {
      const int low = b.nibble(64 * n + 32 * (j & 1) + l, (j >> 1) * 4);
      const int high = b[128 + 32 * n + l] >> 2 * j & 3;
      return real(b.f16(208)) * real(b.i8(192 + i / 16)) * real((low | high << 4) - 32);
    }
    case TENON_DTYPE_Q8_K:
      return real(b.f32(0)) * real(b.i8(4 + i));
    case TENON_DTYPE_IQ4_NL:
      return real(b.f16(0)) * real(kIq4Levels[b.nibble(2 + i % 16, half)]);
    case TENON_DTYPE_IQ4_XS: {
      const int group = i / 32;
      const int scale =
          b.nibble(4 + group / 2, group % 2 * 4) | static_cast<int>(b.u16(2) >> 2 * group & 3) << 4;
      const int level = kIq4Levels[b.nibble(8 + 16 * group + i % 16, half)];
      return real(b.f16(0)) * real(scale - 32) * real(level);
    }
    case TENON_DTYPE_TQ1_0:
      return real(b.f16(52)) * real(tq1_0_level(b, i));
    case TENON_DTYPE_TQ2_0:
      return real(b.f16(64)) * real((b[32 * n + l] >> 2 * j & 3) - 1);
    case TENON_DTYPE_MXFP4:
      return real(mxfp4_half_scale(b[0])) * real(kE2m1Doubled[b.nibble(1 + i % 16, half)]);
    case TENON_DTYPE_NVFP4: {
      const int code = b.nibble(4 + 8 * (i / 16) + i % 8, i / 8 % 2 * 4);
      return real(ue4m3_value(b[i / 16])) * (real(kE2m1Doubled[code]) * real(0.5));
    }
    case TENON_DTYPE_Q1_0:
      return b.bit(2, i) ? real(b.f16(0)) : -real(b.f16(0));
    case TENON_DTYPE_Q2_0:
      return real(b.f16(0)) * real((b[2 + i / 4] >> 2 * (i % 4) & 3) - 1);
    default:
      return std::numeric_limits<T>::quiet_NaN();
  }
}

}  // namespace tenon::sdk
