//variant: TYPE=f32 DOWN=0 FROM=0 LAST=0 LANES=1
//variant: TYPE=f64 DOWN=1 FROM=1 LAST=1 LANES=256
//variant: TYPE=f16 DOWN=1 FROM=1 LAST=0 LANES=32
//variant: TYPE=b8 DOWN=0 FROM=0 LAST=1 LANES=1
// SPDX-License-Identifier: Apache-2.0
// A stable sort of lines of any length by their keys (order.cuh), of which the first k are written:
// for each digit, lowest first, count, sum and move. FROM 0 takes elements, 1 entries; LAST writes
// the result, else entries.
#include "order.cuh"

typedef Order<TYPE, DOWN> O;
typedef O::Key Key;
constexpr int kItems = sizeof(Key) == 8 ? 8 : 16, kPart = 256 * kItems;

struct Part {
  i64 line;
  u32 index, begin, size;
};
__device__ inline Part part_of(const Lines& s) {
  const u32 index = (u32)(blockIdx.x % s.parts), begin = index * kPart;
  return {(i64)(blockIdx.x / s.parts), index, begin, min((u32)kPart, s.n - begin)};
}
__device__ inline Key key_at(const Key* line, const Lines& s, u32 i) {
  if constexpr (FROM) return line[i];
  else return O::key(line[i * s.inner]);
}
__device__ inline const Key* keys_of(const Key* x, const Entries& from, const Lines& s, i64 line) {
  if constexpr (FROM) return static_cast<const Key*>(from.keys) + line * s.n;
  else return x + line_start(line, s.n, s.inner);
}

// counts[line][digit][part]
extern "C" __global__ void __launch_bounds__(256)
    count(const Key* __restrict__ x, const Entries from, u32* counts, const Lines s,
          const i32 shift) {
  __shared__ u32 bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const Part p = part_of(s);
  const Key* const line = keys_of(x, from, s, p.line);
  Key key[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const u32 i = j * 256 + threadIdx.x;
    key[j] = i < p.size ? key_at(line, s, p.begin + i) : 0;
  }
#pragma unroll
  for (int j = 0; j < kItems; ++j)
    if (j * 256 + threadIdx.x < p.size) atomicAdd(&bins[(u32)(key[j] >> shift) & 255], 1u);
  __syncthreads();
  counts[(p.line * 256 + threadIdx.x) * s.parts + p.index] = bins[threadIdx.x];
}

// Counts of a digit become what lies in earlier parts; totals[line][digit]. LANES to a digit: 1, 32
// or 256.
extern "C" __global__ void __launch_bounds__(256) sum(u32* counts, u32* totals, const Lines s) {
  typedef Group<LANES> Lane;
  const i64 digit = Lane::index();  // of all lines'
  const bool mine = digit < s.lines * 256;
  counts += digit * s.parts;
  u32 carry = 0;
  for (u32 base = 0; base < s.parts; base += LANES) {
    const u32 i = base + Lane::lane();
    const u32 own = mine && i < s.parts ? counts[i] : 0;
    u32 before = 0, total = own;
    if constexpr (LANES == 256) before = sum_before<256>(own, total);
    if constexpr (LANES == 32) before = sum_before<32>(own, total);
    if (mine && i < s.parts) counts[i] = carry + before;
    carry += total;
  }
  if (mine && Lane::lane() == 0) totals[digit] = carry;
}

extern "C" __global__ void __launch_bounds__(256, 3)
    move(const Key* __restrict__ x, const Entries from, const Entries to, Key* values, i64* indices,
         const u32* __restrict__ counts, const u32* __restrict__ totals, const Lines s,
         const i32 shift) {
  __shared__ Key kept[kPart];
  __shared__ u32 kept_places[kPart], bins[8 * 256], starts[256];
  const Part p = part_of(s);
  const Key* const line = keys_of(x, from, s, p.line);
  Key key[kItems];
  u32 digit[kItems], at[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const u32 i = item_at<kItems>(j);
    key[j] = i < p.size ? key_at(line, s, p.begin + i) : O::all;
    digit[j] = (u32)(key[j] >> shift) & 255;
  }
  u32 all;
  const i64 own = p.line * 256 + threadIdx.x;
  const u32 start = sum_before<256>(totals[own], all) + counts[own * s.parts + p.index];
  rank_digits<256>(digit, at, bins);
  starts[threadIdx.x] = start - bins[threadIdx.x];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const u32 i = p.begin + item_at<kItems>(j);
    kept[at[j]] = key[j];
    kept_places[at[j]] = FROM && i < s.n ? from.places[p.line * s.n + i] : i;
  }
  __syncthreads();
  const Sorted<O> sorted(s, p.line, x, values, indices);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const u32 i = j * 256 + threadIdx.x;
    if (i >= p.size) continue;
    const Key k = kept[i];
    const u32 target = starts[(u32)(k >> shift) & 255] + i;
    if constexpr (LAST) {
      if (target < s.k) sorted.put(target, k, kept_places[i]);
    } else {
      static_cast<Key*>(to.keys)[p.line * s.n + target] = k;
      to.places[p.line * s.n + target] = kept_places[i];
    }
  }
}
