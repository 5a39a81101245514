// SPDX-License-Identifier: Apache-2.0
// Elements as unsigned keys that compare as the elements do (NaN above all, -0 as +0), and what
// sorts and selections by digits of keys are made of.
#pragma once
#include "rows.cuh"
#include "units.cuh"

// sign: the highest bit is one; infinity: the bits of +inf, 0 for what is no float.
template <class T>
struct Form {
  static constexpr bool sign = false;
  static constexpr u64 infinity = 0;
};
template <u64 top>
struct SignedForm {
  static constexpr bool sign = true;
  static constexpr u64 infinity = top;
};
template <>
struct Form<i8> : SignedForm<0> {};
template <>
struct Form<i16> : SignedForm<0> {};
template <>
struct Form<i32> : SignedForm<0> {};
template <>
struct Form<i64> : SignedForm<0> {};
template <>
struct Form<f16> : SignedForm<0x7C00> {};
template <>
struct Form<bf16> : SignedForm<0x7F80> {};
template <>
struct Form<f32> : SignedForm<0x7F800000> {};
template <>
struct Form<f64> : SignedForm<0x7FF0000000000000> {};

// Of T's bits. down: the greatest element has the least key.
template <class T, bool down>
struct Order {
  typedef typename UnitOf<sizeof(T)>::type Key;
  static constexpr int bits = 8 * sizeof(Key);
  static constexpr Key sign = (Key)((u64)1 << (bits - 1)), all = (Key) ~(u64)0;

  __device__ static Key key(Key x) {
    Key k = x;
    if constexpr (Form<T>::infinity == Form<f32>::infinity ||
                  Form<T>::infinity == Form<bf16>::infinity) {
      // The sum is +0 for -0, and the NaN whose bits but the sign are ones for every NaN.
      constexpr int below = 32 - bits;
      const u32 y = __float_as_uint(__fadd_rn(__uint_as_float((u32)x << below), 0.0f));
      k = (Key)((y ^ ((u32)((i32)y >> 31) | 0x80000000u)) >> below);
    } else if constexpr (Form<T>::infinity != 0) {
      const Key magnitude = x & (Key)~sign;
      k = magnitude > Form<T>::infinity ? all
          : magnitude == 0              ? sign
          : (x & sign)                  ? (Key)~x
                                        : (Key)(x | sign);
    } else if constexpr (Form<T>::sign) {
      k = x ^ sign;
    }
    return down ? (Key)~k : k;
  }
  // The bits of the element at p, which has this key: read only where the key does not tell.
  __device__ static Key element(Key key, const Key* p) {
    const Key k = down ? (Key)~key : key;
    if constexpr (Form<T>::infinity != 0) {
      if (k == sign || k == all) return *p;
      return (k & sign) ? (Key)(k ^ sign) : (Key)~k;
    } else if constexpr (Form<T>::sign) {
      return k ^ sign;
    } else {
      return k;
    }
  }
};

// ---- blocks of `threads`, all of which come here

// The sum of what earlier threads have; total: of all. S of 32 or 64 bits.
template <int threads, class S>
__device__ inline S sum_before(S mine, S& total) {
  __shared__ S warps[threads / 32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  S sum = mine;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const S other = __shfl_up_sync(~0u, sum, o);
    if (lane >= o) sum += other;
  }
  if constexpr (threads == 32) {
    total = __shfl_sync(~0u, sum, 31);
    return sum - mine;
  } else {
    __syncthreads();  // the last call's sums were read
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    S before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < threads / 32; ++w) {
      if (w == warp) before = total;
      total += warps[w];
    }
    return before + sum - mine;
  }
}

// The bin in which the sums of `bins` numbers at(0), at(1), ... reach `want`, which is at least 1
// and at most all of them.
template <class S>
struct Bin {
  u32 index;
  S before, inside;
};
template <int threads, int bins, class S, class At>
__device__ inline Bin<S> find_bin(S want, At at) {
  constexpr int each = bins > threads ? bins / threads : 1;
  __shared__ Bin<S> found;
  const int first = threadIdx.x * each;
  S v[each], mine = 0, total;
#pragma unroll
  for (int d = 0; d < each; ++d) {
    v[d] = first + d < bins ? at(first + d) : S(0);
    mine += v[d];
  }
  S before = sum_before<threads>(mine, total);
  if (before < want && before + mine >= want) {
#pragma unroll
    for (int d = 0; d < each; ++d) {
      if (before < want && before + v[d] >= want) found = {(u32)(first + d), before, v[d]};
      before += v[d];
    }
  }
  __syncthreads();
  const Bin<S> result = found;
  __syncthreads();  // the next call writes it
  return result;
}

// Lanes of the warp with the same digit.
__device__ inline u32 same_digit(u32 digit) {
  u32 others = 0;
#pragma unroll
  for (int b = 0; b < 8; ++b) {
    // Lanes that have a one; all bits of `own` where this one does. Compilers take more steps for it.
    u32 lanes, own;
    asm volatile(
        "{ .reg .pred one;\n"
        "shl.b32 %1, %2, %3;\n"
        "setp.lt.s32 one, %1, 0;\n"
        "vote.sync.ballot.b32 %0, one, 0xffffffff;\n"
        "selp.b32 %1, 0xffffffff, 0, one; }"
        : "=r"(lanes), "=&r"(own)
        : "r"(digit), "r"(31 - b));
    others |= lanes ^ own;
  }
  return ~others;
}

// Items of a block in order: warp by warp, each in steps of 32.
template <int items>
__device__ inline u32 item_at(int j) {
  return threadIdx.x / 32 * (32 * items) + j * 32 + threadIdx.x % 32;
}
// The place of each item when the block's items are sorted by their digits, stably. counts: 256 of
// each warp; the first 256 are where a digit begins afterwards.
template <int threads, int items>
__device__ inline void rank_digits(const u32 (&digit)[items], u32 (&place)[items], u32* counts) {
  constexpr int warps = threads / 32, each = 256 > threads ? 256 / threads : 1;
  const u32 lane = threadIdx.x % 32, earlier = (1u << lane) - 1;
  u32* const mine = counts + threadIdx.x / 32 * 256;
#pragma unroll
  for (int i = 0; i < 256; i += 32) mine[i + lane] = 0;
  __syncwarp();
  // The first of the lanes with a digit counts for all of them.
#pragma unroll
  for (int j = 0; j < items; ++j) {
    const u32 same = same_digit(digit[j]);
    const u32 before = __popc(same & earlier), had = mine[digit[j]];
    __syncwarp();
    if (before == 0) mine[digit[j]] = had + __popc(same);
    __syncwarp();
    place[j] = had + before;
  }
  __syncthreads();
  const int first = threadIdx.x * each;
  u32 sum = 0, total;
  if (first < 256)
    for (int d = first; d < first + each; ++d)
#pragma unroll
      for (int w = 0; w < warps; ++w) sum += counts[w * 256 + d];
  u32 at = sum_before<threads>(sum, total);
  if (first < 256)
    for (int d = first; d < first + each; ++d)
#pragma unroll
      for (int w = 0; w < warps; ++w) {
        const u32 n = counts[w * 256 + d];
        counts[w * 256 + d] = at;
        at += n;
      }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < items; ++j) place[j] += mine[digit[j]];
}

// ---- lines

typedef OrderLines Lines;
// A line of x and where its first k go.
template <class O>
struct Sorted {
  typedef typename O::Key Key;
  const Key* x;
  Key* values;
  i64* indices;
  i64 inner;

  __device__ Sorted(const Lines& s, i64 line, const Key* x, Key* values, i64* indices)
      : x(x + line_start(line, s.n, s.inner)),
        values(values + line_start(line, s.k, s.inner)),
        indices(indices + line_start(line, s.k, s.inner)),
        inner(s.inner) {}
  // Element `place`, which has this key, is the one at `at`.
  __device__ void put(u32 at, Key key, u32 place) const {
    values[at * inner] = O::element(key, x + place * inner);
    indices[at * inner] = place;
  }
};
