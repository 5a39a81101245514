//variant: FORMAT=12 ALIGN=16 TYPE=f16 TILES=8 TILES_OF_W=2 SPLIT=8 STAGES=3 BLOCKS=1 WHOLE=1 BIAS=f32 GROUPS=0 APART=1
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 TILES=4 TILES_OF_W=1 SPLIT=1 STAGES=2 BLOCKS=2 WHOLE=0 BIAS=bf16 GROUPS=0 APART=0
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 TILES=2 TILES_OF_W=1 SPLIT=1 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32 GROUPS=0 APART=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 TILES=4 TILES_OF_W=1 SPLIT=8 STAGES=2 BLOCKS=2 WHOLE=1 BIAS=f32 GROUPS=1 FACTOR=f32 APART=0
//variant: FORMAT=128 ALIGN=16 TYPE=bf16 TILES=8 TILES_OF_W=1 SPLIT=2 STAGES=2 BLOCKS=1 WHOLE=0 BIAS=f32 GROUPS=0 APART=1
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of more than 8 rows of x in f16 or bf16, and the grouped product of many rows, with the
// bits that dequant_tiles.cu gives to each of them. A warp has TILES_OF_W times 16 rows of w. All warps
// of a block of threads read its 8 · TILES rows of x from shared memory. The terms have SPLIT parts. If
// APART, a block has one of them, and dequant_join.cu adds them; else it has all, one after the other.
// Copies bring STAGES spans of 256 terms. BLOCKS of threads share a multiprocessor. x is what
// dequant_order.cu made.
//entry: dequant_wide = multiply_wide(BlockProduct)
#include "dequant_result.cuh"
#include "dequant_spans.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kSpanQuads = kSpanBlocks * kQuads;
// Of a stage: blocks of w; what lanes read of x, tile by tile; sums of groups of x, too.
constexpr int kQuadBytes = kPieces * 512, kTileBytes = kSpanQuads * kQuadBytes;
constexpr int kQuadSums = kAdds ? kSumsOfQuad * 4 : 0, kTileSums = kSpanQuads * kQuadSums;
constexpr int kOfW = kWarps * TILES_OF_W * kStageBytes, kOfX = TILES * kTileBytes;
constexpr int kStage = kOfW + kOfX + TILES * kTileSums;

// The spans of a block of threads in order.
struct SpanOrder {
  u32 part, span;
  __device__ bool ends_part(u32 spans) const { return span + SPLIT >= spans; }
  __device__ void next(u32 spans) {
    if (APART || !ends_part(spans))
      span += SPLIT;
    else
      span = ++part < SPLIT ? part : spans;
  }
};

// Copies a run of BYTES for each tile to shared memory, of which `real` exist; from tile to tile it is
// `step` bytes.
template <int BYTES>
__device__ inline void copy_tiles(u32 to, const u8* from, i64 step, int real) {
  for (int v = threadIdx.x * 16; v < TILES * BYTES; v += kThreads * 16)
    if (v % BYTES < real) copy_async(to + v, from + v / BYTES * step + v % BYTES, true);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS) multiply_wide(const BlockProduct p) {
  extern __shared__ __align__(16) u8 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4;
  constexpr u32 kApart = APART ? SPLIT : 1;
  const u32 part = blockIdx.x % kApart,
            tile_of_w = (blockIdx.x / kApart * kWarps + warp) * TILES_OF_W;
  const i64 first = (i64)tile_of_w * kRows;  // row of w
  const i64 row_bytes = p.k / kElements * kBytes;
  const u32 blocks = (u32)(p.k / kElements);
  const u32 quads = blocks * kQuads, eights = gridDim.y * TILES, eight = blockIdx.y * TILES;
  const u8* const x = static_cast<const u8*>(p.x);
  const u8* const sums_of_x = x + (i64)eights * quads * kQuadBytes;
  const u32 to_w = warp * TILES_OF_W * kStageBytes + line * kStride;
  begin_early();
  const TileOfX of_x = tile_of_x<8 * TILES>(p.groups, p.m, blockIdx.y);
  if (of_x.count == 0) return;
  const u32 spans = of_x.own ? (blocks + kSpanBlocks - 1) / kSpanBlocks : 0;
  const u8 *const w = of_x.matrix(p, row_bytes), *const end = end_of_w(p, row_bytes);
  RowsOfW rows[TILES_OF_W];
#pragma unroll
  for (int i = 0; i < 2 * TILES_OF_W; ++i)
    rows[i / 2].of[i % 2] = w + min(first + 8 * i + line, p.n - 1) * row_bytes;

  const auto fetch = [&](u32 span, int stage) {
    if (span < spans) {
      const u32 to = shared_address(shared) + stage * kStage;
#pragma unroll
      for (int i = 0; i < TILES_OF_W; ++i)
        rows[i].copy(to + to_w + i * kStageBytes + lane % 4 * 16, span, end);
      const u32 from = span * kSpanQuads;
      const int real = (int)min(quads - from, (u32)kSpanQuads);
      const i64 quad = (i64)eight * quads + from;
      copy_tiles<kTileBytes>(to + kOfW, x + quad * kQuadBytes, (i64)quads * kQuadBytes,
                             real * kQuadBytes);
      if constexpr (kAdds)
        copy_tiles<kTileSums>(to + kOfW + kOfX, sums_of_x + quad * kQuadSums,
                              (i64)quads * kQuadSums, real * kQuadSums);
    }
    copy_commit();
  };
  SpanOrder fetched{part, part};
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) fetch(fetched.span, s), fetched.next(spans);

  Sums<TILES_OF_W, TILES> all;
  [[maybe_unused]] Sums<TILES_OF_W, TILES> before;  // of the parts before
  int stage = 0;
  for (SpanOrder at{part, part}; at.span < spans; at.next(spans)) {
    const u32 span = at.span;
    copy_wait<STAGES - 2>();
    __syncthreads();  // the span is there, and all have read the stage that is fetched next
    fetch(fetched.span, stage == 0 ? STAGES - 1 : stage - 1), fetched.next(spans);
    const u8* const own = shared + stage * kStage;
    const u8* block[2 * TILES_OF_W];
#pragma unroll
    for (int i = 0; i < 2 * TILES_OF_W; ++i)
      block[i] = own + to_w + i * 8 * kStride +
                 RowsOfW::ahead(rows[i / 2].of[i % 2] + (i64)span * kSpanBytes);
    Sums<TILES_OF_W, TILES> of_span;
    const auto add_quad = [&](int q) {
      const u8* of_quad[TILES_OF_W][2];
#pragma unroll
      for (int i = 0; i < 2 * TILES_OF_W; ++i)
        of_quad[i / 2][i % 2] = block[i] + q / kQuads * kBytes;
      of_span.add(of_quad, q % kQuads * 4 + lane % 4, [&](int j) {
        const u8* const from = own + kOfW + j * kTileBytes + q * kQuadBytes;
        const u8* const of_sums = own + kOfW + kOfX + j * kTileSums + q * kQuadSums;
        Columns v;
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
          v.right.piece[i] = load<u32, 4>(reinterpret_cast<const u32*>(from) + i * 128 + lane * 4);
        if constexpr (kAdds)
#pragma unroll
          for (int g = 0; g < kGroups; ++g)
            v.sums[g] = load<f32, 2>(reinterpret_cast<const f32*>(of_sums) + g * 8 + lane % 4 * 2);
        return v;
      });
    };
    const int count = (int)min(quads - span * kSpanQuads, (u32)kSpanQuads);
    if (TILES <= 2 && count == kSpanQuads) {
#pragma unroll
      for (int q = 0; q < kSpanQuads; ++q) add_quad(q);
    } else {
#pragma unroll 1
      for (int q = 0; q < count; ++q) add_quad(q);
    }
    all.add(of_span);
    if constexpr (!APART && SPLIT > 1)
      if (at.ends_part(spans)) {
        if (at.part > 0) all.add(before);
        if (at.part + 1 < SPLIT) before = all, all = {};
      }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copy_wait<0>();

#pragma unroll
  for (int i = 0; i < TILES_OF_W * TILES; ++i) {
    const f32(&sum)[4] = all.of[i / TILES][i % TILES];
    if constexpr (APART) {
      const u32 tiles_of_w = gridDim.x / SPLIT * (kWarps * TILES_OF_W);
      const i64 tile = (i64)part * tiles_of_w + tile_of_w + i / TILES;
      store(static_cast<f32*>(p.parts) + (tile * eights + eight + i % TILES) * 128 + lane * 4,
            Vec<f32, 4>{sum[0], sum[1], sum[2], sum[3]});
    } else {
      store_result(p, first + i / TILES * 16, of_x, i % TILES, sum);
    }
  }
}
#else
extern "C" __global__ void multiply_wide(const BlockProduct) {}
#endif
