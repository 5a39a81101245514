// SPDX-License-Identifier: Apache-2.0
// Vectors of complex numbers. Per target, as simd-inl.h.
#if defined(TENON_CPU_FFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_FFT_INL_H_
#undef TENON_CPU_FFT_INL_H_
#else
#define TENON_CPU_FFT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kPoint = 2 * kLanes;  // floats of a point

struct Complex {
  V re, im;
};
HWY_INLINE Complex operator+(Complex a, Complex b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Complex operator-(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
HWY_INLINE Complex operator*(Complex a, Complex b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)),
          hn::MulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}
HWY_INLINE Complex times(Complex a, float f) {
  const V v = hn::Set(D(), f);
  return {hn::Mul(a.re, v), hn::Mul(a.im, v)};
}
// a + f b
HWY_INLINE Complex plus_times(Complex a, float f, Complex b) {
  const V v = hn::Set(D(), f);
  return {hn::MulAdd(v, b.re, a.re), hn::MulAdd(v, b.im, a.im)};
}
// a - i b and a + i b
HWY_INLINE Complex minus_turned(Complex a, Complex b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
HWY_INLINE Complex plus_turned(Complex a, Complex b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}
HWY_INLINE Complex broadcast(const float* w) { return {hn::Set(D(), w[0]), hn::Set(D(), w[1])}; }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
