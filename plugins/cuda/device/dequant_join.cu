//variant: TYPE=f16 BIAS=f32 SPLIT=8 GROUPS=0
//variant: TYPE=bf16 BIAS=bf16 SPLIT=2 GROUPS=0
// SPDX-License-Identifier: Apache-2.0
// Adds the SPLIT parts that dequant_wide.cu leaves, in order.
//entry: dequant_join = join(BlockProduct, u32, u32)
#include "dequant_result.cuh"

// A warp for 16 rows of w and eight of x. tiles: of 16 rows of w; eights: of x.
extern "C" __global__ void __launch_bounds__(256)
    join(const BlockProduct p, const u32 tiles, const u32 eights) {
  begin_early();
  const u32 at = blockIdx.x * 8 + threadIdx.x / 32;
  if (at >= tiles * eights) return;
  const TileOfX of_x = tile_of_x<8>(p.groups, p.m, at % eights);
  if (of_x.count <= 0) return;
  Vec<f32, 4> part[SPLIT];
#pragma unroll
  for (int i = 0; i < SPLIT; ++i)
    part[i] = load<f32, 4>(static_cast<const f32*>(p.parts) + (i64)i * tiles * eights * 128 +
                           (i64)at * 128 + threadIdx.x % 32 * 4);
  f32 sum[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    sum[e] = part[0].v[e];
#pragma unroll
    for (int i = 1; i < SPLIT; ++i) sum[e] += part[i].v[e];
  }
  store_result(p, (i64)(at / eights) * 16, of_x, 0, sum);
}
