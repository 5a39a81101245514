// SPDX-License-Identifier: Apache-2.0
// The vector code of conv_depthwise.hpp.
#include <algorithm>

#include "conv_depthwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv_depthwise_simd.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

void Interleave(const float* planes, int64_t pitch, int64_t channels, int64_t count, float* to) {
  const D d;
  const int64_t lanes = Lanes();
  for (int64_t k = 0; k < count; k += lanes) {
    const int64_t left = std::min(lanes, count - k);
    for (int64_t c = 0; c < lanes; c += 4) {
      V from[4];
      for (int64_t i = 0; i < 4; ++i) {
        const float* const at = planes + (c + i) * pitch + k;
        from[i] = c + i >= channels ? hn::Zero(d)
                  : left == lanes   ? hn::LoadU(d, at)
                                    : load_n(d, at, static_cast<size_t>(left));
      }
      // Pixels beyond the last one are written too: there is room for a whole vector of them.
      store_columns(from, to + k * lanes + c, lanes);
    }
  }
}

void Separate(const float* from, int64_t channels, int64_t count, float* planes, int64_t pitch) {
  const D d;
  const hn::Full128<float> d4;
  const int64_t lanes = Lanes();
  alignas(64) float columns[hn::MaxLanes(d) * 4];
  for (int64_t k = 0; k < count; k += 4) {
    V rows[4];
    for (int64_t i = 0; i < 4; ++i)
      rows[i] = k + i < count ? hn::LoadU(d, from + (k + i) * lanes) : hn::Zero(d);
    if (k + 4 <= count && channels == lanes) {
      store_columns(rows, planes + k, pitch);
      continue;
    }
    store_columns(rows, columns, 4);
    for (int64_t c = 0; c < channels; ++c)
      store_n(d4, hn::Load(d4, columns + 4 * c), planes + c * pitch + k,
              static_cast<size_t>(std::min<int64_t>(4, count - k)));
  }
}

// kCount windows of a row.
template <int kCount>
void window_sums(const DepthwiseSums& p, const float* x, float* y) {
  const D d;
  const int64_t lanes = Lanes();
  V sum[kCount];
#pragma GCC unroll 8
  for (int o = 0; o < kCount; ++o) sum[o] = hn::LoadU(d, p.bias);
  for (int64_t t = 0; t < p.taps; ++t) {
    const V w = hn::LoadU(d, p.w + t * lanes);
    const float* const at = x + p.offsets[t];
#pragma GCC unroll 8
    for (int o = 0; o < kCount; ++o)
      sum[o] = hn::MulAdd(hn::LoadU(d, at + o * p.x_step), w, sum[o]);
  }
#pragma GCC unroll 8
  for (int o = 0; o < kCount; ++o) hn::StoreU(sum[o], d, y + o * lanes);
}

void Sums(const DepthwiseSums& p) {
  constexpr int64_t kMost = 8;
  constexpr decltype(&window_sums<1>) kSums[kMost] = {
      window_sums<1>, window_sums<2>, window_sums<3>, window_sums<4>,
      window_sums<5>, window_sums<6>, window_sums<7>, window_sums<8>};
  const int64_t lanes = Lanes();
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* const x = p.x + row * p.x_row;
    float* const y = p.y + row * p.width * lanes;
    for (int64_t o = 0; o < p.width;) {
      // The last ones in halves: few sums at a time would wait for each other.
      const int64_t left = p.width - o;
      const int64_t count = left >= 2 * kMost ? kMost : left > kMost ? (left + 1) / 2 : left;
      kSums[count - 1](p, x + o * p.x_step, y + o * lanes);
      o += count;
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Lanes);
HWY_EXPORT(Interleave);
HWY_EXPORT(Separate);
HWY_EXPORT(Sums);

int64_t depthwise_lanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }
void interleave_channels(const float* planes, int64_t pitch, int64_t channels, int64_t count,
                         float* to) {
  HWY_DYNAMIC_DISPATCH(Interleave)(planes, pitch, channels, count, to);
}
void separate_channels(const float* from, int64_t channels, int64_t count, float* planes,
                       int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(Separate)(from, channels, count, planes, pitch);
}
void depthwise_sums(const DepthwiseSums& p) { HWY_DYNAMIC_DISPATCH(Sums)(p); }

}  // namespace tenon::cpu
#endif
