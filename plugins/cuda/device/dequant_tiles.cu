//variant: FORMAT=12 ALIGN=16 TYPE=f16 TILES=1 SPLIT=8 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 TILES=8 SPLIT=2 STAGES=2 BLOCKS=2 WHOLE=0 BIAS=bf16
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 TILES=2 SPLIT=1 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of any number of rows of x in f16 or bf16, on tensor cores. A warp multiplies 16 rows
// of w by 8 · TILES rows of x. It multiplies the levels of blocks, which are whole numbers of at most 8
// bits; scales and minimums meet the sums, in f32. So only sums round.
// SPLIT warps share the terms of a row: spans of 256 each in turn. Terms of a span are added first,
// then the spans of a warp, then those sums. This order depends only on K and SPLIT, so a row of x
// gets the same bits alone and among others.
// Blocks of w come by copies to shared memory, of STAGES times 256 terms. BLOCKS of threads share a
// multiprocessor. TILES > 1: x is what dequant_order.cu made.
//entry: dequant_tiles = multiply_tiles(BlockProduct)
#include "dequant.args.cuh"
#include "dequant_spans.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kWarps = 8, kTiles = kWarps / SPLIT;  // of a block

struct Sums {
  f32 of[TILES][4] = {};

  __device__ void add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) of[i / 4][i % 4] += other.of[i / 4][i % 4];
  }
  // Adds the products of the four units of the lanes of a line. right_of_tile(tile): of x.
  template <class RightOf>
  __device__ void add(const u8* const (&block)[2], int unit, RightOf right_of_tile) {
    u32 left[kRuns][4];
    f32 scale[2][kRuns], least[2][kRuns];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Unit v = decode(block[i], unit);
      const Left own = left_of(block[i], unit);
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        left[r][i] = own.run[r].low, left[r][2 + i] = own.run[r].high;
        scale[i][r] = v.scale[r], least[i][r] = v.add[r];
      }
    }
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      const Right right = right_of_tile(j);
#pragma unroll
      for (int r = 0; r < kRuns; r += kGroup) {
        [[maybe_unused]] f32 all[4];  // sums of x
        if constexpr (kAdds) sum_runs(all, ones().of, 0, right, r);
        f32 dot[4];
        sum_runs(dot, left + r, 1, right, r);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          f32& sum = of[j][e];
          sum = fma(scale[e / 2][r], dot[e], sum);
          if constexpr (kAdds) sum = fma(least[e / 2][r], all[e], sum);
        }
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * kWarps, BLOCKS)
    multiply_tiles(const BlockProduct p) {
  extern __shared__ __align__(16) u8 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = warp / SPLIT,
            part = warp % SPLIT, line = lane / 4;
  // Rows of w.
  const i64 first = ((i64)blockIdx.x * kTiles + tile) * kRows;
  const i64 row_bytes = p.k / kElements * kBytes;
  const u32 blocks = (u32)(p.k / kElements), spans = (blocks + kSpanBlocks - 1) / kSpanBlocks;
  RowsOfW rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) rows.of[i] = p.w + min(first + 8 * i + line, p.n - 1) * row_bytes;
  const u8* const end = p.w + p.n * row_bytes;
  u8* const stages = shared + warp * STAGES * kStageBytes + line * kStride;
  const u32 to = shared_address(stages) + lane % 4 * 16;
  begin_early();
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (part + s * SPLIT < spans) rows.copy(to + s * kStageBytes, part + s * SPLIT, end);
    copy_commit();
  }

  // What the lane reads of x: as it is, or in the order of dequant_order.cu.
  [[maybe_unused]] const X* const x_row =
      static_cast<const X*>(p.x) + min((i64)blockIdx.y * 8 + line, p.m - 1) * p.k;
  [[maybe_unused]] const u32* const ordered =
      static_cast<const u32*>(p.x) + (i64)blockIdx.y * TILES * blocks * (kQuads * kPieces * 128) +
      lane * 4;
  Sums sums;
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
    Sums of_span;
    const auto add_quad = [&](int q) {
      const int unit = q % kQuads * 4 + lane % 4;
      const u8* const own[2] = {block[0] + q / kQuads * kBytes, block[1] + q / kQuads * kBytes};
      of_span.add(own, unit, [&](int j) {
        Right v;
        if constexpr (TILES == 1) {
          v = right_of(x_row + (i64)span * kSpan + q / kQuads * kElements, unit);
        } else {
          const u32* const from =
              ordered + ((i64)j * blocks + (i64)span * kSpanBlocks) * (kQuads * kPieces * 128);
#pragma unroll
          for (int i = 0; i < kPieces; ++i)
            v.piece[i] = load<u32, 4>(from + (q * kPieces + i) * 128);
        }
        return v;
      });
    };
    constexpr int kSpanQuads = kSpanBlocks * kQuads;
    const int quads = (int)min(blocks - span * kSpanBlocks, (u32)kSpanBlocks) * kQuads;
    if (TILES <= 2 && quads == kSpanQuads) {
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
    f32* const parts = reinterpret_cast<f32*>(shared) + tile * (TILES * 128);
#pragma unroll 1
    for (int s = 0; s < SPLIT; ++s) {
      if (part == s)
#pragma unroll
        for (int i = 0; i < TILES * 4; ++i) {
          f32 &mine = sums.of[i / 4][i % 4], &other = parts[i * 32 + lane];
          if (s > 0) mine = other + mine;
          if (s + 1 < SPLIT) other = mine;
        }
      __syncthreads();
    }
  }
  if (part + 1 < SPLIT) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const i64 row = first + 8 * i + line;
    if (row >= p.n) continue;
    const f32 bias = p.bias ? widen(static_cast<const BIAS*>(p.bias)[row]) : 0.0f;
#pragma unroll
    for (int j = 0; j < TILES; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const i64 of_x = ((i64)blockIdx.y * TILES + j) * 8 + lane % 4 * 2 + e;
        if (of_x < p.m)
          static_cast<X*>(p.y)[of_x * p.n + row] = narrow<X>(sums.of[j][2 * i + e] + bias);
      }
  }
}
#else
extern "C" __global__ void multiply_tiles(const BlockProduct) {}
#endif
