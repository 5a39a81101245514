// SPDX-License-Identifier: Apache-2.0
// roi_align_backward. A thread takes all regions of some channels of an image, in their order, so sums
// do not depend on the threads.
#include "../parallel.hpp"
#include "resample.hpp"
#include "resample_roi.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// Adds the gradient of one channel of one region. lines: [height, bins_w].
template <class T, class A>
void spread_mean(const RoiAxis<A>& w, const RoiAxis<A>& h, const T* dy, A* dx, A* lines) {
  const A divisor = std::max(w.count * h.count, A(1));
  std::fill_n(lines, h.pixels * w.bins, A(0));
  for (int64_t i = 0; i < h.bins; ++i)
    for (int64_t row = h.first[i]; row < h.end[i]; ++row)
      if (const A weight = h.most[i * h.pixels + row]; weight != 0)
        for (int64_t j = 0; j < w.bins; ++j)
          lines[row * w.bins + j] += weight * (roi_wide(dy[i * w.bins + j]) / divisor);
  for (int64_t row = 0; row < h.pixels; ++row)
    for (int64_t j = 0; j < w.bins; ++j)
      if (const A line = lines[row * w.bins + j]; line != 0)
        for (int64_t k = w.first[j]; k < w.end[j]; ++k)
          dx[row * w.pixels + k] += w.most[j * w.pixels + k] * line;
}

// The pixel of a line with the largest product, and the factor of its product.
template <class A>
struct Winner {
  A product = -std::numeric_limits<A>::infinity(), factor = 0;
  int64_t at = -1;
};
template <class A, class F>
Winner<A> find_winner(const RoiAxis<A>& axis, int64_t bin, F&& pixel) {
  Winner<A> best;
  for (int64_t k = axis.first[bin]; k < axis.end[bin]; ++k) {
    const A most = axis.most[bin * axis.pixels + k];
    if (most < 0) continue;
    const A v = pixel(k), factor = v >= 0 ? most : axis.least[bin * axis.pixels + k];
    const A product = v * factor;
    if (best.at < 0 || product > best.product || std::isnan(product)) best = {product, factor, k};
    if (std::isnan(product)) break;  // the first NaN
  }
  return best;
}

// winners: [height, bins_w].
template <class T, class A>
void spread_largest(const RoiAxis<A>& w, const RoiAxis<A>& h, const T* dy, const T* x, A* dx,
                    Winner<A>* winners) {
  for (int64_t row = 0; row < h.pixels; ++row)
    for (int64_t j = 0; j < w.bins; ++j)
      winners[row * w.bins + j] =
          find_winner(w, j, [&](int64_t k) { return roi_wide(x[row * w.pixels + k]); });
  for (int64_t i = 0; i < h.bins; ++i)
    for (int64_t j = 0; j < w.bins; ++j) {
      if (w.first[j] >= w.end[j]) continue;  // no pixel of any row
      const Winner<A> row =
          find_winner(h, i, [&](int64_t k) { return winners[k * w.bins + j].product; });
      // A sample outside wins with 0 unless a pixel gives more.
      if (row.at < 0 || ((h.zero[i] != 0 || w.zero[j] != 0) && row.product <= 0)) continue;
      const Winner<A>& pixel = winners[row.at * w.bins + j];
      dx[row.at * w.pixels + pixel.at] += roi_wide(dy[i * w.bins + j]) * row.factor * pixel.factor;
    }
}

// Work areas: the weights of a region, winners, and the gradients of kRoiChannels planes.
struct BackwardArea {
  explicit BackwardArea(const RoiPlan& p)
      : winners((RoiArea<double>::bytes(p) + 63) / 64 * 64),
        planes(winners +
               (p.largest ? p.pixels[1] * p.bins[0] * static_cast<int64_t>(sizeof(Winner<double>))
                          : 0)),
        bytes(planes + kRoiChannels * p.pixels[0] * p.pixels[1] * 8) {}
  int64_t winners, planes, bytes;
};

template <class T, class X>
void spread(const RoiPlan& p, const T* dy, const T* x, const T* rois, const X* images, T* dx,
            int64_t begin, int64_t end, void* memory) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  RoiArea<A> area(p, memory);
  const BackwardArea places(p);
  auto* const winners = reinterpret_cast<Winner<A>*>(static_cast<char*>(memory) + places.winners);
  auto* const sums = reinterpret_cast<A*>(static_cast<char*>(memory) + places.planes);
  const IndexAxis index{0, p.images, Oob::error};
  const int64_t groups = (p.channels + kRoiChannels - 1) / kRoiChannels;
  const int64_t pixels = p.pixels[0] * p.pixels[1], bins = p.bins[0] * p.bins[1];
  for (int64_t at = begin; at < end; ++at) {
    const int64_t image = at / groups, group = at % groups * kRoiChannels;
    const int64_t count = std::min(kRoiChannels, p.channels - group);
    const T* planes = x + (image * p.channels + group) * pixels;
    std::fill_n(sums, count * pixels, A(0));
    for (int64_t region = 0; region < p.regions; ++region) {
      if (index.resolve(images[region]) != image) continue;
      for (int k = 0; k < 2; ++k)
        fill_axis<A>(area.axes[k], p, roi_wide(rois[region * 4 + k]),
                     roi_wide(rois[region * 4 + 2 + k]));
      const T* given = dy + (region * p.channels + group) * bins;
      for (int64_t c = 0; c < count; ++c) {
        A* sum = sums + c * pixels;
        if (p.largest)
          spread_largest<T, A>(area.axes[0], area.axes[1], given + c * bins, planes + c * pixels,
                               sum, winners);
        else
          spread_mean<T, A>(area.axes[0], area.axes[1], given + c * bins, sum, area.lines);
      }
    }
    T* to = dx + (image * p.channels + group) * pixels;
    for (int64_t k = 0; k < count * pixels; ++k) {
      if constexpr (std::is_same_v<T, double>) {
        to[k] = sums[k];
      } else {
        from_float(sums[k], to + k);
      }
    }
  }
}

}  // namespace

Kernel make_roi_align_backward(const sdk::op::roi_align_backward& n, const Node&) {
  const RoiPlan p = roi_plan(n);
  const BackwardArea places(p);
  constexpr int64_t kMostArea = 64 << 20;
  if (places.bytes > kMostArea) throw sdk::Refusal::shape("images too large for work areas");
  const int64_t items = p.images * ((p.channels + kRoiChannels - 1) / kRoiChannels);
  const Slots slots = make_slots(items, places.bytes, int64_t{1} << 20);
  return {.run =
              [p, slots](const Call& c) {
                with_indices(p.index, c.inputs[3], [&](const auto* images) {
                  IndexAxis{0, p.images, Oob::error}.check(images, p.regions);
                  with_type(sdk::kFloatTypes, p.dtype, [&]<class T>(T) {
                    slots.run(c.scratch, [&](int64_t begin, int64_t end, void* area) {
                      spread(p, c.in<T>(0), c.in<T>(1), c.in<T>(2), images, c.out<T>(0), begin, end,
                             area);
                    });
                  });
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
