// SPDX-License-Identifier: Apache-2.0
// Powers, filters and logarithms of a group of frames, one frame in each lane.
#include <algorithm>
#include <limits>

#include "fft_frames.hpp"
#include "mel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mel_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "fft-inl.h"
#include "math-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The larger one; NaN if there is one.
HWY_INLINE V larger(V most, V v) {
  return hn::IfThenElse(hn::Or(hn::Gt(v, most), hn::IsNaN(v)), v, most);
}

// powers[bin * kFrameGroup + frame]. Frames that are not there repeat the last one.
HWY_INLINE void to_powers(const float* bins, int64_t width, int64_t count, float* powers) {
  const D d;
  for (int64_t f = 0; f < width; f += kLanes) {
    const int64_t there = std::min(kLanes, width - f);
    for (int64_t t = 0; t < count; t += kLanes) {
      V from[kLanes], across[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) {
        const float* at = bins + 2 * (std::min(t + l, count - 1) * width + f);
        float line[kPoint] = {};
        if (there < kLanes) {
          std::copy_n(at, 2 * there, line);
          at = line;
        }
        V re, im;
        hn::LoadInterleaved2(d, at, re, im);
        from[l] = hn::MulAdd(re, re, hn::Mul(im, im));
      }
      transpose_square(from, across);
      for (int64_t k = 0; k < there; ++k)
        hn::StoreU(across[k], d, powers + (f + k) * kFrameGroup + t);
    }
  }
}

HWY_INLINE V ranged(const Mel& mel, V y, V least) {
  const D d;
  if (mel.range > 0) y = larger(y, least);
  return mel.affine ? hn::Mul(hn::Add(y, hn::Set(d, 4.F)), hn::Set(d, 0.25F)) : y;
}

float mel_group_target(const Mel& mel, const float* bins, int64_t count, float* powers, float* y,
                       int64_t pitch) {
  const D d;
  to_powers(bins, mel.bins, count, powers);
  const auto floor = hn::Set(d, mel.floor), lowest = hn::Set(d, mel.lowest);
  const auto factor = hn::Set(d, mel.factor);
  auto most_of_all = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < count; t += kLanes) {
    const auto there = static_cast<size_t>(std::min(kLanes, count - t));
    auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (size_t m = 0; m < mel.filters.size(); ++m) {
      const MelFilter& filter = mel.filters[m];
      const float* w = mel.weights.data() + filter.weights;
      const float* p = powers + filter.bin * kFrameGroup + t;
      auto sum = hn::Zero(d);
      for (int64_t k = 0; k < filter.count; ++k, p += kFrameGroup)
        sum = hn::MulAdd(hn::Set(d, w[k]), hn::LoadU(d, p), sum);
      const auto log = hn::Mul(vlog(d, sum), factor);
      const auto v = hn::IfThenElse(hn::Le(sum, floor), lowest, log);
      most = larger(most, v);
      const auto done = mel.range == 0 ? ranged(mel, v, v) : v;
      store_n(d, done, y + static_cast<int64_t>(m) * pitch + t, there);
    }
    if (mel.range > 0 && mel.scope == MelScope::frame) {
      const auto least = hn::Sub(most, hn::Set(d, mel.range));
      for (size_t m = 0; m < mel.filters.size(); ++m) {
        float* at = y + static_cast<int64_t>(m) * pitch + t;
        store_n(d, ranged(mel, load_n(d, at, there), least), at, there);
      }
    }
    most_of_all = larger(most_of_all, most);
  }
  float lanes[kLanes], result = -std::numeric_limits<float>::infinity();
  hn::StoreU(most_of_all, d, lanes);
  for (const float v : lanes)
    if (v > result || v != v) result = v;
  return result;
}

void mel_range_target(const Mel& mel, float* y, int64_t n, float most) {
  const D d;
  const auto least = hn::Set(d, most - mel.range);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(ranged(mel, hn::LoadU(d, y + i), least), d, y + i);
  const auto rest = static_cast<size_t>(n - i);
  if (rest > 0) store_n(d, ranged(mel, load_n(d, y + i, rest), least), y + i, rest);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(mel_group_target);
HWY_EXPORT(mel_range_target);

float mel_group(const Mel& mel, const float* bins, int64_t count, float* powers, float* y,
                int64_t pitch) {
  return HWY_DYNAMIC_DISPATCH(mel_group_target)(mel, bins, count, powers, y, pitch);
}
void mel_range(const Mel& mel, float* y, int64_t n, float most) {
  HWY_DYNAMIC_DISPATCH(mel_range_target)(mel, y, n, most);
}

}  // namespace tenon::cpu
#endif
