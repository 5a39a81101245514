// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual where a has few rows, rounded once; several b, each with
// its bias and y, in one launch. A block makes 8 columns: its warps share out the terms, and their
// sums are added in order. Operands go from memory straight into the tensor cores' registers, 16
// bytes a lane: which term stands where is the same for both, and the sum does not mind.
// a and b are f32, their terms rounded to tf32. Defines: TY; TILES (of 16 rows), SETS (of b); BIAS
// (its dtype), RESIDUAL (its dtype), ALPHA, PRE_ACT, ACT(x), or none of them.
//variant: TY=f32 TILES=1 SETS=3 BIAS=f32
//variant: TY=bf16 TILES=2 SETS=1 BIAS=f32 RESIDUAL=bf16 ALPHA=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
//variant: TY=f32 TILES=2 SETS=2
#include "ends.cuh"
#include "sets.cuh"
#include "tile.cuh"

typedef f32 T;
typedef TY Y;

#if __CUDA_ARCH__ >= 800
constexpr int kColumns = 8, kRows = 16 * TILES, kOfVector = 16 / sizeof(T);
constexpr int kPiece = 4 * kOfVector;  // terms that four lanes load at a time
constexpr int kMostWarps = 16, kAhead = TILES == 1 ? 6 : 3;

typedef Vec<u32, 4> Words;
__device__ inline Words read(const T* p, bool valid) {
  if (!valid) return {};
  return load<u32, 4>(reinterpret_cast<const u32*>(p));
}
__device__ inline u32 rounded(u32 word) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(word)));
  return y;
}
// Half of a piece: words 2h and 2h + 1 of each lane.
__device__ inline void add_product(f32 (&c)[4], const Words& low, const Words& high, const Words& b,
                                   int h) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(rounded(low.v[2 * h])), "r"(rounded(high.v[2 * h])), "r"(rounded(low.v[2 * h + 1])),
        "r"(rounded(high.v[2 * h + 1])), "r"(rounded(b.v[2 * h])), "r"(rounded(b.v[2 * h + 1])));
}

extern "C" __global__ void __launch_bounds__(kMostWarps * 32) thin(const Products p) {
  __shared__ f32 sums[kMostWarps][kRows][kColumns];
  const Set set = set_of(p);
  const i64 j0 = (i64)(blockIdx.x - set.first_block) * kColumns;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int line = lane / 4, part = lane % 4 * kOfVector;
  const T* const b = (const T*)set.b + (j0 + line) * set.ldb;
  const T* const a = (const T*)p.a + line * p.lda;
  const bool column_valid = j0 + line < set.n;

  // While the kernel before is still at work: it writes no weights, and if it did, L2 would have it.
  if (threadIdx.x < kColumns && j0 + threadIdx.x < set.n)
    fetch_ahead((const T*)set.b + (j0 + threadIdx.x) * set.ldb, (u32)(p.k * sizeof(T)));
#ifdef BIAS
  if (threadIdx.x == 0) fetch_ahead((const BIAS*)set.bias + j0);
#endif
  begin_early();

  // The thread's own result, and what is added to it: on its way while the terms are.
  const int row = threadIdx.x / kColumns, column = threadIdx.x % kColumns;
  const i64 col = j0 + column, at = row * set.n + col;
  const bool mine = row < kRows && row < p.m && col < set.n;
  [[maybe_unused]] f32 bias = 0, residual = 0;
#ifdef BIAS
  if (mine) bias = widen(((const BIAS*)set.bias)[col]);
#endif
#ifdef RESIDUAL
  if (mine) residual = widen(((const RESIDUAL*)p.residual)[at]);
#endif

  f32 c[TILES][4] = {};
  const i64 step = (i64)warps * kPiece;
  for (i64 k0 = (i64)warp * kPiece + part; k0 < p.k; k0 += kAhead * step) {
    Words right[kAhead], low[kAhead][TILES], high[kAhead][TILES];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const i64 k = k0 + u * step;
      right[u] = read(b + k, column_valid && k < p.k);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
        const i64 k = k0 + u * step;
        const int row = 16 * t + line;
        low[u][t] = read(a + 16 * t * p.lda + k, row < p.m && k < p.k);
        high[u][t] = read(a + (16 * t + 8) * p.lda + k, row + 8 < p.m && k < p.k);
      }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int t = 0; t < TILES; ++t) add_product(c[t], low[u][t], high[u][t], right[u], h);
  }
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[warp][16 * t + line + e / 2 * 8][lane % 4 * 2 + e % 2] = c[t][e];
  __syncthreads();
  if (!mine) return;
  f32 sum = 0;
  for (int w = 0; w < warps; w += 4)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += sums[w + i][row][column];
  const Ends<f32> end = ends(sum, p.alpha, bias, residual);
#ifdef PRE_ACT
  ((Y*)p.pre_act)[at] = narrow<Y>(end.z);
#endif
  ((Y*)set.y)[at] = narrow<Y>(end.y);
}
#else
extern "C" __global__ void thin(const Products) {}
#endif
