// SPDX-License-Identifier: Apache-2.0
// Rules: pools, and windows in general.
#include <cmath>

#include "import/onnx/helpers.hpp"
#include "import/onnx/window.hpp"

namespace tenon::core::onnx {

Window window_of(const Call& c, const Ints& spatial, Ints kernel) {
  const size_t axes = spatial.size();
  const auto entries = [&](std::string_view name, size_t count, int64_t otherwise, int64_t least) {
    Ints list = c.has_attr(name) ? c.is(name) : Ints(count, otherwise);
    if (list.size() != count)
      c.wrong("attribute ", name, ": expected ", count, " numbers, got ", list.size());
    for (const int64_t v : list)
      if (v < least || v > (int64_t{1} << 31))
        c.wrong("attribute ", name, ": expected numbers from ", least, " on, got ", v);
    return list;
  };
  for (const int64_t d : spatial)
    if (d < 0 || d > (int64_t{1} << 31)) c.refuse("spatial dims: expected at most 2^31, got ", d);
  if (kernel.size() != axes) c.wrong("expected a kernel of ", axes, " axes, got ", kernel.size());
  for (const int64_t k : kernel)
    if (k < 1 || k > (int64_t{1} << 31)) c.wrong("expected a kernel of numbers from 1 on, got ", k);
  Window w{.kernel = std::move(kernel),
           .stride = entries("strides", axes, 1, 1),
           .before = Ints(axes, 0),
           .after = Ints(axes, 0),
           .dilation = entries("dilations", axes, 1, 1),
           .ceil_mode = c.flag("ceil_mode", false)};
  const std::string how = c.s("auto_pad", "NOTSET");
  if (how == "NOTSET") {
    const Ints pads = entries("pads", 2 * axes, 0, 0);
    for (size_t k = 0; k < axes; ++k) w.before[k] = pads[k], w.after[k] = pads[k + axes];
  } else if (how == "SAME_UPPER" || how == "SAME_LOWER") {
    for (size_t k = 0; k < axes; ++k) {
      const int64_t count = (spatial[k] + w.stride[k] - 1) / w.stride[k];
      const int64_t extent = w.dilation[k] * (w.kernel[k] - 1) + 1;
      const int64_t all = std::max<int64_t>(0, (count - 1) * w.stride[k] + extent - spatial[k]);
      w.before[k] = how == "SAME_UPPER" ? all / 2 : all - all / 2;
      w.after[k] = all - w.before[k];
    }
  } else if (how != "VALID") {
    c.wrong("attribute auto_pad: expected NOTSET, SAME_UPPER, SAME_LOWER or VALID, got '", how,
            "'");
  }
  return w;
}

namespace {

Ints kernel_shape(const Call& c) {
  if (!c.has_attr("kernel_shape")) c.wrong("attribute kernel_shape is required");
  return c.is("kernel_shape");
}

Window pool_window(const Call& c) {
  if (c.rank(0) > 5) c.refuse("pools over ", c.rank(0) - 2, " axes");
  if (c.rank(0) < 3) c.wrong("input 0: expected [N, C, spatial..], got ", c.type(0).text());
  return window_of(c, spatial_dims(c.shape(0)), kernel_shape(c));
}

// Windows of two axes have ops of their own, and those of one axis are windows of a plane of width 1.
struct Plane {
  Value x;
  Window w;
  bool line;
};
bool is_plane(const Window& w) { return w.axes() <= 2; }
Plane plane_of(Call& c, Value x, Window w) {
  if (w.axes() == 2) return {x, std::move(w), false};
  for (Ints* list : {&w.kernel, &w.stride, &w.dilation}) list->resize(2, 1);
  for (Ints* list : {&w.before, &w.after}) list->resize(2, 0);
  return {c.b.unsqueeze(x, 3), std::move(w), true};
}
Value back(Call& c, const Plane& p, Value y) {
  if (!p.line) return y;
  const Shape s = c.b.shape(y);
  return c.b.reshape(y, {s[0], s[1], s[2]});
}

op::pool pool_of(const Window& w, std::string kind, Value x) {
  return {.kind = std::move(kind),
          .kernel = w.kernel,
          .stride = w.stride,
          .pads = w.pads(),
          .dilation = w.dilation,
          .ceil_mode = w.ceil_mode,
          .x = x};
}

// The largest elements, and where they are: in row-major order of the spatial axes.
std::pair<Value, Value> largest(Call& c, const Window& w) {
  if (!is_plane(w)) {
    op::pool n = pool_of(w, "max", c.value(0));
    n.want_indices = c.wants(1);
    const Results y = c.b.add(n);
    return {y[0], y[1]};
  }
  const Plane p = plane_of(c, c.value(0), w);
  const Results y = c.b.add(op::maxpool2d{.kernel = p.w.kernel,
                                          .stride = p.w.stride,
                                          .pads = p.w.pads(),
                                          .dilation = p.w.dilation,
                                          .ceil_mode = p.w.ceil_mode,
                                          .x = p.x,
                                          .want_indices = c.wants(1)});
  return {back(c, p, y[0]), c.wants(1) ? back(c, p, y[1]) : Value{}};
}

void max_pool(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  auto [y, at] = largest(c, pool_window(c));
  c.out(0, y);
  if (!c.wants(1)) return;
  // In ONNX, places count through the whole tensor; storage_order 1 counts columns first.
  const Ints spatial = spatial_dims(s);
  const int64_t plane = count_of(spatial);
  if (c.i("storage_order", 0) == 1) {
    if (spatial.size() > 2) c.refuse("attribute storage_order of 1 with ", spatial.size(), " axes");
    if (spatial.size() == 2) {
      const Value width = b.scalar_int(kI64, spatial[1]), height = b.scalar_int(kI64, spatial[0]);
      at = b.plus(b.times(b.binary("mod", at, width), height), b.over(at, width));
    }
  }
  Shape planes{s[0], s[1]};
  for (size_t k = 0; k < spatial.size(); ++k) planes.push(1);
  const Value first =
      b.reshape(b.iota({s[0] * s[1]}, 0, kI64, 0, static_cast<double>(plane)), planes);
  c.out(1, b.plus(at, first));
}

Value averages(Call& c, Value x, const Window& w, bool count_pads, int64_t divisor) {
  if (!is_plane(w)) {
    op::pool n = pool_of(w, "avg", x);
    n.count_include_pad = count_pads;
    n.divisor_override = divisor;
    return c.b.add(n);
  }
  const Plane p = plane_of(c, x, w);
  return back(c, p,
              c.b.add(op::avgpool2d{.kernel = p.w.kernel,
                                    .stride = p.w.stride,
                                    .pads = p.w.pads(),
                                    .dilation = p.w.dilation,
                                    .ceil_mode = p.w.ceil_mode,
                                    .count_include_pad = count_pads,
                                    .divisor_override = divisor,
                                    .x = p.x}));
}

void average_pool(Call& c) {
  c.out(averages(c, c.value(0), pool_window(c), c.flag("count_include_pad", false), 0));
}

// (sum of |x|^p)^(1/p)
Value root(Builder& b, Value sums, double p) {
  return p == 1 ? sums : p == 2 ? b.unary("sqrt", sums) : b.binary("pow", sums, 1 / p);
}
Value powers(Builder& b, Value x, double p) {
  const Value a = b.unary("abs", x);
  return p == 1 ? a : p == 2 ? b.times(a, a) : b.binary("pow", a, p);
}
double exponent(const Call& c) {
  const int64_t p = c.i("p", 2);
  if (p < 1) c.wrong("attribute p: expected a number from 1 on, got ", p);
  return static_cast<double>(p);
}

void lp_pool(Call& c) {
  const double p = exponent(c);
  const Value sums = averages(c, powers(c.b, c.value(0), p), pool_window(c), false, 1);
  c.out(root(c.b, sums, p));
}

template <Kind kind>
void global_pool(Call& c) {
  const int rank = c.rank(0);
  if (rank < 3) c.wrong("input 0: expected [N, C, spatial..], got ", c.type(0).text());
  c.out(c.b.reduce(std::string_view(kind), c.value(0), iota_list(rank - 2, 2), true));
}

void global_lp_pool(Call& c) {
  const double p = exponent(c);
  const int rank = c.rank(0);
  c.out(root(c.b, c.b.sum(powers(c.b, c.value(0), p), iota_list(rank - 2, 2)), p));
}

// Puts elements back to the places that MaxPool gave.
void max_unpool(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() < 3) c.wrong("input 0: expected [N, C, spatial..], got ", s.text());
  const Window w = window_of(c, spatial_dims(s), kernel_shape(c));
  Shape to{s[0], s[1]};
  for (size_t k = 0; k < w.axes(); ++k)
    to.push((s[static_cast<int>(k) + 2] - 1) * w.stride[k] - w.before[k] - w.after[k] +
            w.kernel[k]);
  const int64_t count = s.elements();
  const Value flat = b.add(op::scatter{.base = b.zeros({b.dtype(c.value(0)), {to.elements()}}),
                                       .indices = b.reshape(b.cast(c.value(1), kI64), {count}),
                                       .updates = b.reshape(c.value(0), {count})});
  const Value y = b.reshape(flat, to);
  if (!c.has(2)) return c.out(y);
  // Places count in the shape above. A larger result gets zeros at the ends.
  const Ints given = c.sane(c.ints(2, "output_shape"), "output_shape");
  if (given.size() != static_cast<size_t>(s.rank()))
    c.wrong("output_shape: expected ", s.rank(), " numbers, got ", given.size());
  Ints after;
  for (int k = 0; k < s.rank(); ++k) after.push_back(given[static_cast<size_t>(k)] - to[k]);
  c.out(b.add(op::pad{.before = Ints(after.size(), 0), .after = after, .x = y}));
}

constexpr Rule kRules[] = {
    {"MaxPool", 1, max_pool},
    {"AveragePool", 7, average_pool},
    {"LpPool", 2, lp_pool},
    {"GlobalMaxPool", 1, global_pool<"max">},
    {"GlobalAveragePool", 1, global_pool<"mean">},
    {"GlobalLpPool", 2, global_lp_pool},
    {"MaxUnpool", 9, max_unpool},
};

}  // namespace

std::span<const Rule> pool_rules() { return kRules; }

}  // namespace tenon::core::onnx
