// SPDX-License-Identifier: Apache-2.0
// Segments of a signal, and sums of powers, in vectors.
#include <algorithm>

#include "spectrum.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/spectrum_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "fft-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Calls body(at, count) for the vectors of n elements.
template <class Body>
HWY_INLINE void each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
HWY_INLINE V some(const float* x, int64_t count) {
  return count == kLanes ? hn::LoadU(D(), x) : load_n(D(), x, static_cast<size_t>(count));
}

// The line of least squares through x: level + slope (k - middle).
struct Line {
  float level = 0, slope = 0, middle = 0;
};
HWY_INLINE Line line_of(const float* x, int64_t n, Trend trend) {
  Line line;
  if (trend == Trend::none) return line;
  const D d;
  const auto size = static_cast<double>(n);
  V sum = hn::Zero(d);
  each_vector(n,
              [&](int64_t i, int64_t count) HWY_ATTR { sum = hn::Add(sum, some(x + i, count)); });
  line.level = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(n);
  if (trend == Trend::constant || n == 1) return line;
  line.middle = static_cast<float>((size - 1) / 2);
  V moment = hn::Zero(d);
  each_vector(n, [&](int64_t i, int64_t count) HWY_ATTR {
    const V at = hn::Iota(d, static_cast<float>(i) - line.middle);
    const V v = hn::Sub(some(x + i, count), hn::Set(d, line.level));
    moment =
        hn::MulAdd(at, count == kLanes ? v : hn::IfThenElseZero(hn::FirstN(d, count), v), moment);
  });
  line.slope =
      static_cast<float>(hn::GetLane(hn::SumOfLanes(d, moment)) / (size * (size * size - 1) / 12));
  return line;
}

void cut_segment_target(const float* x, const float* w, int64_t n, Trend trend, float* to) {
  const D d;
  const Line line = line_of(x, n, trend);
  const V level = hn::Set(d, line.level), slope = hn::Set(d, line.slope);
  each_vector(n, [&](int64_t i, int64_t count) HWY_ATTR {
    V v = hn::Sub(some(x + i, count), level);
    if (trend == Trend::linear)
      v = hn::NegMulAdd(slope, hn::Iota(d, static_cast<float>(i) - line.middle), v);
    v = hn::Mul(v, some(w + i, count));
    if (count == kLanes)
      hn::StoreU(v, d, to + i);
    else
      store_n(d, v, to + i, static_cast<size_t>(count));
  });
}

void add_powers_target(const float* bins, int64_t n, float* sums) {
  const D d;
  int64_t f = 0;
  for (; f + kLanes <= n; f += kLanes) {
    V re, im;
    hn::LoadInterleaved2(d, bins + 2 * f, re, im);
    hn::StoreU(hn::MulAdd(re, re, hn::MulAdd(im, im, hn::LoadU(d, sums + f))), d, sums + f);
  }
  for (; f < n; ++f) sums[f] += bins[2 * f] * bins[2 * f] + bins[2 * f + 1] * bins[2 * f + 1];
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(cut_segment_target);
HWY_EXPORT(add_powers_target);

void cut_segment(const float* x, const float* w, int64_t n, Trend trend, float* to) {
  HWY_DYNAMIC_DISPATCH(cut_segment_target)(x, w, n, trend, to);
}
void add_powers(const float* bins, int64_t n, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_powers_target)(bins, n, sums);
}

}  // namespace tenon::cpu
#endif
