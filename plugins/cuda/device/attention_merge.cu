// SPDX-License-Identifier: Apache-2.0
// Joins the partial sums of attention kernels that were launched with SPLIT=1, in order.
// Defines: as attention.cuh; MOST_SPLITS.
//variant: TT=bf16 TS=f32 MASK=0 MOST_SPLITS=64
//variant: TT=f64 TS=f64 MASK=0 MOST_SPLITS=64
#include "attention_epilogue.cuh"

constexpr int kThreads = 128, kAhead = 8;  // splits whose sums a thread loads before it needs them

// A block joins the parts of one row.
extern "C" __global__ void __launch_bounds__(kThreads) merge(const Attention p) {
  __shared__ S maxima[MOST_SPLITS], sums[MOST_SPLITS];
  const i32 rows = p.q_len * p.group, r = blockIdx.x % rows, index = blockIdx.x / rows;
  const S* const parts = part_of(p, index, 0, r);
  const i64 step = part_of(p, index, 1, r) - parts;
  const i32 splits = p.splits;
  for (i32 split = threadIdx.x; split < splits; split += kThreads)
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
  for (i32 split = threadIdx.x; split < splits; split += kThreads)
    maxima[split] = exp(maxima[split] - base);
  __syncthreads();
  const S* const factors = maxima;
  for (i32 split = 0; split < splits; ++split) row_sum += sums[split] * factors[split];
  const Head head(p, index);
  const RowPlace place = head.row(p, r);
  T* const to = result_of(p, head, place);
  for (i32 col = threadIdx.x; col < p.v_dim; col += kThreads) {
    S sum = 0;
#pragma unroll
    for (i32 k = 0; k < kAhead; ++k)
      if (k < splits) sum += (col < kThreads ? ahead[k] : parts[k * step + col]) * factors[k];
#pragma unroll 4
    for (i32 split = kAhead; split < splits; ++split)
      sum += parts[split * step + col] * factors[split];
    to[col] = mean(sum, row_sum);
  }
  if (threadIdx.x == 0) store_lse(p, head, place, row_max, row_sum);
}
