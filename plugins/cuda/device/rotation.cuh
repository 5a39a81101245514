// SPDX-License-Identifier: Apache-2.0
// A pair of numbers turned by an angle, with the same bits in every kernel.
//variant: T=f16
#pragma once
#include "common.cuh"

template <class A>
struct Turned {
  A first, second;
};
template <class A>
__device__ inline Turned<A> turned(A a, A b, A cosine, A sine) {
  return {fma(a, cosine, -(b * sine)), fma(b, cosine, a * sine)};
}
