// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: random numbers as a function of a seed and a counter (Salmon et al., SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace tenon::llm {

constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t seed) {
  uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<uint32_t>(a)};
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  return counter;
}

// In [0, 1), with 53 random bits.
constexpr double uniform(uint64_t seed, uint64_t index) {
  const auto words =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, seed);
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace tenon::llm
