// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of a convolution as a product: rows are the channels of dy, columns the
// taps and channels of x, terms the windows of all images. A block makes a tile of one group and of
// one part of the windows.
// MMA: on tensor cores. Columns are ordered by tap, then by channel, in pieces of 8. Both operands
// have the channels of a pixel side by side, or, with POINT (windows of one pixel), lie as they are:
// XW windows are moved at once. Else in FMAs, columns by channel, then by tap.
// Defines: TYPE, MMA, WARPGROUPS, POINT, XW, TILE_M (of a tile).
//variant: TYPE=bf16 MMA=1 WARPGROUPS=1 POINT=0 XW=8 TILE_M=128
//variant: TYPE=f16 MMA=1 WARPGROUPS=0 POINT=0 XW=8 TILE_M=64
//variant: TYPE=f16 MMA=1 WARPGROUPS=1 POINT=1 XW=8 TILE_M=128
//variant: TYPE=bf16 MMA=1 WARPGROUPS=0 POINT=1 XW=4 TILE_M=64
//variant: TYPE=bf16 MMA=1 WARPGROUPS=1 POINT=1 XW=4 TILE_M=64
//variant: TYPE=f32 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=128
//variant: TYPE=f64 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=64
//entry: conv_weight_sums = sums(ConvWeightSums)
#include "conv.cuh"
#include "conv_tile.cuh"

typedef TYPE T;
typedef acc_t<T> S;

struct Block {
  u32 group, column, begin, end, windows;  // windows: of all images
  i32 row;
  S* parts;  // of the block's first row
};
__device__ inline Block block_of(const ConvWeightSums& p, u32 columns) {
  Block b;
  u32 at = blockIdx.x;
  b.row = (i32)(at % p.tiles_m * TILE_M), at /= p.tiles_m;
  b.column = at % p.tiles_n * columns, at /= p.tiles_n;
  const u32 split = at % p.splits;
  b.group = at / p.splits;
  b.windows = (u32)p.shape.batch * p.windows.value;
  b.begin = min(split * p.split_terms, b.windows);
  b.end = min(b.begin + p.split_terms, b.windows);
  b.parts = (S*)p.parts + (((i64)split * p.shape.groups + b.group) * p.shape.m + b.row) * p.columns;
  return b;
}
// The window's first pixel along each axis, and its image.
struct Corner {
  u32 image, window;
  i32 at[3];
};
__device__ __forceinline__ Corner corner_of(const ConvWeightSums& p, u32 term) {
  Corner c;
  c.image = p.windows.quotient(term);
  c.window = term - c.image * p.windows.value;
  const u32 o0 = p.rows.quotient(c.window), rest = c.window - o0 * p.rows.value,
            o1 = p.lines.quotient(rest);
  const u32 o[3] = {o0, o1, rest - o1 * p.lines.value};
#pragma unroll
  for (int a = 0; a < 3; ++a) c.at[a] = (i32)o[a] * p.shape.axes[a].stride - p.shape.axes[a].before;
  return c;
}
// The same, with its pixel among those of all images.
struct alignas(16) Place {
  u32 from;
  i32 at[3];
};
struct Offsets {
  i32 d[3];
};
__device__ __forceinline__ Offsets offsets_of(const ConvWeightSums& p, u32 tap) {
  const u32 k0 = p.by_line.quotient(tap), rest = tap - k0 * p.by_line.value,
            k1 = p.by_tap.quotient(rest);
  return {{(i32)k0 * p.shape.axes[0].dilation, (i32)k1 * p.shape.axes[1].dilation,
           (i32)(rest - k1 * p.by_tap.value) * p.shape.axes[2].dilation}};
}

#if !MMA
#if !POINT
extern "C" __global__ void __launch_bounds__(kTileThreads) sums(const ConvWeightSums p) {
  constexpr int kTile = TILE_M;
  const Block b = block_of(p, kTile);
  const ConvShape& s = p.shape;
  const i64 pixels = (i64)s.axes[0].in * s.axes[1].in * s.axes[2].in;
  const T *const dy = (const T*)p.dy, *const x = (const T*)p.x;
  // All terms that a thread brings at once are of one window.
  const auto get_a = [&](int i, i64 k) {
    const u32 term = b.begin + (u32)k;
    const i32 row = b.row + i;
    if (term >= b.end || row >= s.m) return S(0);
    const u32 image = p.windows.quotient(term), window = term - image * p.windows.value;
    return (S)widen(dy[(((i64)image * s.groups + b.group) * s.m + row) * p.windows.value + window]);
  };
  const auto get_b = [&](int j, i64 k) {
    const u32 term = b.begin + (u32)k, column = b.column + (u32)j;
    if (term >= b.end || column >= p.columns) return S(0);
    const Corner corner = corner_of(p, term);
    const u32 c = p.by_taps.quotient(column);
    const Offsets tap = offsets_of(p, column - c * p.by_taps.value);
    i64 from = 0;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const i32 i = corner.at[a] + tap.d[a];
      inside &= (u32)i < (u32)s.axes[a].in;
      from = from * s.axes[a].in + i;
    }
    if (!inside) return S(0);
    return (S)widen(x[(((i64)corner.image * s.groups + b.group) * s.c + c) * pixels + from]);
  };
  S acc[kTile / 16][kTile / 16] = {};
  fma_tile<S, kTile, true, true>(get_a, get_b, b.end - b.begin, acc);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < kTile / 16; ++i) {
    const int row = tile_at(i, ty);
    if (b.row + row >= s.m) continue;
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) {
      const u32 column = b.column + tile_at(j, tx);
      if (column < p.columns) b.parts[(i64)row * p.columns + column] = acc[i][j];
    }
  }
}
#endif
#elif __CUDA_ARCH__ >= 800
#if POINT
// 8 windows of every 32nd channel of an image.
template <int ROWS_OF>
__device__ __forceinline__ void bring_channels(const ConvWeightSums& p, const Block& b, u32 stage,
                                               const T* base, i32 channels, i32 first, u32 term) {
  const int row = threadIdx.x / 8;
  const u32 to = stage + piece_by_k(row, threadIdx.x % 8 * 8);
#pragma unroll
  for (int k = 0; k < 8 / XW; ++k) {
    const u32 own = term + threadIdx.x % 8 * 8 + k * XW;
    const bool real = own < b.end;
    const u32 image = real ? p.windows.quotient(own) : 0;
    const T* const from =
        base +
        (((i64)image * p.shape.groups + b.group) * channels + first + row) * p.windows.value +
        (own - image * p.windows.value);
#pragma unroll
    for (int i = 0; i < ROWS_OF / 32; ++i) {
      const bool inside = real && first + row + i * 32 < channels;
      const T* const at = inside ? from + (i64)i * 32 * p.windows.value : base;
      if (XW == 8)
        copy_async(to + i * 32 * 128, at, inside);
      else
        copy_half_async(to + i * 32 * 128 + k * 8, at, inside);
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256, TILE_M == 128 || !WARPGROUPS ? 2 : 3)
    sums(const ConvWeightSums p) {
  extern __shared__ __align__(1024) u8 smem[];
  const Block b = block_of(p, kColumns);
  const ConvShape& s = p.shape;
  const T *const dy = (const T*)p.dy, *const x = (const T*)p.x;
  const int steps = (int)((b.end - b.begin + kDepth - 1) / kDepth);
  TileSums<TILE_M> sums;
#if POINT
  sum_stages<TILE_M, true, true, T>(
      sums, shared_address(smem), steps, [&](int step, u32 left, u32 right) {
        const u32 term = b.begin + (u32)step * kDepth;
        bring_channels<TILE_M>(p, b, left, dy, s.m, b.row, term);
        bring_channels<kColumns>(p, b, right, x, s.c, (i32)b.column, term);
      });
#else
  // A thread brings one piece of 8 channels, of one tap, of every few windows.
  constexpr int kLeftPieces = TILE_M / 8, kLeftRows = 256 / kLeftPieces, kRightRows = 16;
  const u32 left_row = threadIdx.x / kLeftPieces, left_piece = threadIdx.x % kLeftPieces;
  const u32 right_row = threadIdx.x / 16, right_piece = threadIdx.x % 16;
  const bool left_real = b.row / 8 + (i32)left_piece < p.m_pieces;
  const u32 column = b.column / 8 + right_piece, tap = column / (u32)p.c_pieces,
            piece = column - tap * (u32)p.c_pieces;
  const bool right_real = column * 8 < p.columns;
  const Offsets offsets = offsets_of(p, right_real ? tap : 0);
  const u32 dy_row = (u32)(s.groups * p.m_pieces), x_row = (u32)(s.groups * p.c_pieces);
  const u32 dy_at = b.group * (u32)p.m_pieces + (u32)b.row / 8 + left_piece;
  u32 offset = 0;  // of the thread's tap, in pixels
#pragma unroll
  for (int a = 0; a < 3; ++a) offset = offset * (u32)s.axes[a].in + (u32)offsets.d[a];
  const u32 x_at = offset * x_row + b.group * (u32)p.c_pieces + piece;
  constexpr int kLists = kStages + 1;
  // The windows of a stage are listed one stage before they are needed.
  Place* const places = (Place*)(smem + p.corners_at);
  const auto list = [&](int step, u32 k) {
    const Corner corner = corner_of(p, b.begin + (u32)step * kDepth + k);
    Place place;
    place.from = corner.image;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      place.at[a] = corner.at[a];
      place.from = place.from * (u32)s.axes[a].in + (u32)corner.at[a];
    }
    places[step % kLists * kDepth + k] = place;
  };
  if (threadIdx.x < kStages * kDepth) list((int)threadIdx.x / kDepth, threadIdx.x % kDepth);
  __syncthreads();
  sum_stages<TILE_M, false, false, T>(
      sums, shared_address(smem), steps, [&](int step, u32 left, u32 right) {
        const u32 term = b.begin + (u32)step * kDepth;
        if (step + 1 >= kStages && threadIdx.x < kDepth) list(step + 1, threadIdx.x);
#pragma unroll
        for (int i = 0; i < kDepth; i += kLeftRows) {
          const u32 own = term + left_row + i;
          copy_async(left + piece_across((int)left_row + i, (int)left_piece * 8),
                     dy + (i64)(own * dy_row + dy_at) * 8, left_real && own < b.end);
        }
#pragma unroll
        for (int i = 0; i < kDepth; i += kRightRows) {
          const Place place = places[step % kLists * kDepth + right_row + i];
          bool inside = right_real && term + right_row + i < b.end;
#pragma unroll
          for (int a = 0; a < 3; ++a)
            inside &= (u32)(place.at[a] + offsets.d[a]) < (u32)s.axes[a].in;
          copy_async(right + piece_across((int)right_row + i, (int)right_piece * 8),
                     x + (i64)(u32)(place.from * x_row + x_at) * 8, inside);
        }
      });
#endif
  sums.each([&](int i, int j, f32 first, f32 second) {
    if (b.row + i < s.m && b.column + (u32)j < p.columns)
      store((f32*)b.parts + (i64)i * p.columns + b.column + j, Vec<f32, 2>{{first, second}});
  });
}
#endif
