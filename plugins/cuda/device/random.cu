//variant: DRAW=bits T=u32
//variant: DRAW=uniform T=f64
//variant: DRAW=normal T=f32
//variant: DRAW=dropout T=bf16
// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011), and the numbers made of
// its words: one block of four words to a thread.
#include "common.cuh"

struct Words {
  u32 w[4];
};
// rng: seed and offset.
__device__ inline Words philox(const u64* rng, u64 block) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)rng[1], c3 = (u32)(rng[1] >> 32);
  u32 k0 = (u32)rng[0], k1 = (u32)(rng[0] >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0, c1 = low1;
    c2 = high0 ^ c3 ^ k1, c3 = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

struct Source {
  const u64* rng;
  const void* x;  // dropout's
  f64 p;
  i64 count;
};

// [0, 1) in steps of 2^-24, and of 2^-53.
__device__ inline f32 unit_f32(u32 w) { return (f32)(w >> 8) * 0x1p-24f; }
__device__ inline f64 unit_f64(u32 w0, u32 w1) {
  return ((f64)(w0 >> 5) * 0x1p26 + (f64)(w1 >> 6)) * 0x1p-53;
}

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
