// SPDX-License-Identifier: Apache-2.0
// Complex transforms of f32 in vectors: the butterflies, and how numbers get into lanes and out.
// A vector of transforms is stored point by point: the real parts of all lanes, then the imaginary
// ones.
#include <algorithm>

#include "fft_plan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fft_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "fft-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

int64_t fft_lanes_target() { return kLanes; }

// ---- butterflies: a[k] = sum_j a[j] e^(-2 pi i j k / R)

HWY_INLINE void two(Complex& a, Complex& b) {
  const Complex sum = a + b;
  b = a - b;
  a = sum;
}
HWY_INLINE void four(Complex& a, Complex& b, Complex& c, Complex& d) {
  two(a, c);
  two(b, d);
  const Complex e = minus_turned(c, d), f = plus_turned(c, d);
  two(a, b);
  c = b;
  b = e;
  d = f;
}

// cos and sin of 2 pi k / R, k <= R / 2.
template <int R>
struct Circle;
template <>
struct Circle<3> {
  static constexpr float cosine[] = {1.0F, -0.5F};
  static constexpr float sine[] = {0.0F, 0.866025404F};
};
template <>
struct Circle<5> {
  static constexpr float cosine[] = {1.0F, 0.309016994F, -0.809016994F};
  static constexpr float sine[] = {0.0F, 0.951056516F, 0.587785252F};
};
template <>
struct Circle<7> {
  static constexpr float cosine[] = {1.0F, 0.623489802F, -0.222520934F, -0.900968868F};
  static constexpr float sine[] = {0.0F, 0.781831482F, 0.974927912F, 0.433883739F};
};
template <>
struct Circle<11> {
  static constexpr float cosine[] = {1.0F,          0.841253533F,  0.415415013F,
                                     -0.142314838F, -0.654860734F, -0.959492974F};
  static constexpr float sine[] = {0.0F,         0.540640817F, 0.909631995F,
                                   0.989821442F, 0.755749574F, 0.281732557F};
};
template <>
struct Circle<13> {
  static constexpr float cosine[] = {1.0F,          0.885456026F,  0.568064747F, 0.12053668F,
                                     -0.354604887F, -0.748510748F, -0.970941817F};
  static constexpr float sine[] = {0.0F,         0.464723172F, 0.822983866F, 0.992708874F,
                                   0.935016243F, 0.663122658F, 0.239315664F};
};

// Of an odd prime: pairs of inputs that share a cosine.
template <int R>
HWY_INLINE void odd(Complex* a) {
  using Table = Circle<R>;
  constexpr int kHalf = R / 2;
  Complex sum[kHalf], difference[kHalf];
  for (int j = 0; j < kHalf; ++j) {
    sum[j] = a[j + 1] + a[R - 1 - j];
    difference[j] = a[j + 1] - a[R - 1 - j];
  }
  const Complex first = a[0];
  for (int j = 0; j < kHalf; ++j) a[0] = a[0] + sum[j];
#pragma GCC unroll 8
  for (int k = 1; k <= kHalf; ++k) {
    Complex even = first, turned = times(difference[0], Table::sine[k]);
#pragma GCC unroll 8
    for (int j = 0; j < kHalf; ++j) {
      const int at = (j + 1) * k % R;
      const bool back = at > kHalf;  // the angle's mirror image
      even = plus_times(even, Table::cosine[back ? R - at : at], sum[j]);
      if (j > 0)
        turned = plus_times(turned, back ? -Table::sine[R - at] : Table::sine[at], difference[j]);
    }
    a[k] = minus_turned(even, turned);
    a[R - k] = plus_turned(even, turned);
  }
}

template <int R>
HWY_INLINE void butterfly(Complex* a) {
  if constexpr (R == 2) {
    two(a[0], a[1]);
  } else if constexpr (R == 4) {
    four(a[0], a[1], a[2], a[3]);
  } else if constexpr (R == 8) {
    constexpr float kHalfRoot = 0.707106781186547524F;
    four(a[0], a[2], a[4], a[6]);
    four(a[1], a[3], a[5], a[7]);
    // (1 - i) / sqrt 2, -i, (-1 - i) / sqrt 2
    const Complex b = a[3], c = a[5], d = a[7];
    const Complex b1 = times({hn::Add(b.re, b.im), hn::Sub(b.im, b.re)}, kHalfRoot);
    const Complex d1 = times({hn::Sub(d.im, d.re), hn::Neg(hn::Add(d.re, d.im))}, kHalfRoot);
    const Complex s0 = a[0], s1 = a[2], s2 = a[4], s3 = a[6], odd0 = a[1];
    a[0] = s0 + odd0, a[4] = s0 - odd0;
    a[1] = s1 + b1, a[5] = s1 - b1;
    a[2] = minus_turned(s2, c), a[6] = plus_turned(s2, c);
    a[3] = s3 + d1, a[7] = s3 - d1;
  } else {
    odd<R>(a);
  }
}

// ---- passes

// Where the parts of a point are; exchanged, all of it is the inverse transform.
struct Parts {
  int64_t re, im;
};

template <int R, bool twiddled>
HWY_INLINE void group_pass(const float* x, float* y, int64_t stride, int64_t apart,
                           const float* twiddles, Parts parts) {
  const D d;
  for (int64_t q = 0; q < stride; ++q) {
    Complex a[R];
#pragma GCC unroll 16
    for (int k = 0; k < R; ++k) {
      const float* from = x + (q + apart * k) * kPoint;
      a[k] = {hn::Load(d, from + parts.re), hn::Load(d, from + parts.im)};
    }
    butterfly<R>(a);
#pragma GCC unroll 16
    for (int k = 0; k < R; ++k) {
      if (twiddled && k > 0) a[k] = a[k] * broadcast(twiddles + 2 * (k - 1));
      float* to = y + (q + stride * k) * kPoint;
      hn::Store(a[k].re, d, to + parts.re);
      hn::Store(a[k].im, d, to + parts.im);
    }
  }
}

template <int R>
HWY_NOINLINE void pass(const float* x, float* y, int64_t stride, int64_t groups,
                       const float* twiddles, Parts parts) {
  const int64_t apart = stride * groups;
  group_pass<R, false>(x, y, stride, apart, twiddles, parts);
  for (int64_t p = 1; p < groups; ++p)
    group_pass<R, true>(x + p * stride * kPoint, y + p * R * stride * kPoint, stride, apart,
                        twiddles + p * 2 * (R - 1), parts);
}

// Transforms the points at x, with y as the other half of the work area. Returns where they are.
float* run_passes(const FftPasses& passes, float* x, float* y, bool inverse) {
  const Parts parts = inverse ? Parts{kLanes, 0} : Parts{0, kLanes};
  int64_t stride = 1;
  const float* twiddles = passes.twiddles.data();
  for (const int r : passes.radix) {
    const int64_t groups = passes.points / stride / r;
    const auto run = r == 8    ? pass<8>
                     : r == 4  ? pass<4>
                     : r == 2  ? pass<2>
                     : r == 3  ? pass<3>
                     : r == 5  ? pass<5>
                     : r == 7  ? pass<7>
                     : r == 11 ? pass<11>
                               : pass<13>;
    run(x, y, stride, groups, twiddles, parts);
    twiddles += groups * 2 * (r - 1);
    stride *= r;
    std::swap(x, y);
  }
  return x;
}

// ---- into lanes and out

// Rows of complex numbers, one in each lane; rows that are not there repeat the last one.
HWY_INLINE void load_rows(const float* x, int64_t n, int64_t count, float* to) {
  const D d;
  for (int64_t j = 0; j < 2 * n; j += kLanes) {
    V from[kLanes], across[kLanes];
    const int64_t width = std::min(kLanes, 2 * n - j);
    for (int64_t l = 0; l < kLanes; ++l) {
      const float* row = x + std::min(l, count - 1) * 2 * n + j;
      from[l] = width == kLanes ? hn::LoadU(d, row) : load_n(d, row, static_cast<size_t>(width));
    }
    transpose_square(from, across);
    for (int64_t k = 0; k < width; ++k) hn::Store(across[k], d, to + (j + k) * kLanes);
  }
}
HWY_INLINE void store_rows(const float* from, int64_t n, int64_t count, float factor, float* y) {
  const D d;
  const V f = hn::Set(d, factor);
  for (int64_t j = 0; j < 2 * n; j += kLanes) {
    V across[kLanes], rows[kLanes];
    const int64_t width = std::min(kLanes, 2 * n - j);
    for (int64_t k = 0; k < kLanes; ++k)
      across[k] = hn::Mul(f, hn::Load(d, from + (j + std::min(k, width - 1)) * kLanes));
    transpose_square(across, rows);
    for (int64_t l = 0; l < count; ++l) {
      if (width == kLanes)
        hn::StoreU(rows[l], d, y + l * 2 * n + j);
      else
        store_n(d, rows[l], y + l * 2 * n + j, static_cast<size_t>(width));
    }
  }
}

void fft_direct_target(const FftPlan& p, const float* x, float* y, int64_t count, float* work) {
  float* other = work + (p.n + kLanes) * kPoint;
  load_rows(x, p.n, count, work);
  store_rows(run_passes(p.rows, work, other, p.inverse), p.n, count, static_cast<float>(p.factor),
             y);
}

void fft_columns_target(const FftPlan& p, const float* x, float* middle, int64_t block,
                        float* work) {
  const D d;
  const int64_t n1 = p.columns.points, n2 = p.rows.points, first = block * kLanes;
  const int64_t width = std::min(kLanes, n2 - first);
  for (int64_t j = 0; j < n1; ++j) {
    const float* from = x + 2 * (j * n2 + first);
    float line[kPoint] = {};
    if (width < kLanes) {
      std::copy(from, from + 2 * width, line);
      from = line;
    }
    V re, im;
    hn::LoadInterleaved2(d, from, re, im);
    hn::Store(re, d, work + j * kPoint);
    hn::Store(im, d, work + j * kPoint + kLanes);
  }
  const float* done =
      run_passes(p.columns, work, work + (std::max(n1, n2) + kLanes) * kPoint, p.inverse);
  const int64_t real = p.inverse ? kLanes : 0, imaginary = kLanes - real;
  float* to = middle + block * n1 * kPoint;
  for (int64_t k = 0; k < n1; ++k, done += kPoint, to += kPoint) {
    const float* lane = p.lane.data() + k * kPoint;
    const Complex w = Complex{hn::LoadU(d, lane), hn::LoadU(d, lane + kLanes)} *
                      broadcast(p.block.data() + 2 * (k * p.column_blocks + block));
    const Complex v = Complex{hn::Load(d, done + real), hn::Load(d, done + imaginary)} * w;
    hn::Store(v.re, d, to + real);
    hn::Store(v.im, d, to + imaginary);
  }
}

void fft_rows_target(const FftPlan& p, const float* middle, float* y, int64_t group, float* work) {
  const D d;
  const int64_t n1 = p.columns.points, n2 = p.rows.points, first = group * kLanes;
  const int64_t count = std::min(kLanes, n1 - first);
  for (int64_t c = 0; c < p.column_blocks; ++c)
    for (const int64_t part : {int64_t{0}, kLanes}) {
      const float* rows = middle + (c * n1 + first) * kPoint + part;
      V from[kLanes], across[kLanes];
      for (int64_t l = 0; l < kLanes; ++l)
        from[l] = hn::Load(d, rows + std::min(l, count - 1) * kPoint);
      transpose_square(from, across);
      float* to = work + c * kLanes * kPoint + part;
      for (int64_t k = 0; k < kLanes; ++k) hn::Store(across[k], d, to + k * kPoint);
    }
  const float* done =
      run_passes(p.rows, work, work + (std::max(n1, n2) + kLanes) * kPoint, p.inverse);
  const V f = hn::Set(d, static_cast<float>(p.factor));
  for (int64_t k = 0; k < n2; ++k, done += kPoint) {
    float* to = y + 2 * (k * n1 + first);
    const V re = hn::Mul(f, hn::Load(d, done)), im = hn::Mul(f, hn::Load(d, done + kLanes));
    if (count == kLanes) {
      hn::StoreInterleaved2(re, im, d, to);
    } else {
      float line[kPoint];
      hn::StoreInterleaved2(re, im, d, line);
      std::copy(line, line + 2 * count, to);
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(fft_lanes_target);
HWY_EXPORT(fft_direct_target);
HWY_EXPORT(fft_columns_target);
HWY_EXPORT(fft_rows_target);

int64_t fft_lanes() { return HWY_DYNAMIC_DISPATCH(fft_lanes_target)(); }

void fft_columns(const FftPlan& plan, const float* x, float* middle, int64_t block, float* work) {
  HWY_DYNAMIC_DISPATCH(fft_columns_target)(plan, x, middle, block, work);
}
void fft_rows(const FftPlan& plan, const float* middle, float* y, int64_t group, float* work) {
  HWY_DYNAMIC_DISPATCH(fft_rows_target)(plan, middle, y, group, work);
}
namespace {

void chirp_group(const FftPlan& p, const float* x, float* y, int64_t count, float* scratch) {
  const int64_t m = p.forward->n;
  float* padded = scratch;
  float* inner = scratch + p.group() * m * 2;
  for (int64_t r = 0; r < count; ++r) {
    fft_multiply(x + r * 2 * p.n, p.chirp_in.data(), padded + r * 2 * m, p.n);
    std::fill(padded + r * 2 * m + 2 * p.n, padded + (r + 1) * 2 * m, 0.F);
  }
  fft_group(*p.forward, padded, padded, count, inner);
  for (int64_t r = 0; r < count; ++r)
    fft_multiply(padded + r * 2 * m, p.filter.data(), padded + r * 2 * m, m);
  fft_group(*p.back, padded, padded, count, inner);
  for (int64_t r = 0; r < count; ++r)
    fft_multiply(padded + r * 2 * m, p.chirp_out.data(), y + r * 2 * p.n, p.n);
}

}  // namespace

void fft_group(const FftPlan& p, const float* x, float* y, int64_t count, float* scratch) {
  if (p.kind == FftPlan::Kind::chirp) return chirp_group(p, x, y, count, scratch);
  if (p.kind == FftPlan::Kind::direct)
    return HWY_DYNAMIC_DISPATCH(fft_direct_target)(p, x, y, count, scratch);
  float* middle = scratch + p.work_floats();
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t b = 0; b < p.column_blocks; ++b)
      fft_columns(p, x + r * 2 * p.n, middle, b, scratch);
    for (int64_t g = 0; g < p.row_groups; ++g) fft_rows(p, middle, y + r * 2 * p.n, g, scratch);
  }
}

}  // namespace tenon::cpu
#endif
