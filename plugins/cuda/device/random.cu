//variant: DRAW=bits T=u32
//variant: DRAW=uniform T=f64
//variant: DRAW=normal T=f32
//variant: DRAW=dropout T=bf16
// SPDX-License-Identifier: Apache-2.0
// Numbers made of the generator's words: one block of four words to a thread.
#include "philox.cuh"

typedef RandomSource Source;

// kElements: of a block of words. value(source, words, first element, out)
struct bits {
  static constexpr int kElements = 4;
  __device__ static void make(const Source&, const Words& w, i64, u32* y) {
    for (int k = 0; k < 4; ++k) y[k] = w.w[k];
  }
};
struct uniform {
  static constexpr int kElements = 16 / sizeof(T);
  __device__ static void make(const Source&, const Words& w, i64, f32* y) {
    for (int k = 0; k < 4; ++k) y[k] = unit_f32(w.w[k]);
  }
  __device__ static void make(const Source&, const Words& w, i64, f64* y) {
    for (int k = 0; k < 2; ++k) y[k] = unit_f64(w.w[2 * k], w.w[2 * k + 1]);
  }
};
// Box-Muller on pairs; 1 - u is never 0.
struct normal {
  static constexpr int kElements = 16 / sizeof(T);
  template <class V>
  __device__ static void make(const Source& s, const Words& w, i64 first, V* y) {
    uniform::make(s, w, first, y);
    for (int k = 0; k < kElements; k += 2) {
      const V radius = sqrt(V(-2) * log(1 - y[k]));
      V sine, cosine;
      sincospi(2 * y[k + 1], &sine, &cosine);
      y[k] = radius * cosine, y[k + 1] = radius * sine;
    }
  }
};
// One word an element whatever the dtype, so that the mask does not depend on it.
struct dropout {
  static constexpr int kElements = 4;
  template <class V>
  __device__ static void make(const Source& s, const Words& w, i64 first, V* y) {
    typedef acc_t<V> A;
    const A bar = (A)(f32)s.p * (A)0x1p24, kept = (A)(1 - s.p);
    const V* x = static_cast<const V*>(s.x) + first;
    for (int k = 0; k < 4; ++k)
      if (first + k < s.count)
        y[k] = narrow<V>((A)(w.w[k] >> 8) >= bar ? widen(x[k]) / kept : A(0));
  }
};

extern "C" __global__ void __launch_bounds__(256) draw(T* y, const Source s) {
  const i64 block = (i64)blockIdx.x * 256 + threadIdx.x, first = block * DRAW::kElements;
  if (first >= s.count) return;
  Vec<T, DRAW::kElements> v;
  DRAW::make(s, philox(s.rng, (u64)block), first, v.v);
  if (first + DRAW::kElements <= s.count) {
    store(y + first, v);
  } else {
    for (int k = 0; first + k < s.count; ++k) y[first + k] = v.v[k];
  }
}
