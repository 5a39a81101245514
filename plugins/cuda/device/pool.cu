// SPDX-License-Identifier: Apache-2.0
// 2d pools, MEAN or the maximum. windows: LANES threads for a window find its greatest tap or its
// mean; where sizes are known a thread takes RUN windows side by side. Backward each pixel gathers
// from the windows that cover it, so that no sum depends on the order of threads: cells, whose pixels
// share windows, where all sizes are known; else pixels.
// K, S, D (kernel, stride, dilation) by H and W: 0 = told at run time. B: padding before; CH, CW: a
// cell's pixels, multiples of the stride. XW, YW: pixels, and windows, that are moved at once. TAPS:
// which tap is the greatest is asked for; taps are numbered row by row, and a WINNER is a window's
// greatest, all bits set = it has no taps.
//variant: TYPE=f32 MEAN=0 TAPS=1 WINNER=u8 LANES=1 NARROW=1 KH=3 KW=3 SH=2 SW=2 DH=1 DW=1 BH=1 BW=1 RUN=4 CH=2 CW=8 XW=4 YW=4
//variant: TYPE=bf16 MEAN=0 TAPS=1 WINNER=u8 LANES=1 NARROW=1 KH=2 KW=3 SH=1 SW=3 DH=1 DW=1 BH=0 BW=2 RUN=2 CH=2 CW=3 XW=1 YW=1
//variant: TYPE=f64 MEAN=0 TAPS=1 WINNER=u16 LANES=32 NARROW=0 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BH=0 BW=0 RUN=1 CH=0 CW=0 XW=1 YW=1
//variant: TYPE=u64 MEAN=0 TAPS=0 WINNER=u8 LANES=1 NARROW=1 KH=2 KW=2 SH=1 SW=1 DH=3 DW=3 BH=0 BW=2 RUN=4 CH=0 CW=0 XW=1 YW=1
//variant: TYPE=i8 MEAN=0 TAPS=0 WINNER=u32 LANES=32 NARROW=1 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BH=0 BW=0 RUN=1 CH=0 CW=0 XW=1 YW=1
//variant: TYPE=f16 MEAN=1 TAPS=0 WINNER=u8 LANES=1 NARROW=1 KH=3 KW=3 SH=1 SW=1 DH=1 DW=1 BH=1 BW=1 RUN=4 CH=2 CW=8 XW=4 YW=4
//variant: TYPE=bf16 MEAN=0 TAPS=0 WINNER=u16 LANES=1 NARROW=1 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BH=0 BW=0 RUN=1 CH=0 CW=0 XW=1 YW=1
//variant: TYPE=f32 MEAN=1 TAPS=0 WINNER=u8 LANES=32 NARROW=0 KH=0 KW=0 SH=0 SW=0 DH=0 DW=0 BH=0 BW=0 RUN=1 CH=0 CW=0 XW=1 YW=1
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;

typedef PoolLine Line;
typedef PoolShape Shape;
struct Place {
  i64 plane;
  i32 row, column;
};
__device__ inline Place place_of(i64 item, const Shape& s) {
#if NARROW
  const u32 line = s.columns.quotient((u32)item), plane = s.rows.quotient(line);
  return {plane, (i32)(line - plane * s.rows.value), (i32)((u32)item - line * s.columns.value)};
#else
  const i64 line = item / s.columns.value, plane = line / s.rows.value;
  return {plane, (i32)(line - plane * s.rows.value), (i32)(item - line * s.columns.value)};
#endif
}
// What is known when this is compiled, else what is told.
template <int KERNEL, int STRIDE, int DILATION>
__device__ inline Line line_of(Line l) {
  if (KERNEL > 0) l.kernel = KERNEL, l.stride = STRIDE, l.dilation = DILATION;
  return l;
}
__device__ inline i64 pixels_of(const Shape& s) { return (i64)s.h.size * s.w.size; }
__device__ inline i64 windows_of(const Shape& s) { return (i64)s.h.count * s.w.count; }
// Calls put(k, value) for the elements at + BEGIN + k of a row, k < N, that exist: W at once where they
// lie so; `at` and size are multiples of W.
template <int BEGIN, int N, int W, class U, class Put>
__device__ inline void read_run(const U* row, i32 at, i32 size, Put&& put) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int j = BEGIN + k, start = (j + 1024 * W) / W * W - 1024 * W;  // rounded down
    const bool whole = W > 1 && start >= BEGIN && start + W <= BEGIN + N;
    if (whole && j != start) continue;
    if ((u32)(at + j) >= (u32)size) continue;
    const Vec<U, W> t = whole ? load<U, W>(row + at + j) : Vec<U, W>{{row[at + j]}};
#pragma unroll
    for (int e = 0; e < (whole ? W : 1); ++e) put(k + e, t.v[e]);
  }
}

// ---- windows

// Taps of a window that begins at `first` and lie before `limit`.
__device__ inline i32 taps_before(const Line& l, i32 first, i32 limit) {
  const i32 room = limit - first;
  return room <= 0 ? 0 : min(l.kernel, (room + l.dilation - 1) / l.dilation);
}
__device__ inline i32 own_divisor(const Line& l, i32 first, bool include_pad) {
  const i32 low = include_pad ? -l.before : 0, high = l.size + (include_pad ? l.after : 0);
  return max(taps_before(l, first, high) - taps_before(l, first, low), 1);
}
__device__ inline A divisor_of(const Line& h, const Line& w, const Shape& s, i32 top, i32 left) {
  if (s.divisor > 0) return (A)s.divisor;
  const bool pad = s.include_pad;
  return (A)((i64)own_divisor(h, top, pad) * own_divisor(w, left, pad));
}

__device__ inline A lowest() {
  if constexpr (A(1) / A(2) != A(0)) return (A)-__uint_as_float(0x7F800000u);
  else if constexpr (A(-1) < A(0)) return (A)((u64)1 << (8 * sizeof(A) - 1));
  else return 0;
}
struct Best {
  A value;
  i32 tap;  // -1 without taps
};
// A NaN wins, the last of several; of equal values the first. b is of later taps.
__device__ inline bool wins(A b, A a) { return b > a || b != b; }
__device__ inline f32 most(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return Most()(a, b);
#endif
}
template <class U>
__device__ inline U most(U a, U b) {
  return Most()(a, b);
}
// The first tap of a window.
__device__ inline i32 first_tap(const Line& h, const Line& w, i32 top, i32 left) {
  const i32 i = taps_before(h, top, 0), k = taps_before(w, left, 0);
  if (i >= taps_before(h, top, h.size) || k >= taps_before(w, left, w.size)) return -1;
  return i * w.kernel + k;
}
__device__ inline i64 position_of(i32 tap, const Line& h, const Line& w, i32 top, i32 left) {
  if (tap < 0) return -1;
  const i32 i = tap / w.kernel, k = tap - i * w.kernel;
  return (i64)(top + i * h.dilation) * w.size + left + k * w.dilation;
}
#if LANES > 1
__device__ inline bool comes_first(const Best& a, const Best& b) {
  if (a.tap < 0 || b.tap < 0) return b.tap < 0;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan || b_nan) return a_nan && (!b_nan || a.tap > b.tap);
  return a.value > b.value || (a.value == b.value && a.tap < b.tap);
}
__device__ inline Best join_best(Best a) {
#pragma unroll
  for (int o = 16; o > 0; o /= 2) {
    Best b;
    b.tap = __shfl_xor_sync(~0u, a.tap, o);
    if constexpr (sizeof(A) < 4) b.value = (A)__shfl_xor_sync(~0u, (i32)a.value, o);
    else b.value = each_word(a.value, [=](u32 w) { return __shfl_xor_sync(~0u, w, o); });
    a = comes_first(a, b) ? a : b;
  }
  return a;
}
#endif

#if KH > 0
template <class U, class F>
__device__ inline void put_run(U* row, i32 at, i32 count, F&& value) {
#pragma unroll
  for (int n = 0; n < RUN; n += YW) {
    if (at + n >= count) break;
    Vec<U, YW> t;
#pragma unroll
    for (int k = 0; k < YW; ++k) t.v[k] = value(n + k);
    store(row + at + n, t);
  }
}
// y, indices, winners: what is wanted of them.
extern "C" __global__ void __launch_bounds__(256)
    windows(const T* __restrict__ x, T* __restrict__ y, i64* __restrict__ indices,
            WINNER* __restrict__ winners, const Shape s) {
  constexpr int span = (RUN - 1) * SW + (KW - 1) * DW + 1;
  const Line h = line_of<KH, SH, DH>(s.h), w = line_of<KW, SW, DW>(s.w);
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.items) return;
  const Place at = place_of(item, s);
  const i32 top = at.row * SH - h.before, first = at.column * RUN;
  x += at.plane * pixels_of(s);
  A best[RUN];
  [[maybe_unused]] i32 tap[RUN];
#pragma unroll
  for (int n = 0; n < RUN; ++n) best[n] = MEAN ? A(0) : lowest(), tap[n] = -1;
#pragma unroll
  for (int i = 0; i < KH; ++i) {
    const i32 row = top + i * DH;
    A v[span];
#pragma unroll
    for (int k = 0; k < span; ++k) v[k] = MEAN ? A(0) : lowest();
    if ((u32)row < (u32)h.size)
      read_run<-BW, span, XW>(x + row * w.size, first * SW, w.size,
                              [&](int k, T t) { v[k] = (A)widen(t); });
#pragma unroll
    for (int k = 0; k < KW; ++k)
#pragma unroll
      for (int n = 0; n < RUN; ++n) {
        const A b = v[n * SW + k * DW];
        if (MEAN) {
          best[n] += b;
        } else if (!TAPS) {
          best[n] = most(best[n], b);
        } else if (wins(b, best[n])) {
          best[n] = b, tap[n] = i * KW + k;
        }
      }
  }
#pragma unroll
  for (int n = 0; n < RUN; ++n) {
    const i32 left = (first + n) * SW - BW;
    if (MEAN) best[n] /= divisor_of(h, w, s, top, left);
    // All of its taps are the lowest there is.
    if (TAPS && tap[n] < 0) tap[n] = first_tap(h, w, top, left);
  }
  const i64 line = (at.plane * h.count + at.row) * w.count;
  if (y) put_run(y + line, first, w.count, [&](int n) { return narrow<T>(best[n]); });
#if TAPS
  if (winners) put_run(winners + line, first, w.count, [&](int n) { return (WINNER)tap[n]; });
  if (indices)
    put_run(indices + line, first, w.count,
            [&](int n) { return position_of(tap[n], h, w, top, (first + n) * SW - BW); });
#endif
}
#elif LANES > 1
extern "C" __global__ void __launch_bounds__(256)
    windows(const T* __restrict__ x, T* __restrict__ y, i64* __restrict__ indices,
            WINNER* __restrict__ winners, const Shape s) {
  const Line &h = s.h, &w = s.w;
  const i64 item = Group<LANES>::index();
  if (item >= s.items) return;
  const Place at = place_of(item, s);
  const i32 top = at.row * h.stride - h.before, left = at.column * w.stride - w.before;
  x += at.plane * pixels_of(s);
  [[maybe_unused]] A sum = 0;
  [[maybe_unused]] Best best{lowest(), -1};
  const i32 lane = threadIdx.x % LANES, taps = h.kernel * w.kernel;
  for (i32 tap = lane; tap < taps; tap += LANES) {
    const i32 i = tap / w.kernel, k = tap - i * w.kernel;
    const i32 row = top + i * h.dilation, column = left + k * w.dilation;
    if ((u32)row >= (u32)h.size || (u32)column >= (u32)w.size) continue;
    const A v = (A)widen(x[row * w.size + column]);
    if (MEAN) sum += v;
    else if (wins(v, best.value) || best.tap < 0) best = {v, tap};
  }
#if MEAN
  sum = join_lanes<LANES>(sum, Add());
  if (lane == 0) y[item] = narrow<T>(sum / divisor_of(h, w, s, top, left));
#else
  best = join_best(best);
  if (lane != 0) return;
  if (y) y[item] = narrow<T>(best.value);
  if (winners) winners[item] = (WINNER)best.tap;
  if (indices) indices[item] = position_of(best.tap, h, w, top, left);
#endif
}
#endif

// ---- backward

#if CH > 0
// The windows, counted from a cell's own, that cover some of its N pixels.
__device__ constexpr int first_window(int before, int kernel, int stride) {
  const int t = before - kernel + 1;  // rounded up
  return t >= 0 ? (t + stride - 1) / stride : -(-t / stride);
}
constexpr int kTop = first_window(BH, KH, SH), kBottom = (CH - 1 + BH) / SH;
constexpr int kLeft = first_window(BW, KW, SW), kRight = (CW - 1 + BW) / SW;

// winners: of the maximum.
extern "C" __global__ void __launch_bounds__(256)
    cells(const T* __restrict__ dy, const WINNER* __restrict__ winners, T* __restrict__ dx,
          const Shape s) {
  const Line h = line_of<KH, SH, DH>(s.h), w = line_of<KW, SW, DW>(s.w);
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.items) return;
  const Place at = place_of(item, s);
  const i64 plane = at.plane * windows_of(s);
  A sum[CH][CW] = {};
#pragma unroll
  for (int u = kTop; u <= kBottom; ++u) {
    const i32 oh = at.row * (CH / SH) + u, first = at.column * (CW / SW);
    constexpr int span = kRight - kLeft + 1;
    A up[span] = {};
    [[maybe_unused]] u32 winner[span];
#pragma unroll
    for (int v = 0; v < span; ++v) winner[v] = ~0u;
    if ((u32)oh < (u32)h.count) {
      const i64 line = plane + (i64)oh * w.count;
      read_run<kLeft, span, YW>(dy + line, first, w.count,
                                [&](int v, T t) { up[v] = (A)widen(t); });
#if MEAN
#pragma unroll
      for (int v = 0; v < span; ++v)
        up[v] /= divisor_of(h, w, s, oh * SH - h.before, (first + kLeft + v) * SW - w.before);
#else
      read_run<kLeft, span, YW>(winners + line, first, w.count,
                                [&](int v, WINNER t) { winner[v] = t; });
#endif
    }
#pragma unroll
    for (int v = kLeft; v <= kRight; ++v)
#pragma unroll
      for (int a = 0; a < CH; ++a)
#pragma unroll
        for (int b = 0; b < CW; ++b) {
          // Which of the window's taps the pixel is.
          const int i = a + BH - u * SH, k = b + BW - v * SW;
          if (i < 0 || i >= KH || k < 0 || k >= KW) continue;
#if MEAN
          sum[a][b] += up[v - kLeft];
#else
          if (winner[v - kLeft] == i * KW + k) sum[a][b] += up[v - kLeft];
#endif
        }
  }
  dx += at.plane * pixels_of(s);
#pragma unroll
  for (int a = 0; a < CH; ++a)
#pragma unroll
    for (int b = 0; b < CW; b += XW) {
      const i32 row = at.row * CH + a, column = at.column * CW + b;
      if (row >= h.size || column >= w.size) continue;
      Vec<T, XW> t;
#pragma unroll
      for (int k = 0; k < XW; ++k) t.v[k] = narrow<T>(sum[a][b + k]);
      store(dx + (i64)row * w.size + column, t);
    }
}
#endif

// The windows [begin, end) that reach position t, counted from the padding's first pixel.
__device__ inline i32 windows_begin(const Line& l, i32 t) {
  const i32 extent = (l.kernel - 1) * l.dilation + 1;
  return t < extent ? 0 : (t - extent) / l.stride + 1;
}
__device__ inline i32 windows_end(const Line& l, i32 t) { return min(t / l.stride + 1, l.count); }

extern "C" __global__ void __launch_bounds__(256)
    pixels(const T* __restrict__ dy, const WINNER* __restrict__ winners, T* __restrict__ dx,
           const Shape s) {
  const Line h = line_of<KH, SH, DH>(s.h), w = line_of<KW, SW, DW>(s.w);
  const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
  if (item >= s.items) return;
  const Place at = place_of(item, s);
  const i32 t = at.row + h.before, r = at.column + w.before;
  A sum = 0;
  for (i32 oh = windows_begin(h, t), h_end = windows_end(h, t); oh < h_end; ++oh) {
    const i32 i = (t - oh * h.stride) / h.dilation;
    if (i * h.dilation != t - oh * h.stride) continue;
    for (i32 ow = windows_begin(w, r), w_end = windows_end(w, r); ow < w_end; ++ow) {
      const i32 k = (r - ow * w.stride) / w.dilation;
      if (k * w.dilation != r - ow * w.stride) continue;
      const i64 o = at.plane * windows_of(s) + (i64)oh * w.count + ow;
#if MEAN
      sum += (A)widen(dy[o]) /
             divisor_of(h, w, s, oh * h.stride - h.before, ow * w.stride - w.before);
#else
      if (winners[o] == (WINNER)(i * w.kernel + k)) sum += (A)widen(dy[o]);
#endif
    }
  }
  dx[item] = narrow<T>(sum);
}
