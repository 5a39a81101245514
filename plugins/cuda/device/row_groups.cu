// SPDX-License-Identifier: Apache-2.0
// Rows sorted by expert: a stable counting sort by ids, or offsets that are checked; and the tiles
// of each expert's rows. A row of no expert, or whose expert does not exist, goes to the last group.
#include "row_groups.cuh"

constexpr int kThreads = 1024;

__device__ inline i64 number_at(const RowGroups& g, i64 k) {
  return g.wide ? static_cast<const i64*>(g.list)[k] : (i64) static_cast<const i32*>(g.list)[k];
}
__device__ inline i32 group_of(const RowGroups& g, i32 row, bool tell) {
  const i64 id = number_at(g, row);
  if (0 <= id && id < g.experts) return (i32)id;
  if (id != -1 && tell) report(g.sink, kIndexOutOfRange, (u64)row);
  return g.experts;
}
// f(row, its count, what that held, lanes of the same group): for a part's rows in order, 32 at a
// time. A part's counts are its warp's own.
template <class F>
__device__ inline void for_part(const RowGroups& g, i32 part, bool tell, F f) {
  const i32 begin = part * g.part_rows, end = begin + min(g.rows - begin, g.part_rows);
  for (i32 first = begin; first < end; first += 32) {
    const i32 row = first + (i32)(threadIdx.x % 32);
    const i32 group = row < end ? group_of(g, row, tell) : g.experts + 1;
    const u32 same = __match_any_sync(~0u, group);
    u32* const count = g.counts + (i64)group * g.parts + part;
    const u32 held = row < end ? *count : 0;
    __syncwarp();
    if (row < end) f(row, count, held, same);
    __syncwarp();
  }
}
__device__ inline u32 before_me(u32 lanes) {
  return __popc(lanes & ((1u << threadIdx.x % 32) - 1));
}

__device__ inline void count_part(const RowGroups& g, i32 part) {
  for (i32 e = threadIdx.x % 32; e <= g.experts; e += 32) g.counts[(i64)e * g.parts + part] = 0;
  __syncwarp();
  for_part(g, part, true, [](i32, u32* count, u32 held, u32 same) {
    if (before_me(same) == 0) *count = held + __popc(same);
  });
}
__device__ inline void place_part(const RowGroups& g, i32 part) {
  for_part(g, part, false, [&](i32 row, u32* next, u32 held, u32 same) {
    g.order[held + before_me(same)] = row;
    if (before_me(same) == 0) *next = held + __popc(same);
  });
}

// put(k, sum of what lies before k) for k < n, by the whole block; returns the sum of all.
template <class Get, class Put>
__device__ inline u32 sum_before(i64 n, Get get, Put put) {
  constexpr int kOwn = 8;
  __shared__ u32 warps[kThreads / 32];
  __shared__ u32 carry;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (i64 base = 0; base < n; base += kThreads * kOwn) {
    const i64 first = base + threadIdx.x * kOwn;
    u32 own[kOwn], all = 0;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) own[e] = first + e < n ? get(first + e) : 0;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) all += own[e];
    u32 sum = all;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 before = carry + sum - all;
    for (int w = 0; w < warp; ++w) before += warps[w];
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      if (first + e < n) put(first + e, before);
      before += own[e];
    }
    __syncthreads();  // carry and warps were read
    if (threadIdx.x == kThreads - 1) carry = before;
    __syncthreads();
  }
  return carry;
}

// The tiles of all groups, from starts; those left over are empty.
__device__ inline void make_tiles(const RowGroups& g) {
  const auto rows = [&](i64 e) { return g.starts[e + 1] - g.starts[e]; };
  const i32 count = (i32)sum_before(
      g.experts + 1, [&](i64 e) { return (u32)((rows(e) + g.tile - 1) / g.tile); },
      [&](i64 e, u32 before) { g.tile_starts[e] = (i32)before; });
  for (i32 e = threadIdx.x / 32; e <= g.experts; e += kThreads / 32)
    for (i32 first = threadIdx.x % 32 * g.tile; first < rows(e); first += 32 * g.tile)
      g.tiles[g.tile_starts[e] + first / g.tile] = {e, g.starts[e] + first,
                                                    min(g.tile, rows(e) - first), 0};
  for (i32 t = count + threadIdx.x; t < g.most_tiles; t += kThreads) g.tiles[t] = {0, 0, 0, 0};
}
__device__ inline void sum_groups_of(const RowGroups& g) {
  sum_before((i64)(g.experts + 1) * g.parts, [&](i64 k) { return g.counts[k]; },
             [&](i64 k, u32 before) { g.counts[k] = before; });
  for (i32 e = threadIdx.x; e <= g.experts; e += kThreads)
    g.starts[e] = (i32)g.counts[(i64)e * g.parts];
  if (threadIdx.x == 0) g.starts[g.experts + 1] = g.rows;
  __syncthreads();
  make_tiles(g);
}

// ---- ids: few rows by one block, many by three kernels

extern "C" __global__ void __launch_bounds__(kThreads) group_rows(const RowGroups g) {
  const i32 warp = threadIdx.x / 32;
  for (i32 part = warp; part < g.parts; part += kThreads / 32) count_part(g, part);
  __syncthreads();
  sum_groups_of(g);
  __syncthreads();
  for (i32 part = warp; part < g.parts; part += kThreads / 32) place_part(g, part);
}

extern "C" __global__ void __launch_bounds__(256) count_rows(const RowGroups g) {
  const i32 part = (i32)(blockIdx.x * 8 + threadIdx.x / 32);
  if (part < g.parts) count_part(g, part);
}
extern "C" __global__ void __launch_bounds__(kThreads) sum_groups(const RowGroups g) {
  sum_groups_of(g);
}
extern "C" __global__ void __launch_bounds__(256) place_rows(const RowGroups g) {
  const i32 part = (i32)(blockIdx.x * 8 + threadIdx.x / 32);
  if (part < g.parts) place_part(g, part);
}

// ---- offsets: when they are none, all rows are of no expert

extern "C" __global__ void __launch_bounds__(kThreads) group_offsets(const RowGroups g) {
  bool bad = false;
  for (i32 e = threadIdx.x; e <= g.experts; e += kThreads) {
    const i64 at = number_at(g, e), least = e == 0 ? 0 : number_at(g, e - 1);
    const bool fine = at >= least && at <= g.rows && (e > 0 || at == 0) &&
                      (e < g.experts || at == g.rows);
    if (!fine) report(g.sink, kIndexOutOfRange, (u64)e);
    bad |= !fine;
  }
  bad = __syncthreads_or(bad);
  for (i32 e = threadIdx.x; e <= g.experts; e += kThreads)
    g.starts[e] = bad ? 0 : (i32)number_at(g, e);
  if (threadIdx.x == 0) g.starts[g.experts + 1] = g.rows;
  __syncthreads();
  make_tiles(g);
}
