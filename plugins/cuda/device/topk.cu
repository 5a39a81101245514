//variant: TYPE=f32 DOWN=1 FROM=0 THREADS=512 ITEMS=8 DIGIT=11
//variant: TYPE=f64 DOWN=0 FROM=1 THREADS=512 ITEMS=16 DIGIT=11
//variant: TYPE=i8 DOWN=1 FROM=1 THREADS=32 ITEMS=2 DIGIT=8
//variant: TYPE=f16 DOWN=0 FROM=0 THREADS=256 ITEMS=6 DIGIT=8
// SPDX-License-Identifier: Apache-2.0
// topk: a block finds the key of the k-th of its elements digit by digit, then keeps those before
// it, and of those that equal it the first. select: of a part of a line, as entries in the order of
// their places. top: of a line, sorted. FROM 0 takes elements, 1 entries.
#include "order.cuh"

typedef Order<TYPE, DOWN> O;
typedef O::Key Key;
constexpr int kBins = 1 << DIGIT;

// The keys of the block's items, and their places in their lines.
struct Items {
  Key key[ITEMS];
  u32 place[ITEMS];
  u32 size;

  __device__ Items(const Key* x, const Entries& from, const Lines& s, i64 line, u32 begin, u32 n)
      : size(n - begin < s.part ? n - begin : s.part) {
    const Key* const keys = FROM ? static_cast<const Key*>(from.keys) + line * n
                                 : x + line_start(line, n, s.inner);
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      const u32 i = item_at<ITEMS>(j), at = begin + i;
      key[j] = 0;
      place[j] = at;
      if (i >= size) continue;
      if constexpr (FROM) {
        key[j] = keys[at];
        place[j] = from.places[line * n + at];
      } else {
        key[j] = O::key(keys[at * s.inner]);
      }
    }
  }
  __device__ bool mine(int j) const { return item_at<ITEMS>(j) < size; }
};

// Calls keep(rank, j) for the k first by key, with their ranks by place.
template <class Keep>
__device__ inline void choose(const Items& v, u32 k, Keep keep) {
  __shared__ u32 bins[kBins];
  u32 wanted = min(k, v.size);  // of those whose digits so far are `prefix`
  Key prefix = 0, mask = 0;
  for (int top = wanted < v.size ? O::bits : 0; top > 0;) {
    const int width = top < DIGIT ? top : DIGIT, shift = top - width;
    const u32 digits = (1u << width) - 1;
    for (int b = threadIdx.x; b < kBins; b += THREADS) bins[b] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
      if (v.mine(j) && (Key)(v.key[j] & mask) == prefix)
        atomicAdd(&bins[(u32)(v.key[j] >> shift) & digits], 1u);
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
    const Key k = v.key[j] & mask;
    less = __ballot_sync(~0u, v.mine(j) && k < prefix);
    equal = __ballot_sync(~0u, v.mine(j) && k == prefix);
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
    if ((less & own) || ((equal & own) && equals < wanted)) keep(n + min(equals, wanted), j);
    before += __popc(less) + (__popc(equal) << 16);
  }
}

// n: of a line that is looked at, `parts` parts; `made` entries of each line come out.
extern "C" __global__ void __launch_bounds__(THREADS)
    select(const Key* __restrict__ x, const Entries from, const Entries to, const Lines s,
           const u32 n, const u32 made) {
  const i64 line = blockIdx.x / s.parts;
  const u32 part = (u32)(blockIdx.x % s.parts);
  const Items v(x, from, s, line, part * s.part, n);
  const i64 first = line * made + part * s.k;
  choose(v, s.k, [&](u32 rank, int j) {
    static_cast<Key*>(to.keys)[first + rank] = v.key[j];
    to.places[first + rank] = v.place[j];
  });
}

constexpr u32 kMost = 256;  // what k may be
extern "C" __global__ void __launch_bounds__(THREADS)
    top(const Key* __restrict__ x, const Entries from, Key* values, i64* indices, const Lines s,
        const u32 n) {
  __shared__ Key keys[kMost];
  __shared__ u32 places[kMost];
  const i64 line = blockIdx.x;
  const Items v(x, from, s, line, 0, n);
  choose(v, s.k, [&](u32 rank, int j) {
    keys[rank] = v.key[j];
    places[rank] = v.place[j];
  });
  __syncthreads();
  const Sorted<O> sorted(s, line, x, values, indices);
  for (u32 i = threadIdx.x; i < s.k; i += THREADS) {
    const Key key = keys[i];
    u32 rank = 0;
#pragma unroll 8
    for (u32 j = 0; j < s.k; ++j) rank += keys[j] < key || (keys[j] == key && j < i);
    sorted.put(rank, key, places[i]);
  }
}
