// SPDX-License-Identifier: Apache-2.0
// Lines of a tensor, each walked by a group of lanes: one thread, a part of a warp, a warp or a
// block. What the lanes found is joined in a fixed order.
#pragma once
#include "common.cuh"

template <int lanes>
struct Group {
  static constexpr int threads = lanes <= 256 ? 256 : lanes;
  static constexpr int per_block = threads / lanes;
  __device__ static u32 lane() { return threadIdx.x % lanes; }
  __device__ static u32 in_block() { return threadIdx.x / lanes; }
  __device__ static i64 index() { return (i64)blockIdx.x * per_block + in_block(); }
};

template <class P, class F>
__device__ inline P each_word(const P& v, F&& f) {
  static_assert(sizeof(P) % 4 == 0, "");
  union Words {
    P whole;
    u32 word[sizeof(P) / 4];
    __device__ Words() {}
  } from, to;
  from.whole = v;
#pragma unroll
  for (int k = 0; k < (int)(sizeof(P) / 4); ++k) to.word[k] = f(from.word[k]);
  return to.whole;
}
// For a join that gives one of its two operands, whatever their order: all lanes find the same.
template <int WIDTH, class P, class Join>
__device__ inline P choose_warp(P v, Join join) {
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2)
    v = join(v, each_word(v, [=](u32 w) { return __shfl_xor_sync(~0u, w, o); }));
  return v;
}
template <int WIDTH, class P, class Join>
__device__ inline P join_warp(P v, Join join) {
  v = choose_warp<WIDTH>(v, join);
  // Lanes may differ by a rounding: the first one's counts.
  return each_word(v, [](u32 w) { return __shfl_sync(~0u, w, 0, WIDTH); });
}
// Of numbers all lanes find the same sum.
template <int WIDTH, class A>
__device__ inline A sum_warp(A v) {
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2)
    v += each_word(v, [=](u32 w) { return __shfl_xor_sync(~0u, w, o); });
  return v;
}
// All threads of the block come here; all lanes of a group get its result.
template <int lanes, class P, class Join>
__device__ inline P join_lanes(P v, Join join) {
  if constexpr (lanes == 1) {
    return v;
  } else if constexpr (lanes <= 32) {
    return join_warp<lanes>(v, join);
  } else {
    constexpr int warps = lanes / 32;
    __shared__ __align__(16) u8 parts[Group<lanes>::threads / 32 * sizeof(P)];
    v = join_warp<32>(v, join);
    __syncthreads();  // the last call's parts were read
    if (threadIdx.x % 32 == 0) reinterpret_cast<P*>(parts)[threadIdx.x / 32] = v;
    __syncthreads();
    v = reinterpret_cast<const P*>(parts)[Group<lanes>::in_block() * warps + threadIdx.x % warps];
    return join_warp<warps>(v, join);
  }
}

// What the warps of a group found, in their order; all lanes of the group come here. turn: of calls
// one after the other, which need no barrier between them.
template <int lanes, class P>
__device__ inline const P* exchange(const P& mine, u32 turn) {
  constexpr int warps = Group<lanes>::threads / 32, own = lanes / 32;
  __shared__ __align__(16) u8 memory[2][warps * sizeof(P)];
  P* const parts = reinterpret_cast<P*>(memory[turn % 2]);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  if constexpr (lanes == Group<lanes>::threads) __syncthreads();
  else asm volatile("bar.sync %0, %1;" ::"r"(1 + Group<lanes>::in_block()), "n"(lanes) : "memory");
  return parts + Group<lanes>::in_block() * own;
}

struct Add {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
// NaN wins.
struct Most {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
#if __CUDA_ARCH__ >= 800
  __device__ f32 operator()(f32 a, f32 b) const {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
};
struct Least {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b < a || b != b ? b : a;
  }
#if __CUDA_ARCH__ >= 800
  __device__ f32 operator()(f32 a, f32 b) const {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
#endif
};
template <int N, class A, class Join>
__device__ inline A join_all(const A (&v)[N], Join join) {
  A t[N];
#pragma unroll
  for (int k = 0; k < N; ++k) t[k] = v[k];
#pragma unroll
  for (int width = N / 2; width > 0; width /= 2)
#pragma unroll
    for (int k = 0; k < width; ++k) t[k] = join(t[k], t[k + width]);
  return t[0];
}

// Sum of f(c, k) over the chunks c of a lane, each `width` numbers k, that has(c): each chunk by itself
// first.
template <int count, int width, class A, class Has, class F>
__device__ inline A sum_chunks(Has&& has, F&& f) {
  A sum = 0;
#pragma unroll
  for (int c = 0; c < count; ++c) {
    if (!has(c)) continue;
    A t[width];
#pragma unroll
    for (int k = 0; k < width; ++k) t[k] = f(c, k);
    sum += join_all(t, Add());
  }
  return sum;
}

// ---- walking a line

template <class T>
__device__ inline u32 phase_of(const T* p) {  // elements past a multiple of 16 bytes
  return (u32)((u64)p % 16 / sizeof(T));
}
// Calls f(Vec<T, N>, index) for all n elements of a line, in vectors of 16 bytes where they lie so.
// With one lane elements are `stride` apart, else they lie together. Loads go ahead of f.
template <int lanes, class T, class F>
__device__ inline void for_line(const T* p, u32 n, i64 stride, F&& f) {
  constexpr int ahead = 4;
  if constexpr (lanes == 1) {
    for (u32 i = 0; i < n; i += ahead) {
      T t[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u < n) t[u] = p[(i + u) * stride];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u < n) f(Vec<T, 1>{{t[u]}}, i + u);
    }
  } else {
    constexpr u32 width = 16 / sizeof(T);
    const u32 lane = Group<lanes>::lane();
    const u32 head = min(n, (width - phase_of(p)) % width);
    const u32 vectors = (n - head) / width, tail = head + vectors * width;
    for (u32 i = lane; i < head; i += lanes) f(Vec<T, 1>{{p[i]}}, i);
    for (u32 i = lane; i < vectors; i += ahead * lanes) {
      Vec<T, width> t[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * lanes < vectors) t[u] = load<T, width>(p + head + (i + u * lanes) * width);
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (i + u * lanes < vectors) f(t[u], head + (i + u * lanes) * width);
    }
    for (u32 i = tail + lane; i < n; i += lanes) f(Vec<T, 1>{{p[i]}}, i);
  }
}
// Where a line begins: lines are counted outermost first, `inner` of them side by side.
__device__ inline i64 line_start(i64 line, u32 n, i64 inner) {
  return inner == 1 ? line * n : line / inner * inner * n + line % inner;
}
// What for_line gave at `i`, written likewise. same: both lines have the same phase.
template <class T, int N>
__device__ inline void put(T* line, u32 i, i64 stride, const Vec<T, N>& v, bool same) {
  if constexpr (N == 1) {
    line[i * stride] = v.v[0];
  } else {
    if (same) {
      store(line + i, v);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) line[i + k] = v.v[k];
    }
  }
}

// Shared memory of a line, in which it has the phase that it has at p. slice: bytes, of 16.
extern __shared__ __align__(16) u8 shared_lines[];
template <class T>
__device__ inline T* kept_line(const T* p, u32 slot, u32 slice) {
  return reinterpret_cast<T*>(shared_lines + slot * slice) + phase_of(p);
}

// ---- exponentials

template <class A>
__device__ inline A infinity() {
  return (A)__uint_as_float(0x7F800000u);
}
// e^x for terms of T: where T is short, 22 bits are enough.
template <class T>
__device__ inline acc_t<T> exp_for(acc_t<T> x) {
  if constexpr (sizeof(T) == 2) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  } else {
    return exp(x);
  }
}
// Sum of e^x as scale * e^most. Not finite: most tells, scale is of no use.
template <class A>
struct ExpSum {
  A most, scale;
};
template <class A>
__device__ inline ExpSum<A> no_terms() {
  return {-infinity<A>(), 0};
}
template <class T, int N>
__device__ inline void take(ExpSum<acc_t<T>>& s, const Vec<T, N>& x) {
  using A = acc_t<T>;
  A v[N];
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = widen(x.v[k]);
  const A most = Most()(s.most, join_all(v, Most()));
  if (most == -infinity<A>()) return;
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = exp_for<T>(v[k] - most);
  s.scale = (s.most == most ? s.scale : s.scale * exp_for<T>(s.most - most)) + join_all(v, Add());
  s.most = most;
}
struct JoinExp {
  template <class A>
  __device__ ExpSum<A> operator()(const ExpSum<A>& a, const ExpSum<A>& b) const {
    const A most = Most()(a.most, b.most);
    if (most == -infinity<A>()) return {most, 0};
    const A left = a.most == most ? a.scale : a.scale * exp(a.most - most);
    const A right = b.most == most ? b.scale : b.scale * exp(b.most - most);
    return {most, left + right};
  }
};

// ---- two lines at once, of which `p` leads
template <int lanes, class T, class F>
__device__ inline void for_two_lines(const T* p, const T* q, u32 n, i64 stride, F&& f) {
  const bool same = lanes > 1 && phase_of(p) == phase_of(q);
  constexpr int ahead = lanes == 1 ? 1 : 2;
  constexpr u32 width = lanes == 1 ? 1 : 16 / sizeof(T);
  const auto one = [&](i64 i) { f(Vec<T, 1>{{p[i * stride]}}, Vec<T, 1>{{q[i * stride]}}, (u32)i); };
  const u32 lane = Group<lanes>::lane();
  const u32 head = min(n, (width - phase_of(p) % width) % width);
  const u32 vectors = (n - head) / width, tail = head + vectors * width;
  if constexpr (lanes == 1) {
    for (u32 i = 0; i < n; ++i) one(i);
    return;
  }
  for (u32 i = lane; i < head; i += lanes) one(i);
  for (u32 i = lane; i < vectors; i += ahead * lanes) {
    Vec<T, width> t[ahead], r[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const u32 at = head + (i + u * lanes) * width;
      if (i + u * lanes >= vectors) continue;
      t[u] = load<T, width>(p + at);
      if (same) {
        r[u] = load<T, width>(q + at);
      } else {
#pragma unroll
        for (u32 k = 0; k < width; ++k) r[u].v[k] = q[at + k];
      }
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u)
      if (i + u * lanes < vectors) f(t[u], r[u], head + (i + u * lanes) * width);
  }
  for (u32 i = tail + lane; i < n; i += lanes) one(i);
}
