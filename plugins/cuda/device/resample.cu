// SPDX-License-Identifier: Apache-2.0
// resize. taps: the table of an axis, a thread per output, with the roundings that the host has.
// transposed: that of its adjoint. images: all axes at once, a thread for a pixel of PLANES planes.
// line: one axis, where there are many taps. MOVE: elements are moved as they are; TO: the type of the
// result, ACC: that of weights.
//variant: TYPE=f32 TO=f32 ACC=f32 MOVE=0
//variant: TYPE=bf16 TO=f32 ACC=f32 MOVE=0
//variant: TYPE=f32 TO=f16 ACC=f32 MOVE=0
//variant: TYPE=f64 TO=f64 ACC=f64 MOVE=0
//variant: TYPE=u16 TO=u16 ACC=f32 MOVE=1
//entry: resample_taps = taps(Out, TapsShape)
//entry: resample_transposed = transposed(In, Out, TapsShape)
//entry: resample_images = images(In, Out, In, In, In, ImagesShape)
//entry: resample_line = line(In, Out, In, LineShape)
#include "common.cuh"
#include "resample.args.cuh"

typedef TYPE T;
typedef TO U;
typedef ACC A;

__device__ inline const A* weights_of(const TapRange* table, i64 rows) {
  return reinterpret_cast<const A*>(table + rows);
}
__device__ inline A* weights_of(TapRange* table, i64 rows) {
  return reinterpret_cast<A*>(table + rows);
}

// ---- tables. No product is contracted with a sum: positions decide ties.

__device__ inline f64 sum(f64 a, f64 b) { return __dadd_rn(a, b); }
__device__ inline f64 minus(f64 a, f64 b) { return __dsub_rn(a, b); }
__device__ inline f64 product(f64 a, f64 b) { return __dmul_rn(a, b); }
__device__ inline f64 ratio(f64 a, f64 b) { return __ddiv_rn(a, b); }

enum Coordinates { kHalf, kSymmetric, kPytorch, kCorners, kAsymmetric, kCrop };

__device__ inline f64 position(const TapsShape& s, i32 o) {
  const f64 at = o, in = s.in;
  const f64 width = s.exact ? (f64)s.out : product(in, s.scale);
  if (s.coordinates == kAsymmetric) return ratio(at, s.scale);
  if (s.coordinates == kCorners)
    return s.out == 1 ? 0.0 : ratio(product(at, in - 1), minus(width, 1));
  if (s.coordinates == kCrop) {
    const f64 room = product(minus(s.end, s.start), in - 1);
    const f64 rest = s.out == 1 ? room / 2 : ratio(product(at, room), minus(width, 1));
    return sum(product(s.start, in - 1), rest);
  }
  if (s.coordinates == kPytorch && s.out == 1) return 0;
  f64 shift = 0;
  if (s.coordinates == kSymmetric)
    shift = product(in / 2, minus(1, ratio((f64)s.out, width)));
  return minus(sum(shift, ratio(at + 0.5, s.scale)), 0.5);
}

enum Nearest { kFloorTies, kCeilTies, kFloor, kCeil };

__device__ inline i64 floor_div(i64 a, i64 b) { return a / b - (a % b < 0 ? 1 : 0); }
__device__ inline i64 rounded_ratio(i32 mode, i64 p, i64 q) {
  if (mode == kFloor) return floor_div(p, q);
  if (mode == kCeil) return -floor_div(-p, q);
  if (mode == kCeilTies) return floor_div(2 * p + q, 2 * q);
  return -floor_div(q - 2 * p, 2 * q);
}
__device__ inline i64 nearest_pixel(const TapsShape& s, i32 o) {
  const i64 in = s.in, out = s.out;
  if (s.exact && s.coordinates != kCrop) {
    if (out == 1 && (s.coordinates == kCorners || s.coordinates == kPytorch)) return 0;
    if (s.coordinates == kCorners) return rounded_ratio(s.nearest, o * (in - 1), out - 1);
    if (s.coordinates == kAsymmetric) return rounded_ratio(s.nearest, o * in, out);
    return rounded_ratio(s.nearest, ((i64)2 * o + 1) * in - out, 2 * out);
  }
  const f64 x = position(s, o), low = floor(x), rest = minus(x, low);
  if (s.nearest == kFloor) return (i64)low;
  if (s.nearest == kCeil) return (i64)ceil(x);
  return (i64)low + (s.nearest == kCeilTies ? rest >= 0.5 : rest > 0.5);
}

// At a distance t >= 0.
__device__ inline f64 filter(const TapsShape& s, f64 t) {
  if (s.mode == 1) return t < 1 ? minus(1, t) : 0;
  const f64 a = s.cubic_a;
  if (t <= 1)
    return sum(product(product(minus(product(a + 2, t), a + 3), t), t), 1);
  if (t >= 2) return 0;
  const f64 inner = sum(product(minus(product(a, t), 5 * a), t), 8 * a);
  return minus(product(inner, t), 4 * a);
}
__device__ inline i32 clamped(i64 pixel, i32 in) {
  return (i32)min(max(pixel, (i64)0), (i64)in - 1);
}

extern "C" __global__ void __launch_bounds__(256) taps(void* table, const TapsShape s) {
  const i32 o = blockIdx.x * 256 + threadIdx.x;
  if (o >= s.out) return;
  TapRange* const ranges = static_cast<TapRange*>(table);
  A* const weights = weights_of(ranges, s.out) + (i64)o * s.taps;
  if (s.mode == 0) {
    ranges[o] = TapRange{clamped(nearest_pixel(s, o), s.in), 1};
    weights[0] = 1;
    return;
  }
  const f64 stretch = s.smooth ? min(s.scale, 1.0) : 1.0;
  const f64 reach = (s.mode == 2 ? 2 : 1) / stretch, x = position(s, o);
  const i64 first = (i64)floor(minus(x, reach)) + 1, end = (i64)ceil(sum(x, reach));
  const auto weight = [&](i64 k) {
    if (s.exclude && (k < 0 || k >= s.in)) return 0.0;
    return filter(s, product(fabs(minus((f64)k, x)), stretch));
  };
  f64 whole = 1;
  if (s.smooth || s.exclude) {
    f64 all = 0;
    for (i64 k = first; k < end; ++k) all = sum(all, weight(k));
    if (all != 0) whole = all;
  }
  const i32 low = clamped(first, s.in);
  i32 at = low, count = 1;
  f64 joined = 0;  // of pixels that are the same one at the edge
  for (i64 k = first; k < end; ++k) {
    const i32 pixel = clamped(k, s.in);
    if (pixel != at && count < s.taps) {
      weights[at - low] = (A)ratio(joined, whole);
      at = pixel, joined = 0, ++count;
    }
    joined = sum(joined, weight(k));
  }
  weights[at - low] = (A)ratio(joined, whole);
  ranges[o] = TapRange{low, count};
}

// Positions rise with outputs, so the outputs that read a pixel lie together.
extern "C" __global__ void __launch_bounds__(256)
    transposed(const void* table, void* back, const TapsShape s) {
  const i32 pixel = blockIdx.x * 256 + threadIdx.x;
  if (pixel >= s.in) return;
  const TapRange* const ranges = static_cast<const TapRange*>(table);
  const A* const weights = weights_of(ranges, s.out);
  TapRange* const back_ranges = static_cast<TapRange*>(back);
  A* const back_weights = weights_of(back_ranges, s.in) + (i64)pixel * s.back_taps;
  const auto weight = [&](i32 o) {
    const i32 k = pixel - ranges[o].first;
    return k < 0 || k >= ranges[o].count ? A(0) : weights[(i64)o * s.taps + k];
  };
  i32 low = 0, high = s.out;  // the first output whose taps end behind the pixel
  while (low < high) {
    const i32 middle = low + (high - low) / 2;
    if (ranges[middle].first + ranges[middle].count > pixel) high = middle;
    else low = middle + 1;
  }
  const i32 first = low;
  for (high = s.out; low < high;) {  // the first one whose taps begin behind the pixel
    const i32 middle = low + (high - low) / 2;
    if (ranges[middle].first > pixel) high = middle;
    else low = middle + 1;
  }
  i32 begin = first, end = low;
  while (begin < end && weight(begin) == A(0)) ++begin;
  while (begin < end && weight(end - 1) == A(0)) --end;
  end = min(end, begin + s.back_taps);
  for (i32 o = begin; o < end; ++o) back_weights[o - begin] = weight(o);
  back_ranges[pixel] = TapRange{begin, end - begin};
}

// ---- images

constexpr int PLANES = 4;  // that share the taps of a thread

struct Taps {
  TapRange range;
  const A* weights;  // null: 1
  __device__ A weight(i32 k) const { return weights ? weights[k] : A(1); }
};
// table null: each output is its pixel.
__device__ inline Taps taps_of(const void* table, i32 o, i32 rows, i32 taps) {
  if (!table) return {{o, 1}, nullptr};
  const TapRange* const ranges = static_cast<const TapRange*>(table);
  return {ranges[o], weights_of(ranges, rows) + (i64)o * taps};
}

extern "C" __global__ void __launch_bounds__(256)
    images(const T* __restrict__ x, U* __restrict__ y, const void* __restrict__ depth,
           const void* __restrict__ height, const void* __restrict__ width, const ImagesShape s) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  const i64 group = item / s.out_pixels, plane = group * PLANES;
  if (plane >= s.planes) return;
  const u32 pixel = (u32)(item - group * s.out_pixels);
  const u32 line = s.w.quotient(pixel), slice = s.h.quotient(line);
  const Taps d = taps_of(depth, (i32)slice, s.rows[0], s.taps[0]);
  const Taps h = taps_of(height, (i32)(line - slice * s.h.value), s.rows[1], s.taps[1]);
  const Taps w = taps_of(width, (i32)(pixel - line * s.w.value), s.rows[2], s.taps[2]);
  x += plane * s.in_pixels;
  y += plane * s.out_pixels + pixel;
  const i32 left = (i32)min((i64)PLANES, s.planes - plane);
#if MOVE
  const i64 at = ((i64)d.range.first * s.in_h + h.range.first) * s.in_w + w.range.first;
#pragma unroll
  for (int n = 0; n < PLANES; ++n)
    if (n < left) y[n * s.out_pixels] = x[n * s.in_pixels + at];
#else
  A total[PLANES] = {};
  for (i32 i = 0; i < d.range.count; ++i)
    for (i32 j = 0; j < h.range.count; ++j) {
      const A outer = d.weight(i) * h.weight(j);
      const i64 row = ((i64)(d.range.first + i) * s.in_h + h.range.first + j) * s.in_w;
      for (i32 k = 0; k < w.range.count; ++k) {
        const A weight = outer * w.weight(k);
        if (weight == A(0)) continue;  // a pixel of weight 0 is not read
#pragma unroll
        for (int n = 0; n < PLANES; ++n)
          if (n < left) total[n] += weight * widen(x[n * s.in_pixels + row + w.range.first + k]);
      }
    }
#pragma unroll
  for (int n = 0; n < PLANES; ++n)
    if (n < left) y[n * s.out_pixels] = narrow<U>(total[n]);
#endif
}

#if !MOVE
extern "C" __global__ void __launch_bounds__(256)
    line(const T* __restrict__ x, U* __restrict__ y, const void* __restrict__ table,
         const LineShape s) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.items) return;
  const i64 row = item / s.inner, inner = item - row * s.inner;
  const i64 outer = row / s.out;
  const i32 o = (i32)(row - outer * s.out);
  const Taps t = taps_of(table, o, (i32)s.out, s.taps);
  x += (outer * s.in + t.range.first) * s.inner + inner;
  A total = 0;
  for (i32 k = 0; k < t.range.count; ++k)
    if (const A weight = t.weight(k); weight != A(0)) total += weight * widen(x[k * s.inner]);
  y[item] = narrow<U>(total);
}
#endif
