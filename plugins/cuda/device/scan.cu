// SPDX-License-Identifier: Apache-2.0
// cumsum. rows: WARPS warps walk a row in tiles, each loaded at once, and carry the sum on; a long row
// may be cut into pieces whose sums go ahead. columns: a thread per column. Integers are unsigned.
//variant: TYPE=f32 VEC=4 WARPS=8 EXCLUSIVE=0 REVERSE=0
//variant: TYPE=bf16 VEC=8 WARPS=1 EXCLUSIVE=1 REVERSE=1
//variant: TYPE=u8 VEC=1 WARPS=8 EXCLUSIVE=0 REVERSE=1
//variant: TYPE=u64 VEC=2 WARPS=1 EXCLUSIVE=1 REVERSE=0
//entry: scan_rows = rows(In, Out, In, ScanShape)
//entry: scan_sums = sums(In, Out, ScanShape)
//entry: scan_columns = columns(In, Out, ScanShape)
#include "rows.cuh"
#include "scan.args.cuh"

typedef TYPE T;

template <class U>
struct SumOf {
  typedef acc_t<U> type;
};
template <>
struct SumOf<u8> {
  typedef u32 type;
};
template <>
struct SumOf<u16> {
  typedef u32 type;
};
typedef SumOf<T>::type A;

template <class Sum>
__device__ inline T stored(Sum v) {
  if constexpr (sizeof(acc_t<T>) == sizeof(Sum)) return narrow<T>(v);
  else return (T)v;
}

typedef ScanShape Shape;
constexpr int kAhead = 4;  // vectors of a lane in a tile
constexpr u32 kWarpTile = 32 * VEC * kAhead, kTile = WARPS * kWarpTile;

// A piece of a row, which 32 bits count however long the row is.
struct Piece {
  i64 start;  // of its first element in memory
  u32 size;
};
__device__ inline Piece piece_of(i64 row, u32 part, const Shape& s) {
  const i64 begin = (i64)part * s.piece;
  const u32 size = (u32)min((i64)s.piece, s.n - begin);
  return {row * s.n + (REVERSE ? s.n - begin - size : begin), size};
}

// The vector at place j in the order of the scan, from the start of a piece of n.
__device__ inline u32 address(u32 j, u32 n, int width) { return REVERSE ? n - width - j : j; }

__device__ inline void read(A (&v)[VEC], const T* x, u32 j, u32 n) {
  if (j + VEC <= n) {
    const Vec<T, VEC> t = load<T, VEC>(x + address(j, n, VEC));
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = (A)widen(t.v[REVERSE ? VEC - 1 - k : k]);
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = j + k < n ? (A)widen(x[address(j + k, n, 1)]) : A(0);
  }
}
__device__ inline void write(const A (&v)[VEC], T* y, u32 j, u32 n) {
  if (j + VEC <= n) {
    Vec<T, VEC> t;
#pragma unroll
    for (int k = 0; k < VEC; ++k) t.v[REVERSE ? VEC - 1 - k : k] = stored(v[k]);
    store(y + address(j, n, VEC), t);
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      if (j + k < n) y[address(j + k, n, 1)] = stored(v[k]);
  }
}
// The sum of what earlier lanes have; total: of all.
__device__ inline A before(A mine, A& total) {
  const u32 lane = threadIdx.x % 32;
  A sum = mine;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const A other = each_word(sum, [=](u32 w) { return __shfl_up_sync(~0u, w, o); });
    if (lane >= o) sum = other + sum;
  }
  total = each_word(sum, [](u32 w) { return __shfl_sync(~0u, w, 31); });
  const A earlier = each_word(sum, [](u32 w) { return __shfl_up_sync(~0u, w, 1); });
  return lane == 0 ? A(0) : earlier;
}

// sums: of the pieces, where there are several.
extern "C" __global__ void __launch_bounds__(256)
    rows(const T* x, T* y, const A* sums, const Shape s) {
  __shared__ A totals[8];
  const u32 warp = threadIdx.x / 32 % WARPS, lane = threadIdx.x % 32;
  const i64 group = (i64)blockIdx.x * (8 / WARPS) + threadIdx.x / (32 * WARPS);
  const i64 row = group / s.pieces;
  const u32 part = (u32)(group % s.pieces);
  const Piece piece = row < s.rows ? piece_of(row, part, s) : Piece{0, 0};
  x += piece.start, y += piece.start;
  A carry = 0;
  if (s.pieces > 1) {
    A mine = 0;
    for (u32 k = threadIdx.x; k < part; k += 256) mine += sums[row * s.pieces + k];
    carry = join_lanes<256>(mine, Add());
  }
  for (u32 base = 0; base < piece.size; base += kTile) {
    const u32 first = base + warp * kWarpTile + lane * VEC;
    A v[kAhead][VEC], start[kAhead], sum = 0;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) read(v[u], x, first + u * 32 * VEC, piece.size);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      A run = 0;
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A next = run + v[u][k];
        v[u][k] = EXCLUSIVE ? run : next;
        run = next;
      }
      A total;
      start[u] = sum + before(run, total);
      sum += total;
    }
    A ahead = carry;
    if constexpr (WARPS > 1) {
      __syncthreads();  // the last tile's totals were read
      if (lane == 0) totals[warp] = sum;
      __syncthreads();
      A all = 0;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        if (w == warp) ahead = carry + all;
        all += totals[w];
      }
      carry += all;
    } else {
      carry += sum;
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) v[u][k] += ahead + start[u];
      write(v[u], y, first + u * 32 * VEC, piece.size);
    }
  }
}

// The sum of each piece.
extern "C" __global__ void __launch_bounds__(256) sums(const T* x, A* sums, const Shape s) {
  const i64 row = blockIdx.x / s.pieces;
  const Piece piece = piece_of(row, blockIdx.x % s.pieces, s);
  A sum = 0;
  for_line<256>(x + piece.start, piece.size, 1,
                [&](const auto& v, u32) {
                  constexpr int N = sizeof(v) / sizeof(T);
                  A t[N];
#pragma unroll
                  for (int k = 0; k < N; ++k) t[k] = (A)widen(v.v[k]);
                  sum += join_all(t, Add());
                });
  sum = join_lanes<256>(sum, Add());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The carry of floats is an f64: the chain may be long.
template <class U>
struct CarryOf {
  typedef U type;
};
template <>
struct CarryOf<f32> {
  typedef f64 type;
};
extern "C" __global__ void __launch_bounds__(128) columns(const T* x, T* y, const Shape s) {
  const i64 line = (i64)blockIdx.x * 128 + threadIdx.x;
  if (line >= s.rows) return;
  const u32 n = (u32)s.n;
  const i64 start = line_start(line, n, s.inner), step = REVERSE ? -s.inner : s.inner;
  x += start, y += start;
  if (REVERSE) x += (s.n - 1) * s.inner, y += (s.n - 1) * s.inner;
  CarryOf<A>::type carry = 0;
  constexpr int ahead = 8;
  for (u32 i = 0; i < n; i += ahead) {
    T t[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (i + u < n) t[u] = x[(i + u) * step];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      if (i + u >= n) break;
      const auto next = carry + (A)widen(t[u]);
      y[(i + u) * step] = stored((A)(EXCLUSIVE ? carry : next));
      carry = next;
    }
  }
}
