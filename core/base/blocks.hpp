// SPDX-License-Identifier: Apache-2.0
// Block formats of GGUF files: a table of names, type ids and sizes, and functions that decode and
// encode them. Blocks run along the last axis; each has its own scales. tenon/blocks.hpp has the
// formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tenon/dtype.hpp"

namespace tenon::core {

// Encodes one block of finite numbers. weights: null, or the importance of each number, at least 0.
using BlockEncoder = void (*)(const float* x, const float* weights, std::byte* block);

// One type of GGUF. Plain types are blocks of one element.
struct BlockFormat {
  std::string_view name;  // "Q4_K"
  uint32_t gguf_type = 0;
  uint32_t elements = 0;  // per block
  uint32_t bytes = 0;     // per block
  tenon_dtype dtype = TENON_DTYPE_NONE;
  BlockEncoder encode = nullptr;  // null: a plain type, or no encoder

  bool plain() const { return elements == 1; }
  bool decodes() const { return plain() || sdk::is_decodable(dtype); }
  bool encodes() const { return plain() || encode; }
};

// The formats of the table, by type id.
std::span<const BlockFormat> block_formats();
// Return nullptr for a type that is retired or unknown. Names are those of the table, in any case.
const BlockFormat* block_format(uint32_t gguf_type);
const BlockFormat* block_format(std::string_view name);

// The bytes of `elements` numbers, a multiple of the block. Throws shape_mismatch otherwise, and
// invalid_argument if the size does not fit 63 bits.
uint64_t block_bytes(const BlockFormat& format, uint64_t elements);

// Decodes whole blocks to f32. out has room for all their elements. Throws unsupported, with the
// name of the format, for codebook formats.
void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, float* out);
// Decodes whole blocks to f32, f16, bf16 or f64, as memory of `to`. Overflow to f16 gives infinity.
void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, tenon_dtype to,
                   void* out);

// Encodes whole blocks: x.size() is a multiple of the block. weights: empty, or as many as x. Throws
// unsupported, with the name, for formats without an encoder, and numeric_error with the index in x
// if a number of a block is not finite.
void encode_blocks(const BlockFormat& format, std::span<const float> x,
                   std::span<const float> weights, std::byte* out);

}  // namespace tenon::core
