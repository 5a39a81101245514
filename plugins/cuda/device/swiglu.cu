//variant: T=f32 W=4 ACT=silu
//variant: T=bf16 W=8 ACT=gelu
//variant: T=f64 W=1 ACT=gelu_tanh
// SPDX-License-Identifier: Apache-2.0
// act(gate) * up and its gradient. Gate and up are two tensors, or halves of the rows of one.
#include "common.cuh"
#include "math.cuh"

typedef acc_t<T> A;

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
__device__ inline A act(A x) { return CONCAT(unary_, ACT)(x, A(1), A(0)); }
__device__ inline A act_slope(A x) { return CONCAT(slope_, ACT)(x, A(1), A(0)); }

// Where vector g lies in what has rows of its own.
__device__ inline i64 place(const Gated& s, i64 g) {
  if (s.groups == s.row) return g * W;
  const i64 r = s.groups < (i64(1) << 31) ? (i64)((u32)g / (u32)s.row) : g / s.row;
  return r * s.stride + (g - r * s.row) * W;
}

extern "C" __global__ void __launch_bounds__(256)
    swiglu(const T* gate, const T* up, T* y, const Gated s) {
  begin_early();
  const i64 g = (i64)blockIdx.x * 256 + threadIdx.x;
  if (g >= s.groups) return;
  const i64 at = place(s, g);
  const Vec<T, W> a = load<T, W>(gate + at), b = load<T, W>(up + at);
  Vec<T, W> c;
#pragma unroll
  for (int k = 0; k < W; ++k) c.v[k] = narrow<T>(act(widen(a.v[k])) * widen(b.v[k]));
  store(y + g * W, c);
}

extern "C" __global__ void __launch_bounds__(256)
    swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, const Gated s) {
  begin_early();
  const i64 g = (i64)blockIdx.x * 256 + threadIdx.x;
  if (g >= s.groups) return;
  const i64 at = place(s, g);
  const Vec<T, W> d = load<T, W>(dy + g * W), a = load<T, W>(gate + at), b = load<T, W>(up + at);
  Vec<T, W> da, db;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const A slope = widen(d.v[k]), x = widen(a.v[k]);
    da.v[k] = narrow<T>(slope * widen(b.v[k]) * act_slope(x));
    db.v[k] = narrow<T>(act(x) * slope);
  }
  store(dgate + at, da);
  store(dup + at, db);
}
