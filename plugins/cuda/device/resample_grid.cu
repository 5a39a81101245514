// SPDX-License-Identifier: Apache-2.0
// grid_sample: a thread takes a point and some channels. MODE: 0 nearest, 1 linear, 2 cubic. PADDING: 0
// zeros, 1 border, 2 reflection. AXES: 2 or 3. GRID: the type of positions; CORNERS: align_corners.
//variant: TYPE=f32 GRID=f32 MODE=1 PADDING=0 CORNERS=0 AXES=2
//variant: TYPE=bf16 GRID=f32 MODE=2 PADDING=1 CORNERS=1 AXES=2
//variant: TYPE=f64 GRID=f64 MODE=0 PADDING=2 CORNERS=0 AXES=3
//variant: TYPE=f16 GRID=f16 MODE=2 PADDING=2 CORNERS=1 AXES=3
//entry: grid_sample = points(In, In, Out, GridShape)
#include "common.cuh"
#include "resample.args.cuh"

typedef TYPE T;
typedef acc_t<T> A;

constexpr int CHANNELS = 8;  // of a thread
constexpr int EACH = MODE == 0 ? 1 : MODE == 1 ? 2 : 4;

__device__ inline f32 whole_below(f32 v) { return floorf(v); }
__device__ inline f64 whole_below(f64 v) { return floor(v); }
__device__ inline f32 nearest(f32 v) { return rintf(v); }
__device__ inline f64 nearest(f64 v) { return rint(v); }
__device__ inline f32 rest_of(f32 a, f32 b) { return fmodf(a, b); }
__device__ inline f64 rest_of(f64 a, f64 b) { return fmod(a, b); }
__device__ inline f32 distance(f32 v) { return fabsf(v); }
__device__ inline f64 distance(f64 v) { return fabs(v); }

// Repeats an axis of `span` pixels from `low` on mirrored at its ends. NaN and infinities become low.
__device__ inline A reflected(A at, A low, A span) {
  if (span == A(0)) return 0;
  const A far = distance(at - low), rest = rest_of(far, span);
  const A flips = nearest((far - rest) / span);
  const bool even = rest_of(flips, A(2)) < A(1);
  const A inside = even ? rest + low : span + low - rest;
  return inside >= low ? inside : low;
}
// NaN becomes low.
__device__ inline A clipped(A at, A low, A high) { return at > low ? (at < high ? at : high) : low; }

struct AxisTaps {
  i64 at[EACH];
  A weight[EACH];  // 0 outside
};

__device__ inline A near_cubic(A r) { return (A(1.25) * r - A(2.25)) * r * r + A(1); }
__device__ inline A far_cubic(A r) {
  return ((A(-0.75) * r + A(3.75)) * r - A(6)) * r + A(3);
}

__device__ inline AxisTaps taps_of(A g, i32 pixels) {
  const A size = pixels, last = size - 1;
  const A low = CORNERS ? A(0) : A(-0.5), span = CORNERS ? last : size;
  A at = CORNERS ? (g + 1) * (last / 2) : ((g + 1) * size - 1) / 2;
  if (PADDING == 2) at = reflected(at, low, span);
  if (PADDING != 0 && MODE != 2) at = clipped(at, 0, last);
  // Beyond these positions, a cubic filter reads nothing but the edge.
  if (PADDING == 1 && MODE == 2) at = clipped(at, A(-2), last + 2);
  const A first = MODE == 0 ? nearest(at) : whole_below(at), r = at - first;
  AxisTaps t;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    A pixel = first + A(MODE == 2 ? k - 1 : k);
    if (PADDING == 2 && MODE == 2) pixel = reflected(pixel, low, span);
    if (PADDING != 0 && MODE == 2) pixel = clipped(pixel, 0, last);
    A weight = 1;
    if (MODE == 1) weight = k == 0 ? 1 - r : r;
    if (MODE == 2)
      weight = k == 0   ? far_cubic(r + 1)
               : k == 1 ? near_cubic(r)
               : k == 2 ? near_cubic(1 - r)
                        : far_cubic(2 - r);
    const bool inside = pixel >= A(0) && pixel <= last;
    t.at[k] = inside ? (i64)pixel : 0;
    t.weight[k] = inside ? weight : A(0);
  }
  return t;
}

extern "C" __global__ void __launch_bounds__(256)
    points(const T* __restrict__ x, const GRID* __restrict__ grid, T* __restrict__ y,
           const GridShape s) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  const i64 line = item / s.points, point = item - line * s.points;
  const i64 image = line / s.groups, channel = (line - image * s.groups) * CHANNELS;
  if (image >= s.images) return;
  const GRID* const g = grid + (image * s.points + point) * AXES;
  const AxisTaps w = taps_of((A)widen(g[0]), s.size[0]);
  const AxisTaps h = taps_of((A)widen(g[1]), s.size[1]);
#if AXES == 3
  const AxisTaps d = taps_of((A)widen(g[2]), s.size[2]);
#endif
  x += (image * s.channels + channel) * s.pixels;
  y += (image * s.channels + channel) * s.points + point;
  const i32 left = (i32)min((i64)CHANNELS, s.channels - channel);
  A total[CHANNELS] = {};
#pragma unroll
  for (int i = 0; i < (AXES == 3 ? EACH : 1); ++i)
#pragma unroll
    for (int j = 0; j < EACH; ++j)
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        A weight = h.weight[j] * w.weight[k];
        i64 row = h.at[j];
#if AXES == 3
        weight *= d.weight[i];
        row += d.at[i] * s.size[1];
#endif
        if (weight == A(0)) continue;  // a pixel of weight 0 is not read
        const T* const from = x + row * s.size[0] + w.at[k];
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
          if (c < left) total[c] += weight * widen(from[c * s.pixels]);
      }
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c)
    if (c < left) y[c * s.points] = narrow<T>(total[c]);
}
