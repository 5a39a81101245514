// SPDX-License-Identifier: Apache-2.0
// Encoders of one block each (BlockEncoder of blocks.hpp), and what they share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tenon/half.hpp"

namespace tenon::core::blocks {

inline void put_u16(std::byte* at, uint32_t bits) {
  at[0] = static_cast<std::byte>(bits);
  at[1] = static_cast<std::byte>(bits >> 8);
}
inline void put_u32(std::byte* at, uint32_t bits) {
  put_u16(at, bits);
  put_u16(at + 2, bits >> 16);
}

// A scale in f16: numbers beyond the range saturate, so that no scale is infinite.
inline uint16_t scale_bits(double value) {
  constexpr double kMost = 65504;
  return tenon::detail::f16_bits(static_cast<float>(std::clamp(value, -kMost, kMost)));
}
inline float as_scale(double value) { return tenon::detail::f16_value(scale_bits(value)); }
inline void put_scale(std::byte* at, double value) { put_u16(at, scale_bits(value)); }

// 0 for a scale that has no finite inverse: then each code is the code of 0.
inline float inverse(float scale) {
  const float i = 1 / scale;
  return scale != 0 && std::isfinite(i) ? i : 0;
}

void encode_q4_0(const float* x, const float* weights, std::byte* block);
void encode_q4_1(const float* x, const float* weights, std::byte* block);
void encode_q5_0(const float* x, const float* weights, std::byte* block);
void encode_q5_1(const float* x, const float* weights, std::byte* block);
void encode_q8_0(const float* x, const float* weights, std::byte* block);
void encode_iq4_nl(const float* x, const float* weights, std::byte* block);
void encode_mxfp4(const float* x, const float* weights, std::byte* block);

void encode_q2_k(const float* x, const float* weights, std::byte* block);
void encode_q3_k(const float* x, const float* weights, std::byte* block);
void encode_q4_k(const float* x, const float* weights, std::byte* block);
void encode_q5_k(const float* x, const float* weights, std::byte* block);
void encode_q6_k(const float* x, const float* weights, std::byte* block);
void encode_q8_k(const float* x, const float* weights, std::byte* block);

}  // namespace tenon::core::blocks
