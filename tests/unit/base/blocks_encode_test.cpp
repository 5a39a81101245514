// SPDX-License-Identifier: Apache-2.0
// The encoders of blocks: values by hand, errors beside plain rounding, and numbers that no encoder
// takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/blocks.hpp"
#include "base/error.hpp"
#include "tenon/blocks.hpp"
#include "tenon/half.hpp"

using namespace tenon::core;

namespace {

using Blob = std::vector<std::byte>;

Blob encoded(const BlockFormat& f, const std::vector<float>& x,
             const std::vector<float>& weights = {}) {
  Blob out(block_bytes(f, x.size()));
  encode_blocks(f, x, weights, out.data());
  return out;
}

std::vector<float> there_and_back(const BlockFormat& f, const std::vector<float>& x,
                                  const std::vector<float>& weights = {}) {
  std::vector<float> y(x.size());
  decode_blocks(f, encoded(f, x, weights), y.data());
  return y;
}

double error_of(const std::vector<float>& x, const std::vector<float>& y,
                const std::vector<float>& weights = {}) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += (weights.empty() ? 1 : weights[i]) * std::pow(static_cast<double>(x[i]) - y[i], 2);
  return sum;
}

// Normal numbers, of a generator that is the same everywhere.
std::vector<float> normal(size_t count, uint64_t seed, float scale = 1) {
  std::vector<float> out(count);
  const auto uniform = [&] {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (static_cast<double>(seed >> 11) + 0.5) * 0x1p-53;
  };
  for (float& v : out)
    v = scale * static_cast<float>(std::sqrt(-2 * std::log(uniform())) *
                                   std::cos(6.283185307179586 * uniform()));
  return out;
}

// Encodes with scales by the largest number of each group and nothing else: signed codes from
// `low`, scales in whole steps from `steps`.
std::vector<float> rounded_signed(const std::vector<float>& x, int low, int steps) {
  std::vector<float> y(x.size());
  for (size_t block = 0; block < x.size(); block += 256) {
    float scales[16], top = 0;
    for (size_t g = 0; g < 16; ++g) {
      float v = 0;
      for (size_t i = block + 16 * g; i < block + 16 * g + 16; ++i)
        if (std::fabs(x[i]) > std::fabs(v)) v = x[i];
      scales[g] = v / static_cast<float>(low);
      if (std::fabs(scales[g]) > std::fabs(top)) top = scales[g];
    }
    const float d = tenon::F16(top / static_cast<float>(steps));
    for (size_t i = block; i < block + 256; ++i) {
      const float s =
          d * std::clamp<float>(std::nearbyint(scales[(i - block) / 16] / d),
                                static_cast<float>(steps), static_cast<float>(-steps - 1));
      y[i] = s == 0 ? 0
                    : s * std::clamp<float>(std::nearbyint(x[i] / s), static_cast<float>(low),
                                            static_cast<float>(-low - 1));
    }
  }
  return y;
}

// Likewise with a minimum: codes to `high`, scales and minima to `most`.
std::vector<float> rounded_offset(const std::vector<float>& x, size_t size, float high,
                                  float most) {
  std::vector<float> y(x.size());
  for (size_t block = 0; block < x.size(); block += 256) {
    std::vector<float> scales, mins;
    for (size_t at = block; at < block + 256; at += size) {
      float low = 0, top = x[at];
      for (size_t i = at; i < at + size; ++i) low = std::min(low, x[i]), top = std::max(top, x[i]);
      scales.push_back((top - low) / high);
      mins.push_back(-low);
    }
    const float d = tenon::F16(*std::max_element(scales.begin(), scales.end()) / most);
    const float dmin = tenon::F16(*std::max_element(mins.begin(), mins.end()) / most);
    for (size_t i = block; i < block + 256; ++i) {
      const size_t g = (i - block) / size;
      const float s = d * std::clamp(std::nearbyint(scales[g] / d), 0.0F, most);
      const float m = dmin == 0 ? 0 : dmin * std::clamp(std::nearbyint(mins[g] / dmin), 0.0F, most);
      y[i] = (s == 0 ? 0 : s * std::clamp(std::nearbyint((x[i] + m) / s), 0.0F, high)) - m;
    }
  }
  return y;
}

struct KFormat {
  const char* name;
  // The mean squared error of normal numbers of variance 1, at most.
  double most;
};
constexpr KFormat kKFormats[] = {
    {"Q2_K", 0.070}, {"Q3_K", 0.022}, {"Q4_K", 0.0050}, {"Q5_K", 0.00125}, {"Q6_K", 0.0003}};

}  // namespace

TEST_SUITE("base/blocks_encode") {
  TEST_CASE("encode: Q8_0, Q4_0 and Q4_1 by hand") {
    std::vector<float> x(32);
    x[0] = 127, x[1] = -63.5F, x[2] = 0.5F, x[31] = -1;
    Blob b = encoded(*block_format("Q8_0"), x);
    CHECK(b[1] == std::byte{0x3c});  // d = 1
    CHECK(static_cast<int8_t>(b[2]) == 127);
    CHECK(static_cast<int8_t>(b[3]) == -64);  // ties go away from 0
    CHECK(static_cast<int8_t>(b[4]) == 1);
    CHECK(static_cast<int8_t>(b[33]) == -1);

    x.assign(32, 0);
    x[0] = 4, x[1] = -4, x[16] = 3.5F;
    b = encoded(*block_format("Q4_0"), x);
    CHECK(b[1] == std::byte{0xb8});  // d = -0.5: the first extreme number gets code 0
    CHECK(b[2] == std::byte{0x10});
    CHECK(b[3] == std::byte{0x8f});

    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 16) - 3;
    CHECK(there_and_back(*block_format("Q4_1"), x) == x);
    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) * 0.25F - 7;
    CHECK(there_and_back(*block_format("Q5_1"), x) == x);
    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) - 16;
    CHECK(there_and_back(*block_format("Q5_0"), x) == x);
  }

  TEST_CASE("encode: Q8_K keeps the sums of sixteen codes") {
    std::vector<float> x(256);
    for (int i = 0; i < 256; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 128);
    const Blob b = encoded(*block_format("Q8_K"), x);
    CHECK(there_and_back(*block_format("Q8_K"), x) == x);
    int16_t sums[16];
    std::memcpy(sums, b.data() + 260, sizeof sums);
    CHECK(sums[0] == 120);
    CHECK(sums[7] == 120 + 16 * 112);
    CHECK(sums[8] == 120);
  }

  TEST_CASE("encode: numbers that a format holds come back as they are") {
    for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "Q2_K",
                             "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"}) {
      CAPTURE(name);
      const BlockFormat& f = *block_format(name);
      const std::vector<float> zeros(512);
      CHECK(there_and_back(f, zeros) == zeros);
      // Only the formats with a minimum hold a constant: their codes are all 0 or all the highest.
      const std::vector<float> down(256, -2);
      if (f.name != "MXFP4") {
        for (const float v : there_and_back(f, down)) CHECK(v == doctest::Approx(-2).epsilon(2e-3));
      } else {
        CHECK(there_and_back(f, down) == down);
      }
    }
  }

  TEST_CASE("encode: K formats are no worse than plain rounding, and within their error") {
    for (const KFormat& k : kKFormats) {
      const BlockFormat& f = *block_format(k.name);
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(k.name);
        CAPTURE(seed);
        const std::vector<float> x =
            normal(256, seed, std::pow(10.0F, static_cast<float>(seed) - 6));
        const std::vector<float> plain = f.name == "Q2_K"   ? rounded_offset(x, 16, 3, 15)
                                         : f.name == "Q3_K" ? rounded_signed(x, -4, -32)
                                         : f.name == "Q4_K" ? rounded_offset(x, 32, 15, 63)
                                         : f.name == "Q5_K" ? rounded_offset(x, 32, 31, 63)
                                                            : rounded_signed(x, -32, -128);
        CHECK(error_of(x, there_and_back(f, x)) <= error_of(x, plain) * (1 + 1e-5));
      }
      const std::vector<float> x = normal(256 * 64, 99);
      const double error = error_of(x, there_and_back(f, x)) / static_cast<double>(x.size());
      MESSAGE(std::string(k.name), ": mean squared error ", error);
      CHECK(error <= k.most);
      CHECK(error > 0);
    }
  }

  TEST_CASE("encode: weights say which numbers matter") {
    for (const KFormat& k : kKFormats) {
      CAPTURE(k.name);
      const BlockFormat& f = *block_format(k.name);
      const std::vector<float> x = normal(256 * 8, 7);
      std::vector<float> w = normal(256 * 8, 8);
      for (float& v : w) v = v * v * v * v;
      CHECK(error_of(x, there_and_back(f, x, w), w) < error_of(x, there_and_back(f, x), w));
    }
  }

  TEST_CASE("encode: MXFP4 takes the better of two exponents") {
    const BlockFormat& f = *block_format("MXFP4");
    std::vector<float> x(32, 0.5F);
    x[3] = 7.9F;  // saturates to 6: one step up would round all the others
    CHECK(there_and_back(f, x)[3] == 6);
    CHECK(there_and_back(f, x)[4] == 0.5F);
    x.assign(32, 7.9F);  // all of them saturate: 8 is nearer
    CHECK(there_and_back(f, x)[3] == 8);
    x.assign(32, 0x1p-126F);
    CHECK(there_and_back(f, x) == x);
  }

  TEST_CASE("encode: the scales of q8_0 are the nearest f16") {
    for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
      const float low = tenon::sdk::f16_value(bits), high = tenon::sdk::f16_value(bits + 1),
                  middle = low / 2 + high / 2;
      for (const float x : {low, std::nextafter(middle, low), middle, std::nextafter(middle, high)})
        REQUIRE(tenon::sdk::f16_bits_of(x) == tenon::detail::f16_bits(x));
    }
  }

  TEST_CASE("encode: a number that is not finite makes its block of q8_0 NaN") {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> x(32, 1), y(32);
      x[7] = bad;
      Blob block(34);
      tenon::sdk::encode_q8_0(x.data(), reinterpret_cast<unsigned char*>(block.data()));
      decode_blocks(*block_format("Q8_0"), block, y.data());
      for (const float v : y) CHECK(std::isnan(v));
    }
  }

  TEST_CASE("encode: f8e4m3 is the nearest, ties to even, and at most 448") {
    using tenon::sdk::f8e4m3_code, tenon::sdk::f8e4m3_value;
    for (unsigned code = 0; code < 0x7e; ++code) {
      const float low = f8e4m3_value(code), high = f8e4m3_value(code + 1),
                  middle = (low + high) / 2;
      for (const unsigned sign : {0u, 0x80u}) {
        const float by = sign ? -1.0f : 1.0f;
        REQUIRE(f8e4m3_code(by * low) == (code | sign));
        REQUIRE(f8e4m3_code(by * std::nextafter(middle, low)) == (code | sign));
        REQUIRE(f8e4m3_code(by * middle) == ((code + code % 2) | sign));
        REQUIRE(f8e4m3_code(by * std::nextafter(middle, high)) == ((code + 1) | sign));
      }
    }
    CHECK(f8e4m3_code(460) == 0x7e);
    CHECK(f8e4m3_code(-std::numeric_limits<float>::infinity()) == 0xfe);
    CHECK(f8e4m3_value(0x7e) == 448);
    CHECK(f8e4m3_value(0x01) == 0x1p-9f);
    CHECK(std::signbit(f8e4m3_value(0x80)));
    CHECK(std::isnan(f8e4m3_value(0x7f)));
    CHECK(std::isnan(f8e4m3_value(0xff)));
  }

  TEST_CASE("encode: blocks of f8e4m3_128") {
    std::vector<float> x(128), y(128);
    std::vector<unsigned char> block(132);
    const auto there_and_back_f8 = [&] {
      tenon::sdk::encode_f8e4m3_128(x.data(), block.data());
      tenon::sdk::decode_block(TENON_DTYPE_F8E4M3_128, block.data(), y.data());
    };
    for (size_t i = 0; i < 128; ++i) x[i] = static_cast<float>(i) - 100;
    there_and_back_f8();
    float scale = 0;
    std::memcpy(&scale, block.data(), sizeof scale);
    CHECK(scale == 100.0f / 448);
    // Half of a unit in the last of four digits.
    for (size_t i = 0; i < 128; ++i) CHECK(std::fabs(y[i] - x[i]) <= std::fabs(x[i]) / 16);
    CHECK(y[0] == scale * -448);
    for (const float most : {0.0f, 1e-45f, std::numeric_limits<float>::max()}) {
      x.assign(128, most);
      there_and_back_f8();
      for (const float v : y) CHECK(std::fabs(v - most) <= most / 1e6f + 1e-44f);
    }
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      x.assign(128, 1);
      x[7] = bad;
      there_and_back_f8();
      for (const float v : y) CHECK(std::isnan(v));
    }
  }

  TEST_CASE("encode: what is not finite, and parts of blocks, are refused by place") {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> x(512);
      x[300] = bad;
      try {
        encoded(*block_format("Q4_K"), x);
        FAIL("encoded");
      } catch (const Error& e) {
        CHECK(e.code() == Code::numeric_error);
        CHECK(std::string(e.what()).find("Q4_K: element 300 is ") == 0);
      }
    }
    CHECK_THROWS_WITH_AS(encoded(*block_format("Q4_K"), std::vector<float>(512), {1, 2}),
                         "Q4_K: 2 weights; expected 512", Error);
    std::vector<float> w(256, 1);
    w[9] = -1;
    CHECK_THROWS_AS(encoded(*block_format("Q4_K"), std::vector<float>(256), w), Error);
    Blob out(1000);
    CHECK_THROWS_WITH_AS(
        encode_blocks(*block_format("Q8_0"), std::vector<float>(33), {}, out.data()),
        "Q8_0: 33 elements; expected a multiple of 32", Error);
    CHECK_THROWS_WITH_AS(encoded(*block_format("IQ2_S"), std::vector<float>(256)),
                         "IQ2_S: tenon has no encoder for this format", Error);
    // Numbers beyond the range of the scales: no crash, and no infinity comes back.
    for (const BlockFormat& f : block_formats())
      if (f.encode && !f.plain())
        for (const float v : there_and_back(f, std::vector<float>(256, 3e38F)))
          CHECK_MESSAGE(std::isfinite(v), std::string(f.name));
  }
}
