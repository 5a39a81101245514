// SPDX-License-Identifier: Apache-2.0
// What attention kernels of few query rows share. A block takes 16 query rows and a range of the
// keys. Each of its four warps takes every fourth group of 16 keys, and loads it by itself. The block
// joins its warps' sums in order.
// Defines: as attention.cuh.
//variant: TT=bf16 TS=f32 MASK=0 SPLIT=1 KV_LEN=i64 PAST_LEN=i64
//variant: TT=f16 TS=f32 MASK=1 SPLIT=0 KV_LEN=i32 BLOCK_TABLE=i32
#pragma once
#include "attention_quads.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kRows = 16, kKeys = 16, kWarps = 4;

// A row, if it exists.
template <class E>
struct Row {
  const E* from;
  bool real;
};
// The keys of the warp that are loaded next.
struct WarpKeys {
#ifdef BLOCK_TABLE
  i32 line, next;  // of row lane % 16, -1 if it does not exist; the table's numbers arrive ahead of their use
  i32 step;        // from one 16 keys to the next
  __device__ WarpKeys(const Attention& p, const Head& head, i32 key, i32 end, i32 step = kWarps * kKeys)
      : line(-1), next(line_at(p, head, key, end)), step(step) {}
  static __device__ __forceinline__ i32 line_at(const Attention& p, const Head& head, i32 key, i32 end) {
    const i32 mine = key + (i32)threadIdx.x % kKeys;
    return mine < end ? line_of(p, head.batch, mine) : -1;
  }
  // Moves to the 16 keys from `key` on, `step` behind the last ones that were asked for.
  __device__ __forceinline__ void find(const Attention& p, const Head& head, i32 key, i32 end) {
    line = next;
    next = line_at(p, head, key + step, end);
  }
  // Where their rows are. All lanes of a warp ask together.
  template <class E>
  __device__ __forceinline__ auto places(const Attention&, const Head& head, const void* base,
                                         const Strides& strides) const {
    const E* const first = first_key<E>(head, base, strides);
    return [=, step = strides.step, line = line](int row) {
      const i32 at = __shfl_sync(~0u, line, row);
      return Row<E>{first + at * step, at >= 0};
    };
  }
#else
  i32 key, end;
  __device__ WarpKeys(const Attention&, const Head&, i32 key, i32 end, i32 = 0)
      : key(key), end(end) {}
  __device__ __forceinline__ void find(const Attention&, const Head&, i32 at, i32) { key = at; }
  template <class E>
  __device__ __forceinline__ auto places(const Attention&, const Head& head, const void* base,
                                         const Strides& strides) const {
    const E* const first = first_key<E>(head, base, strides) + key * strides.step;
    return [=, step = strides.step, count = end - key](int row) {
      return Row<E>{first + row * step, row < count};
    };
  }
#endif
};

// Results of the block's rows, or their partial sums (SPLIT). Element i of a lane's sums is in column
// column_of(i). shared: room for kWarps * kRows * (COLS + 2) numbers, which nothing else uses.
template <int COLS, int N, class ColumnOf>
__device__ __forceinline__ void join_warps(const Attention& p, const QueryTile& tile, void* shared,
                                           const QuadRows& rows, const f32 (&o)[N],
                                           const f32 (&row_max)[2], const f32 (&row_sum)[2],
                                           ColumnOf column_of) {
  constexpr int kStride = COLS + 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Head& head = tile.head;
  __syncthreads();
  f32* sums = (f32*)shared;  // of each warp and row: COLS sums, the maximum, the sum of weights
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const f32 sum = quad_sum(row_sum[h]);
    f32* to = sums + (warp * kRows + rows.row[h] - tile.r0) * kStride;
#pragma unroll
    for (int i = h * 2; i < N; i += 4) to[column_of(i)] = o[i], to[column_of(i + 1)] = o[i + 1];
    if (lane % 4 == 0) to[COLS] = row_max[h], to[COLS + 1] = sum;
  }
  __syncthreads();
  for (int r = warp; r < tile.end - tile.r0; r += kWarps) {
    const f32* part[kWarps];
    f32 top = -infinity(0.f), total = 0, factor[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      part[w] = sums + (w * kRows + r) * kStride;
      top = fmaxf(top, part[w][COLS]);
    }
    const f32 base = top == -infinity(0.f) ? 0.f : top;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factor[w] = exp2_of((part[w][COLS] - base) * kLog2E);
      total += part[w][COLS + 1] * factor[w];
    }
    const RowPlace place = head.row(p, tile.r0 + r);
    T* to = result_of(p, head, place);
    f32* left = part_of(p, tile.index, tile.split, tile.r0 + r);
    for (int col = lane; col < p.v_dim; col += 32) {
      f32 x = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) x += part[w][col] * factor[w];
      if (SPLIT)
        left[col] = x;
      else
        to[col] = mean(x, total);
    }
    if (lane != 0) continue;
    if (SPLIT)
      left[p.v_dim] = top, left[p.v_dim + 1] = total;
    else
      store_lse(p, head, place, top, total);
  }
}
#endif
