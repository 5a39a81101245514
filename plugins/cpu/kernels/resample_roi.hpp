// SPDX-License-Identifier: Apache-2.0
// Regions of roi_align: the weights of the pixels for the bins of one region, along each axis.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "convert.hpp"
#include "index_policy.hpp"
#include "slots.hpp"

namespace tenon::cpu {

struct RoiPlan {
  int64_t regions = 0, images = 0, channels = 0;
  int64_t pixels[2] = {1, 1}, bins[2] = {1, 1};  // width, then height
  int64_t sampling_ratio = 0;
  double scale = 1;
  bool shifted = true, largest = false;
  tenon_dtype dtype = TENON_DTYPE_F32, index = TENON_DTYPE_I64;

  int64_t table(int axis) const { return bins[axis] * pixels[axis]; }
};
inline constexpr int64_t kRoiChannels = 32;  // of one region that share its weights

// The weights of one region along one axis: for each bin, those of a range of pixels.
template <class A>
struct RoiAxis {
  int64_t bins, pixels;
  A* most;   // [bins, pixels]: of mode max the largest weight, or -1; of avg the sum of weights
  A* least;  // the smallest weight; of avg unused
  int64_t* first;  // [bins]
  int64_t* end;
  A* zero;  // [bins]: not 0 if a sample is outside, or there is none
  A count = 0;
};

template <class A>
void add_sample(const RoiAxis<A>& axis, int64_t bin, A at, bool largest) {
  const A last = static_cast<A>(axis.pixels - 1);
  const A inside = std::min(std::max(at, A(0)), last), floor = std::floor(inside);
  const auto low = static_cast<int64_t>(floor), high = std::min(low + 1, axis.pixels - 1);
  const A upper = inside - floor;
  const auto add = [&](int64_t pixel, A weight) {
    A& most = axis.most[bin * axis.pixels + pixel];
    if (!largest) {
      most += weight;
      return;
    }
    most = std::max(most, weight);
    A& least = axis.least[bin * axis.pixels + pixel];
    least = std::min(least, weight);
  };
  add(low, 1 - upper);
  add(high, upper);
  axis.first[bin] = std::min(axis.first[bin], low);
  axis.end[bin] = std::max(axis.end[bin], high + 1);
}

// from, to: the corners of the region.
template <class A>
void fill_axis(RoiAxis<A>& axis, const RoiPlan& p, A from, A to) {
  const A shift = p.shifted ? A(0.5) : A(0), scale = static_cast<A>(p.scale);
  const A begin = from * scale - shift;
  A length = (to * scale - shift) - begin;
  if (!p.shifted && length < 1) length = 1;
  const A width = length / static_cast<A>(axis.bins), size = static_cast<A>(axis.pixels);
  axis.count = static_cast<A>(p.sampling_ratio);
  if (p.sampling_ratio == 0) {
    const A some = std::ceil(width);
    axis.count = some > 0 && std::isfinite(some) ? some : A(0);
  }
  std::fill_n(axis.most, axis.bins * axis.pixels, p.largest ? A(-1) : A(0));
  if (p.largest) std::fill_n(axis.least, axis.bins * axis.pixels, A(2));
  for (int64_t bin = 0; bin < axis.bins; ++bin) {
    axis.first[bin] = axis.pixels, axis.end[bin] = 0;
    const A start = begin + static_cast<A>(bin) * width;
    const auto position = [&](A k) { return start + (k + A(0.5)) * width / axis.count; };
    const auto is_inside = [&](A at) { return at >= -1 && at <= size; };
    // Samples are in order, so the first or the last one is outside if any is.
    axis.zero[bin] =
        axis.count < 1 || !is_inside(position(0)) || !is_inside(position(axis.count - 1));
    // Adaptive samples are more than half a pixel apart: few of any number are inside.
    A k = 0;
    int64_t tries = p.sampling_ratio;
    if (p.sampling_ratio == 0) {
      k = std::max(A(0), std::ceil((-1 - start) * axis.count / width - A(0.5)) - 1);
      tries = 2 * axis.pixels + 8;
    }
    for (int64_t j = 0; j < tries; ++j) {
      const A at = k + static_cast<A>(j);
      if (!(at < axis.count)) break;
      if (const A v = position(at); is_inside(v)) add_sample(axis, bin, v, p.largest);
    }
  }
}

template <class T>
auto roi_wide(T v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return to_float(v);
  }
}

// The parts of a work area: numbers of 8 bytes at most.
template <class A>
struct RoiArea {
  RoiArea(const RoiPlan& p, void* memory) {
    auto* at = static_cast<int64_t*>(memory);
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    for (int k = 0; k < 2; ++k) {
      axes[k].bins = p.bins[k], axes[k].pixels = p.pixels[k];
      axes[k].first = take(p.bins[k]), axes[k].end = take(p.bins[k]);
      axes[k].zero = reinterpret_cast<A*>(take(p.bins[k]));
      axes[k].most = reinterpret_cast<A*>(take(p.table(k)));
      axes[k].least = reinterpret_cast<A*>(take(p.table(k)));
    }
    lines = reinterpret_cast<A*>(take(p.pixels[1] * p.bins[0]));
  }
  static int64_t bytes(const RoiPlan& p) {
    return 8 *
           (3 * (p.bins[0] + p.bins[1]) + 2 * (p.table(0) + p.table(1)) + p.pixels[1] * p.bins[0]);
  }
  RoiAxis<A> axes[2];
  A* lines;
};

// The plan of a node of roi_align or roi_align_backward.
template <class Op>
RoiPlan roi_plan(const Op& n) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  RoiPlan p{.regions = n.rois.type().dims[0], .images = x.dims[0], .channels = x.dims[1]};
  p.pixels[0] = x.dims[3], p.pixels[1] = x.dims[2];
  p.bins[0] = n.output_width, p.bins[1] = n.output_height;
  p.sampling_ratio = n.sampling_ratio, p.scale = n.spatial_scale;
  p.shifted = n.coordinates == "half_pixel", p.largest = n.mode == "max";
  p.dtype = x.dtype, p.index = n.batch_indices.type().dtype;
  constexpr int64_t kMostTable = 1 << 17;
  if (p.table(0) > kMostTable || p.table(1) > kMostTable)
    throw sdk::Refusal::shape("more than 2^17 products of bins and pixels along an axis");
  return p;
}

}  // namespace tenon::cpu
