// SPDX-License-Identifier: Apache-2.0
// What follows a sum of a product: act(alpha * sum + bias) + residual.
// Defines: BIAS, RESIDUAL, ALPHA, ACT(x), or none of them.
//variant: BIAS=f32 RESIDUAL=bf16 ALPHA=1 ACT(x)=unary_gelu(x,0.f,0.f)
#pragma once
#include "arguments.cuh"
#include "math.cuh"

// What goes into the activation, and what comes of it all.
template <class S>
struct Ends {
  S z, y;
};
template <class S>
__device__ inline Ends<S> ends(S sum, [[maybe_unused]] S alpha, [[maybe_unused]] S bias,
                               [[maybe_unused]] S residual) {
  S z = sum;
#ifdef ALPHA
  z *= alpha;
#endif
#ifdef BIAS
  z += bias;
#endif
  S y = z;
#ifdef ACT
  y = ACT(z);
#endif
#ifdef RESIDUAL
  y += residual;
#endif
  return {z, y};
}

// The same for the element `at` of y, in column `column`. Reads its bias and its residual, stores what goes
// into the activation, and returns the value of y.
template <class Y, class S>
__device__ inline Y finished(const Product& p, S sum, i64 at, [[maybe_unused]] i64 column) {
  S bias = 0, residual = 0;
#ifdef BIAS
  bias = (S)widen(static_cast<const BIAS*>(p.bias)[column]);
#endif
#ifdef RESIDUAL
  residual = (S)widen(static_cast<const RESIDUAL*>(p.residual)[at]);
#endif
  const Ends<S> end = ends(sum, (S)p.alpha, bias, residual);
#ifdef PRE_ACT
  static_cast<Y*>(p.pre_act)[at] = narrow<Y>(end.z);
#endif
  return narrow<Y>(end.y);
}
