// SPDX-License-Identifier: Apache-2.0
// Elementary functions on vectors of float. Accurate to 2.5 ulp over the whole range, including
// subnormal results; NaN in gives NaN out. The polynomials are minimax fits with relative error
// below 1e-8. Per target, as simd-inl.h.
#if defined(TENON_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_MATH_INL_H_
#undef TENON_CPU_MATH_INL_H_
#else
#define TENON_CPU_MATH_INL_H_
#endif

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// c0 + c1 x + c2 x^2 + ...
template <class D>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D>, float c) {
  return hn::Set(d, c);
}
template <class D, class... C>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, float c0, C... c) {
  return hn::MulAdd(polynomial(d, x, c...), x, hn::Set(d, c0));
}

// A value as an unevaluated sum of two, for exponents that need more than 24 bits.
template <class V>
struct Pair {
  V hi, lo;
};

// The upper half of the significand.
template <class D>
HWY_INLINE hn::Vec<D> upper_half(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0xFFFFF000u)));
}
// a * b, exactly.
template <class D>
HWY_INLINE Pair<hn::Vec<D>> product(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const auto hi = hn::Mul(a, b);
#if HWY_TARGET <= HWY_AVX2  // fused multiply-subtract
  (void)d;
  return {hi, hn::MulSub(a, b, hi)};
#else
  const auto ah = upper_half(d, a), bh = upper_half(d, b);
  const auto al = hn::Sub(a, ah), bl = hn::Sub(b, bh);
  const auto cross =
      hn::Add(hn::Add(hn::Sub(hn::Mul(ah, bh), hi), hn::Mul(ah, bl)), hn::Mul(al, bh));
  return {hi, hn::Add(cross, hn::Mul(al, bl))};
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> power_of_two(D d, hn::Vec<hn::RebindToSigned<D>> n) {  // -126 <= n <= 127
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// x = n ln 2 + r with |r| <= ln 2 / 2 for |x| < 120. ln 2 is split so that n times its upper part
// is exact.
template <class D>
struct Reduced {
  hn::Vec<hn::RebindToSigned<D>> n;
  hn::Vec<D> r;
};
template <class D>
HWY_INLINE Reduced<D> reduce_exponent(D d, hn::Vec<D> hi, hn::Vec<D> lo) {
  const auto n = hn::NearestInt(hn::Mul(hn::Add(hi, lo), hn::Set(d, 1.44269504f)));
  const auto nf = hn::ConvertTo(d, n);
  const auto r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), hi);
  return {n, hn::Add(hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r), lo)};
}
// e^r - 1
template <class D>
HWY_INLINE hn::Vec<D> expm1_reduced(D d, hn::Vec<D> r) {
  const auto p = polynomial(d, r, 5.000000000e-01f, 1.666666567e-01f, 4.166635871e-02f,
                            8.333389647e-03f, 1.394071383e-03f, 1.984594855e-04f);
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

// Propagates NaN, unlike the hardware's minimum and maximum.
template <class D>
HWY_INLINE hn::Vec<D> clamp(D d, hn::Vec<D> x, float low, float high) {
  const auto v = hn::IfThenElse(hn::Lt(x, hn::Set(d, low)), hn::Set(d, low), x);
  return hn::IfThenElse(hn::Gt(v, hn::Set(d, high)), hn::Set(d, high), v);
}

// e^(hi + lo), |lo| < 0.2, as first * second. The second factor is a power of two, or 0 if e^x
// underflows. If the product of x's exponential with another factor may be subnormal although e^x
// is not tiny, multiply by that factor before the second one.
template <class D>
struct Exponential {
  hn::Vec<D> first, second;
  hn::Vec<D> value() const { return hn::Mul(first, second); }
  hn::Vec<D> times(hn::Vec<D> factor) const { return hn::Mul(hn::Mul(first, factor), second); }
};
template <class D>
HWY_INLINE Exponential<D> vexp_parts(D d, hn::Vec<D> hi, hn::Vec<D> lo) {
  const auto reduced = reduce_exponent(d, clamp(d, hi, -120.f, 95.f), lo);
  const auto p = polynomial(d, reduced.r, 4.999999404e-01f, 1.666651964e-01f, 4.166839272e-02f,
                            8.368778042e-03f, 1.381463720e-03f);
  const auto y = hn::Add(hn::MulAdd(hn::Mul(reduced.r, reduced.r), p, reduced.r), hn::Set(d, 1.f));
  const auto half = hn::ShiftRight<1>(reduced.n);
  const auto second = power_of_two(d, hn::Sub(reduced.n, half));
  return {hn::Mul(y, power_of_two(d, half)),
          hn::IfThenZeroElse(hn::Lt(hi, hn::Set(d, -120.f)), second)};
}
template <class D>
HWY_INLINE hn::Vec<D> vexp(D d, hn::Vec<D> x) {
  return vexp_parts(d, x, hn::Zero(d)).value();
}
// e^x for x <= 0 (or slightly above). Flushes to 0 below e^-87. For sums whose largest term is 1.
template <class D>
HWY_INLINE hn::Vec<D> vexp_weight(D d, hn::Vec<D> x) {
  // Adding 1.5 2^23 rounds to an integer in the low bits, which already include the exponent's
  // bias. The result for large or infinite x is discarded; NaN remains in r.
  const hn::RebindToUnsigned<D> du;
  const auto magic = hn::Set(d, 12582912.f + 127.f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto r =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  const auto p = polynomial(d, r, 1.f, 1.f, 4.999999404e-01f, 1.666651964e-01f, 4.166839272e-02f,
                            8.368778042e-03f, 1.381463720e-03f);
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.f)), hn::Mul(p, power));
}

template <class D>
HWY_INLINE hn::Vec<D> vexpm1(D d, hn::Vec<D> x) {
  const auto reduced = reduce_exponent(d, clamp(d, x, -20.f, 95.f), hn::Zero(d));
  // 2^n (e^r - 1) + (2^n - 1), at half the scale because 2^128 is not a float. Overflows above 89,
  // as it should.
  const hn::RebindToSigned<D> di;
  const auto n = hn::Min(hn::Sub(reduced.n, hn::Set(di, 1)), hn::Set(di, 127));
  const auto scale = power_of_two(d, n);
  const auto half =
      hn::MulAdd(scale, expm1_reduced(d, reduced.r), hn::Sub(scale, hn::Set(d, 0.5f)));
  const auto y = hn::Add(half, half);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x,
                        hn::IfThenElse(hn::Gt(x, hn::Set(d, 89.f)), vexp(d, x), y));
}

template <class D>
HWY_INLINE hn::Vec<D> vtanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f), magnitude = hn::Abs(x), z = hn::Mul(x, x);
  const auto p = polynomial(d, z, -3.333333135e-01f, 1.333320588e-01f, -5.394676700e-02f,
                            2.170072310e-02f, -8.177443407e-03f, 2.143000253e-03f);
  const auto near = hn::MulAdd(hn::Mul(x, z), p, x);
  const auto e = vexp(d, hn::Add(magnitude, magnitude));
  const auto far = hn::Sub(one, hn::Div(hn::Set(d, 2.f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), near, hn::CopySignToAbs(far, x));
}

// 1 / (1 + e^-x) for x = hi + lo, and its complement 1 / (1 + e^x), both with full relative
// accuracy.
template <class D>
struct Sigmoid {
  hn::Mask<D> negative;
  Exponential<D> t;  // e^-|x|
  hn::Vec<D> r;      // 1 / (1 + t)

  hn::Vec<D> value() const { return hn::IfThenElse(negative, t.times(r), r); }
  hn::Vec<D> complement() const { return hn::IfThenElse(negative, r, t.times(r)); }
  hn::Vec<D> times(hn::Vec<D> factor) const {
    const auto v = hn::Mul(r, factor);
    return hn::IfThenElse(negative, t.times(v), v);
  }
};
template <class D>
HWY_INLINE Sigmoid<D> vsigmoid(D d, Pair<hn::Vec<D>> x) {
  const auto negative = hn::Lt(x.hi, hn::Zero(d));
  const auto t = vexp_parts(d, hn::IfThenElse(negative, x.hi, hn::Neg(x.hi)),
                            hn::IfThenElse(negative, x.lo, hn::Neg(x.lo)));
  const auto one = hn::Set(d, 1.f);
  return {negative, t, hn::Div(one, hn::Add(one, t.value()))};
}
template <class D>
HWY_INLINE Sigmoid<D> vsigmoid(D d, hn::Vec<D> x) {
  return vsigmoid(d, Pair<hn::Vec<D>>{x, hn::Zero(d)});
}

// tail / density of the normal distribution at a >= 0, as a smooth function of t = 4 / (4 + a).
template <class D>
HWY_INLINE hn::Vec<D> tail_ratio_of(D d, hn::Vec<D> t) {
  return hn::Mul(
      t, polynomial(d, t, 9.974604100e-02f, 9.952683002e-02f, 9.524522722e-02f, 7.320353389e-02f,
                    8.332043886e-02f, 1.868923008e-02f, 2.149965428e-02f, 5.668863282e-02f,
                    -6.487219036e-02f, 1.695260592e-02f));
}
// The argument is 4 + a.
template <class D>
HWY_INLINE hn::Vec<D> tail_ratio(D d, hn::Vec<D> denominator) {
  return tail_ratio_of(d, hn::Div(hn::Set(d, 4.f), denominator));
}
// e^(-a^2 scale), scale 1 or 1/2. a^2 is computed as a sum; the square of the upper half is exact.
template <class D>
HWY_INLINE Exponential<D> vexp_square(D d, hn::Vec<D> a, float scale) {
  const auto upper = upper_half(d, a), minus = hn::Set(d, -scale);
  return vexp_parts(d, hn::Mul(hn::Mul(upper, upper), minus),
                    hn::Mul(hn::Mul(hn::Add(a, upper), hn::Sub(a, upper)), minus));
}

// The normal distribution: e^(-x^2/2) (without 1/sqrt(2 pi)), and erfc(|x|/sqrt 2)/2 = density *
// ratio.
template <class D>
struct Normal {
  Exponential<D> density;
  hn::Vec<D> ratio;
};
template <class D>
HWY_INLINE Normal<D> vnormal(D d, hn::Vec<D> x) {
  const auto a = clamp(d, hn::Abs(x), 0.f, 20.f);
  return {vexp_square(d, a, 0.5f), tail_ratio(d, hn::Add(a, hn::Set(d, 4.f)))};
}

// erf for |x| < 1.
template <class D>
HWY_INLINE hn::Vec<D> erf_near(D d, hn::Vec<D> x) {
  return hn::Mul(
      x, polynomial(d, hn::Mul(x, x), 1.128379107e+00f, -3.761262596e-01f, 1.128358543e-01f,
                    -2.685381100e-02f, 5.188326817e-03f, -8.010188467e-04f, 7.853845455e-05f));
}
// erfc |x|
template <class D>
HWY_INLINE hn::Vec<D> erfc_far(D d, hn::Vec<D> x) {
  const auto a = clamp(d, hn::Abs(x), 0.f, 12.f);
  const auto ratio = tail_ratio(d, hn::MulAdd(a, hn::Set(d, 1.41421356f), hn::Set(d, 4.f)));
  return vexp_square(d, a, 1.f).times(hn::Add(ratio, ratio));
}
template <class D>
HWY_INLINE hn::Vec<D> verf(D d, hn::Vec<D> x) {
  const auto far = hn::Sub(hn::Set(d, 1.f), erfc_far(d, x));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 1.f)), erf_near(d, x),
                        hn::CopySignToAbs(far, x));
}

// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), the argument of the sigmoid in gelu_tanh. |x| is clamped
// where e^2u is 0 or inf.
template <class D>
HWY_INLINE Pair<hn::Vec<D>> gelu_tanh_argument(D d, hn::Vec<D> given) {
  const auto x = clamp(d, given, -20.f, 20.f);
  const auto square = product(d, x, x);
  const auto c = hn::Set(d, 0.0713548139f), c_lo = hn::Set(d, 2.39883240e-9f),
             one = hn::Set(d, 1.59576917f);
  const auto cubic = product(d, square.hi, c);
  const auto cubic_lo = hn::MulAdd(square.lo, c, hn::MulAdd(square.hi, c_lo, cubic.lo));
  const auto sum = hn::Add(one, cubic.hi);
  // The rounding error of the sum; either term may be the larger one.
  const auto part = hn::Sub(sum, one);
  const auto lost = hn::Add(hn::Sub(one, hn::Sub(sum, part)), hn::Sub(cubic.hi, part));
  const auto factor_lo = hn::Add(hn::Add(lost, cubic_lo), hn::Set(d, -4.53406804e-8f));
  const auto hi = product(d, x, sum);
  return {hi.hi, hn::MulAdd(x, factor_lo, hi.lo)};
}

// ln x: x = m 2^e with m in [sqrt(1/2), sqrt 2), ln m by a series in s = (m - 1)/(m + 1).
template <class D>
HWY_INLINE hn::Vec<D> vlog(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.f);
  const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const auto scaled = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p24f)), x);
  const auto bits = hn::BitCast(di, scaled);
  const auto offset = hn::Sub(bits, hn::Set(di, 0x3F3504F3));  // sqrt(1/2)
  const auto e = hn::ConvertTo(d, hn::ShiftRight<23>(offset));
  const auto exponent = hn::Sub(e, hn::IfThenElseZero(tiny, hn::Set(d, 24.f)));
  const auto m =
      hn::BitCast(d, hn::Add(hn::And(offset, hn::Set(di, 0x007FFFFF)), hn::Set(di, 0x3F3504F3)));
  const auto f = hn::Sub(m, one);
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, 2.f)));
  const auto z = hn::Mul(s, s);
  // ln m = f - s (f - z P(z)); f is exact.
  const auto p =
      polynomial(d, z, 6.666666269e-01f, 4.000033438e-01f, 2.853734493e-01f, 2.358148247e-01f);
  const auto low =
      hn::NegMulAdd(s, hn::NegMulAdd(z, p, f), hn::Mul(exponent, hn::Set(d, -2.12194440e-4f)));
  const auto y = hn::MulAdd(exponent, hn::Set(d, 0.693359375f), hn::Add(f, low));
  const auto infinity = hn::Set(d, __builtin_inff());
  const auto finite =
      hn::IfThenElse(hn::Eq(x, infinity), x, hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y));
  // NaN for negative x and NaN.
  return hn::IfThenElse(hn::Ge(x, zero), finite, hn::Set(d, __builtin_nanf("")));
}
// ln(1 + t) for 0 <= t <= 1, corrected for the rounding of 1 + t.
template <class D>
HWY_INLINE hn::Vec<D> vlog1p_unit(D d, hn::Vec<D> t) {
  const auto one = hn::Set(d, 1.f), u = hn::Add(one, t);
  const auto lost = hn::Sub(t, hn::Sub(u, one));
  return hn::Add(vlog(d, u), hn::Div(lost, u));
}

// max(x, 0) + ln(1 + e^-|x|)
template <class D>
HWY_INLINE hn::Vec<D> vsoftplus(D d, hn::Vec<D> x) {
  const auto rest = vlog1p_unit(d, vexp(d, hn::Neg(hn::Abs(x))));
  return hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), rest);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
