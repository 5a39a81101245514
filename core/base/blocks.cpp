// SPDX-License-Identifier: Apache-2.0
// The table of block formats, and the entries that check blocks and numbers. Compiled without
// contraction of products and sums, so that decoded numbers have the bits of the formulas.
#include "base/blocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/blocks_encode.hpp"
#include "base/error.hpp"
#include "base/number.hpp"
#include "tenon/blocks.hpp"

namespace tenon::core {
namespace {

BlockFormat plain(std::string_view name, uint32_t gguf_type, tenon_dtype dtype) {
  return {name, gguf_type, 1, tenon_dtype_bits(dtype) / 8, dtype};
}
BlockFormat in_blocks(std::string_view name, tenon_dtype dtype, BlockEncoder encode = nullptr) {
  const tenon_block block = tenon_dtype_block(dtype);
  const auto gguf_type = static_cast<uint32_t>(dtype - TENON_DTYPE_BLOCKS);
  return {name, gguf_type, block.elements, block.bytes, dtype, encode};
}

bool same_name(std::string_view a, std::string_view b) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; };
  return std::ranges::equal(a, b, {}, upper, upper);
}

void check_whole(const BlockFormat& format, uint64_t size, uint64_t unit, std::string_view what) {
  if (size % unit != 0)
    fail(Code::shape_mismatch, format.name, ": ", size, " ", what, "; expected a multiple of ",
         unit);
}

// Plain numbers are converted without a float between.
void convert(const BlockFormat& format, std::span<const std::byte> numbers, tenon_dtype to,
             std::byte* out) {
  if (to == format.dtype) {
    std::copy(numbers.begin(), numbers.end(), out);
    return;
  }
  double number = 0;
  for (size_t at = 0; at < numbers.size(); at += format.bytes, out += tenon_dtype_bits(to) / 8) {
    load_number(format.dtype, numbers.data() + at, &number);
    store_number(to, out, number);
  }
}

}  // namespace

std::span<const BlockFormat> block_formats() {
  using namespace blocks;
  static const BlockFormat formats[] = {
      plain("F32", 0, TENON_DTYPE_F32),
      plain("F16", 1, TENON_DTYPE_F16),
      in_blocks("Q4_0", TENON_DTYPE_Q4_0, encode_q4_0),
      in_blocks("Q4_1", TENON_DTYPE_Q4_1, encode_q4_1),
      in_blocks("Q5_0", TENON_DTYPE_Q5_0, encode_q5_0),
      in_blocks("Q5_1", TENON_DTYPE_Q5_1, encode_q5_1),
      in_blocks("Q8_0", TENON_DTYPE_Q8_0, encode_q8_0),
      in_blocks("Q8_1", TENON_DTYPE_Q8_1),
      in_blocks("Q2_K", TENON_DTYPE_Q2_K, encode_q2_k),
      in_blocks("Q3_K", TENON_DTYPE_Q3_K, encode_q3_k),
      in_blocks("Q4_K", TENON_DTYPE_Q4_K, encode_q4_k),
      in_blocks("Q5_K", TENON_DTYPE_Q5_K, encode_q5_k),
      in_blocks("Q6_K", TENON_DTYPE_Q6_K, encode_q6_k),
      in_blocks("Q8_K", TENON_DTYPE_Q8_K, encode_q8_k),
      in_blocks("IQ2_XXS", TENON_DTYPE_IQ2_XXS),
      in_blocks("IQ2_XS", TENON_DTYPE_IQ2_XS),
      in_blocks("IQ3_XXS", TENON_DTYPE_IQ3_XXS),
      in_blocks("IQ1_S", TENON_DTYPE_IQ1_S),
      in_blocks("IQ4_NL", TENON_DTYPE_IQ4_NL, encode_iq4_nl),
      in_blocks("IQ3_S", TENON_DTYPE_IQ3_S),
      in_blocks("IQ2_S", TENON_DTYPE_IQ2_S),
      in_blocks("IQ4_XS", TENON_DTYPE_IQ4_XS),
      plain("I8", 24, TENON_DTYPE_I8),
      plain("I16", 25, TENON_DTYPE_I16),
      plain("I32", 26, TENON_DTYPE_I32),
      plain("I64", 27, TENON_DTYPE_I64),
      plain("F64", 28, TENON_DTYPE_F64),
      in_blocks("IQ1_M", TENON_DTYPE_IQ1_M),
      plain("BF16", 30, TENON_DTYPE_BF16),
      in_blocks("TQ1_0", TENON_DTYPE_TQ1_0),
      in_blocks("TQ2_0", TENON_DTYPE_TQ2_0),
      in_blocks("MXFP4", TENON_DTYPE_MXFP4, encode_mxfp4),
      in_blocks("NVFP4", TENON_DTYPE_NVFP4),
      in_blocks("Q1_0", TENON_DTYPE_Q1_0),
      in_blocks("Q2_0", TENON_DTYPE_Q2_0),
  };
  return formats;
}

const BlockFormat* block_format(uint32_t gguf_type) {
  const auto formats = block_formats();
  const auto found = std::ranges::lower_bound(formats, gguf_type, {}, &BlockFormat::gguf_type);
  return found != formats.end() && found->gguf_type == gguf_type ? &*found : nullptr;
}

const BlockFormat* block_format(std::string_view name) {
  for (const BlockFormat& f : block_formats())
    if (same_name(f.name, name)) return &f;
  return nullptr;
}

uint64_t block_bytes(const BlockFormat& format, uint64_t elements) {
  check_whole(format, elements, format.elements, "elements");
  const uint64_t count = elements / format.elements;
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / format.bytes)
    fail(Code::invalid_argument, format.name, ": the size of ", elements, " elements overflows");
  return count * format.bytes;
}

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, float* out) {
  decode_blocks(format, blocks, TENON_DTYPE_F32, out);
}

void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, tenon_dtype to,
                   void* out) {
  if (to != TENON_DTYPE_F32 && to != TENON_DTYPE_F16 && to != TENON_DTYPE_BF16 &&
      to != TENON_DTYPE_F64)
    fail(Code::unsupported, format.name, ": expected f32, f16, bf16 or f64 to decode to, got ",
         sdk::dtype_name(to));
  if (!format.decodes())
    fail(Code::unsupported, format.name, ": is a codebook format, which tenon does not decode");
  check_whole(format, blocks.size(), format.bytes, "bytes");
  auto* at = static_cast<std::byte*>(out);
  if (format.plain()) return convert(format, blocks, to, at);
  const size_t width = tenon_dtype_bits(to) / 8;
  std::array<float, 256> numbers;
  for (size_t from = 0; from < blocks.size(); from += format.bytes) {
    sdk::decode_block(format.dtype, blocks.data() + from, numbers.data());
    if (to == TENON_DTYPE_F32) {
      at = std::copy_n(reinterpret_cast<const std::byte*>(numbers.data()), format.elements * width,
                       at);
    } else {
      for (uint32_t i = 0; i < format.elements; ++i, at += width) store_number(to, at, numbers[i]);
    }
  }
}

void encode_blocks(const BlockFormat& format, std::span<const float> x,
                   std::span<const float> weights, std::byte* out) {
  if (!format.encodes())
    fail(Code::unsupported, format.name, ": tenon has no encoder for this format");
  check_whole(format, x.size(), format.elements, "elements");
  if (!weights.empty() && weights.size() != x.size())
    fail(Code::shape_mismatch, format.name, ": ", weights.size(), " weights; expected ", x.size());
  for (size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
      fail(Code::numeric_error, format.name, ": weight ", i, " is ", weights[i],
           "; expected a finite number, at least 0");
  if (format.plain()) {
    for (const float number : x) {
      store_number(format.dtype, out, number);
      out += format.bytes;
    }
    return;
  }
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::isfinite(x[i]))
      fail(Code::numeric_error, format.name, ": element ", i, " is ", x[i],
           "; expected a finite number");
  for (size_t at = 0; at < x.size(); at += format.elements, out += format.bytes)
    format.encode(x.data() + at, weights.empty() ? nullptr : weights.data() + at, out);
}

}  // namespace tenon::core
