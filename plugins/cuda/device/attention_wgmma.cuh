// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention with wgmma share: how rows of queries and of keys become tiles.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "attention.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Query rows from r0 on (a multiple of ROWS) of q, or of what is laid out as it is.
template <int ROWS, int COLS, int THREADS>
__device__ __forceinline__ void load_queries(u32 tile, const Attention& p, const Head& head,
                                             const void* base, const Strides& strides, i32 r0,
                                             int cols) {
  using Copy = TileCopy<ROWS, COLS, THREADS>;
  const i32 rows = p.q_len * p.group, first = r0 + Copy::row();
  const i32 count = Copy::col() < cols ? rows - first : 0;
  const auto place = [&](i32 row) {
    const RowPlace r = head.row(p, row);
    return (const T*)base + at(strides, head.batch, r.head, r.step) + Copy::col();
  };
  if (Copy::kRowsAtOnce % p.group == 0) {  // a thread's rows are of one head
    Copy::copy(tile, place(first), Copy::kRowsAtOnce / p.group * strides.step, count);
    return;
  }
  const u32 to = tile + Copy::col() / 64 * (ROWS * 128) + Copy::row() * 128 +
                 (Copy::col() / 8 ^ Copy::row()) % 8 * 16;
#pragma unroll 1
  for (int i = 0; i < ROWS; i += Copy::kRowsAtOnce)
    copy_async(to + i * 128, i < count ? place(first + i) : (const T*)base, i < count);
}
// The rows of keys or values from `key` to `end`.
template <int ROWS, int COLS, int THREADS>
__device__ __forceinline__ void load_keys(u32 tile, const Head& head, const void* base,
                                          const Strides& strides, i32 key, i32 end, int cols) {
  using Copy = TileCopy<ROWS, COLS, THREADS>;
  const i32 first = key + Copy::row();
  Copy::copy(tile, (const T*)base + at(strides, head.batch, head.k_head, first) + Copy::col(),
             Copy::kRowsAtOnce * strides.step, Copy::col() < cols ? end - first : 0);
}
#endif
