// SPDX-License-Identifier: Apache-2.0
// Records of the resample family: roi_align roi_align_backward. The weight of a sample is a product
// of one weight per axis, so a region is reduced along the rows of the image, then along its columns.
#include <cmath>
#include <limits>

#include "ops/resample.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kModes = "avg max";
constexpr std::string_view kCoordinates = "half_pixel output_half_pixel";
constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- shape

// The shape of y.
template <class Op>
Shape aligned(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  i.want_same_dtype(n.x, "x", n.rois, "rois");
  i.want_index(n.batch_indices, "batch_indices");
  want_images(i, n.x, "x", 2, 2);
  i.want_rank(n.batch_indices, "batch_indices", 1);
  const Dim regions = i.shape(n.batch_indices)[0];
  i.want_shape(n.rois, "rois", {regions, 4});
  if (i.shape(n.x)[0] == 0 && regions != 0)
    i.fail(Code::index_out_of_range,
           "operand batch_indices: expected none for x without images, got ",
           i.type(n.batch_indices).text());
  const auto want_number = [&](std::string_view attr, int64_t v, int64_t least, int64_t most) {
    if (v < least || v > most)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number from ", least, " to ",
             most, ", given ", v);
  };
  want_number("output_height", n.output_height, 1, 1 << 20);
  want_number("output_width", n.output_width, 1, 1 << 20);
  want_number("sampling_ratio", n.sampling_ratio, 0, 1 << 10);
  if (!std::isfinite(n.spatial_scale))
    i.fail(Code::invalid_argument, "attribute spatial_scale: expected a finite number, given ",
           n.spatial_scale);
  return sized(i, {regions, i.shape(n.x)[1], n.output_height, n.output_width});
}

void roi_align_shape(Infer& i, const op::roi_align& n) { i.out(0, {i.dtype(n.x), aligned(i, n)}); }

void roi_align_backward_shape(Infer& i, const op::roi_align_backward& n) {
  const Shape y = aligned(i, n);
  i.want_same_dtype(n.x, "x", n.dy, "dy");
  i.want_shape(n.dy, "dy", y);
  i.out(0, i.type(n.x));
}

// ---- decomposition

// With adaptive sampling, the distance of samples is more than half a pixel, so no pixel has more
// samples than this.
constexpr int64_t kMostSamples = 9;

// The samples of all regions along one axis.
struct RoiAxis {
  Value samples;  // [R]: how many per bin
  Value outside;  // bool [R, bins]: a sample of the bin is outside of the image, or there is none
  Value touched;  // bool [R, bins, pixels]: a sample reads the pixel
  Value most;   // [R, bins, pixels]: the largest weight of the pixel, or 0. avg: the sum of weights
  Value least;  // the smallest weight of the pixel, or 0. avg: absent
};

Value column(Builder& b, Value v) { return b.reshape(v, {b.shape(v)[0], 1, 1, 1}); }

// start, length: [R], in pixels.
RoiAxis roi_axis(Builder& b, Value start, Value length, int64_t bins, int64_t pixels,
                 int64_t sampling_ratio, bool average) {
  const DType t = b.dtype(start);
  const int64_t regions = b.shape(start)[0];
  const auto size = static_cast<double>(pixels);
  const Value zero = b.scalar(t, 0), one = b.scalar(t, 1);
  RoiAxis out;
  const Value bin = b.over(length, static_cast<double>(bins));
  if (sampling_ratio > 0) {
    out.samples = b.full(b.type(bin), static_cast<double>(sampling_ratio));
  } else {
    const Value count = b.unary("ceil", bin);
    const Value some = b.logical("and", b.compare("gt", count, 0), b.compare("lt", count, kInf));
    out.samples = b.where(some, count, zero);
  }
  const Value width = column(b, bin), count = column(b, out.samples);
  const Value first =
      b.plus(column(b, start), b.times(b.iota({1, bins, 1, 1}, 1, t), width));  // of each bin
  const auto position = [&](Value k) {
    return b.plus(first, b.over(b.times(b.plus(k, 0.5), width), count));
  };
  const auto is_inside = [&](Value at) {
    return b.logical("and", b.compare("ge", at, -1), b.compare("le", at, size));
  };
  // Samples are in order, so the first or the last one is outside if any is.
  const Value ends =
      b.logical("and", is_inside(position(zero)), is_inside(position(b.minus(count, 1))));
  const Value none = b.compare("lt", count, 1);
  out.outside = b.reshape(b.logical("or", b.logical("not", ends), none), {regions, bins});

  const Value pixel = b.iota({1, 1, pixels, 1}, 2, t);
  Value k;
  if (sampling_ratio > 0) {
    k = b.iota({1, 1, 1, sampling_ratio}, 3, t);
  } else {
    // Positions before pixel 0 count as that pixel, whose upper neighbor is pixel 1.
    const Value from = b.where(b.compare("le", pixel, 1), b.scalar(t, -1), b.minus(pixel, 1));
    const Value skipped = b.over(b.times(b.minus(from, first), count), width);
    const Value before = b.minus(b.unary("ceil", b.minus(skipped, 0.5)), 1);
    k = b.plus(b.max(before, zero), b.iota({1, 1, 1, kMostSamples}, 3, t));
  }
  const Value at = position(k);
  const Value valid = b.logical("and", is_inside(at), b.compare("lt", k, count));
  const Value clamped = b.min(b.max(at, zero), b.scalar(t, size - 1));
  const Value low = b.unary("floor", clamped), upper = b.minus(clamped, low);
  const Value high = b.min(b.plus(low, 1), b.scalar(t, size - 1));
  const Value on_low = b.logical("and", valid, b.compare("eq", low, pixel));
  const Value on_high = b.logical("and", valid, b.compare("eq", high, pixel));
  const Value lower = b.minus(one, upper);
  const auto fold = [&](std::string_view kind, std::string_view join, Value otherwise) {
    return b.reduce(
        kind, b.binary(join, b.where(on_low, lower, otherwise), b.where(on_high, upper, otherwise)),
        {3}, false);
  };
  const Value hits = b.cast(b.logical("or", on_low, on_high), t);
  out.touched = b.compare("gt", b.reduce("max", hits, {3}, false), 0);
  if (average) {
    out.most = fold("sum", "add", zero);
    return out;
  }
  out.most = b.where(out.touched, fold("max", "max", b.scalar(t, -1)), zero);
  out.least = b.where(out.touched, fold("min", "min", b.scalar(t, 2)), zero);
  return out;
}

struct Regions {
  int64_t count, channels, height, width, bins_h, bins_w;
  RoiAxis h, w;
  bool average;
  Value zero;  // bool [R, 1, bins_h, bins_w]: of max: a sample reads 0

  Value rows(Builder& b, Value v) const {  // of w, beside [R, C, height, bins_w, width]
    return b.reshape(v, {count, 1, 1, bins_w, width});
  }
  Value columns(Builder& b, Value v) const {  // of h, beside [R, C, bins_h, bins_w, height]
    return b.reshape(v, {count, 1, bins_h, 1, height});
  }
};

template <class Op>
Regions regions_of(Builder& b, const Op& n) {
  const Shape x = b.shape(n.x);
  Regions r{.count = b.shape(n.rois)[0],
            .channels = x[1],
            .height = x[2],
            .width = x[3],
            .bins_h = n.output_height,
            .bins_w = n.output_width,
            .h = {},
            .w = {},
            .average = n.mode == "avg",
            .zero = {}};
  const bool shifted = n.coordinates == "half_pixel";
  const Value rois = b.minus(b.times(b.widen(n.rois), n.spatial_scale), shifted ? 0.5 : 0.0);
  const auto corner = [&](int k) { return b.reshape(b.narrow(rois, 1, k, 1), {r.count}); };
  const auto axis = [&](int k, int64_t bins, int64_t pixels) {
    Value length = b.minus(corner(k + 2), corner(k));
    if (!shifted) length = b.max(length, b.scalar(b.dtype(length), 1));
    return roi_axis(b, corner(k), length, bins, pixels, n.sampling_ratio, r.average);
  };
  r.h = axis(1, r.bins_h, r.height);
  r.w = axis(0, r.bins_w, r.width);
  r.zero = b.logical("or", b.reshape(r.h.outside, {r.count, 1, r.bins_h, 1}),
                     b.reshape(r.w.outside, {r.count, 1, 1, r.bins_w}));
  return r;
}

// How many samples each output has, at least 1: [R, 1, 1, 1].
Value divisor(Builder& b, const Regions& r) {
  const Value all = b.times(r.h.samples, r.w.samples);
  return column(b, b.max(all, b.scalar(b.dtype(all), 1)));
}

// max: the weights that count for values of their sign.
Value chosen(Builder& b, Value v, Value most, Value least) {
  return b.where(b.compare("ge", v, 0), most, least);
}

// The image of each region, [R, C, H, W].
template <class Op>
Value images(Builder& b, const Op& n) {
  return b.add(op::gather{.data = b.widen(n.x), .indices = n.batch_indices});
}

struct Maxima {
  Value by_width;   // [R, C, height, bins_w, width]: the candidates of each row
  Value of_row;     // [R, C, 1, bins_w, height]: the largest one of each row
  Value by_height;  // [R, C, bins_h, bins_w, height]: the candidates of each bin
};
Maxima maxima(Builder& b, const Regions& r, Value x) {
  const Value pixels = b.reshape(x, {r.count, r.channels, r.height, 1, r.width});
  const Value lowest = b.scalar(b.dtype(x), -kInf);
  Maxima m;
  const Value weight = chosen(b, pixels, r.rows(b, r.w.most), r.rows(b, r.w.least));
  m.by_width = b.where(r.rows(b, r.w.touched), b.times(pixels, weight), lowest);
  const Value best = b.reduce("max", m.by_width, {4}, false);
  m.of_row = b.unsqueeze(b.transpose(best, {0, 1, 3, 2}), 2);
  // A bin that reads no pixel of a row reads none of any row.
  const Value some = b.reduce("max", b.cast(r.w.touched, b.dtype(x)), {2}, false);
  const Value any = b.compare("gt", b.reshape(some, {r.count, 1, 1, r.bins_w, 1}), 0);
  const Value both = b.logical("and", r.columns(b, r.h.touched), any);
  const Value factor = chosen(b, m.of_row, r.columns(b, r.h.most), r.columns(b, r.h.least));
  m.by_height = b.where(both, b.times(m.of_row, factor), lowest);
  return m;
}

bool roi_align_lower(Lower& l, const op::roi_align& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  const Shape y = {b.shape(n.rois)[0], x.shape[1], n.output_height, n.output_width};
  if (y.elements() == 0) {
    l.out(0, b.zeros({x.dtype, y}));
    return true;
  }
  const Regions r = regions_of(b, n);
  const Value all = images(b, n);
  const Value zero = b.scalar(b.dtype(all), 0);
  if (!r.average) {
    const Value best = b.reduce("max", maxima(b, r, all).by_height, {4}, false);
    l.out(0, b.cast(b.where(r.zero, b.max(best, zero), best), x.dtype));
    return true;
  }
  // Pixels of weight 0 are left out, whatever they hold.
  const auto weighted = [&](Value v, Value weight) {
    return b.where(b.compare("ne", weight, 0), b.times(v, weight), zero);
  };
  const Value pixels = b.reshape(all, {r.count, r.channels, r.height, 1, r.width});
  const Value along = weighted(pixels, r.rows(b, r.w.most));
  const Value row = b.unsqueeze(b.transpose(b.sum(along, {4}, false), {0, 1, 3, 2}), 2);
  const Value down = weighted(row, r.columns(b, r.h.most));
  l.out(0, b.cast(b.over(b.sum(down, {4}, false), divisor(b, r)), x.dtype));
  return true;
}

// The gradient of one image per region, from that of row sums or row maxima, [R, C, bins_h, bins_w,
// height].
Value down_the_bins(Builder& b, const Regions& r, Value each) {
  const Value rows = b.transpose(b.sum(each, {2}, false), {0, 1, 3, 2});
  return b.reshape(rows, {r.count, r.channels, r.height, r.bins_w, 1});
}

// Of mode max: which candidate wins, and the weight of its pixel. Along w they are [R, C, height, bins_w,
// width], along h [R, C, bins_h, bins_w, height].
struct Routes {
  Value winner_w, weight_w, winner_h, weight_h;
  static Value along(Builder& b, Value v, Value winner, Value weight) {
    return b.where(winner, b.times(v, weight), b.scalar(b.dtype(v), 0));
  }
};
Routes routes_of(Builder& b, const Regions& r, Value all) {
  const Maxima m = maxima(b, r, all);
  const Value best = b.reduce("max", m.by_height, {4}, true);
  // A sample outside wins with 0 unless a pixel gives more.
  const Value lost = b.logical("and", b.unsqueeze(r.zero, 4), b.compare("le", best, 0));
  const auto winner = [&](Value candidates, int64_t count) {
    const Value at = b.add(op::argmax{.keepdims = true, .x = candidates});
    return b.compare("eq", at, b.iota({1, 1, 1, 1, count}, 4, b.dtype(at)));
  };
  const Value pixels = b.reshape(all, {r.count, r.channels, r.height, 1, r.width});
  return {winner(m.by_width, r.width), chosen(b, pixels, r.rows(b, r.w.most), r.rows(b, r.w.least)),
          b.logical("and", winner(m.by_height, r.height), b.logical("not", lost)),
          chosen(b, m.of_row, r.columns(b, r.h.most), r.columns(b, r.h.least))};
}

bool roi_align_backward_lower(Lower& l, const op::roi_align_backward& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  if (b.shape(n.dy).elements() == 0) {
    l.out(0, b.zeros(x));
    return true;
  }
  const Regions r = regions_of(b, n);
  const Value dy = b.widen(n.dy);
  Value each;  // [R, C, height, bins_w, width]
  if (r.average) {
    const Value share = b.unsqueeze(b.over(dy, divisor(b, r)), 4);
    const Value rows = down_the_bins(b, r, b.times(share, r.columns(b, r.h.most)));
    each = b.times(rows, r.rows(b, r.w.most));
  } else {
    const Routes to = routes_of(b, r, images(b, n));
    const Value down = Routes::along(b, b.unsqueeze(dy, 4), to.winner_h, to.weight_h);
    each = Routes::along(b, down_the_bins(b, r, down), to.winner_w, to.weight_w);
  }
  const Value updates = b.sum(each, {3}, false);
  const Value dx =
      b.add(op::scatter_add{.dim = x.shape[0], .updates = updates, .indices = n.batch_indices});
  l.out(0, b.cast(dx, x.dtype));
  return true;
}

// ---- gradient: of x alone. Regions are constants, as in other frameworks.

template <class To, class From>
To same_regions(const From& n) {
  To out{};
  out.mode = n.mode, out.coordinates = n.coordinates;
  out.output_height = n.output_height, out.output_width = n.output_width;
  out.sampling_ratio = n.sampling_ratio, out.spatial_scale = n.spatial_scale;
  out.rois = n.rois, out.batch_indices = n.batch_indices;
  return out;
}

void roi_align_grad(Grad& g, const op::roi_align& n) {
  if (!g.wants(n.x)) return;
  auto back = same_regions<op::roi_align_backward>(n);
  back.dy = g.dy(), back.x = n.x;
  g.give(n.x, g.b.add(back));
}

// The op is linear in dy. Its adjoint is the mean again, or reads the pixels that had won.
void roi_align_backward_grad(Grad& g, const op::roi_align_backward& n) {
  if (!g.wants(n.dy)) return;
  if (n.mode == "avg") {
    auto forward = same_regions<op::roi_align>(n);
    forward.x = g.dy();
    g.give(n.dy, g.b.add(forward));
    return;
  }
  Builder& b = g.b;
  const Type dy = b.type(n.dy);
  if (dy.shape.elements() == 0) {
    g.give(n.dy, b.zeros(dy));
    return;
  }
  const Regions r = regions_of(b, n);
  const Routes from = routes_of(b, r, images(b, n));
  const Value up = b.add(op::gather{.data = b.widen(g.dy()), .indices = n.batch_indices});
  const Value pixels = b.reshape(up, {r.count, r.channels, r.height, 1, r.width});
  const Value rows = b.sum(Routes::along(b, pixels, from.winner_w, from.weight_w), {4}, false);
  const Value column = b.unsqueeze(b.transpose(rows, {0, 1, 3, 2}), 2);
  const Value sums = b.sum(Routes::along(b, column, from.winner_h, from.weight_h), {4}, false);
  g.give(n.dy, b.cast(sums, dy.dtype));
}

template <class Op>
bool roi_padded(Padded& p, const Op& n) {
  if (!whole_images(p, n.x)) return false;
  p.index_counted(n.batch_indices, p.length(n.x, 0), p.type(n.x).shape[0], false);
  p.clamp_indices(n.batch_indices, p.type(n.x).shape[0]);
  if constexpr (requires { n.dy; }) p.fill_all(n.dy, Fill::zero);
  return true;
}

constexpr Record<op::roi_align> kRoiAlign{
    .shape = roi_align_shape,
    .words = {{"mode", kModes}, {"coordinates", kCoordinates}},
    .grad = roi_align_grad,
    .lower = roi_align_lower,
    .padded = roi_padded<op::roi_align>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::roi_align_backward> kRoiAlignBackward{
    .shape = roi_align_backward_shape,
    .words = {{"mode", kModes}, {"coordinates", kCoordinates}},
    .grad = roi_align_backward_grad,
    .lower = roi_align_backward_lower,
    .padded = roi_padded<op::roi_align_backward>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord roi_align_def = record<op::roi_align, kRoiAlign>();
constinit const OpRecord roi_align_backward_def =
    record<op::roi_align_backward, kRoiAlignBackward>();

}  // namespace tenon::core
