// SPDX-License-Identifier: Apache-2.0
// y[i] = p[i] * a[i] w[expert of i], 0 for rows of no expert: a block has a tile of one expert's
// rows, and what lies beyond them is 0 to it: NaN in other rows and experts stays there.
// Defines: dtypes TYPE, TP (of factors, or none); SIZE (of a tile), MMA, WIDE (see mma_tile); TRANS
// (w is [expert, column, term]), STORE (y is wanted), DOT (also the terms of (a[i] w) . x[i]).
//variant: TYPE=f32 TP=f32 SIZE=128 MMA=0 WIDE=0 TRANS=0 STORE=1 DOT=0
//variant: TYPE=f64 TP=f64 SIZE=64 MMA=0 WIDE=0 TRANS=1 STORE=1 DOT=1
//variant: TYPE=bf16 TP=f32 SIZE=128 MMA=1 WIDE=1 TRANS=1 STORE=1 DOT=1
//variant: TYPE=f16 SIZE=64 MMA=1 WIDE=0 TRANS=0 STORE=0 DOT=1
#include "row_groups.cuh"
#include "tile.cuh"

typedef TYPE T;
typedef acc_t<T> S;
constexpr int kTile = SIZE;

typedef GroupedProductOf<T, S> GroupedProduct;

struct Place {
  Tile tile;
  i64 j;  // first column
  u32 tile_j;
  bool own;  // of an expert
  const T *a, *w;
  const i32* order;  // of the tile's rows
};
// Tiles go in bands of rows, so that what is read stays in L2.
__device__ inline Place place_of(const GroupedProduct& p) {
  constexpr u32 kBand = 8;
  const u32 band = blockIdx.x / (kBand * p.tiles_n), within = blockIdx.x % (kBand * p.tiles_n);
  const u32 rows = min(kBand, p.tiles_m - band * kBand);
  Place at;
  at.tile = p.tiles[band * kBand + within % rows];
  at.tile_j = within / rows;
  at.j = (i64)at.tile_j * kTile;
  at.own = at.tile.group < p.experts;
  at.a = p.a + (p.order ? 0 : at.tile.first * p.k);
  at.w = p.w + (at.own ? at.tile.group * p.n * p.k : 0);
  at.order = p.order ? p.order + at.tile.first : nullptr;
  return at;
}
__device__ inline i64 row_at(const Place& at, int i) {
  return at.order ? (i64)at.order[i] : (i64)at.tile.first + i;
}
// By what the sums of a row are multiplied; not read for those of no expert.
__device__ inline S factor(const GroupedProduct& p, const Place& at, i64 row) {
#ifdef TP
  return at.own ? (S)widen(((const TP*)p.p)[row]) : S(0);
#else
  return 1;
#endif
}

#if !MMA
extern "C" __global__ void __launch_bounds__(kTileThreads) product(const GroupedProduct p) {
  const Place at = place_of(p);
  if (at.tile.count == 0) return;
  S acc[kTile / 16][kTile / 16] = {};
  const auto get_a = [&](int i, i64 k) {
    if (i >= at.tile.count || k >= p.k) return S(0);
    return (S)widen(at.a[(at.order ? (i64)at.order[i] : (i64)i) * p.k + k]);
  };
  const auto get_w = [&](int j, i64 k) {
    const i64 col = at.j + j;
    return col < p.n && k < p.k ? (S)widen(at.w[TRANS ? col * p.k + k : k * p.n + col]) : S(0);
  };
  fma_tile<S, kTile, true, (bool)TRANS>(get_a, get_w, at.own ? p.k : 0, acc);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int i = 0; i < kTile / 16; ++i) {
    const int of_tile = tile_at(i, ty);
    const bool real = of_tile < at.tile.count;
    const i64 row = real ? row_at(at, of_tile) : 0;
    const S by = real ? factor(p, at, row) : S(0);
    S dot = 0;
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) {
      const i64 col = at.j + tile_at(j, tx), to = row * p.n + col;
      if (!real || col >= p.n) continue;
#if DOT
      if (at.own) dot += acc[i][j] * (S)widen(p.x[to]);
#endif
#if STORE
      p.y[to] = narrow<T>(at.own ? acc[i][j] * by : S(0));
#endif
    }
#if DOT
#pragma unroll
    for (int d = 8; d > 0; d /= 2) dot += __shfl_xor_sync(~0u, dot, d);
    if (real && tx == 0) p.dots[row * p.tiles_n + at.tile_j] = dot;
#endif
  }
}
#elif __CUDA_ARCH__ >= 800
constexpr int kDotsPerTile = 4;  // one of each warp along the columns
extern "C" __global__ void __launch_bounds__(kTileThreads, 2) product(const GroupedProduct p) {
  extern __shared__ __align__(16) u8 smem[];
  const Place at = place_of(p);
  if (at.tile.count == 0) return;
  const Rows<T> a{at.a, p.k, at.tile.count, p.k, at.order};
  const Rows<T> w{at.w, TRANS ? p.k : p.n, TRANS ? p.n : p.k, TRANS ? p.k : p.n, nullptr};
  Walk<kTile, true, T> walk_a(a, 0);
  Walk<kTile, (bool)TRANS, T> walk_w(w, at.j);
  MmaAcc<kTile> acc = {};
  mma_tile<kTile, true, (bool)TRANS, (bool)WIDE>(walk_a, 0, walk_w, at.j, at.own ? p.k : 0,
                                                 (T*)smem, acc);
  const bool pairs = p.n % 2 == 0;
#pragma unroll
  for (int i = 0; i < kTile / 32; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of_tile = acc.row(i, half);
      const bool real = of_tile < at.tile.count;
      const i64 row = real ? row_at(at, of_tile) : 0;
      const S by = real ? factor(p, at, row) : S(0);
      S dot = 0;
#pragma unroll
      for (int j = 0; j < kTile / 32; ++j) {
        const i64 col = at.j + acc.col(j), to = row * p.n + col;
        if (!real || col >= p.n) continue;
        const bool both = col + 1 < p.n;
        const S u = acc.v[i][j][half * 2], v = acc.v[i][j][half * 2 + 1];
#if DOT
        if (at.own) dot += u * widen(p.x[to]) + (both ? v * widen(p.x[to + 1]) : S(0));
#endif
#if STORE
        Vec<T, 2> pair;
        pair.v[0] = narrow<T>(at.own ? u * by : S(0));
        pair.v[1] = narrow<T>(at.own ? v * by : S(0));
        if (pairs) {
          store(p.y + to, pair);
        } else {
          p.y[to] = pair.v[0];
          if (both) p.y[to + 1] = pair.v[1];
        }
#endif
      }
#if DOT
      dot += __shfl_xor_sync(~0u, dot, 1);
      dot += __shfl_xor_sync(~0u, dot, 2);
      if (real && threadIdx.x % 4 == 0)
        p.dots[(row * p.tiles_n + at.tile_j) * kDotsPerTile + threadIdx.x / 32 % 4] = dot;
#endif
    }
}
#endif
