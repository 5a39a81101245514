//variant: FORMAT=12 ALIGN=16 TYPE=f16 TILES=1 HEIGHT=1 SPLIT=8 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 TILES=8 HEIGHT=2 SPLIT=2 STAGES=2 BLOCKS=2 WHOLE=0 BIAS=bf16
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 TILES=2 HEIGHT=1 SPLIT=1 STAGES=3 BLOCKS=2 WHOLE=1 BIAS=f32
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of any number of rows of x in f16 or bf16, on tensor cores. A warp multiplies 16 ·
// HEIGHT rows of w by 8 · TILES rows of x. It multiplies the levels of blocks, which are whole
// numbers of at most 8 bits; scales and minimums meet the sums, in f32. So only sums round.
// SPLIT warps share the terms of a row: 256 each in turn. The order of a sum depends only on K and
// SPLIT, so a row of x gets the same bits alone and among others.
// Blocks of w come by copies to shared memory, of STAGES times 256 terms. BLOCKS of threads share a
// multiprocessor. TILES > 1: x is what dequant_order.cu made.
//entry: dequant_tiles = multiply_tiles(BlockProduct)
#include "async.cuh"
#include "dequant.args.cuh"
#include "dequant_tiles.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kWarps = 8, kTiles = kWarps / SPLIT, kRows = 16 * HEIGHT;  // of w; tiles of a block
// A span: 256 terms of a row. It may begin anywhere in its first 16 bytes, unless WHOLE: all spans
// then are whole vectors.
constexpr int kSpan = 256, kSpanBlocks = kSpan / kElements, kSpanBytes = kSpanBlocks * kBytes;
constexpr int kVectors = WHOLE ? kSpanBytes / 16 : (kSpanBytes + 30) / 16;
// Rows begin four banks apart.
constexpr int kStride = ((kVectors * 16 - 16 + 127) / 128 * 8 + 1) * 16;
constexpr int kStageBytes = kRows * kStride;

__device__ inline u32 one_and_one(f16) { return 0x3C003C00u; }
__device__ inline u32 one_and_one(bf16) { return 0x3F803F80u; }

// Rows of w of a lane: of each tile, those of its line.
struct RowsOfW {
  const u8* of[HEIGHT][2];

  // Bytes before a span in its first vector.
  __device__ static u32 ahead(const u8* span) { return WHOLE ? 0 : (u32)(u64)span & 15; }
  // Copies a span to shared memory, where the lane's first row begins at `to`; `end`: behind w.
  __device__ void copy(u32 to, u32 span, const u8* end) const {
    const int part = threadIdx.x % 4;  // the lanes of a line share its vectors
#pragma unroll
    for (int i = 0; i < HEIGHT * 2; ++i) {
      const u8* const from = of[i / 2][i % 2] + (i64)span * kSpanBytes;
      const u8* const vectors = from - ahead(from) + part * 16;
#pragma unroll
      for (int k = 0; k < kVectors; k += 4) {
        if (k + part >= kVectors) break;
        const u32 at = to + i * 8 * kStride + k * 16;
        if constexpr (WHOLE) {
          copy_async(at, vectors + k * 16, true);
        } else {
          const u8* const v = vectors + k * 16;
          // Nothing of it may be needed, or to be had.
          const i64 left = v < from + kSpanBytes ? end - v : 0;
          const int bytes = left <= 0 ? 0 : left < 16 ? (int)left : 16;
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at),
                       "l"(bytes ? v : of[0][0] - ahead(of[0][0])), "r"(bytes)
                       : "memory");
        }
      }
    }
  }
};

// c = a · b, or c += a · b. Unlike those of tile.cuh, compilers may move them: only results count.
#define MULTIPLY(T, NAME)                                                               \
  __device__ inline void multiply(f32(&c)[4], const u32(&a)[4], u32 b0, u32 b1, T) {    \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                          \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"      \
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));     \
  }                                                                                     \
  __device__ inline void add_product(f32(&c)[4], const u32(&a)[4], u32 b0, u32 b1, T) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                          \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                \
  }
MULTIPLY(f16, "f16")
MULTIPLY(bf16, "bf16")

struct Sums {
  f32 of[HEIGHT][TILES][4] = {};

  // Adds the products of the four units of the lanes of a line. right(tile): of x.
  template <class RightOf>
  __device__ void add(const u8* const (&block)[HEIGHT][2], int unit, RightOf right_of_tile) {
    u32 left[HEIGHT][kRuns][4];
    f32 scale[HEIGHT][2][kRuns], least[HEIGHT][2][kRuns];
#pragma unroll
    for (int h = 0; h < HEIGHT; ++h)
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const Unit v = decode(block[h][s], unit);
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
          const Pairs p = pairs(v.levels[r], X{});
          left[h][r][s] = p.low, left[h][r][2 + s] = p.high;
          scale[h][s][r] = v.scale[r], least[h][s][r] = v.add[r];
        }
      }
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      const Right right = right_of_tile(j);
      // The products of the runs of a group, whose left operands are `step` apart.
      const auto sum_runs = [&](f32(&to)[4], const u32(*a)[4], int step, int first) {
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          const u32* const v = right.piece[(first + g) / 2].v + (first + g) % 2 * 2;
          if (g == 0)
            multiply(to, a[0], v[0], v[1], X{});
          else
            add_product(to, a[g * step], v[0], v[1], X{});
        }
      };
#pragma unroll
      for (int r = 0; r < kRuns; r += kGroup) {
        [[maybe_unused]] f32 all[4];  // sums of x
        if constexpr (kAdds) {
          const u32 one = one_and_one(X{}), ones[1][4] = {{one, one, one, one}};
          sum_runs(all, ones, 0, r);
        }
#pragma unroll
        for (int h = 0; h < HEIGHT; ++h) {
          f32 dot[4];
          sum_runs(dot, left[h] + r, 1, r);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            f32& sum = of[h][j][e];
            sum = fma(scale[h][e / 2][r], dot[e], sum);
            if constexpr (kAdds) sum = fma(least[h][e / 2][r], all[e], sum);
          }
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
  const i64 first = ((i64)blockIdx.x * kTiles + tile) * kRows;  // row of w
  const i64 row_bytes = p.k / kElements * kBytes;
  const u32 blocks = (u32)(p.k / kElements), spans = (blocks + kSpanBlocks - 1) / kSpanBlocks;
  RowsOfW rows;
#pragma unroll
  for (int i = 0; i < HEIGHT * 2; ++i)
    rows.of[i / 2][i % 2] = p.w + min(first + 8 * i + line, p.n - 1) * row_bytes;
  const u8* const end = p.w + p.n * row_bytes;
  u8* const stages = shared + warp * STAGES * kStageBytes + line * kStride;
  const u32 to = shared_address(stages) + lane % 4 * 16;
  // While the kernel before is still at work, L2 gets the rows that will be copied.
  if (blockIdx.y == 0 && part == 0 && lane < 16 && row_bytes % 16 == 0)
#pragma unroll
    for (int h = 0; h < HEIGHT; ++h)
      if (first + 16 * h + lane < p.n)
        fetch_ahead(p.w + (first + 16 * h + lane) * row_bytes, (u32)row_bytes);
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
    const u8* block[HEIGHT][2];
#pragma unroll
    for (int i = 0; i < HEIGHT * 2; ++i)
      block[i / 2][i % 2] = stages + stage * kStageBytes + i * 8 * kStride +
                            RowsOfW::ahead(rows.of[i / 2][i % 2] + (i64)span * kSpanBytes);
    // Four units, of a span that begins at `block` and of the same terms of x.
    const auto add_quad = [&](int q) {
      const int unit = q % kQuads * 4 + lane % 4;
      const u8* own[HEIGHT][2];
#pragma unroll
      for (int i = 0; i < HEIGHT * 2; ++i)
        own[i / 2][i % 2] = block[i / 2][i % 2] + q / kQuads * kBytes;
      sums.add(own, unit, [&](int j) {
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
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copy_wait<0>();

  // The parts are added in order; the last has the sum.
  if constexpr (SPLIT > 1) {
    __syncthreads();
    f32* const parts = reinterpret_cast<f32*>(shared) + tile * (HEIGHT * TILES * 128);
#pragma unroll 1
    for (int s = 0; s < SPLIT; ++s) {
      if (part == s)
#pragma unroll
        for (int i = 0; i < HEIGHT * TILES * 4; ++i) {
          f32 &mine = sums.of[i / 4 / TILES][i / 4 % TILES][i % 4], &other = parts[i * 32 + lane];
          if (s > 0) mine = other + mine;
          if (s + 1 < SPLIT) other = mine;
        }
      __syncthreads();
    }
  }
  if (part + 1 < SPLIT) return;
#pragma unroll
  for (int h = 0; h < HEIGHT; ++h)
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const i64 row = first + 16 * h + 8 * s + line;
      if (row >= p.n) continue;
      const f32 bias = p.bias ? widen(static_cast<const BIAS*>(p.bias)[row]) : 0.0f;
#pragma unroll
      for (int j = 0; j < TILES; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const i64 of_x = ((i64)blockIdx.y * TILES + j) * 8 + lane % 4 * 2 + e;
          if (of_x < p.m)
            static_cast<X*>(p.y)[of_x * p.n + row] = narrow<X>(sums.of[h][j][2 * s + e] + bias);
        }
    }
}
#else
extern "C" __global__ void multiply_tiles(const BlockProduct) {}
#endif
