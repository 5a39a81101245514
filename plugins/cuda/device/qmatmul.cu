// SPDX-License-Identifier: Apache-2.0
// Products of matrices of 8-bit integers on tensor cores (from sm_80 on), by tiles of TILE_M columns
// by 128 rows of y. Both operands have their terms side by side, in rows of whole pieces of 16 bytes:
// a row of `a` is one of y, a row of `b` a column. finish adds up the sums of splits.
// Defines: WARPGROUPS, TILE_M, SPLIT (sums go to parts), COLUMNS (b has zero points: rows of a are
// summed), YW (elements of y that are stored at once), and those of quantized_ends.cuh, where x is a
// and w is b.
//variant: TYPE=u8 FILTER=i8 RESULT=u8 MMA=1 WARPGROUPS=1 TILE_M=128 SPLIT=0 COLUMNS=0 YW=8
//variant: TYPE=i8 FILTER=u8 RESULT=i32 MMA=1 WARPGROUPS=0 TILE_M=64 SPLIT=0 COLUMNS=1 YW=4
//variant: TYPE=u8 FILTER=u8 RESULT=i8 MMA=1 WARPGROUPS=1 TILE_M=64 SPLIT=1 COLUMNS=0 YW=1
//variant: TYPE=i8 FILTER=i8 RESULT=i8 MMA=1 WARPGROUPS=0 TILE_M=128 SPLIT=1 COLUMNS=1 YW=8
//entry: byte_product = product(ByteProduct)
//entry: byte_finish = finish_sums(const u32*, QuantizedEnds, ByteFinish)
#include "quantized_ends.cuh"

#if __CUDA_ARCH__ >= 800
struct Place {
  i64 batch, a, b;  // a, b: in matrices
  u32 row, column, split;
};
// Tiles go in bands of columns, so that what is read stays in L2.
__device__ inline Place place_of(const ByteProduct& p) {
  constexpr u32 kBand = 8;
  const u32 tiles = p.tiles_m * p.tiles_n, t = blockIdx.x % tiles, rest = blockIdx.x / tiles;
  const u32 band = t / (kBand * p.tiles_m), within = t % (kBand * p.tiles_m);
  const u32 columns = min(kBand, p.tiles_n - band * kBand);
  Place at{rest / p.splits,
           0,
           0,
           within / columns * kColumns,
           (band * kBand + within % columns) * TILE_M,
           rest % p.splits};
  i64 batch = at.batch;
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const i64 index = batch % p.batch_dims[d];
    batch /= p.batch_dims[d];
    at.a += index * p.a_steps[d], at.b += index * p.b_steps[d];
  }
  return at;
}

// Every 32nd row of a tile, in pieces.
struct Source {
  const u8* from;
  u32 rows;  // that are there, from the thread's first on
  i64 step;
  __device__ Source(const void* matrices, i64 matrix, u32 rows_of_all, u32 first, u32 pieces,
                    u32 piece) {
    const u32 row = first + threadIdx.x / 8;
    rows = rows_of_all > row ? rows_of_all - row : 0;
    from = (const u8*)matrices + ((matrix * rows_of_all + (rows ? row : 0)) * pieces + piece) * 16;
    step = (i64)pieces * (32 * 16);
  }
  template <int LOADS>
  __device__ __forceinline__ void bring(u32 to, u32 step_at, bool real) const {
#pragma unroll
    for (u32 i = 0; i < LOADS; ++i) {
      const bool valid = real && i * 32 < rows;
      copy_async(to + i * 32 * 128, valid ? from + i * step + step_at * 128 : from, valid);
    }
  }
};

#if COLUMNS
typedef ByteSums<TILE_M, false, true> Tile;
#else
typedef TileSums<TILE_M, S> Tile;
#endif
extern "C" __global__ void __launch_bounds__(256, Tile::kBlocks) product(const ByteProduct p) {
  extern __shared__ __align__(1024) u8 smem[];
  const Place at = place_of(p);
  const u32 begin = min(at.split * p.split_pieces, p.pieces),
            end = min(begin + p.split_pieces, p.pieces);
  const u32 own = begin + threadIdx.x % 8;  // the thread's piece of the first step
  const Source left(p.b, at.b, p.n, at.column, p.pieces, min(own, p.pieces - 1)),
      right(p.a, at.a, p.m, at.row, p.pieces, min(own, p.pieces - 1));
  const u32 place = piece_by_k(threadIdx.x / 8, threadIdx.x % 8 * 8);
  Tile sums;
  sum_stages<TILE_M, true, true, T>(sums, shared_address(smem), (int)((end - begin + 7) / 8),
                                    [&](int step, u32 left_stage, u32 right_stage) {
                                      const bool real = own + (u32)step * 8 < end;
                                      left.bring<TILE_M / 32>(left_stage + place, (u32)step, real);
                                      right.bring<kColumns / 32>(right_stage + place, (u32)step,
                                                                 real);
                                    });
  // Through shared memory, so that neighbouring columns of y are stored together.
  constexpr int kPitch = TILE_M + 4;
  S* const tile = (S*)smem;
  __syncthreads();
  sums.each([&](int i, int j, S first, S second) {
    tile[j * kPitch + i] = first, tile[(j + 1) * kPitch + i] = second;
  });
#if COLUMNS
  S* const rows = tile + kColumns * kPitch;
  sums.each_column([&](int j, S first, S second) { rows[j] = first, rows[j + 1] = second; });
#endif
  __syncthreads();
  constexpr int kAcross = TILE_M / YW, kDown = 256 / kAcross;
  const u32 i = threadIdx.x % kAcross * YW, column = at.column + i;
  if (column >= p.n) return;
  QuantizedEnds own_ends = p.ends;
  if (own_ends.w_sums) own_ends.w_sums += at.b * p.n;
#if COLUMNS
  u32 zeros[YW];
#pragma unroll
  for (int k = 0; k < YW; ++k) zeros[k] = w_zero_of(own_ends, column + k);
#endif
#if SPLIT
  // What finish_sums does not know: it sees no matrices.
  u32 first[YW] = {};
#pragma unroll
  for (int k = 0; k < YW; ++k)
    if (at.split == 0) first[k] = zero_terms(own_ends, column + k);
#else
  const ResultEnds result(own_ends);
  ChannelEnds ends[YW];
#pragma unroll
  for (int k = 0; k < YW; ++k) ends[k] = ChannelEnds(own_ends, column + k);
#endif
  for (u32 j = threadIdx.x / kAcross; j < kColumns && at.row + j < p.m; j += kDown) {
    Vec<S, YW> v = load<S, YW>(tile + j * kPitch + i);
    const i64 to = (at.batch * p.m + at.row + j) * p.n + column;
#if COLUMNS
#pragma unroll
    for (int k = 0; k < YW; ++k) v.v[k] -= zeros[k] * rows[j];
#endif
#if SPLIT
#pragma unroll
    for (int k = 0; k < YW; ++k) v.v[k] += first[k];
    store(p.parts + at.split * p.count + to, v);
#else
    Vec<Y, YW> y;
#pragma unroll
    for (int k = 0; k < YW; ++k) y.v[k] = result(v.v[k], ends[k]);
    store((Y*)p.ends.y + to, y);
#endif
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    finish_sums(const u32* parts, const QuantizedEnds ends, const ByteFinish s) {
  const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * YW;
  if (at >= s.count) return;
  Vec<S, YW> sums = {};
  for (u32 k = 0; k < s.splits; ++k) {
    const Vec<S, YW> v = load<S, YW>(parts + k * s.count + at);
#pragma unroll
    for (int e = 0; e < YW; ++e) sums.v[e] += v.v[e];
  }
  const u32 column = (u32)(at % s.n);
  const ResultEnds result(ends);
  Vec<Y, YW> y;
#pragma unroll
  for (int e = 0; e < YW; ++e) y.v[e] = result(sums.v[e], ChannelEnds(ends, column + e));
  store((Y*)ends.y + at, y);
}
