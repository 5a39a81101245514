//variant: TYPE=f32 CHANNELS=3
// SPDX-License-Identifier: Apache-2.0
// What both directions of splat_rasterize share: Gaussians ready for the pixels, and the entries of a
// tile in shared memory. A block has 16 x 16 pixels, a warp of it 8 x 4. TYPE; CHANNELS 1 to 32.
#pragma once
#include "rows.cuh"
#include "splat.args.cuh"

typedef TYPE T;
constexpr int kSide = 16, kThreads = kSide * kSide, kWarps = kThreads / 32;
constexpr int kWarpWidth = 8, kWarpHeight = 4;
constexpr T kMostAlpha = (T)0.999, kLeastAlpha = (T)(1.0 / 255), kLeastLight = (T)1e-4;

// A Gaussian in an image. With d the way from a pixel to the mean, the power of 2 by which it falls is
//   u (square u + mixed dy) + rest dy², u = dx + ratio dy.
// If a > 0: ratio = b/a and rest ~ det/2a, which does not cancel for thin ellipses, and mixed is 0.
// Otherwise ratio is 0.
struct alignas(16) Pair {
  f64 ratio;
  T x, y;
  T square, mixed, rest;
  T opacity;
  T reach;           // a larger power makes alpha too small; negative: every power does
  T half_x, half_y;  // no pixel passes beyond this distance from the mean
};
static_assert(sizeof(Pair) == (sizeof(T) == 4 ? 48 : 80), "what kernels/splat.cpp asks for");

__device__ inline Pair pair_of(const SplatScene& s, i64 at) {
  const T* const mean = static_cast<const T*>(s.means2d) + 2 * at;
  const T* const conic = static_cast<const T*>(s.conics) + 3 * at;
  const T opacity = static_cast<const T*>(s.opacities)[at % s.points];
  const T inf = infinity<T>();
  constexpr f64 kLog2e = 1.4426950408889634;
  const f64 a = conic[0], b = conic[1], c = conic[2];
  Pair p;
  p.x = mean[0], p.y = mean[1], p.opacity = opacity;
  p.ratio = 0, p.reach = -1, p.half_x = inf, p.half_y = inf;
  p.square = (T)(a * (kLog2e / 2)), p.mixed = (T)(b * kLog2e), p.rest = (T)(c * (kLog2e / 2));
  if (!(opacity > 0) || !(opacity < inf)) return p;
  // A little more than log2(255 opacity), because powers are rounded.
  const f64 reach = log2(255.0 * (f64)opacity) + 1.5e-3;
  p.reach = (T)reach;
  if (!(a > 0)) return p;
  // a c - b² with the rounding error of b² added.
  const f64 square = b * b, error = fma(-b, b, square);
  const f64 det = fma(a, c, -square) + error;
  p.ratio = b / a;
  p.mixed = 0;
  p.rest = (T)(det / a * (kLog2e / 2));
  if (det > 0 && reach > 0) {
    const f64 factor = reach * (2 / kLog2e) / det;
    p.half_x = (T)(sqrt(factor * c) * (1 + 1e-5)), p.half_y = (T)(sqrt(factor * a) * (1 + 1e-5));
    if (p.half_x != p.half_x) p.half_x = inf;
    if (p.half_y != p.half_y) p.half_y = inf;
  }
  return p;
}

// The part of a tile that a block has.
struct Area {
  i64 image, tile;    // tile: of all images
  i32 x, y;           // the first pixel, in the image
  i32 columns, rows;  // of the area that belong to the tile and the image
};
// Blocks of a tile along an axis.
__device__ inline i32 areas_along(const SplatScene& s) { return (s.size + kSide - 1) / kSide; }
__device__ inline Area area_of(const SplatScene& s, i64 tile, i32 part) {
  const i64 each = s.rows * s.columns, place = tile % each;
  const i32 along = areas_along(s), left = part % along * kSide, top = part / along * kSide;
  Area a;
  a.image = tile / each, a.tile = tile;
  a.x = (i32)(place % s.columns) * s.size + left, a.y = (i32)(place / s.columns) * s.size + top;
  a.columns = (i32)min((i64)min(s.size - left, kSide), s.width - a.x);
  a.rows = (i32)min((i64)min(s.size - top, kSide), s.height - a.y);
  return a;
}
// A thread's pixel.
struct Pixel {
  i32 x, y;  // in the area
  bool real;
  i64 at;  // in the planes of all images
};
__device__ inline Pixel pixel_of(const SplatScene& s, const Area& a) {
  const i32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Pixel p;
  p.x = warp % 2 * kWarpWidth + lane % kWarpWidth, p.y = warp / 2 * kWarpHeight + lane / kWarpWidth;
  p.real = p.x < a.columns && p.y < a.rows;
  p.at = (a.image * s.height + a.y + p.y) * s.width + a.x + p.x;
  return p;
}

// The entries of a tile. Bad offsets were reported; no entry beyond the list is read.
struct Range {
  u32 begin, end;
};
__device__ inline Range range_of(const SplatScene& s, i64 tile) {
  const i32 used = *s.used;
  const bool last = tile + 1 == s.images * s.rows * s.columns;
  Range r;
  r.begin = (u32)max(s.offsets[tile], 0);
  r.end = (u32)max(min(last ? used : s.offsets[tile + 1], used), 0);
  return r;
}

// An entry as the pixels of an area read it: u and dy at the area's first pixel.
struct alignas(16) Staged {
  T u, dy, ratio, square, mixed, rest, opacity, reach;
};
constexpr int kColors = CHANNELS == 3 ? 4 : CHANNELS;  // of an entry in shared memory
constexpr int kEntryBytes = (int)sizeof(Staged) + kColors * (int)sizeof(T) + 1;
constexpr int batch_in(int bytes) {
  return kEntryBytes * 256 <= bytes ? 256 : kEntryBytes * 128 <= bytes ? 128 : 64;
}

template <int N>
struct BatchOf {
  Staged entry[N];
  alignas(16) T color[N][kColors];
  u8 warps[N];  // a bit for each warp that an entry may reach
};

// Puts entry `place` of those before `end` at `to`. The distances are computed in f64: they cancel for
// thin ellipses.
template <int N>
__device__ inline void stage(const SplatScene& s, const Area& a, u32 place, u32 end,
                             BatchOf<N>& batch, int to) {
  batch.warps[to] = 0;
  if (place >= end) return;
  const i32 id = s.ids[place];
  if (id < 0 || id >= s.images * s.points) return;
  const Pair p = static_cast<const Pair*>(s.prepared)[id];
  if (!(p.reach >= 0)) return;
  const f64 dx = (f64)p.x - (a.x + 0.5), dy = (f64)p.y - (a.y + 0.5);
  const T near_x = (T)dx, near_y = (T)dy;
  u32 warps = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const T left = w % 2 * kWarpWidth, top = w / 2 * kWarpHeight;
    const bool meets = near_x + p.half_x >= left - (T)0.01 &&
                       near_x - p.half_x <= left + (kWarpWidth - 1 + (T)0.01) &&
                       near_y + p.half_y >= top - (T)0.01 &&
                       near_y - p.half_y <= top + (kWarpHeight - 1 + (T)0.01);
    warps |= (u32)meets << w;
  }
  if (warps == 0) return;
  batch.warps[to] = (u8)warps;
  batch.entry[to] = {
      (T)(dx + p.ratio * dy), near_y, (T)p.ratio, p.square, p.mixed, p.rest, p.opacity, p.reach};
  const T* const color = static_cast<const T*>(s.colors) + (i64)id * CHANNELS;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) batch.color[to][c] = color[c];
}

__device__ inline f32 power_of_two(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f64 power_of_two(f64 x) { return exp2(x); }

// An entry in a pixel.
struct Seen {
  T dy, u, raw;  // raw: opacity · 2^-power
  bool passes;   // it is blended, unless the pixel is full
};
__device__ inline Seen see(const Staged& e, T x, T y) {
  Seen v;
  v.dy = e.dy - y;
  v.u = fma(-e.ratio, y, e.u - x);
  const T power = fma(v.u, fma(e.square, v.u, e.mixed * v.dy), e.rest * v.dy * v.dy);
  v.raw = 0;
  v.passes = false;
  if (power >= 0 && power <= e.reach) {
    v.raw = e.opacity * power_of_two(-power);
    v.passes = v.raw >= kLeastAlpha;
  }
  return v;
}
