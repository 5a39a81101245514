// SPDX-License-Identifier: Apache-2.0
// Numbers of f8e4m3 as f16 (device/f8_bits.cuh), compiled for the host: all pairs of them.
#include <doctest/doctest.h>

#include <cmath>

#include "tenon/blocks.hpp"

namespace {

using u32 = uint32_t;
#define __device__
#include "../../../plugins/cuda/device/f8_bits.cuh"

// What the device's product with 2^8 makes of an f16. It is exact.
u32 times_256(u32 half) {
  const float value = std::fabs(tenon::sdk::f16_value(half)) * 0x1p8f;
  return (half & 0x8000) | tenon::sdk::f16_bits_of(value);
}

}  // namespace

TEST_SUITE("cuda/f8_bits") {
  TEST_CASE("all pairs of f8e4m3, with bytes above them, become their f16; NaN stays NaN") {
    int wrong = 0;
    for (u32 pair = 0; pair < 0x10000; ++pair) {
      const u32 codes = pair | pair * 0x9E370000u;
      const u32 small = f8_small(codes), nan = f8_nan_bits(codes);
      for (int i = 0; i < 2; ++i) {
        const float expected = tenon::sdk::f8e4m3_value(codes >> 8 * i & 255);
        const u32 bits = times_256(small >> 16 * i & 0xffff) | (nan >> 16 * i & 0xffff);
        const float got = tenon::sdk::f16_value(bits);
        wrong += std::isnan(expected)
                     ? !std::isnan(got)
                     : got != expected || std::signbit(got) != std::signbit(expected);
      }
    }
    CHECK(wrong == 0);
  }
}
