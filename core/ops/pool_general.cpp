// SPDX-License-Identifier: Apache-2.0
// pool: windows along one to three axes, of any kind, written as pools of images (specification,
// domain operators, section 5). Maxima and sums are taken along two axes, then along the third: of
// equal maxima, the first one in row-major order is the first of the first plane that has one.
#include <algorithm>
#include <limits>

#include "ops/conv.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kKinds = "max avg min sum prod";

// ---- shape

// Windows along one axis, as those of the 2d pools.
struct Line {
  int64_t kernel, stride, before, after, dilation, size;
  bool ceil_mode;
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  int64_t count() const {
    const int64_t room = size + before + after - extent();
    if (room < 0) return 0;
    const int64_t full = room / stride + 1;
    // No window may start in the padding at the end.
    return full + (ceil_mode && room % stride != 0 && full * stride < size + before);
  }
};

std::vector<Line> lines_of(const op::pool& n, const Shape& x) {
  std::vector<Line> lines;
  const size_t axes = static_cast<size_t>(x.rank() - kConvFirst);
  for (size_t k = 0; k < axes; ++k)
    lines.push_back({.kernel = n.kernel[k],
                     .stride = n.stride.empty() ? n.kernel[k] : n.stride[k],
                     .before = n.pads.empty() ? 0 : n.pads[k],
                     .after = n.pads.empty() ? 0 : n.pads[k + axes],
                     .dilation = n.dilation.empty() ? 1 : n.dilation[k],
                     .size = x[kConvFirst + static_cast<int>(k)],
                     .ceil_mode = n.ceil_mode});
  return lines;
}

void pool_shape(Infer& i, const op::pool& n) {
  want_number(i, n.x, "x");
  const size_t axes = static_cast<size_t>(want_image(i, n.x, "x"));
  if (n.kind == "avg" && is_integer(i.dtype(n.x)))
    i.fail(Code::unsupported, "operand x: averages of integers are not offered, got ",
           i.type(n.x).text());
  if (i.wanted(1) && n.kind != "max" && n.kind != "min")
    i.fail(Code::invalid_argument, "output indices: expected kind max or min, given ", n.kind);
  if (n.divisor_override < 0)
    i.fail(Code::invalid_argument, "attribute divisor_override: expected a number >= 0, given ",
           n.divisor_override);
  want_entries(i, "kernel", n.kernel, axes, 1);
  if (!n.stride.empty()) want_entries(i, "stride", n.stride, axes, 1);
  if (!n.pads.empty()) want_entries(i, "pads", n.pads, 2 * axes, 0);
  if (!n.dilation.empty()) want_entries(i, "dilation", n.dilation, axes, 1);
  const Shape& x = i.shape(n.x);
  Shape y{x[0], x[1]};
  for (size_t k = 0; const Line& w : lines_of(n, x)) {
    const size_t axis = k++;
    if (w.before >= w.extent() || w.after >= w.extent())
      i.fail(Code::invalid_argument, "attribute pads: expected less than the window's extent ",
             w.extent(), " on spatial axis ", axis, ", given ", text_of(n.pads));
    if (w.size < 1 || w.size > int64_t{1} << 48)
      i.fail(Code::invalid_argument, "expected 1 to 2^48 pixels on spatial axis ", axis, ", got ",
             w.size);
    if (w.count() < 1)
      i.fail(Code::shape_mismatch, "a window of extent ", w.extent(), " does not fit into ",
             w.size + w.before + w.after, " padded pixels on spatial axis ", axis);
    y.push(w.count());
  }
  y = sized(i, y);
  i.out(0, {i.dtype(n.x), y});
  i.out(1, {kI64, y});
}

// ---- decomposition

// Two lines as the attributes of a 2d pool.
template <class Op>
Op windows_of(const Line& h, const Line& w) {
  Op n{};
  n.kernel = {h.kernel, w.kernel}, n.stride = {h.stride, w.stride};
  n.pads = {h.before, w.before, h.after, w.after}, n.dilation = {h.dilation, w.dilation};
  n.ceil_mode = h.ceil_mode;
  return n;
}

// An axis of one window of one pixel each.
Line idle(int64_t size, bool ceil_mode) { return {1, 1, 0, 0, 1, size, ceil_mode}; }

struct Maxima {
  Value values, indices;  // indices: absent if they are not wanted
};

Maxima max_of_planes(Builder& b, Value x, const Line& h, const Line& w, bool indices) {
  auto n = windows_of<op::maxpool2d>(h, w);
  n.x = x, n.want_indices = indices;
  const Results y = b.add(n);
  return {y[0], indices ? y[1] : Value{}};
}

// x [N,C,spatial..]; lines: of the spatial axes.
Maxima maxima(Builder& b, Value x, const std::vector<Line>& lines, bool indices) {
  const Shape s = b.shape(x);
  if (lines.size() == 1) {
    const Maxima m = max_of_planes(b, b.reshape(x, {s[0], s[1], 1, s[2]}),
                                   idle(1, lines[0].ceil_mode), lines[0], indices);
    const Shape y{s[0], s[1], lines[0].count()};
    return {b.reshape(m.values, y), indices ? b.reshape(m.indices, y) : Value{}};
  }
  if (lines.size() == 2) return max_of_planes(b, x, lines[0], lines[1], indices);
  const int64_t depth = lines[0].count(), windows = lines[1].count() * lines[2].count();
  const Maxima inner =
      max_of_planes(b, b.reshape(x, {s[0], s[1] * s[2], s[3], s[4]}), lines[1], lines[2], indices);
  const Shape planes{s[0], s[1], s[2], windows};
  const Maxima outer = max_of_planes(b, b.reshape(inner.values, planes), lines[0],
                                     idle(windows, lines[0].ceil_mode), indices);
  const Shape y{s[0], s[1], depth, lines[1].count(), lines[2].count()};
  if (!indices) return {b.reshape(outer.values, y), {}};
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  const Value none = b.compare("lt", outer.indices, number(0));
  // The plane that has the maximum, and the position within it.
  const Value plane = b.where(none, number(0), b.over(outer.indices, number(windows)));
  const Value within = b.add(
      op::gather_elements{.axis = 2, .data = b.reshape(inner.indices, planes), .indices = plane});
  const Value at = b.plus(b.times(plane, number(s[3] * s[4])), within);
  const Value lost = b.logical("or", none, b.compare("lt", within, number(0)));
  return {b.reshape(outer.values, y), b.reshape(b.where(lost, number(-1), at), y)};
}

// Turns the order of the numbers around, and back.
Value turned(Builder& b, Value x) {
  const DType t = b.dtype(x);
  if (is_float(t)) return b.neg(x);
  const bool is_signed = t <= kI64;
  const uint64_t bits = tenon_dtype_bits(t);
  // Of signed integers -1 - x, of unsigned ones the greatest minus x: neither overflows.
  if (is_signed) return b.minus(b.scalar_int(t, -1), x);
  return b.minus(b.scalar_int(t, static_cast<int64_t>(~uint64_t{0} >> (64 - bits))), x);
}

// Taps [windows, taps] of all axes as positions in a plane, `pixels` for those outside.
Value tap_positions(Builder& b, const std::vector<Line>& lines, int64_t pixels) {
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  const int rank = static_cast<int>(lines.size());
  int64_t windows = 1, taps = 1;
  Value at, inside;
  for (int k = 0; k < rank; ++k) {
    const Line& w = lines[static_cast<size_t>(k)];
    Shape first = Shape(std::vector<Dim>(static_cast<size_t>(2 * rank), 1)), tap = first;
    first[k] = w.count(), tap[rank + k] = w.kernel;
    const Value place = b.plus(
        b.iota(first, k, kI64, static_cast<double>(-w.before), static_cast<double>(w.stride)),
        b.iota(tap, rank + k, kI64, 0, static_cast<double>(w.dilation)));
    const Value here =
        b.logical("and", b.compare("ge", place, number(0)), b.compare("lt", place, number(w.size)));
    at = at ? b.plus(b.times(at, number(w.size)), place) : place;
    inside = inside ? b.logical("and", inside, here) : here;
    windows *= w.count(), taps *= w.kernel;
  }
  return b.reshape(b.where(inside, at, number(pixels)), {windows, taps});
}

// Sums or products of integers, and products of floats, from gathered taps.
Value from_taps(Builder& b, Value x, const std::vector<Line>& lines, std::string_view kind) {
  const Shape s = b.shape(x);
  const DType t = b.dtype(x);
  int64_t pixels = 1;
  Shape y{s[0], s[1]};
  for (const Line& w : lines) pixels *= w.size, y.push(w.count());
  const Value at = tap_positions(b, lines, pixels);
  Value values = b.add(op::gather{.axis = 1,
                                  .oob = "skip",
                                  .data = b.reshape(b.widen(x), {s[0] * s[1], pixels}),
                                  .indices = at});
  if (kind == "prod") {
    const DType wide = b.dtype(values);
    const Value one = is_float(wide) ? b.scalar(wide, 1) : b.scalar_int(wide, 1);
    values = b.where(b.compare("lt", at, b.scalar_int(kI64, pixels)), values, one);
  }
  return b.reshape(b.cast(b.reduce(kind, values, {2}, false), t), y);
}

// In the accumulation dtype.
Value sums(Builder& b, Value x, const std::vector<Line>& lines) {
  const auto plane = [&](Value v, const Line& h, const Line& w) {
    auto n = windows_of<op::avgpool2d>(h, w);
    n.divisor_override = 1, n.x = v;
    return Value(b.add(n));
  };
  const Shape s = b.shape(x);
  const Value wide = b.widen(x);
  if (lines.size() == 1)
    return b.reshape(
        plane(b.reshape(wide, {s[0], s[1], 1, s[2]}), idle(1, lines[0].ceil_mode), lines[0]),
        {s[0], s[1], lines[0].count()});
  if (lines.size() == 2) return plane(wide, lines[0], lines[1]);
  const int64_t windows = lines[1].count() * lines[2].count();
  const Value inner = plane(b.reshape(wide, {s[0], s[1] * s[2], s[3], s[4]}), lines[1], lines[2]);
  const Value outer = plane(b.reshape(inner, {s[0], s[1], s[2], windows}), lines[0],
                            idle(windows, lines[0].ceil_mode));
  return b.reshape(outer, {s[0], s[1], lines[0].count(), lines[1].count(), lines[2].count()});
}

// What each window is divided by.
Value divisors(Builder& b, const op::pool& n, const std::vector<Line>& lines, DType dtype) {
  if (n.divisor_override > 0) return b.scalar(dtype, static_cast<double>(n.divisor_override));
  Value all;
  const int rank = static_cast<int>(lines.size());
  for (int k = 0; k < rank; ++k) {
    const Line& w = lines[static_cast<size_t>(k)];
    const int64_t begin = n.count_include_pad ? -w.before : 0;
    const int64_t end = w.size + (n.count_include_pad ? w.after : 0);
    const Value place = b.plus(b.iota({w.count(), 1}, 0, kI64, static_cast<double>(-w.before),
                                      static_cast<double>(w.stride)),
                               b.iota({1, w.kernel}, 1, kI64, 0, static_cast<double>(w.dilation)));
    const Value inside = b.logical("and", b.compare("ge", place, b.scalar_int(kI64, begin)),
                                   b.compare("lt", place, b.scalar_int(kI64, end)));
    Shape along = Shape(std::vector<Dim>(static_cast<size_t>(rank), 1));
    along[k] = w.count();
    const Value each = b.reshape(b.sum(b.cast(inside, dtype), {1}), along);
    all = all ? b.times(all, each) : each;
  }
  return b.max(all, b.scalar(dtype, 1));
}

bool pool_lower(Lower& l, const op::pool& n) {
  Builder& b = l.b;
  const Type x = b.type(n.x);
  const std::vector<Line> lines = lines_of(n, x.shape);
  if (n.kind == "max" || n.kind == "min") {
    const bool least = n.kind == "min";
    const Maxima m = maxima(b, least ? turned(b, n.x) : n.x, lines, l.wanted(1));
    l.out(0, least ? turned(b, m.values) : m.values);
    if (l.wanted(1)) l.out(1, m.indices);
    return true;
  }
  if (n.kind == "avg" && lines.size() == 2) {
    auto average = windows_of<op::avgpool2d>(lines[0], lines[1]);
    average.count_include_pad = n.count_include_pad, average.divisor_override = n.divisor_override;
    average.x = n.x;
    l.out(0, b.add(average));
  } else if (n.kind == "prod" || is_integer(x.dtype)) {
    l.out(0, from_taps(b, n.x, lines, n.kind));
  } else {
    Value y = sums(b, n.x, lines);
    if (n.kind == "avg") y = b.over(y, divisors(b, n, lines, b.dtype(y)));
    l.out(0, b.cast(y, x.dtype));
  }
  return true;
}

bool pool_batch(Batch& v, const op::pool& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}
bool pool_padded(Padded& p, const op::pool& n) {
  return p.any_from(n.x, 2) ? p.refuse("its images are padded") : true;
}

constexpr Record<op::pool> kPool{.shape = pool_shape,
                                 .words = {{"kind", kKinds}},
                                 .lower = pool_lower,
                                 .batch = pool_batch,
                                 .padded = pool_padded,
                                 .flops = no_products,
                                 .bytes = each_once};

}  // namespace

constinit const OpRecord pool_def = record<op::pool, kPool>();

}  // namespace tenon::core
