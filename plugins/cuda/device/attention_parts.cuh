// SPDX-License-Identifier: Apache-2.0
// Attention over a range of the keys leaves a part for each row; `merge` joins them in order.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "attention.cuh"

// The part of row r of a head: v_dim sums, the maximum, the sum of weights.
__device__ inline S* part_of(const Attention& p, i32 head, i32 split, i32 r) {
  const i64 heads = (i64)p.batch * p.k_heads, rows = (i64)p.q_len * p.group;
  return (S*)p.parts + ((split * heads + head) * rows + r) * (p.v_dim + 2);
}

// A block joins the parts of one row.
extern "C" __global__ void __launch_bounds__(128) merge(const Attention p) {
  const i32 rows = p.q_len * p.group, r = blockIdx.x % rows, index = blockIdx.x / rows;
  const Head head(p, index);
  const RowPlace place = head.row(p, r);
  S most = -infinity(S(0)), sum = 0;
  const auto maximum = [&](i32 split) { return part_of(p, index, split, r)[p.v_dim]; };
  for (i32 split = 0; split < p.splits; ++split)
    most = maximum(split) > most ? maximum(split) : most;
  const S base = most == -infinity(S(0)) ? S(0) : most;
  for (i32 split = 0; split < p.splits; ++split)
    sum += part_of(p, index, split, r)[p.v_dim + 1] * exp(maximum(split) - base);
  for (int col = threadIdx.x; col < p.v_dim; col += 128) {
    S total = 0;
    for (i32 split = 0; split < p.splits; ++split)
      total += part_of(p, index, split, r)[col] * exp(maximum(split) - base);
    ((T*)p.o)[at(p.o_strides, head.batch, place.head, place.step) + col] =
        narrow<T>(sum == 0 ? S(0) : total / sum);
  }
  if (p.lse && threadIdx.x == 0)
    ((S*)p.lse)[row_index(p, head, place)] = sum == 0 ? -infinity(S(0)) : base + log(sum);
}
