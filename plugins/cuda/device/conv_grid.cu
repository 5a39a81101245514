// SPDX-License-Identifier: Apache-2.0
// Copies images to grids of positions (conv.args.cuh): the channels of a position lie side by side.
// Also orders filters. The first blocks make 256 pieces of filters each. Of each grid, some move 64
// pixels of 64 channels each, the others clear positions that are padding, 256 each.
// Defines: XW (pixels that are read at once).
//variant: XW=8
//variant: XW=1
//entry: conv_grid = fill(ConvFill)
#include "common.cuh"
#include "conv_filters.cuh"

constexpr int kPixels = 64, kChannels = 64, kPieces = kChannels / 8;

__device__ __forceinline__ void move_tile(const u16* x, u16* y, const ConvGrid& g, u32 tile) {
  constexpr int kPitch = kChannels + 2;
  __shared__ __align__(16) u16 pixels[kPixels * kPitch];
  const u32 channel0 = tile % g.channel_tiles * kChannels;
  tile /= g.channel_tiles;
  const u32 pixel0 = tile % g.pixel_tiles * kPixels, image = tile / g.pixel_tiles;
  const u32 plane = (u32)(g.rows * g.columns);
  x += (i64)image * g.channels * plane;
#pragma unroll
  for (int e = threadIdx.x; e < kChannels * kPixels / XW; e += 256) {
    const u32 c = channel0 + e / (kPixels / XW), pixel = e % (kPixels / XW) * XW;
    Vec<u16, XW> v = {};
    if (c < g.channels && pixel0 + pixel < plane)
      v = load<u16, XW>(x + (i64)c * plane + pixel0 + pixel);
#pragma unroll
    for (int k = 0; k < XW; ++k) pixels[(pixel + k) * kPitch + (c - channel0)] = v.v[k];
  }
  __syncthreads();
#pragma unroll
  for (int e = threadIdx.x; e < kPixels * kPieces; e += 256) {
    const u32 pixel = e / kPieces, c = e % kPieces * 8, own = pixel0 + pixel;
    if (own >= plane || channel0 + c >= g.padded) continue;
    const u32 row = g.by_row.quotient(own);
    const i32 down = (i32)row - g.row0, across = (i32)(own - row * g.by_row.value) - g.column0;
    const i32 r = down / g.step, s = across / g.step;
    // Pixels that no window reads have no position.
    if (down < 0 || across < 0 || s >= (i32)g.by_line.value ||
        r * (i32)g.by_line.value >= (i32)g.by_image.value)
      continue;
    const u32 part = (u32)((down - r * g.step) * g.step + across - s * g.step);
    const i64 position =
        (i64)part * g.positions + image * g.by_image.value + (u32)r * g.by_line.value + (u32)s;
    Vec<u16, 8> v;
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
      const Vec<u16, 2> two = load<u16, 2>(pixels + pixel * kPitch + c + k);
      v.v[k] = two.v[0], v.v[k + 1] = two.v[1];
    }
    store(y + position * g.padded + channel0 + c, v);
  }
}

__device__ __forceinline__ void clear_padding(u16* y, const ConvGrid& g, u32 at) {
  const u32 parts = (u32)(g.step * g.step);
  if (at >= parts * g.positions) return;
  const u32 part = at / g.positions, position = at - part * g.positions;
  const u32 image = g.by_image.quotient(position), rest = position - image * g.by_image.value;
  const u32 r = g.by_line.quotient(rest), s = rest - r * g.by_line.value;
  const i32 row = (i32)(r * (u32)g.step + part / (u32)g.step) + g.row0,
            column = (i32)(s * (u32)g.step + part % (u32)g.step) + g.column0;
  if (image < g.batch && (u32)row < (u32)g.rows && (u32)column < (u32)g.columns) return;
  for (u32 c = 0; c < g.padded; c += 8) store(y + (i64)at * g.padded + c, Vec<u16, 8>{});
}

// A block's part of the work for one grid, or how many blocks are left to others.
__device__ __forceinline__ bool fill_images(const ConvGridImages& images, u32& block) {
  const ConvGrid& g = images.grid;
  const u32 tiles = g.batch * g.pixel_tiles * g.channel_tiles,
            positions = (u32)(g.step * g.step) * g.positions, all = tiles + (positions + 255) / 256;
  if (block >= all) {
    block -= all;
    return false;
  }
  if (block < tiles)
    move_tile((const u16*)images.x, (u16*)images.y, g, block);
  else
    clear_padding((u16*)images.y, g, (block - tiles) * 256 + threadIdx.x);
  return true;
}

extern "C" __global__ void __launch_bounds__(256) fill(const __grid_constant__ ConvFill p) {
  begin_early();
  u32 block = blockIdx.x;
  const u32 pieces = (u32)((p.filters.count + 8 * 256 - 1) / (8 * 256));
  if (block < pieces) {
    order_filters<false>((const u16*)p.w, (u16*)p.ordered, p.filters,
                         (i64)block * 256 + threadIdx.x);
    return;
  }
  block -= pieces;
  if (!fill_images(p.images[0], block)) fill_images(p.images[1], block);
}
