// SPDX-License-Identifier: Apache-2.0
// Records of fft, rfft and irfft: specification 10.1 and 10.2. The decomposition of a transform is
// in fft_parts.cpp, stft and istft are in fft_frames.cpp.
#include "ops/fft.hpp"

#include <cmath>

#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {

double norm_factor(const std::string& norm, bool inverse, int64_t n) {
  const auto count = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(count);
  return (norm == "forward") != inverse ? 1 / count : 1;
}

std::string other_norm(const std::string& norm) {
  return norm == "ortho" ? norm : norm == "forward" ? "backward" : "forward";
}

Value with_length(Builder& b, Value x, int axis, int64_t length) {
  const int64_t dim = b.shape(x)[axis];
  if (length <= dim) return b.narrow(x, axis, 0, length);
  return pad_axis(b, x, axis, 0, length - dim);
}

void fill_zeros(Padded& p, Value x, int axis) {
  if (!p.along(x, axis)) return;
  const DType t = p.type(x).dtype;
  if (is_float(t)) return p.fill(x, axis, Fill::zero);
  Builder& b = p.b;
  const Value zero = b.scalar(sdk::part_dtype(t), 0);
  p.put(x, b.as_complex(p.filled(b.as_real(p.value(x)), p.length(x, axis), axis, zero)));
}

double transform_flops(double points, double rows) {
  return 5 * rows * points * std::log2(std::max(points, 2.0));
}

namespace {

constexpr std::string_view kNorms = "backward ortho forward";

// ---- fft

// The axes from 0 on, and the length of each.
struct Axes {
  std::vector<int> axes;
  Ints lengths;
};
Axes axes_of(const op::fft& n, const Shape& shape) {
  Axes out;
  for (size_t k = 0; k < std::max<size_t>(n.axes.size(), 1); ++k) {
    const int64_t axis = n.axes.empty() ? -1 : n.axes[k];
    out.axes.push_back(static_cast<int>(axis < 0 ? axis + shape.rank() : axis));
    out.lengths.push_back(n.n.empty() ? shape[out.axes.back()] : n.n[k]);
  }
  return out;
}

void fft_shape(Infer& i, const op::fft& n) {
  i.want_complex(n.x, "x");
  want_ranked(i, n.x, "x");
  Shape shape = i.shape(n.x);
  for (const int64_t axis : n.axes) i.axis(axis, shape.rank());
  const size_t count = std::max<size_t>(n.axes.size(), 1);
  if (!n.n.empty() && n.n.size() != count)
    i.fail(Code::invalid_argument, "attribute n: expected one entry per axis, ", count, ", given ",
           text_of(n.n));
  const Axes a = axes_of(n, shape);
  std::vector<bool> seen(static_cast<size_t>(shape.rank()));
  for (size_t k = 0; k < count; ++k) {
    if (seen[static_cast<size_t>(a.axes[k])])
      i.fail(Code::invalid_argument, "attribute axes: axis ", a.axes[k], " is there twice");
    seen[static_cast<size_t>(a.axes[k])] = true;
    want_points(i, n.n.empty() ? cat("operand x: axis ", a.axes[k]) : "attribute n", a.lengths[k]);
    shape[a.axes[k]] = a.lengths[k];
  }
  i.out(0, {i.dtype(n.x), sized(i, shape)});
}

void fft_grad(Grad& g, const op::fft& n) {
  if (!g.wants(n.x)) return;
  Builder& b = g.b;
  op::fft back{.axes = n.axes, .norm = other_norm(n.norm), .inverse = !n.inverse, .x = g.dy()};
  Value dx = b.add(back);
  const Shape shape = b.shape(n.x);
  for (const int axis : axes_of(n, shape).axes) dx = with_length(b, dx, axis, shape[axis]);
  g.give(n.x, dx);
}

bool fft_lower(Lower& l, const op::fft& n) {
  Builder& b = l.b;
  const Shape shape = b.shape(n.x);
  const Axes a = axes_of(n, shape);
  const int last = shape.rank() - 1;
  if (a.axes.size() == 1 && a.axes[0] == last && a.lengths[0] == shape[last]) {
    l.out(0, transformed(b, n.x, n.inverse, norm_factor(n.norm, n.inverse, shape[last])));
    return true;
  }
  Value y = n.x;
  for (size_t k = 0; k < a.axes.size(); ++k)
    y = along_last(b, with_length(b, y, a.axes[k], a.lengths[k]), a.axes[k], [&](Value v) {
      return b.add(op::fft{.norm = n.norm, .inverse = n.inverse, .x = v});
    });
  l.out(0, y);
  return true;
}

bool fft_batch(Batch& v, const op::fft& one) {
  op::fft n = one;
  n.axes = Batch::axes(n.axes);
  return v.add_all(n);
}

bool fft_padded(Padded& p, const op::fft& n) {
  for (size_t k = 0; k < std::max<size_t>(n.axes.size(), 1); ++k) {
    const int64_t axis = n.axes.empty() ? -1 : n.axes[k];
    if (!p.along(n.x, axis)) continue;
    if (n.n.empty()) return p.refuse("it transforms a padded axis");
    fill_zeros(p, n.x, static_cast<int>(axis < 0 ? axis + p.rank(n.x) : axis));
  }
  return true;
}

double fft_flops(const Cost& c, const op::fft& n) {
  const Shape& shape = c.shape(c.out(0));
  double flops = 0;
  for (const int axis : axes_of(n, c.shape(n.x)).axes) {
    const auto points = static_cast<double>(shape[axis]);
    flops += transform_flops(points, c.elements(c.out(0)) / points);
  }
  return flops;
}

constexpr Record<op::fft> kFft{.shape = fft_shape,
                               .words = {{"norm", kNorms}},
                               .grad = fft_grad,
                               .lower = fft_lower,
                               .batch = fft_batch,
                               .padded = fft_padded,
                               .flops = fft_flops,
                               .bytes = each_once};

// ---- rfft irfft

// 1 at the first and the last bin of an even length, `others` elsewhere: those stand for two bins.
Value bin_weights(Builder& b, DType t, int64_t n, double others) {
  const int64_t bins = n / 2 + 1;
  const Value at = b.iota({bins}, 0, kI64);
  Value single = b.compare("eq", at, 0);
  if (n % 2 == 0) single = b.logical("or", single, b.compare("eq", at, static_cast<double>(n / 2)));
  const Value w = b.where(single, b.scalar(t, 1), b.scalar(t, others));
  return b.reshape(w, {bins, 1});
}
Value weighted(Builder& b, Value bins, int64_t n, double others) {
  const Value pairs = b.as_real(bins);
  return b.as_complex(b.times(pairs, bin_weights(b, b.dtype(pairs), n, others)));
}

int64_t length_of(const op::rfft& n, int64_t dim) { return n.n == 0 ? dim : n.n; }
int64_t length_of(const op::irfft& n, int64_t dim) { return n.n == 0 ? 2 * (dim - 1) : n.n; }

template <class Op>
void real_shape(Infer& i, const Op& n, bool to_bins) {
  want_ranked(i, n.x, "x");
  Shape shape = i.shape(n.x);
  const int axis = i.axis(n.axis, shape.rank());
  if (n.n < 0) i.fail(Code::invalid_argument, "attribute n: expected 0 or more, given ", n.n);
  if (shape[axis] < 1)
    i.fail(Code::invalid_argument, "operand x: axis ", axis, ": expected a length from 1 on, got ",
           i.type(n.x).text());
  const int64_t length = length_of(n, shape[axis]);
  const std::string what = n.n != 0  ? "attribute n"
                           : to_bins ? cat("operand x: axis ", axis)
                                     : "attribute n, by default 2 (bins - 1)";
  want_points(i, what, length);
  shape[axis] = to_bins ? length / 2 + 1 : length;
  const DType t = i.dtype(n.x);
  i.out(0, {to_bins ? sdk::complex_dtype(t) : sdk::part_dtype(t), sized(i, shape)});
}

void rfft_shape(Infer& i, const op::rfft& n) {
  want_real(i, n.x);
  real_shape(i, n, true);
}
void irfft_shape(Infer& i, const op::irfft& n) {
  i.want_complex(n.x, "x");
  real_shape(i, n, false);
}

// The derivative works along the last axis, where the weights of the bins are.
template <class Op, class F>
void real_grad(Grad& g, const Op& n, F&& f) {
  if (!g.wants(n.x)) return;
  Builder& b = g.b;
  const Shape shape = b.shape(n.x);
  const int axis = normalize_axis(n.axis, shape.rank(), Op::kName);
  const int64_t length = length_of(n, shape[axis]);
  const Value dx = along_last(b, g.dy(), axis, [&](Value dy) { return f(b, dy, length); });
  g.give(n.x, with_length(b, dx, axis, shape[axis]));
}

void rfft_grad(Grad& g, const op::rfft& n) {
  real_grad(g, n, [&](Builder& b, Value dy, int64_t length) -> Value {
    return b.add(
        op::irfft{.n = length, .norm = other_norm(n.norm), .x = weighted(b, dy, length, 0.5)});
  });
}
void irfft_grad(Grad& g, const op::irfft& n) {
  real_grad(g, n, [&](Builder& b, Value dy, int64_t length) -> Value {
    return weighted(b, b.add(op::rfft{.norm = other_norm(n.norm), .x = dy}), length, 2);
  });
}

bool rfft_lower(Lower& l, const op::rfft& n) {
  Builder& b = l.b;
  const Shape shape = b.shape(n.x);
  const int last = shape.rank() - 1, axis = normalize_axis(n.axis, shape.rank(), "rfft");
  const int64_t length = length_of(n, shape[axis]);
  if (axis == last && length == shape[axis]) {
    const Value x = b.cast(n.x, sdk::complex_dtype(b.dtype(n.x)));
    const Value y = b.add(op::fft{.norm = n.norm, .x = x});
    l.out(0, b.narrow(y, last, 0, length / 2 + 1));
    return true;
  }
  l.out(0, along_last(b, with_length(b, n.x, axis, length), axis,
                      [&](Value v) { return b.add(op::rfft{.norm = n.norm, .x = v}); }));
  return true;
}

bool irfft_lower(Lower& l, const op::irfft& n) {
  Builder& b = l.b;
  const Shape shape = b.shape(n.x);
  const int last = shape.rank() - 1, axis = normalize_axis(n.axis, shape.rank(), "irfft");
  const int64_t length = length_of(n, shape[axis]), bins = length / 2 + 1;
  if (axis == last && bins == shape[axis]) {
    const Value x = with_length(b, weighted(b, n.x, length, 2), last, length);
    l.out(0, b.part(b.add(op::fft{.norm = n.norm, .inverse = true, .x = x}), 0));
    return true;
  }
  l.out(0, along_last(b, with_length(b, n.x, axis, bins), axis, [&](Value v) {
          return b.add(op::irfft{.n = length, .norm = n.norm, .x = v});
        }));
  return true;
}

template <class Op>
double real_flops(const Cost& c, const Op& n) {
  const Shape& shape = c.shape(n.x);
  const int axis = normalize_axis(n.axis, shape.rank(), Op::kName);
  const double rows = c.elements(n.x) / std::max(1.0, static_cast<double>(shape[axis]));
  return transform_flops(static_cast<double>(length_of(n, shape[axis])), rows) / 2;
}

template <class Op>
bool real_padded(Padded& p, const Op& n) {
  if (!p.along(n.x, n.axis)) return true;
  if (n.n == 0) return p.refuse("it transforms a padded axis");
  fill_zeros(p, n.x, static_cast<int>(n.axis < 0 ? n.axis + p.rank(n.x) : n.axis));
  return true;
}

constexpr Record<op::rfft> kRfft{.shape = rfft_shape,
                                 .words = {{"norm", kNorms}},
                                 .grad = rfft_grad,
                                 .lower = rfft_lower,
                                 .batch = batch_along_axis<op::rfft>,
                                 .padded = real_padded<op::rfft>,
                                 .flops = real_flops<op::rfft>,
                                 .bytes = each_once};
constexpr Record<op::irfft> kIrfft{.shape = irfft_shape,
                                   .words = {{"norm", kNorms}},
                                   .grad = irfft_grad,
                                   .lower = irfft_lower,
                                   .batch = batch_along_axis<op::irfft>,
                                   .padded = real_padded<op::irfft>,
                                   .flops = real_flops<op::irfft>,
                                   .bytes = each_once};

}  // namespace

constinit const OpRecord fft_def = record<op::fft, kFft>();
constinit const OpRecord rfft_def = record<op::rfft, kRfft>();
constinit const OpRecord irfft_def = record<op::irfft, kIrfft>();

}  // namespace tenon::core
