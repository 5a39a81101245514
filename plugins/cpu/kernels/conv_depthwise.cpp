// SPDX-License-Identifier: Apache-2.0
// Plans and runs the convolutions of conv_depthwise.hpp. A piece of work is a vector of channels of
// one image, or a band of its rows.
#include "conv_depthwise.hpp"

#include <algorithm>
#include <cstring>

#include "../parallel.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kMostWidth = 40;         // wider rows fill vectors by themselves
constexpr int64_t kMostBytes = 256 << 10;  // of a padded copy: it fits L2
constexpr int64_t kVector = 16;            // floats, at most
constexpr int64_t kPiecesPerThread = 3;
constexpr int64_t kLeastRows = 4;  // of a band

uint64_t floats(int64_t count) { return aligned(count * static_cast<int64_t>(sizeof(float))); }

struct Reach {
  int64_t first, last;  // taps
};
Reach reach_of(const ConvAxis& a) {
  const auto [first, last] = std::minmax_element(a.taps.begin(), a.taps.end());
  return {*first, *last};
}

// Pixels that `windows` windows of an axis span.
int64_t span_of(const ConvAxis& a, int64_t windows) {
  const Reach reach = reach_of(a);
  return (windows - 1) * a.step + reach.last - reach.first + 1;
}

}  // namespace

bool ConvDepthwise::takes(const TapConv& conv, tenon_dtype dtype, const ConvEnds& ends) {
  if (dtype != TENON_DTYPE_F32 || conv.c != 1 || conv.m != 1 || !conv.dense() || !conv.flat() ||
      conv.taps() == 0)
    return false;
  if (ends.residual >= 0 || ends.pre_act >= 0) return false;
  const ConvAxis &rows = conv.axes[1], &columns = conv.axes[2];
  if (conv.groups < depthwise_lanes() || columns.out > kMostWidth) return false;
  const int64_t width = span_of(columns, columns.out), height = span_of(rows, rows.out);
  return std::max(width, columns.in) <= kMostBytes && std::max(height, rows.in) <= kMostBytes &&
         std::max(width * height, conv.pixels()) * kVector * 4 <= kMostBytes;
}

ConvDepthwise::ConvDepthwise(TapConv conv) : conv_(std::move(conv)), lanes_(depthwise_lanes()) {
  const ConvAxis &rows = conv_.axes[1], &columns = conv_.axes[2];
  blocks_ = divide_up(conv_.groups, lanes_);
  const int64_t wanted =
      divide_up(kPiecesPerThread * widest_arena(), std::max<int64_t>(conv_.batch * blocks_, 1));
  band_rows_ = std::min(std::max(divide_up(rows.out, wanted), kLeastRows), rows.out);
  bands_ = divide_up(rows.out, band_rows_);
  top_ = reach_of(rows).first, left_ = reach_of(columns).first;
  height_ = span_of(rows, band_rows_), width_ = span_of(columns, columns.out);
  for (const int64_t down : rows.taps)
    for (const int64_t across : columns.taps)
      offsets_.push_back(((down - top_) * width_ + across - left_) * lanes_);
  const int64_t pixels =
      std::max(std::min(height_, rows.in) * columns.in, band_rows_ * columns.out);
  pixels_ = floats((pixels + lanes_) * lanes_);
  copy_ = floats(height_ * width_ * lanes_);
  weights_ = floats((conv_.taps() + lanes_) * lanes_);
  slot_ = pixels_ + copy_ + weights_ + 2 * floats(lanes_ * lanes_);
  slots_ = conv_slots(conv_.batch * blocks_ * bands_);
}

void ConvDepthwise::run(const sdk::Call& call, const void* x, const void* w,
                        const ConvEnds& ends) const {
  const ConvAxis &rows = conv_.axes[1], &columns = conv_.axes[2];
  const int64_t taps = conv_.taps(), windows = conv_.windows();
  const auto piece = [&](int64_t k, int slot) {
    char* const own = static_cast<char*>(call.scratch) + slot * slot_;
    // The pixels of x, then the sums.
    float* const pixels = reinterpret_cast<float*>(own);
    float* const copy = reinterpret_cast<float*>(own + pixels_);
    float* const weights = reinterpret_cast<float*>(own + pixels_ + copy_);
    float* const filters = reinterpret_cast<float*>(own + pixels_ + copy_ + weights_);
    float* const bias = filters + lanes_ * lanes_;
    const int64_t first = k % bands_ * band_rows_, block = k / bands_ % blocks_;
    const int64_t count = std::min(band_rows_, rows.out - first);
    const int64_t channel = block * lanes_, channels = std::min(lanes_, conv_.groups - channel);
    const int64_t plane = k / bands_ / blocks_ * conv_.groups + channel;

    // The rows of x that the band reads.
    const int64_t top = first * rows.step + top_, height = span_of(rows, count);
    const int64_t begin = std::clamp<int64_t>(top, 0, rows.in);
    const int64_t end = std::clamp<int64_t>(top + height, begin, rows.in);
    interleave_channels(static_cast<const float*>(x) + plane * conv_.pixels() + begin * columns.in,
                        conv_.pixels(), channels, (end - begin) * columns.in, pixels);
    const int64_t left = std::clamp<int64_t>(-left_, 0, width_);
    const int64_t right = std::clamp<int64_t>(columns.in - left_, left, width_);
    for (int64_t r = 0; r < height; ++r) {
      float* const to = copy + r * width_ * lanes_;
      if (top + r < begin || top + r >= end) {
        std::fill_n(to, width_ * lanes_, 0.f);
        continue;
      }
      std::fill_n(to, left * lanes_, 0.f);
      std::copy_n(pixels + ((top + r - begin) * columns.in + left_ + left) * lanes_,
                  (right - left) * lanes_, to + left * lanes_);
      std::fill_n(to + right * lanes_, (width_ - right) * lanes_, 0.f);
    }

    for (int64_t t = 0; t < taps; ++t)
      for (int64_t i = 0; i < lanes_; ++i)
        weights[t * lanes_ + i] =
            i < channels
                ? static_cast<const float*>(w)[(channel + i) * conv_.w_group + conv_.w_tap[t]]
                : 0.f;
    for (int64_t i = 0; i < lanes_; ++i)
      bias[i] = i < channels ? ends.bias_of(call, channel + i) : 0;
    depthwise_sums({copy, rows.step * width_ * lanes_, columns.step * lanes_, offsets_.data(), taps,
                    weights, bias, count, columns.out, pixels});
    const int64_t sums = count * columns.out;
    if (ends.act) unary_tile(*ends.act, pixels, pixels, sums * lanes_);
    separate_channels(pixels, channels, sums,
                      call.out<float>(ends.out) + plane * windows + first * columns.out, windows);
  };
  parallel_for_slots(conv_.batch * blocks_ * bands_, 1, slots_,
                     [&](int slot, int64_t begin, int64_t end) {
                       for (int64_t k = begin; k < end; ++k) piece(k, slot);
                     });
}

}  // namespace tenon::cpu
