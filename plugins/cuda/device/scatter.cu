//variant: T=f32 W=4 LANES=32 COLUMNS=3 OOB=0 FRESH=1 SUM=1 FOLD=add BASE=0
//variant: T=bf16 W=1 LANES=1 COLUMNS=1 OOB=2 FRESH=0 SUM=1 FOLD=add BASE=1
//variant: T=i8 W=2 LANES=8 COLUMNS=1 OOB=1 FRESH=1 SUM=1 FOLD=add BASE=0
//variant: T=f64 W=2 LANES=32 COLUMNS=3 OOB=0 FRESH=0 SUM=1 FOLD=add BASE=1
//variant: T=u16 W=8 LANES=16 COLUMNS=1 OOB=0 FRESH=0 SUM=0 BASE=1
//variant: T=u16 W=1 LANES=1 COLUMNS=1 OOB=0 FRESH=0 SUM=1 FOLD=mul BASE=1
//variant: T=f16 W=4 LANES=32 COLUMNS=1 OOB=0 FRESH=1 SUM=1 FOLD=max BASE=1
//variant: T=i64 W=2 LANES=8 COLUMNS=1 OOB=2 FRESH=1 SUM=1 FOLD=min BASE=1
// SPDX-License-Identifier: Apache-2.0
// The scatters. Each row of the result takes its own updates in the order of their positions, by
// which they were sorted: the same sums in every run. With SUM, updates fold into what a row has, in
// the way of FOLD (add mul max min); without, the last one replaces it.
#include "scatter.cuh"

#if SUM
constexpr int kRun = 128;  // terms of a partial sum, so that its error stays small
static_assert(kRun >= kLong, "shorter segments are one sum");
constexpr int kAhead = COLUMNS > 3 ? 1 : COLUMNS > 1 ? 2 : 4;  // updates whose loads go together

template <class V>
struct Wrapping {  // signed integers wrap as unsigned
  typedef V type;
};
template <>
struct Wrapping<i8> {
  typedef u32 type;
};
template <>
struct Wrapping<i16> {
  typedef u32 type;
};
template <>
struct Wrapping<i32> {
  typedef u32 type;
};
template <>
struct Wrapping<i64> {
  typedef u64 type;
};

// What nothing folds to, and how two fold.
namespace folds {
template <class A>
constexpr bool kFloating = (A)0.5f != (A)0;

struct add {
  typedef Wrapping<acc_t<T>>::type A;
  __device__ static A nothing() { return 0; }
  __device__ static A both(A a, A b) { return a + b; }
};
struct mul {
  typedef Wrapping<acc_t<T>>::type A;
  __device__ static A nothing() { return 1; }
  __device__ static A both(A a, A b) {
    if constexpr (kFloating<A>)
      return a * b;
    else
      return (A)((u64)a * (u64)b);
  }
};
// The first or the last of the order of A.
template <class A, bool kLast>
__device__ inline A end_of_order() {
  if constexpr (kFloating<A>) {
    return __int_as_float(kLast ? 0x7F800000 : (int)0xFF800000u);
  } else {
    constexpr u64 half = u64(1) << (8 * sizeof(A) - 1);
    constexpr bool is_signed = (A)-1 < (A)0;
    return (A)(is_signed ? (kLast ? half - 1 : half) : (kLast ? ~u64(0) : 0));
  }
}
struct max {
  typedef acc_t<T> A;
  __device__ static A nothing() { return end_of_order<A, false>(); }
  __device__ static A both(A a, A b) { return a > b || a != a ? a : b; }
};
struct min {
  typedef acc_t<T> A;
  __device__ static A nothing() { return end_of_order<A, true>(); }
  __device__ static A both(A a, A b) { return a < b || a != a ? a : b; }
};
}  // namespace folds
typedef folds::FOLD Fold;
typedef Fold::A A;
__device__ inline T finish(A v) { return narrow<T>((acc_t<T>)v); }

struct Sums {
  A v[W];
};
__device__ inline void clear(Sums& s) {
#pragma unroll
  for (int j = 0; j < W; ++j) s.v[j] = Fold::nothing();
}
template <int N>
__device__ inline void clear(Sums (&s)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) clear(s[j]);
}
__device__ inline void join(Sums& s, const Sums& other) {
#pragma unroll
  for (int j = 0; j < W; ++j) s.v[j] = Fold::both(s.v[j], other.v[j]);
}
__device__ inline void fold_row(Sums& s, const Vec<T, W>& x) {
#pragma unroll
  for (int j = 0; j < W; ++j) s.v[j] = Fold::both(s.v[j], (A)widen(x.v[j]));
}
// Stores of what nothing reads soon leave L2 to what is read.
__device__ inline void put_row(const Sums& sum, T* y) {
  Vec<T, W> out;
#pragma unroll
  for (int j = 0; j < W; ++j) out.v[j] = finish(sum.v[j]);
  if constexpr (sizeof(out) == 16)
    __stcs(reinterpret_cast<uint4*>(y), reinterpret_cast<const uint4&>(out));
  else
    store(y, out);
}

// Of entries [k, end), in their order.
__device__ inline Sums sum_entries(const Scatter& s, const u64* entries, u32 k, u32 end,
                                   const T* updates) {
  constexpr u32 ahead = 8;  // updates whose loads go together
  Sums total;
  clear(total);
  while (k < end) {
    const u32 stop = k + kRun < end ? k + kRun : end;
    Sums part;
    clear(part);
    for (; k < stop; k += ahead) {
      const u32 n = stop - k;
      Vec<T, W> x[ahead];
#pragma unroll
      for (u32 a = 0; a < ahead; ++a)
        if (a < n) x[a] = load<T, W>(updates + position_of(s, entries[k + a]) * s.inner);
#pragma unroll
      for (u32 a = 0; a < ahead; ++a)
        if (a < n) fold_row(part, x[a]);
    }
    k = stop;
    join(total, part);
  }
  return total;
}

// Of a long segment kLongLanes vectors of columns: groups of lanes sum parts, joined in order.
constexpr u32 kLongLanes = 16, kLongParts = 256 / kLongLanes;
__device__ inline void sum_long(const Scatter& s, const u64* entries, uint2 segment, i64 column,
                                i64 outer, const T* updates, const T* base, T* y) {
  __shared__ Sums parts[kLongParts][kLongLanes];
  const u32 first = segment.x, end = segment.y, share = (end - first + kLongParts - 1) / kLongParts;
  const u32 lane = threadIdx.x % kLongLanes, part = threadIdx.x / kLongLanes;
  const u32 from = min(first + part * share, end);
  const i64 row = row_of(s, entries[first]), c = column + lane * W;
  __syncthreads();  // the last call's parts were read
  if (c < s.inner)
    parts[part][lane] = sum_entries(s, entries, from, min(from + share, end),
                                    updates + outer * s.count * s.inner + c);
  __syncthreads();
  if (part != 0 || c >= s.inner) return;
  Sums total = parts[0][lane];
  for (u32 p = 1; p < kLongParts; ++p) join(total, parts[p][lane]);
  const i64 at = (outer * s.rows + row) * s.inner + c;
  if (BASE) fold_row(total, load<T, W>(base + at));
  put_row(total, y + at);
}

// The first and the last `blocks` of a grid take long segments, one after the other: at once, and
// with what the others leave idle.
__device__ inline bool takes_long(u32 blocks) {
  return blockIdx.x < blocks || blockIdx.x >= gridDim.x - blocks;
}
__device__ inline void sum_all_long(const Scatter& s, const u64* entries, const LongSegments& longs,
                                    const T* updates, const T* base, T* y) {
  __shared__ u32 taken;
  constexpr u32 width = kLongLanes * W;
  const u32 chunks = (u32)((s.inner + width - 1) / width);
  const u64 items = (u64)*longs.number * chunks * s.outer;
  if (items == 0) return;
  for (;;) {
    if (threadIdx.x == 0) taken = atomicAdd(longs.number + 1, 1u);
    __syncthreads();
    const u32 item = taken;
    if (item >= items) return;
    const u32 rest = item / chunks, k = rest / (u32)s.outer;
    sum_long(s, entries, longs.bounds[k], (i64)(item - rest * chunks) * width,
             rest - k * (u32)s.outer, updates, base, y);
  }
}

#if LANES == 32
constexpr int kPositions = BASE ? 4 : 8;  // of a warp
constexpr int kRest = 8;                  // rows of a warp
constexpr int kDepth = 2;                 // updates of a warp whose loads are under way

__device__ inline void put_rest(const Scatter& s, const uint2* bounds, i64 item, const T* base,
                                T* y) {
  const u32 lane = threadIdx.x % 32;
  const i64 groups = (s.rows + kRest - 1) / kRest;
  const i64 outer = s.outer == 1 ? 0 : item / groups, first_row = (item - outer * groups) * kRest;
  if (outer >= s.outer) return;
  const i64 row = first_row + lane;
  bool none = false;
  if (lane < kRest && row < s.rows) {
    const uint2 segment = bounds[row];
    none = segment.x == segment.y;
  }
  const u32 rows = __ballot_sync(~0u, none);
  for (int r = 0; r < kRest; ++r) {
    if (!(rows >> r & 1)) continue;
    const i64 at = (outer * s.rows + first_row + r) * s.inner;
    for (i64 c = lane * W; c < s.inner; c += 32 * W) {
      Sums sum;
      clear(sum);
      if constexpr (BASE) fold_row(sum, load<T, W>(base + at + c));
      put_row(sum, y + at + c);
    }
  }
}

// By positions: a warp takes the segments that kPositions of them begin, in 32 * COLUMNS vectors of
// columns. So most updates are read where they lie, beside each other. Blocks behind those of
// positions take the rows without updates.
extern "C" __global__ void __launch_bounds__(256, COLUMNS > 2 ? 3 : 4)
    sum_by_positions(const Scatter s, const u64* entries, const uint2* bounds, const uint4* heads,
                     const LongSegments longs, const u32 long_blocks, const u32 position_blocks,
                     const T* updates, const T* base, T* y) {
  await_earlier();
  if (takes_long(long_blocks)) return sum_all_long(s, entries, longs, updates, base, y);
  const u32 block = blockIdx.x - long_blocks, lane = threadIdx.x % 32;
  if (block >= position_blocks)
    return put_rest(s, bounds, (i64)(block - position_blocks) * 8 + threadIdx.x / 32, base, y);
  constexpr int step = 32 * W;
  const u32 chunks = (u32)((s.inner + step * COLUMNS - 1) / (step * COLUMNS));
  const u32 warp = block * 8 + threadIdx.x / 32, item = warp / chunks;
  const u32 groups = (u32)((s.count + kPositions - 1) / kPositions);
  const u32 outer = s.outer == 1 ? 0 : item / groups;
  const u32 position = (item - outer * groups) * kPositions;
  if (outer >= s.outer || position >= s.count) return;
  const i64 c = (i64)(warp % chunks) * (step * COLUMNS) + lane * W;
  const i32 left = (i32)min(max(s.inner - c, (i64)0), (i64)(step * COLUMNS));
  const auto inside = [&](int j) { return j * step < left; };
  const T* const from = updates + (i64)outer * s.count * s.inner + c;

  uint4 head = make_uint4(0, 0, 0, 0);
  if (lane < kPositions && position + lane < s.count) head = heads[position + lane];
  u32 some = __ballot_sync(~0u, head.x != head.y);
  if (some == 0) return;
  u32 stop = head.y - head.x;  // of a lane's segment, among what the warp adds
#pragma unroll
  for (int o = 1; o < kPositions; o *= 2) {
    const u32 before = __shfl_up_sync(~0u, stop, o);
    if (lane >= o) stop += before;
  }
  const u32 n = __shfl_sync(~0u, stop, kPositions - 1);
  u32 places = 0, k = 0, end = 0;
  Vec<T, W> ahead[kDepth][COLUMNS];
  [[maybe_unused]] Vec<T, W> held[COLUMNS];
  Sums sums[COLUMNS];
  clear(sums);
  T* to = y;
  const auto fetch = [&](Vec<T, W>(&x)[COLUMNS], u32 i) {
    if (i >= n) return;
    if (i % 32 == 0) {  // where the next 32 lie
      u32 j = 0, start = 0;
#pragma unroll
      for (int p = 0; p < kPositions - 1; ++p) {
        const u32 stop_of = __shfl_sync(~0u, stop, p);
        if (i + lane >= stop_of) j = p + 1, start = stop_of;
      }
      const u32 first = __shfl_sync(~0u, head.x, j), nth = i + lane - start;
      places = position + j;
      if (nth > 0 && i + lane < n) places = (u32)position_of(s, entries[first + nth]);
    }
    const T* update = from + (i64)__shfl_sync(~0u, places, i % 32) * s.inner;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
      if (inside(j)) x[j] = load<T, W>(update + j * step);
  };
  const auto begin_segment = [&] {
    const int which = __ffs(some) - 1;
    some &= some - 1;
    end = __shfl_sync(~0u, stop, which);
    const i64 at = ((i64)outer * s.rows + __shfl_sync(~0u, head.z, which)) * s.inner + c;
    to = y + at;
    if constexpr (BASE)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
        if (inside(j)) held[j] = load<T, W>(base + at + j * step);
  };
  const auto add_next = [&](Vec<T, W>(&x)[COLUMNS]) {
    if (k == end) {
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        if (!inside(j)) continue;
        if constexpr (BASE) fold_row(sums[j], held[j]);
        put_row(sums[j], to + j * step);
        clear(sums[j]);
      }
      if (some == 0) return false;
      begin_segment();
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
      if (inside(j)) fold_row(sums[j], x[j]);
    fetch(x, k++ + kDepth);
    return true;
  };
#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(ahead[d], d);
  begin_segment();
  while (add_next(ahead[0]) && add_next(ahead[1])) {
  }
}
#endif

// base: what y holds without the updates, null for zeros. FRESH: LANES threads for each row of y.
// Else for each entry, of which the first of its row works. takes_long says which blocks take what is
// long.
extern "C" __global__ void __launch_bounds__(256)
    sum_segments(const Scatter s, const u64* entries, const uint2* bounds, const LongSegments longs,
                 const u32 long_blocks, const T* updates, const T* base, T* y) {
  await_earlier();
  if (takes_long(long_blocks)) return sum_all_long(s, entries, longs, updates, base, y);
  const i64 item = ((i64)(blockIdx.x - long_blocks) * 256 + threadIdx.x) / LANES;
  const i64 lane = threadIdx.x % LANES, items = FRESH ? s.rows : s.count;
  if (item >= items * s.outer) return;
  const i64 outer = s.outer == 1 ? 0 : item / items, i = item - outer * items;
#if FRESH
  const i64 row = i;
  const uint2 segment = bounds[i];
  const u32 first = segment.x, end = segment.y;
  if (BASE && first == end && base == y) return;
#else
  const i64 row = row_of(s, entries[i]);
  if (row >= s.rows || (i > 0 && row_of(s, entries[i - 1]) == row)) return;
  const u32 first = (u32)i;
  u32 end = first + 1;
  while (end < s.count && end - first <= kLong && row_of(s, entries[end]) == row) ++end;
#endif
  if (end - first > kLong) return;
  const T* from = updates + outer * s.count * s.inner;
  const i64 at = (outer * s.rows + row) * s.inner;
  constexpr int step = LANES * W;
  for (i64 c = lane * W; c < s.inner; c += step * COLUMNS) {
    Sums sums[COLUMNS];
    clear(sums);
    [[maybe_unused]] Vec<T, W> held[COLUMNS];
    const auto inside = [&](int j) { return COLUMNS == 1 || c + j * step < s.inner; };
    if constexpr (BASE)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
        if (inside(j)) held[j] = load<T, W>(base + at + c + j * step);
    for (u32 k = first; k < end; k += kAhead) {
      const T* update[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        update[a] = from + (k + a < end ? position_of(s, entries[k + a]) : 0) * s.inner + c;
      Vec<T, W> x[kAhead][COLUMNS];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
          if (k + a < end && inside(j)) x[a][j] = load<T, W>(update[a] + j * step);
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
          if (k + a < end && inside(j)) fold_row(sums[j], x[a][j]);
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      if (!inside(j)) continue;
      if (BASE) fold_row(sums[j], held[j]);
      put_row(sums[j], y + at + c + j * step);
    }
  }
}
#else
// ---- scatter: of equal indices the last wins, which needs no sorting.

extern "C" __global__ void __launch_bounds__(256) find_winners(const Scatter s, u32* winners) {
  const i64 k = (i64)blockIdx.x * 256 + threadIdx.x;
  if (k >= s.count) return;
  const i64 at = resolve(s.axis, k, true);
  if (at >= 0) atomicMax(winners + at, (u32)k + 1);
}

extern "C" __global__ void __launch_bounds__(256)
    put_winners(const Scatter s, const u32* winners, const T* updates, const T* base, T* y) {
  const i64 item = ((i64)blockIdx.x * 256 + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
  const i64 items = FRESH ? s.rows : s.count;
  if (item >= items * s.outer) return;
  const i64 outer = s.outer == 1 ? 0 : item / items, i = item - outer * items;
  const T* from;
#if FRESH
  const i64 row = i, update = (i64)winners[i] - 1;
  from = update < 0 ? base + (outer * s.rows + row) * s.inner
                    : updates + (outer * s.count + update) * s.inner;
#else
  const i64 row = resolve(s.axis, i, false);
  if (row < 0 || winners[row] != (u32)i + 1) return;
  from = updates + (outer * s.count + i) * s.inner;
#endif
  T* to = y + (outer * s.rows + row) * s.inner;
  for (i64 c = lane * W; c < s.inner; c += LANES * W) store(to + c, load<T, W>(from + c));
}

// Few updates of a y that holds base: LANES lanes look whether a later one has the same row.
extern "C" __global__ void __launch_bounds__(256)
    put_last(const Scatter s, const T* updates, T* y) {
  begin_early();
  const i64 item = ((i64)blockIdx.x * 256 + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  const bool exists = item < s.count * s.outer;
  const i64 outer = exists ? item / s.count : 0, i = exists ? item - outer * s.count : 0;
  const i64 row = exists ? resolve(s.axis, i, lane == 0) : -1;
  bool again = false;
  if (row >= 0)
    for (i64 k = i + 1 + lane; k < s.count; k += LANES)
      again = again || resolve(s.axis, k, false) == row;
  const u32 of_warp = __ballot_sync(~0u, again), first = threadIdx.x % 32 - lane;
  const u32 mine = LANES == 32 ? ~0u : (1u << LANES % 32) - 1;
  if (row < 0 || (of_warp >> first & mine) != 0) return;
  const T* const from = updates + (outer * s.count + i) * s.inner;
  T* const to = y + (outer * s.rows + row) * s.inner;
  for (i64 c = lane * W; c < s.inner; c += LANES * W) store(to + c, load<T, W>(from + c));
}
#endif
