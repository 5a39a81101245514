// SPDX-License-Identifier: Apache-2.0
// What generated elementwise texts stand on (kernels/frame_text.cpp writes them).
#pragma once
#include "common.cuh"
#include "math.cuh"

// Of one set of operands; the host's FrameArguments.
template <int INPUTS, int OUTPUTS, int RANK>
struct Arguments {
  const void* in[INPUTS];
  void* out[OUTPUTS];
  i64 count, groups;          // elements; what threads, groups of lanes or blocks take
  i64 length, piece, pieces;  // of a row or column that is reduced
  i64 inner;                  // vectors of columns
  i64 dims[RANK];             // the last one in vectors
  i64 strides[INPUTS][RANK];
  Divisor divisors[RANK];
  u32 first_block;  // of several sets
};

// Sets that one launch works through, no block for two of them.
template <class Set, int MOST>
struct Sets {
  Set sets[MOST];
  u32 count;

  __device__ const Set& of(u32 block) const {
    u32 low = 0;
    for (u32 high = count; high - low > 1;) {
      const u32 middle = (low + high) / 2;
      (sets[middle].first_block <= block ? low : high) = middle;
    }
    return sets[low];
  }
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
