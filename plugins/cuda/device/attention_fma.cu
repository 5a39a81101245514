// SPDX-License-Identifier: Apache-2.0
// Attention forward without tensor cores, for every dtype and heads of up to 256 elements: 16 x 8
// threads hold TR query rows and TC keys of a tile each, so that FMAs and not shared memory limit
// the speed.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), TR, TC; WIDE (T is f32, rows
// are multiples of 16 bytes, and so are addresses); ONE_BUFFER (1: values overwrite the keys of the
// tile, for devices with little shared memory).
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 TR=8 TC=4 WIDE=1 ONE_BUFFER=0
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=48 TR=4 TC=2 WIDE=0 ONE_BUFFER=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f16 TS=f32 MASK=1 DP=128 VP=256 TR=2 TC=1 WIDE=0 ONE_BUFFER=1
//variant: TT=f64 TS=f64 MASK=2 DP=16 VP=32 TR=1 TC=4 WIDE=0 ONE_BUFFER=1 SPLIT=1 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i32
//variant: TT=f32 TS=f32 MASK=0 DP=64 VP=64 TR=8 TC=4 WIDE=1 ONE_BUFFER=0 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=0 DP=32 VP=16 TR=1 TC=1 WIDE=0 ONE_BUFFER=0 SPLIT=1 KV_LEN=i32 BLOCK_TABLE=i32
#include "attention_epilogue.cuh"

constexpr int kThreads = 128, kLanes = 16, kGroups = kThreads / kLanes;
constexpr int kRows = kGroups * TR, kKeys = kLanes * TC;
// Rows start in different banks, at multiples of 16 bytes.
constexpr int kDimStride = DP + 4, kValueStride = VP + 4, kWeightStride = kKeys + 16;
constexpr int kKeyElements = kKeys * (ONE_BUFFER && VP > DP ? kValueStride : kDimStride);
// A thread's columns of the result: kEach, kWide of them adjacent.
constexpr int kEach = VP / kLanes, kWide = kEach % 4 == 0 ? 4 : kEach % 2 == 0 ? 2 : 1;
__device__ inline int column(int c) {
  return c / kWide * (kLanes * kWide) + threadIdx.x % kLanes * kWide + c % kWide;
}

// A row's scores in 16 lanes become weights. Returns the factor for what was summed so far.
__device__ __forceinline__ S softmax_step(S (&s)[TC], S& row_max, S& row_sum) {
  S now = row_max;
#pragma unroll
  for (int j = 0; j < TC; ++j) now = s[j] > now ? s[j] : now;
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    const S other = __shfl_xor_sync(~0u, now, lanes);
    now = other > now ? other : now;
  }
  const S base = now == -infinity(S(0)) ? S(0) : now, rescale = exp(row_max - base);
  row_max = now;
  row_sum *= rescale;
#pragma unroll
  for (int j = 0; j < TC; ++j) row_sum += s[j] = exp(s[j] - base);
  return rescale;
}

extern "C" __global__ void __launch_bounds__(kThreads) attention(const Attention p) {
  begin_early();
  extern __shared__ __align__(16) u8 smem[];
  S *qs = (S*)smem, *ks = qs + kRows * kDimStride, *vs = ONE_BUFFER ? ks : ks + kKeyElements,
    *ws = vs + (ONE_BUFFER ? kKeyElements : kKeys * kValueStride);
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  const int x = threadIdx.x % kLanes, y = threadIdx.x / kLanes;
  const auto load_values = [&](i32 key) {
    load_tile<VP, kValueStride, (bool)WIDE, kThreads>(
        vs, p.v, kKeys, p.v_dim, key_places(p, head, p.v, p.v_strides, key, tile.keys.last));
  };
  load_tile<DP, kDimStride, (bool)WIDE, kThreads>(
      qs, p.q, kRows, p.dim, QueryPlaces{p, head, p.q, p.q_strides, tile.r0, tile.end});
  i32 row[TR];
  Limits limits[TR];
  const T* mask[TR];
  S o[TR][kEach] = {}, row_max[TR], row_sum[TR] = {};
#pragma unroll
  for (int i = 0; i < TR; ++i) {
    row[i] = tile.r0 + y + kGroups * i;
    const RowPlace r = head.row(p, row[i]);
    limits[i] = row[i] < tile.end ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[i] = row[i] < tile.end ? mask_row_of(p, head, r) : (const T*)nullptr;
    row_max[i] = -infinity(S(0));
  }
  for (i32 key = tile.keys.first; key < tile.keys.last; key += kKeys) {
    if (key != tile.keys.first) __syncthreads();  // the last tile was read
    load_tile<DP, kDimStride, (bool)WIDE, kThreads>(
        ks, p.k, kKeys, p.dim, key_places(p, head, p.k, p.k_strides, key, tile.keys.last));
    if (!ONE_BUFFER) load_values(key);
    await_tile();
    S s[TR][TC] = {};
#pragma unroll 2
    for (int d = 0; d < DP; d += 4) {
      Vec<S, 4> a[TR], b[TC];
#pragma unroll
      for (int i = 0; i < TR; ++i) a[i] = load<S, 4>(qs + (y + kGroups * i) * kDimStride + d);
#pragma unroll
      for (int j = 0; j < TC; ++j) b[j] = load<S, 4>(ks + (x + kLanes * j) * kDimStride + d);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int i = 0; i < TR; ++i)
#pragma unroll
          for (int j = 0; j < TC; ++j) s[i][j] += a[i].v[e] * b[j].v[e];
    }
#pragma unroll
    for (int i = 0; i < TR; ++i) {
#pragma unroll
      for (int j = 0; j < TC; ++j) {
        const i32 c = key + x + kLanes * j;
        S capped;
        s[i][j] = c >= limits[i].first && c < limits[i].last ? score(p, s[i][j], mask[i], c, capped)
                                                             : -infinity(S(0));
      }
      const S rescale = softmax_step(s[i], row_max[i], row_sum[i]);
#pragma unroll
      for (int c = 0; c < kEach; ++c) o[i][c] *= rescale;
#pragma unroll
      for (int j = 0; j < TC; ++j) ws[(y + kGroups * i) * kWeightStride + x + kLanes * j] = s[i][j];
    }
    if (ONE_BUFFER) {
      __syncthreads();  // the keys were read
      load_values(key);
      await_tile();
    } else {
      __syncwarp();  // the weights of a row are those of half a warp
    }
#pragma unroll 2
    for (int c = 0; c < kKeys; c += 4) {
      Vec<S, 4> a[TR];
#pragma unroll
      for (int i = 0; i < TR; ++i) a[i] = load<S, 4>(ws + (y + kGroups * i) * kWeightStride + c);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        Vec<S, kWide> b[kEach / kWide];
#pragma unroll
        for (int g = 0; g < kEach / kWide; ++g)
          b[g] = load<S, kWide>(vs + (c + e) * kValueStride + column(g * kWide));
#pragma unroll
        for (int i = 0; i < TR; ++i)
#pragma unroll
          for (int g = 0; g < kEach; ++g) o[i][g] += a[i].v[e] * b[g / kWide].v[g % kWide];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < TR; ++i) {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
      row_sum[i] += __shfl_xor_sync(~0u, row_sum[i], lanes);
    if (row[i] >= tile.end) continue;
#if SPLIT
    S* part = part_of(p, tile.index, tile.split, row[i]);
#pragma unroll
    for (int c = 0; c < kEach; ++c)
      if (column(c) < p.v_dim) part[column(c)] = o[i][c];
    if (x == 0) part[p.v_dim] = row_max[i], part[p.v_dim + 1] = row_sum[i];
#else
    const RowPlace r = head.row(p, row[i]);
    T* to = result_of(p, head, r);
#pragma unroll
    for (int c = 0; c < kEach; ++c)
      if (column(c) < p.v_dim) to[column(c)] = mean(o[i][c], row_sum[i]);
    if (x == 0) store_lse(p, head, r, row_max[i], row_sum[i]);
#endif
  }
}
