// SPDX-License-Identifier: Apache-2.0
// Tiles of query rows and of keys that the gradients of attention share: copies to shared memory,
// and products.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), MMA (1: tensor cores), WIDE
// (rows are multiples of 16 bytes, and so are addresses), SIZE (rows of a tile without MMA).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 MMA=1 WIDE=1 SIZE=64
//variant: TT=f32 TS=f32 MASK=0 DP=64 VP=64 MMA=0 WIDE=0 SIZE=64
#pragma once
#include "attention.cuh"
#if MMA
#include "attention_quads.cuh"
#endif

#if MMA && __CUDA_ARCH__ >= 800
constexpr int kThreads = 128, kQStride = DP + 8, kVStride = VP + 8;

template <int COLS>
__device__ __forceinline__ void load_query_rows(T* to, int count, const Attention& p,
                                                const Head& head, const void* base,
                                                const Strides& strides, i32 r0, int cols) {
  load_rows<COLS, COLS + 8, (bool)WIDE, kThreads>(
      to, base, count, cols, QueryPlaces{p, head, base, strides, r0, p.q_len * p.group});
}
template <int COLS>
__device__ __forceinline__ void load_key_rows(T* to, int count, const Head& head, const void* base,
                                              const Strides& strides, i32 key, i32 end, int cols) {
  load_rows<COLS, COLS + 8, (bool)WIDE, kThreads>(to, base, count, cols,
                                                  KeyPlaces(head, base, strides, key, end));
}
#elif !MMA
// 16 x 16 threads; a thread has rows y + 16 i and keys or columns x + 16 j.
constexpr int kThreads = 256, kTile = SIZE, kEach = kTile / 16;
constexpr int kQStride = DP + 1, kVStride = VP + 1;

template <int PADDED>
__device__ inline void load_query_tile(S* to, const Attention& p, const Head& head,
                                       const void* base, const Strides& strides, i32 r0, int cols) {
  load_tile<PADDED, PADDED + 1, false, kThreads>(
      to, base, kTile, cols, QueryPlaces{p, head, base, strides, r0, p.q_len * p.group});
}
template <int PADDED>
__device__ inline void load_key_tile(S* to, const Head& head, const void* base,
                                     const Strides& strides, i32 key, i32 end, int cols) {
  load_tile<PADDED, PADDED + 1, false, kThreads>(to, base, kTile, cols,
                                                 KeyPlaces(head, base, strides, key, end));
}
// c += products of the rows of two tiles, over N columns.
template <int N>
__device__ inline void multiply_tiles(S (&c)[kEach][kEach], const S* rows, const S* keys) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int d = 0; d < N; ++d) {
    S a[kEach], b[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      a[i] = rows[(y + 16 * i) * (N + 1) + d], b[i] = keys[(x + 16 * i) * (N + 1) + d];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) c[i][j] += a[i] * b[j];
  }
}
#endif
