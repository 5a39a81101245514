//variant: FORMAT=12 ALIGN=16 TYPE=f16 WARPGROUPS=4 COLUMNS=64 STAGES=3 SPLIT=1 BIAS=f32 GROUPS=0
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 WARPGROUPS=2 COLUMNS=128 STAGES=2 SPLIT=4 BIAS=bf16 GROUPS=0
//variant: FORMAT=8 ALIGN=16 TYPE=f16 WARPGROUPS=2 COLUMNS=64 STAGES=3 SPLIT=2 BIAS=f32 GROUPS=0
//variant: FORMAT=128 ALIGN=16 TYPE=bf16 WARPGROUPS=2 COLUMNS=128 STAGES=2 SPLIT=1 BIAS=f32 GROUPS=0
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of many rows of x, where w may be rounded to their dtype: scales are rounded, and
// then elements, so that products of whole rows add up on tensor cores (wgmma). Each of WARPGROUPS has
// 64 rows of w, whose elements are made in registers; COLUMNS rows of x, in the order of
// dequant_columns.cu, and blocks of w come to shared memory by the copy engine, STAGES times 256
// terms. Of the terms there are SPLIT parts; a block of threads has one, and dequant_join.cu adds them.
// frozen: no kernel of the program writes w. Its first stages are copied while the kernel before is
// still at work.
//entry: dequant_rounded = multiply_rounded(BlockProduct, TensorMap, bool)
#include "bulk.cuh"
#include "dequant_result.cuh"
#include "dequant_tiles.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kRows = 64 * WARPGROUPS, kWarps = 4 * WARPGROUPS;
constexpr int kSpan = 256, kSpanBlocks = kSpan / kElements, kSpanBytes = kSpanBlocks * kBytes;
constexpr int kSpanQuads = kSpanBlocks * kQuads, kLaneQuads = kSpanQuads / 4;
// The copy engine takes whole vectors: a span may begin anywhere in its first one. Rows of w begin
// eight banks apart.
constexpr int kVector = 16, kAhead = kSpanBytes % kVector == 0 ? 0 : kVector - 1;
constexpr int kStride = (kSpanBytes + kAhead + 31) / 64 * 64 + 32;
constexpr int kColumn = 8;  // bytes of an element of w, for the copy engine
// In bytes of a row of w.
__device__ inline i64 begin_of_span(u32 span) { return (i64)span * kSpanBytes; }
constexpr int kChunk = 64, kChunkBytes = kChunk * COLUMNS * 2, kChunks = kSpan / kChunk;
constexpr int kOfX = kChunks * kChunkBytes, kStage = kOfX + kRows * kStride;
constexpr int kEights = COLUMNS / 8;

// Two elements of w from their levels.
__device__ inline u32 scaled(u32 levels, u32 scale, [[maybe_unused]] u32 add, f16) {
  u32 y;
  if constexpr (kAdds)
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(levels), "r"(scale), "r"(add));
  else
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(levels), "r"(scale));
  return y;
}
__device__ inline u32 scaled(u32 levels, u32 scale, u32 add, bf16) {
  const u32 none = 0x80008000u;  // -0
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(levels), "r"(scale), "r"(kAdds ? add : none));
  return y;
}
// Scales of the groups of a quad of two rows, rounded, with what is added in the high half.
struct RoundedScales {
  u32 of[2][kGroups];
};
__device__ inline RoundedScales rounded_scales(const u8* block, int quad) {
  RoundedScales s;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Unit v = decode(block + i * 8 * kStride, quad * 4);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      s.of[i][g] = narrow_pair(v.scale[g * kGroup], v.add[g * kGroup], X{});
  }
  return s;
}

// Which spans of which rows a block of threads multiplies, and where they lie meanwhile.
struct Spans {
  u32 begin, count, chunks;  // chunks: of all terms
  u32 stages, full, empty;   // in shared memory: stages, and their barriers: copied, read

  __device__ Spans(const BlockProduct& p, const u8* shared, const u64* barriers)
      : chunks((u32)((p.k + kChunk - 1) / kChunk)),
        stages(shared_address(shared)),
        full(shared_address(barriers)),
        empty(full + 8 * STAGES) {
    const u32 all = (u32)((p.k + kSpan - 1) / kSpan), part = blockIdx.x % SPLIT;
    begin = (u32)((u64)all * part / SPLIT);
    count = (u32)((u64)all * (part + 1) / SPLIT) - begin;
  }
  __device__ u32 stage(u32 span) const { return stages + span % STAGES * kStage; }
  __device__ u32 copied(u32 span) const { return full + 8 * (span % STAGES); }
  __device__ u32 read(u32 span) const { return empty + 8 * (span % STAGES); }
};
// Brings them, in one thread.
struct Copier {
  const BlockProduct& p;
  const Map& w;
  const Spans& spans;

  __device__ u32 chunks_of(u32 span) const {
    return min(spans.chunks - (spans.begin + span) * kChunks, (u32)kChunks);
  }
  __device__ void expect(u32 span) const {
    barrier_expect(spans.copied(span), kRows * kStride + chunks_of(span) * kChunkBytes);
  }
  __device__ void copy_w(u32 span) const {
    const i64 from = begin_of_span(spans.begin + span) / kVector * kVector;
    copy_tile(spans.stage(span) + kOfX, &w, (i32)(from / kColumn),
              (i32)(blockIdx.x / SPLIT * kRows), spans.copied(span));
  }
  __device__ void copy_x(u32 span) const {
    const i64 chunk = (i64)blockIdx.y * spans.chunks + (spans.begin + span) * kChunks;
    copy_bytes(spans.stage(span), static_cast<const u8*>(p.x) + chunk * kChunkBytes,
               chunks_of(span) * kChunkBytes, spans.copied(span));
  }
  // Of the first stages: w before anything else of the kernel, if it is frozen.
  __device__ void begin(bool frozen) const {
    for (u32 s = 0; s < min(spans.count, (u32)STAGES); ++s) {
      expect(s);
      if (frozen) copy_w(s);
    }
  }
  __device__ void run(bool frozen) const {
    for (u32 s = 0; s < min(spans.count, (u32)STAGES); ++s) {
      if (!frozen) copy_w(s);
      copy_x(s);
    }
    for (u32 s = STAGES; s < spans.count; ++s) {
      barrier_wait(spans.read(s), (s / STAGES - 1) & 1);
      expect(s), copy_w(s), copy_x(s);
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * (kWarps + 1), 1)
    multiply_rounded(const BlockProduct p, const __grid_constant__ Map w, const bool frozen) {
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Spans spans(p, shared, barriers);
  const Copier copier{p, w, spans};
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(spans.full + 8 * s, 1), barrier_init(spans.empty + 8 * s, kWarps);
    barriers_made();
  }
  __syncthreads();
  let_next_begin();
  if (threadIdx.x == 32 * kWarps) copier.begin(frozen);
  await_earlier();
  if (warp == kWarps) {
    if (lane == 0) copier.run(frozen);
    return;
  }

  f32 sums[COLUMNS / 2] = {};
  const int own = lane % 4;
  const u32 quads = (u32)(p.k / kElements) * kQuads;
  for (u32 span = 0; span < spans.count; ++span) {
    barrier_wait(spans.copied(span), span / STAGES & 1);
    const u8* const row = shared + span % STAGES * kStage + kOfX +
                          (warp * 16 + lane / 4) * kStride +
                          begin_of_span(spans.begin + span) % kVector;
    const u32 x = spans.stage(span);
    const int count = (int)min(quads - (spans.begin + span) * kSpanQuads, (u32)kSpanQuads);
    // A lane of a line decodes the scales of its quads, for all four.
    RoundedScales scales[kLaneQuads];
#pragma unroll
    for (int k = 0; k < kLaneQuads; ++k) {
      const int q = own * kLaneQuads + k;
      scales[k] = rounded_scales(row + q / kQuads * kBytes, q % kQuads);
    }
    wgmma_fence();
    u32 left[2][kRuns][4];
#pragma unroll
    for (int q = 0; q < kSpanQuads; ++q) {
      if (q >= count) break;
      u32(&a)[kRuns][4] = left[q % 2];
      if (q >= 2) {
        wgmma_wait<1>();
        settle(a);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Left v = left_of(row + i * 8 * kStride + q / kQuads * kBytes, q % kQuads * 4 + own);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const u32 both = __shfl_sync(~0u, scales[q % kLaneQuads].of[i][g], q / kLaneQuads, 4);
          const u32 scale = __byte_perm(both, 0, 0x1010), add = __byte_perm(both, 0, 0x3232);
#pragma unroll
          for (int r = g * kGroup; r < (g + 1) * kGroup; ++r) {
            a[r][i] = scaled(v.run[r].low, scale, add, X{});
            a[r][2 + i] = scaled(v.run[r].high, scale, add, X{});
          }
        }
      }
      settle(a);
      wgmma_fence();
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        const int step = q * kRuns + r;  // of 16 terms
        wgmma(sums, a[r], tile_name<kChunk>(x + step / 4 * kChunkBytes, step % 4 * 16, 0), X{});
      }
      wgmma_commit();
    }
    wgmma_wait<0>();
    settle(sums);
    if (lane == 0) barrier_arrive(spans.read(span));
  }

  const TileOfX of_x = tile_of_x<COLUMNS>(p.groups, p.m, blockIdx.y);
  const i64 tile_of_w = (i64)(blockIdx.x / SPLIT) * kWarps + warp;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const f32 sum[4] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
    if constexpr (SPLIT > 1) {
      const i64 tiles = (i64)(gridDim.x / SPLIT) * kWarps, eights = (i64)gridDim.y * kEights;
      const i64 to = (blockIdx.x % SPLIT * tiles + tile_of_w) * eights + blockIdx.y * kEights + i;
      store(static_cast<f32*>(p.parts) + to * 128 + lane * 4,
            Vec<f32, 4>{sum[0], sum[1], sum[2], sum[3]});
    } else {
      store_result(p, tile_of_w * 16, of_x, i, sum);
    }
  }
}
#else
extern "C" __global__ void multiply_rounded(const BlockProduct, const Map, const bool) {}
#endif
