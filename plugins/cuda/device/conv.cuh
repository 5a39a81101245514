// SPDX-License-Identifier: Apache-2.0
// Convolutions as sums over taps. A forward convolution is one such sum. Its transpose is one for
// each phase: the pixels p, p + stride, ... of each axis, which have the same taps.
#pragma once
#include "common.cuh"
#include "conv.args.cuh"

// An axis of such a sum: window o reads first + o·step + t·delta for each t < taps.
struct ConvLine {
  i32 in, count, step, first, delta, taps;
  i32 tap0, tap_step;      // tap t is the kernel's tap0 + t·tap_step
  i32 origin, pitch, out;  // window o is pixel origin + o·pitch of `out` pixels
};
template <bool kBack>
__device__ inline ConvLine line_of(const ConvAxis& a, [[maybe_unused]] i32 phase) {
  if constexpr (!kBack) {
    return {a.in, a.out, a.stride, -a.before, a.dilation, a.kernel, 0, 1, 0, 1, a.out};
  } else {
    const i32 step = a.stride / a.common, at = phase + a.before;
    i32 taps = 0, tap0 = 0, first = 0;
    if (at % a.common == 0) {
      tap0 = (i32)((i64)(at / a.common % step) * a.inverse % step);
      if (tap0 < a.kernel) {
        taps = (a.kernel - 1 - tap0) / step + 1;
        first = (at - tap0 * a.dilation) / a.stride;
      }
    }
    const i32 count = phase < a.in ? (a.in - phase - 1) / a.stride + 1 : 0;
    return {a.out, count, 1,        first, -(a.dilation / a.common), taps, tap0,
            step,  phase, a.stride, a.in};
  }
}
// All axes of a phase; phases are counted over all axes.
template <bool kBack>
__device__ inline void lines_of(const ConvShape& s, u32 phase, ConvLine (&lines)[3]) {
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    i32 own = 0;
    if (kBack) {
      const u32 phases = min(s.axes[a].stride, s.axes[a].in);
      own = phase % phases, phase /= phases;
    }
    lines[a] = line_of<kBack>(s.axes[a], own);
  }
}
__device__ inline u32 windows_of(const ConvLine (&a)[3]) {
  return (u32)a[0].count * a[1].count * a[2].count;
}
__device__ inline i64 plane_of(const ConvLine (&a)[3]) {
  return (i64)a[0].out * a[1].out * a[2].out;
}
__device__ inline i64 pixels_of(const ConvLine (&a)[3]) { return (i64)a[0].in * a[1].in * a[2].in; }
__device__ inline i32 taps_of(const ConvLine (&a)[3]) { return a[0].taps * a[1].taps * a[2].taps; }

// A window of all images, which are counted one after the other.
struct ConvWindow {
  u32 image;
  i32 o[3];
};
__device__ inline ConvWindow window_of(const ConvLine (&a)[3], u32 j) {
  ConvWindow w;
#pragma unroll
  for (int k = 2; k >= 0; --k) w.o[k] = (i32)(j % (u32)a[k].count), j /= (u32)a[k].count;
  w.image = j;
  return w;
}
// Its pixel in a plane of the result.
__device__ inline i64 target_of(const ConvLine (&a)[3], const ConvWindow& w) {
  i64 at = 0;
#pragma unroll
  for (int k = 0; k < 3; ++k) at = at * a[k].out + a[k].origin + w.o[k] * a[k].pitch;
  return at;
}

// Taps in row-major order.
struct ConvTap {
  i32 t[3];
  __device__ void next(const ConvLine (&a)[3]) {
    if (++t[2] < a[2].taps) return;
    t[2] = 0;
    if (++t[1] < a[1].taps) return;
    t[1] = 0, ++t[0];
  }
  __device__ i32 in_kernel(const ConvLine (&a)[3], const ConvShape& s) const {
    i32 at = 0;
#pragma unroll
    for (int k = 0; k < 3; ++k) at = at * s.axes[k].kernel + a[k].tap0 + t[k] * a[k].tap_step;
    return at;
  }
};
// Made where the divisor is known on the device alone.
__device__ inline Divisor divisor_of(u32 value) {
  Divisor d;
  d.value = value, d.shift = value <= 1 ? 0 : 32 - __clz((int)(value - 1));
  d.multiplier = (u32)(((u64)1 << 32) * (((u64)1 << d.shift) - value) / value) + 1;
  return d;
}
// The taps of a sum by number, with the terms of each tap.
struct ConvTerms {
  Divisor each, by_line, by_tap;
  __device__ ConvTerms(const ConvLine (&a)[3], u32 terms_of_tap)
      : each(divisor_of(max(terms_of_tap, 1u))),
        by_line(divisor_of((u32)max(a[1].taps * a[2].taps, 1))),
        by_tap(divisor_of((u32)max(a[2].taps, 1))) {}
  __device__ ConvTap tap(u32 index) const {
    const u32 t0 = by_line.quotient(index), rest = index - t0 * by_line.value;
    const u32 t1 = by_tap.quotient(rest);
    return {{(i32)t0, (i32)t1, (i32)(rest - t1 * by_tap.value)}};
  }
};
// Tap `index` of all; the number of taps is not 0.
__device__ inline ConvTap tap_of(const ConvLine (&a)[3], u32 index) {
  ConvTap tap;
#pragma unroll
  for (int k = 2; k > 0; --k) tap.t[k] = (i32)(index % (u32)a[k].taps), index /= (u32)a[k].taps;
  tap.t[0] = (i32)index;
  return tap;
}
