// SPDX-License-Identifier: Apache-2.0
// One stage of reduce: [outer, n, inner] -> [outer, pieces, inner], by rows (inner 1) or columns.
// TYPE; KIND; FIRST: reads T, else partial results; LAST: writes T, else partial results. MEAN, ROOT: what
// LAST does to the sum. LANES: of a row. VEC: elements of a thread in columns.
//variant: TYPE=f32 KIND=sum FIRST=1 LAST=1 MEAN=1 ROOT=0 LANES=256 VEC=4
//variant: TYPE=bf16 KIND=logsumexp FIRST=1 LAST=0 MEAN=0 ROOT=0 LANES=32 VEC=8
//variant: TYPE=f64 KIND=sum_square FIRST=0 LAST=1 MEAN=0 ROOT=1 LANES=1 VEC=1
//variant: TYPE=i8 KIND=max FIRST=1 LAST=1 MEAN=0 ROOT=0 LANES=8 VEC=16
//variant: TYPE=u64 KIND=prod FIRST=1 LAST=1 MEAN=1 ROOT=0 LANES=8 VEC=2
//variant: TYPE=b8 KIND=any FIRST=1 LAST=1 MEAN=0 ROOT=0 LANES=32 VEC=16
#include "rows.cuh"

typedef TYPE T;

// What partial results are: floats in their accumulation type, integers in 64 bits, bools as 0 or 1.
template <class U>
struct Wide {
  typedef acc_t<U> type;
  static constexpr bool floating = true;
  __device__ static type lowest() { return -infinity<type>(); }
  __device__ static type highest() { return infinity<type>(); }
};
template <class U, class Sum>
struct WideInteger {
  typedef Sum type;
  static constexpr bool floating = false;
  static constexpr bool is_signed = Sum(-1) < Sum(0);
  static constexpr int bits = 8 * sizeof(U);
  __device__ static type lowest() { return is_signed ? (Sum)(~u64(0) << (bits - 1)) : 0; }
  __device__ static type highest() { return (Sum)(~u64(0) >> (64 - bits + is_signed)); }
};
template <> struct Wide<i8> : WideInteger<i8, i64> {};
template <> struct Wide<i16> : WideInteger<i16, i64> {};
template <> struct Wide<i32> : WideInteger<i32, i64> {};
template <> struct Wide<i64> : WideInteger<i64, i64> {};
template <> struct Wide<u8> : WideInteger<u8, u64> {};
template <> struct Wide<u16> : WideInteger<u16, u64> {};
template <> struct Wide<u32> : WideInteger<u32, u64> {};
template <> struct Wide<u64> : WideInteger<u64, u64> {};
template <> struct Wide<b8> : WideInteger<u32, u32> {};
typedef Wide<T>::type W;

// Integers wrap.
template <class A>
__device__ inline A times(A a, A b) {
  if constexpr (Wide<T>::floating) return a * b;
  else return (A)((u64)a * (u64)b);
}
template <class A>
__device__ inline A plus(A a, A b) {
  if constexpr (Wide<T>::floating) return a + b;
  else return (A)((u64)a + (u64)b);
}
template <class A>
__device__ inline A magnitude(A v) {
  if constexpr (Wide<T>::floating) return fabs(v);
  else return v < 1 && v != 0 ? (A)(0 - (u64)v) : v;
}

namespace kinds {
// What nothing gives, what an element is, how two results join.
#define KIND_OF(name, start, element, both)                          \
  struct name {                                                      \
    typedef W Partial;                                               \
    __device__ static W identity() { return start; }                 \
    __device__ static W term(W v) { return element; }                \
    __device__ W operator()(W a, W b) const { return both; }         \
    template <int N>                                                 \
    __device__ static void take_terms(W& p, const Vec<T, N>& x) {    \
      W v[N];                                                        \
      _Pragma("unroll") for (int k = 0; k < N; ++k) v[k] = term((W)widen(x.v[k])); \
      p = name()(p, join_all(v, name()));                            \
    }                                                                \
    __device__ static W value(W p) { return p; }                     \
  };
KIND_OF(sum, 0, v, plus(a, b))
KIND_OF(max, Wide<T>::lowest(), v, Most()(a, b))
KIND_OF(min, Wide<T>::highest(), v, Least()(a, b))
KIND_OF(prod, 1, v, times(a, b))
KIND_OF(sum_square, 0, times(v, v), plus(a, b))
KIND_OF(l1, 0, magnitude(v), plus(a, b))
KIND_OF(any, 0, v, a > b ? a : b)
KIND_OF(all, 1, v, a < b ? a : b)
template <class A>
struct logsumexp_of : JoinExp {
  typedef ExpSum<A> Partial;
  __device__ static Partial identity() { return no_terms<A>(); }
  template <int N>
  __device__ static void take_terms(Partial& p, const Vec<T, N>& x) {
    take(p, x);
  }
  __device__ static A value(const Partial& p) {
    return isfinite(p.most) ? p.most + log(p.scale) : p.most;
  }
};
typedef logsumexp_of<W> logsumexp;
}  // namespace kinds
typedef kinds::KIND Kind;
typedef Kind::Partial Partial;

#if FIRST
typedef T In;
#else
typedef Partial In;
#endif
#if LAST
typedef T Out;
#else
typedef Partial Out;
#endif
template <int N>
__device__ inline void take_in(Partial& p, const Vec<In, N>& x) {
#if FIRST
  Kind::take_terms(p, x);
#else
#pragma unroll
  for (int k = 0; k < N; ++k) p = Kind()(p, x.v[k]);
#endif
}
template <class A>
__device__ inline T rounded(A v, i64 count) {
  if constexpr (Wide<T>::floating) {
    if (MEAN) v = v / (A)count;
    return narrow<T>(ROOT ? sqrt(v) : v);
  } else if constexpr (sizeof(A) == 4) {
    return {(u8)v};
  } else {
    return (T)(!MEAN ? v : count == 0 ? 0 : v / (A)count);
  }
}
// count: elements behind the result.
__device__ inline Out finish(const Partial& p, i64 count) {
#if LAST
  return rounded(Kind::value(p), count);
#else
  return p;
#endif
}

struct Stage {
  i64 outer, n, inner, pieces, piece, count;
};

extern "C" __global__ void __launch_bounds__(Group<LANES>::threads)
    rows(const In* __restrict__ x, Out* __restrict__ y, const Stage s) {
  const i64 at = Group<LANES>::index();
  Partial p = Kind::identity();
  if (at < s.outer * s.pieces) {
    const i64 row = at / s.pieces, from = at % s.pieces * s.piece;
    for_line<LANES>(x + row * s.n + from, (u32)min(s.piece, s.n - from), 1,
                    [&](const auto& v, u32) { take_in(p, v); });
  }
  p = join_lanes<LANES>(p, Kind());
  if (at < s.outer * s.pieces && Group<LANES>::lane() == 0) y[at] = finish(p, s.count);
}

// A block: `across` threads side by side, the others below them. across: a power of two, at most 32.
extern "C" __global__ void __launch_bounds__(256)
    columns(const In* __restrict__ x, Out* __restrict__ y, const Stage s, u32 across) {
  const u32 c = threadIdx.x % across, r = threadIdx.x / across, down = 256 / across;
  const i64 tiles = (s.inner / VEC + across - 1) / across;
  const i64 tile = blockIdx.x % tiles, block = blockIdx.x / tiles;
  const i64 column = (tile * across + c) * VEC;
  const i64 from = block % s.pieces * s.piece, rows = min(s.piece, s.n - from);
  Partial p[VEC];
#pragma unroll
  for (int k = 0; k < VEC; ++k) p[k] = Kind::identity();
  if (column < s.inner) {
    const In* at = x + (block / s.pieces * s.n + from) * s.inner + column;
    constexpr int ahead = 4;
    for (i64 i = r; i < rows; i += ahead * down) {
      Vec<In, VEC> v[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * down < rows) v[u] = load<In, VEC>(at + (i + u * down) * s.inner);
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * down < rows)
#pragma unroll
          for (int k = 0; k < VEC; ++k) take_in(p[k], Vec<In, 1>{{v[u].v[k]}});
    }
  }
  __shared__ __align__(16) u8 space[256 * VEC * sizeof(Partial)];
  Partial* parts = reinterpret_cast<Partial*>(space);
#pragma unroll
  for (int k = 0; k < VEC; ++k) parts[k * 256 + threadIdx.x] = p[k];
  __syncthreads();
  for (u32 half = down / 2; half > 0; half /= 2) {
    if (r < half)
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        Partial& mine = parts[k * 256 + threadIdx.x];
        mine = Kind()(mine, parts[k * 256 + threadIdx.x + half * across]);
      }
    __syncthreads();
  }
  if (r > 0 || column >= s.inner) return;
#pragma unroll
  for (int k = 0; k < VEC; ++k)
    y[block * s.inner + column + k] = finish(parts[k * 256 + c], s.count);
}
