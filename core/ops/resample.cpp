// SPDX-License-Identifier: Apache-2.0
// Records of the resample family: resize resize_backward (specification, domain operators, section
// 7, with all of ONNX's Resize). Positions and weights: tenon/resize_taps.hpp.
#include "ops/resample.hpp"

#include <algorithm>
#include <cmath>

#include "base/number.hpp"
#include "ops/table.hpp"
#include "tenon/resize_taps.hpp"

namespace tenon::core {
namespace {

// ---- shape

template <class Op>
void want_resize_attributes(const Infer& i, const Op& n, int axes) {
  const auto count = static_cast<size_t>(axes);
  if (n.sizes.empty() == n.scales.empty())
    i.fail(Code::invalid_argument, "expected one of the attributes sizes and scales, given ",
           n.sizes.empty() ? "none" : "both");
  const size_t given = n.sizes.empty() ? n.scales.size() : n.sizes.size();
  if (given != count)
    i.fail(Code::invalid_argument, "attribute ", n.sizes.empty() ? "scales" : "sizes",
           ": expected one entry per spatial axis, ", count, ", given ", given);
  for (const int64_t size : n.sizes)
    if (size < 1 || size > kMaxResizeDim)
      i.fail(Code::invalid_argument, "attribute sizes: expected numbers from 1 to 2^30, given ",
             text_of(n.sizes));
  for (const double scale : n.scales)
    if (!(scale > 0) || !std::isfinite(scale))
      i.fail(Code::invalid_argument, "attribute scales: expected finite numbers > 0, given ",
             scale);
  if (n.coordinates == "tf_crop_and_resize" ? n.roi.size() != 2 * count : !n.roi.empty())
    i.fail(Code::invalid_argument, "attribute roi: expected ",
           n.coordinates == "tf_crop_and_resize"
               ? cat("a start and an end per spatial axis, ", 2 * count, " numbers")
               : cat("none with coordinates ", n.coordinates),
           ", given ", n.roi.size());
  for (const double v : n.roi)
    if (!std::isfinite(v))
      i.fail(Code::invalid_argument, "attribute roi: expected finite numbers, given ", v);
  if (!std::isfinite(n.cubic_a))
    i.fail(Code::invalid_argument, "attribute cubic_a: expected a finite number, given ",
           n.cubic_a);
  if (n.antialias && n.mode == "nearest")
    i.fail(Code::invalid_argument,
           "attribute antialias: expected mode linear or cubic, given nearest");
}

// One output dim, for `in` pixels.
template <class Op>
Dim resized(const Infer& i, const Op& n, size_t k, int64_t in) {
  if (in > kMaxResizeDim)
    i.fail(Code::unsupported, "expected at most 2^30 pixels on axis ", k + 2, ", got ", in);
  if (!n.sizes.empty()) return n.sizes[k];
  const double out = scaled_dim(in, n.scales[k]);
  if (!(out >= 1 && out <= static_cast<double>(kMaxResizeDim)))
    i.fail(Code::invalid_argument, "attribute scales: expected 1 to 2^30 pixels on axis ", k + 2,
           ", got ", in, " times ", n.scales[k]);
  return static_cast<Dim>(out);
}

void resize_shape(Infer& i, const op::resize& n) {
  if (n.mode != "nearest")
    i.want_float(n.x, "x");
  else if (i.dtype(n.x) != kBool)
    want_number(i, n.x, "x");
  want_images(i, n.x, "x", 1, 3);
  const Shape& x = i.shape(n.x);
  want_resize_attributes(i, n, x.rank() - 2);
  Shape y = {x[0], x[1]};
  for (int k = 2; k < x.rank(); ++k) y.push(resized(i, n, static_cast<size_t>(k - 2), x[k]));
  i.out(0, {i.dtype(n.x), sized(i, y)});
}

void resize_backward_shape(Infer& i, const op::resize_backward& n) {
  i.want_float(n.dy, "dy");
  want_images(i, n.dy, "dy", 1, 3);
  const Shape& dy = i.shape(n.dy);
  want_resize_attributes(i, n, dy.rank() - 2);
  if (n.size.size() != static_cast<size_t>(dy.rank() - 2))
    i.fail(Code::invalid_argument, "attribute size: expected one entry per spatial axis, ",
           dy.rank() - 2, ", given ", text_of(n.size));
  Shape dx = {dy[0], dy[1]}, y = dx;
  for (size_t k = 0; k < n.size.size(); ++k) {
    if (n.size[k] < 1)
      i.fail(Code::invalid_argument, "attribute size: expected numbers >= 1, given ",
             text_of(n.size));
    dx.push(n.size[k]);
    y.push(resized(i, n, k, n.size[k]));
  }
  i.want_shape(n.dy, "dy", y);
  i.out(0, {i.dtype(n.dy), sized(i, dx)});
}

// ---- decomposition: one axis after the other

// Weights of all rows, [rows, width]; 0 behind the taps of a row.
Value weight_table(Builder& b, DType dtype, const ResizeTaps& t, int64_t width) {
  const size_t each = tenon_dtype_bits(dtype) / 8;
  auto data = std::make_shared<Bytes>(static_cast<size_t>(t.rows() * width) * each);
  for (int64_t o = 0; o < t.rows(); ++o) {
    const auto r = static_cast<size_t>(o);
    for (int64_t k = t.begin[r]; k < t.begin[r + 1]; ++k)
      store_number(dtype, data->data() + static_cast<size_t>(o * width + k - t.begin[r]) * each,
                   t.weight[static_cast<size_t>(k)]);
  }
  return b.graph.constant({dtype, {t.rows(), width}}, std::move(data));
}

// Their pixels; `none`, which is out of range, behind the taps of a row.
Value index_table(Builder& b, const ResizeTaps& t, int64_t width, int64_t none) {
  Ints all(static_cast<size_t>(t.rows() * width), none);
  for (int64_t o = 0; o < t.rows(); ++o) {
    const auto r = static_cast<size_t>(o);
    std::copy(t.index.begin() + t.begin[r], t.index.begin() + t.begin[r + 1],
              all.begin() + o * width);
  }
  return b.reshape(b.ints(kI64, all), {t.rows(), width});
}

// A table per row and tap, as an operand that broadcasts over axes `axis` and `axis + 1`.
Value beside(Builder& b, Value table, int rank, int axis) {
  Shape to = b.shape(table);
  for (int k = axis + 1; k < rank; ++k) to.push(1);
  return b.reshape(table, to);
}

// y[o] = sum of weight · x[index] over the taps of o.
Value gather_taps(Builder& b, Value x, int axis, const ResizeTaps& t) {
  const Shape from = b.shape(x);
  const int64_t in = from[axis], width = t.most();
  Shape to = from;
  to[axis] = t.rows();
  if (width == 0) return b.zeros({b.dtype(x), to});
  if (width == 1) {
    const Value at = b.reshape(index_table(b, t, 1, in), {t.rows()});
    const Value y = b.add(op::gather{.axis = axis, .oob = "skip", .data = x, .indices = at});
    const bool ones = std::ranges::all_of(t.weight, [](double w) { return w == 1; });
    if (ones) return y;
    const Value weight = b.reshape(weight_table(b, b.dtype(x), t, 1), {t.rows()});
    return b.times(y, beside(b, weight, from.rank(), axis));
  }
  const Value taps = b.add(
      op::gather{.axis = axis, .oob = "skip", .data = x, .indices = index_table(b, t, width, in)});
  const Value weight = beside(b, weight_table(b, b.dtype(x), t, width), from.rank(), axis);
  return b.sum(b.times(taps, weight), {axis + 1}, false);
}

// x[index] += weight · y[o]: the adjoint of gather_taps by the same tables.
Value scatter_taps(Builder& b, Value y, int axis, const ResizeTaps& t, int64_t in) {
  const Shape from = b.shape(y);
  const int64_t width = t.most();
  const Value weight = beside(b, weight_table(b, b.dtype(y), t, width), from.rank(), axis);
  return b.add(op::scatter_add{.axis = axis,
                               .dim = in,
                               .oob = "skip",
                               .updates = b.times(b.unsqueeze(y, axis + 1), weight),
                               .indices = index_table(b, t, width, in)});
}

struct Line {
  int axis;
  int64_t in, out;
};
// The axes that shrink come first, so that later ones have less to do.
template <class Op>
std::vector<Line> lines_of(const Op& n, const Shape& x) {
  std::vector<Line> lines;
  for (int k = 2; k < x.rank(); ++k)
    lines.push_back({k, x[k], resize_axis(n, static_cast<size_t>(k - 2), x[k]).out});
  std::ranges::stable_sort(lines, [](Line a, Line b) {
    return double(a.out) / double(a.in) < double(b.out) / double(b.in);
  });
  return lines;
}
template <class Op>
ResizeTaps taps_of(const Op& n, const Line& line) {
  return resize_taps(n, resize_axis(n, static_cast<size_t>(line.axis - 2), line.in));
}

bool resize_lower(Lower& l, const op::resize& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  Shape to = {x.shape[0], x.shape[1]};
  const std::vector<Line> lines = lines_of(n, x.shape);
  for (int k = 2; k < x.shape.rank(); ++k)
    to.push(resize_axis(n, static_cast<size_t>(k - 2), x.shape[k]).out);
  if (to.elements() == 0) {
    l.out(0, b.zeros({x.dtype, to}));
    return true;
  }
  const bool sums = n.mode != "nearest";
  Value y = sums ? b.widen(n.x) : n.x, outside;
  for (const Line& line : lines) {
    const ResizeTaps taps = taps_of(n, line);
    if (taps.identity(line.in)) continue;
    y = gather_taps(b, y, line.axis, taps);
    if (taps.outside.empty()) continue;
    const Value here =
        b.compare("ne",
                  beside(b, b.ints(kI64, Ints(taps.outside.begin(), taps.outside.end())), to.rank(),
                         line.axis),
                  b.scalar_int(kI64, 0));
    outside = outside ? b.logical("or", outside, here) : here;
  }
  if (outside) y = b.where(outside, b.scalar(b.dtype(y), n.extrapolation_value), y);
  l.out(0, b.cast(y, x.dtype));
  return true;
}

bool resize_backward_lower(Lower& l, const op::resize_backward& n) {
  Builder& b = l.b;
  const Type dy = b.type(n.dy);
  Shape x = {dy.shape[0], dy.shape[1]};
  for (const int64_t size : n.size) x.push(size);
  if (x.elements() == 0) {
    l.out(0, b.zeros({dy.dtype, x}));
    return true;
  }
  Value dx = b.widen(n.dy);
  std::vector<Line> lines = lines_of(n, x);
  std::ranges::reverse(lines);
  for (const Line& line : lines) {
    const ResizeTaps taps = taps_of(n, line);
    if (taps.identity(line.in)) continue;
    const ResizeTaps back = transposed(taps, line.in);
    // Where many outputs read one pixel, a table with a row per pixel is mostly empty.
    const bool uneven = back.most() * line.in > 8 * (line.in + line.out);
    dx = uneven && taps.count() > 0 ? scatter_taps(b, dx, line.axis, taps, line.in)
                                    : gather_taps(b, dx, line.axis, back);
  }
  l.out(0, b.cast(dx, dy.dtype));
  return true;
}

// ---- gradient

template <class To, class From>
To same_attributes(const From& n) {
  To out{};
  out.mode = n.mode, out.coordinates = n.coordinates, out.nearest_mode = n.nearest_mode;
  out.cubic_a = n.cubic_a, out.exclude_outside = n.exclude_outside, out.antialias = n.antialias;
  out.sizes = n.sizes, out.scales = n.scales, out.roi = n.roi;
  return out;
}

void resize_grad(Grad& g, const op::resize& n) {
  if (!g.wants(n.x)) return;
  auto back = same_attributes<op::resize_backward>(n);
  const Shape x = g.b.shape(n.x);
  for (int k = 2; k < x.rank(); ++k) back.size.push_back(x[k]);
  back.dy = g.dy();
  g.give(n.x, g.b.add(back));
}

// The op is linear, so its adjoint is the forward op without the constant of extrapolation.
void resize_backward_grad(Grad& g, const op::resize_backward& n) {
  if (!g.wants(n.dy)) return;
  auto forward = same_attributes<op::resize>(n);
  forward.x = g.dy();
  g.give(n.dy, g.b.add(forward));
}

// The batch joins N.
template <class Op>
bool resize_batch(Batch& v, const Op& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}

bool resize_padded(Padded& p, const op::resize& n) { return whole_images(p, n.x); }
bool resize_backward_padded(Padded& p, const op::resize_backward& n) {
  return whole_images(p, n.dy);
}

constexpr std::string_view kModes = "nearest linear cubic";
constexpr std::string_view kCoordinates =
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners "
    "asymmetric tf_crop_and_resize";
constexpr std::string_view kNearestModes = "round_prefer_floor round_prefer_ceil floor ceil";

constexpr Record<op::resize> kResize{
    .shape = resize_shape,
    .words = {{"mode", kModes}, {"coordinates", kCoordinates}, {"nearest_mode", kNearestModes}},
    .grad = resize_grad,
    .lower = resize_lower,
    .batch = resize_batch<op::resize>,
    .padded = resize_padded,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::resize_backward> kResizeBackward{
    .shape = resize_backward_shape,
    .words = {{"mode", kModes}, {"coordinates", kCoordinates}, {"nearest_mode", kNearestModes}},
    .grad = resize_backward_grad,
    .lower = resize_backward_lower,
    .batch = resize_batch<op::resize_backward>,
    .padded = resize_backward_padded,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord resize_def = record<op::resize, kResize>();
constinit const OpRecord resize_backward_def = record<op::resize_backward, kResizeBackward>();

}  // namespace tenon::core
