// SPDX-License-Identifier: Apache-2.0
// softmax and softmax_backward. A line is the elements along the axis. A group of LANES threads
// computes a line; LANES=1 is for lines whose elements are not adjacent. SIZE: bytes of a TYPE.
// LOG: log_softmax. KEEP: the line stays in shared memory, so it is read once.
//variant: TYPE=f32 SIZE=4 LANES=256 LOG=0 KEEP=1
//variant: TYPE=bf16 SIZE=2 LANES=512 LOG=0 KEEP=0
//variant: TYPE=f16 SIZE=2 LANES=32 LOG=1 KEEP=1
//variant: TYPE=f64 SIZE=8 LANES=1 LOG=1 KEEP=0
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;
typedef Group<LANES> Lane;

typedef SoftmaxShape Shape;

template <int N>
__device__ inline void put_result(T* y, u32 i, i64 inner, const A (&v)[N], bool same) {
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out.v[k] = narrow<T>(v[k]);
  put(y, i, inner, out, same);
}

extern "C" __global__ void __launch_bounds__(Lane::threads, 1024 / Lane::threads)
    softmax(const T* x, T* y, const Shape s) {
  const i64 line = Lane::index();
  const u32 n = line < s.lines ? s.n : 0;
  const i64 start = line_start(line, s.n, s.inner);
  x += start, y += start;
  const bool same = phase_of(x) == phase_of(y);
  A most, sum;
  // If the line is kept and T is the accumulation type, softmax replaces the kept elements by their
  // exponentials, so each is computed once. Lines of 16-bit elements, and lines that are not kept,
  // get their maximum and sum in one pass.
  constexpr bool store_terms = KEEP && !LOG && sizeof(T) == sizeof(A);
#if KEEP
  T* kept = kept_line(x, Lane::in_block(), s.slice);
#else
  const T* kept = x;
#endif
#if KEEP && SIZE != 2
  most = -infinity<A>();
  for_line<LANES>(x, n, s.inner, [&](const auto& v, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    put(kept, i, 1, v, true);
#pragma unroll
    for (int k = 0; k < N; ++k) most = Most()(most, widen(v.v[k]));
  });
  most = join_lanes<LANES>(most, Most());
  sum = 0;
  for_line<LANES>(kept, n, 1, [&](const auto& v, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    A e[N];
#pragma unroll
    for (int k = 0; k < N; ++k) e[k] = exp_for<T>(widen(v.v[k]) - most);
    sum += join_all(e, Add());
    if (store_terms) put_result(kept, i, 1, e, true);
  });
  sum = join_lanes<LANES>(sum, Add());
#else
  ExpSum<A> found = no_terms<A>();
  for_line<LANES>(x, n, s.inner, [&](const auto& v, u32 i) {
#if KEEP
    put(kept, i, 1, v, true);
#endif
    take(found, v);
  });
  found = join_lanes<LANES>(found, JoinExp());
  most = found.most, sum = found.scale;
  if (!isfinite(most)) sum = most - most;  // the whole result is NaN
#endif
  const A inverse = 1 / sum, shift = log(sum);
  for_line<LANES>(kept, n, KEEP ? 1 : s.inner, [&](const auto& v, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    A e[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A a = widen(v.v[k]);
      if (LOG) e[k] = a - most - shift;
      else e[k] = (store_terms ? a : exp_for<T>(a - most)) * inverse;
    }
    put_result(y, i, s.inner, e, same);
  });
}

extern "C" __global__ void __launch_bounds__(Lane::threads, 1024 / Lane::threads)
    softmax_backward(const T* dy, const T* y, T* dx, const Shape s) {
  const i64 line = Lane::index();
  const u32 n = line < s.lines ? s.n : 0;
  const i64 start = line_start(line, s.n, s.inner);
  dy += start, y += start, dx += start;
  const bool same = phase_of(y) == phase_of(dx);
#if KEEP
  T* kept_y = kept_line(y, 2 * Lane::in_block(), s.slice);
  T* kept_dy = kept_line(y, 2 * Lane::in_block() + 1, s.slice);  // has the alignment phase of y
#endif
  A dot = 0;
  for_two_lines<LANES>(y, dy, n, s.inner, [&](const auto& v, const auto& d, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    A e[N];
#pragma unroll
    for (int k = 0; k < N; ++k) e[k] = LOG ? widen(d.v[k]) : widen(v.v[k]) * widen(d.v[k]);
    dot += join_all(e, Add());
#if KEEP
    put(kept_y, i, 1, v, true);
    put(kept_dy, i, 1, d, true);
#endif
  });
  dot = join_lanes<LANES>(dot, Add());
  const auto write = [&](const auto& v, const auto& d, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    A e[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A a = widen(v.v[k]), b = widen(d.v[k]);
      e[k] = LOG ? b - exp_for<T>(a) * dot : a * (b - dot);
    }
    put_result(dx, i, s.inner, e, same);
  };
#if KEEP
  for_two_lines<LANES>(kept_y, kept_dy, n, 1, write);
#else
  for_two_lines<LANES>(y, dy, n, s.inner, write);
#endif
}
