// SPDX-License-Identifier: Apache-2.0
// Encoders of the formats with one scale per block. Those of 256 elements: blocks_encode_k.hpp.
#include "base/blocks_encode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/blocks.hpp"

namespace tenon::core::blocks {
namespace {

// The first number of the largest magnitude.
float extreme(const float* x, uint32_t count) {
  float v = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (std::fabs(x[i]) > std::fabs(v)) v = x[i];
  return v;
}

void put_nibbles(std::byte* at, const uint32_t* codes) {
  for (uint32_t i = 0; i < 16; ++i)
    at[i] = static_cast<std::byte>((codes[i] & 15) | (codes[16 + i] & 15) << 4);
}

// Codes of five bits have their top bits in front of the others.
void put_codes(std::byte* at, const uint32_t* codes, uint32_t most) {
  if (most > 15) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 32; ++i) bits |= (codes[i] >> 4 & 1) << i;
    put_u32(at, bits);
    at += 4;
  }
  put_nibbles(at, codes);
}

// The number of the largest magnitude gets the lowest code, which has no positive twin.
void encode_around(const float* x, uint32_t zero, std::byte* block) {
  const float d = extreme(x, 32) / -static_cast<float>(zero), i = inverse(d);
  put_scale(block, d);
  uint32_t codes[32];
  for (uint32_t k = 0; k < 32; ++k)
    codes[k] = static_cast<uint32_t>(
        std::clamp(x[k] * i + (static_cast<float>(zero) + 0.5F), 0.0F, 2.0F * zero - 1));
  put_codes(block + 2, codes, 2 * zero - 1);
}

void encode_over_minimum(const float* x, uint32_t most, std::byte* block) {
  const auto [least, largest] = std::minmax_element(x, x + 32);
  // Halves, as the difference of two floats may overflow.
  const float d = (*largest / 2 - *least / 2) / static_cast<float>(most) * 2, i = inverse(d);
  put_scale(block, d);
  put_scale(block + 2, *least);
  uint32_t codes[32];
  for (uint32_t k = 0; k < 32; ++k)
    codes[k] = static_cast<uint32_t>(
        std::clamp((x[k] - *least) * i + 0.5F, 0.0F, static_cast<float>(most)));
  put_codes(block + 4, codes, most);
}

// The sign and the code of the nearest value of E2M1; ties go to the even code.
uint32_t e2m1_code(float x) {
  constexpr float kMiddles[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const float a = std::fabs(x);
  uint32_t code = 0;
  for (uint32_t k = 0; k < 7; ++k)
    if (a > kMiddles[k] || (a == kMiddles[k] && k % 2 == 1)) code = k + 1;
  return code != 0 && x < 0 ? code + 8 : code;
}

uint32_t nonlinear_code(float x) {
  const auto* above =
      std::lower_bound(sdk::kIq4Levels, sdk::kIq4Levels + 16, x,
                       [](signed char t, float v) { return static_cast<float>(t) < v; });
  const auto k = static_cast<uint32_t>(above - sdk::kIq4Levels);
  if (k == 0) return 0;
  if (k == 16) return 15;
  const bool lower =
      x - static_cast<float>(sdk::kIq4Levels[k - 1]) < static_cast<float>(sdk::kIq4Levels[k]) - x;
  return lower ? k - 1 : k;
}

}  // namespace

void encode_q4_0(const float* x, const float*, std::byte* block) { encode_around(x, 8, block); }
void encode_q5_0(const float* x, const float*, std::byte* block) { encode_around(x, 16, block); }
void encode_q4_1(const float* x, const float*, std::byte* block) {
  encode_over_minimum(x, 15, block);
}
void encode_q5_1(const float* x, const float*, std::byte* block) {
  encode_over_minimum(x, 31, block);
}

void encode_q8_0(const float* x, const float*, std::byte* block) {
  sdk::encode_q8_0(x, reinterpret_cast<unsigned char*>(block));
}

// Scales that put the extreme number on or near the ends of the table; the codes of each give its
// best scale in closed form.
void encode_iq4_nl(const float* x, const float* weights, std::byte* block) {
  const float v = extreme(x, 32);
  float best = -1, scale = 0;
  for (const float end : {-127.0F, 113.0F}) {
    for (int step = -10; step <= 10; ++step) {
      const float i = (end + static_cast<float>(step)) * inverse(v);
      double xq = 0, qq = 0;
      for (uint32_t k = 0; k < 32; ++k) {
        const double w = weights ? weights[k] : 1, q = sdk::kIq4Levels[nonlinear_code(x[k] * i)];
        xq += w * x[k] * q;
        qq += w * q * q;
      }
      // What the scale xq / qq takes off the error of zeros.
      const double gain = qq > 0 ? xq * xq / qq : 0;
      if (gain <= best) continue;
      best = static_cast<float>(gain);
      scale = qq > 0 ? static_cast<float>(xq / qq) : 0;
    }
  }
  put_scale(block, scale);
  const float i = inverse(as_scale(scale));
  uint32_t codes[32];
  for (uint32_t k = 0; k < 32; ++k) codes[k] = nonlinear_code(x[k] * i);
  put_nibbles(block + 2, codes);
}

// The exponent under which the largest number is in the top binade of E2M1 may saturate numbers;
// the next one does not, but is coarser. The better of both is taken.
void encode_mxfp4(const float* x, const float* weights, std::byte* block) {
  const float largest = std::fabs(extreme(x, 32));
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest = [0.5, 1) * 2^exponent
  const int first = largest == 0 ? -127 : std::clamp(exponent - 3, -127, 124);
  double best = std::numeric_limits<double>::infinity();
  for (const int e : {first, first + 1}) {
    uint32_t codes[32];
    double error = 0;
    for (uint32_t k = 0; k < 32; ++k) {
      codes[k] = e2m1_code(std::ldexp(x[k], -e));
      const double off = x[k] - std::ldexp(sdk::kE2m1Doubled[codes[k]] / 2.0, e);
      error += (weights ? weights[k] : 1) * off * off;
    }
    if (!(error < best)) continue;
    best = error;
    block[0] = static_cast<std::byte>(e + 127);
    put_nibbles(block + 1, codes);
  }
}

}  // namespace tenon::core::blocks
