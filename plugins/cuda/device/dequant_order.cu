//variant: FORMAT=12 ALIGN=16 TYPE=f16 GROUPS=0 TILES=1
//variant: FORMAT=2 ALIGN=16 TYPE=bf16 GROUPS=1 TILES=4
//variant: FORMAT=128 ALIGN=16 TYPE=bf16 GROUPS=0 TILES=8
// SPDX-License-Identifier: Apache-2.0
// Rows of x in the order in which dequant_wide.cu reads them: eight rows, then four units, then 16
// bytes of each lane. Rows behind the last of a tile of 8 · TILES are zeros. Then, in the same order,
// sums of groups of x.
//entry: dequant_order = order(RowsToOrder)
#include "dequant_groups.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
// A warp for four units of eight rows.
extern "C" __global__ void __launch_bounds__(256) order(const RowsToOrder p) {
  begin_early();
  const u32 quads = (u32)(p.k / kElements) * kQuads;
  const int lane = threadIdx.x % 32;
  const u64 warp = (u64)blockIdx.x * 8 + threadIdx.x / 32;
  if (warp >= (u64)p.eights * quads) return;
  const u32 eight = (u32)(warp / quads), quad = (u32)(warp % quads);
  const TileOfX tile = tile_of_x<8 * TILES>(p.groups, p.m, eight / TILES);
  if (tile.count == 0 || !tile.own) return;  // nobody reads it
  const int row = eight % TILES * 8 + lane / 4;
  Right v = {};
  if (row < tile.count)
    v = right_of(
        static_cast<const X*>(p.x) + tile.row(row) * p.k + (i64)(quad / kQuads) * kElements,
        quad % kQuads * 4 + lane % 4);
  u32* const to = static_cast<u32*>(p.y) + warp * kPieces * 128;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) store(to + (i * 32 + lane) * 4, v.piece[i]);
  if constexpr (kAdds) {
    f32* const sums =
        reinterpret_cast<f32*>(static_cast<u32*>(p.y) + (u64)p.eights * quads * kPieces * 128) +
        warp * kSumsOfQuad;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const Vec<f32, 2> sum = sums_of_x(v, g);
      if (lane < 4) store(sums + g * 8 + lane * 2, sum);
    }
  }
}
#else
extern "C" __global__ void order(const RowsToOrder) {}
#endif
