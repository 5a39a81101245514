//variant: TYPE=f16 BIAS=f32 GROUPS=0
//variant: TYPE=bf16 BIAS=f32 GROUPS=1 FACTOR=f32
// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of a dequant_matmul on tensor cores.
// Defines: TYPE (of y), BIAS (its dtype), and those of dequant_groups.cuh.
#pragma once
#include "dequant_groups.cuh"

// Of 16 rows of w from row `first` on, and the eight rows `eight` of a tile of x: a lane's numbers of
// an mma.
__device__ inline void store_result(const BlockProduct& p, i64 first, const TileOfX& tile,
                                    int eight, const f32 (&sum)[4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const i64 row = first + 8 * i + lane / 4;
    if (row >= p.n) continue;
    const f32 bias = p.bias ? widen(static_cast<const BIAS*>(p.bias)[row]) : 0.0f;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int of_x = eight * 8 + lane % 4 * 2 + e;
      if (of_x < tile.count)
        static_cast<TYPE*>(p.y)[tile.row(of_x) * p.n + row] =
            narrow<TYPE>(tile.result(sum[2 * i + e] + bias, of_x));
    }
  }
}
