// SPDX-License-Identifier: Apache-2.0
// Encoders of Q3_K, Q6_K and Q8_K: x = d * scale * q, with signed codes q.
#include "base/blocks_encode_k.hpp"

namespace tenon::core::blocks {
namespace {

struct SignedForm {
  uint32_t size;  // of a group
  int low, high;  // codes
  int scale_low, scale_high;
};

struct SignedCodes {
  float d = 0;
  std::array<int, 16> scales{};
  std::array<float, kBlock> q{};
};

struct Fit {
  float scale = 0;
  double gain = -1;  // less error than zeros have
};

Fit signed_fit(const float* x, const float* w, const SignedForm& form) {
  float v = 0;
  for (uint32_t i = 0; i < form.size; ++i)
    if (std::fabs(x[i]) > std::fabs(v)) v = x[i];
  Fit best;
  if (v == 0) return best;
  for (const int end : {form.low, form.high}) {
    for (int step = -9; step <= 9; ++step) {
      const float trial = (static_cast<float>(end) + 0.1F * static_cast<float>(step)) * inverse(v);
      if (!std::isfinite(trial)) continue;  // of a number next to 0
      float xq = 0, qq = 0;
      for (uint32_t i = 0; i < form.size; ++i) {
        const float q =
            code_of(x[i] * trial, static_cast<float>(form.low), static_cast<float>(form.high));
        xq += w[i] * x[i] * q;
        qq += w[i] * q * q;
      }
      const double gain = qq > 0 ? static_cast<double>(xq) * xq / qq : 0;
      if (gain > best.gain) best = {qq > 0 ? xq / qq : 0, gain};
    }
  }
  return best;
}

double signed_codes(const float* x, const float* w, const SignedForm& form, float scale, float* q) {
  const float i = inverse(scale);
  float error = 0;
  for (uint32_t k = 0; k < form.size; ++k) {
    q[k] = code_of(x[k] * i, static_cast<float>(form.low), static_cast<float>(form.high));
    const float off = x[k] - scale * q[k];
    error += w[k] * off * off;
  }
  return error;
}

// Chooses integer scales near those wanted, for a common scale d.
double choose(const float* x, const float* w, const SignedForm& form, const float* wanted, float d,
              SignedCodes& out) {
  out.d = d;
  const float i = inverse(d);
  double total = 0;
  for (uint32_t g = 0; g < kBlock / form.size; ++g) {
    const uint32_t at = g * form.size;
    const int near = static_cast<int>(code_of(wanted[g] * i, static_cast<float>(form.scale_low),
                                              static_cast<float>(form.scale_high)));
    double best = std::numeric_limits<double>::infinity();
    for (int s = std::max(near - 1, form.scale_low); s <= std::min(near + 1, form.scale_high);
         ++s) {
      std::array<float, 32> q;
      const double error = signed_codes(x + at, w + at, form, d * static_cast<float>(s), q.data());
      if (!(error < best)) continue;
      best = error;
      out.scales[g] = s;
      std::copy_n(q.data(), form.size, out.q.data() + at);
    }
    total += best;
  }
  return total;
}

SignedCodes signed_search(const float* x, const float* w, const SignedForm& form) {
  const uint32_t groups = kBlock / form.size;
  std::array<float, 16> fitted{}, plain{};
  for (uint32_t g = 0; g < groups; ++g) {
    fitted[g] = signed_fit(x + g * form.size, w + g * form.size, form).scale;
    float v = 0;
    for (uint32_t i = 0; i < form.size; ++i)
      if (std::fabs(x[g * form.size + i]) > std::fabs(v)) v = x[g * form.size + i];
    plain[g] = v / static_cast<float>(form.low);
  }
  SignedCodes best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& wanted : {plain, fitted}) {
    float v = 0;
    for (uint32_t g = 0; g < groups; ++g)
      if (std::fabs(wanted[g]) > std::fabs(v)) v = wanted[g];
    float d = as_scale(v / static_cast<float>(form.scale_low));
    for (int turn = 0; turn < 3; ++turn) {
      SignedCodes trial;
      const double error = choose(x, w, form, wanted.data(), d, trial);
      if (error < least) {
        least = error;
        best = trial;
      }
      double xq = 0, qq = 0;
      for (uint32_t i = 0; i < kBlock; ++i) {
        const double a = trial.scales[i / form.size] * static_cast<double>(trial.q[i]);
        xq += w[i] * x[i] * a;
        qq += w[i] * a * a;
      }
      const float next = qq > 0 ? as_scale(xq / qq) : 0;
      if (next == d) break;
      d = next;
    }
  }
  return best;
}

}  // namespace

void encode_q3_k(const float* x, const float* weights, std::byte* b) {
  const SignedCodes c = signed_search(x, weights_of(weights).data(), {16, -4, 3, -32, 31});
  const auto q = codes_from(c.q, 4);
  std::fill_n(b, 32, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i) b[i % 32] |= static_cast<std::byte>(q[i] >> 2 << i / 32);
  put_two_bits(b + 32, q.data());
  std::fill_n(b + 96, 12, std::byte{0});
  for (uint32_t g = 0; g < 16; ++g) {
    const auto s = static_cast<uint32_t>(c.scales[g] + 32);
    b[96 + g % 8] |= static_cast<std::byte>((s & 15) << 4 * (g / 8));
    b[104 + g % 4] |= static_cast<std::byte>(s >> 4 << 2 * (g / 4));
  }
  put_scale(b + 108, c.d);
}

void encode_q6_k(const float* x, const float* weights, std::byte* b) {
  const SignedCodes c = signed_search(x, weights_of(weights).data(), {16, -32, 31, -128, 127});
  const auto q = codes_from(c.q, 32);
  std::fill_n(b, 192, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint32_t n = i / 128, row = i % 128 / 32, l = i % 32;
    b[64 * n + 32 * (row & 1) + l] |= static_cast<std::byte>((q[i] & 15) << 4 * (row >> 1));
    b[128 + 32 * n + l] |= static_cast<std::byte>(q[i] >> 4 << 2 * row);
  }
  for (uint32_t g = 0; g < 16; ++g)
    b[192 + g] = static_cast<std::byte>(static_cast<int8_t>(c.scales[g]));
  put_scale(b + 208, c.d);
}

void encode_q8_k(const float* x, const float*, std::byte* b) {
  float largest = 0;
  for (uint32_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float d = largest / 127, inverse_d = inverse(d);
  const auto bits = std::bit_cast<uint32_t>(d);
  put_u32(b, bits);
  int sums[16] = {};
  for (uint32_t i = 0; i < kBlock; ++i) {
    const auto q = static_cast<int>(std::clamp(std::round(x[i] * inverse_d), -127.0F, 127.0F));
    b[4 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
    sums[i / 16] += q;
  }
  for (uint32_t g = 0; g < 16; ++g)
    put_u16(b + 260 + 2 * g, static_cast<uint32_t>(static_cast<int16_t>(sums[g])));
}

}  // namespace tenon::core::blocks
