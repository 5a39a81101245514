// SPDX-License-Identifier: Apache-2.0
// Facts about each query row that the gradients of attention need. The kernel `delta` writes them;
// `sums` corrects those of rows with a large lse.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "attention.cuh"

// The weights of a row are factor * e^(score - shift), which is 2^(score * log2(e) + base) where
// the factor is 1. A row without keys has factor 0 and shift infinity.
struct __align__(sizeof(S) * 4) RowFacts {
  S shift, factor;
  S base;
  S delta;  // dout·o; 0 in a row without keys
};
// Facts of the rows of a head, in the order of the list of rows.
__device__ inline RowFacts* facts_of(const Attention& p, i32 head) {
  return (RowFacts*)p.delta + (i64)head * p.q_len * p.group;
}
__device__ inline RowFacts dead_row() { return {infinity(S(0)), S(0), -infinity(S(0)), S(0)}; }
__device__ inline RowFacts row_facts(S lse, S delta) {
  if (lse == -infinity(S(0))) return dead_row();
  return {lse, S(1), -lse * (S)kLog2E, delta};
}
// The row has no keys. Whatever its dout holds, all its gradients are 0; but 0 times NaN is NaN.
__device__ inline bool is_dead(const RowFacts& row) { return row.factor == 0; }

// Does `base` give the weights (or are all of them 0)?
__device__ inline bool is_plain(const RowFacts& row) { return row.factor == 1 || is_dead(row); }

// The slope of a score from its weight and dout·v; without the factor of the scale, the slope of the
// product q·k. capped: the score before the mask.
__device__ inline S slope_of(const Attention& p, S delta, S weight, S dov,
                             [[maybe_unused]] S capped) {
  S slope = weight * (dov - delta);
#ifdef SOFTCAP
  const S part = capped / (S)p.softcap;
  slope *= 1 - part * part;
#endif
  return slope;
}

// Flags of each tile of 64 rows, stored after the facts.
constexpr i32 kCorrected = 1;  // `sums` corrected a row of the tile
constexpr i32 kHasDead = 2;    // a row of the tile has no keys
__device__ inline i32* tile_flags(const Attention& p, i32 head) {
  const i64 heads = (i64)p.batch * p.k_heads, rows = (i64)p.q_len * p.group;
  return (i32*)((RowFacts*)p.delta + heads * rows) + head * ((rows + 63) / 64);
}
