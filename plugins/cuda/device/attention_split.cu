// SPDX-License-Identifier: Apache-2.0
// Attention forward of f32 on the tensor cores of sm_80 and later: each number is a sum of two tf32
// numbers (tf32_parts.cuh). A warp has 16 query rows. A query or key that is not finite, or too
// large for tf32, makes NaN of its scores; these are computed again with FMAs. A value that is not
// finite gives NaN, as infinity times zero does.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), WARPS, KEYS (of a tile), WIDE
// (rows are multiples of 16 bytes, and so are addresses).
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 WARPS=4 KEYS=64 WIDE=1
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=48 WARPS=2 KEYS=32 WIDE=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=128 VP=128 WARPS=1 KEYS=16 WIDE=0
//variant: TT=f32 TS=f32 MASK=0 DP=64 VP=64 WARPS=4 KEYS=64 WIDE=1 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
#include "attention_quads.cuh"
#include "tf32_parts.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kThreads = 32 * WARPS, kRows = 16 * WARPS, kKeys = KEYS;
// Rows that are read together start in different banks.
constexpr int kDimStride = DP % 32 == 0 ? DP + 16 : DP, kValueStride = VP + 4;

__device__ inline void multiply_add_tf32(f32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                         u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// c (N times 16 x 8) += a (16 x 8) b[i] (8 x 8), the smallest parts first. Successive products have
// different sums, so none waits for the one before.
template <int N>
__device__ __forceinline__ void multiply_add(f32* c, const Parts (&a)[4],
                                             const Parts (&b)[N][2]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c + i * 4, a[0].low, a[1].low, a[2].low, a[3].low, b[i][0].high, b[i][1].high);
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c + i * 4, a[0].high, a[1].high, a[2].high, a[3].high, b[i][0].low, b[i][1].low);
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c + i * 4, a[0].high, a[1].high, a[2].high, a[3].high, b[i][0].high, b[i][1].high);
}

extern "C" __global__ void __launch_bounds__(kThreads, VP > 32 ? 3 : 4) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  f32 *qs = (f32*)smem, *ks = qs + kRows * kDimStride, *vs = ks + kKeys * kDimStride;
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  load_tile<DP, kDimStride, (bool)WIDE, kThreads>(
      qs, p.q, kRows, p.dim, QueryPlaces{p, head, p.q, p.q_strides, tile.r0, tile.end});
  const QuadRows rows(p, head, tile.r0 + warp * 16, tile.end);
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  // A quad holds 16 columns of a row, and each product takes two of every lane. Both operands take
  // the same columns, so their order does not matter.
  const f32* const query = qs + (warp * 16 + line) * kDimStride + quad * 4;
  const f32* const key_row = ks + line * kDimStride + quad * 4;
  const f32* const value_row = vs + quad * 2 * kValueStride + line;
  for (i32 key = tile.keys.first; key < tile.keys.last; key += kKeys) {
    if (key != tile.keys.first) __syncthreads();  // the last tile was read
    load_tile<DP, kDimStride, (bool)WIDE, kThreads>(
        ks, p.k, kKeys, p.dim, key_places(p, head, p.k, p.k_strides, key, tile.keys.last));
    load_tile<VP, kValueStride, (bool)WIDE, kThreads>(
        vs, p.v, kKeys, p.v_dim, key_places(p, head, p.v, p.v_strides, key, tile.keys.last));
    await_tile();
    f32 s[kKeys / 2] = {};
#pragma unroll 1
    for (int d = 0; d < DP; d += 16) {
      const Vec<f32, 4> low = load<f32, 4>(query + d),
                        high = load<f32, 4>(query + 8 * kDimStride + d);
      Parts a[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[h][0] = split(low.v[h * 2]), a[h][1] = split(high.v[h * 2]);
        a[h][2] = split(low.v[h * 2 + 1]), a[h][3] = split(high.v[h * 2 + 1]);
      }
      constexpr int kGroup = kKeys / 8 < 4 ? kKeys / 8 : 4;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j += kGroup) {
        Parts b[2][kGroup][2];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const Vec<f32, 4> x = load<f32, 4>(key_row + (j + i) * 8 * kDimStride + d);
#pragma unroll
          for (int e = 0; e < 4; ++e) b[e / 2][i][e % 2] = split(x.v[e]);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) multiply_add(s + j * 4, a[h], b[h]);
      }
    }
    bool odd = false;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) odd |= s[i] != s[i];
    if (odd)
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const f32 *x = qs + (warp * 16 + i / 2 % 2 * 8 + line) * kDimStride,
                  *y = ks + quad_column(i) * kDimStride;
        f32 sum = 0;
#pragma unroll 1
        for (int d = 0; d < DP; ++d) sum += x[d] * y[d];
        if (s[i] != s[i]) s[i] = sum;
      }
    mask_scores(p, rows, key, s);
    // Weights are made when they are multiplied: more registers would spill.
    f32 base[2];
    follow_scores<false>(s, kLog2E, row_max, base, rescale);
    row_sum[0] *= rescale[0], row_sum[1] *= rescale[1];
    rescale_sums(o, rescale);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      f32* x = s + j * 4;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x[e] = weight_of<false>(x[e], base[e / 2], kLog2E);
        row_sum[e / 2] += x[e];
      }
      const Parts a[4] = {split(x[0]), split(x[2]), split(x[1]), split(x[3])};
      Parts b[VP / 8][2];
#pragma unroll
      for (int c = 0; c < VP / 8; ++c) {
        const f32* from = value_row + j * 8 * kValueStride + c * 8;
        b[c][0] = split(from[0]), b[c][1] = split(from[kValueStride]);
      }
      multiply_add(o, a, b);
    }
  }
  finish_quads<(bool)WIDE>(p, tile, rows, o, row_max, row_sum);
}
#endif
