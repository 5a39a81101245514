// SPDX-License-Identifier: Apache-2.0
// roi_align. The weight of a sample is a product of one weight per axis, so each channel is reduced
// along the rows of the image, then along its columns. Weights are computed once for many channels.
#include "resample_roi.hpp"
#include "../parallel.hpp"
#include "resample.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// Reduces a line, whose pixel k is at(k), to one bin.
template <class A, class F>
A reduce_bin(const RoiAxis<A>& axis, int64_t bin, bool largest, F&& at) {
  const A* most = axis.most + bin * axis.pixels;
  if (!largest) {
    A sum = 0;
    for (int64_t k = axis.first[bin]; k < axis.end[bin]; ++k)
      if (most[k] != 0) sum += most[k] * at(k);
    return sum;
  }
  const A* least = axis.least + bin * axis.pixels;
  A best = -std::numeric_limits<A>::infinity();
  for (int64_t k = axis.first[bin]; k < axis.end[bin]; ++k) {
    if (most[k] < 0) continue;
    const A v = at(k);
    const A product = v * (v >= 0 ? most[k] : least[k]);
    if (product > best || std::isnan(product)) best = product;
    if (std::isnan(best)) break;
  }
  return best;
}

// One channel of one region. lines: [height, bins_w].
template <class T, class A>
void reduce_channel(const RoiPlan& p, const RoiAxis<A>& w, const RoiAxis<A>& h, const T* x, T* y,
                    A* lines) {
  int64_t top = h.pixels, bottom = 0;
  for (int64_t bin = 0; bin < h.bins; ++bin) {
    top = std::min(top, h.first[bin]);
    bottom = std::max(bottom, h.end[bin]);
  }
  for (int64_t row = top; row < bottom; ++row)
    for (int64_t bin = 0; bin < w.bins; ++bin)
      lines[row * w.bins + bin] =
          reduce_bin(w, bin, p.largest, [&](int64_t k) { return roi_wide(x[row * w.pixels + k]); });
  const A divisor = std::max(w.count * h.count, A(1));
  for (int64_t i = 0; i < h.bins; ++i)
    for (int64_t j = 0; j < w.bins; ++j, ++y) {
      const bool empty = w.first[j] >= w.end[j];  // no pixel of any row
      A v = p.largest ? -std::numeric_limits<A>::infinity() : A(0);
      if (!empty) v = reduce_bin(h, i, p.largest, [&](int64_t k) { return lines[k * w.bins + j]; });
      if (!p.largest)
        v /= divisor;
      else if (h.zero[i] != 0 || w.zero[j] != 0)
        v = v < 0 ? A(0) : v;
      if constexpr (std::is_same_v<T, double>) {
        *y = v;
      } else {
        from_float(v, y);
      }
    }
}

template <class T, class X>
void align(const RoiPlan& p, const T* x, const T* rois, const X* images, T* y, int64_t begin,
           int64_t end, void* memory) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  RoiArea<A> area(p, memory);
  const IndexAxis index{0, p.images, Oob::error};
  const int64_t groups = (p.channels + kRoiChannels - 1) / kRoiChannels;
  const int64_t pixels = p.pixels[0] * p.pixels[1], bins = p.bins[0] * p.bins[1];
  for (int64_t at = begin; at < end; ++at) {
    const int64_t region = at / groups, group = at % groups * kRoiChannels;
    if (at == begin || group == 0)
      for (int k = 0; k < 2; ++k)
        fill_axis<A>(area.axes[k], p, roi_wide(rois[region * 4 + k]),
                     roi_wide(rois[region * 4 + 2 + k]));
    const int64_t image = index.resolve(images[region]);
    for (int64_t c = group; c < std::min(p.channels, group + kRoiChannels); ++c)
      reduce_channel<T, A>(p, area.axes[0], area.axes[1], x + (image * p.channels + c) * pixels,
                           y + (region * p.channels + c) * bins, area.lines);
  }
}

}  // namespace

Kernel make_roi_align(const sdk::op::roi_align& n, const Node&) {
  const RoiPlan p = roi_plan(n);
  const int64_t items = p.regions * ((p.channels + kRoiChannels - 1) / kRoiChannels);
  const int64_t cost = kRoiChannels * p.bins[0] * p.bins[1] * 64;
  const Slots slots = make_slots(items, RoiArea<double>::bytes(p), cost);
  return {.run =
              [p, slots](const Call& c) {
                with_indices(p.index, c.inputs[2], [&](const auto* images) {
                  IndexAxis{0, p.images, Oob::error}.check(images, p.regions);
                  with_type(sdk::kFloatTypes, p.dtype, [&]<class T>(T) {
                    slots.run(c.scratch, [&](int64_t begin, int64_t end, void* area) {
                      align(p, c.in<T>(0), c.in<T>(1), images, c.out<T>(0), begin, end, area);
                    });
                  });
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
