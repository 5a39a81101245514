// SPDX-License-Identifier: Apache-2.0
// What generated elementwise texts stand on (kernels/elementwise_frame.cpp writes them).
#pragma once
#include "common.cuh"
#include "math.cuh"

struct Arguments {
  const void* in[16];
  void* out[4];
  i64 count, groups;
  i64 dims[8];
  Divisor divisors[8];
  i64 strides[16][8];
};

template <class T, int W>
__device__ inline void read_each(Vec<T, W>& v, const T* p, i64 stride, int n) {
#pragma unroll
  for (int k = 0; k < W; ++k) v.v[k] = p[k < n ? k * stride : 0];
}
template <class T, int W>
__device__ inline void write_each(T* p, const Vec<T, W>& v, int n) {
#pragma unroll
  for (int k = 0; k < W; ++k)
    if (k < n) p[k] = v.v[k];
}
