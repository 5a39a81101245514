// SPDX-License-Identifier: Apache-2.0
// What transforms do to single numbers and bins, in vectors: products, and the halves of spectra of
// real numbers.
#include "fft_plan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fft_bins.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "fft-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

void fft_multiply_target(const float* x, const float* w, float* y, int64_t n) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Complex a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a.re, a.im);
    hn::LoadInterleaved2(d, w + 2 * i, b.re, b.im);
    const Complex v = a * b;
    hn::StoreInterleaved2(v.re, v.im, d, y + 2 * i);
  }
  for (; i < n; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], c = w[2 * i], e = w[2 * i + 1];
    y[2 * i] = a * c - b * e;
    y[2 * i + 1] = b * c + a * e;
  }
}

// Of bins k and half - k: their even part (z_k + conj z_(half-k)) and odd part.
struct Ends {
  Complex sum, difference;
};
HWY_INLINE Ends ends(const float* z, int64_t k, int64_t half) {
  const D d;
  Complex a, b;
  hn::LoadInterleaved2(d, z + 2 * k, a.re, a.im);
  hn::LoadInterleaved2(d, z + 2 * (half - k - kLanes + 1), b.re, b.im);
  b.re = hn::Reverse(d, b.re);
  b.im = hn::Reverse(d, b.im);
  return {{hn::Add(a.re, b.re), hn::Sub(a.im, b.im)}, {hn::Sub(a.re, b.re), hn::Add(a.im, b.im)}};
}

void fft_split_bins_target(const float* z, const float* roots, float* y, int64_t half) {
  const D d;
  int64_t k = 1;
  for (; k + kLanes <= half; k += kLanes) {
    const Ends e = ends(z, k, half);
    Complex w;
    hn::LoadInterleaved2(d, roots + 2 * k, w.re, w.im);
    const Complex v = times(minus_turned(e.sum, e.difference * w), 0.5F);
    hn::StoreInterleaved2(v.re, v.im, d, y + 2 * k);
  }
  for (; k < half; ++k) {
    const float* a = z + 2 * k;
    const float* b = z + 2 * (half - k);
    const float wr = roots[2 * k], wi = roots[2 * k + 1];
    const float sr = a[0] + b[0], si = a[1] - b[1], dr = a[0] - b[0], di = a[1] + b[1];
    y[2 * k] = 0.5F * (sr + (di * wr + dr * wi));
    y[2 * k + 1] = 0.5F * (si - (dr * wr - di * wi));
  }
  const float re = z[0], im = z[1];
  y[0] = re + im, y[1] = 0;
  y[2 * half] = re - im, y[2 * half + 1] = 0;
}

void fft_join_bins_target(const float* x, const float* roots, float* z, int64_t half) {
  const D d;
  int64_t k = 1;
  for (; k + kLanes <= half; k += kLanes) {
    const Ends e = ends(x, k, half);
    Complex w;
    hn::LoadInterleaved2(d, roots + 2 * k, w.re, w.im);
    w.im = hn::Neg(w.im);
    const Complex v = plus_turned(e.sum, e.difference * w);
    hn::StoreInterleaved2(v.re, v.im, d, z + 2 * k);
  }
  for (; k < half; ++k) {
    const float* a = x + 2 * k;
    const float* b = x + 2 * (half - k);
    const float wr = roots[2 * k], wi = -roots[2 * k + 1];
    const float sr = a[0] + b[0], si = a[1] - b[1], dr = a[0] - b[0], di = a[1] + b[1];
    z[2 * k] = sr - (di * wr + dr * wi);
    z[2 * k + 1] = si + (dr * wr - di * wi);
  }
  const float first = x[0], last = x[2 * half];
  z[0] = first + last, z[1] = first - last;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(fft_multiply_target);
HWY_EXPORT(fft_split_bins_target);
HWY_EXPORT(fft_join_bins_target);

void fft_multiply(const float* x, const float* w, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(fft_multiply_target)(x, w, y, n);
}
void fft_split_bins(const float* z, const float* roots, float* y, int64_t half) {
  HWY_DYNAMIC_DISPATCH(fft_split_bins_target)(z, roots, y, half);
}
void fft_join_bins(const float* x, const float* roots, float* z, int64_t half) {
  HWY_DYNAMIC_DISPATCH(fft_join_bins_target)(x, roots, z, half);
}

}  // namespace tenon::cpu
#endif
