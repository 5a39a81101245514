// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group, one thread for a few results. rows: one channel of x per
// group, 2d windows known at compile time; a thread takes RUN windows side by side of DOWN rows. any:
// one result, of any convolution or transpose. taps: the gradient of the weights, a block for a row
// of dy and a channel of x with the taps of a known window, or for one tap of any.
// Defines: TYPE; BACK (any), FLIP (rows: taps in reverse), KH, KW, SH, SW, DH, DW, BW (kernel,
// stride, dilation and padding; KH = 0: not known), RUN, DOWN, XW, YW (elements that are moved at
// once), and those of conv_ends.cuh, or of
// quantized_ends.cuh for 8-bit integers.
//variant: TYPE=bf16 BACK=0 FLIP=0 KH=3 KW=3 SH=1 SW=1 DH=1 DW=1 BW=1 RUN=8 DOWN=2 XW=8 YW=8 BIAS=f32 RESIDUAL=1 PRE_ACT=1 ACT(x)=unary_silu(x,1.f,0.f)
//variant: TYPE=f32 BACK=0 FLIP=1 KH=5 KW=5 SH=2 SW=2 DH=1 DW=1 BW=2 RUN=4 DOWN=1 XW=4 YW=1
//variant: TYPE=f64 BACK=1 FLIP=0 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BW=0 RUN=1 DOWN=1 XW=1 YW=1 BIAS=f64
//variant: TYPE=f16 BACK=0 FLIP=0 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BW=0 RUN=1 DOWN=1 XW=1 YW=1
//variant: TYPE=u8 FILTER=i8 RESULT=u8 BACK=0 FLIP=0 KH=3 KW=3 SH=1 SW=1 DH=1 DW=1 BW=1 RUN=8 DOWN=2 XW=8 YW=8
//variant: TYPE=i8 FILTER=u8 RESULT=i32 BACK=0 FLIP=0 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BW=0 RUN=1 DOWN=1 XW=1 YW=1
//entry: conv_planes_rows = rows(ConvPlanes)
//entry: conv_planes_any = any(ConvPlanes)
//entry: qconv_planes_rows = rows(ConvPlanesOf<QuantizedEnds>)
//entry: qconv_planes_any = any(ConvPlanesOf<QuantizedEnds>)
//entry: conv_planes_taps = taps(ConvTapSums)
#include "conv.cuh"
#ifdef FILTER
#include "quantized_ends.cuh"
#else
#include "conv_ends.cuh"
#endif
#include "rows.cuh"

typedef ConvPlanesOf<Ends> Planes;

#if KH > 0
constexpr int kSpan = (RUN - 1) * SW + (KW - 1) * DW + 1;  // pixels of a row of RUN windows
// v[k] = the element at - BW + k of a row, 0 outside; `at` and size are multiples of XW.
__device__ __forceinline__ void read_span(const T* row, i32 at, i32 size, const Operands& o,
                                          S (&v)[kSpan]) {
#pragma unroll
  for (int k = 0; k < kSpan; ++k) {
    const int j = k - BW, start = (j + 1024 * XW) / XW * XW - 1024 * XW;  // rounded down
    const bool whole = XW > 1 && start >= -BW && start + XW <= kSpan - BW;
    if (whole && j != start) continue;
    const bool inside = (u32)(at + j) < (u32)size;
    if (whole) {
      const Vec<T, XW> t = inside ? load<T, XW>(row + at + j) : o.outside<XW>();
#pragma unroll
      for (int e = 0; e < XW; ++e) v[k + e] = o.x((S)widen_at(t, e));
    } else {
      v[k] = inside ? o.x((S)widen(row[at + j])) : S(0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) rows(const Planes p) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= p.items) return;
  const ConvShape& s = p.shape;
  const ConvAxis &h = s.axes[1], &w = s.axes[2];
  const u32 line = p.columns.quotient((u32)item), plane = p.rows.quotient(line);
  const i32 column = (i32)((u32)item - line * p.columns.value) * RUN,
            top = (i32)(line - plane * p.rows.value) * DOWN;
  const u32 channels = (u32)(s.groups * s.m), channel = plane % channels;
  const i64 image = plane / channels;
  const T* const x = (const T*)p.x + (image * s.groups + channel / (u32)s.m) * ((i64)h.in * w.in);
  const F* const filter = (const F*)p.w + (i64)channel * (KH * KW);
  const Operands operands(p.ends, channel);
  S acc[DOWN][RUN] = {};
  constexpr int kHeight = (DOWN - 1) * SH + (KH - 1) * DH + 1;  // rows of x
#pragma unroll
  for (int r = 0; r < kHeight; ++r) {
    bool needed = false;
#pragma unroll
    for (int d = 0; d < DOWN; ++d)
      needed |= r >= d * SH && (r - d * SH) % DH == 0 && (r - d * SH) / DH < KH;
    if (!needed) continue;
    const i32 i = top * SH - h.before + r;
    if ((u32)i >= (u32)h.in) continue;
    S v[kSpan];
    read_span(x + (i64)i * w.in, column * SW, w.in, operands, v);
#pragma unroll
    for (int d = 0; d < DOWN; ++d) {
      const int kh = (r - d * SH) / DH;
      if (r < d * SH || (r - d * SH) % DH != 0 || kh >= KH) continue;
#pragma unroll
      for (int kw = 0; kw < KW; ++kw) {
        const int tap = kh * KW + kw;
        const S weight = operands.w((S)widen(filter[FLIP ? KH * KW - 1 - tap : tap]));
#pragma unroll
        for (int n = 0; n < RUN; ++n) acc[d][n] += weight * v[n * SW + kw * DW];
      }
    }
  }
#pragma unroll
  for (int d = 0; d < DOWN; ++d) {
    if (top + d >= h.out) continue;
    const i64 at = ((i64)plane * h.out + top + d) * w.out + column;
#pragma unroll
    for (int n = 0; n < RUN; n += YW) {
      if (column + n >= w.out) continue;
      S y[YW];
#pragma unroll
      for (int k = 0; k < YW; ++k) y[k] = acc[d][n + k];
      finish<YW>(p.ends, y, at + n, channel);
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256) any(const Planes p) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= p.items) return;
  const ConvShape& s = p.shape;
  const i64 plane = item / p.columns.value;  // columns: pixels of the result
  u32 rest = (u32)(item - plane * p.columns.value);
  ConvLine lines[3];
  i32 o[3];
  i32 kernel = 1;
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    const u32 size = (u32)(BACK ? s.axes[a].in : s.axes[a].out);
    const u32 at = rest % size;
    rest /= size;
    const u32 stride = BACK ? (u32)s.axes[a].stride : 1;
    lines[a] = line_of<BACK>(s.axes[a], (i32)(at % stride));
    o[a] = (i32)(at / stride) * lines[a].step + lines[a].first;
    kernel *= s.axes[a].kernel;
  }
  const u32 channels = (u32)(s.groups * s.m), channel = (u32)(plane % channels);
  const u32 group = channel / (u32)s.m, m = channel - group * (u32)s.m;
  const i64 pixels = pixels_of(lines);
  const T* x = (const T*)p.x + ((plane / channels) * s.groups + group) * s.c * pixels;
  // Filters [m][c][tap], or of a transpose [c][m][tap].
  const i64 step_c = BACK ? (i64)s.m * kernel : kernel;
  const F* w = (const F*)p.w + (BACK ? ((i64)group * s.c * s.m + m) * kernel
                                     : ((i64)group * s.m + m) * s.c * kernel);
  const Operands operands(p.ends, channel);
  S sum[1] = {};
  for (i32 c = 0; c < s.c; ++c, x += pixels, w += step_c) {
    i32 tap0 = lines[0].tap0;
    for (i32 t0 = 0, i0 = o[0]; t0 < lines[0].taps;
         ++t0, i0 += lines[0].delta, tap0 += lines[0].tap_step) {
      if ((u32)i0 >= (u32)lines[0].in) continue;
      i32 tap1 = tap0 * s.axes[1].kernel + lines[1].tap0;
      for (i32 t1 = 0, i1 = o[1]; t1 < lines[1].taps;
           ++t1, i1 += lines[1].delta, tap1 += lines[1].tap_step) {
        if ((u32)i1 >= (u32)lines[1].in) continue;
        const i64 row = ((i64)i0 * lines[1].in + i1) * lines[2].in;
        i32 tap2 = tap1 * s.axes[2].kernel + lines[2].tap0;
        for (i32 t2 = 0, i2 = o[2]; t2 < lines[2].taps;
             ++t2, i2 += lines[2].delta, tap2 += lines[2].tap_step)
          if ((u32)i2 < (u32)lines[2].in)
            sum[0] += operands.w((S)widen(w[tap2])) * operands.x((S)widen(x[row + i2]));
      }
    }
  }
  finish<1>(p.ends, sum, item, channel);
}

#ifndef FILTER
// A block: the images of a piece.
extern "C" __global__ void __launch_bounds__(256) taps(const ConvTapSums p) {
  const ConvShape& s = p.shape;
  const i64 pixels = (i64)s.axes[0].in * s.axes[1].in * s.axes[2].in,
            windows = (i64)s.axes[0].out * s.axes[1].out * s.axes[2].out;
  const u32 kernel = (u32)(s.axes[0].kernel * s.axes[1].kernel * s.axes[2].kernel);
  u32 at = blockIdx.x;
  const u32 piece = at % p.pieces;
  at /= p.pieces;
#if KH > 0
  constexpr u32 tap = 0;
#else
  const u32 tap = at % kernel;
  at /= kernel;
#endif
  const u32 c = at % (u32)s.c, row = at / (u32)s.c;  // row: the channel of dy
  const u32 channel = row / (u32)s.m * (u32)s.c + c;
  const i64 first = piece * p.piece, last = min(first + p.piece, s.batch);
  const i64 dy_step = (i64)s.groups * s.m * windows, x_step = (i64)s.groups * s.c * pixels;
  const T *dy = (const T*)p.dy + (i64)row * windows, *x = (const T*)p.x + (i64)channel * pixels;
  S* const parts = (S*)p.parts + (((i64)piece * s.groups * s.m + row) * s.c + c) * kernel + tap;
#if KH > 0
  const ConvAxis &h = s.axes[1], &w = s.axes[2];
  S sum[KH][KW] = {};
  const Divisor runs = divisor_of((u32)(w.out + RUN - 1) / RUN),
                lines = divisor_of((u32)h.out * runs.value);
  const u32 items = (u32)(last - first) * lines.value;
  for (u32 item = threadIdx.x; item < items; item += 256) {
    const u32 own = lines.quotient(item), rest = item - own * lines.value;
    const i64 image = first + own;
    const i32 o = (i32)runs.quotient(rest), column = (i32)(rest - (u32)o * runs.value) * RUN;
    S up[RUN];
    const T* const from = dy + image * dy_step + (i64)o * w.out + column;
#pragma unroll
    for (int n = 0; n < RUN; n += YW) {
      const bool inside = column + n < w.out;
      const Vec<T, YW> t = inside ? load<T, YW>(from + n) : Vec<T, YW>{};
#pragma unroll
      for (int k = 0; k < YW; ++k) up[n + k] = (S)widen(t.v[k]);
    }
#pragma unroll
    for (int kh = 0; kh < KH; ++kh) {
      const i32 i = o * SH - h.before + kh * DH;
      if ((u32)i >= (u32)h.in) continue;
      S v[kSpan];
      read_span(x + image * x_step + (i64)i * w.in, column * SW, w.in, Operands(), v);
#pragma unroll
      for (int kw = 0; kw < KW; ++kw)
#pragma unroll
        for (int n = 0; n < RUN; ++n) {
          // A window that is not there has no part, whatever x holds.
          if (n == 0 || column + n < w.out) sum[kh][kw] += up[n] * v[n * SW + kw * DW];
        }
    }
  }
#pragma unroll
  for (int k = 0; k < KH * KW; ++k) {
    const S all = join_lanes<256>(sum[k / KW][k % KW], Add());
    if (threadIdx.x == 0) parts[k] = all;
  }
#else
  i32 d[3];
  u32 rest = tap;
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    d[a] = (i32)(rest % (u32)s.axes[a].kernel) * s.axes[a].dilation - s.axes[a].before;
    rest /= (u32)s.axes[a].kernel;
  }
  S sum = 0;
  const i64 items = (last - first) * windows;
  for (i64 item = threadIdx.x; item < items; item += 256) {
    const i64 image = first + item / windows;
    const u32 window = (u32)(item % windows);
    u32 left = window;
    i32 i[3];
    bool inside = true;
#pragma unroll
    for (int a = 2; a >= 0; --a) {
      i[a] = (i32)(left % (u32)s.axes[a].out) * s.axes[a].stride + d[a];
      left /= (u32)s.axes[a].out;
      inside &= (u32)i[a] < (u32)s.axes[a].in;
    }
    if (!inside) continue;
    const i64 from = ((i64)i[0] * s.axes[1].in + i[1]) * s.axes[2].in + i[2];
    sum += (S)widen(dy[image * dy_step + window]) * (S)widen(x[image * x_step + from]);
  }
  const S all = join_lanes<256>(sum, Add());
  if (threadIdx.x == 0) parts[0] = all;
#endif
}
#endif
