// SPDX-License-Identifier: Apache-2.0
// Numbers for initial weights and for the order of the data: a function of a seed and a counter, so
// that a resumed run goes on exactly where it stopped and other programs can follow it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

namespace tenon::llm {

// splitmix64's mixing of seed + (counter + 1) * golden ratio (Steele, Lea, Flood:
// doi.org/10.1145/2714064.2660195).
inline uint64_t mix(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
// Uniform in [0, 1).
inline double uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(mix(seed, counter) >> 11) * 0x1p-53;
}
// Standard normal (Box-Muller on two counters).
inline double normal(uint64_t seed, uint64_t counter) {
  const double u = 1 - uniform(seed, 2 * counter), v = uniform(seed, 2 * counter + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}
// Fills blocks of any format with bytes that make no scale infinite or large.
inline void fill_blocks(uint64_t seed, std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(static_cast<int>(256 * uniform(seed, i)) & 0x2b);
}

}  // namespace tenon::llm
