//variant: FORMAT=12 ALIGN=16 TYPE=f16 COLUMNS=64
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 COLUMNS=128
//variant: FORMAT=14 ALIGN=16 TYPE=f16 COLUMNS=64
// SPDX-License-Identifier: Apache-2.0
// Rows of x as columns of right operands of dequant_rounded.cu: tiles of COLUMNS of them, of these
// chunks of 64 terms, of these 64 columns at a time, as wgmma.cuh has tiles. Terms stand as the left
// operands of dequant_tiles.cuh have them. Zeros where there is no row or no term.
//entry: dequant_columns = columns(RowsToOrder)
#include "dequant.args.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
// A block of threads for a chunk, of 64 columns; blockIdx.y: which of them.
extern "C" __global__ void __launch_bounds__(256) columns(const RowsToOrder p) {
  constexpr int kTerms = 64, kVector = 8, kVectors = 64 / kVector, kQuadTerms = 16 * kRuns;
  begin_early();
  const u32 chunk = blockIdx.x, chunks = gridDim.x, tile = blockIdx.y / (COLUMNS / 64),
            part = blockIdx.y % (COLUMNS / 64);
  u8* const to = static_cast<u8*>(p.y) +
                 (((i64)tile * chunks + chunk) * (COLUMNS / 64) + part) * (kTerms * 128);
  const X* const x = static_cast<const X*>(p.x);
#pragma unroll
  for (int i = threadIdx.x; i < kTerms * kVectors; i += 256) {
    const int line = i / kVectors, vector = i % kVectors;  // of the chunk's terms, of the columns
    const int run = line / 16, at = line % 16, unit = at % 8 / 2;
    const i64 quad = (i64)chunk * (kTerms / kQuadTerms) + run / kRuns;
    const i64 term = quad / kQuads * kElements +
                     run_at((int)(quad % kQuads) * 4 + unit, run % kRuns) + at % 2 * 2 + at / 8;
    const i64 first = (i64)blockIdx.y * 64 + vector * kVector;
    Vec<X, kVector> v = {};
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      if (first + k < p.m && quad / kQuads * kElements < p.k) v.v[k] = x[(first + k) * p.k + term];
    store(reinterpret_cast<X*>(to + line * 128 + (vector ^ line % 8) * 16), v);
  }
}
#else
extern "C" __global__ void columns(const RowsToOrder) {}
#endif
