//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=8 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32 GROUPS=0
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 SPLIT=2 STAGES=2 BLOCKS=2 WHOLE=0 BIAS=bf16 GROUPS=0
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 SPLIT=1 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=8 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32 GROUPS=1 FACTOR=f32
//variant: FORMAT=39 ALIGN=16 TYPE=bf16 SPLIT=4 STAGES=3 BLOCKS=2 WHOLE=0 BIAS=f32 GROUPS=2 IDS=i64
//variant: FORMAT=128 ALIGN=16 TYPE=f16 SPLIT=2 STAGES=2 BLOCKS=2 WHOLE=0 BIAS=f32 GROUPS=0
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of few rows of x in f16 or bf16, on tensor cores, and the grouped product of few rows
// of an expert. A warp multiplies 16 rows of w by 8 of x. It multiplies the levels of blocks, which are
// whole numbers of at most 8 bits or f8e4m3, exact in both dtypes; scales and minimums meet the sums, in
// f32. So only sums round.
// SPLIT warps share the terms of a row: spans of 256 each in turn. Terms of a span are added first,
// then the spans of a warp, then those sums. This order depends only on K and SPLIT, so a row of x
// gets the same bits alone and among others.
// Blocks of w come by copies to shared memory, of STAGES times 256 terms. BLOCKS of threads share a
// multiprocessor.
//entry: dequant_tiles = multiply_tiles(BlockProduct)
#include "dequant_result.cuh"
#include "dequant_spans.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kWarps = 8, kTiles = kWarps / SPLIT;  // of a block

extern "C" __global__ void __launch_bounds__(32 * kWarps, BLOCKS)
    multiply_tiles(const BlockProduct p) {
  extern __shared__ __align__(16) u8 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = warp / SPLIT,
            part = warp % SPLIT, line = lane / 4;
  // Rows of w.
  const i64 first = ((i64)blockIdx.x * kTiles + tile) * kRows;
  const i64 row_bytes = p.k / kElements * kBytes;
  const u32 blocks = (u32)(p.k / kElements);
  u8* const stages = shared + warp * STAGES * kStageBytes + line * kStride;
  const u32 to = shared_address(stages) + lane % 4 * 16;
  begin_early();
  const TileOfX of_x = tile_of_x<8>(p.groups, p.m, blockIdx.y, blockIdx.x + threadIdx.x == 0);
  if (of_x.count == 0) return;
  const u32 spans = of_x.own ? (blocks + kSpanBlocks - 1) / kSpanBlocks : 0;
  const u8 *const w = of_x.matrix(p, row_bytes), *const end = end_of_w(p, row_bytes);
  RowsOfW rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) rows.of[i] = w + min(first + 8 * i + line, p.n - 1) * row_bytes;
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (part + s * SPLIT < spans) rows.copy(to + s * kStageBytes, part + s * SPLIT, end);
    copy_commit();
  }

  const X* const x_row = static_cast<const X*>(p.x) + of_x.row(min(line, of_x.count - 1)) * p.k;
  Sums<1, 1> sums;
  int stage = 0;
  for (u32 span = part; span < spans; span += SPLIT) {
    const u32 next = span + (STAGES - 1) * SPLIT;
    __syncwarp();  // all have read what the next span overwrites
    if (next < spans)
      rows.copy(to + (stage == 0 ? STAGES - 1 : stage - 1) * kStageBytes, next, end);
    copy_commit();
    copy_wait<STAGES - 1>();
    __syncwarp();
    const u8* block[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      block[i] = stages + stage * kStageBytes + i * 8 * kStride +
                 RowsOfW::ahead(rows.of[i] + (i64)span * kSpanBytes);
    // Four units, of a span that begins at `block` and of the same terms of x.
    Sums<1, 1> of_span;
    const auto add_quad = [&](int q) {
      const int unit = q % kQuads * 4 + lane % 4;
      const u8* const own[1][2] = {
          {block[0] + q / kQuads * kBytes, block[1] + q / kQuads * kBytes}};
      of_span.add(own, unit, [&](int) {
        Columns v;
        v.right = right_of(x_row + (i64)span * kSpan + q / kQuads * kElements, unit);
        if constexpr (kAdds)
#pragma unroll
          for (int g = 0; g < kGroups; ++g) v.sums[g] = sums_of_x(v.right, g);
        return v;
      });
    };
    constexpr int kSpanQuads = kSpanBlocks * kQuads;
    const int quads = (int)min(blocks - span * kSpanBlocks, (u32)kSpanBlocks) * kQuads;
    if (quads == kSpanQuads) {
#pragma unroll
      for (int q = 0; q < kSpanQuads; ++q) add_quad(q);
    } else {
#pragma unroll 1
      for (int q = 0; q < quads; ++q) add_quad(q);
    }
    sums.add(of_span);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copy_wait<0>();

  // The parts are added in order; the last has the sum.
  if constexpr (SPLIT > 1) {
    __syncthreads();
    f32* const parts = reinterpret_cast<f32*>(shared) + tile * 128;
#pragma unroll 1
    for (int s = 0; s < SPLIT; ++s) {
      if (part == s)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          f32 &mine = sums.of[0][0][i], &other = parts[i * 32 + lane];
          if (s > 0) mine = other + mine;
          if (s + 1 < SPLIT) other = mine;
        }
      __syncthreads();
    }
  }
  if (part + 1 == SPLIT) store_result(p, first, of_x, 0, sums.of[0][0]);
}
#else
extern "C" __global__ void multiply_tiles(const BlockProduct) {}
#endif
