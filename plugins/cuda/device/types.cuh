// SPDX-License-Identifier: Apache-2.0
// dtypes by their names, conversions with one rounding, and vectors for 16-byte accesses.
// acc_t<T> is what a T is computed in.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct b8 {  // bool: 0 or 1
  u8 bits;
};
struct c64 {
  f32 re, im;
};

__device__ inline f32 f16_to_f32(u16 bits) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
__device__ inline u16 f32_to_f16(f32 x) {
  u16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ inline u16 f64_to_f16(f64 x) {
  u16 y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x));
  return y;
}
__device__ inline f32 bf16_to_f32(u16 bits) { return __uint_as_float((u32)bits << 16); }
__device__ inline u16 f32_to_bf16(f32 x) {
#if __CUDA_ARCH__ >= 800
  u16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const u32 bits = __float_as_uint(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (u16)(bits >> 16 | 0x40);
  return (u16)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
#endif
}
// To f32 with the last bit set when inexact: a second rounding to a shorter format is then right.
__device__ inline f32 f64_to_odd(f64 x) {
  const f32 y = __double2float_rz(x);
  u32 bits = __float_as_uint(y);
  if ((f64)y != x && x == x && (bits & 0x7FFFFFFFu) < 0x7F800000u) bits |= 1;
  return __uint_as_float(bits);
}
__device__ inline u16 f64_to_bf16(f64 x) { return f32_to_bf16(f64_to_odd(x)); }

// The 8-bit floats: E exponent bits, M mantissa bits.
template <int E, int M, bool kHasInf>
__device__ inline f32 f8_to_f32(u8 bits) {
  const u32 sign = (u32)(bits & 0x80) << 24, rest = bits & 0x7F;
  const u32 exponent = rest >> M, mantissa = rest & ((1 << M) - 1);
  if (kHasInf && exponent == (1 << E) - 1)
    return __uint_as_float(sign | 0x7F800000u | mantissa << (23 - M));
  if (!kHasInf && rest == 0x7F) return __uint_as_float(sign | 0x7FC00000u);
  constexpr int bias = (1 << (E - 1)) - 1;
  if (exponent == 0)
    return __uint_as_float(sign | __float_as_uint((f32)mantissa * exp2f(1 - bias - M)));
  return __uint_as_float(sign | (exponent + 127 - bias) << 23 | mantissa << (23 - M));
}
// Nearest, ties to even; too large: the largest when saturating, else infinity or NaN.
template <int E, int M, bool kHasInf>
__device__ inline u8 f32_to_f8(f32 x, bool saturate) {
  constexpr int bias = (1 << (E - 1)) - 1;
  const u32 bits = __float_as_uint(x);
  const u8 sign = (u8)(bits >> 24 & 0x80);
  const u32 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7F;
  constexpr u32 largest = kHasInf ? ((((1u << E) - 2) << M) | ((1u << M) - 1)) : 0x7Eu;
  constexpr u8 over = kHasInf ? (((1u << E) - 1) << M) : 0x7Fu;
  int exponent = (int)(magnitude >> 23) - 127 + bias;
  u32 code;
  if (exponent <= 0) {  // a multiple of the smallest, rounded by the addition of a large number
    const f32 scaled = __uint_as_float(magnitude) * exp2f(bias - 1 + M);
    code = exponent < -M - 1 ? 0 : (u32)__float2int_rn(scaled);
  } else {
    const u32 kept = magnitude >> (23 - M), dropped = magnitude & ((1u << (23 - M)) - 1);
    const u32 half = 1u << (22 - M);
    const u32 rounded = kept + (dropped > half || (dropped == half && (kept & 1)));
    const u32 shift = (u32)(127 - bias) << M;
    code = rounded - shift;
  }
  if (magnitude == 0x7F800000u || code > largest) return sign | (saturate ? (u8)largest : over);
  return sign | (u8)code;
}

template <class T>
struct Acc {
  typedef T type;
};
template <>
struct Acc<f16> {
  typedef f32 type;
};
template <>
struct Acc<bf16> {
  typedef f32 type;
};
template <>
struct Acc<f8e4m3> {
  typedef f32 type;
};
template <>
struct Acc<f8e5m2> {
  typedef f32 type;
};
template <>
struct Acc<b8> {
  typedef bool type;
};
template <class T>
using acc_t = typename Acc<T>::type;

__device__ inline f32 widen(f16 x) { return f16_to_f32(x.bits); }
__device__ inline f32 widen(bf16 x) { return bf16_to_f32(x.bits); }
__device__ inline f32 widen(f8e4m3 x) { return f8_to_f32<4, 3, false>(x.bits); }
__device__ inline f32 widen(f8e5m2 x) { return f8_to_f32<5, 2, true>(x.bits); }
__device__ inline bool widen(b8 x) { return x.bits != 0; }
__device__ inline f32 widen(f32 x) { return x; }
__device__ inline f64 widen(f64 x) { return x; }
__device__ inline i8 widen(i8 x) { return x; }
__device__ inline i16 widen(i16 x) { return x; }
__device__ inline i32 widen(i32 x) { return x; }
__device__ inline i64 widen(i64 x) { return x; }
__device__ inline u8 widen(u8 x) { return x; }
__device__ inline u16 widen(u16 x) { return x; }
__device__ inline u32 widen(u32 x) { return x; }
__device__ inline u64 widen(u64 x) { return x; }
__device__ inline c64 widen(c64 x) { return x; }

// From what a T is computed in, rounded once.
template <class T>
__device__ inline T narrow(acc_t<T> x) {
  return x;
}
template <>
__device__ inline f16 narrow<f16>(f32 x) {
  return f16{f32_to_f16(x)};
}
template <>
__device__ inline bf16 narrow<bf16>(f32 x) {
  return bf16{f32_to_bf16(x)};
}
template <>
__device__ inline f8e4m3 narrow<f8e4m3>(f32 x) {
  return f8e4m3{f32_to_f8<4, 3, false>(x, true)};
}
template <>
__device__ inline f8e5m2 narrow<f8e5m2>(f32 x) {
  return f8e5m2{f32_to_f8<5, 2, true>(x, true)};
}
template <>
__device__ inline b8 narrow<b8>(bool x) {
  return b8{(u8)x};
}

// N elements that lie together. Loads and stores are of 16 bytes where the size allows.
template <class T, int N>
struct alignas(sizeof(T) * N >= 16 ? 16 : sizeof(T) * N) Vec {
  T v[N];
};
template <class T, int N>
__device__ inline Vec<T, N> load(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <class T, int N>
__device__ inline void store(T* p, const Vec<T, N>& v) {
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}
// In one access: of a vector whose parts were read or made one by one compilers may make several.
template <class T, int N>
__device__ inline void store_whole(T* p, const Vec<T, N>& v) {
  constexpr int words = sizeof(v) / 4;
  if constexpr (words == 2 || words == 4) {
    union Words {
      Vec<T, N> whole;
      u32 word[words];
      __device__ Words() {}
    } w;
    w.whole = v;
    if constexpr (words == 4)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.word[0]),
                   "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                   : "memory");
    else
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1])
                   : "memory");
  } else {
    store(p, v);
  }
}
#if __CUDA_ARCH__ >= 800
__device__ inline u32 narrow_pair(f32 low, f32 high, bf16) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ inline u32 narrow_pair(f32 low, f32 high, f16) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
#endif
template <class T>
struct IsHalf {
  static constexpr bool value = false;
};
template <>
struct IsHalf<f16> {
  static constexpr bool value = true;
};
template <>
struct IsHalf<bf16> {
  static constexpr bool value = true;
};
__device__ inline f32 widen_half(u32 word, int k, bf16) {
  return __uint_as_float(k == 0 ? word << 16 : word & 0xFFFF0000u);
}
__device__ inline f32 widen_half(u32 word, int k, f16) {
  return f16_to_f32((u16)(k == 0 ? word : word >> 16));
}
// Element k of a vector. Those of 16 bits are taken out of their word in one instruction.
template <class T, int N>
__device__ inline acc_t<T> widen_at(const Vec<T, N>& v, int k) {
  if constexpr (IsHalf<T>::value && N % 2 == 0)
    return widen_half(reinterpret_cast<const u32*>(&v)[k / 2], k % 2, T{});
  else
    return widen(v.v[k]);
}
// All of a vector; of 16 bits two at once where there is an instruction for it.
template <class T, int N>
__device__ inline Vec<T, N> narrow_all(const acc_t<T> (&v)[N]) {
  Vec<T, N> t;
#if __CUDA_ARCH__ >= 800
  if constexpr (IsHalf<T>::value && N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2)
      reinterpret_cast<u32*>(&t)[k / 2] = narrow_pair(v[k], v[k + 1], T{});
  } else
#endif
  {
#pragma unroll
    for (int k = 0; k < N; ++k) t.v[k] = narrow<T>(v[k]);
  }
  return t;
}
// What was widened is not kept beside what was read: the registers would not do.
template <class T, int N>
__device__ inline void forget(Vec<T, N>& v) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0)
#pragma unroll
    for (int w = 0; w < N / 2; ++w) asm volatile("" : "+r"(reinterpret_cast<u32*>(&v)[w]));
}
