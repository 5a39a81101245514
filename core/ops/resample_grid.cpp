// SPDX-License-Identifier: Apache-2.0
// Records of the resample family: grid_sample grid_sample_backward. Positions far outside and NaN
// become pixels inside, or taps that count nothing, before they are converted to indices.
#include "ops/resample.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kModes = "nearest linear cubic";
constexpr std::string_view kPaddings = "zeros border reflection";

// ---- shape

// The shape of y.
template <class Op>
Shape sampled(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  i.want_float(n.grid, "grid");
  if (i.dtype(n.grid) != i.dtype(n.x) && i.dtype(n.grid) != kF32)
    i.fail(Code::dtype_mismatch, "operand grid: expected ", dtype_name(i.dtype(n.x)),
           " as operand x, or f32, got ", i.type(n.grid).text());
  want_images(i, n.x, "x", 2, 3);
  const Shape &x = i.shape(n.x), &grid = i.shape(n.grid);
  i.want_rank(n.grid, "grid", x.rank());
  if (grid[0] != x[0] || grid[x.rank() - 1] != x.rank() - 2)
    i.fail(Code::shape_mismatch, "operand grid: expected ", x[0], " images and ", x.rank() - 2,
           " coordinates on the last axis, got ", i.type(n.grid).text());
  Shape y = {x[0], x[1]};
  for (int k = 1; k + 1 < grid.rank(); ++k) y.push(grid[k]);
  return sized(i, y);
}

void grid_sample_shape(Infer& i, const op::grid_sample& n) {
  i.out(0, {i.dtype(n.x), sampled(i, n)});
}

void grid_sample_backward_shape(Infer& i, const op::grid_sample_backward& n) {
  const Shape y = sampled(i, n);
  i.want_same_dtype(n.x, "x", n.dy, "dy");
  i.want_shape(n.dy, "dy", y);
  i.out(0, i.type(n.x));
  i.out(1, i.type(n.grid));
}

// ---- decomposition: rows [N·pixels, C] of x, positions [N, points], taps along each axis

// [N, points] positions along one axis of x, as pixels, and the derivative by the coordinate.
struct Positions {
  Value at, slope;
};

Value less(Builder& b, Value v, double than) { return b.compare("lt", v, than); }

// Repeats the axis mirrored at its ends. NaN and infinities become the lower end.
Positions reflected(Builder& b, const Positions& p, double low, double span) {
  if (span == 0) return {b.zeros(b.type(p.at)), b.zeros(b.type(p.slope))};
  const Value from_low = b.minus(p.at, low), far = b.unary("abs", from_low);
  const Value rest = b.binary("fmod", far, span);
  const Value flips = b.unary("round", b.over(b.minus(far, rest), span));
  const Value even = less(b, b.binary("fmod", flips, 2), 1);
  const Value inside =
      b.where(even, b.plus(rest, low), b.minus(b.scalar(b.dtype(rest), span + low), rest));
  const Value rises = b.compare("eq", less(b, from_low, 0), b.logical("not", even));
  return {b.where(b.compare("ge", inside, low), inside, b.scalar(b.dtype(inside), low)),
          b.where(rises, p.slope, b.neg(p.slope))};
}

// The nearest position of a pixel. NaN becomes the first one.
Positions clipped(Builder& b, const Positions& p, double last) {
  const DType t = b.dtype(p.at);
  const Value above = b.compare("gt", p.at, 0), below = less(b, p.at, last);
  const Value at = b.where(above, b.where(below, p.at, b.scalar(t, last)), b.scalar(t, 0));
  return {at, b.where(b.logical("and", above, below), p.slope, b.scalar(t, 0))};
}

// What is read along one axis: all are [N, points, taps].
struct AxisTaps {
  Value index;   // i64, in [0, size)
  Value inside;  // bool: the tap counts
  Value weight;  // 0 outside
  Value slope;   // derivative of the weight by the coordinate of the grid; 0 outside
  int64_t taps = 1;
};

// The cubic filter with a = -0.75 at distances 1 + r, r, 1 - r, 2 - r, and its derivatives by r.
constexpr double kCubic = -0.75;
Value near_cubic(Builder& b, Value r) {
  return b.plus(b.times(b.times(r, r), b.minus(b.times(r, kCubic + 2), kCubic + 3)), 1);
}
Value far_cubic(Builder& b, Value r) {
  const Value inner = b.plus(b.times(b.minus(b.times(r, kCubic), 5 * kCubic), r), 8 * kCubic);
  return b.minus(b.times(inner, r), 4 * kCubic);
}
Value near_slope(Builder& b, Value r) {
  return b.times(r, b.minus(b.times(r, 3 * (kCubic + 2)), 2 * (kCubic + 3)));
}
Value far_slope(Builder& b, Value r) {
  return b.plus(b.times(r, b.minus(b.times(r, 3 * kCubic), 10 * kCubic)), 8 * kCubic);
}

template <class Op>
AxisTaps taps_of(Builder& b, const Op& n, Value coordinate, int64_t size) {
  const DType t = b.dtype(coordinate);
  const auto length = static_cast<double>(size);
  const double last = length - 1, half = (n.align_corners ? last : length) / 2;
  const double low = n.align_corners ? 0 : -0.5, span = n.align_corners ? last : length;
  const Shape points = b.shape(coordinate);  // [N, points]
  const Shape stacked = {points[0], points[1], 1};
  Positions p{.at = n.align_corners ? b.times(b.plus(coordinate, 1), half)
                                    : b.over(b.minus(b.times(b.plus(coordinate, 1), length), 1), 2),
              .slope = b.full({t, points}, half)};
  const bool cubic = n.mode == "cubic";
  if (n.padding == "reflection") p = reflected(b, p, low, span);
  if (n.padding != "zeros" && !cubic) p = clipped(b, p, last);
  // Beyond these positions, a cubic filter reads nothing but the edge.
  if (n.padding == "border" && cubic) {
    const Positions moved = clipped(b, {b.plus(p.at, 2), p.slope}, last + 4);
    p = {b.minus(moved.at, 2), moved.slope};
  }
  AxisTaps out;
  out.taps = n.mode == "nearest" ? 1 : cubic ? 4 : 2;
  const Value first = b.unary(n.mode == "nearest" ? "round" : "floor", p.at);
  const Value r = b.minus(p.at, first);
  const Value one_less = b.minus(b.scalar(t, 1), r);
  std::vector<Value> weights, slopes;
  if (n.mode == "nearest") {
    weights = {b.full({t, points}, 1)};
    slopes = {b.full({t, points}, 0)};
  } else if (!cubic) {
    weights = {one_less, r};
    slopes = {b.neg(p.slope), p.slope};
  } else {
    weights = {far_cubic(b, b.plus(r, 1)), near_cubic(b, r), near_cubic(b, one_less),
               far_cubic(b, b.plus(one_less, 1))};
    slopes = {far_slope(b, b.plus(r, 1)), near_slope(b, r), b.neg(near_slope(b, one_less)),
              b.neg(far_slope(b, b.plus(one_less, 1)))};
    for (Value& s : slopes) s = b.times(s, p.slope);
  }
  const auto stack = [&](std::vector<Value> parts) {
    for (Value& v : parts) v = b.reshape(v, stacked);
    return b.concat(std::move(parts), 2);
  };
  Value at = b.plus(b.reshape(first, stacked), b.iota({1, 1, out.taps}, 2, t, cubic ? -1 : 0));
  if (cubic && n.padding == "reflection") at = reflected(b, {at, at}, low, span).at;
  if (cubic && n.padding != "zeros") at = clipped(b, {at, at}, last).at;
  const Value zero = b.scalar(t, 0);
  out.inside = b.logical("and", b.compare("ge", at, 0), b.compare("le", at, last));
  out.index = b.cast(b.where(out.inside, at, zero), kI64);
  out.weight = b.where(out.inside, stack(std::move(weights)), zero);
  out.slope = b.where(out.inside, stack(std::move(slopes)), zero);
  return out;
}

// All taps of a node: [N, points, taps].
struct GridTaps {
  int64_t images = 0, channels = 0, pixels = 0, points = 0, taps = 1;
  std::vector<AxisTaps> axes;  // from the first spatial axis of x
  Value index;                 // rows of x; out of range for taps outside

  // A list of the taps of one axis, as an operand that broadcasts to the taps of all.
  Value spread(Builder& b, Value v, size_t axis) const {
    Shape to = {images, points};
    for (size_t k = 0; k < axes.size(); ++k) to.push(k == axis ? axes[k].taps : 1);
    return b.reshape(v, to);
  }
  // The product over axes: weights, except for one axis that has slopes.
  Value weights(Builder& b, size_t slope_of = SIZE_MAX) const {
    Value all;
    for (size_t k = 0; k < axes.size(); ++k) {
      const Value one = spread(b, k == slope_of ? axes[k].slope : axes[k].weight, k);
      all = all ? b.times(all, one) : one;
    }
    return b.reshape(all, {images, points, taps});
  }
};

template <class Op>
GridTaps grid_taps(Builder& b, const Op& n) {
  const Shape x = b.shape(n.x), grid = b.shape(n.grid);
  const int axes = x.rank() - 2;
  GridTaps t;
  t.images = x[0], t.channels = x[1], t.pixels = product_of(x, 2, x.rank());
  t.points = product_of(grid, 1, axes + 1);
  const Value flat = b.reshape(b.cast(n.grid, acc_dtype(b.dtype(n.x))), {t.images, t.points, axes});
  for (int k = 0; k < axes; ++k) {
    // The last axis of x has the first coordinate.
    const Value one = b.reshape(b.narrow(flat, 2, axes - 1 - k, 1), {t.images, t.points});
    t.axes.push_back(taps_of(b, n, one, x[k + 2]));
    t.taps *= t.axes.back().taps;
  }
  Shape image(std::span<const Dim>{});
  image.push(t.images);
  for (int k = 0; k <= axes; ++k) image.push(1);
  Value at = b.iota(image, 0, kI64, 0, static_cast<double>(t.pixels)), inside;
  for (int k = 0; k < axes; ++k) {
    const auto a = static_cast<size_t>(k);
    const Value stride = b.scalar_int(kI64, product_of(x, k + 3, x.rank()));
    at = b.plus(at, b.times(t.spread(b, t.axes[a].index, a), stride));
    const Value here = t.spread(b, t.axes[a].inside, a);
    inside = inside ? b.logical("and", inside, here) : here;
  }
  t.index = b.reshape(b.where(inside, at, b.scalar_int(kI64, t.images * t.pixels)),
                      {t.images, t.points, t.taps});
  return t;
}

// [N, C, ...] as [N·..., C] in the accumulation dtype, and back.
Value channels_last(Builder& b, Value x, int64_t images, int64_t channels, int64_t pixels) {
  const Value planes = b.reshape(b.widen(x), {images, channels, pixels});
  return b.reshape(b.transpose(planes, {0, 2, 1}), {images * pixels, channels});
}
Value channels_first(Builder& b, Value rows, Type to, int64_t pixels) {
  const Value images = b.reshape(rows, {to.shape[0], pixels, to.shape[1]});
  return b.cast(b.reshape(b.transpose(images, {0, 2, 1}), to.shape), to.dtype);
}
// [N, points, taps, C]
Value read_taps(Builder& b, const GridTaps& t, Value x, Value index) {
  return b.add(op::gather{.oob = "skip",
                          .data = channels_last(b, x, t.images, t.channels, t.pixels),
                          .indices = index});
}
// The rows that have a weight: of others, NaN and infinities reach no result.
Value weighted_rows(Builder& b, const GridTaps& t, Value weights) {
  const Value none = b.scalar_int(kI64, t.images * t.pixels);
  return b.where(b.compare("ne", weights, 0), t.index, none);
}

Shape sampled_shape(const Shape& x, const Shape& grid) {
  Shape y = {x[0], x[1]};
  for (int k = 1; k + 1 < grid.rank(); ++k) y.push(grid[k]);
  return y;
}

bool grid_sample_lower(Lower& l, const op::grid_sample& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  const Shape y = sampled_shape(x.shape, b.shape(n.grid));
  if (y.elements() == 0) {
    l.out(0, b.zeros({x.dtype, y}));
    return true;
  }
  const GridTaps t = grid_taps(b, n);
  const Value weights = t.weights(b);
  const Value read = read_taps(b, t, n.x, weighted_rows(b, t, weights));
  const Value sums = b.sum(b.times(read, b.unsqueeze(weights, 3)), {2}, false);
  l.out(0, channels_first(b, sums, {x.dtype, y}, t.points));
  return true;
}

bool grid_sample_backward_lower(Lower& l, const op::grid_sample_backward& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x), grid = b.type(n.grid);
  if (b.shape(n.dy).elements() == 0) {
    l.out(0, b.zeros(x));
    l.out(1, b.zeros(grid));
    return true;
  }
  const GridTaps t = grid_taps(b, n);
  const Value dy = b.reshape(channels_last(b, n.dy, t.images, t.channels, t.points),
                             {t.images, t.points, 1, t.channels});
  if (l.wanted(0)) {
    const Value weights = t.weights(b);
    const Value rows = b.add(op::scatter_add{.dim = t.images * t.pixels,
                                             .oob = "skip",
                                             .updates = b.times(dy, b.unsqueeze(weights, 3)),
                                             .indices = weighted_rows(b, t, weights)});
    l.out(0, channels_first(b, rows, x, t.pixels));
  }
  if (!l.wanted(1)) return true;
  if (n.mode == "nearest") {
    l.out(1, b.zeros(grid));
    return true;
  }
  const Value change = b.sum(b.times(read_taps(b, t, n.x, t.index), dy), {3}, false);
  std::vector<Value> parts;
  for (size_t k = t.axes.size(); k-- > 0;)
    parts.push_back(b.sum(b.times(change, t.weights(b, k)), {2}));
  l.out(1, b.cast(b.reshape(b.concat(std::move(parts), 2), grid.shape), grid.dtype));
  return true;
}

// ---- gradient

void grid_sample_grad(Grad& g, const op::grid_sample& n) {
  const bool image = g.wants(n.x), grid = g.wants(n.grid);
  if (!image && !grid) return;
  const Results back = g.b.add(op::grid_sample_backward{.mode = n.mode,
                                                        .padding = n.padding,
                                                        .align_corners = n.align_corners,
                                                        .dy = g.dy(),
                                                        .x = n.x,
                                                        .grid = n.grid,
                                                        .want_dx = image,
                                                        .want_dgrid = grid});
  if (image) g.give(n.x, back[0]);
  if (grid) g.give(n.grid, back[1]);
}

template <class Op>
bool grid_batch(Batch& v, const Op& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}

// Each point reads its image by itself. Padded points and channels add nothing to gradients.
bool grid_sample_padded(Padded& p, const op::grid_sample& n) { return whole_images(p, n.x); }
bool grid_sample_backward_padded(Padded& p, const op::grid_sample_backward& n) {
  if (!whole_images(p, n.x)) return false;
  p.fill_all(n.dy, Fill::zero);
  p.fill_all(n.x, Fill::zero, 1);
  return true;
}

constexpr Record<op::grid_sample> kGridSample{.shape = grid_sample_shape,
                                              .words = {{"mode", kModes}, {"padding", kPaddings}},
                                              .grad = grid_sample_grad,
                                              .lower = grid_sample_lower,
                                              .batch = grid_batch<op::grid_sample>,
                                              .padded = grid_sample_padded,
                                              .flops = no_products,
                                              .bytes = each_once};
constexpr Record<op::grid_sample_backward> kGridSampleBackward{
    .shape = grid_sample_backward_shape,
    .words = {{"mode", kModes}, {"padding", kPaddings}},
    .lower = grid_sample_backward_lower,
    .batch = grid_batch<op::grid_sample_backward>,
    .padded = grid_sample_backward_padded,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord grid_sample_def = record<op::grid_sample, kGridSample>();
constinit const OpRecord grid_sample_backward_def =
    record<op::grid_sample_backward, kGridSampleBackward>();

}  // namespace tenon::core
