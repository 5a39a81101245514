// SPDX-License-Identifier: Apache-2.0
// Lists of the nearest candidates: a warp has 32 entries in order, one in each lane. An entry is the
// order of a distance, then the candidate, so that equal distances are in the order of candidates.
#pragma once
#include "common.cuh"
#include "knn.args.cuh"
#include "rows.cuh"

constexpr u32 kAll = 0xffffffffu;
constexpr u64 kNone = ~(u64)0;  // behind all distances

__device__ inline u32 order_of(f32 x) {
  if (x != x) return kAll;
  const u32 bits = __float_as_uint(x + 0.f);  // -0 equals 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline f32 distance_of(u32 order) {
  if (order == kAll) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
__device__ inline u64 entry_of(f32 distance, u32 candidate) {
  return (u64)order_of(distance) << 32 | candidate;
}
__device__ inline u64 from_lane(u64 v, int lane) {
  const u32 high = __shfl_sync(~0u, (u32)(v >> 32), lane), low = __shfl_sync(~0u, (u32)v, lane);
  return (u64)high << 32 | low;
}
// Lanes `stride` apart exchange entries: the lower lane keeps the smaller one, or the larger one.
__device__ inline u64 exchange_entries(u64 v, int stride, bool descends) {
  const int lane = threadIdx.x % 32;
  const u64 other = from_lane(v, lane ^ stride);
  const bool smaller = ((lane & stride) == 0) != descends;
  return (other < v) == smaller ? other : v;
}
__device__ inline u64 sort_entries(u64 v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int size = 2; size <= 32; size *= 2)
#pragma unroll
    for (int stride = size / 2; stride > 0; stride /= 2)
      v = exchange_entries(v, stride, size < 32 && (lane & size) != 0);
  return v;
}
// The 32 smallest of a list and of entries in any order.
__device__ inline u64 take_entries(u64 list, u64 entries) {
  const u64 other = from_lane(sort_entries(entries), 31 - (int)threadIdx.x % 32);
  u64 v = other < list ? other : list;
#pragma unroll
  for (int stride = 16; stride > 0; stride /= 2) v = exchange_entries(v, stride, false);
  return v;
}

// Of point i and candidate j: Σ(x - y)² or Σ x·y becomes what is compared.
__device__ inline f32 compared(const Knn& s, i64 batch, i64 i, i64 j, f32 sum) {
  if (s.metric == 3) return -sum;
  if (s.metric != 2) return sum;
  if (s.x_norm[batch * s.rows + i] == 0.f || s.y_norm[batch * s.others + j] == 0.f)
    return s.own && i == j ? 0.f : 2.f;
  return sum;
}
// The first k of a list are the result.
__device__ inline void give(const Knn& s, i64 row, u64 list, i32* index, f32* distance) {
  const int lane = threadIdx.x % 32;
  if (lane >= s.k) return;
  f32 d = distance_of((u32)(list >> 32));
  if (s.metric == 1) d = sqrtf(d);
  if (s.metric == 2) d *= 0.5f;
  index[row * s.k + lane] = (i32)(u32)list;
  distance[row * s.k + lane] = d;
}
