//variant: FROM=0 TO=0
//variant: FROM=1 TO=0
//variant: FROM=1 TO=1
//variant: FROM=2 TO=0
// SPDX-License-Identifier: Apache-2.0
// A stable sort of entries by some digits of 8 bits, lowest first: for each digit, count, sum and
// move. FROM: what a pass reads. 0: keys of splat_sort, by their depth. 1: entries. 2: ids, by the
// pair. TO: what it writes. 0: entries. 1: entries whose digits are the tile. The number of a tile or
// a pair is one more than it: 0 is below all, and tiles + 1 above them.
//entry: splat_sort_clear = clear(SplatSort)
//entry: splat_sort_find = find(SplatSort)
//entry: splat_sort_count = count(SplatSort)
//entry: splat_sort_sum = sum(SplatSort)
//entry: splat_sort_move = move(SplatSort)
//entry: splat_sort_finish = finish(SplatSort, i64, i32*, i32*)
#include "order.cuh"
#include "splat.args.cuh"

constexpr int kItems = 12, kPart = 256 * kItems;

__device__ inline u64 entry_at(const SplatSort& s, u32 at) {
  if constexpr (FROM == 0) {
    return (u64)s.keys[at] << 32 | at;
  } else if constexpr (FROM == 1) {
    return s.from[at];
  } else {
    const i64 id = s.ids[at];
    return (u64)(id >= 0 && id < s.end ? id + 1 : 0) << 32 | at;
  }
}
__device__ inline u64 moved(const SplatSort& s, u64 entry) {
  if constexpr (TO == 1) {
    const i64 tile = s.keys[(u32)entry] >> 32;
    return (u64)(tile < 0 ? 0 : min(tile, s.end) + 1) << 32 | (u32)entry;
  } else {
    return entry;
  }
}
__device__ inline u32 digit_of(const SplatSort& s, u64 entry) {
  return (u32)(entry >> 32 >> s.shift) & 255;
}

extern "C" __global__ void __launch_bounds__(32) clear(const SplatSort s) {
  if (threadIdx.x == 0) *s.used = 0;
}

extern "C" __global__ void __launch_bounds__(256) find(const SplatSort s) {
  u32 last = 0;
#pragma unroll 4
  for (int j = 0; j < kItems; ++j) {
    const i64 at = (i64)blockIdx.x * kPart + j * 256 + threadIdx.x;
    if (at >= s.entries) continue;
    bool used;
    if constexpr (FROM == 2)
      used = s.ids[at] >= 0 && s.ids[at] < s.end;
    else
      used = s.keys[at] >> 32 < s.end;
    if (used) last = (u32)at + 1;
  }
  last = join_lanes<256>(last, Most());
  if (threadIdx.x == 0 && last > *s.used) atomicMax(s.used, last);
}

extern "C" __global__ void __launch_bounds__(256) count(const SplatSort s) {
  __shared__ u32 bins[256];
  const u32 begin = blockIdx.x * kPart, all = *s.used;
  bins[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 4
  for (int j = 0; j < kItems; ++j) {
    const u32 at = begin + j * 256 + threadIdx.x;
    if (at < all) atomicAdd(&bins[digit_of(s, entry_at(s, at))], 1u);
  }
  __syncthreads();
  s.counts[(i64)threadIdx.x * s.parts + blockIdx.x] = bins[threadIdx.x];
}

// A block for each digit: its counts become those of earlier parts.
extern "C" __global__ void __launch_bounds__(256) sum(const SplatSort s) {
  constexpr int each = 4;
  u32* const counts = s.counts + (i64)blockIdx.x * s.parts;
  u32 before = 0;
  for (u32 first = 0; first < s.parts; first += 256 * each) {
    u32 own[each], mine = 0, total;
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const u32 at = first + threadIdx.x * each + k;
      own[k] = at < s.parts ? counts[at] : 0;
      mine += own[k];
    }
    u32 at = before + sum_before<256>(mine, total);
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const u32 part = first + threadIdx.x * each + k;
      if (part < s.parts) counts[part] = at;
      at += own[k];
    }
    before += total;
  }
  if (threadIdx.x == 0) s.totals[blockIdx.x] = before;
}

extern "C" __global__ void __launch_bounds__(256, 3) move(const SplatSort s) {
  __shared__ u64 kept[kPart];
  __shared__ u32 bins[8 * 256], starts[256];
  const u32 begin = blockIdx.x * kPart, all = *s.used;
  if (begin >= all) return;
  const u32 size = min((u32)kPart, all - begin);
  u64 entry[kItems];
  u32 digit[kItems], at[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const u32 i = item_at<kItems>(j);
    // Beyond the end: sorted behind all others.
    entry[j] = i < size ? entry_at(s, begin + i) : ~u64(0);
    digit[j] = i < size ? digit_of(s, entry[j]) : 255;
  }
  u32 total;
  const u32 start = sum_before<256>(s.totals[threadIdx.x], total) +
                    s.counts[(i64)threadIdx.x * s.parts + blockIdx.x];
  rank_digits<256>(digit, at, bins);
  starts[threadIdx.x] = start - bins[threadIdx.x];
#pragma unroll
  for (int j = 0; j < kItems; ++j) kept[at[j]] = entry[j];
  __syncthreads();
#pragma unroll 4
  for (int j = 0; j < kItems; ++j) {
    const u32 i = j * 256 + threadIdx.x;
    if (i >= size) continue;
    const u64 e = kept[i];
    s.to[starts[digit_of(s, e)] + i] = moved(s, e);
  }
}

// The ids in their new order, and where each tile begins.
extern "C" __global__ void __launch_bounds__(256)
    finish(const SplatSort s, const i64 tiles, i32* sorted, i32* offsets) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
  const u32 all = *s.used;
  if (at < s.entries) {
    i32 id = -1;
    if (at < all) {
      const u64 e = s.from[at], number = e >> 32;
      if (number > 0 && number <= (u64)tiles) id = s.ids[(u32)e];
    }
    sorted[at] = id;
  }
  if (at < tiles) {
    u32 low = 0, high = all;  // the first entry of this tile or a later one
    while (low < high) {
      const u32 middle = low + (high - low) / 2;
      if (s.from[middle] >> 32 <= (u64)at)
        low = middle + 1;
      else
        high = middle;
    }
    offsets[at] = (i32)low;
  }
}
