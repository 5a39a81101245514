//variant: TYPE=f32 DOWN=0 FROM=0 THREADS=128 ITEMS=8
//variant: TYPE=f64 DOWN=1 FROM=1 THREADS=512 ITEMS=16
//variant: TYPE=bf16 DOWN=1 FROM=0 THREADS=32 ITEMS=2
//variant: TYPE=u8 DOWN=0 FROM=1 THREADS=256 ITEMS=6
//variant: TYPE=i16 DOWN=1 LANES=1
//variant: TYPE=i64 DOWN=0 LANES=32
// SPDX-License-Identifier: Apache-2.0
// Stable sorts of short lines by their keys (order.cuh), of which the first k are written. tiny: a
// line in LANES lanes of a warp. whole: in a block; FROM 0 takes elements, 1 entries.
#include "order.cuh"

typedef Order<TYPE, DOWN> O;
typedef O::Key Key;

#ifdef LANES  // a power of two up to 32, not less than n
extern "C" __global__ void __launch_bounds__(256)
    tiny(const Key* __restrict__ x, Key* values, i64* indices, const Lines s) {
  const i64 line = Group<LANES>::index();
  const u32 i = Group<LANES>::lane();
  const bool mine = line < s.lines && i < s.n;
  Key key = 0;
  if (mine) key = O::key(x[line_start(line, s.n, s.inner) + i * s.inner]);
  u32 rank = 0;
  for (u32 j = 0; j < s.n; ++j) {
    const Key other = (Key)__shfl_sync(~0u, key, j, LANES);
    rank += other < key || (other == key && j < i);
  }
  if (mine && rank < s.k) Sorted<O>(s, line, x, values, indices).put(rank, key, i);
}
#endif

#ifdef ITEMS
struct Or {
  __device__ u64 operator()(u64 a, u64 b) const { return a | b; }
};
constexpr int kWhole = THREADS * ITEMS;
// Blocks that a multiprocessor should hold.
constexpr int kBlocks = sizeof(Key) * ITEMS > 32 ? 1 : THREADS < 64 ? 16 : 1024 / THREADS;

// With FROM 1 a line has s.part entries.
extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    whole(const Key* __restrict__ x, const Entries from, Key* values, i64* indices, const Lines s) {
  Key* const kept = reinterpret_cast<Key*>(shared_lines);
  u32* const counts = reinterpret_cast<u32*>(kept + kWhole);
  u16* const kept_places = reinterpret_cast<u16*>(counts + THREADS / 32 * 256);
  const i64 line = blockIdx.x;
  const u32 n = FROM ? s.part : s.n;
  const Key* const keys = FROM ? static_cast<const Key*>(from.keys) + line * n
                               : x + line_start(line, s.n, s.inner);
  const i64 step = FROM ? 1 : s.inner;
  const auto key_at = [&](u32 i) { return FROM ? keys[i] : O::key(keys[i * step]); };
  Key key[ITEMS];
  u16 place[ITEMS];
  // What is behind the end stays there: its key is the greatest, and the sort is stable.
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const u32 i = item_at<ITEMS>(j);
    key[j] = i < n ? key_at(i) : O::all;
    place[j] = (u16)i;
  }
  u64 varying = 0;  // bits in which keys differ
  const Key some = key_at(0);
#pragma unroll
  for (int j = 0; j < ITEMS; ++j)
    if (item_at<ITEMS>(j) < n) varying |= key[j] ^ some;
  varying = join_lanes<THREADS>(varying, Or());
  for (int shift = 0; shift < O::bits; shift += 8) {
    if ((varying >> shift & 255) == 0) continue;
    u32 digit[ITEMS], to[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) digit[j] = (u32)(key[j] >> shift) & 255;
    rank_digits<THREADS>(digit, to, counts);
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      kept[to[j]] = key[j];
      kept_places[to[j]] = place[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      key[j] = kept[item_at<ITEMS>(j)];
      place[j] = kept_places[item_at<ITEMS>(j)];
    }
  }
  const Sorted<O> sorted(s, line, x, values, indices);
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const u32 i = item_at<ITEMS>(j);
    if (i < s.k) sorted.put(i, key[j], FROM ? from.places[line * n + place[j]] : place[j]);
  }
}
#endif
