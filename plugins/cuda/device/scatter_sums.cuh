// SPDX-License-Identifier: Apache-2.0
// Sums over lanes of a warp that stay with different lanes.
#pragma once
#include "common.cuh"

// Sums over kWidth lanes that are `stride` apart; `id` is this lane's place among them. Each lane
// keeps the sums of some of the values, from place_of_sums on. Of fewer values than lanes, several
// lanes keep the same sum.
template <int kValues, int kWidth, int kCount>
__device__ inline void scatter_sums(f32 (&v)[kCount], int id, int stride) {
  static_assert(kValues <= kCount, "");
  if constexpr (kWidth > 1) {
    constexpr int half = kWidth / 2;
    if constexpr (kValues > 1) {
      const bool upper = (id & half) != 0;
#pragma unroll
      for (int j = 0; j < kValues / 2; ++j) {
        const f32 given = upper ? v[j] : v[j + kValues / 2];
        const f32 kept = upper ? v[j + kValues / 2] : v[j];
        v[j] = kept + __shfl_xor_sync(~0u, given, half * stride);
      }
      scatter_sums<kValues / 2, half>(v, id, stride);
    } else {
      v[0] += __shfl_xor_sync(~0u, v[0], half * stride);
      scatter_sums<1, half>(v, id, stride);
    }
  }
}
template <int kValues, int kWidth>
__device__ inline int place_of_sums(int id) {
  return kValues >= kWidth ? id * (kValues / kWidth) : id / (kWidth / kValues);
}
template <int kValues, int kWidth>
__device__ inline bool keeps_sums(int id) {
  return kValues >= kWidth || id % (kWidth / kValues) == 0;
}
