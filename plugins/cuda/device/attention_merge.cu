// SPDX-License-Identifier: Apache-2.0
// Joins the partial sums of attention kernels that were launched with SPLIT=1, in order.
// Defines: as attention.cuh; MOST_SPLITS.
//variant: TT=bf16 TS=f32 MASK=0 MOST_SPLITS=64
//variant: TT=f64 TS=f64 MASK=0 MOST_SPLITS=64
#include "attention_merge.cuh"

// A block joins the parts of one row.
extern "C" __global__ void __launch_bounds__(kMergeThreads) merge(const Attention p) {
  __shared__ S maxima[MOST_SPLITS], sums[MOST_SPLITS];
  const i32 rows = p.q_len * p.group;
  merge_row(p, blockIdx.x / rows, blockIdx.x % rows, maxima, sums);
}
