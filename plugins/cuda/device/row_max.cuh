// SPDX-License-Identifier: Apache-2.0
// The running maximum of an online softmax, and weights relative to it. Plain f32 arithmetic:
// unit.cuda.row_max compiles this file for the host.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#ifdef __CUDACC__
#include "attention.cuh"
#endif

// SCALED: the score is `x` times `factor`. Otherwise `x` is the score and `factor` is log2(e): a
// score that a mask put far from zero is subtracted before it is multiplied, so it stays finite.
template <bool SCALED>
__device__ __forceinline__ f32 weight_of(f32 x, f32 base, f32 factor) {
  return exp2_of(SCALED ? __fmaf_rn(x, factor, -base) : (x - base) * factor);
}

struct RowMax {
  f32 row_max;  // the maximum that weights are relative to from here on
  f32 base;     // the same, as weight_of takes it
  f32 rescale;  // factor for the sums so far
};
// before: the row maximum of earlier tiles, -infinity at first; now: with this tile's scores.
template <bool SCALED>
__device__ __forceinline__ RowMax follow_max(f32 before, f32 now, f32 factor) {
  const f32 none = -infinity(0.f);
  // The maximum is replaced only if it grew a lot: weights of up to 2^8 do no harm.
  const f32 row_max = (now - before) * factor <= 8 ? before : now;
  const f32 base = row_max == none ? 0.f : SCALED ? __fmul_rn(row_max, factor) : row_max;
  // Both bases are rounded as the weights used them. If the maximum stays, the factor is exactly 1:
  // 2 to the rounding error of the base would add up over many tiles.
  const f32 rescale = row_max == before ? 1.f
                      : SCALED          ? exp2_of(__fmul_rn(before, factor) - base)
                                        : weight_of<false>(before, base, factor);
  return {row_max, base, rescale};
}
