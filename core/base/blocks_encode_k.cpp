// SPDX-License-Identifier: Apache-2.0
// Encoders of Q2_K to Q6_K and Q8_K: blocks of 256 elements in groups that have integer scales of a
// common scale. Each searches for the scales with the least weighted squared error:
//
//   1. per group, the codes of several trial scales; the codes of each give its best scale in closed
//      form
//   2. the scales as integers, and the codes again
//   3. by turns: the best common scale for the codes, and the best of the neighbouring integers for
//      each group
//
// Plain rounding is one of the candidates of 3, so that the result is never worse.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/blocks_decode.hpp"
#include "base/blocks_encode.hpp"

namespace tenon::core::blocks {
namespace {

constexpr uint32_t kBlock = 256;
constexpr float kMostF16 = 65504;

float as_f16(double value) {
  const float f = static_cast<float>(std::clamp<double>(value, -kMostF16, kMostF16));
  return tenon::detail::f16_value(tenon::detail::f16_bits(f));
}

float inverse(float scale) {
  const float i = 1 / scale;
  return scale != 0 && std::isfinite(i) ? i : 0;
}

// To the nearest integer within bounds, which are integers. Conversions of integers are what any
// processor has in vectors.
float code_of(float v, float low, float high) {
  return static_cast<float>(static_cast<int>(std::clamp(v, low, high) - low + 0.5F)) + low;
}

// ---- x = d * scale * q

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
    float d = as_f16(v / static_cast<float>(form.scale_low));
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
      const float next = qq > 0 ? as_f16(xq / qq) : 0;
      if (next == d) break;
      d = next;
    }
  }
  return best;
}

// ---- x = d * scale * q - dmin * min

struct OffsetForm {
  uint32_t size;  // of a group
  int high;       // codes from 0
  int most;       // of scales and minima
};

struct OffsetCodes {
  float d = 0, dmin = 0;
  std::array<int, 16> scales{}, mins{};
  std::array<float, kBlock> q{};
};

struct Line {
  float scale = 0, min = 0;
};

double offset_codes(const float* x, const float* w, const OffsetForm& form, Line line, float* q) {
  const float i = inverse(line.scale);
  float error = 0;
  for (uint32_t k = 0; k < form.size; ++k) {
    q[k] = code_of((x[k] + line.min) * i, 0, static_cast<float>(form.high));
    const float off = x[k] - (line.scale * q[k] - line.min);
    error += w[k] * off * off;
  }
  return error;
}

// The line of least squares through the codes, with scale and minimum at least 0.
Line fitted_line(const float* x, const float* w, const OffsetForm& form, const float* q) {
  double sum = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
  for (uint32_t k = 0; k < form.size; ++k) {
    const double a = w[k], wq = a * q[k];
    sum += a;
    sq += wq;
    sqq += wq * q[k];
    sx += a * x[k];
    sxq += wq * x[k];
  }
  const double det = sum * sqq - sq * sq;
  double scale = 0, level = 0;
  if (det > 0) {
    scale = (sum * sxq - sx * sq) / det;
    level = (sqq * sx - sq * sxq) / det;
  }
  if (!(det > 0) || level > 0) {
    level = 0;
    scale = sqq > 0 ? sxq / sqq : 0;
  }
  return {static_cast<float>(std::max(scale, 0.0)), static_cast<float>(-level)};
}

Line plain_line(const float* x, const OffsetForm& form) {
  const auto [least, largest] = std::minmax_element(x, x + form.size);
  const float low = std::min(*least, 0.0F);
  return {(*largest / 2 - low / 2) / static_cast<float>(form.high) * 2, -low};
}

Line offset_fit(const float* x, const float* w, const OffsetForm& form) {
  const Line plain = plain_line(x, form);
  Line best = plain;
  std::array<float, 32> q;
  double least = offset_codes(x, w, form, plain, q.data());
  if (plain.scale <= 0) return best;
  for (int step = -10; step <= 10; ++step) {
    const float stretch = static_cast<float>(form.high) /
                          (static_cast<float>(form.high) + 0.1F * static_cast<float>(step));
    offset_codes(x, w, form, {plain.scale * stretch, plain.min}, q.data());
    const Line line = fitted_line(x, w, form, q.data());
    const double error = offset_codes(x, w, form, line, q.data());
    if (!(error < least)) continue;
    least = error;
    best = line;
  }
  return best;
}

double choose(const float* x, const float* w, const OffsetForm& form, const Line* wanted, float d,
              float dmin, OffsetCodes& out) {
  out.d = d, out.dmin = dmin;
  const float id = inverse(d), imin = inverse(dmin), most = static_cast<float>(form.most);
  double total = 0;
  for (uint32_t g = 0; g < kBlock / form.size; ++g) {
    const uint32_t at = g * form.size;
    const int scale = static_cast<int>(code_of(wanted[g].scale * id, 0, most)),
              min = static_cast<int>(code_of(wanted[g].min * imin, 0, most));
    double best = std::numeric_limits<double>::infinity();
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, form.most); ++s) {
      for (int m = std::max(min - 1, 0); m <= std::min(min + 1, form.most); ++m) {
        std::array<float, 32> q;
        const Line line{d * static_cast<float>(s), dmin * static_cast<float>(m)};
        const double error = offset_codes(x + at, w + at, form, line, q.data());
        if (!(error < best)) continue;
        best = error;
        out.scales[g] = s, out.mins[g] = m;
        std::copy_n(q.data(), form.size, out.q.data() + at);
      }
    }
    total += best;
  }
  return total;
}

// The common scale and minimum of least squares for integer scales and codes.
Line common_line(const float* x, const float* w, const OffsetForm& form, const OffsetCodes& c) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (uint32_t i = 0; i < kBlock; ++i) {
    const double a = c.scales[i / form.size] * static_cast<double>(c.q[i]),
                 b = -c.mins[i / form.size], weight = w[i];
    aa += weight * a * a;
    ab += weight * a * b;
    bb += weight * b * b;
    ax += weight * a * x[i];
    bx += weight * b * x[i];
  }
  const double det = aa * bb - ab * ab;
  double d = 0, dmin = 0;
  if (det > 1e-9 * aa * bb) {
    d = (ax * bb - bx * ab) / det;
    dmin = (bx * aa - ax * ab) / det;
  } else if (aa > 0) {
    d = ax / aa;
  }
  return {as_f16(std::max(d, 0.0)), as_f16(std::max(dmin, 0.0))};
}

OffsetCodes offset_search(const float* x, const float* w, const OffsetForm& form) {
  const uint32_t groups = kBlock / form.size;
  std::array<Line, 16> fitted{}, plain{};
  for (uint32_t g = 0; g < groups; ++g) {
    fitted[g] = offset_fit(x + g * form.size, w + g * form.size, form);
    plain[g] = plain_line(x + g * form.size, form);
  }
  OffsetCodes best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& wanted : {plain, fitted}) {
    Line common;
    for (uint32_t g = 0; g < groups; ++g) {
      common.scale = std::max(common.scale, wanted[g].scale);
      common.min = std::max(common.min, wanted[g].min);
    }
    common = {as_f16(common.scale / static_cast<float>(form.most)),
              as_f16(common.min / static_cast<float>(form.most))};
    for (int turn = 0; turn < 3; ++turn) {
      OffsetCodes trial;
      const double error = choose(x, w, form, wanted.data(), common.scale, common.min, trial);
      if (error < least) {
        least = error;
        best = trial;
      }
      const Line next = common_line(x, w, form, trial);
      if (next.scale == common.scale && next.min == common.min) break;
      common = next;
    }
  }
  return best;
}

// Weights of a block: ones where none are given, or where all are 0.
std::array<float, kBlock> weights_of(const float* weights) {
  std::array<float, kBlock> w;
  const float most = weights ? *std::max_element(weights, weights + kBlock) : 0;
  w.fill(1);
  // Relative to the largest one: squared errors times large numbers would overflow.
  if (most > 0)
    std::transform(weights, weights + kBlock, w.begin(), [&](float v) { return v / most; });
  return w;
}

// ---- Bytes

void put_two_bits(std::byte* qs, const uint32_t* q) {
  std::fill_n(qs, 64, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    qs[32 * (i / 128) + i % 32] |= static_cast<std::byte>((q[i] & 3) << 2 * (i % 128 / 32));
}

void put_four_bits(std::byte* qs, const uint32_t* q) {
  std::fill_n(qs, 128, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    qs[32 * (i / 64) + i % 32] |= static_cast<std::byte>((q[i] & 15) << 4 * (i / 32 & 1));
}

std::array<uint32_t, kBlock> codes_from(const std::array<float, kBlock>& q, int zero) {
  std::array<uint32_t, kBlock> out;
  for (uint32_t i = 0; i < kBlock; ++i)
    out[i] = static_cast<uint32_t>(static_cast<int>(q[i]) + zero);
  return out;
}

void put_scale_min(std::byte* at, const OffsetCodes& c) {
  std::fill_n(at, 12, std::byte{0});
  for (uint32_t g = 0; g < 8; ++g) {
    const auto s = static_cast<uint32_t>(c.scales[g]), m = static_cast<uint32_t>(c.mins[g]);
    if (g < 4) {
      at[g] |= static_cast<std::byte>(s);
      at[g + 4] |= static_cast<std::byte>(m);
    } else {
      at[g + 4] |= static_cast<std::byte>((s & 15) | (m & 15) << 4);
      at[g - 4] |= static_cast<std::byte>(s >> 4 << 6);
      at[g] |= static_cast<std::byte>(m >> 4 << 6);
    }
  }
}

}  // namespace

void encode_q2_k(const float* x, const float* weights, std::byte* b) {
  const OffsetCodes c = offset_search(x, weights_of(weights).data(), {16, 3, 15});
  for (uint32_t g = 0; g < 16; ++g) b[g] = static_cast<std::byte>(c.scales[g] | c.mins[g] << 4);
  put_two_bits(b + 16, codes_from(c.q, 0).data());
  put_f16(b + 80, c.d);
  put_f16(b + 82, c.dmin);
}

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
  put_f16(b + 108, c.d);
}

void encode_q4_k(const float* x, const float* weights, std::byte* b) {
  const OffsetCodes c = offset_search(x, weights_of(weights).data(), {32, 15, 63});
  put_f16(b, c.d);
  put_f16(b + 2, c.dmin);
  put_scale_min(b + 4, c);
  put_four_bits(b + 16, codes_from(c.q, 0).data());
}

void encode_q5_k(const float* x, const float* weights, std::byte* b) {
  const OffsetCodes c = offset_search(x, weights_of(weights).data(), {32, 31, 63});
  const auto q = codes_from(c.q, 0);
  put_f16(b, c.d);
  put_f16(b + 2, c.dmin);
  put_scale_min(b + 4, c);
  std::fill_n(b + 16, 32, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    b[16 + i % 32] |= static_cast<std::byte>(q[i] >> 4 << i / 32);
  put_four_bits(b + 48, q.data());
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
  put_f16(b + 208, c.d);
}

void encode_q8_k(const float* x, const float*, std::byte* b) {
  float largest = 0;
  for (uint32_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float d = largest / 127, inverse_d = inverse(d);
  const auto bits = std::bit_cast<uint32_t>(d);
  put_u16(b, bits);
  put_u16(b + 2, bits >> 16);
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
