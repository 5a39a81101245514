// SPDX-License-Identifier: Apache-2.0
// Copies of query rows and keys to the tiles of the gradients of attention with wgmma.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "attention.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The rows of keys or values from `key` to `end`, tile after tile.
template <int ROWS, int COLS, int THREADS>
struct KeyRows {
  using Copy = TileCopy<ROWS, COLS, THREADS>;
  const T* from;
  i64 step;
  i32 count;
  __device__ KeyRows(const Head& head, const void* base, const Strides& strides, i32 key, i32 end,
                     int cols)
      : from((const T*)base + at(strides, head.batch, head.k_head, key + Copy::row()) +
             Copy::col()),
        step(Copy::kRowsAtOnce * strides.step),
        count(Copy::col() < cols ? end - key - Copy::row() : 0) {}
  __device__ __forceinline__ void load(u32 tile) { Copy::copy(tile, from, step, count); }
};

// Query rows from r0 on (a multiple of ROWS) of q or of a tensor with its layout.
template <int ROWS, int COLS, int THREADS>
struct QueryRows {
  using Copy = TileCopy<ROWS, COLS, THREADS>;
  const Attention& p;
  const Head& head;
  const T* base;
  const Strides& strides;
  const T* from;
  i64 step;  // 0: a thread's rows belong to several heads
  i32 row, count;
  __device__ QueryRows(const Attention& p, const Head& head, const void* base,
                       const Strides& strides, i32 r0, int cols)
      : p(p), head(head), base((const T*)base), strides(strides), row(r0 + Copy::row()) {
    from = place(row);
    step = Copy::kRowsAtOnce % p.group == 0 ? Copy::kRowsAtOnce / p.group * strides.step : 0;
    count = Copy::col() < cols ? p.q_len * p.group - row : 0;
  }
  __device__ const T* place(i32 r) const {
    const RowPlace x = head.row(p, r);
    return base + at(strides, head.batch, x.head, x.step) + Copy::col();
  }
  __device__ __forceinline__ void load(u32 tile) {
    if (step != 0) return Copy::copy(tile, from, step, count);
    const u32 to = Copy::place(tile);
#pragma unroll 1
    for (int i = 0; i < ROWS; i += Copy::kRowsAtOnce)
      copy_async(to + i * 128, i < count ? place(row + i) : base, i < count);
    row += ROWS;
    count -= ROWS;
  }
};
#endif
