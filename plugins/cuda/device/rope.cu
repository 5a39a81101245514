//variant: T=bf16 W=8 INTERLEAVED=0 IDS=0
//variant: T=f32 W=1 INTERLEAVED=1 IDS=1
//variant: T=f64 W=2 INTERLEAVED=1 IDS=2
//variant: T=f16 W=1 INTERLEAVED=0 IDS=3
// SPDX-License-Identifier: Apache-2.0
// Rotary positions: pairs of a head turn by the angle of its position. IDS 0: offset + step, 1: a
// row of the tables for each token, 2 and 3: i32 and i64 ids.
#include "common.cuh"
#include "rotation.cuh"

typedef acc_t<T> A;
typedef RopeOf<A> Rope;

extern "C" __global__ void __launch_bounds__(256)
    rope(const T* x, const A* cos, const A* sin, const void* ids, T* y, const Rope r) {
  begin_early();
  const i64 g = (i64)blockIdx.x * 256 + threadIdx.x;
  if (g >= r.groups) return;
  const i64 row = g < (i64(1) << 31) ? (i64)((u32)g / (u32)r.row_groups) : g / r.row_groups;
  const int group = (int)(g - row * r.row_groups);
  const T* from = x + row * r.dim;
  T* to = y + row * r.dim;
  if (group >= r.pair_groups) {  // what does not turn, element by element
    const i64 i = 2 * r.half + (group - r.pair_groups);
    to[i] = from[i];
    return;
  }
  const i64 batch = row / r.batch_rows, in_batch = row - batch * r.batch_rows;
  const i64 step = r.heads_first ? in_batch % r.steps : in_batch / r.heads;
  i64 position = r.offset + step;
  const i64 token = batch * r.steps + step;
#if IDS == 1
  position = token;
#elif IDS == 2
  position = static_cast<const i32*>(ids)[token];
#elif IDS == 3
  position = static_cast<const i64*>(ids)[token];
#endif
  if (position < 0 || position >= r.table_rows) {
    report(r.sink, kIndexOutOfRange, (u64)token);
    return;
  }
  const i64 table = position * r.half;
#if INTERLEAVED
  constexpr int P = W > 1 ? W / 2 : 1;  // pairs of a thread
  const i64 i = (i64)group * P;
  Vec<T, 2 * P> v, out;
  if (W > 1) {
    v = load<T, 2 * P>(from + 2 * i);
  } else {
    v.v[0] = from[2 * i], v.v[1] = from[2 * i + 1];
  }
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const A a = widen(v.v[2 * k]), b = widen(v.v[2 * k + 1]);
    const Turned<A> y = turned(a, b, cos[table + i + k], r.sign * sin[table + i + k]);
    out.v[2 * k] = narrow<T>(y.first), out.v[2 * k + 1] = narrow<T>(y.second);
  }
  if (W > 1) {
    store(to + 2 * i, out);
  } else {
    to[2 * i] = out.v[0], to[2 * i + 1] = out.v[1];
  }
#else
  const i64 i = (i64)group * W;
  const Vec<T, W> first = load<T, W>(from + i), second = load<T, W>(from + r.half + i);
  const Vec<A, W> cosines = load<A, W>(cos + table + i), sines = load<A, W>(sin + table + i);
  Vec<T, W> one, two;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const A a = widen(first.v[k]), b = widen(second.v[k]);
    const Turned<A> y = turned(a, b, cosines.v[k], r.sign * sines.v[k]);
    one.v[k] = narrow<T>(y.first), two.v[k] = narrow<T>(y.second);
  }
  store(to + i, one);
  store(to + r.half + i, two);
#endif
}
