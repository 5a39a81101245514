// SPDX-License-Identifier: Apache-2.0
// What decoders and encoders of blocks share: fields in memory, scales of 6 bits, tables of values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenon/half.hpp"

namespace tenon::core::blocks {

inline uint32_t u8(const std::byte* at) { return static_cast<uint32_t>(*at); }
inline int i8(const std::byte* at) { return static_cast<int8_t>(*at); }
inline uint16_t u16(const std::byte* at) { return static_cast<uint16_t>(u8(at) | u8(at + 1) << 8); }
inline uint32_t u32(const std::byte* at) {
  return u16(at) | static_cast<uint32_t>(u16(at + 2)) << 16;
}
inline float f16(const std::byte* at) { return tenon::detail::f16_value(u16(at)); }
inline float bf16(const std::byte* at) { return tenon::detail::bf16_value(u16(at)); }
inline float f32(const std::byte* at) { return std::bit_cast<float>(u32(at)); }

inline void put_u16(std::byte* at, uint32_t bits) {
  at[0] = static_cast<std::byte>(bits);
  at[1] = static_cast<std::byte>(bits >> 8);
}
// Returns the number that a decoder reads.
inline float put_f16(std::byte* at, float value) {
  put_u16(at, tenon::detail::f16_bits(value));
  return f16(at);
}

// Two half-blocks share a byte: the first half has the low four bits.
inline uint32_t nibble(const std::byte* qs, uint32_t i, uint32_t half) {
  return u8(qs + i % half) >> 4 * (i / half) & 15;
}

// Scale and minimum, of 6 bits each, of group g of eight. The upper two bits of the last four pairs
// are those of the bytes of the first four.
struct ScaleMin {
  uint32_t scale, min;
};
inline ScaleMin scale_min(const std::byte* scales, uint32_t g) {
  if (g < 4) return {u8(scales + g) & 63, u8(scales + g + 4) & 63};
  const uint32_t low = u8(scales + g + 4);
  return {(low & 15) | u8(scales + g - 4) >> 6 << 4, low >> 4 | u8(scales + g) >> 6 << 4};
}

// The scale of group g of sixteen of Q3_K: 6 bits, less 32.
inline int q3_scale(const std::byte* scales, uint32_t g) {
  const uint32_t low = g < 8 ? u8(scales + g) & 15 : u8(scales + g - 8) >> 4;
  return static_cast<int>(low | (u8(scales + 8 + g % 4) >> 2 * (g / 4) & 3) << 4) - 32;
}

// IQ4_NL and IQ4_XS.
inline constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1. A zero has no sign.
inline constexpr int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(code - 128): half of an E8M0 scale, so that its product with kTwiceE2M1 is exact. Code 255 is a
// number here, as it is in ggml.
inline float half_e8m0(uint32_t code) {
  if (code < 2) return std::bit_cast<float>(0x00200000u << code);  // subnormal
  return std::bit_cast<float>((code - 1) << 23);
}

// Half of a UE4M3 scale. Its sign bit counts for nothing; codes 0 and 0x7f are 0.
inline float half_ue4m3(uint32_t code) {
  if (code == 0 || code == 0x7f) return 0;
  const uint32_t exponent = code >> 3 & 15, fraction = code & 7;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 119) << 23 | fraction << 20);
}

}  // namespace tenon::core::blocks
