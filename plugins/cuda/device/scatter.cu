//variant: T=f32 W=4 LANES=32 COLUMNS=3 KEYS=4 OOB=0 FRESH=1 SUM=1 RANK=1 NARROW=1 ELEMENTS=0
//variant: T=bf16 W=1 LANES=1 COLUMNS=1 KEYS=16 OOB=2 FRESH=0 SUM=1 RANK=2 NARROW=0 ELEMENTS=1
//variant: T=i8 W=2 LANES=8 COLUMNS=1 KEYS=4 OOB=1 FRESH=1 SUM=1 RANK=1 NARROW=1 ELEMENTS=0
//variant: T=f64 W=2 LANES=32 COLUMNS=3 KEYS=16 OOB=0 FRESH=0 SUM=1 RANK=1 NARROW=1 ELEMENTS=0
//variant: T=u16 W=8 LANES=16 COLUMNS=1 KEYS=4 OOB=0 FRESH=0 SUM=0 RANK=1 NARROW=1 ELEMENTS=0
// SPDX-License-Identifier: Apache-2.0
// The scatters. Updates are sorted by (index, position) with a stable radix sort, then each row of
// the result takes its own in the order of their positions: the same sums in every run.
#include "index.cuh"
#include "order.cuh"

struct Elements {  // of scatter_elements_add: the place of an update is that of an element of y
  i64 step;
  i64 dims[8], strides[8];
};
struct Scatter {
  IndexAxis axis;
  i64 outer, rows, inner;  // inner: elements of a row; rows: of y for each outer
  i64 padding;             // no row when < 0
  i32 position_bits, shift;
  i64 count;  // updates for each outer
  Elements elements;
};

// ---- Entries: row << position_bits | position. What has no place gets the row behind the last.

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

// counts[part][digit]. clear: as many counts for each of `later` passes.
extern "C" __global__ void __launch_bounds__(256)
    count_digits(const Scatter s, const u64* from, u32* counts, u32* clear, const u32 later) {
  __shared__ u32 bins[kDigits];
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

// ---- Segments: the updates of one row.

__device__ inline i64 row_of(const Scatter& s, u64 entry) {
  return (i64)(entry >> s.position_bits);
}
__device__ inline i64 position_of(const Scatter& s, u64 entry) {
  return (i64)(entry & ((u64(1) << s.position_bits) - 1));
}

// bounds[row] = {first, end} of its segment; filled with zeros before.
extern "C" __global__ void __launch_bounds__(256)
    find_segments(const Scatter s, const u64* entries, uint2* bounds) {
  const i64 k = (i64)blockIdx.x * 256 + threadIdx.x;
  if (k >= s.count) return;
  const i64 row = row_of(s, entries[k]);
  if (row >= s.rows) return;
  if (k == 0 || row_of(s, entries[k - 1]) != row) bounds[row].x = (u32)k;
  if (k + 1 == s.count || row_of(s, entries[k + 1]) != row) bounds[row].y = (u32)(k + 1);
}

#if SUM
constexpr int kLong = 128;  // longer segments are summed by a block
constexpr int kRun = 128;   // terms of a partial sum, so that its error stays small
static_assert(kRun >= kLong, "shorter segments are one sum");
constexpr int kAhead = COLUMNS > 3 ? 1 : COLUMNS > 1 ? 2 : 4;  // updates whose loads go ahead

template <class V>
struct Sum {  // integers wrap, signed as unsigned
  typedef V type;
};
template <>
struct Sum<i8> {
  typedef u32 type;
};
template <>
struct Sum<i16> {
  typedef u32 type;
};
template <>
struct Sum<i32> {
  typedef u32 type;
};
template <>
struct Sum<i64> {
  typedef u64 type;
};
typedef Sum<acc_t<T>>::type A;
__device__ inline T finish(A v) { return narrow<T>((acc_t<T>)v); }

struct Sums {
  A v[W];
};
__device__ inline void add_row(Sums& s, const Vec<T, W>& x) {
#pragma unroll
  for (int j = 0; j < W; ++j) s.v[j] += (A)widen(x.v[j]);
}
// Of entries [k, end), in their order.
__device__ inline Sums sum_entries(const Scatter& s, const u64* entries, i64 k, i64 end,
                                   const T* updates) {
  Sums total = {};
  while (k < end) {
    const i64 stop = k + kRun < end ? k + kRun : end;
    Sums part = {};
#pragma unroll 4
    for (; k < stop; ++k)
      add_row(part, load<T, W>(updates + position_of(s, entries[k]) * s.inner));
#pragma unroll
    for (int j = 0; j < W; ++j) total.v[j] += part.v[j];
  }
  return total;
}
__device__ inline void put_row(const Sums& sum, T* y) {
  Vec<T, W> out;
#pragma unroll
  for (int j = 0; j < W; ++j) out.v[j] = finish(sum.v[j]);
  store(y, out);
}

// base: what y holds without the updates, null for zeros. FRESH: LANES threads for each row of y.
// Else for each entry, of which the first of its row works.
extern "C" __global__ void __launch_bounds__(256)
    sum_segments(const Scatter s, const u64* entries, const uint2* bounds, const T* updates,
                 const T* base, T* y) {
  const i64 item = ((i64)blockIdx.x * 256 + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
  const i64 items = FRESH ? s.rows : s.count;
  if (item >= items * s.outer) return;
  const i64 outer = s.outer == 1 ? 0 : item / items, i = item - outer * items;
  i64 row = i, first = 0, end = 0;
#if FRESH
  const uint2 b = bounds[i];
  first = b.x, end = b.y;
#else
  row = row_of(s, entries[i]);
  if (row >= s.rows || (i > 0 && row_of(s, entries[i - 1]) == row)) return;
  first = i, end = i + 1;
  while (end < s.count && end - first <= kLong && row_of(s, entries[end]) == row) ++end;
#endif
  if (end - first > kLong) return;
  const T* from = updates + outer * s.count * s.inner;
  const i64 at = (outer * s.rows + row) * s.inner;
  constexpr int step = LANES * W;
  for (i64 c = lane * W; c < s.inner; c += step * COLUMNS) {
    Sums sums[COLUMNS] = {};
    Vec<T, W> held[COLUMNS] = {};
    const auto inside = [&](int j) { return COLUMNS == 1 || c + j * step < s.inner; };
    if (base)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
        if (inside(j)) held[j] = load<T, W>(base + at + c + j * step);
#pragma unroll kAhead
    for (i64 k = first; k < end; ++k) {
      const T* update = from + position_of(s, entries[k]) * s.inner + c;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
        if (inside(j)) add_row(sums[j], load<T, W>(update + j * step));
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      if (!inside(j)) continue;
      if (base) add_row(sums[j], held[j]);
      put_row(sums[j], y + at + c + j * step);
    }
  }
}

// One block for each kLong entries and 32 vectors of columns: the segment that is long and has its
// first entry at a multiple of kLong here. Warps sum parts of it, which are joined in order.
extern "C" __global__ void __launch_bounds__(256)
    sum_long_segments(const Scatter s, const u64* entries, const T* updates, const T* base, T* y) {
  __shared__ Sums parts[8][32];
  const i64 blocks = (s.count + kLong - 1) / kLong, chunks = (s.inner + 32 * W - 1) / (32 * W);
  const i64 k = (i64)blockIdx.x % blocks * kLong, rest = (i64)blockIdx.x / blocks;
  const i64 column = rest % chunks * (32 * W), outer = rest / chunks;
  const i64 row = row_of(s, entries[k]);
  if (row >= s.rows) return;
  if (k + 1 >= s.count || row_of(s, entries[k + 1]) != row) return;
  if (k > 0 && row_of(s, entries[k - kLong]) == row) return;
  i64 first = k > kLong ? k - kLong : 0, end = k;  // by bisection: the row's first entry
  while (first < end) {
    const i64 middle = (first + end) / 2;
    if (row_of(s, entries[middle]) < row) first = middle + 1;
    else end = middle;
  }
  if (first + kLong >= s.count || row_of(s, entries[first + kLong]) != row) return;
  i64 high = s.count;
  end = first + kLong;  // the first entry behind the row
  while (end < high) {
    const i64 middle = (end + high) / 2;
    if (row_of(s, entries[middle]) <= row) end = middle + 1;
    else high = middle;
  }
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 share = (end - first + 7) / 8, from = first + warp * share;
  const i64 c = column + lane * W;
  if (c < s.inner)
    parts[warp][lane] = sum_entries(s, entries, from < end ? from : end,
                                    from + share < end ? from + share : end,
                                    updates + outer * s.count * s.inner + c);
  __syncthreads();
  if (warp != 0 || c >= s.inner) return;
  Sums total = parts[0][lane];
  for (int w = 1; w < 8; ++w)
#pragma unroll
    for (int j = 0; j < W; ++j) total.v[j] += parts[w][lane].v[j];
  const i64 at = (outer * s.rows + row) * s.inner + c;
  if (base) add_row(total, load<T, W>(base + at));
  put_row(total, y + at);
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
#endif
