// SPDX-License-Identifier: Apache-2.0
// Encoders of Q2_K, Q4_K and Q5_K: x = d * scale * q - dmin * min, with codes q from 0.
#include "base/blocks_encode_k.hpp"

namespace tenon::core::blocks {
namespace {

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
  return {as_scale(std::max(d, 0.0)), as_scale(std::max(dmin, 0.0))};
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
    common = {as_scale(common.scale / static_cast<float>(form.most)),
              as_scale(common.min / static_cast<float>(form.most))};
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
  put_scale(b + 80, c.d);
  put_scale(b + 82, c.dmin);
}

void encode_q4_k(const float* x, const float* weights, std::byte* b) {
  const OffsetCodes c = offset_search(x, weights_of(weights).data(), {32, 15, 63});
  put_scale(b, c.d);
  put_scale(b + 2, c.dmin);
  put_scale_min(b + 4, c);
  put_four_bits(b + 16, codes_from(c.q, 0).data());
}

void encode_q5_k(const float* x, const float* weights, std::byte* b) {
  const OffsetCodes c = offset_search(x, weights_of(weights).data(), {32, 31, 63});
  const auto q = codes_from(c.q, 0);
  put_scale(b, c.d);
  put_scale(b + 2, c.dmin);
  put_scale_min(b + 4, c);
  std::fill_n(b + 16, 32, std::byte{0});
  for (uint32_t i = 0; i < kBlock; ++i)
    b[16 + i % 32] |= static_cast<std::byte>(q[i] >> 4 << i / 32);
  put_four_bits(b + 48, q.data());
}

}  // namespace tenon::core::blocks
