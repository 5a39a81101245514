// SPDX-License-Identifier: Apache-2.0
// The end of attention kernels: sums of values over sums of weights, the lse of a row, or the
// partial sums of a block that saw a range of the keys.
//variant: TT=bf16 TS=f32 MASK=0 SPLIT=0
//variant: TT=f16 TS=f32 MASK=0 SPLIT=1
#pragma once
#include "attention.cuh"

// Partial sums of row r of a head: v_dim sums of values, the maximum, the sum of weights.
__device__ inline S* part_of(const Attention& p, i32 head, i32 split, i32 r) {
  const i64 heads = (i64)p.batch * p.k_heads, rows = (i64)p.q_len * p.group;
  return (S*)p.parts + ((split * heads + head) * rows + r) * (p.v_dim + 2);
}
__device__ inline T* result_of(const Attention& p, const Head& head, const RowPlace& r) {
  return (T*)p.o + at(p.o_strides, head.batch, r.head, r.step);
}
// The mean of values; zeros for a row without keys.
__device__ inline T mean(S sum, S row_sum) { return narrow<T>(row_sum == 0 ? S(0) : sum / row_sum); }
__device__ inline void store_lse(const Attention& p, const Head& head, const RowPlace& r,
                                 S row_max, S row_sum) {
  if (p.lse)
    ((S*)p.lse)[row_index(p, head, r)] =
        row_sum == 0 ? -infinity(S(0)) : (row_max == -infinity(S(0)) ? S(0) : row_max) + log(row_sum);
}
