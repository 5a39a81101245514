// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011), and the conversion of its
// words to numbers.
#pragma once

#include <array>
#include <cstdint>

namespace tenon::cpu {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// The state operand of random ops: i64[2].
struct Rng {
  uint64_t seed = 0;
  uint64_t offset = 0;

  static Rng read(const void* rng) {
    const int64_t* words = static_cast<const int64_t*>(rng);
    return {static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1])};
  }
  std::array<uint32_t, 2> key() const {
    return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  }
  PhiloxBlock block(uint64_t j) const {
    return philox({static_cast<uint32_t>(j), static_cast<uint32_t>(j >> 32),
                   static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)},
                  key());
  }
};

// Uniform in [0, 1), with 53 bits.
constexpr double uniform53(uint32_t w0, uint32_t w1) {
  return ((w0 >> 5) * 0x1p26 + (w1 >> 6)) * 0x1p-53;
}

}  // namespace tenon::cpu
