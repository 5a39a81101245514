//variant: KEYS=4 OOB=0 RANK=1 NARROW=1 ELEMENTS=0
//variant: KEYS=16 OOB=2 RANK=2 NARROW=0 ELEMENTS=1
// SPDX-License-Identifier: Apache-2.0
// The updates of a scatter are sorted by (row, position), stably: digit by digit, or few of them by
// groups of rows, of which there are not too many.
#include "order.cuh"
#include "scatter.cuh"

__device__ inline u64 entry_of(const Scatter& s, i64 k, bool tell) {
  i64 at = resolve(s.axis, k, tell);
#if ELEMENTS
  if (at >= 0) {
    i64 place = at * s.elements.step, rest = k;
#pragma unroll
    for (int d = RANK - 1; d >= 0; --d) {
      const i64 dim = s.elements.dims[d];
      const i64 q = d == 0 ? 0 : NARROW ? (i64)((u32)rest / (u32)dim) : rest / dim;
      place += (rest - q * dim) * s.elements.strides[d];
      rest = q;
    }
    at = place;
  }
#endif
  if (at < 0 || at == s.padding) at = s.rows;
  return (u64)at << s.position_bits | (u64)k;
}

constexpr int kSortThreads = 256, kPart = kSortThreads * KEYS, kDigits = 256;
constexpr int kWarps = kSortThreads / 32;

// from: null in the first pass, which makes the entries.
__device__ inline u64 entry_at(const Scatter& s, const u64* from, i64 k, bool tell) {
  return from ? from[k] : entry_of(s, k, tell);
}

// ---- Digit by digit, of 8 bits.

// counts[part][digit]. clear: as many counts for each of `later` passes.
extern "C" __global__ void __launch_bounds__(256)
    count_digits(const Scatter s, const u64* from, u32* counts, u32* clear, const u32 later,
                 u32* long_numbers) {
  __shared__ u32 bins[kDigits];
  if (blockIdx.x == 0 && threadIdx.x < 2) long_numbers[threadIdx.x] = 0;
  bins[threadIdx.x] = 0;
  const i64 place = (i64)blockIdx.x * kDigits + threadIdx.x;
  for (u32 p = 0; p < later; ++p) clear[(i64)p * gridDim.x * kDigits + place] = 0;
  __syncthreads();
#pragma unroll 4
  for (int j = 0; j < KEYS; ++j) {
    const i64 k = (i64)blockIdx.x * kPart + j * kSortThreads + threadIdx.x;
    if (k < s.count) atomicAdd(&bins[entry_at(s, from, k, true) >> s.shift & 255], 1u);
  }
  __syncthreads();
  counts[place] = bins[threadIdx.x];
}

// Counts become sums of what earlier parts have; behind them goes what all have. A lane for each
// digit, a warp for a share of the parts.
extern "C" __global__ void __launch_bounds__(1024) sum_counts(u32* counts, const u32 parts) {
  __shared__ u32 shares[32][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 share = (parts + 31) / 32, first = warp * share, end = min(first + share, parts);
  u32* const at = counts + blockIdx.x * 32 + lane;
  u32 sum = 0;
#pragma unroll 8
  for (u32 p = first; p < end; ++p) sum += at[(i64)p * kDigits];
  shares[warp][lane] = sum;
  __syncthreads();
  u32 before = 0;
  for (u32 w = 0; w < warp; ++w) before += shares[w][lane];
  if (warp == 31) at[(i64)parts * kDigits] = before + sum;
#pragma unroll 8
  for (u32 p = first; p < end; ++p) {
    const u32 n = at[(i64)p * kDigits];
    at[(i64)p * kDigits] = before;
    before += n;
  }
}

// summed: by sum_counts, else each block sums them. next: where the digits of the next pass are
// counted, null where nothing is.
extern "C" __global__ void __launch_bounds__(256)
    move_entries(const Scatter s, const u64* from, u64* to, const u32* counts, u32* next,
                 const u32 summed) {
  __shared__ u32 places[kWarps][kDigits];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, digit = threadIdx.x;
  const i64 first = (i64)blockIdx.x * kPart + warp * (32 * KEYS) + lane;
  const auto real = [&](int j) { return first + j * 32 < s.count; };
  const auto digit_of = [&](u64 entry) { return (u32)(entry >> s.shift) & 255; };
  u64 entries[KEYS];
#pragma unroll
  for (int j = 0; j < KEYS; ++j)
    entries[j] = real(j) ? entry_at(s, from, first + j * 32, false) : ~u64(0);
  u32 total = 0, at = 0;  // entries with this thread's digit: all, those of earlier parts
  if (summed) {
    at = counts[(i64)blockIdx.x * kDigits + digit];
    total = counts[(i64)gridDim.x * kDigits + digit];
  } else {
#pragma unroll 16
    for (u32 p = 0; p < gridDim.x; ++p) {
      const u32 n = counts[p * kDigits + digit];
      at += p < blockIdx.x ? n : 0;
      total += n;
    }
  }
#pragma unroll
  for (int i = 0; i < kDigits; i += 32) places[warp][i + lane] = 0;
  __syncwarp();
  u32 rank[KEYS];  // in its warp, among those with its digit
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    const u32 d = digit_of(entries[j]);
    const u32 same = same_digit(d) & __ballot_sync(~0u, real(j));
    const u32 before = __popc(same & ((1u << lane) - 1)), had = places[warp][d];
    __syncwarp();
    if (real(j) && before == 0) places[warp][d] = had + __popc(same);
    __syncwarp();
    rank[j] = had + before;
  }
  u32 all;
  at += sum_before<kSortThreads>(total, all);
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const u32 n = places[w][digit];
    places[w][digit] = at;
    at += n;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    if (!real(j)) continue;
    const u32 place = places[warp][digit_of(entries[j])] + rank[j];
    to[place] = entries[j];
    if (next)
      atomicAdd(next + place / kPart * kDigits + ((u32)(entries[j] >> (s.shift + 8)) & 255), 1u);
  }
}

// bounds[row] = {first, end} of its segment, filled with zeros before; or null.
extern "C" __global__ void __launch_bounds__(256)
    find_segments(const Scatter s, const u64* entries, uint2* bounds, const LongSegments longs) {
  const i64 k = (i64)blockIdx.x * 256 + threadIdx.x;
  if (k >= s.count) return;
  const i64 row = row_of(s, entries[k]);
  if (row >= s.rows) return;
  const bool begins = k == 0 || row_of(s, entries[k - 1]) != row;
  if (bounds) {
    if (begins) bounds[row].x = (u32)k;
    if (k + 1 == s.count || row_of(s, entries[k + 1]) != row) bounds[row].y = (u32)(k + 1);
  }
  if (!begins || k + kLong >= s.count || row_of(s, entries[k + kLong]) != row) return;
  i64 end = k + kLong + 1, high = s.count;  // the first entry behind the row
  while (end < high) {
    const i64 middle = (end + high) / 2;
    if (row_of(s, entries[middle]) <= row)
      end = middle + 1;
    else
      high = middle;
  }
  longs.add((u32)k, (u32)end);
}

#if KEYS == 4
// ---- By groups: parts of the entries are sorted by the groups of their rows; then a block takes
// what all parts have of its group, in their order, and sorts that by rows. Rows go to groups by
// turns, for what is frequent often lies beside each other. So the order is that of (group, row).

constexpr int kGroupThreads = 512, kGroupWarps = kGroupThreads / 32;
constexpr int kGroupRows = 1152;  // at most
constexpr int kPartsOfWarp = 4;   // at most
constexpr int kNoGroup = kDigits - 1;

// starts[part][group]: where in its part a group begins.
extern "C" __global__ void __launch_bounds__(256)
    split_entries(const Scatter s, const Divisor groups, u64* to, u32* starts, u32* long_numbers) {
  __shared__ u32 counts[kWarps * kDigits];
  let_next_begin();
  await_earlier();
  if (blockIdx.x == 0 && threadIdx.x < 2) long_numbers[threadIdx.x] = 0;
  const i64 first = (i64)blockIdx.x * kPart;
  u64 entries[KEYS];
  u32 digits[KEYS], places[KEYS];
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    const i64 k = first + item_at<KEYS>(j);
    entries[j] = k < s.count ? entry_of(s, k, true) : 0;
    const u32 row = (u32)row_of(s, entries[j]);
    digits[j] = k < s.count ? row - groups.quotient(row) * groups.value : kNoGroup;
  }
  rank_digits<kSortThreads, KEYS>(digits, places, counts);
  starts[blockIdx.x * kDigits + threadIdx.x] = counts[threadIdx.x];
#pragma unroll
  for (int j = 0; j < KEYS; ++j)
    if (digits[j] != kNoGroup) to[first + places[j]] = entries[j];
}

// heads[position]: {first, end, row} of the short segment that it begins,
// zeros for others; or null.
extern "C" __global__ void __launch_bounds__(kGroupThreads)
    sort_groups(const Scatter s, const Divisor groups, const u32 parts, const u64* from,
                const u32* starts, u64* to, uint2* bounds, uint4* heads, const LongSegments longs) {
  __shared__ u32 counts[kGroupWarps][kGroupRows / 2];  // two rows in each
  __shared__ u32 firsts[kGroupRows], ends[kGroupRows];
  let_next_begin();
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 rows = groups.quotient((u32)s.rows - blockIdx.x) + 1;
  u32* const pairs = counts[warp];
  for (u32 i = lane; i < (rows + 1) / 2; i += 32) pairs[i] = 0;
  await_earlier();
  // A warp takes parts one after the other: a lane knows where the group lies in one of them.
  const u32 each = (parts + kGroupWarps - 1) / kGroupWarps, part = warp * each + lane;
  u32 begin = 0, number = 0;
  if (lane < each && part < parts) {
    begin = starts[part * kDigits + blockIdx.x];
    number = starts[part * kDigits + blockIdx.x + 1] - begin;
  }
  u32 base;  // entries of earlier groups
  sum_before<kGroupThreads>(begin, base);
  u32 stops[kPartsOfWarp], shifts[kPartsOfWarp], n = 0;
#pragma unroll
  for (int p = 0; p < kPartsOfWarp; ++p) {
    shifts[p] = (warp * each + p) * kPart + __shfl_sync(~0u, begin, p) - n;
    stops[p] = n += __shfl_sync(~0u, number, p);
  }
  const auto entry = [&](u32 i) {
    u32 shift = shifts[0];
#pragma unroll
    for (int p = 1; p < kPartsOfWarp; ++p) shift = i < stops[p - 1] ? shift : shifts[p];
    return from[shift + i];
  };
  // f(entry, its row in the group, lanes with the same row): 32 at a time, in their order. Lanes
  // behind the last come with a row of none. One entry of each lane is loaded ahead.
  constexpr u32 none = ~0u;
  const auto each_entry = [&](auto f) {
    u64 next = lane < n ? entry(lane) : 0;
#pragma unroll 1
    for (u32 i = lane; i - lane < n; i += 32) {
      const u64 e = next;
      if (i + 32 < n) next = entry(i + 32);
      const u32 row = i < n ? groups.quotient((u32)row_of(s, e)) : none;
      f(e, row, __match_any_sync(~0u, row));
      __syncwarp();
    }
  };
  u16* const places = reinterpret_cast<u16*>(pairs);
  const u32 earlier = (1u << lane) - 1;
  // One lane counts for all with its row: they would wait for each other where most are one row's.
  each_entry([&](u64, u32 row, u32 same) {
    if (row != none && (same & earlier) == 0) places[row] += (u16)__popc(same);
  });
  __syncthreads();
  // Counts become what earlier warps have of the row: less than 2^16.
  constexpr int most = (kGroupRows + kGroupThreads - 1) / kGroupThreads;
  const u32 own = (rows + kGroupThreads - 1) / kGroupThreads, first_own = threadIdx.x * own;
  u32 sums[most], mine = 0, all;
#pragma unroll
  for (int i = 0; i < most; ++i) {
    sums[i] = 0;
    if (i >= own || first_own + i >= rows) continue;
#pragma unroll
    for (int w = 0; w < kGroupWarps; ++w) {
      u16& count = reinterpret_cast<u16*>(counts[w])[first_own + i];
      const u32 had = count;
      count = (u16)sums[i];
      sums[i] += had;
    }
    mine += sums[i];
  }
  u32 at = base + sum_before<kGroupThreads>(mine, all);
#pragma unroll
  for (int i = 0; i < most; ++i) {
    if (i >= own || first_own + i >= rows) continue;
    firsts[first_own + i] = at, ends[first_own + i] = at + sums[i];
    const u32 row = (first_own + i) * groups.value + blockIdx.x;
    if (row < s.rows) {
      bounds[row] = make_uint2(at, at + sums[i]);
      if (sums[i] > kLong) longs.add(at, at + sums[i]);
    }
    at += sums[i];
  }
  __syncthreads();
  each_entry([&](u64 e, u32 row, u32 same) {
    const u32 before = __popc(same & earlier), had = row != none ? places[row] : 0;
    __syncwarp();
    if (row == none) return;
    if (before == 0) places[row] = (u16)(had + __popc(same));
    const u32 first = firsts[row], end = ends[row], place = first + had + before;
    to[place] = e;
    if (!heads) return;
    const bool head = place == first && row_of(s, e) < s.rows && end - first <= kLong;
    heads[position_of(s, e)] =
        head ? make_uint4(first, end, (u32)row_of(s, e), 0) : make_uint4(0, 0, 0, 0);
  });
}
#endif
