// SPDX-License-Identifier: Apache-2.0
// Records of the pool family: maxpool2d avgpool2d and their backward ops (specification, domain
// operators, section 5). Padding has no values: a window consists of the taps that are inside x.
#include <array>
#include <limits>

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

// Windows along one axis: window o has its taps at o·stride - before + k·dilation.
struct Line {
  int64_t kernel, stride, before, after, dilation, size, count;
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};

template <class Op>
Line line_of(const Op& n, size_t axis, int64_t size) {
  Line w{.kernel = n.kernel[axis],
         .stride = n.stride.empty() ? n.kernel[axis] : n.stride[axis],
         .before = n.pads.empty() ? 0 : n.pads[axis],
         .after = n.pads.empty() ? 0 : n.pads[axis + 2],
         .dilation = n.dilation.empty() ? 1 : n.dilation[axis],
         .size = size,
         .count = 0};
  const int64_t room = size + w.before + w.after - w.extent();
  if (room < 0) return w;
  w.count = room / w.stride + 1;
  // No window may start in the padding at the end.
  if (n.ceil_mode && room % w.stride != 0 && w.count * w.stride < size + w.before) ++w.count;
  return w;
}

template <class Op>
std::array<Line, 2> lines_of(const Op& n, int64_t height, int64_t width) {
  return {line_of(n, 0, height), line_of(n, 1, width)};
}

template <class Op>
std::array<Line, 2> want_lines(const Infer& i, const Op& n, int64_t height, int64_t width) {
  want_entries(i, "kernel", n.kernel, 2, 1);
  if (!n.stride.empty()) want_entries(i, "stride", n.stride, 2, 1);
  if (!n.pads.empty()) want_entries(i, "pads", n.pads, 4, 0);
  if (!n.dilation.empty()) want_entries(i, "dilation", n.dilation, 2, 1);
  const std::array<Line, 2> lines = lines_of(n, height, width);
  for (int k = 0; k < 2; ++k) {
    const Line& w = lines[static_cast<size_t>(k)];
    if (w.before >= w.extent() || w.after >= w.extent())
      i.fail(Code::invalid_argument, "attribute pads: expected less than the window's extent ",
             w.extent(), " on axis ", k + 2, ", given ", text_of(n.pads));
    if (w.size < 1)
      i.fail(Code::invalid_argument, "expected at least one pixel on axis ", k + 2, ", got ",
             w.size);
    if (w.count < 1)
      i.fail(Code::shape_mismatch, "a window of extent ", w.extent(), " does not fit into ",
             w.size + w.before + w.after, " padded pixels on axis ", k + 2);
  }
  return lines;
}

template <class Op>
Shape pooled(const Infer& i, const Op& n, Value x) {
  i.want_rank(x, "x", 4);
  const Shape& s = i.shape(x);
  const auto [h, w] = want_lines(i, n, s[2], s[3]);
  return sized(i, {s[0], s[1], h.count, w.count});
}

void maxpool2d_shape(Infer& i, const op::maxpool2d& n) {
  want_number(i, n.x, "x");
  const Shape y = pooled(i, n, n.x);
  i.out(0, {i.dtype(n.x), y});
  i.out(1, {kI64, y});
}

void maxpool2d_backward_shape(Infer& i, const op::maxpool2d_backward& n) {
  i.want_float(n.x, "x");
  i.want_same_dtype(n.x, "x", n.dy, "dy");
  i.want_shape(n.dy, "dy", pooled(i, n, n.x));
  i.out(0, i.type(n.x));
}

template <class Op>
void want_average(const Infer& i, const Op& n, Value v, std::string_view operand) {
  if (is_integer(i.dtype(v)))
    i.fail(Code::unsupported, "operand ", operand, ": averages of integers are not offered, got ",
           i.type(v).text());
  i.want_float(v, operand);
  if (n.divisor_override < 0)
    i.fail(Code::invalid_argument, "attribute divisor_override: expected a number >= 0, given ",
           n.divisor_override);
}

void avgpool2d_shape(Infer& i, const op::avgpool2d& n) {
  want_average(i, n, n.x, "x");
  i.out(0, {i.dtype(n.x), pooled(i, n, n.x)});
}

void avgpool2d_backward_shape(Infer& i, const op::avgpool2d_backward& n) {
  want_average(i, n, n.dy, "dy");
  i.want_rank(n.dy, "dy", 4);
  want_entries(i, "size", n.size, 2, 1);
  const auto [h, w] = want_lines(i, n, n.size[0], n.size[1]);
  const Shape& dy = i.shape(n.dy);
  i.want_shape(n.dy, "dy", {dy[0], dy[1], h.count, w.count});
  i.out(0, {i.dtype(n.dy), sized(i, {dy[0], dy[1], n.size[0], n.size[1]})});
}

// ---- decomposition: planes [N·C, H·W], windows [Ho·Wo], taps [Kh·Kw]

struct Taps {
  int64_t planes, pixels, windows, taps;
  Shape x, y;
  Value at;      // position in the plane; `pixels` for taps outside of it
  Value inside;  // the tap is inside
};

Value number(Builder& b, int64_t v) { return b.scalar_int(kI64, v); }

// [windows, taps] of one axis.
Value tap_positions(Builder& b, const Line& w) {
  const Value first =
      b.iota({w.count, 1}, 0, kI64, static_cast<double>(-w.before), static_cast<double>(w.stride));
  return b.plus(first, b.iota({1, w.kernel}, 1, kI64, 0, static_cast<double>(w.dilation)));
}
Value below(Builder& b, Value position, int64_t begin, int64_t end) {
  return b.logical("and", b.compare("ge", position, number(b, begin)),
                   b.compare("lt", position, number(b, end)));
}

Taps taps_of(Builder& b, const std::array<Line, 2>& lines, int64_t batch, int64_t channels) {
  const auto& [h, w] = lines;
  Taps t{.planes = batch * channels,
         .pixels = h.size * w.size,
         .windows = h.count * w.count,
         .taps = h.kernel * w.kernel,
         .x = {batch, channels, h.size, w.size},
         .y = {batch, channels, h.count, w.count},
         .at = {},
         .inside = {}};
  const Value row = b.reshape(tap_positions(b, h), {h.count, 1, h.kernel, 1});
  const Value column = b.reshape(tap_positions(b, w), {1, w.count, 1, w.kernel});
  const Value inside = b.logical("and", below(b, row, 0, h.size), below(b, column, 0, w.size));
  const Value at =
      b.where(inside, b.plus(b.times(row, number(b, w.size)), column), number(b, t.pixels));
  t.at = b.reshape(at, {t.windows, t.taps});
  t.inside = b.reshape(inside, {t.windows, t.taps});
  return t;
}

// [planes, windows, taps]; 0 for taps outside.
Value read_taps(Builder& b, const Taps& t, Value x) {
  return b.add(op::gather{
      .axis = 1, .oob = "skip", .data = b.reshape(x, {t.planes, t.pixels}), .indices = t.at});
}

Value lowest(Builder& b, DType t) {
  if (is_float(t)) return b.scalar(t, -std::numeric_limits<double>::infinity());
  const auto bits = static_cast<int>(tenon_dtype_bits(t));
  return b.scalar_int(t, t <= kI64 ? std::numeric_limits<int64_t>::min() >> (64 - bits) : 0);
}

struct Maxima {
  Value value;     // [planes, windows, 1]
  Value position;  // position in the plane; `pixels` for a window without taps
};

// Positions ascend with the taps, so the first of equal values has the smallest one. The last NaN
// wins over all values.
Maxima maxima(Builder& b, const Taps& t, Value x) {
  const DType dtype = b.dtype(x);
  const Value values = read_taps(b, t, x);
  const Value most = b.reduce("max", b.where(t.inside, values, lowest(b, dtype)), {2}, true);
  const Value hit = b.logical("and", t.inside, b.compare("eq", values, most));
  Value position = b.reduce("min", b.where(hit, t.at, number(b, t.pixels)), {2}, true);
  if (is_float(dtype)) {
    const Value nan = b.logical("and", t.inside, b.unary("is_nan", values));
    const Value last = b.reduce("max", b.where(nan, t.at, number(b, -1)), {2}, true);
    position = b.where(b.compare("ge", last, number(b, 0)), last, position);
  }
  return {most, position};
}

bool maxpool2d_lower(Lower& l, const op::maxpool2d& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.x);
  const Taps t = taps_of(b, lines_of(n, x[2], x[3]), x[0], x[1]);
  const Maxima m = maxima(b, t, n.x);
  l.out(0, b.reshape(m.value, t.y));
  if (!l.wanted(1)) return true;
  const Value none = b.compare("eq", m.position, number(b, t.pixels));
  l.out(1, b.reshape(b.where(none, number(b, -1), m.position), t.y));
  return true;
}

bool maxpool2d_backward_lower(Lower& l, const op::maxpool2d_backward& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.x);
  const Taps t = taps_of(b, lines_of(n, x[2], x[3]), x[0], x[1]);
  const Value position = maxima(b, t, n.x).position;
  const int64_t all = t.planes * t.pixels, count = t.planes * t.windows;
  const Value plane = b.iota({t.planes, 1, 1}, 0, kI64, 0, static_cast<double>(t.pixels));
  const Value none = b.compare("eq", position, number(b, t.pixels));
  const Value at = b.where(none, number(b, all), b.plus(position, plane));
  const Value dx = b.add(op::scatter_add{.dim = all,
                                         .oob = "skip",
                                         .updates = b.reshape(n.dy, {count}),
                                         .indices = b.reshape(at, {count})});
  l.out(0, b.reshape(dx, t.x));
  return true;
}

// The divisor of each window: [windows], or a scalar.
template <class Op>
Value divisors(Builder& b, const Op& n, const std::array<Line, 2>& lines, DType dtype) {
  if (n.divisor_override > 0) return b.scalar(dtype, static_cast<double>(n.divisor_override));
  const auto count = [&](const Line& w) {
    const int64_t begin = n.count_include_pad ? -w.before : 0;
    const int64_t end = w.size + (n.count_include_pad ? w.after : 0);
    return b.sum(b.cast(below(b, tap_positions(b, w), begin, end), dtype), {1});
  };
  const auto& [h, w] = lines;
  const Value counts = b.times(count(h), b.reshape(count(w), {1, w.count}));
  return b.reshape(b.max(counts, b.scalar(dtype, 1)), {h.count * w.count});
}

bool avgpool2d_lower(Lower& l, const op::avgpool2d& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  const auto lines = lines_of(n, x.shape[2], x.shape[3]);
  const Taps t = taps_of(b, lines, x.shape[0], x.shape[1]);
  const Value sums = b.sum(read_taps(b, t, b.widen(n.x)), {2}, false);
  const Value y = b.over(sums, divisors(b, n, lines, b.dtype(sums)));
  l.out(0, b.reshape(b.cast(y, x.dtype), t.y));
  return true;
}

bool avgpool2d_backward_lower(Lower& l, const op::avgpool2d_backward& n) {
  Builder& b = l.b;
  const Type dy = b.type(n.dy);
  const auto lines = lines_of(n, n.size[0], n.size[1]);
  const Taps t = taps_of(b, lines, dy.shape[0], dy.shape[1]);
  const Value wide = b.reshape(b.widen(n.dy), {t.planes, t.windows});
  const Value each = b.over(wide, divisors(b, n, lines, b.dtype(wide)));
  const Value updates =
      b.expand(b.reshape(each, {t.planes, t.windows, 1}), {t.planes, t.windows, t.taps});
  const Value dx = b.add(op::scatter_add{
      .axis = 1, .dim = t.pixels, .oob = "skip", .updates = updates, .indices = t.at});
  l.out(0, b.reshape(b.cast(dx, dy.dtype), t.x));
  return true;
}

// ---- gradient

template <class To, class From>
To same_windows(const From& n) {
  To out{};
  out.kernel = n.kernel, out.stride = n.stride, out.pads = n.pads, out.dilation = n.dilation;
  out.ceil_mode = n.ceil_mode;
  if constexpr (requires { out.divisor_override; }) {
    out.count_include_pad = n.count_include_pad;
    out.divisor_override = n.divisor_override;
  }
  return out;
}

void maxpool2d_grad(Grad& g, const op::maxpool2d& n) {
  if (!g.wants(n.x) || !g.dy(0)) return;
  auto back = same_windows<op::maxpool2d_backward>(n);
  back.dy = g.dy(0), back.x = n.x;
  g.give(n.x, g.b.add(back));
}

void avgpool2d_grad(Grad& g, const op::avgpool2d& n) {
  if (!g.wants(n.x)) return;
  auto back = same_windows<op::avgpool2d_backward>(n);
  back.size = {g.b.shape(n.x)[2], g.b.shape(n.x)[3]};
  back.dy = g.dy();
  g.give(n.x, g.b.add(back));
}

// The op is linear, so its adjoint is the average itself.
void avgpool2d_backward_grad(Grad& g, const op::avgpool2d_backward& n) {
  if (!g.wants(n.dy)) return;
  auto forward = same_windows<op::avgpool2d>(n);
  forward.x = g.dy();
  g.give(n.dy, g.b.add(forward));
}

// The batch joins N.
template <class Op>
bool pool_batch(Batch& v, const Op& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}

template <class Op>
bool pool_padded(Padded& p, const Op& n) {
  Value images;
  if constexpr (requires { n.x; })
    images = n.x;
  else
    images = n.dy;
  return p.any_from(images, 2) ? p.refuse("its images are padded") : true;
}

constexpr Record<op::maxpool2d> kMaxpool2d{.shape = maxpool2d_shape,
                                           .grad = maxpool2d_grad,
                                           .lower = maxpool2d_lower,
                                           .batch = pool_batch<op::maxpool2d>,
                                           .padded = pool_padded<op::maxpool2d>,
                                           .flops = no_products,
                                           .bytes = each_once};
constexpr Record<op::maxpool2d_backward> kMaxpool2dBackward{
    .shape = maxpool2d_backward_shape,
    .lower = maxpool2d_backward_lower,
    .batch = pool_batch<op::maxpool2d_backward>,
    .padded = pool_padded<op::maxpool2d_backward>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::avgpool2d> kAvgpool2d{.shape = avgpool2d_shape,
                                           .grad = avgpool2d_grad,
                                           .lower = avgpool2d_lower,
                                           .batch = pool_batch<op::avgpool2d>,
                                           .padded = pool_padded<op::avgpool2d>,
                                           .flops = no_products,
                                           .bytes = each_once};
constexpr Record<op::avgpool2d_backward> kAvgpool2dBackward{
    .shape = avgpool2d_backward_shape,
    .grad = avgpool2d_backward_grad,
    .lower = avgpool2d_backward_lower,
    .batch = pool_batch<op::avgpool2d_backward>,
    .padded = pool_padded<op::avgpool2d_backward>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord maxpool2d_def = record<op::maxpool2d, kMaxpool2d>();
constinit const OpRecord maxpool2d_backward_def =
    record<op::maxpool2d_backward, kMaxpool2dBackward>();
constinit const OpRecord avgpool2d_def = record<op::avgpool2d, kAvgpool2d>();
constinit const OpRecord avgpool2d_backward_def =
    record<op::avgpool2d_backward, kAvgpool2dBackward>();

}  // namespace tenon::core
