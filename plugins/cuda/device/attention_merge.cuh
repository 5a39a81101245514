// SPDX-License-Identifier: Apache-2.0
// Joins the partial sums that blocks with a range of the keys have left, in order.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0 SPLIT=1
#pragma once
#include "attention_epilogue.cuh"

constexpr int kMergeThreads = 128,
              kAhead = 8;  // splits whose sums a thread loads before it needs them

// Row r of head `index`, by the kMergeThreads threads of a block. maxima, sums: shared memory for a
// number of each split; the threads have passed a barrier since they were last used.
__device__ inline void merge_row(const Attention& p, i32 index, i32 r, S* maxima, S* sums) {
  const S* const parts = part_of(p, index, 0, r);
  const i64 step = part_of(p, index, 1, r) - parts;
  const i32 splits = p.splits;
  for (i32 split = threadIdx.x; split < splits; split += kMergeThreads)
    maxima[split] = parts[split * step + p.v_dim], sums[split] = parts[split * step + p.v_dim + 1];
  S ahead[kAhead];
#pragma unroll
  for (i32 k = 0; k < kAhead; ++k)
    if (k < splits && threadIdx.x < p.v_dim) ahead[k] = parts[k * step + threadIdx.x];
  __syncthreads();
  S row_max = -infinity(S(0)), row_sum = 0;
  for (i32 split = 0; split < splits; ++split)
    row_max = maxima[split] > row_max ? maxima[split] : row_max;
  const S base = row_max == -infinity(S(0)) ? S(0) : row_max;
  __syncthreads();  // all have read the maxima, which become factors
  for (i32 split = threadIdx.x; split < splits; split += kMergeThreads)
    maxima[split] = exp(maxima[split] - base);
  __syncthreads();
  const S* const factors = maxima;
  for (i32 split = 0; split < splits; ++split) row_sum += sums[split] * factors[split];
  const Head head(p, index);
  const RowPlace place = head.row(p, r);
  T* const to = result_of(p, head, place);
  for (i32 col = threadIdx.x; col < p.v_dim; col += kMergeThreads) {
    S sum = 0;
#pragma unroll
    for (i32 k = 0; k < kAhead; ++k)
      if (k < splits)
        sum += (col < kMergeThreads ? ahead[k] : parts[k * step + col]) * factors[k];
#pragma unroll 4
    for (i32 split = kAhead; split < splits; ++split)
      sum += parts[split * step + col] * factors[split];
    to[col] = mean(sum, row_sum);
  }
  if (threadIdx.x == 0) store_lse(p, head, place, row_max, row_sum);
}
