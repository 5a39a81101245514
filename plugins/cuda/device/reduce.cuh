// SPDX-License-Identifier: Apache-2.0
// The kinds of reduce for a result of dtype TYPE: partial results, how terms join, what they come to.
// Terms are of TYPE or of what it is computed in. KIND; LAST: results are written, else partial ones;
// MEAN, ROOT: what is done to the sum.
//variant: TYPE=f32 KIND=sum LAST=1 MEAN=1 ROOT=0
//variant: TYPE=bf16 KIND=logsumexp LAST=0 MEAN=0 ROOT=0
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
    template <class X, int N>                                        \
    __device__ static void take_terms(W& p, const Vec<X, N>& x) {    \
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
  template <class X, int N>
  __device__ static void take_terms(Partial& p, const Vec<X, N>& x) {
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
#if LAST
typedef T Result;
__device__ inline T result(const Partial& p, i64 count) {  // count: elements behind it
  return rounded(Kind::value(p), count);
}
#else
typedef Partial Result;
__device__ inline Partial result(const Partial& p, i64) { return p; }
#endif

// Joins the columns of a block of 256 threads, `across` of them (a power of two) side by side: the
// first row of threads gets the results.
template <int N>
__device__ inline void join_columns(Partial (&p)[N], u32 across) {
  __shared__ __align__(16) u8 space[256 * N * sizeof(Partial)];
  Partial* parts = reinterpret_cast<Partial*>(space);
#pragma unroll
  for (int k = 0; k < N; ++k) parts[k * 256 + threadIdx.x] = p[k];
  __syncthreads();
  for (u32 half = 128; half >= across; half /= 2) {
    if (threadIdx.x < half)
#pragma unroll
      for (int k = 0; k < N; ++k) {
        p[k] = Kind()(p[k], parts[k * 256 + threadIdx.x + half]);
        parts[k * 256 + threadIdx.x] = p[k];
      }
    __syncthreads();
  }
}
