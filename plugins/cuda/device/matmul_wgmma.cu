// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual in f32, terms rounded to tf32, on sm_90 with wgmma; several
// b, each with its bias and y, in one launch. A block makes TILE_ROWS by COLUMNS, its warpgroups an
// equal part of the rows each. One thread has the copy engine bring both operands, 32 terms a stage,
// up to STAGES of them ahead of the tensor cores.
// Defines: TILE_ROWS, COLUMNS, GROUPS (warpgroups), STAGES, BLOCKS (on a multiprocessor), SETS (of b);
// BIAS (f32), RESIDUAL (f32), ALPHA, PRE_ACT, ACT(x), or none of them.
//variant: TILE_ROWS=192 COLUMNS=192 GROUPS=3 STAGES=4 BLOCKS=1 SETS=3 BIAS=f32
//variant: TILE_ROWS=192 COLUMNS=256 GROUPS=3 STAGES=4 BLOCKS=1 SETS=1 BIAS=f32 RESIDUAL=f32 ALPHA=1 PRE_ACT=1 ACT(x)=short_gelu(x)
//variant: TILE_ROWS=128 COLUMNS=96 GROUPS=2 STAGES=4 BLOCKS=2 SETS=2
#include "bulk.cuh"
#include "ends.cuh"
#include "sets.cuh"
#include "wgmma.cuh"

typedef JoinedMaps<SETS> Maps;
constexpr int kThreads = (GROUPS + 1) * 128;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kDepth = 32, kTiles = TILE_ROWS / (64 * GROUPS);  // tiles of 64 rows of a warpgroup
constexpr u32 kLeftBytes = TILE_ROWS * kDepth * 4, kBytes = kLeftBytes + COLUMNS * kDepth * 4;
// With three warpgroups an instruction may name no more than 128 registers.
constexpr int kParts = COLUMNS > 192 && GROUPS == 3 ? 2 : 1, kWidth = COLUMNS / kParts;
constexpr int kSums = kWidth / 2;  // of a thread and product
// Registers of a thread: the warpgroup that only brings operands leaves its own to the others.
constexpr int kBringing = GROUPS == 3 ? 32 : 24, kMultiplying = BLOCKS == 2   ? 104
                                                                : GROUPS == 3 ? 160
                                                                              : 240;
static_assert(TILE_ROWS % (64 * GROUPS) == 0, "");

// What follows the sums of a thread's two rows, 8 apart, from row0 on, in 8 columns of every four
// lanes from col0 on.
__device__ __forceinline__ void finish(const Products& p, const Set& set, const f32 (&d)[kSums],
                                       i64 row0, i64 col0) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const i64 row = row0 + i / 2 % 2 * 8, col = col0 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2,
              at = row * set.n + col;
    if (row >= p.m || col >= set.n) continue;
    [[maybe_unused]] f32 bias = 0, residual = 0;
#ifdef BIAS
    bias = ((const f32*)set.bias)[col];
#endif
#ifdef RESIDUAL
    residual = ((const f32*)p.residual)[at];
#endif
    const Ends<f32> end = ends(d[i], p.alpha, bias, residual);
#ifdef PRE_ACT
    ((f32*)p.pre_act)[at] = end.z;
#endif
    ((f32*)set.y)[at] = end.y;
  }
}
// The same where all of it is there and lies on 16 bytes. Lanes of a pair exchange half of what
// they have of 16 columns, so that each has four that follow each other.
__device__ __forceinline__ void finish_whole(const Products& p, const Set& set,
                                             const f32 (&d)[kSums], i64 row0, i64 col0) {
  typedef Vec<f32, 4> Four;
  constexpr int kPieces = kSums / 8, kAtOnce = kPieces % 3 == 0 ? 3 : BLOCKS * GROUPS == 2 ? 4 : 2;
  static_assert(kPieces % kAtOnce == 0, "");
  const bool odd = threadIdx.x % 2;
  col0 += threadIdx.x % 2 * 8 + threadIdx.x % 4 / 2 * 4;
#pragma unroll
  for (int j0 = 0; j0 < kPieces; j0 += kAtOnce) {
    [[maybe_unused]] Four bias[kAtOnce] = {}, residual[2][kAtOnce] = {};
#ifdef BIAS
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      bias[j] = load<f32, 4>((const f32*)set.bias + col0 + (j0 + j) * 16);
#endif
#ifdef RESIDUAL
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row0 + half * 8 < p.m)
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          residual[half][j] = load<f32, 4>((const f32*)p.residual + (row0 + half * 8) * set.n + col0 + (j0 + j) * 16);
#endif
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const f32 *first = d + (j0 + j) * 8 + half * 2, *second = first + 4;
        Four sums;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const f32 other = __shfl_xor_sync(~0u, odd ? first[e] : second[e], 1);
          sums.v[e] = odd ? other : first[e], sums.v[2 + e] = odd ? second[e] : other;
        }
        [[maybe_unused]] Four z;
        Four y;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Ends<f32> end = ends(sums.v[e], p.alpha, bias[j].v[e], residual[half][j].v[e]);
          z.v[e] = end.z, y.v[e] = end.y;
        }
        const i64 at = (row0 + half * 8) * set.n + col0 + (j0 + j) * 16;
        if (row0 + half * 8 >= p.m) continue;
#ifdef PRE_ACT
        store((f32*)p.pre_act + at, z);
#endif
        store((f32*)set.y + at, y);
      }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    product(const Products p, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem), full = base + STAGES * kBytes, empty = full + STAGES * 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, GROUPS);
    }
    barriers_made();
  }
  __syncthreads();
  const Set set = set_of(p);
  // Blocks of the same columns follow each other.
  const u32 block = blockIdx.x - set.first_block, tiles = (u32)((p.m + TILE_ROWS - 1) / TILE_ROWS);
  const i32 i0 = (i32)(block % tiles * TILE_ROWS), j0 = (i32)(block / tiles * COLUMNS);
  const int stages = (int)((p.k + kDepth - 1) / kDepth);
  int index = 0;  // of the set
#pragma unroll
  for (int s = 1; s < SETS; ++s) index += blockIdx.x >= p.sets[s].first_block;
  const bool brings = threadIdx.x == GROUPS * 128;
  // What is mostly a weight is on its way before: of the blocks that need it each asks for a part.
  if (brings)
    for (int s = (int)(block % tiles); s < stages; s += (int)tiles)
      fetch_tile_ahead(&maps.b[index], s * kDepth, j0);
  begin_early();
  if (warp >= GROUPS * 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kBringing));
    if (brings)
      for (int s = 0; s < stages; ++s) {
        const int slot = s % STAGES, turn = s / STAGES;
        if (turn > 0) barrier_wait(empty + slot * 8, (turn - 1) & 1);
        const u32 at = base + slot * kBytes, barrier = full + slot * 8;
        barrier_expect(barrier, kBytes);
        copy_tile(at, &maps.a, s * kDepth, i0, barrier);
        copy_tile(at + kLeftBytes, &maps.b[index], s * kDepth, j0, barrier);
      }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMultiplying));
    const int group = __shfl_sync(~0u, warp / 4, 0);
    f32 d[kTiles * kParts][kSums];
    for (int s = 0; s < stages; ++s) {
      const int slot = s % STAGES;
      barrier_wait(full + slot * 8, s / STAGES & 1);
      const u32 at = base + slot * kBytes;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth; k += 8)
#pragma unroll
        for (int i = 0; i < kTiles * kParts; ++i)
          wgmma_tf32(d[i], tile_name<TILE_ROWS>(at, (group * kTiles + i / kParts) * 64, k * 2),
                     tile_name<COLUMNS>(at + kLeftBytes, i % kParts * kWidth, k * 2),
                     s > 0 || k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      // The stage before was read; one thread says so for its warpgroup.
      if (s > 0 && threadIdx.x % 128 == 0) barrier_arrive(empty + (s - 1) % STAGES * 8);
    }
    wgmma_wait<0>();
    const bool whole = j0 + COLUMNS <= set.n && set.n % 4 == 0 &&
                       ((u64)set.bias | (u64)set.y | (u64)p.pre_act) % 16 == 0;
#pragma unroll
    for (int i = 0; i < kTiles * kParts; ++i) {
      settle(d[i]);
      const i64 row = i0 + (group * kTiles + i / kParts) * 64 + warp % 4 * 16 + lane / 4,
                col = j0 + i % kParts * kWidth;
      if (whole)
        finish_whole(p, set, d[i], row, col);
      else
        finish(p, set, d[i], row, col);
    }
  }
#endif
}
