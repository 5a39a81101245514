//variant: FORMAT=12 ALIGN=16 TYPE=f32 ROWS=1 VEC=4 SPLIT=2 BIAS=f32 GROUPS=0
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 ROWS=8 VEC=4 SPLIT=1 BIAS=bf16 GROUPS=0
//variant: FORMAT=39 ALIGN=1 TYPE=f16 ROWS=3 VEC=1 SPLIT=4 BIAS=f16 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f32 ROWS=8 VEC=4 SPLIT=1 BIAS=f32 GROUPS=1 FACTOR=f32
//variant: FORMAT=40 ALIGN=4 TYPE=f16 ROWS=1 VEC=4 SPLIT=4 BIAS=f32 GROUPS=2 IDS=i32
//variant: FORMAT=128 ALIGN=16 TYPE=f32 ROWS=2 VEC=4 SPLIT=2 BIAS=f32 GROUPS=0
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul and its grouped form, for tiles of ROWS rows of x, 1 to 8: SPLIT warps for two rows of
// w. A lane decodes units of both rows in registers. The order of a sum depends only on K and SPLIT, so
// a row of x gets the same bits alone and among others.
//entry: dequant_matmul = multiply(BlockProduct)
#include "blocks.cuh"
#include "dequant_groups.cuh"
#include "rows.cuh"

typedef TYPE X;
constexpr int kRows = 2, kWarps = 4;  // of w; of a block

__device__ inline Vec<f32, 4> four(const X* p) {
  Vec<X, 4> from;
  if constexpr (VEC == 4) {
    from = load<X, 4>(p);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) from.v[i] = p[i];
  }
  Vec<f32, 4> to;
#pragma unroll
  for (int i = 0; i < 4; ++i) to.v[i] = widen(from.v[i]);
  return to;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps) multiply(const BlockProduct p) {
  __shared__ f32 parts[kWarps][kRows * ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
  const i64 first = ((i64)blockIdx.x * (kWarps / SPLIT) + warp / SPLIT) * kRows;
  const i64 row_bytes = p.k / kElements * kBytes;
  const TileOfX of_x = tile_of_x<ROWS>(p.groups, p.m, blockIdx.y, blockIdx.x + threadIdx.x == 0);
  if (of_x.count == 0) return;
  const X* x[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; ++m)
    x[m] = static_cast<const X*>(p.x) + of_x.row(min(m, of_x.count - 1)) * p.k;
  const u8* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    w[r] = of_x.matrix(p, row_bytes) + min(first + r, p.n - 1) * row_bytes;

  f32 sums[kRows][ROWS] = {};
  const u32 units = of_x.own ? (u32)(p.k / kUnit) : 0;
#pragma unroll 2
  for (u32 u = part * 32 + lane; u < units; u += 32 * SPLIT) {
    const u32 block = u / kUnits;
    const int unit = (int)(u % kUnits);
    Unit v[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) v[r] = decode(w[r] + (i64)block * kBytes, unit);
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      f32 levels[kRows][4];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) levels[r][i] = level(v[r].levels[run], i);
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        const Vec<f32, 4> at = four(x[m] + (i64)block * kElements + run_at(unit, run));
        [[maybe_unused]] const f32 all = (at.v[0] + at.v[1]) + (at.v[2] + at.v[3]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          f32 dot = levels[r][0] * at.v[0];
#pragma unroll
          for (int i = 1; i < 4; ++i) dot = fma(levels[r][i], at.v[i], dot);
          sums[r][m] = fma(v[r].scale[run], dot, sums[r][m]);
          if constexpr (kAdds) sums[r][m] = fma(v[r].add[run], all, sums[r][m]);
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const f32 sum = sum_warp<32>(sums[r][m]);
      if (lane == 0) parts[warp][r * ROWS + m] = sum;
    }
  if constexpr (SPLIT > 1)
    __syncthreads();
  else
    __syncwarp();
  if (part > 0) return;
  for (int i = lane; i < kRows * ROWS; i += 32) {
    const i64 row = first + i / ROWS;
    const int m = i % ROWS;
    if (row >= p.n || m >= of_x.count) continue;
    f32 y = 0;
#pragma unroll
    for (int s = 0; s < SPLIT; ++s) y += parts[warp + s][i];
    if (p.bias) y += widen(static_cast<const BIAS*>(p.bias)[row]);
    static_cast<X*>(p.y)[of_x.row(m) * p.n + row] = narrow<X>(of_x.result(y, m));
  }
}
