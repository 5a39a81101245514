//variant: TYPE=f32 DOWN=1 FROM=0 THREADS=256 ITEMS=16 DIGIT=11 VEC=4 STREAM=1
//variant: TYPE=f64 DOWN=0 FROM=1 THREADS=256 ITEMS=8 DIGIT=11 VEC=1 STREAM=1
//variant: TYPE=f64 DOWN=0 FROM=1 THREADS=512 ITEMS=16 DIGIT=11 VEC=1 STREAM=0
//variant: TYPE=i8 DOWN=1 FROM=1 THREADS=32 ITEMS=2 DIGIT=8 VEC=1 STREAM=1
//variant: TYPE=f16 DOWN=0 FROM=0 THREADS=256 ITEMS=6 DIGIT=8 VEC=2 STREAM=1
// SPDX-License-Identifier: Apache-2.0
// topk. select: the first k of a part of a line, as entries, equal ones in the order of their
// places. top: of a line, sorted. FROM 0 takes elements, 1 entries.
// STREAM: a block walks its part in tiles and lists what passes a limit, which the k-th of the list
// lowers whenever the list has grown; few elements pass soon, and most cost a key and a comparison.
// Where too many pass, and without STREAM, a block finds the key of the k-th of a tile digit by
// digit, then keeps those before it, and of those that equal it the first.
#include "order.cuh"

typedef Order<TYPE, DOWN> O;
typedef O::Key Key;
constexpr int kBins = 1 << DIGIT;

// A part of a line, as a block takes it: `size` keys, `step` apart.
struct Part {
  const Key* keys;
  const u32* places;  // of entries
  i64 step;
  u32 begin, size;

  __device__ Part(const Key* x, const Entries& from, const Lines& s, i64 line, u32 part, u32 n)
      : places(from.places + line * n + part * s.part),
        step(FROM ? 1 : s.inner),
        begin(part * s.part),
        size(min(n - begin, s.part)) {
    keys = FROM ? static_cast<const Key*>(from.keys) + line * n + begin
                : x + line_start(line, n, s.inner) + begin * step;
  }
  // A part of a part, of at most `most` keys.
  __device__ Part(const Part& of, u32 at, u32 most)
      : keys(of.keys + at * of.step),
        places(of.places + at),
        step(of.step),
        begin(of.begin + at),
        size(min(of.size - at, most)) {}
  // Of item i in its line.
  __device__ u32 place(u32 i) const { return FROM ? places[i] : begin + i; }
};

// ---- digits

// Calls keep(rank, key, item) for the k first by key, with their ranks by item.
template <class Keep>
__device__ inline void choose(const Part& p, u32 k, Keep keep) {
  Key key[ITEMS];
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    const u32 i = item_at<ITEMS>(j);
    key[j] = 0;
    if (i < p.size) key[j] = FROM ? p.keys[i] : O::key(p.keys[i * p.step]);
  }
  const auto mine = [&](int j) { return item_at<ITEMS>(j) < p.size; };
  __shared__ u32 bins[kBins];
  u32 wanted = min(k, p.size);  // of those whose digits so far are `prefix`
  Key prefix = 0, mask = 0;
  for (int top = wanted < p.size ? O::bits : 0; top > 0;) {
    const int width = top < DIGIT ? top : DIGIT, shift = top - width;
    const u32 digits = (1u << width) - 1;
    for (int b = threadIdx.x; b < kBins; b += THREADS) bins[b] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
      if (mine(j) && (Key)(key[j] & mask) == prefix)
        atomicAdd(&bins[(u32)(key[j] >> shift) & digits], 1u);
    __syncthreads();
    const Bin<u32> bin = find_bin<THREADS, kBins>(wanted, [&](int b) { return bins[b]; });
    wanted -= bin.before;
    prefix |= (Key)((Key)bin.index << shift);
    mask |= (Key)((Key)digits << shift);
    top = bin.inside == wanted ? 0 : shift;
  }
  // Numbers of those before the k-th in the low half, of its equals in the high.
  const u32 earlier = (1u << threadIdx.x % 32) - 1;
  u32 sum = 0, total;
  const auto masks = [&](int j, u32& less, u32& equal) {
    const Key digits = key[j] & mask;
    less = __ballot_sync(~0u, mine(j) && digits < prefix);
    equal = __ballot_sync(~0u, mine(j) && digits == prefix);
  };
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    u32 less, equal;
    masks(j, less, equal);
    sum += __popc(less) + (__popc(equal) << 16);
  }
  u32 before = sum_before<THREADS>(threadIdx.x % 32 == 31 ? sum : 0, total);
  before = __shfl_sync(~0u, before, 0);
#pragma unroll
  for (int j = 0; j < ITEMS; ++j) {
    u32 less, equal;
    masks(j, less, equal);
    const u32 n = (before & 0xFFFF) + __popc(less & earlier);
    const u32 equals = (before >> 16) + __popc(equal & earlier);
    const u32 own = 1u << threadIdx.x % 32;
    if ((less & own) || ((equal & own) && equals < wanted))
      keep(n + min(equals, wanted), key[j], item_at<ITEMS>(j));
    before += __popc(less) + (__popc(equal) << 16);
  }
}

// ---- the stream

#if STREAM
constexpr int kWarps = THREADS / 32;
constexpr u32 kTile = THREADS * ITEMS, kMost = 256;  // kMost: what k may be
constexpr u32 kRoom = THREADS < 128 ? 512 : 1024;

struct alignas(sizeof(Key) > 4 ? 16 : 8) Candidate {
  Key key;
  u32 item;
  __device__ bool before(const Candidate& o) const {
    return key < o.key || (key == o.key && item < o.item);
  }
};
struct Found {
  Candidate list[kRoom], first[kMost];  // first: those of the list
  u32 count, old;
};

// Sorts the keys of a warp's lanes.
__device__ inline Key sorted_lanes(Key v) {
#pragma unroll
  for (u32 size = 2; size <= 32; size *= 2)
#pragma unroll
    for (u32 o = size / 2; o > 0; o /= 2) {
      const Key other = (Key)__shfl_xor_sync(~0u, v, o);
      const bool up = size == 32 || (threadIdx.x & size) == 0;
      v = ((threadIdx.x & o) == 0) == up ? min(v, other) : max(v, other);
    }
  return v;
}
// A key that the first of at least k threads do not pass, found by each warp for its share of k.
__device__ inline Key first_limit(Key first, u32 k) {
  __shared__ Key limits[kWarps];
  const Key own = (Key)__shfl_sync(~0u, sorted_lanes(first), (k - 1) / kWarps);
  if (threadIdx.x % 32 == 0) limits[threadIdx.x / 32] = own;
  __syncthreads();
  Key limit = limits[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) limit = max(limit, limits[w]);
  return limit;
}
// Calls put(rank, candidate) for the first k of the list's n, of which `sorted` are sorted already.
template <class Put>
__device__ inline void rank(const Found& f, u32 sorted, u32 n, u32 k, Put put) {
  for (u32 a = threadIdx.x; a < n; a += THREADS) {
    const Candidate own = f.list[a];
    u32 rank = a < sorted ? a : 0;
    for (u32 end = a < sorted ? 0 : sorted; rank < end;) {
      const u32 middle = (rank + end) / 2;
      if (f.list[middle].before(own)) rank = middle + 1;
      else end = middle;
    }
#pragma unroll 8
    for (u32 b = sorted; b < n; ++b) rank += f.list[b].before(own);
    if (rank < k) put(rank, own);
  }
}

__device__ inline u32 item_of(int j) { return (j / VEC * THREADS + threadIdx.x) * VEC + j % VEC; }
struct Tile {
  Vec<Key, VEC> v[ITEMS / VEC] = {};

  __device__ Tile(const Part& p, u32 begin) {
    const i64 step = VEC > 1 ? 1 : p.step;
    const Key* const keys = p.keys + begin * step;
    const bool whole = begin + kTile <= p.size;
#pragma unroll
    for (int j = 0; j < ITEMS; j += VEC)
      if (whole || begin + item_of(j) < p.size)
        v[j / VEC] = load<Key, VEC>(keys + item_of(j) * step);
  }
  __device__ Key at(int j) const { return v[j / VEC].v[j % VEC]; }
};
// Begins to bring what follows a tile closer.
__device__ inline void bring_next(const Part& p, u32 begin) {
  if constexpr (VEC > 1) {
    constexpr u32 step = 32 / sizeof(Key);
#pragma unroll
    for (u32 i = 0; i < kTile / (THREADS * step); ++i) {
      const u32 at = begin + kTile + (i * THREADS + threadIdx.x) * step;
      if (at < p.size) asm volatile("prefetch.global.L2 [%0];" ::"l"(p.keys + at));
    }
  }
}

// Calls put(rank, key, item) for the k first, ranked by key and item. 1 <= k <= kMost.
template <class Put>
__device__ inline void keep_first(const Part& p, u32 k, Put put) {
  __shared__ Found f;
  constexpr u32 kGrowth = 32;  // of the list before it is ranked
  const u32 enough = min(k + kGrowth, kRoom - kMost);
  if (threadIdx.x == 0) f.count = 0;
  Key limit = O::all;
  u32 sorted = 0;  // of the list
  for (u32 begin = 0; begin < p.size; begin += kTile) {
    const Tile tile(p, begin);
    bring_next(p, begin);
    Key key[ITEMS], first = O::all;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) key[j] = FROM ? tile.at(j) : O::key(tile.at(j));
    if (begin + kTile > p.size)
#pragma unroll
      for (int j = 0; j < ITEMS; ++j)
        if (begin + item_of(j) >= p.size) key[j] = O::all;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) first = min(first, key[j]);
    const bool all = begin == 0 && k > THREADS;
    bool many = all;
    if (begin == 0 && !all) limit = first_limit(first, k);
    if (first <= limit && !all) {
#pragma unroll
      for (int j = 0; j < ITEMS; ++j) {
        if (key[j] > limit) continue;
        const u32 i = begin + item_of(j);
        if (i >= p.size) continue;
        const u32 at = atomicAdd(&f.count, 1u);
        if (at < kRoom) f.list[at] = {key[j], i};
        many |= at >= (begin + kTile < p.size ? enough : kRoom);
      }
    }
    if (!__syncthreads_or(many)) continue;
    u32 n = f.count;
    if (all || n > kRoom) {  // the tile's own first k instead of those that were listed
      if (threadIdx.x == 0) f.old = 0;
      __syncthreads();
      for (u32 a = threadIdx.x; a < min(n, enough); a += THREADS)
        if (f.list[a].item < begin) atomicAdd(&f.old, 1u);
      __syncthreads();
      const u32 old = f.old;
      const Part part(p, begin, kTile);
      choose(part, k,
             [&](u32 rank, Key key, u32 item) { f.list[old + rank] = {key, begin + item}; });
      __syncthreads();
      n = old + min(k, part.size);
    }
    rank(f, sorted, n, k, [&](u32 rank, const Candidate& c) { f.first[rank] = c; });
    __syncthreads();
    sorted = min(n, k);
    for (u32 i = threadIdx.x; i < sorted; i += THREADS) f.list[i] = f.first[i];
    if (threadIdx.x == 0) f.count = sorted;
    const bool full = n >= k;
    if (full) limit = f.first[k - 1].key;
    __syncthreads();
    if (full && limit-- == 0) break;  // what equals the k-th comes behind it
  }
  rank(f, sorted, f.count, k, [&](u32 rank, const Candidate& c) { put(rank, c.key, c.item); });
}
#endif

// Blocks that a multiprocessor should hold.
constexpr int kBlocks = sizeof(Key) * ITEMS > 64 || THREADS > 512 ? 1
                        : THREADS < 64                            ? 16
                                                                  : 1024 / THREADS;

// n: of a line that is looked at, `parts` parts; `made` entries of each line come out.
extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    select(const Key* __restrict__ x, const Entries from, const Entries to, const Lines s,
           const u32 n, const u32 made) {
  const i64 line = blockIdx.x / s.parts;
  const u32 part = (u32)(blockIdx.x % s.parts);
  const Part p(x, from, s, line, part, n);
  const i64 first = line * made + part * s.k;
  const auto put = [&](u32 rank, Key key, u32 item) {
    static_cast<Key*>(to.keys)[first + rank] = key;
    to.places[first + rank] = p.place(item);
  };
#if STREAM
  keep_first(p, s.k, put);
#else
  choose(p, s.k, put);
#endif
}

#if STREAM
extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    top(const Key* __restrict__ x, const Entries from, Key* values, i64* indices, const Lines s,
        const u32 n) {
  const i64 line = blockIdx.x;
  const Part p(x, from, s, line, 0, n);
  const Sorted<O> sorted(s, line, x, values, indices);
  keep_first(p, s.k, [&](u32 rank, Key key, u32 item) { sorted.put(rank, key, p.place(item)); });
}
#endif
