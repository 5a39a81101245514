// SPDX-License-Identifier: Apache-2.0
// Weights of blocks: their elements as floats, and products with them. An element is
// scale·level + add, with a level of 8 bits, and a scale and an add for each 16 elements. Levels of
// f8e4m3_128 are 8-bit floats instead (dequant_f8-inl.h).
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
// The most rows of w of a panel, those of a panel of floats, and the rows of x that share the
// unpacked elements.
inline constexpr int64_t kBlockPanel = 32, kFloatPanel = 12, kBlockRows = 128;

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

// Are the levels integers, so that they multiply rows of x in bytes? Others multiply floats, whatever
// `compute` is.
constexpr bool has_integer_levels(tenon_dtype t) { return t != TENON_DTYPE_F8E4M3_128; }

// Writes `count` elements, whole blocks, as floats.
void decode_blocks(tenon_dtype dtype, const void* blocks, int64_t count, float* to);

// Products of bytes add up groups of so many elements along K, which share a scale in w and in x.
constexpr int64_t scale_group(tenon_dtype t) {
  return t == TENON_DTYPE_Q2_K || t == TENON_DTYPE_Q3_K || t == TENON_DTYPE_Q6_K ||
                 t == TENON_DTYPE_NVFP4
             ? 16
             : 32;
}
// What products of bytes add to levels, so that they have no sign.
constexpr int level_lift(tenon_dtype t) {
  switch (t) {
    case TENON_DTYPE_Q4_1:
    case TENON_DTYPE_Q5_1:
    case TENON_DTYPE_Q2_K:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
      return 0;
    case TENON_DTYPE_TQ1_0:
    case TENON_DTYPE_TQ2_0:
    case TENON_DTYPE_Q1_0:
    case TENON_DTYPE_Q2_0:
      return 1;
    case TENON_DTYPE_Q3_K:
      return 4;
    case TENON_DTYPE_Q4_0:
      return 8;
    case TENON_DTYPE_Q5_0:
    case TENON_DTYPE_MXFP4:
    case TENON_DTYPE_NVFP4:
      return 16;
    case TENON_DTYPE_Q6_K:
      return 32;
    default:
      return 128;
  }
}

// Rows of x as 8-bit integers: each 32 elements along K share a scale. Rows are padded with zeros to
// whole kUnpacked elements.
struct ByteRows {
  int8_t* level;   // [rows, k]
  float* scale;    // [rows, k/group]
  float* sum;      // [rows, k/group]: scale · the sum of the levels of a group
  int32_t* shift;  // [rows, k/group]: -level_lift() · the sum of the levels of a group
  int64_t k;       // padded
  int64_t group;   // scale_group() of w
  int lift;        // level_lift() of w
  int8_t* arranged =
      nullptr;  // (optional) [rows, arranged_depth(k)]: the levels for products of few rows
};
constexpr int64_t padded_depth(int64_t k) { return (k + kUnpacked - 1) / kUnpacked * kUnpacked; }
constexpr int64_t arranged_depth(int64_t k) {
  return (k + 2 * kUnpacked - 1) / (2 * kUnpacked) * (2 * kUnpacked);
}
void to_bytes(const float* x, int64_t k, int64_t row, const ByteRows& to);
// Products of so many rows take one row of x after the other, if they read arranged levels: then
// blocks are unpacked again for each row, in registers.
inline constexpr int64_t kFewByteRows = 3;
// Do products of few rows with weights of this format read arranged levels?
bool arranges_rows(tenon_dtype w);
// Fills row `row` of to.arranged from its levels.
void arrange_row(tenon_dtype w, int64_t row, const ByteRows& to);

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
// Sums of rows [i, i + rows) and of columns [j, j + cols), kBlockPanel apart. The sink may change
// them.
using BlockSink = FunctionRef<void(int64_t i, int64_t rows, int64_t j, int64_t cols, float* sums)>;
// The columns of a panel of `product`, at most kBlockPanel.
int64_t block_columns(const BlockProduct& product);
// Computes columns [j, j + cols), at most block_columns(). area: block_area() bytes, aligned to 64.
void block_panel(const BlockProduct& product, int64_t j, int64_t cols, void* area, BlockSink sink);
uint64_t block_area(int64_t m);

}  // namespace tenon::cpu
