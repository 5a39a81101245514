// SPDX-License-Identifier: Apache-2.0
// Lines of 16 bits that lie together and are too long for a part of a block, from sm_80 on. A block
// asks for all of its line at once, which stays in shared memory, and works on what has come.
#pragma once
#include "async.cuh"
#include "rows.cuh"

#if __CUDA_ARCH__ >= 800
__device__ inline u32 none_bits(bf16) { return 0xFF80u; }  // of minus infinity
__device__ inline u32 none_bits(f16) { return 0xFC00u; }
// In each half of a word; NaN wins.
__device__ inline u32 most_of(u32 a, u32 b, bf16) {
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ inline u32 most_of(u32 a, u32 b, f16) {
  asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
template <class T>
__device__ inline f32 most_of(const Vec<T, 8>& v) {
  const u32* w = reinterpret_cast<const u32*>(&v);
  const u32 tops = most_of(most_of(w[0], w[1], T{}), most_of(w[2], w[3], T{}), T{});
  return Most()(widen(T{(u16)tops}), widen(T{(u16)(tops >> 16)}));
}
// As take() of rows.cuh. Terms are taken from the most, which is exact for numbers of any size.
template <class T>
__device__ inline void take_long(ExpSum<f32>& s, const Vec<T, 8>& v) {
  const f32 most = Most()(s.most, most_of(v));
  if (most == -infinity<f32>()) return;
  f32 e[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) e[k] = exp_for<T>(widen_at(v, k) - most);
  s.scale = (s.most == most ? s.scale : s.scale * exp_for<T>(s.most - most)) + join_all(e, Add());
  s.most = most;
}

// Of lanes side by side; all of them get the same.
template <int WIDTH, class T>
__device__ inline ExpSum<f32> join_long(const ExpSum<f32>& mine) {
  ExpSum<f32> all = mine;
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2)
    all.most = Most()(all.most, __shfl_xor_sync(~0u, all.most, o));
  if (mine.most != all.most) all.scale *= exp_for<T>(mine.most - all.most);
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2) all.scale += __shfl_xor_sync(~0u, all.scale, o);
  return all;
}

// The tensor lies on vectors, its lines need not: the vector in which two lines meet is read for
// both. A thread gets the vectors that it asked for, and no others.
template <class T, int threads>
struct LongLine {
  static constexpr int width = 16 / sizeof(T), parts = 4;
  typedef Vec<T, width> Vector;
  Vector* const kept = reinterpret_cast<Vector*>(shared_lines);
  i64 first;  // where its first vector begins, in elements: `before` ahead of the line
  u32 n, before, vectors;

  __device__ LongLine(i64 line, u32 n) : n(n) {
    const i64 begin = line * n;
    first = begin / width * width;
    before = (u32)(begin - first);
    vectors = (before + n + width - 1) / width;
  }
  __device__ bool own(u32 i, int k) const { return i * width + k - before < n; }
  __device__ bool whole(u32 i) const { return own(i, 0) && own(i, width - 1); }
  __device__ bool asked_for(u32 i) const {  // by this thread
    return (before + i) / width % threads == threadIdx.x;
  }
  // Of a vector that this thread got, or, behind a barrier, another.
  __device__ T element(u32 i) const { return kept[(before + i) / width].v[(before + i) % width]; }

  __device__ u32 share() const {
    return (vectors + parts * threads - 1) / (parts * threads) * threads;
  }
  // lines: of the tensor, which may end within the last line's last vector, then read by elements.
  __device__ void ask(const T* x, i64 lines) const {
    x += first;
    const i64 left = lines * n - first;
    const u32 filled = left / width < vectors ? (u32)(left / width) : vectors;
#pragma unroll 1
    for (int p = 0; p < parts; ++p) {
      const u32 end = min((p + 1) * share(), filled);
#pragma unroll 4
      for (u32 i = p * share() + threadIdx.x; i < end; i += threads)
        copy_async(kept + i, x + (i64)i * width, true);
      copy_commit();
    }
    if (filled < vectors && filled % threads == threadIdx.x)
      for (u32 k = 0; k < (u32)(left % width); ++k) kept[filled].v[k] = x[(i64)filled * width + k];
  }
  // Calls f(vector, index) for this thread's vectors as they come.
  template <class F>
  __device__ void each_arriving(F&& f) const {
#pragma unroll 1
    for (int p = 0; p < parts; ++p) {
      if (p == 0) copy_wait<parts - 1>();
      else if (p == 1) copy_wait<parts - 2>();
      else if (p == 2) copy_wait<parts - 3>();
      else copy_wait<0>();
      const u32 end = min((p + 1) * share(), vectors);
#pragma unroll 2
      for (u32 i = p * share() + threadIdx.x; i < end; i += threads) {
        Vector v = kept[i];
        forget(v);  // in one access, too, whatever f takes of it
        f(v, i);
      }
    }
  }
  // The same, of which elements of other lines count as none. All threads get the sum.
  __device__ ExpSum<f32> sum() const {
    ExpSum<f32> found = no_terms<f32>();
    each_arriving([&](Vector& v, u32 i) {
      if (!whole(i)) {
#pragma unroll
        for (int k = 0; k < width; ++k)
          if (!own(i, k)) v.v[k].bits = none_bits(T{});
        forget(v);
      }
      take_long(found, v);
    });
    constexpr int warps = threads / 32;
    found = join_long<32, T>(found);
    return join_long<warps, T>(exchange<threads>(found, 0)[threadIdx.x % warps]);
  }
  // Writes what of a vector is the line's.
  __device__ void put(T* y, u32 i, const Vector& out) const {
    y += first + (i64)i * width;
    if (whole(i)) return store_whole(y, out);
#pragma unroll
    for (int k = 0; k < width; ++k)
      if (own(i, k)) y[k] = out.v[k];
  }
};
#endif
