// SPDX-License-Identifier: Apache-2.0
// One stage of reduce: [outer, n, inner] -> [outer, pieces, inner], by rows (inner 1) or columns.
// TYPE; KIND; FIRST: reads T, else partial results; LAST: writes T, else partial results. MEAN, ROOT: what
// LAST does to the sum. LANES: of a row. VEC: elements of a thread in columns.
//variant: TYPE=f32 KIND=sum FIRST=1 LAST=1 MEAN=1 ROOT=0 LANES=256 VEC=4
//variant: TYPE=bf16 KIND=logsumexp FIRST=1 LAST=0 MEAN=0 ROOT=0 LANES=32 VEC=8
//variant: TYPE=f64 KIND=sum_square FIRST=0 LAST=1 MEAN=0 ROOT=1 LANES=1 VEC=1
//variant: TYPE=i8 KIND=max FIRST=1 LAST=1 MEAN=0 ROOT=0 LANES=8 VEC=16
//variant: TYPE=u64 KIND=prod FIRST=1 LAST=1 MEAN=1 ROOT=0 LANES=8 VEC=2
//variant: TYPE=b8 KIND=any FIRST=1 LAST=1 MEAN=0 ROOT=0 LANES=32 VEC=16
#include "reduce.cuh"

#if FIRST
typedef T In;
#else
typedef Partial In;
#endif
template <int N>
__device__ inline void take_in(Partial& p, const Vec<In, N>& x) {
#if FIRST
  Kind::take_terms(p, x);
#else
#pragma unroll
  for (int k = 0; k < N; ++k) p = Kind()(p, x.v[k]);
#endif
}

typedef ReduceStage Stage;

extern "C" __global__ void __launch_bounds__(Group<LANES>::threads)
    rows(const In* x, Result* y, const Stage s) {
  begin_early();
  const i64 at = Group<LANES>::index();
  Partial p = Kind::identity();
  if (at < s.outer * s.pieces) {
    const i64 row = at / s.pieces, from = at % s.pieces * s.piece;
    for_line<LANES>(x + row * s.n + from, (u32)min(s.piece, s.n - from), 1,
                    [&](const auto& v, u32) { take_in(p, v); });
  }
  p = join_lanes<LANES>(p, Kind());
  if (at < s.outer * s.pieces && Group<LANES>::lane() == 0) y[at] = result(p, s.count);
}

// A block: `across` threads side by side, the others below them. across: a power of two, at most 32.
extern "C" __global__ void __launch_bounds__(256)
    columns(const In* x, Result* y, const Stage s, u32 across) {
  begin_early();
  const u32 c = threadIdx.x % across, r = threadIdx.x / across, down = 256 / across;
  const i64 tiles = (s.inner / VEC + across - 1) / across;
  const i64 tile = blockIdx.x % tiles, block = blockIdx.x / tiles;
  const i64 column = (tile * across + c) * VEC;
  const i64 from = block % s.pieces * s.piece, rows = min(s.piece, s.n - from);
  Partial p[VEC];
#pragma unroll
  for (int k = 0; k < VEC; ++k) p[k] = Kind::identity();
  if (column < s.inner) {
    const In* at = x + (block / s.pieces * s.n + from) * s.inner + column;
    constexpr int ahead = 4;
    for (i64 i = r; i < rows; i += ahead * down) {
      Vec<In, VEC> v[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * down < rows) v[u] = load<In, VEC>(at + (i + u * down) * s.inner);
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * down < rows)
#pragma unroll
          for (int k = 0; k < VEC; ++k) take_in(p[k], Vec<In, 1>{{v[u].v[k]}});
    }
  }
  join_columns(p, across);
  if (r > 0 || column >= s.inner) return;
#pragma unroll
  for (int k = 0; k < VEC; ++k)
    y[block * s.inner + column + k] = result(p[k], s.count);
}
