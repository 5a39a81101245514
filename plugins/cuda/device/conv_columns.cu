// SPDX-License-Identifier: Apache-2.0
// im2col and its transpose, a thread for an element of the result. ROWS: columns are [n][window][c]
// [tap], else [n][c][tap][window]. A pixel of col2im adds up what its windows have for it, so that no
// sum depends on the order of threads.
//variant: TYPE=f32 ROWS=1
//variant: TYPE=u8 ROWS=0
//variant: TYPE=f64 ROWS=0
//variant: TYPE=bf16 ROWS=1
//entry: im2col = unfold(In, Out, ConvColumns)
//entry: col2im = fold(In, Out, ConvColumns)
#include "conv.cuh"

typedef TYPE T;
typedef acc_t<T> S;

extern "C" __global__ void __launch_bounds__(256)
    unfold(const T* __restrict__ x, T* __restrict__ y, const ConvColumns s) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.count) return;
  i64 plane, window;  // plane: channel of all images
  u32 tap;
#if ROWS
  const i64 column = item / s.taps.value;
  tap = (u32)(item - column * s.taps.value);
  const i64 row = column / s.shape.c, image = row / s.windows;
  plane = image * s.shape.c + (column - row * s.shape.c), window = row - image * s.windows;
#else
  const i64 line = item / s.windows;
  window = item - line * s.windows;
  plane = line / s.taps.value, tap = (u32)(line - plane * s.taps.value);
#endif
  const u32 k0 = s.by_line.quotient(tap), rest = tap - k0 * s.by_line.value,
            k1 = s.by_tap.quotient(rest);
  const u32 k[3] = {k0, k1, rest - k1 * s.by_tap.value};
  u32 left = (u32)window;
  i64 from = 0, step = 1;
  bool inside = true;
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    const ConvAxis& axis = s.shape.axes[a];
    const u32 o = left % (u32)axis.out;
    left /= (u32)axis.out;
    const i32 i = (i32)o * axis.stride - axis.before + (i32)k[a] * axis.dilation;
    inside &= (u32)i < (u32)axis.in;
    from += i * step, step *= axis.in;
  }
  y[item] = inside ? x[plane * s.pixels + from] : T{};
}

extern "C" __global__ void __launch_bounds__(256)
    fold(const T* __restrict__ columns, T* __restrict__ x, const ConvColumns s) {
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.count) return;
  const i64 plane = item / s.pixels, image = plane / s.shape.c;
  u32 left = (u32)(item - plane * s.pixels);
  ConvLine lines[3];
  i32 o[3];
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    const ConvAxis& axis = s.shape.axes[a];
    const u32 at = left % (u32)axis.in;
    left /= (u32)axis.in;
    lines[a] = line_of<true>(axis, (i32)(at % (u32)axis.stride));
    o[a] = (i32)(at / (u32)axis.stride) + lines[a].first;
  }
  const i64 c = plane - image * s.shape.c;
  const i64 window_step = ROWS ? (i64)s.shape.c * s.taps.value : 1, tap_step = ROWS ? 1 : s.windows;
  columns +=
      ROWS ? (image * s.windows * s.shape.c + c) * s.taps.value : plane * s.taps.value * s.windows;
  S sum = 0;
  // In the order of the taps.
  i32 tap0 = lines[0].tap0;
  for (i32 t0 = 0, w0 = o[0]; t0 < lines[0].taps;
       ++t0, w0 += lines[0].delta, tap0 += lines[0].tap_step) {
    if ((u32)w0 >= (u32)lines[0].in) continue;
    i32 tap1 = tap0 * s.shape.axes[1].kernel + lines[1].tap0;
    for (i32 t1 = 0, w1 = o[1]; t1 < lines[1].taps;
         ++t1, w1 += lines[1].delta, tap1 += lines[1].tap_step) {
      if ((u32)w1 >= (u32)lines[1].in) continue;
      i32 tap2 = tap1 * s.shape.axes[2].kernel + lines[2].tap0;
      const i64 row = ((i64)w0 * lines[1].in + w1) * lines[2].in;
      for (i32 t2 = 0, w2 = o[2]; t2 < lines[2].taps;
           ++t2, w2 += lines[2].delta, tap2 += lines[2].tap_step)
        if ((u32)w2 < (u32)lines[2].in)
          sum += (S)widen(columns[(row + w2) * window_step + tap2 * tap_step]);
    }
  }
  x[item] = narrow<T>(sum);
}
