// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions of small planes: a vector holds a pixel of as many channels as it has lanes,
// so planes narrower than a vector do not waste it. The channels of x are interleaved into a padded
// copy, and those of y taken apart.
#pragma once

#include "conv.hpp"

namespace tenon::cpu {

class ConvDepthwise {
 public:
  // For f32, with one filter of one channel per group, followed by no sum with another image.
  static bool takes(const TapConv& conv, tenon_dtype dtype, const ConvEnds& ends);
  explicit ConvDepthwise(TapConv conv);
  uint64_t scratch() const { return slots_ * slot_; }
  void run(const sdk::Call& call, const void* x, const void* w, const ConvEnds& ends) const;

 private:
  TapConv conv_;
  int64_t lanes_ = 1, blocks_ = 1;  // of channels
  int64_t band_rows_ = 1, bands_ = 1;
  int64_t top_ = 0, left_ = 0;      // of the padded copy in x
  int64_t height_ = 1, width_ = 1;  // of the copy of a band
  std::vector<int64_t> offsets_;    // of the taps in the copy, in floats
  int slots_ = 1;
  uint64_t slot_ = 0, pixels_ = 0, copy_ = 0, weights_ = 0;
};

// ---- kernels of conv_depthwise_simd.cpp

int64_t depthwise_lanes();

// to[k * lanes + channel] = planes[channel * pitch + k] for k < count; zero for channels that do not
// exist.
void interleave_channels(const float* planes, int64_t pitch, int64_t channels, int64_t count,
                         float* to);
// planes[channel * pitch + k] = from[k * lanes + channel]
void separate_channels(const float* from, int64_t channels, int64_t count, float* planes,
                       int64_t pitch);

// y[(row * width + o) * lanes + i] = bias[i] + Σ w[t * lanes + i] · x[row * x_row + o * x_step +
// offsets[t] + i]
struct DepthwiseSums {
  const float* x;
  int64_t x_row, x_step;
  const int64_t* offsets;
  int64_t taps;
  const float* w;
  const float* bias;
  int64_t rows, width;
  float* y;
};
void depthwise_sums(const DepthwiseSums& p);

}  // namespace tenon::cpu
