// SPDX-License-Identifier: Apache-2.0
// Weights of blocks: their elements as floats, and products with them. An element is
// scale·level + add, with a level of 8 bits, and a scale and an add for each 16 elements.
//
// The sums of a product have one order, whatever the number of rows is: so a row of x gets the same
// bits alone and among others.
#pragma once

#include <cstdint>

#include "../parallel.hpp"
#include "tenon/blocks.hpp"

namespace tenon::cpu {

// Elements that are unpacked at a time. Blocks are parts of it, and it is a part of kBlockChunk.
inline constexpr int64_t kUnpacked = 256;
// Elements along K between two sums of partial sums.
inline constexpr int64_t kBlockChunk = 512;
// Rows of w whose elements are unpacked for a tile, and rows of x that share them.
inline constexpr int64_t kBlockPanel = 12, kBlockRows = 128;

// kUnpacked elements, or fewer at the end of a row: the rest of scale and add is 0.
struct Unpacked {
  alignas(64) int8_t level[kUnpacked];
  alignas(64) float scale[kUnpacked / 16];
  alignas(64) float add[kUnpacked / 16];
};
// Does any element of the format have an add?
constexpr bool has_adds(tenon_dtype t) {
  return t == TENON_DTYPE_Q4_1 || t == TENON_DTYPE_Q5_1 || t == TENON_DTYPE_Q2_K ||
         t == TENON_DTYPE_Q4_K || t == TENON_DTYPE_Q5_K;
}

// Writes `count` elements, whole blocks, as floats.
void decode_blocks(tenon_dtype dtype, const void* blocks, int64_t count, float* to);

// Rows of x as 8-bit integers: each 32 elements along K share a scale. Rows are padded with zeros to
// whole kUnpacked elements.
struct ByteRows {
  int8_t* level;   // [rows, k]
  float* scale;    // [rows, k/16]
  float* sum;      // [rows, k/16]: scale · the sum of 16 levels
  int32_t* shift;  // [rows, k/16]: 128 · the sum of 16 levels
  int64_t k;       // padded
};
constexpr int64_t padded_depth(int64_t k) { return (k + kUnpacked - 1) / kUnpacked * kUnpacked; }
void to_bytes(const float* x, int64_t k, int64_t row, const ByteRows& to);

// y[i, j] = Σ x[order[i], k]·w(j, k). x: f32 rows, or `bytes`.
struct BlockProduct {
  tenon_dtype dtype;
  const unsigned char* w;
  int64_t n, k;
  const float* x;  // [.., k]; null: bytes
  ByteRows bytes;
  const int64_t* order;  // (optional) rows of x
  int64_t m;
};
// Sums of rows [i, i + rows) and of columns [j, j + cols), kBlockPanel apart.
using BlockSink =
    FunctionRef<void(int64_t i, int64_t rows, int64_t j, int64_t cols, const float* sums)>;
// Computes panel `panel` of kBlockPanel columns. area: block_area() bytes, aligned to 64.
void block_panel(const BlockProduct& product, int64_t panel, void* area, BlockSink sink);
uint64_t block_area(int64_t m);

// One row of x, kUnpacked elements, with some rows of w: lanes[r·16 + g mod 16] += the sum of group
// g of 16 elements.
struct ByteTile {
  const int8_t* x;
  const float* x_scale;
  const float* x_sum;
  const int32_t* x_shift;
  const Unpacked* w;  // levels + 128
  int64_t rows, w_step;
  bool adds;
  float* lanes;
  int64_t lane_step;
};
bool has_byte_dots();
void byte_tile_vnni(const ByteTile& tile);

}  // namespace tenon::cpu
