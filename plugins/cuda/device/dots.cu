//variant: TYPE=f32 TY=f32 ROWS=1
//variant: TYPE=bf16 TY=f32 ROWS=4 BIAS=f32
//variant: TYPE=f16 TY=f16 ROWS=4 BIAS=f16 RESIDUAL=f16 PRE_ACT=1
//variant: TYPE=f32 TY=f32 ROWS=4 BIAS=f32 RESIDUAL=f32 ALPHA=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual where b has few rows, as routers of experts have, with sums in
// f32: a block of threads makes ROWS times 8 results. Its threads take 16 bytes of terms of each row in
// turn. A lane adds its terms in order, then lanes are added, then warps. This order does not depend on
// m or ROWS.
// Defines: dtypes TYPE (of a and b: f32, f16, bf16) and TY; ROWS; BIAS, RESIDUAL (dtypes), ALPHA,
// PRE_ACT, ACT(x), or none of them.
//entry: dots = dots(Product)
#include "common.cuh"
#include "ends.cuh"

typedef TYPE T;
typedef TY Y;
constexpr int kEach = 16 / sizeof(T);  // terms of a thread at a time
constexpr int kColumns = 8, kWarps = 8, kResults = ROWS * kColumns;
static_assert(kResults <= 32, "a lane has one sum of a warp at most");

// Sums over the lanes of a warp, in steps between lanes kApart apart; lane l has that of
// v[l * kCount / 32]. While a lane has several sums, it gives one half of them away.
template <int kApart, int kCount>
__device__ inline f32 sum_lanes(f32* v) {
  if constexpr (kApart == 0) {
    return v[0];
  } else if constexpr (kCount == 1) {
    v[0] += __shfl_xor_sync(~0u, v[0], kApart);
    return sum_lanes<kApart / 2, 1>(v);
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = threadIdx.x & kApart;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const f32 given = upper ? v[i] : v[i + kHalf], kept = upper ? v[i + kHalf] : v[i];
      v[i] = kept + __shfl_xor_sync(~0u, given, kApart);
    }
    return sum_lanes<kApart / 2, kHalf>(v);
  }
}

extern "C" __global__ void __launch_bounds__(32 * kWarps) dots(const Product p) {
  __shared__ f32 sums[kWarps][kResults];
  begin_early();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 across = (u32)((p.n + kColumns - 1) / kColumns);
  const i64 i0 = (i64)(blockIdx.x / across) * ROWS, j0 = (i64)(blockIdx.x % across) * kColumns;
  const T *a[ROWS], *b[kColumns];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) a[r] = static_cast<const T*>(p.a) + min(i0 + r, p.m - 1) * p.lda;
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    b[c] = static_cast<const T*>(p.b) + min(j0 + c, p.n - 1) * p.ldb;

  f32 sum[kResults] = {};
#pragma unroll 2
  for (i64 k = threadIdx.x * kEach; k < p.k; k += 32 * kWarps * kEach) {
    Vec<T, kEach> left[ROWS], right[kColumns];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) left[r] = load<T, kEach>(a[r] + k);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) right[c] = load<T, kEach>(b[c] + k);
#pragma unroll
    for (int i = 0; i < kResults; ++i)
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        sum[i] = fma(widen_at(left[i / kColumns], e), widen_at(right[i % kColumns], e), sum[i]);
  }
  const f32 of_warp = sum_lanes<16, kResults>(sum);
  constexpr int kLanes = 32 / kResults;  // that have the same sum
  if (lane % kLanes == 0) sums[warp][lane / kLanes] = of_warp;
  __syncthreads();

  if (threadIdx.x >= kResults) return;
  const i64 row = i0 + threadIdx.x / kColumns, column = j0 + threadIdx.x % kColumns;
  if (row >= p.m || column >= p.n) return;
  f32 all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += sums[w][threadIdx.x];
  const i64 at = row * p.n + column;
  static_cast<Y*>(p.y)[at] = finished<Y>(p, all, at, column);
}
