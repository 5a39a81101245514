// SPDX-License-Identifier: Apache-2.0
// The elementwise functions of one element, in what a dtype is computed in (T: f32, f64, bool or an
// integer): unary_<kind>, slope_<kind> (derivative at x), output_slope_<kind> (at y), binary_<kind>,
// convert<To>. NaN is kept everywhere.
#pragma once
#include "types.cuh"

template <class T>
struct Traits {
  static constexpr bool floating = false;
  static constexpr bool is_signed = T(-1) < T(0);
};
template <>
struct Traits<f32> {
  static constexpr bool floating = true, is_signed = true;
};
template <>
struct Traits<f64> {
  static constexpr bool floating = true, is_signed = true;
};
template <class T>
struct Unsigned {
  typedef u32 type;  // shorter ones are never promoted to int
};
template <>
struct Unsigned<i64> {
  typedef u64 type;
};
template <>
struct Unsigned<u64> {
  typedef u64 type;
};

// What remains of an integer. Where a sum of bytes is compared next NVVM 13.0 forgets to cut it off:
// no more is told of it.
template <class T>
__device__ inline T wrapped(typename Unsigned<T>::type v) {
  if constexpr (sizeof(T) == 1) asm("" : "+r"(v));
  return (T)v;
}

// Rounded by themselves, whatever step follows: a fused body gives what its nodes give one by one.
__device__ inline f32 rounded_sum(f32 x, f32 y) { return __fadd_rn(x, y); }
__device__ inline f64 rounded_sum(f64 x, f64 y) { return __dadd_rn(x, y); }
__device__ inline f32 rounded_difference(f32 x, f32 y) { return __fsub_rn(x, y); }
__device__ inline f64 rounded_difference(f64 x, f64 y) { return __dsub_rn(x, y); }
__device__ inline f32 rounded_product(f32 x, f32 y) { return __fmul_rn(x, y); }
__device__ inline f64 rounded_product(f64 x, f64 y) { return __dmul_rn(x, y); }

#define UNARY(kind) template <class T> __device__ inline T unary_##kind(T x, T a, T b)
#define SLOPE(kind) template <class T> __device__ inline T slope_##kind(T x, T a, T b)

// hi + lo, to about twice T's digits.
template <class T>
struct Pair {
  T hi, lo;
};
__device__ inline Pair<f32> product(f32 a, f32 b) {
  const f32 hi = __fmul_rn(a, b);
  return {hi, fmaf(a, b, -hi)};
}
__device__ inline Pair<f64> product(f64 a, f64 b) {
  const f64 hi = __dmul_rn(a, b);
  return {hi, fma(a, b, -hi)};
}

// e^x as first * second, for x = hi + lo <= 0: a product whose result is not as small as e^x itself
// multiplies before the second factor, so that a subnormal e^x costs it no digits.
template <class T>
struct Exponential {
  T first, second;
  __device__ T value() const { return first * second; }
  __device__ T times(T factor) const { return first * factor * second; }
};
template <class T>
__device__ inline Exponential<T> exponential(T hi, T lo) {
  const T half = exp(hi / 2);
  return {half + half * lo, half};
}
// e^(-x^2 scale); scale is a power of two.
template <class T>
__device__ inline Exponential<T> exponential_square(T x, T scale) {
  const T a = fabs(x);
  const Pair<T> square = product(a > 60 ? T(60) : a, a > 60 ? T(60) : a);
  return exponential(-scale * square.hi, -scale * square.lo);
}

// 1 / (1 + e^-x) for x = hi + lo, and its complement 1 / (1 + e^x).
template <class T>
struct Sigmoid {
  bool negative;
  Exponential<T> t;  // e^-|x|
  T r;               // 1 / (1 + t)
  __device__ T value() const { return negative ? t.times(r) : r; }
  __device__ T complement() const { return negative ? r : t.times(r); }
  __device__ T times(T factor) const { return negative ? t.times(r * factor) : r * factor; }
};
template <class T>
__device__ inline Sigmoid<T> sigmoid_of(Pair<T> x) {
  const bool negative = x.hi < 0;
  const Exponential<T> t = exponential(negative ? x.hi : -x.hi, negative ? x.lo : -x.lo);
  return {negative, t, 1 / (1 + t.value())};
}
template <class T>
__device__ inline Sigmoid<T> sigmoid_of(T x) {
  return sigmoid_of(Pair<T>{x, T(0)});
}
template <class T>
__device__ inline Pair<T> silu_argument(T a, T x) {
  const Pair<T> p = product(a, x);
  return {p.hi, p.hi - p.hi == 0 ? p.lo : T(0)};
}

template <class T>
__device__ inline T clamp01(T x) {
  return x < 0 ? T(0) : x > 1 ? T(1) : x;
}
template <class T>
__device__ inline T sign_of(T x) {
  return x > 0 ? T(1) : x < 0 ? T(-1) : x;
}

// The normal distribution: e^(-x^2/2), and erfc(|x|/sqrt 2)/2 as its multiple.
template <class T>
struct Normal {
  Exponential<T> density;
  T ratio;
};
__device__ inline f32 tail_ratio(f32 a) {  // in t = 4/(4 + a) it is smooth
  const f32 t = __fdividef(4.f, 4.f + a);
  f32 p = 1.695260592e-02f;
  p = fmaf(p, t, -6.487219036e-02f);
  p = fmaf(p, t, 5.668863282e-02f);
  p = fmaf(p, t, 2.149965428e-02f);
  p = fmaf(p, t, 1.868923008e-02f);
  p = fmaf(p, t, 8.332043886e-02f);
  p = fmaf(p, t, 7.320353389e-02f);
  p = fmaf(p, t, 9.524522722e-02f);
  p = fmaf(p, t, 9.952683002e-02f);
  return t * fmaf(p, t, 9.974604100e-02f);
}
__device__ inline f64 tail_ratio(f64 a) { return erfcx(a * 0.70710678118654752) / 2; }
template <class T>
__device__ inline Normal<T> normal(T x) {
  const T a = fabs(x);
  return {exponential_square(x, T(0.5)), tail_ratio(a > 60 ? T(60) : a)};
}

// 2 sqrt(2/pi) (x + 0.044715 x^3); |x| is limited to where the sigmoid is 0 or 1.
template <class T>
struct GeluTanh;
template <>
struct GeluTanh<f32> {
  static constexpr f32 most = 20, c = 0.0713548139f, c_lo = 2.39883240e-9f, one = 1.59576917f,
                       one_lo = -4.53406804e-8f;
};
template <>
struct GeluTanh<f64> {
  static constexpr f64 most = 40, c = 0.07135481627260025, c_lo = -4.1218577217431825e-18,
                       one = 1.5957691216057308, one_lo = -9.96930880911092e-17;
};
template <class T>
__device__ inline Pair<T> gelu_tanh_argument(T given) {
  typedef GeluTanh<T> G;
  const T x = given > G::most ? G::most : given < -G::most ? -G::most : given;
  const Pair<T> square = product(x, x), cubic = product(square.hi, G::c);
  const T cubic_lo = fma(square.lo, G::c, fma(square.hi, G::c_lo, cubic.lo));
  const T sum = G::one + cubic.hi, part = sum - G::one;
  const T lost = (G::one - (sum - part)) + (cubic.hi - part);  // whichever term is greater
  const Pair<T> hi = product(x, sum);
  return {hi.hi, fma(x, lost + cubic_lo + G::one_lo, hi.lo)};
}

// mish: tanh(softplus x) = e (e + 2) r with e = e^x, r = 1 / (e (e + 2) + 2).
template <class T>
struct Mish {
  Exponential<T> t;
  T e, r;
};
template <class T>
__device__ inline Mish<T> mish_parts(T x) {
  const Exponential<T> t = exponential(x > 20 ? T(20) : x, T(0));
  const T e = t.value();
  return {t, e, 1 / (e * (e + 2) + 2)};
}

// ---- unary
UNARY(neg) {
  if constexpr (Traits<T>::floating) return -x;
  else return wrapped<T>(0 - (typename Unsigned<T>::type)x);
}
UNARY(abs) {
  if constexpr (Traits<T>::floating) return fabs(x);
  else return x < 0 ? unary_neg(x, a, b) : x;
}
UNARY(sign) { return sign_of(x); }
UNARY(exp) { return exp(x); }
UNARY(expm1) { return expm1(x); }
UNARY(log) { return log(x); }
UNARY(log1p) { return log1p(x); }
UNARY(sqrt) { return sqrt(x); }
UNARY(rsqrt) { return rsqrt(x); }
UNARY(floor) { return floor(x); }
UNARY(ceil) { return ceil(x); }
UNARY(trunc) { return trunc(x); }
UNARY(round) { return rint(x); }
UNARY(sin) { return sin(x); }
UNARY(cos) { return cos(x); }
UNARY(tan) { return tan(x); }
UNARY(atan) { return atan(x); }
UNARY(asin) { return asin(x); }
UNARY(acos) { return acos(x); }
UNARY(sinh) { return sinh(x); }
UNARY(cosh) { return cosh(x); }
UNARY(tanh) { return tanh(x); }
UNARY(erf) { return erf(x); }
UNARY(erfc) { return erfc(x); }
UNARY(reciprocal) { return 1 / x; }
UNARY(square) {
  if constexpr (Traits<T>::floating) return rounded_product(x, x);
  else return (T)((typename Unsigned<T>::type)x * (typename Unsigned<T>::type)x);
}
UNARY(relu) { return x <= 0 ? T(0) : x; }
UNARY(leaky_relu) { return x < 0 ? a * x : x; }
UNARY(elu) { return x < 0 ? a * expm1(x) : x; }
UNARY(selu) { return b * (x < 0 ? a * expm1(x) : x); }
UNARY(sigmoid) { return sigmoid_of(x).value(); }
UNARY(hard_sigmoid) { return clamp01(rounded_sum(rounded_product(a, x), b)); }
UNARY(softplus) { return (x < 0 ? T(0) : x) + log1p(exp(-fabs(x))); }
UNARY(softsign) { return x / (1 + fabs(x)); }
UNARY(silu) { return sigmoid_of(silu_argument(a, x)).times(x); }
UNARY(hard_swish) { return x * clamp01(x / 6 + T(0.5)); }
UNARY(mish) {
  const Mish<T> m = mish_parts(x);
  return m.t.times((m.e + 2) * m.r * x);
}
UNARY(gelu) {
  const Normal<T> n = normal(x);
  return x < 0 ? n.density.times(n.ratio * x) : x * (1 - n.density.times(n.ratio));
}
// ---- To 16 bits, for results of a half-precision dtype. e^-u comes as the square of its root,
// which multiplied last keeps the digits of a subnormal result.
__device__ inline f32 short_reciprocal(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f32 short_exp2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
struct ShortNormal {
  f32 root, ratio;  // as Normal; root: of the density
};
__device__ inline ShortNormal short_normal(f32 x) {
  const f32 a = fabsf(x) > 60 ? 60.f : fabsf(x), t = short_reciprocal(4 + a);
  f32 p = -863.198533f;
  p = fmaf(p, t, 825.624442f);
  p = fmaf(p, t, -67.0582268f);
  p = fmaf(p, t, 34.1725678f);
  p = fmaf(p, t, 5.28912059f);
  p = fmaf(p, t, 1.61250459f);
  p = fmaf(p, t, 0.398800408f);
  return {short_exp2(a * a * -0.36067376f), p * t};
}
__device__ inline f32 short_gelu(f32 x) {
  const ShortNormal n = short_normal(x);
  // Its part that is not max(x, 0), which is NaN for -inf.
  return fmaf(-(n.ratio * n.root * fabsf(x > 60 ? 60.f : x)), n.root, x < 0 ? x * 0.f : x);
}
__device__ inline f32 short_slope_gelu(f32 x) {
  const ShortNormal n = short_normal(x);
  const f32 bend = x * 0.398942280f * n.root;
  return x < 0 ? fmaf(n.ratio, n.root, bend) * n.root
               : fmaf(fmaf(-n.ratio, n.root, bend), n.root, 1.f);
}
struct ShortSigmoid {
  f32 root, r;  // of e^-|u|; 1 / (1 + e^-|u|)
};
__device__ inline ShortSigmoid short_sigmoid(f32 u) {
  const f32 root = short_exp2(fabsf(u) * -0.721347520f);
  return {root, short_reciprocal(fmaf(root, root, 1.f))};
}
__device__ inline f32 short_gelu_tanh(f32 x) {
  const f32 u = x * fmaf(x * x, 0.0713548163f, 1.59576912f);
  const ShortSigmoid s = short_sigmoid(u);
  const f32 factor = x < 0 ? s.root : 1.f;
  return x * s.r * factor * factor;
}
__device__ inline f32 short_slope_gelu_tanh(f32 x) {
  const f32 limited = x > 1e6f ? 1e6f : x < -1e6f ? -1e6f : x, square = limited * limited;
  const ShortSigmoid s = short_sigmoid(limited * fmaf(square, 0.0713548163f, 1.59576912f));
  const f32 bend = limited * fmaf(square, 0.214064449f, 1.59576912f), t = s.root * s.root;
  const f32 factor = x < 0 ? s.root : 1.f, complement = x < 0 ? s.r : t * s.r;
  // Infinite x has no slope.
  return fmaf(complement, bend, 1 + (x - x)) * s.r * factor * factor;
}

UNARY(gelu_tanh) { return sigmoid_of(gelu_tanh_argument(x)).times(x); }
UNARY(exp2) { return exp2(x); }
UNARY(log2) { return log2(x); }
UNARY(asinh) { return asinh(x); }
UNARY(acosh) { return acosh(x); }
UNARY(atanh) { return atanh(x); }
template <class T>
__device__ inline bool unary_is_nan(T x, T, T) {
  return x != x;
}
template <class T>
__device__ inline bool unary_is_inf(T x, T, T) {
  return isinf(x);
}

// ---- slopes
SLOPE(neg) { return T(-1); }
SLOPE(abs) { return sign_of(x); }
SLOPE(sign) { return T(0); }
SLOPE(exp) { return exp(x); }
SLOPE(expm1) { return exp(x); }
SLOPE(log) { return 1 / x; }
SLOPE(log1p) { return 1 / (1 + x); }
SLOPE(sqrt) { return T(0.5) / sqrt(x); }
SLOPE(rsqrt) {
  const T y = rsqrt(x);
  return T(-0.5) * y * y * y;
}
SLOPE(floor) { return a; }  // a: 1 with ste, else 0
SLOPE(ceil) { return a; }
SLOPE(trunc) { return a; }
SLOPE(round) { return a; }
SLOPE(sin) { return cos(x); }
SLOPE(cos) { return -sin(x); }
SLOPE(tan) {
  const T y = tan(x);
  return 1 + y * y;
}
SLOPE(atan) {  // x^2 must not overflow
  const T r = 1 / x;
  return x > 1 || x < -1 ? r * r / (1 + r * r) : 1 / (1 + x * x);
}
SLOPE(asin) { return 1 / sqrt((1 - x) * (1 + x)); }
SLOPE(acos) { return -1 / sqrt((1 - x) * (1 + x)); }
SLOPE(sinh) { return cosh(x); }
SLOPE(cosh) { return sinh(x); }
SLOPE(tanh) {
  const Sigmoid<T> s = sigmoid_of(2 * x);
  return s.t.times(4 * s.r * s.r);
}
SLOPE(erf) { return exponential_square(x, T(1)).times(T(1.1283791670955126)); }
SLOPE(erfc) { return exponential_square(x, T(1)).times(T(-1.1283791670955126)); }
SLOPE(is_nan) { return T(0); }
SLOPE(is_inf) { return T(0); }
SLOPE(reciprocal) {
  const T y = 1 / x;
  return -y * y;
}
SLOPE(square) { return 2 * x; }
SLOPE(relu) { return x > 0 ? T(1) : T(0); }
SLOPE(leaky_relu) { return x < 0 ? a : T(1); }
SLOPE(elu) { return x < 0 ? a * exp(x) : T(1); }
SLOPE(selu) { return b * (x < 0 ? a * exp(x) : T(1)); }
SLOPE(sigmoid) {
  const Sigmoid<T> s = sigmoid_of(x);
  return s.t.times(s.r * s.r);
}
SLOPE(hard_sigmoid) {  // the rounding decides what is an end
  const T z = rounded_sum(rounded_product(a, x), b);
  return z > 0 && z < 1 ? a : T(0);
}
SLOPE(softplus) { return sigmoid_of(x).value(); }
SLOPE(softsign) {
  const T r = 1 / (1 + fabs(x));
  return r * r;
}
SLOPE(silu) {
  const Pair<T> u = silu_argument(a, x);
  const Sigmoid<T> s = sigmoid_of(u);
  return s.times(1 + u.hi * s.complement());
}
SLOPE(hard_swish) { return x <= -3 ? T(0) : x >= 3 ? T(1) : x / 3 + T(0.5); }
SLOPE(mish) {  // t + x s (1 - t^2), s = e / (1 + e), 1 - t^2 = 4 (1 + e)^2 r^2
  const Mish<T> m = mish_parts(x);
  const T bell = x > 20 ? T(0) : 4 * (m.e * m.r + m.r) * m.r;
  return m.t.times((m.e + 2) * m.r + x * bell);
}
SLOPE(gelu) {
  const Normal<T> n = normal(x);
  const T slope = x * T(0.39894228040143268);
  return x < 0 ? n.density.times(slope + n.ratio) : 1 + n.density.times(slope - n.ratio);
}
SLOPE(gelu_tanh) {
  const Sigmoid<T> s = sigmoid_of(gelu_tanh_argument(x));
  const T limited = x > T(1e6) ? T(1e6) : x < T(-1e6) ? T(-1e6) : x;
  const T inner = T(1.5957691216057308) * (1 + T(0.134145) * limited * limited);
  const T bend = limited * s.complement() * inner;
  return s.times(bend + (1 + (x - x)));  // infinite x has no slope
}
SLOPE(exp2) { return exp2(x) * T(0.6931471805599453); }
SLOPE(log2) { return 1 / (x * T(0.6931471805599453)); }
SLOPE(asinh) { return 1 / hypot(x, T(1)); }  // x^2 must not overflow
SLOPE(acosh) { return 1 / (sqrt(x - 1) * sqrt(x + 1)); }
SLOPE(atanh) { return 1 / (1 - x) / (1 + x); }
#define OUTPUT_SLOPE(kind) template <class T> __device__ inline T output_slope_##kind(T y)
OUTPUT_SLOPE(sigmoid) { return y * (1 - y); }
OUTPUT_SLOPE(tanh) { return (1 - y) * (1 + y); }
OUTPUT_SLOPE(exp) { return y; }
OUTPUT_SLOPE(exp2) { return y * T(0.6931471805599453); }
OUTPUT_SLOPE(sqrt) { return T(0.5) / y; }
OUTPUT_SLOPE(rsqrt) { return T(-0.5) * y * y * y; }
OUTPUT_SLOPE(reciprocal) { return -y * y; }
OUTPUT_SLOPE(relu) { return y > 0 ? T(1) : T(0); }

// ---- binary. Integers wrap; x / 0 has all bits set, x mod 0 = x, lowest / -1 is itself.
#define BINARY(kind) template <class T> __device__ inline T binary_##kind(T x, T y)
#define WRAPPED(rounded, op)                                                               \
  if constexpr (Traits<T>::floating) return rounded(x, y);                                 \
  else return wrapped<T>((typename Unsigned<T>::type)x op (typename Unsigned<T>::type)y);
BINARY(add) { WRAPPED(rounded_sum, +) }
BINARY(sub) { WRAPPED(rounded_difference, -) }
BINARY(mul) { WRAPPED(rounded_product, *) }
BINARY(div) {
  if constexpr (Traits<T>::floating) {
    return x / y;
  } else {
    if (y == 0) return (T)~T(0);
    if (Traits<T>::is_signed && y == (T)-1) return unary_neg(x, x, x);
    return (T)(x / y);
  }
}
BINARY(max) { return x > y || x != x ? x : y; }
BINARY(min) { return x < y || x != x ? x : y; }
BINARY(fmod) {
  if constexpr (Traits<T>::floating) {
    return fmod(x, y);
  } else {
    if (y == 0) return x;
    if (Traits<T>::is_signed && y == (T)-1) return 0;
    return (T)(x % y);
  }
}
BINARY(mod) {
  const T r = binary_fmod(x, y);
  if constexpr (!Traits<T>::floating)
    if (y == 0) return r;
  return r != 0 && (r < 0) != (y < 0) ? (T)(r + y) : r;
}
BINARY(pow) {
  if constexpr (Traits<T>::floating) {
    return pow(x, y);
  } else {
    if (y < 0) return x == 1 ? T(1) : Traits<T>::is_signed && x == (T)-1 ? (y & 1 ? (T)-1 : T(1)) : T(0);
    u64 result = 1, power = (u64)x;
    for (u64 e = (u64)y; e; e >>= 1, power *= power)
      if (e & 1) result *= power;
    return (T)result;
  }
}
BINARY(atan2) { return atan2(x, y); }
BINARY(bit_and) { return (T)(x & y); }
BINARY(bit_or) { return (T)(x | y); }
BINARY(bit_xor) { return (T)(x ^ y); }
// Numbers of places that are negative or at least as many as there are bits shift all of them out.
BINARY(shift_left) {
  const u64 by = (u64)(i64)y;
  return by < 8 * sizeof(T) ? (T)((u64)x << by) : T(0);
}
BINARY(shift_right) {  // the sign is shifted in
  const u64 by = (u64)(i64)y;
  return by < 8 * sizeof(T) ? (T)(x >> by) : x < 0 ? (T)-1 : T(0);
}

// ---- conversions, one rounding each. From: f32, f64, bool or an integer; the result is stored.
template <class To>
struct ToInteger {
  template <class From>
  __device__ static To from(From x) {
    if constexpr (Traits<From>::floating) {
      constexpr bool is_signed = Traits<To>::is_signed;
      constexpr int digits = 8 * sizeof(To) - is_signed;
      constexpr To most = (To)((u64(1) << (digits - 1)) - 1 + (u64(1) << (digits - 1)));
      const From high = From(u64(1) << (digits - 1)) * 2;
      if (x != x) return 0;
      if (x >= high) return most;
      if (x <= (is_signed ? -high : From(0))) return is_signed ? (To)(-(i64)most - 1) : 0;
      return (To)x;
    } else {
      return (To)x;
    }
  }
};
// A float of more bits than any shorter format has, inexact ones odd: one more rounding is right.
template <class From>
__device__ inline f32 odd_float(From x) {
  if constexpr (sizeof(From) == 8 && !Traits<From>::floating) {
    const u64 high = (u64)(Traits<From>::is_signed && x < 0 ? ~x : x) >> 53;
    const From low = 0x7FF;
    return f64_to_odd((f64)(high ? (From)((x & ~low) | ((x & low) != 0 ? low + 1 : 0)) : x));
  } else if constexpr (sizeof(From) == 4 && Traits<From>::floating) {
    return x;
  } else {
    return f64_to_odd((f64)x);
  }
}
template <class To>
struct Converter {
  template <class From>
  __device__ static To from(From x, bool) {
    return ToInteger<To>::from(x);
  }
};
#define CONVERTER(To, expression)                \
  template <>                                    \
  struct Converter<To> {                         \
    template <class From>                        \
    __device__ static To from(From x, bool saturate) { \
      return expression;                         \
    }                                            \
  };
CONVERTER(f32, (f32)x)
CONVERTER(f64, (f64)x)
CONVERTER(f16, f16{f32_to_f16(odd_float(x))})
CONVERTER(bf16, bf16{f32_to_bf16(odd_float(x))})
CONVERTER(b8, b8{(u8)(x != 0)})
CONVERTER(f8e4m3, (f8e4m3{f32_to_f8<4, 3, false>(odd_float(x), saturate)}))
CONVERTER(f8e5m2, (f8e5m2{f32_to_f8<5, 2, true>(odd_float(x), saturate)}))
template <class To, class From>
__device__ inline To convert(From x, bool saturate) {
  return Converter<To>::from(x, saturate);
}
