// SPDX-License-Identifier: Apache-2.0
// Joins the partial sums of attention kernels that were launched with SPLIT=1, in order.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0
//variant: TT=f64 TS=f64 MASK=0
#include "attention_epilogue.cuh"

// A block joins the parts of one row.
extern "C" __global__ void __launch_bounds__(128) merge(const Attention p) {
  const i32 rows = p.q_len * p.group, r = blockIdx.x % rows, index = blockIdx.x / rows;
  const Head head(p, index);
  const RowPlace place = head.row(p, r);
  S row_max = -infinity(S(0)), row_sum = 0;
  const auto part_max = [&](i32 split) { return part_of(p, index, split, r)[p.v_dim]; };
  for (i32 split = 0; split < p.splits; ++split)
    row_max = part_max(split) > row_max ? part_max(split) : row_max;
  const S base = row_max == -infinity(S(0)) ? S(0) : row_max;
  for (i32 split = 0; split < p.splits; ++split)
    row_sum += part_of(p, index, split, r)[p.v_dim + 1] * exp(part_max(split) - base);
  T* to = result_of(p, head, place);
  for (int col = threadIdx.x; col < p.v_dim; col += 128) {
    S sum = 0;
    for (i32 split = 0; split < p.splits; ++split)
      sum += part_of(p, index, split, r)[col] * exp(part_max(split) - base);
    to[col] = mean(sum, row_sum);
  }
  if (threadIdx.x == 0) store_lse(p, head, place, row_max, row_sum);
}
