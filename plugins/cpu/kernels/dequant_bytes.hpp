// SPDX-License-Identifier: Apache-2.0
// Products of bytes with blocks, by kernels for instruction sets. With groups of scale_group()
// elements g along K, the sum of row n of w and row m of x is, in f32 and in the order of g,
//
//   sum += Σ level(n, k)·level(m, k) · (scale(n, g)·scale(m, g)) + add(n, g)·sum(m, g)
//
// The sum over k in g is an exact integer. So all kernels give the same bits, for one row of x and
// for many.
#pragma once

#include "dequant.hpp"

namespace tenon::cpu {

// kUnpacked elements of a row of x.
struct ByteSlice {
  const int8_t* level;
  const float* scale;
  const float* sum;
  const int32_t* shift;
};

// Terms of one row of x and one row of w: to[g] for `parts` times kUnpacked elements.
struct ByteDots {
  ByteSlice x;
  const Unpacked* w;  // levels + level_lift()
  int64_t parts;
  float* to;
};
inline constexpr int64_t kDotRows = 16;     // rows of w whose terms are added up together
inline constexpr int64_t kDotDepth = 8192;  // of elements whose terms are added up together
inline constexpr int64_t kDotPitch = kDotDepth / 16 + 16;
// sums[n] += terms[n·kDotPitch + g], in the order of g, for kDotRows n. groups: a multiple of 8.
struct ByteTerms {
  const float* terms;
  int64_t groups;
  float* sums;
};

// kUnpacked elements of kBlockPanel rows of w: level + level_lift() of elements 4q to 4q + 3.
struct PackedPanel {
  alignas(64) uint32_t quad[kUnpacked / 4][kBlockPanel];
  alignas(64) float scale[kUnpacked / 16][kBlockPanel];  // by group
  alignas(64) float add[kUnpacked / 16][kBlockPanel];
};
// Rows of x with a packed panel: sums[i·kBlockPanel + n] += the terms.
struct ByteTile {
  const ByteSlice* x;  // `rows`
  int64_t rows;
  const PackedPanel* w;
  float* sums;
};

struct ByteKernels {
  void (*dots)(const ByteDots& dots);
  void (*close)(const ByteTerms& terms);
  // (optional) without them, dots for all rows.
  void (*pack)(const Unpacked* rows, int64_t first, PackedPanel& to);  // 16 rows from `first` on
  void (*tile)(const ByteTile& tile);
};

// Terms of one row of x and `rows` rows of w, straight from their blocks.
struct ByteRow {
  ByteSlice x;             // level: arranged
  const unsigned char* w;  // rows `step` bytes apart
  int64_t step, rows, k;   // k: whole blocks
  float* to;               // [rows, kDotPitch]: as ByteDots writes them
};
struct RowKernels {
  void (*arrange)(const int8_t* level, int64_t k, int8_t* to);
  void (*row)(const ByteRow& row);
};
// Rows of w follow each other, so memory can be asked for what is needed so many bytes later: far
// enough for its latency, near enough for the first-level cache. Beyond w, this has no effect.
inline constexpr int64_t kRowAhead = 12 << 10;
// The best of a processor; row_kernels_vnni(): those of AVX512-VNNI. Null for formats that have no
// such kernels.
RowKernels row_kernels_vnni(tenon_dtype format);
RowKernels row_kernels(tenon_dtype format);

// The kernels for a format of w. Null if the processor, or TENON_CPU_ISA, has no such instructions.
const ByteKernels* byte_kernels_vnni(tenon_dtype format);
const ByteKernels* byte_kernels_avx2(tenon_dtype format);
const ByteKernels* byte_kernels(tenon_dtype format);  // the best; null: dequant_bytes.cpp has some

// Pairs of products of a byte with the lifted levels of a format that fit 16 bits together; 0: not
// one does.
constexpr int pairs_in_16_bits(tenon_dtype t) {
  switch (level_lift(t)) {
    case 128:
      return 0;
    case 32:
      return 2;
    default:
      return t == TENON_DTYPE_Q5_0 || t == TENON_DTYPE_Q5_1 || t == TENON_DTYPE_Q5_K ||
                     t == TENON_DTYPE_MXFP4 || t == TENON_DTYPE_NVFP4
                 ? 4
                 : 8;
  }
}

// Does a product take one row of x after the other?
inline bool row_by_row(const BlockProduct& p) {
  return p.m == 1 || (p.m <= kFewByteRows && p.bytes.arranged);
}

// block_columns(), block_panel() and block_area() for bytes
int64_t byte_columns(const BlockProduct& product);
void byte_panel(const BlockProduct& product, int64_t j, int64_t cols, void* area, BlockSink sink);
uint64_t byte_area();

}  // namespace tenon::cpu
