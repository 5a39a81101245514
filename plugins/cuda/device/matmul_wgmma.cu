// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual in f32, terms cut to tf32, on sm_90 with wgmma; several b,
// each with its bias and y, in one launch. A block of two warpgroups makes 128 rows by COLUMNS. Of
// either operand 64 terms are a stage: while the tensor cores have one the next is on its way, and
// another block fills what waits are left.
// Defines: COLUMNS (64, 96), SETS (of b); BIAS (f32), RESIDUAL (f32), ALPHA, PRE_ACT, ACT(x), or
// none of them.
//variant: COLUMNS=96 SETS=3 BIAS=f32
//variant: COLUMNS=64 SETS=1 BIAS=f32 RESIDUAL=f32 ALPHA=1 PRE_ACT=1 ACT(x)=short_gelu(x)
//variant: COLUMNS=64 SETS=2
#include "ends.cuh"
#include "sets.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kThreads = 256, kRows = 128, kDepth = 64, kStages = 2;

// A thread's share of a tile of ROWS rows: 16 bytes of every 16th row, in two parts of 32 columns.
template <int ROWS>
struct Copy {
  static constexpr int kPieces = kDepth / 4, kAtOnce = kThreads / kPieces;
  const f32* from;
  i64 step, left, terms;  // rows and terms from its own on
  u32 to;
  __device__ Copy(const void* base, i64 ld, i64 row, i64 rows, i64 k) : step(kAtOnce * ld) {
    const int line = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
    left = rows - row - line;
    terms = k - piece * 4;
    from = (const f32*)base + (row + line) * ld + piece * 4;
    to = piece / 8 * (ROWS * 128) + line * 128 + (piece % 8 ^ line % 8) * 16;
  }
  __device__ __forceinline__ void stage(u32 tile, const void* anywhere, i64 k0) {
    const f32* at = from + k0;
    const i64 rows = k0 < terms ? left : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += kAtOnce, at += step)
      copy_async(tile + to + i * 128, i < rows ? (const void*)at : anywhere, i < rows);
  }
};

// What follows the sums of a thread's two rows, 8 apart. WHOLE: all of the tile is there, and pairs
// of columns lie on 8 bytes.
template <bool WHOLE>
__device__ __forceinline__ void finish(const Products& p, const Set& set, const f32 (&d)[COLUMNS / 2],
                                       i64 row0, i64 col0) {
  typedef Vec<f32, 2> Two;
  constexpr int kPairs = COLUMNS / 8;
  const auto get = [&](const void* base, i64 at, i64 col) {
    const f32* from = (const f32*)base + at;
    if (WHOLE) return load<f32, 2>(from);
    return Two{col < set.n ? from[0] : 0.f, col + 1 < set.n ? from[1] : 0.f};
  };
  const auto put = [&](void* base, i64 at, i64 col, const Two& v) {
    f32* to = (f32*)base + at;
    if (WHOLE) {
      store(to, v);
    } else {
      if (col < set.n) to[0] = v.v[0];
      if (col + 1 < set.n) to[1] = v.v[1];
    }
  };
  [[maybe_unused]] Two bias[kPairs] = {}, residual[kPairs] = {};
#ifdef BIAS
#pragma unroll
  for (int j = 0; j < kPairs; ++j) bias[j] = get(set.bias, col0 + j * 8, col0 + j * 8);
#endif
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 row = row0 + half * 8, line = row * set.n;
    if (!WHOLE && row >= p.m) continue;
#ifdef RESIDUAL
#pragma unroll
    for (int j = 0; j < kPairs; ++j) residual[j] = get(p.residual, line + col0 + j * 8, col0 + j * 8);
#endif
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      [[maybe_unused]] Two z;
      Two y;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Ends<f32> end =
            ends(d[j * 4 + half * 2 + e], p.alpha, bias[j].v[e], residual[j].v[e]);
        z.v[e] = end.z, y.v[e] = end.y;
      }
      const i64 col = col0 + j * 8;
#ifdef PRE_ACT
      put(p.pre_act, line + col, col, z);
#endif
      put(set.y, line + col, col, y);
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256, 2) product(const Products p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) u8 smem[];
  constexpr u32 kABytes = kRows * kDepth * 4, kBytes = kABytes + COLUMNS * kDepth * 4;
  const u32 base = shared_address(smem);
  const Set set = set_of(p);
  // Blocks of the same columns follow each other.
  const u32 block = blockIdx.x - set.first_block, tiles = (u32)((p.m + kRows - 1) / kRows);
  const i64 i0 = (i64)(block % tiles) * kRows, j0 = (i64)(block / tiles) * COLUMNS;
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  Copy<kRows> left(p.a, p.lda, i0, p.m, p.k);
  Copy<COLUMNS> right(set.b, set.ldb, j0, set.n, p.k);
  const int stages = (int)((p.k + kDepth - 1) / kDepth);
  const auto fetch = [&](int s) {
    const u32 at = base + s % kStages * kBytes;
    left.stage(at, p.a, (i64)s * kDepth);
    right.stage(at + kABytes, set.b, (i64)s * kDepth);
    copy_commit();
  };
  fetch(0);
  f32 d[COLUMNS / 2];
  for (int s = 0; s < stages; ++s) {
    copy_wait<0>();
    shared_to_wgmma();
    __syncthreads();
    if (s + 1 < stages) fetch(s + 1);
    const u32 at = base + s % kStages * kBytes;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth; k += 8)
      wgmma_tf32(d, tile_name<kRows>(at, group * 64, k * 2),
                 tile_name<COLUMNS>(at + kABytes, 0, k * 2), s > 0 || k > 0);
    wgmma_commit();
    wgmma_wait<0>();
  }
  settle(d);
  const i64 row = i0 + threadIdx.x / 32 * 16 + lane / 4, col = j0 + lane % 4 * 2;
  if (i0 + kRows <= p.m && j0 + COLUMNS <= set.n && set.n % 2 == 0)
    finish<true>(p, set, d, row, col);
  else
    finish<false>(p, set, d, row, col);
#endif
}
