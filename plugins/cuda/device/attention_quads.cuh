// SPDX-License-Identifier: Apache-2.0
// Online softmax and epilogue of attention kernels on tensor cores. A quad (four lanes) holds the
// scores of two query rows, 8 apart: element i of a lane is in row i / 2 % 2 and column
// quad_column(i). So do its sums of values.
//variant: TT=bf16 TS=f32 MASK=0
//variant: TT=f16 TS=f32 MASK=2 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 SPLIT=1
#pragma once
#include "attention_epilogue.cuh"
#include "row_max.cuh"

__device__ __forceinline__ int quad_column(int i) {
  return i / 4 * 8 + (int)(threadIdx.x % 4) * 2 + i % 2;
}

#if __CUDA_ARCH__ >= 800
// c (16 rows x N) += a's rows from i on times b's rows, over COLS columns. Rows begin COLS + 8 elements apart.
template <int COLS, int N>
__device__ __forceinline__ void multiply_rows(f32 (&c)[N / 2], const T* a, int i, const T* b) {
#pragma unroll
  for (int d = 0; d < COLS; d += 16) {
    u32 left[4], right[4];
    load_left<true>(left, a, COLS + 8, i, d);
#pragma unroll
    for (int j = 0; j < N / 16; ++j) {
      load_right<true>(right, b, COLS + 8, j * 16, d);
      multiply_add(c + j * 8, left, right[0], right[1], T{});
      multiply_add(c + j * 8 + 4, left, right[2], right[3], T{});
    }
  }
}
#endif

// The two query rows of a quad, and the keys that they may attend to.
struct QuadRows {
  i32 row[2];
  Limits limits[2];
  const T* mask[2];
  // first: the warp's first row; end: rows from there on do not exist.
  __device__ QuadRows(const Attention& p, const Head& head, i32 first, i32 end) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row[h] = first + h * 8 + (int)(threadIdx.x % 32 / 4);
      const bool real = row[h] < end;
      const RowPlace r = head.row(p, row[h]);
      limits[h] = real ? limits_of(p, head.batch, r.step) : Limits{0, 0};
      mask[h] = real ? mask_row_of(p, head, r) : (const T*)nullptr;
    }
  }
  __device__ __forceinline__ bool see_all(i32 key, i32 count) const {
    return limits[0].first <= key && limits[0].last >= key + count && limits[1].first <= key &&
           limits[1].last >= key + count;
  }
};
// Products q·k of the keys from `key` on become scores, -infinity where a row does not attend.
template <int N>
__device__ __forceinline__ void mask_scores(const Attention& p, const QuadRows& rows, i32 key,
                                            f32 (&s)[N]) {
  const bool all = rows.see_all(key, N * 2);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int h = i / 2 % 2;
    const i32 c = key + quad_column(i);
    f32 capped;
    // Without short-circuit: selects, not branches.
    const bool seen = all | ((c >= rows.limits[h].first) & (c < rows.limits[h].last));
    s[i] = seen ? score(p, s[i], rows.mask[h], c, capped) : -infinity(0.f);
  }
}

// Takes the scores of a tile into the maxima of both rows. `base` gets what weights are relative to
// (see weight_of), `rescale` the factors for what was summed so far.
template <bool SCALED, int N>
__device__ __forceinline__ void follow_scores(const f32 (&s)[N], f32 factor, f32 (&row_max)[2],
                                              f32 (&base)[2], f32 (&rescale)[2]) {
  // Both rows at once, each in two parts: more independent instructions.
  f32 now[4] = {fmaxf(row_max[0], s[0]), s[1], fmaxf(row_max[1], s[2]), s[3]};
#pragma unroll
  for (int i = 4; i < N; ++i) now[i % 4] = fmaxf(now[i % 4], s[i]);
  now[0] = fmaxf(now[0], now[1]), now[2] = fmaxf(now[2], now[3]);
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      now[h * 2] = fmaxf(now[h * 2], __shfl_xor_sync(~0u, now[h * 2], lanes));
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const RowMax next = follow_max<SCALED>(row_max[h], now[h * 2], factor);
    row_max[h] = next.row_max, base[h] = next.base, rescale[h] = next.rescale;
  }
}
// Scores of a tile become weights. Updates the maximum and the sum of weights (of this lane's
// columns) of both rows.
template <bool SCALED, int N>
__device__ __forceinline__ void softmax_step(f32 (&s)[N], f32 factor, f32 (&row_max)[2],
                                             f32 (&row_sum)[2], f32 (&rescale)[2]) {
  f32 base[2], part[4];
  follow_scores<SCALED>(s, factor, row_max, base, rescale);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    s[i] = weight_of<SCALED>(s[i], base[i / 2 % 2], factor);
    part[i % 4] = i < 4 ? s[i] : part[i % 4] + s[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
    row_sum[h] = row_sum[h] * rescale[h] + (part[h * 2] + part[h * 2 + 1]);
}

// Sums of values follow their rows' maximum.
template <int N>
__device__ __forceinline__ void rescale_sums(f32 (&o)[N], const f32 (&rescale)[2]) {
  if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1))
#pragma unroll
    for (int i = 0; i < N; ++i) o[i] *= rescale[i / 2 % 2];
}
// The sum of weights over all columns of a row.
__device__ __forceinline__ f32 quad_sum(f32 x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Results of a quad's rows, or their partial sums (SPLIT). PAIRS: two columns in a store.
template <bool PAIRS, int N>
__device__ __forceinline__ void finish_quads(const Attention& p, const QueryTile& tile,
                                             const QuadRows& rows, const f32 (&o)[N],
                                             const f32 (&row_max)[2], const f32 (&row_sum)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const f32 sum = quad_sum(row_sum[h]);
    if (rows.row[h] >= tile.end) continue;
    const bool first = threadIdx.x % 4 == 0;
#if SPLIT
    S* part = part_of(p, tile.index, tile.split, rows.row[h]);
#pragma unroll
    for (int i = h * 2; i < N; i += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (quad_column(i + e) < p.v_dim) part[quad_column(i + e)] = o[i + e];
    if (first) part[p.v_dim] = row_max[h], part[p.v_dim + 1] = sum;
#else
    const RowPlace r = tile.head.row(p, rows.row[h]);
    T* to = result_of(p, tile.head, r);
#pragma unroll
    for (int i = h * 2; i < N; i += 4) {
      const int col = quad_column(i);
      const T x = mean(o[i], sum), y = mean(o[i + 1], sum);
      if (PAIRS) {
        if (col < p.v_dim) store(to + col, Vec<T, 2>{x, y});
      } else {
        if (col < p.v_dim) to[col] = x;
        if (col + 1 < p.v_dim) to[col + 1] = y;
      }
    }
    if (first) store_lse(p, tile.head, r, row_max[h], sum);
#endif
  }
}
