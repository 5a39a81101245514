// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a b + bias) + residual, rounded once; and the same from sums that cuBLASLt gave.
// Defines: the dtypes TA, TB, TS (of sums), TY; TRANS_A, TRANS_B, SIZE (of a tile), MMA, WIDE (see
// mma_tile and finish); BIAS (its dtype), RESIDUAL (its dtype), ALPHA, PRE_ACT, ACT(x), or none of them.
//variant: TA=f32 TB=f32 TS=f32 TY=f32 SIZE=128 TRANS_A=0 TRANS_B=0 MMA=0 WIDE=1
//variant: TA=f64 TB=f64 TS=f64 TY=f64 SIZE=64 TRANS_A=1 TRANS_B=1 MMA=0 WIDE=1 BIAS=f64 RESIDUAL=f64 PRE_ACT=1
//variant: TA=i8 TB=u8 TS=i32 TY=i32 SIZE=64 TRANS_A=0 TRANS_B=0 MMA=0 WIDE=1
//variant: TA=i32 TB=i32 TS=u32 TY=i32 SIZE=128 TRANS_A=0 TRANS_B=1 MMA=0 WIDE=1
//variant: TA=i64 TB=i64 TS=u64 TY=i64 SIZE=64 TRANS_A=1 TRANS_B=0 MMA=0 WIDE=1
//variant: TA=f32 TB=bf16 TS=f32 TY=f32 SIZE=64 TRANS_A=0 TRANS_B=0 MMA=0 WIDE=1
//variant: TA=bf16 TB=bf16 TS=f32 TY=bf16 SIZE=128 TRANS_A=0 TRANS_B=0 MMA=1 WIDE=1 BIAS=f32 RESIDUAL=bf16 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
//variant: TA=f16 TB=f16 TS=f32 TY=f32 SIZE=64 TRANS_A=1 TRANS_B=1 MMA=1 WIDE=0 RESIDUAL=f32
#include "ends.cuh"
#include "tile.cuh"

typedef TA A;
typedef TB B;
typedef TS S;
typedef TY Y;
constexpr int kTile = SIZE;

// Which tile and batch is the block's? Tiles go in bands of rows, so that what is read stays in L2.
struct Place {
  i64 i, j, batch, a, b;
};
__device__ inline Place place_of(const Product& p) {
  constexpr u32 kBand = 8;
  const u32 tiles = p.tiles_m * p.tiles_n, t = blockIdx.x % tiles;
  i64 batch = blockIdx.x / tiles;
  const u32 band = t / (kBand * p.tiles_n), within = t % (kBand * p.tiles_n);
  const u32 rows = min(kBand, p.tiles_m - band * kBand);
  Place at{(i64)(band * kBand + within % rows) * kTile, (i64)(within / rows) * kTile, batch, 0, 0};
  for (int d = (int)p.batch_rank - 1; d >= 0; --d) {
    const i64 index = batch % p.batch_dims[d];
    batch /= p.batch_dims[d];
    at.a += index * p.a_steps[d];
    at.b += index * p.b_steps[d];
  }
  return at;
}

#if !MMA
extern "C" __global__ void __launch_bounds__(kTileThreads) product(const Product p) {
  const Place at = place_of(p);
  const A* a = (const A*)p.a + at.a;
  const B* b = (const B*)p.b + at.b;
  S acc[kTile / 16][kTile / 16] = {};
  const auto get_a = [&](int i, i64 k) {
    const i64 row = at.i + i;
    return row < p.m && k < p.k ? (S)widen(a[TRANS_A ? k * p.lda + row : row * p.lda + k]) : S(0);
  };
  const auto get_b = [&](int j, i64 k) {
    const i64 col = at.j + j;
    return col < p.n && k < p.k ? (S)widen(b[TRANS_B ? col * p.ldb + k : k * p.ldb + col]) : S(0);
  };
  fma_tile<S, kTile, !TRANS_A, (bool)TRANS_B>(get_a, get_b, p.k, acc);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int i = 0; i < kTile / 16; ++i) {
    const i64 row = at.i + tile_at(i, ty);
    if (row >= p.m) continue;
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) {
      const i64 col = at.j + tile_at(j, tx), to = (at.batch * p.m + row) * p.n + col;
      if (col < p.n) ((Y*)p.y)[to] = finished<Y>(p, acc[i][j], to, col);
    }
  }
}
#elif __CUDA_ARCH__ >= 800
extern "C" __global__ void __launch_bounds__(kTileThreads, 2) product(const Product p) {
  extern __shared__ __align__(16) u8 smem[];
  const Place at = place_of(p);
  const Rows<A> a{(const A*)p.a + at.a, p.lda, TRANS_A ? p.k : p.m, TRANS_A ? p.m : p.k, nullptr};
  const Rows<A> b{(const A*)p.b + at.b, p.ldb, TRANS_B ? p.n : p.k, TRANS_B ? p.k : p.n, nullptr};
  MmaAcc<kTile> acc = {};
  mma_tile<kTile, !TRANS_A, (bool)TRANS_B, (bool)WIDE>(a, at.i, b, at.j, p.k, (A*)smem, acc);
  const bool pairs = p.n % 2 == 0;
#pragma unroll
  for (int i = 0; i < kTile / 32; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = at.i + acc.row(i, half);
      if (row >= p.m) continue;
#pragma unroll
      for (int j = 0; j < kTile / 32; ++j) {
        const i64 col = at.j + acc.col(j), to = (at.batch * p.m + row) * p.n + col;
        if (col >= p.n) continue;
        Vec<Y, 2> v;
        v.v[0] = finished<Y>(p, acc.v[i][j][half * 2], to, col);
        if (col + 1 < p.n) v.v[1] = finished<Y>(p, acc.v[i][j][half * 2 + 1], to + 1, col + 1);
        if (pairs) {
          store((Y*)p.y + to, v);
        } else {
          ((Y*)p.y)[to] = v.v[0];
          if (col + 1 < p.n) ((Y*)p.y)[to + 1] = v.v[1];
        }
      }
    }
}
#endif

// p.a: the sums, which may be y itself. WIDE: rows are multiples of 8 elements and all lies on 16
// bytes, 8 elements to a thread; else 4.
extern "C" __global__ void __launch_bounds__(256) finish(const Product p) {
  constexpr int kEach = WIDE ? 8 : 4;
  const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * kEach, count = p.m * p.n;
  if (at >= count) return;
  [[maybe_unused]] const i64 col = count >> 32 ? at % p.n : (u32)at % (u32)p.n;
#if WIDE
  const Vec<S, 8> sums = load<S, 8>((const S*)p.a + at);
  Vec<S, 8> bias = {}, residual = {};
#ifdef BIAS
  const Vec<BIAS, 8> b = load<BIAS, 8>((const BIAS*)p.bias + col);
#pragma unroll
  for (int e = 0; e < 8; ++e) bias.v[e] = (S)widen(b.v[e]);
#endif
#ifdef RESIDUAL
  const Vec<RESIDUAL, 8> r = load<RESIDUAL, 8>((const RESIDUAL*)p.residual + at);
#pragma unroll
  for (int e = 0; e < 8; ++e) residual.v[e] = (S)widen(r.v[e]);
#endif
  Vec<Y, 8> y;
  [[maybe_unused]] Vec<Y, 8> z;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const Ends<S> end = ends(sums.v[e], (S)p.alpha, bias.v[e], residual.v[e]);
    y.v[e] = narrow<Y>(end.y), z.v[e] = narrow<Y>(end.z);
  }
#ifdef PRE_ACT
  store((Y*)p.pre_act + at, z);
#endif
  store((Y*)p.y + at, y);
#else
  i64 c = col;
  for (int e = 0; e < kEach && at + e < count; ++e) {
    ((Y*)p.y)[at + e] = finished<Y>(p, ((const S*)p.a)[at + e], at + e, c);
    if (++c == p.n) c = 0;
  }
#endif
}
