// SPDX-License-Identifier: Apache-2.0
// What follows the sums of a convolution: y = act(sum + bias + residual), rounded once.
// Defines: TYPE; BIAS (its dtype), RESIDUAL, PRE_ACT, ACT(x), or none of them.
//variant: TYPE=bf16 BIAS=f32 RESIDUAL=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
#pragma once
#include "conv.args.cuh"
#include "math.cuh"

typedef TYPE T;
typedef T X;
typedef T F;
typedef acc_t<T> S;
typedef ConvEnds Ends;

// Elements of x and of filters in a sum.
struct Operands {
  Operands() = default;
  __device__ Operands(const Ends&, u32) {}
  // What x has outside.
  template <int N>
  __device__ __forceinline__ Vec<T, N> outside() const {
    return {};
  }
  __device__ __forceinline__ S x(S v) const { return v; }
  __device__ __forceinline__ S w(S v) const { return v; }
};

// W sums of one channel, for the elements of y from `at` on, a multiple of W.
template <int W>
__device__ __forceinline__ void finish(const Ends& ends, const S (&sums)[W], i64 at,
                                       [[maybe_unused]] u32 channel) {
  S z[W];
#pragma unroll
  for (int k = 0; k < W; ++k) z[k] = sums[k];
#ifdef BIAS
  const S bias = (S)widen(((const BIAS*)ends.bias)[channel]);
#pragma unroll
  for (int k = 0; k < W; ++k) z[k] += bias;
#endif
#ifdef RESIDUAL
  const Vec<T, W> residual = load<T, W>((const T*)ends.residual + at);
#pragma unroll
  for (int k = 0; k < W; ++k) z[k] += (S)widen(residual.v[k]);
#endif
#ifdef PRE_ACT
  store((T*)ends.pre_act + at, narrow_all<T, W>(z));
#endif
#ifdef ACT
#pragma unroll
  for (int k = 0; k < W; ++k) z[k] = ACT(z[k]);
#endif
  if (ends.y) store((T*)ends.y + at, narrow_all<T, W>(z));
}
