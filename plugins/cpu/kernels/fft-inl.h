// SPDX-License-Identifier: Apache-2.0
// Vectors of complex numbers, and squares of floats. Per target, as simd-inl.h.
#if defined(TENON_CPU_FFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_FFT_INL_H_
#undef TENON_CPU_FFT_INL_H_
#else
#define TENON_CPU_FFT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "transpose-inl.h"

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

// A square of floats, rows and columns exchanged: to[k] has element k of each of from.
HWY_INLINE void transpose_square(const V* from, V* to) {
  constexpr int kBlocks = static_cast<int>(kLanes) / 4;
  V part[kLanes];
#pragma GCC unroll 4
  for (int g = 0; g < kBlocks; ++g) transpose_in_blocks(from + 4 * g, part + 4 * g);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    if constexpr (kBlocks == 1) {
      to[k] = part[k];
    } else if constexpr (kBlocks == 2) {
      to[k] = hn::ConcatLowerLower(D(), part[4 + k], part[k]);
      to[4 + k] = hn::ConcatUpperUpper(D(), part[4 + k], part[k]);
    } else {
      const auto mix = [&](V even, V odd, V* first, V* second) {
        *first = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
        *second = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
      };
      mix(hn::ConcatLowerLower(D(), part[8 + k], part[k]),
          hn::ConcatLowerLower(D(), part[12 + k], part[4 + k]), to + k, to + 4 + k);
      mix(hn::ConcatUpperUpper(D(), part[8 + k], part[k]),
          hn::ConcatUpperUpper(D(), part[12 + k], part[4 + k]), to + 8 + k, to + 12 + k);
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
