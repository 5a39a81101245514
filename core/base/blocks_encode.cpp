// SPDX-License-Identifier: Apache-2.0
// Encoders of the formats with one scale per block, and the entry that checks the numbers. The
// formats of 256 elements: blocks_encode_k.cpp.
#include "base/blocks_encode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/blocks.hpp"
#include "base/blocks_decode.hpp"
#include "base/error.hpp"

namespace tenon::core {
namespace blocks {
namespace {

// The scale in f16, never infinite: numbers beyond its range saturate.
void put_scale(std::byte* at, float value) { put_f16(at, std::clamp(value, -65504.0F, 65504.0F)); }

// 0 for a scale that has no finite inverse: then all codes are those of 0.
float inverse(float scale) {
  const float i = 1 / scale;
  return scale != 0 && std::isfinite(i) ? i : 0;
}

// The first number of the largest magnitude.
float extreme(const float* x, uint32_t count) {
  float v = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (std::fabs(x[i]) > std::fabs(v)) v = x[i];
  return v;
}

void put_nibbles(std::byte* at, const uint32_t* codes, uint32_t half) {
  for (uint32_t i = 0; i < half; ++i)
    at[i] = static_cast<std::byte>((codes[i] & 15) | (codes[half + i] & 15) << 4);
}

void put_fifth_bits(std::byte* at, const uint32_t* codes) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i) bits |= (codes[i] >> 4 & 1) << i;
  put_u16(at, bits);
  put_u16(at + 2, bits >> 16);
}

// The number of the largest magnitude gets the lowest code, which has no positive twin.
void signed_codes(const float* x, uint32_t zero, std::byte* scale, uint32_t* codes) {
  const float d = extreme(x, 32) / -static_cast<float>(zero), i = inverse(d);
  put_scale(scale, d);
  for (uint32_t k = 0; k < 32; ++k)
    codes[k] = static_cast<uint32_t>(
        std::clamp(x[k] * i + (static_cast<float>(zero) + 0.5F), 0.0F, 2.0F * zero - 1));
}

void codes_over_minimum(const float* x, uint32_t most, std::byte* scales, uint32_t* codes) {
  const auto [least, largest] = std::minmax_element(x, x + 32);
  // Halves, as the difference of two floats may overflow.
  const float d = (*largest / 2 - *least / 2) / static_cast<float>(most) * 2, i = inverse(d);
  put_scale(scales, d);
  put_scale(scales + 2, *least);
  for (uint32_t k = 0; k < 32; ++k)
    codes[k] = static_cast<uint32_t>(
        std::clamp((x[k] - *least) * i + 0.5F, 0.0F, static_cast<float>(most)));
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
  const auto* above = std::lower_bound(kNonlinear, kNonlinear + 16, x,
                                       [](int8_t t, float v) { return static_cast<float>(t) < v; });
  const auto k = static_cast<uint32_t>(above - kNonlinear);
  if (k == 0) return 0;
  if (k == 16) return 15;
  const bool lower =
      x - static_cast<float>(kNonlinear[k - 1]) < static_cast<float>(kNonlinear[k]) - x;
  return lower ? k - 1 : k;
}

}  // namespace

void encode_q4_0(const float* x, const float*, std::byte* block) {
  uint32_t codes[32];
  signed_codes(x, 8, block, codes);
  put_nibbles(block + 2, codes, 16);
}

void encode_q5_0(const float* x, const float*, std::byte* block) {
  uint32_t codes[32];
  signed_codes(x, 16, block, codes);
  put_fifth_bits(block + 2, codes);
  put_nibbles(block + 6, codes, 16);
}

void encode_q4_1(const float* x, const float*, std::byte* block) {
  uint32_t codes[32];
  codes_over_minimum(x, 15, block, codes);
  put_nibbles(block + 4, codes, 16);
}

void encode_q5_1(const float* x, const float*, std::byte* block) {
  uint32_t codes[32];
  codes_over_minimum(x, 31, block, codes);
  put_fifth_bits(block + 4, codes);
  put_nibbles(block + 8, codes, 16);
}

void encode_q8_0(const float* x, const float*, std::byte* block) {
  const float d = std::fabs(extreme(x, 32)) / 127, i = inverse(d);
  put_scale(block, d);
  for (uint32_t k = 0; k < 32; ++k)  // ties go away from 0
    block[2 + k] = static_cast<std::byte>(
        static_cast<int8_t>(std::clamp(std::round(x[k] * i), -127.0F, 127.0F)));
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
        const double w = weights ? weights[k] : 1, q = kNonlinear[nonlinear_code(x[k] * i)];
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
  const float i = inverse(f16(block));
  uint32_t codes[32];
  for (uint32_t k = 0; k < 32; ++k) codes[k] = nonlinear_code(x[k] * i);
  put_nibbles(block + 2, codes, 16);
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
      const double off = x[k] - std::ldexp(kTwiceE2M1[codes[k]] / 2.0, e);
      error += (weights ? weights[k] : 1) * off * off;
    }
    if (!(error < best)) continue;
    best = error;
    block[0] = static_cast<std::byte>(e + 127);
    put_nibbles(block + 1, codes, 16);
  }
}

}  // namespace blocks

void encode_blocks(const BlockFormat& format, std::span<const float> x,
                   std::span<const float> weights, std::byte* out) {
  if (!format.encode)
    fail(Code::unsupported, format.name, ": tenon has no encoder for this format");
  if (x.size() % format.elements != 0)
    fail(Code::shape_mismatch, format.name, ": ", x.size(), " elements; expected a multiple of ",
         format.elements);
  if (!weights.empty() && weights.size() != x.size())
    fail(Code::shape_mismatch, format.name, ": ", weights.size(), " weights; expected ", x.size());
  for (size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
      fail(Code::numeric_error, format.name, ": weight ", i, " is ", weights[i],
           "; expected a finite number, at least 0");
  if (!format.plain())
    for (size_t i = 0; i < x.size(); ++i)
      if (!std::isfinite(x[i]))
        fail(Code::numeric_error, format.name, ": element ", i, " is ", x[i],
             "; expected a finite number");
  for (size_t at = 0; at < x.size(); at += format.elements, out += format.bytes)
    format.encode(x.data() + at, weights.empty() ? nullptr : weights.data() + at, out);
}

}  // namespace tenon::core
