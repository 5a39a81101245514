// SPDX-License-Identifier: Apache-2.0
// What the encoders of 256 elements share. Their groups have integer scales of a common scale. Each
// encoder searches for the scales with the least weighted squared error:
//
//   1. per group, the codes of several trial scales; the codes of each give its best scale in closed
//      form
//   2. the scales as integers, and the codes again
//   3. by turns: the best common scale for the codes, and the best of the neighbouring integers for
//      each group
//
// Plain rounding is one of the candidates of 3, so that the result is never worse.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/blocks_encode.hpp"

namespace tenon::core::blocks {

inline constexpr uint32_t kBlock = 256;

// To the nearest integer within bounds, which are integers. Conversions of integers are what any
// processor has in vectors.
inline float code_of(float v, float low, float high) {
  return static_cast<float>(static_cast<int>(std::clamp(v, low, high) - low + 0.5F)) + low;
}

// Weights of a block: ones where none are given, or where all are 0.
inline std::array<float, kBlock> weights_of(const float* weights) {
  std::array<float, kBlock> w;
  const float most = weights ? *std::max_element(weights, weights + kBlock) : 0;
  w.fill(1);
  // Relative to the largest one: squared errors times large numbers would overflow.
  if (most > 0)
    std::transform(weights, weights + kBlock, w.begin(), [&](float v) { return v / most; });
  return w;
}

// ---- Bytes

inline std::array<uint32_t, kBlock> codes_from(const std::array<float, kBlock>& q, int zero) {
  std::array<uint32_t, kBlock> out;
  for (uint32_t i = 0; i < kBlock; ++i)
    out[i] = static_cast<uint32_t>(static_cast<int>(q[i]) + zero);
  return out;
}

inline void put_two_bits(std::byte* qs, const uint32_t* q) {
  std::fill_n(qs, 64, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    qs[32 * (i / 128) + i % 32] |= static_cast<std::byte>((q[i] & 3) << 2 * (i % 128 / 32));
}

inline void put_four_bits(std::byte* qs, const uint32_t* q) {
  std::fill_n(qs, 128, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    qs[32 * (i / 64) + i % 32] |= static_cast<std::byte>((q[i] & 15) << 4 * (i / 32 & 1));
}

}  // namespace tenon::core::blocks
