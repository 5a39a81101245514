// SPDX-License-Identifier: Apache-2.0
// The maximum of a row of scores, tile after tile, and the weights that are relative to it. Plain
// arithmetic on f32: unit.cuda.row_max compiles it for the host.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#ifdef __CUDACC__
#include "attention.cuh"
#endif

// SCALED: the score is `x` times `factor`; else `x` is the score, and `factor` is log2(e). A score
// that a mask put far from zero is subtracted before it is multiplied, so that it stays finite.
template <bool SCALED>
__device__ __forceinline__ f32 weight_of(f32 x, f32 base, f32 factor) {
  return exp2_of(SCALED ? __fmaf_rn(x, factor, -base) : (x - base) * factor);
}

struct RowMax {
  f32 most;  // the maximum that weights are relative to from here on
  f32 base;  // what weight_of takes
  f32 kept;  // multiplies the sums so far
};
// most: that of the tiles before, -infinity at first; now: that of this tile as well.
template <bool SCALED>
__device__ __forceinline__ RowMax follow_max(f32 most, f32 now, f32 factor) {
  const f32 none = -infinity(0.f);
  // Sums follow the maximum only where it has grown much: weights of up to 2^8 do no harm.
  const f32 top = (now - most) * factor <= 8 ? most : now;
  const f32 base = top == none ? 0.f : SCALED ? __fmul_rn(top, factor) : top;
  // The bases of both sums, as rounded as the weights had them. Where the maximum stays the factor
  // is 1: not 2 to the rounding error of the base, which would add up over many tiles.
  const f32 kept = top == most ? 1.f
                   : SCALED    ? exp2_of(__fmul_rn(most, factor) - base)
                               : weight_of<false>(most, base, factor);
  return {top, base, kept};
}
