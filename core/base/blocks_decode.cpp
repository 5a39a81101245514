// SPDX-License-Identifier: Apache-2.0
// Decoders of block formats and the table of formats. Compiled without contraction of products and
// sums, so that the results have the bits of the formulas.
#include "base/blocks_decode.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/blocks.hpp"
#include "base/blocks_encode.hpp"
#include "base/error.hpp"
#include "base/number.hpp"
#include "tenon/dtype.hpp"

namespace tenon::core {
namespace {

using namespace blocks;

// ---- Blocks of 32

void q4_0(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 32; ++i)
    y[i] = d * static_cast<float>(static_cast<int>(nibble(b + 2, i, 16)) - 8);
}

void q4_1(const std::byte* b, float* y) {
  const float d = f16(b), m = f16(b + 2);
  for (uint32_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b + 4, i, 16)) + m;
}

void q5_0(const std::byte* b, float* y) {
  const float d = f16(b);
  const uint32_t high = u32(b + 2);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t q = nibble(b + 6, i, 16) | (high >> i & 1) << 4;
    y[i] = d * static_cast<float>(static_cast<int>(q) - 16);
  }
}

void q5_1(const std::byte* b, float* y) {
  const float d = f16(b), m = f16(b + 2);
  const uint32_t high = u32(b + 4);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t q = nibble(b + 8, i, 16) | (high >> i & 1) << 4;
    y[i] = d * static_cast<float>(q) + m;
  }
}

void q8_0(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(i8(b + 2 + i));
}

void q8_1(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(i8(b + 4 + i));
}

void iq4_nl(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(kNonlinear[nibble(b + 2, i, 16)]);
}

void mxfp4(const std::byte* b, float* y) {
  const float half = half_e8m0(u8(b));
  for (uint32_t i = 0; i < 32; ++i)
    y[i] = half * static_cast<float>(kTwiceE2M1[nibble(b + 1, i, 16)]);
}

// ---- Blocks of 64 and 128

void nvfp4(const std::byte* b, float* y) {
  for (uint32_t g = 0; g < 4; ++g) {
    const float half = half_ue4m3(u8(b + g));
    const std::byte* qs = b + 4 + 8 * g;
    for (uint32_t i = 0; i < 16; ++i)
      y[16 * g + i] = half * static_cast<float>(kTwiceE2M1[nibble(qs, i, 8)]);
  }
}

void q1_0(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 128; ++i) y[i] = u8(b + 2 + i / 8) >> i % 8 & 1 ? d : -d;
}

void q2_0(const std::byte* b, float* y) {
  const float d = f16(b);
  for (uint32_t i = 0; i < 64; ++i)
    y[i] = d * static_cast<float>(static_cast<int>(u8(b + 2 + i / 4) >> 2 * (i % 4) & 3) - 1);
}

// ---- Blocks of 256: two halves of 128, four rows of 32 in each

// Two bits per element: a byte has one element of each row of a half.
uint32_t two_bits(const std::byte* qs, uint32_t i) {
  return u8(qs + 32 * (i / 128) + i % 32) >> 2 * (i % 128 / 32) & 3;
}

void q2_k(const std::byte* b, float* y) {
  const float d = f16(b + 80), dmin = f16(b + 82);
  for (uint32_t g = 0; g < 16; ++g) {
    const uint32_t s = u8(b + g);
    const float scale = d * static_cast<float>(s & 15), min = dmin * static_cast<float>(s >> 4);
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i)
      y[i] = scale * static_cast<float>(two_bits(b + 16, i)) - min;
  }
}

void q3_k(const std::byte* b, float* y) {
  const float d = f16(b + 108);
  for (uint32_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(q3_scale(b + 96, g));
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t high = u8(b + i % 32) >> i / 32 & 1;
      const int q = static_cast<int>(two_bits(b + 32, i) + 4 * high) - 4;
      y[i] = scale * static_cast<float>(q);
    }
  }
}

// Four bits per element: 64 elements share 32 bytes.
uint32_t four_bits(const std::byte* qs, uint32_t i) {
  return u8(qs + 32 * (i / 64) + i % 32) >> 4 * (i / 32 & 1) & 15;
}

void q4_k(const std::byte* b, float* y) {
  const float d = f16(b), dmin = f16(b + 2);
  for (uint32_t g = 0; g < 8; ++g) {
    const ScaleMin s = scale_min(b + 4, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (uint32_t i = 32 * g; i < 32 * g + 32; ++i)
      y[i] = scale * static_cast<float>(four_bits(b + 16, i)) - min;
  }
}

void q5_k(const std::byte* b, float* y) {
  const float d = f16(b), dmin = f16(b + 2);
  for (uint32_t g = 0; g < 8; ++g) {
    const ScaleMin s = scale_min(b + 4, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (uint32_t i = 32 * g; i < 32 * g + 32; ++i) {
      const uint32_t q = four_bits(b + 48, i) + 16 * (u8(b + 16 + i % 32) >> g & 1);
      y[i] = scale * static_cast<float>(q) - min;
    }
  }
}

void q6_k(const std::byte* b, float* y) {
  const float d = f16(b + 208);
  for (uint32_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(i8(b + 192 + g));
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t n = i / 128, row = i % 128 / 32, l = i % 32;
      const uint32_t low = u8(b + 64 * n + 32 * (row & 1) + l) >> 4 * (row >> 1) & 15;
      const uint32_t high = u8(b + 128 + 32 * n + l) >> 2 * row & 3;
      y[i] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
  }
}

void q8_k(const std::byte* b, float* y) {
  const float d = f32(b);
  for (uint32_t i = 0; i < 256; ++i) y[i] = d * static_cast<float>(i8(b + 4 + i));
}

void iq4_xs(const std::byte* b, float* y) {
  const float d = f16(b);
  const uint32_t high = u16(b + 2);
  for (uint32_t g = 0; g < 8; ++g) {
    const uint32_t s = (u8(b + 4 + g / 2) >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;
    const float scale = d * static_cast<float>(static_cast<int>(s) - 32);
    for (uint32_t i = 0; i < 32; ++i)
      y[32 * g + i] = scale * static_cast<float>(kNonlinear[nibble(b + 8 + 16 * g, i, 16)]);
  }
}

// Five trits per byte, as a fraction of 256 in base 3: the byte times 3^t has trit t on top.
int trit(uint32_t byte, uint32_t t) {
  constexpr uint32_t power[] = {1, 3, 9, 27, 81};
  return static_cast<int>((byte * power[t] & 255) * 3 >> 8) - 1;
}

void tq1_0(const std::byte* b, float* y) {
  const float d = f16(b + 52);
  for (uint32_t i = 0; i < 256; ++i) {
    const int q = i < 160   ? trit(u8(b + i % 32), i / 32)
                  : i < 240 ? trit(u8(b + 32 + (i - 160) % 16), (i - 160) / 16)
                            : trit(u8(b + 48 + (i - 240) % 4), (i - 240) / 4);
    y[i] = d * static_cast<float>(q);
  }
}

void tq2_0(const std::byte* b, float* y) {
  const float d = f16(b + 64);
  for (uint32_t i = 0; i < 256; ++i)
    y[i] = d * static_cast<float>(static_cast<int>(two_bits(b, i)) - 1);
}

// ---- Plain types

template <tenon_dtype T>
void one_number(const std::byte* b, float* y) {
  double value = 0;
  load_number(T, b, &value);
  *y = static_cast<float>(value);
}

template <tenon_dtype T>
void one_number_back(const float* x, const float*, std::byte* b) {
  store_number(T, b, *x);
}

#define PLAIN(NAME, ID, DTYPE, BYTES) \
  { #NAME, ID, 1, BYTES, DTYPE, one_number < DTYPE>, one_number_back < DTYPE> }

constexpr BlockFormat kFormats[] = {
    PLAIN(F32, 0, TENON_DTYPE_F32, 4),
    PLAIN(F16, 1, TENON_DTYPE_F16, 2),
    {"Q4_0", 2, 32, 18, 0, q4_0, encode_q4_0},
    {"Q4_1", 3, 32, 20, 0, q4_1, encode_q4_1},
    {"Q5_0", 6, 32, 22, 0, q5_0, encode_q5_0},
    {"Q5_1", 7, 32, 24, 0, q5_1, encode_q5_1},
    {"Q8_0", 8, 32, 34, 0, q8_0, encode_q8_0},
    {"Q8_1", 9, 32, 36, 0, q8_1},
    {"Q2_K", 10, 256, 84, 0, q2_k, encode_q2_k},
    {"Q3_K", 11, 256, 110, 0, q3_k, encode_q3_k},
    {"Q4_K", 12, 256, 144, 0, q4_k, encode_q4_k},
    {"Q5_K", 13, 256, 176, 0, q5_k, encode_q5_k},
    {"Q6_K", 14, 256, 210, 0, q6_k, encode_q6_k},
    {"Q8_K", 15, 256, 292, 0, q8_k, encode_q8_k},
    {"IQ2_XXS", 16, 256, 66},
    {"IQ2_XS", 17, 256, 74},
    {"IQ3_XXS", 18, 256, 98},
    {"IQ1_S", 19, 256, 50},
    {"IQ4_NL", 20, 32, 18, 0, iq4_nl, encode_iq4_nl},
    {"IQ3_S", 21, 256, 110},
    {"IQ2_S", 22, 256, 82},
    {"IQ4_XS", 23, 256, 136, 0, iq4_xs},
    PLAIN(I8, 24, TENON_DTYPE_I8, 1),
    PLAIN(I16, 25, TENON_DTYPE_I16, 2),
    PLAIN(I32, 26, TENON_DTYPE_I32, 4),
    PLAIN(I64, 27, TENON_DTYPE_I64, 8),
    PLAIN(F64, 28, TENON_DTYPE_F64, 8),
    {"IQ1_M", 29, 256, 56},
    PLAIN(BF16, 30, TENON_DTYPE_BF16, 2),
    {"TQ1_0", 34, 256, 54, 0, tq1_0},
    {"TQ2_0", 35, 256, 66, 0, tq2_0},
    {"MXFP4", 39, 32, 17, 0, mxfp4, encode_mxfp4},
    {"NVFP4", 40, 64, 36, 0, nvfp4},
    {"Q1_0", 41, 128, 18, 0, q1_0},
    {"Q2_0", 42, 64, 18, 0, q2_0},
};
#undef PLAIN

bool same_name(std::string_view a, std::string_view b) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; };
  return std::ranges::equal(a, b, {}, upper, upper);
}

void check_whole(const BlockFormat& format, uint64_t size, uint64_t unit, std::string_view what) {
  if (size % unit != 0)
    fail(Code::shape_mismatch, format.name, ": ", size, " ", what, "; expected a multiple of ",
         unit);
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

const BlockFormat* block_format(uint32_t gguf_type) {
  const auto found = std::ranges::lower_bound(kFormats, gguf_type, {}, &BlockFormat::gguf_type);
  return found != std::end(kFormats) && found->gguf_type == gguf_type ? &*found : nullptr;
}

const BlockFormat* block_format(std::string_view name) {
  const auto found =
      std::ranges::find_if(kFormats, [&](const auto& f) { return same_name(f.name, name); });
  return found == std::end(kFormats) ? nullptr : &*found;
}

uint64_t block_bytes(const BlockFormat& format, uint64_t elements) {
  check_whole(format, elements, format.elements, "elements");
  const uint64_t count = elements / format.elements;
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / format.bytes)
    fail(Code::invalid_argument, format.name, ": the size of ", elements, " elements overflows");
  return count * format.bytes;
}

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, float* out) {
  if (!format.decode)
    fail(Code::unsupported, format.name, ": is a codebook format, which tenon does not decode");
  check_whole(format, blocks.size(), format.bytes, "bytes");
  for (size_t at = 0; at < blocks.size(); at += format.bytes, out += format.elements)
    format.decode(blocks.data() + at, out);
}

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, tenon_dtype to,
                   void* out) {
  if (to != TENON_DTYPE_F32 && to != TENON_DTYPE_F16 && to != TENON_DTYPE_BF16 &&
      to != TENON_DTYPE_F64)
    fail(Code::unsupported, format.name, ": expected f32, f16, bf16 or f64 to decode to, got ",
         sdk::dtype_name(to));
  if (to == TENON_DTYPE_F32) return decode_blocks(format, blocks, static_cast<float*>(out));
  check_whole(format, blocks.size(), format.bytes, "bytes");
  // A piece at a time, so that the numbers stay in the cache.
  constexpr size_t kPiece = 1024;
  std::array<float, kPiece> piece;
  const size_t step = kPiece / format.elements * format.bytes;
  const size_t width = tenon_dtype_bits(to) / 8;
  auto* at = static_cast<std::byte*>(out);
  for (size_t from = 0; from < blocks.size(); from += step) {
    const auto part = blocks.subspan(from, std::min(step, blocks.size() - from));
    decode_blocks(format, part, piece.data());
    const size_t count = part.size() / format.bytes * format.elements;
    for (size_t i = 0; i < count; ++i, at += width) store_number(to, at, piece[i]);
  }
}

}  // namespace tenon::core
