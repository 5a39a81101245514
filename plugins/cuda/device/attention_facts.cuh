// SPDX-License-Identifier: Apache-2.0
// What the gradient of attention knows of each query row. `delta` writes it; `sums` mends it where
// lse is large.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "attention.cuh"

// The weights of a row are factor * e^(score - shift), which is 2^(score * log2(e) + base) where
// the factor is 1. A row without keys has factor 0 and shift infinity.
struct __align__(sizeof(S) * 4) RowFacts {
  S shift, factor;
  S base;
  S delta;  // dout·o
};
// Those of the rows of a head, in the order of their list.
__device__ inline RowFacts* facts_of(const Attention& p, i32 head) {
  return (RowFacts*)p.delta + (i64)head * p.q_len * p.group;
}
__device__ inline RowFacts dead_row(S delta) {
  return {infinity(S(0)), S(0), -infinity(S(0)), delta};
}
__device__ inline RowFacts row_facts(S lse, S delta) {
  if (lse == -infinity(S(0))) return dead_row(delta);
  return {lse, S(1), -lse * (S)kLog2E, delta};
}

// Is `base` right, or are all weights 0?
__device__ inline bool is_plain(const RowFacts& row) { return row.factor == 1 || row.factor == 0; }

// Behind the rows' facts: is a row of this tile of 64 one whose sum was found again?
__device__ inline i32* mended(const Attention& p, i32 head) {
  const i64 heads = (i64)p.batch * p.k_heads, rows = (i64)p.q_len * p.group;
  return (i32*)((RowFacts*)p.delta + heads * rows) + head * ((rows + 63) / 64);
}
