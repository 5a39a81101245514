// SPDX-License-Identifier: Apache-2.0
// Records of fft_conv1d, fftfreq and fftshift: specification 10.2. A convolution is a product of
// transforms, of a length at which nothing wraps around.
#include <algorithm>
#include <cmath>

#include "ops/fft.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- fft_conv1d

int64_t last_dim(const Shape& s) { return s[s.rank() - 1]; }

// The elements of the full convolution that a mode keeps.
struct Kept {
  int64_t start = 0, length = 0;
};
Kept kept(const std::string& mode, int64_t x, int64_t w) {
  if (mode == "same") return {(w - 1) / 2, x};
  if (mode == "valid") return {std::min(x, w) - 1, std::max(x, w) - std::min(x, w) + 1};
  return {0, x + w - 1};
}

// Returns the smallest length >= points whose prime factors are 2, 3 and 5. All devices are fast at
// such lengths.
int64_t fast_length(int64_t points) {
  int64_t best = 1;
  while (best < points) best *= 2;
  for (int64_t fives = 1; fives < best; fives *= 5)
    for (int64_t odd = fives; odd < best; odd *= 3) {
      int64_t n = odd;
      while (n < points) n *= 2;
      best = std::min(best, n);
    }
  return best;
}

void fft_conv1d_shape(Infer& i, const op::fft_conv1d& n) {
  const DType t = i.dtype(n.x);
  if (!is_complex(t)) want_real(i, n.x);
  i.want_same_dtype(n.x, "x", n.w, "w");
  want_ranked(i, n.x, "x");
  want_ranked(i, n.w, "w");
  const Shape &x = i.shape(n.x), &w = i.shape(n.w);
  for (const auto& [name, v] : {std::pair{"x", n.x}, std::pair{"w", n.w}})
    want_points(i, cat("operand ", name, ": last axis"), last_dim(i.shape(v)));
  want_points(i, "operands x and w: length of the full convolution", last_dim(x) + last_dim(w) - 1);
  Shape x_batch, w_batch;
  for (int k = 0; k + 1 < x.rank(); ++k) x_batch.push(x[k]);
  for (int k = 0; k + 1 < w.rank(); ++k) w_batch.push(w[k]);
  Shape y = broadcast(x_batch, w_batch, cat(i.who(), ": batch dims of operands x and w"));
  y.push(kept(n.mode, last_dim(x), last_dim(w)).length);
  i.out(0, {t, sized(i, y)});
}

// The gradient for an operand is the correlation of the full dy with the other operand. That is the
// convolution with the other operand reversed, where both overlap wholly.
void fft_conv1d_grad(Grad& g, const op::fft_conv1d& n) {
  Builder& b = g.b;
  const Shape x = b.shape(n.x), w = b.shape(n.w);
  const Kept part = kept(n.mode, last_dim(x), last_dim(w));
  Value dy;
  const auto give = [&](Value to, Value other) {
    if (!g.wants(to)) return;
    if (!dy) {
      const int last = b.shape(g.dy()).rank() - 1;
      const int64_t full = last_dim(x) + last_dim(w) - 1;
      dy = pad_axis(b, g.dy(), last, part.start, full - part.start - part.length);
    }
    const Shape s = b.shape(other);
    const int64_t length = last_dim(s);
    Value reversed = b.narrow(other, s.rank() - 1, length - 1, length, -1);
    if (is_complex(b.dtype(other))) reversed = b.conj(reversed);
    const Value d = b.add(op::fft_conv1d{.mode = "valid", .x = dy, .w = reversed});
    g.give(to, b.sum_to(d, b.shape(to)));
  };
  give(n.x, n.w);
  give(n.w, n.x);
}

bool fft_conv1d_lower(Lower& l, const op::fft_conv1d& n) {
  Builder& b = l.b;
  const int64_t x = last_dim(b.shape(n.x)), w = last_dim(b.shape(n.w));
  const int64_t points = fast_length(x + w - 1);
  const bool complex = is_complex(b.dtype(n.x));
  const auto bins = [&](Value v) -> Value {
    if (complex) return b.add(op::fft{.n = {points}, .x = v});
    return b.add(op::rfft{.n = points, .x = v});
  };
  const Value product = b.times(bins(n.x), bins(n.w));
  const Value y = complex ? Value(b.add(op::fft{.inverse = true, .x = product}))
                          : Value(b.add(op::irfft{.n = points, .x = product}));
  const Kept part = kept(n.mode, x, w);
  l.out(0, b.narrow(y, b.shape(y).rank() - 1, part.start, part.length));
  return true;
}

// Padding becomes zeros, which add nothing. The first element that is kept must not depend on how
// much of an operand is padding.
bool fft_conv1d_padded(Padded& p, const op::fft_conv1d& n) {
  const bool x = p.along(n.x, -1), w = p.along(n.w, -1);
  if (!x && !w) return true;
  if (n.mode == "valid" || (n.mode == "same" && w))
    return p.refuse("the part that it keeps depends on a padded axis");
  if (x) fill_zeros(p, n.x, p.rank(n.x) - 1);
  if (w) fill_zeros(p, n.w, p.rank(n.w) - 1);
  return true;
}

double fft_conv1d_flops(const Cost& c, const op::fft_conv1d& n) {
  const double x = c.dim(n.x, 0), w = c.dim(n.w, 0), y = c.dim(c.out(0), 0);
  const auto points = static_cast<double>(fast_length(static_cast<int64_t>(x + w) - 1));
  const double rows = c.elements(n.x) / x + c.elements(n.w) / w + c.elements(c.out(0)) / y;
  return transform_flops(points, rows) / (is_complex(c.dtype(n.x)) ? 1 : 2);
}

constexpr Record<op::fft_conv1d> kConv1d{.shape = fft_conv1d_shape,
                                         .words = {{"mode", "full same valid"}},
                                         .grad = fft_conv1d_grad,
                                         .lower = fft_conv1d_lower,
                                         .batch = batch_aligned<op::fft_conv1d>,
                                         .padded = fft_conv1d_padded,
                                         .flops = fft_conv1d_flops,
                                         .bytes = each_once};

// ---- fftfreq

void fftfreq_shape(Infer& i, const op::fftfreq& n) {
  want_points(i, "attribute n", n.n);
  if (!std::isfinite(n.d) || n.d == 0)
    i.fail(Code::invalid_argument, "attribute d: expected a finite number other than 0, given ",
           n.d);
  if (!is_float(n.dtype))
    i.fail(Code::dtype_mismatch, "attribute dtype: expected f32, f16, bf16 or f64, given ",
           dtype_name(n.dtype));
  i.out(0, {n.dtype, {n.onesided ? n.n / 2 + 1 : n.n}});
}

bool fftfreq_lower(Lower& l, const op::fftfreq& n) {
  const int64_t count = n.onesided ? n.n / 2 + 1 : n.n;
  std::vector<double> y(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    const int64_t bin = n.onesided || k < (n.n + 1) / 2 ? k : k - n.n;
    y[static_cast<size_t>(k)] = static_cast<double>(bin) / (static_cast<double>(n.n) * n.d);
  }
  l.out(0, constant_of(l.b, n.dtype, {count}, y));
  return true;
}

constexpr Record<op::fftfreq> kFreq{.shape = fftfreq_shape,
                                    .words = {{"dtype", "f32 f16 bf16 f64"}},
                                    .lower = fftfreq_lower,
                                    .flops = no_products,
                                    .bytes = each_once};

// ---- fftshift

std::vector<int> shifted_axes(const op::fftshift& n, int rank) {
  std::vector<int> axes;
  if (n.axes.empty())
    for (int k = 0; k < rank; ++k) axes.push_back(k);
  for (const int64_t axis : n.axes) axes.push_back(normalize_axis(axis, rank, "fftshift"));
  return axes;
}

void fftshift_shape(Infer& i, const op::fftshift& n) {
  const int rank = i.shape(n.x).rank();
  std::vector<bool> seen(static_cast<size_t>(rank));
  for (const int64_t given : n.axes) {
    const auto axis = static_cast<size_t>(i.axis(given, rank));
    if (seen[axis])
      i.fail(Code::invalid_argument, "attribute axes: axis ", axis, " is there twice");
    seen[axis] = true;
  }
  i.out(0, i.type(n.x));
}

void fftshift_grad(Grad& g, const op::fftshift& n) {
  if (!g.wants(n.x)) return;
  g.give(n.x, g.b.add(op::fftshift{.axes = n.axes, .inverse = !n.inverse, .x = g.dy()}));
}

bool fftshift_lower(Lower& l, const op::fftshift& n) {
  Builder& b = l.b;
  const Shape shape = b.shape(n.x);
  Value y = n.x;
  for (const int axis : shifted_axes(n, shape.rank())) {
    const int64_t dim = shape[axis], front = n.inverse ? dim / 2 : (dim + 1) / 2;
    if (dim < 2) continue;
    y = b.concat({b.narrow(y, axis, front, dim - front), b.narrow(y, axis, 0, front)}, axis);
  }
  l.out(0, y == n.x ? b.copy(y) : y);
  return true;
}

bool fftshift_batch(Batch& v, const op::fftshift& one) {
  op::fftshift n = one;
  n.axes.clear();
  for (const int axis : shifted_axes(one, v.rank(one.x))) n.axes.push_back(Batch::axis(axis));
  if (!n.axes.empty()) return v.add_all(n);
  v.out(0, v.all(one.x));  // a number stays where it is
  return true;
}

bool fftshift_padded(Padded& p, const op::fftshift& n) {
  for (const int axis : shifted_axes(n, p.rank(n.x)))
    if (p.along(n.x, axis)) return p.refuse("it moves a padded axis");
  return true;
}

constexpr Record<op::fftshift> kShift{.shape = fftshift_shape,
                                      .grad = fftshift_grad,
                                      .lower = fftshift_lower,
                                      .batch = fftshift_batch,
                                      .padded = fftshift_padded,
                                      .flops = no_products,
                                      .bytes = each_once};

}  // namespace

constinit const OpRecord fft_conv1d_def = record<op::fft_conv1d, kConv1d>();
constinit const OpRecord fftfreq_def = record<op::fftfreq, kFreq>();
constinit const OpRecord fftshift_def = record<op::fftshift, kShift>();

}  // namespace tenon::core
