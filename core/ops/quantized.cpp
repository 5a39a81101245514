// SPDX-License-Identifier: Apache-2.0
// quantize dequantize fake_quantize fake_quantize_backward lsq_quantize lsq_quantize_backward
// amax_observer: specification 7.1 to 7.4. The products are in quantized_product.cpp.
#include "ops/quantized.hpp"

#include <cmath>

#include "base/number.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {

std::optional<QuantizedRange> quantized_range(DType t) {
  switch (t) {
    case TENON_DTYPE_I8:
      return QuantizedRange{-128, 127};
    case TENON_DTYPE_U8:
      return QuantizedRange{0, 255};
    case TENON_DTYPE_I16:
      return QuantizedRange{-32768, 32767};
    case TENON_DTYPE_U16:
      return QuantizedRange{0, 65535};
    case TENON_DTYPE_I4:
      return QuantizedRange{-8, 7};
    case TENON_DTYPE_U4:
      return QuantizedRange{0, 15};
    default:
      return {};
  }
}

namespace {

constexpr std::string_view kQuantizedWords = "none i8 u8 i16 u16 i4 u4";
constexpr double kLeastScale = 1e-12;  // of lsq_quantize and amax_observer

// ---- scales along an axis

template <class Op>
int64_t block_of(const Op& n) {
  if constexpr (requires { n.block; })
    return n.block;
  else
    return 0;
}
// One number, for all elements. With blocks, every axis of x has its own entries.
bool is_one(const Shape& s, int64_t block) { return block == 0 && is_one_number(s); }
int from_front(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

// Checks that a scale is positive, where its numbers are known.
void want_positive(const Infer& i, Value scale) {
  const Bytes* content = i.content(scale);
  if (!content) return;
  const size_t each = tenon_dtype_bits(i.dtype(scale)) / 8;
  for (size_t at = 0; at + each <= content->size(); at += each) {
    double s = 0;
    load_number(i.dtype(scale), content->data() + at, &s);
    if (!(s > 0) || std::isinf(s))
      i.fail(Code::invalid_argument, "operand scale: expected finite numbers above 0, got ", s,
             " as element ", at / each);
  }
}

// Checks axis, block and the shapes of scale and zero point beside x.
template <class Op>
void want_scale(const Infer& i, const Op& n, Value x, bool divides = true) {
  const int64_t block = block_of(n);
  i.want_float(n.scale, "scale");
  const Shape &s = i.shape(n.scale), &shape = i.shape(x);
  if (block < 0)
    i.fail(Code::invalid_argument, "attribute block: expected a number >= 0, given ", block);
  if (!is_one(s, block)) {
    const int axis = i.axis(n.axis, shape.rank());
    if (block > 0) {
      Shape blocks = shape;
      blocks[axis] = shape[axis] / block + (shape[axis] % block != 0);
      i.want_shape(n.scale, "scale", blocks);
    } else if (s.rank() != 1 || s[0] != shape[axis]) {
      i.fail(Code::shape_mismatch, "operand scale: expected one number or shape [", shape[axis],
             "], as axis ", axis, " of ", i.type(x).text(), ", got ", i.type(n.scale).text());
    }
  }
  if (divides) want_positive(i, n.scale);
  if constexpr (requires { n.zero_point; })
    if (n.zero_point) i.want_shape(n.zero_point, "zero_point", s);
}

// The number of the block of each index along an axis.
Value block_numbers(Builder& b, int64_t length, int64_t block) {
  return b.binary("div", b.iota({length}, 0, kI64), b.scalar_int(kI64, block));
}

// A scale or zero point as it broadcasts against x.
template <class Op>
Value spread(Builder& b, const Op& n, Value v, const Shape& x) {
  const int64_t block = block_of(n);
  const Shape s = b.shape(v);
  if (is_one(s, block)) return b.reshape(v, {});
  const int axis = from_front(n.axis, x.rank());
  if (block > 0)
    return b.add(op::gather{.axis = axis, .data = v, .indices = block_numbers(b, x[axis], block)});
  Shape along;
  for (int k = 0; k < x.rank(); ++k) along.push(k == axis ? x[k] : 1);
  return b.reshape(v, along);
}

// The transpose of spread: sums over the elements that share an entry of `s`.
template <class Op>
Value gathered(Builder& b, const Op& n, Value v, const Shape& s) {
  const int64_t block = block_of(n);
  const Shape x = b.shape(v);
  if (is_one(s, block)) return b.sum_to(v, s);
  const int axis = from_front(n.axis, x.rank());
  if (block > 0)
    return b.add(op::scatter_add{
        .axis = axis, .dim = s[axis], .updates = v, .indices = block_numbers(b, x[axis], block)});
  Ints others;
  for (int k = 0; k < x.rank(); ++k)
    if (k != axis) others.push_back(k);
  return b.reshape(others.empty() ? v : b.sum(v, others), s);
}

// Quotients are computed in f64 if x or scale is, else in f32.
DType quotient_dtype(DType x, DType scale) { return x == kF64 || scale == kF64 ? kF64 : kF32; }

// x/scale, and the number that it is rounded to, in the dtype of quotients.
struct Quotient {
  DType wide;
  Value x, scale, zero;  // as they broadcast; zero may be absent
  Value exact, level;    // level: round(exact) + zero
};
template <class Op>
Quotient quotient_of(Builder& b, const Op& n, double least_scale = 0) {
  const Shape shape = b.shape(n.x);
  Quotient q{};
  q.wide = quotient_dtype(b.dtype(n.x), b.dtype(n.scale));
  Value scale = b.cast(n.scale, q.wide);
  if (least_scale > 0) scale = b.max(scale, b.scalar(q.wide, least_scale));
  q.x = b.cast(n.x, q.wide), q.scale = spread(b, n, scale, shape);
  q.exact = b.over(q.x, q.scale);
  q.level = b.unary("round", q.exact);
  if constexpr (requires { n.zero_point; })
    if (n.zero_point) {
      q.zero = spread(b, n, b.cast(n.zero_point, q.wide), shape);
      q.level = b.plus(q.level, q.zero);
    }
  return q;
}

Value clamped(Builder& b, Value v, double low, double high) {
  const DType t = b.dtype(v);
  return b.min(b.max(v, b.scalar(t, low)), b.scalar(t, high));
}
Value is_within(Builder& b, Value v, double low, double high) {
  return b.logical("and", b.compare("ge", v, low), b.compare("le", v, high));
}

// ---- quantize

void quantize_shape(Infer& i, const op::quantize& n) {
  i.want_float(n.x, "x");
  want_scale(i, n, n.x);
  const DType to = n.to != TENON_DTYPE_NONE ? n.to : n.zero_point ? i.dtype(n.zero_point) : kU8;
  if (!quantized_range(to)) {
    const std::string_view what = n.to != TENON_DTYPE_NONE ? "attribute to" : "operand zero_point";
    i.fail(Code::dtype_mismatch, what, ": expected i8, u8, i16, u16, i4 or u4, got ",
           dtype_name(to));
  }
  i.want_dtype(n.zero_point, "zero_point", to);
  i.out(0, {to, i.shape(n.x)});
}

DType quantized_dtype(Builder& b, const op::quantize& n) {
  if (n.to != TENON_DTYPE_NONE) return n.to;
  return n.zero_point ? b.dtype(n.zero_point) : DType{kU8};
}

bool quantize_lower(Lower& l, const op::quantize& n) {
  Builder& b = l.b;
  const DType to = quantized_dtype(b, n);
  const Quotient q = quotient_of(b, n);
  const QuantizedRange range = *quantized_range(to);
  // A cast makes 0 of NaN.
  const Value level = q.zero ? b.where(b.unary("is_nan", q.exact), q.zero, q.level) : q.level;
  l.out(0, b.cast(clamped(b, level, range.low, range.high), to));
  return true;
}

// As if rounding had the slope 1: q changes with x/scale where it is not clamped.
void quantize_grad(Grad& g, const op::quantize& n) {
  Builder& b = g.b;
  if (!g.wants(n.x) && !g.wants(n.scale)) return;
  const QuantizedRange range = *quantized_range(quantized_dtype(b, n));
  const Quotient q = quotient_of(b, n);
  const Value slope = b.over(b.where(is_within(b, q.level, range.low, range.high),
                                     b.cast(g.dy(), q.wide), b.scalar(q.wide, 0)),
                             q.scale);
  if (g.wants(n.x)) g.give(n.x, b.cast(slope, b.dtype(n.x)));
  if (g.wants(n.scale))
    g.give(n.scale, b.cast(gathered(b, n, b.neg(b.times(slope, q.exact)), b.shape(n.scale)),
                           b.dtype(n.scale)));
}

// ---- dequantize

void dequantize_shape(Infer& i, const op::dequantize& n) {
  const DType t = i.dtype(n.q);
  if (!quantized_range(t) && t != kI32)
    i.fail(Code::dtype_mismatch, "operand q: expected i8, u8, i16, u16, i32, i4 or u4, got ",
           i.type(n.q).text());
  want_scale(i, n, n.q, false);  // weights of nothing but zeros may have a scale of 0
  i.want_dtype(n.zero_point, "zero_point", t);
  if (n.to != TENON_DTYPE_NONE && !is_float(n.to))
    i.fail(Code::dtype_mismatch, "attribute to: expected a float, given ", dtype_name(n.to));
  i.out(0, {n.to == TENON_DTYPE_NONE ? i.dtype(n.scale) : n.to, i.shape(n.q)});
}

// q - zero_point, exact but for an i32 that f32 does not hold.
Value centred(Builder& b, const op::dequantize& n, DType wide) {
  const Shape shape = b.shape(n.q);
  if (!n.zero_point) return b.cast(n.q, wide);
  if (b.dtype(n.q) == kI32) return b.cast(b.minus(n.q, spread(b, n, n.zero_point, shape)), wide);
  return b.minus(b.cast(n.q, wide), spread(b, n, b.cast(n.zero_point, wide), shape));
}

bool dequantize_lower(Lower& l, const op::dequantize& n) {
  Builder& b = l.b;
  const DType given = b.dtype(n.scale), to = n.to == TENON_DTYPE_NONE ? given : n.to;
  const DType wide = quotient_dtype(to, given);
  const Value scale = spread(b, n, b.cast(n.scale, wide), b.shape(n.q));
  l.out(0, b.cast(b.times(centred(b, n, wide), scale), to));
  return true;
}

void dequantize_grad(Grad& g, const op::dequantize& n) {
  Builder& b = g.b;
  const DType wide = quotient_dtype(b.dtype(g.dy()), b.dtype(n.scale));
  const Value dy = b.cast(g.dy(), wide);
  if (g.wants(n.q)) g.give(n.q, b.times(dy, spread(b, n, b.cast(n.scale, wide), b.shape(n.q))));
  if (g.wants(n.scale))
    g.give(n.scale, b.cast(gathered(b, n, b.times(dy, centred(b, n, wide)), b.shape(n.scale)),
                           b.dtype(n.scale)));
}

// ---- fake_quantize

template <class Op>
void want_levels(const Infer& i, const Op& n) {
  constexpr int64_t kMost = 65536;
  for (const auto& [name, value] : {std::pair{"qmin", n.qmin}, std::pair{"qmax", n.qmax}})
    if (value < -kMost || value > kMost)
      i.fail(Code::invalid_argument, "attribute ", name, ": expected a number from -65536 to 65536",
             ", given ", value);
  if (n.qmin >= n.qmax)
    i.fail(Code::invalid_argument, "attribute qmin: expected less than qmax, ", n.qmax, ", given ",
           n.qmin);
}

// Checks of all ops that round floats to levels.
template <class Op>
void want_rounded(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  want_levels(i, n);
  want_scale(i, n, n.x);
  if constexpr (requires { n.zero_point; }) i.want_dtype(n.zero_point, "zero_point", kI32);
  if constexpr (requires { n.dy; }) {
    i.want_dtype(n.dy, "dy", i.dtype(n.x));
    i.want_shape(n.dy, "dy", i.shape(n.x));
  }
}

void fake_quantize_shape(Infer& i, const op::fake_quantize& n) {
  want_rounded(i, n);
  i.out(0, i.type(n.x));
}
void fake_quantize_backward_shape(Infer& i, const op::fake_quantize_backward& n) {
  want_rounded(i, n);
  i.out(0, i.type(n.x));
}

template <class Op>
Value rounded(Builder& b, const Op& n, const Quotient& q) {
  Value level = clamped(b, q.level, static_cast<double>(n.qmin), static_cast<double>(n.qmax));
  if (q.zero) level = b.minus(level, q.zero);
  return b.cast(b.times(level, q.scale), b.dtype(n.x));
}

bool fake_quantize_lower(Lower& l, const op::fake_quantize& n) {
  l.out(0, rounded(l.b, n, quotient_of(l.b, n)));
  return true;
}

// The scale counts as constant.
void fake_quantize_grad(Grad& g, const op::fake_quantize& n) {
  if (g.wants(n.x))
    g.give(n.x, g.b.add(op::fake_quantize_backward{.axis = n.axis,
                                                   .qmin = n.qmin,
                                                   .qmax = n.qmax,
                                                   .ste = n.ste,
                                                   .dy = g.dy(),
                                                   .x = n.x,
                                                   .scale = n.scale,
                                                   .zero_point = n.zero_point}));
}

bool fake_quantize_backward_lower(Lower& l, const op::fake_quantize_backward& n) {
  Builder& b = l.b;
  const Quotient q = quotient_of(b, n);
  const Value dy = b.cast(n.dy, q.wide), one = b.scalar(q.wide, 1), zero = b.scalar(q.wide, 0);
  const double low = static_cast<double>(n.qmin), high = static_cast<double>(n.qmax);
  Value dx = dy;
  if (n.ste == "clipped") {
    dx = b.where(is_within(b, q.level, low, high), dy, zero);
  } else if (n.ste != "identity") {
    const Value part = b.over(q.x, b.times(q.scale, high));
    if (n.ste == "tanh") {
      const Value t = b.unary("tanh", part);
      dx = b.times(dy, b.minus(one, b.times(t, t)));
    } else {
      dx = b.times(dy, b.max(zero, b.minus(one, b.unary("abs", part))));
    }
  }
  l.out(0, b.cast(dx, b.dtype(n.x)));
  return true;
}

// ---- lsq_quantize

void lsq_quantize_shape(Infer& i, const op::lsq_quantize& n) {
  want_rounded(i, n);
  i.out(0, i.type(n.x));
}
void lsq_quantize_backward_shape(Infer& i, const op::lsq_quantize_backward& n) {
  want_rounded(i, n);
  i.out(0, i.type(n.x));
  i.out(1, i.type(n.scale));
}

bool lsq_quantize_lower(Lower& l, const op::lsq_quantize& n) {
  l.out(0, rounded(l.b, n, quotient_of(l.b, n, kLeastScale)));
  return true;
}

void lsq_quantize_grad(Grad& g, const op::lsq_quantize& n) {
  const bool x = g.wants(n.x), scale = g.wants(n.scale);
  if (!x && !scale) return;
  const Results r = g.b.add(op::lsq_quantize_backward{.axis = n.axis,
                                                      .qmin = n.qmin,
                                                      .qmax = n.qmax,
                                                      .grad_factor = n.grad_factor,
                                                      .dy = g.dy(),
                                                      .x = n.x,
                                                      .scale = n.scale,
                                                      .want_dx = x,
                                                      .want_dscale = scale});
  if (x) g.give(n.x, r[0]);
  if (scale) g.give(n.scale, r[1]);
}

bool lsq_quantize_backward_lower(Lower& l, const op::lsq_quantize_backward& n) {
  Builder& b = l.b;
  const Quotient q = quotient_of(b, n, kLeastScale);
  const double low = static_cast<double>(n.qmin), high = static_cast<double>(n.qmax);
  const Value dy = b.cast(n.dy, q.wide), zero = b.scalar(q.wide, 0);
  if (l.wanted(0))
    l.out(0, b.cast(b.where(is_within(b, q.level, low, high), dy, zero), b.dtype(n.x)));
  if (!l.wanted(1)) return true;
  // NaN is in neither range, and stays.
  const Value below =
      b.where(b.compare("lt", q.level, low), b.scalar(q.wide, low), b.minus(q.level, q.exact));
  const Value slope = b.where(b.compare("gt", q.level, high), b.scalar(q.wide, high), below);
  const Value sums = b.times(gathered(b, n, b.times(dy, slope), b.shape(n.scale)), n.grad_factor);
  const Value learned = b.compare("ge", b.cast(n.scale, q.wide), kLeastScale);
  l.out(1, b.cast(b.where(learned, sums, zero), b.dtype(n.scale)));
  return true;
}

// ---- amax_observer

void amax_observer_shape(Infer& i, const op::amax_observer& n) {
  i.want_float(n.x, "x");
  i.want_dtype(n.state, "state", acc_dtype(i.dtype(n.x)));
  const Shape &s = i.shape(n.state), &x = i.shape(n.x);
  if (!is_one(s, 0)) {
    const int axis = i.axis(n.axis, x.rank());
    if (s.rank() != 1 || s[0] != x[axis])
      i.fail(Code::shape_mismatch, "operand state: expected one number or shape [", x[axis],
             "], as axis ", axis, " of ", i.type(n.x).text(), ", got ", i.type(n.state).text());
  }
  if (!(n.decay >= 0 && n.decay <= 1))
    i.fail(Code::invalid_argument, "attribute decay: expected a number from 0 to 1, given ",
           n.decay);
  if (!(n.qmax > 0) || std::isinf(n.qmax))
    i.fail(Code::invalid_argument, "attribute qmax: expected a finite number above 0, given ",
           n.qmax);
  i.out(0, i.type(n.state));
  i.out(1, i.type(n.state));
}

bool amax_observer_lower(Lower& l, const op::amax_observer& n) {
  Builder& b = l.b;
  const Type state = b.type(n.state);
  const Shape x = b.shape(n.x);
  const bool one = is_one(state.shape, 0);
  Ints axes;
  for (int k = 0; k < x.rank(); ++k)
    if (one || k != from_front(n.axis, x.rank())) axes.push_back(k);
  Value a = b.unary("abs", n.x);
  if (!axes.empty()) a = b.reduce("max", a, axes, false);
  // The maximum of no elements is -inf.
  a = b.max(b.cast(b.reshape(a, state.shape), state.dtype), b.scalar(state.dtype, 0));
  Value next = a;
  if (n.mode == "ema")
    next = b.where(b.compare("le", n.state, 0), a,
                   b.plus(b.times(n.state, n.decay), b.times(a, 1 - n.decay)));
  l.out(0, next);
  l.out(1, b.max(b.over(next, n.qmax), b.scalar(state.dtype, kLeastScale)));
  return true;
}

// ---- batch

// One scale for an example becomes one along the batch. Scales along an axis are those of all
// examples, or the node is decomposed.
template <class Op>
bool scaled_batch(Batch& v, const Op& one, Value given_scale, Value given_zero, bool own_scale) {
  Op n = one;
  n.axis = Batch::axis(n.axis);
  const bool scaled = own_scale || v.batched(given_scale) || v.batched(given_zero);
  const bool blocks = block_of(one) > 0;
  if (scaled && !blocks) {
    if (v.rank(given_scale) != 0) return false;
    n.axis = 0;
  }
  const auto is_shared = [&](Value x) {
    return !scaled && !blocks && (x == given_scale || x == given_zero);
  };
  // 4-bit integers are not repeated: they cannot be strided. The decomposition widens them first.
  bool repeats_nibbles = false;
  const auto note = [&](Value x) {
    repeats_nibbles |= x && !v.batched(x) && !is_shared(x) && sdk::is_nibble(v.type(x).dtype);
  };
  if constexpr (requires { n.q; }) note(n.q);
  note(given_zero);
  if (repeats_nibbles) return false;
  return v.add(n, [&](Value x) {
    if (is_shared(x)) return v.given(x);
    const bool entry = !blocks && (x == given_scale || x == given_zero);
    return entry ? v.b.reshape(v.all(x), {v.size()}) : v.all(x);
  });
}
template <class Op>
bool quantized_batch(Batch& v, const Op& n) {
  Value zero;
  if constexpr (requires { n.zero_point; }) zero = n.zero_point;
  // Examples have gradients of their own.
  return scaled_batch(v, n, n.scale, zero, std::is_same_v<Op, op::lsq_quantize_backward>);
}
bool amax_observer_batch(Batch& v, const op::amax_observer& n) {
  return scaled_batch(v, n, n.state, {}, true);
}

// ---- padding

// Elements keep to themselves, unless a scale gets a gradient.
template <class Op>
bool quantized_padded(Padded& p, const Op& n) {
  Value x;
  if constexpr (requires { n.q; })
    x = n.q;
  else
    x = n.x;
  if (block_of(n) > 0 && p.along(x, n.axis)) return p.refuse("its axis of blocks is padded");
  if constexpr (std::is_same_v<Op, op::lsq_quantize_backward>) {
    p.fill_all(n.dy, Fill::zero);
    p.fill_all(n.x, Fill::zero);
  }
  p.avoid_singular(n.scale);
  return true;
}
bool amax_observer_padded(Padded& p, const op::amax_observer& n) {
  p.fill_all(n.x, Fill::zero);
  return true;
}

constexpr Record<op::quantize> kQuantize{.shape = quantize_shape,
                                         .words = {{"to", kQuantizedWords}},
                                         .grad = quantize_grad,
                                         .lower = quantize_lower,
                                         .batch = quantized_batch<op::quantize>,
                                         .padded = quantized_padded<op::quantize>,
                                         .flops = no_products,
                                         .bytes = each_once,
                                         .traits = kStraightThrough};
constexpr Record<op::dequantize> kDequantize{.shape = dequantize_shape,
                                             .words = {{"to", "none f32 f16 bf16 f64"}},
                                             .grad = dequantize_grad,
                                             .lower = dequantize_lower,
                                             .batch = quantized_batch<op::dequantize>,
                                             .padded = quantized_padded<op::dequantize>,
                                             .flops = no_products,
                                             .bytes = each_once};
constexpr std::string_view kSte = "clipped identity tanh hard_tanh";
constexpr Record<op::fake_quantize> kFakeQuantize{.shape = fake_quantize_shape,
                                                  .words = {{"ste", kSte}},
                                                  .grad = fake_quantize_grad,
                                                  .lower = fake_quantize_lower,
                                                  .batch = quantized_batch<op::fake_quantize>,
                                                  .padded = quantized_padded<op::fake_quantize>,
                                                  .flops = no_products,
                                                  .bytes = each_once};
constexpr Record<op::fake_quantize_backward> kFakeQuantizeBackward{
    .shape = fake_quantize_backward_shape,
    .words = {{"ste", kSte}},
    .lower = fake_quantize_backward_lower,
    .batch = quantized_batch<op::fake_quantize_backward>,
    .padded = quantized_padded<op::fake_quantize_backward>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::lsq_quantize> kLsqQuantize{.shape = lsq_quantize_shape,
                                                .grad = lsq_quantize_grad,
                                                .lower = lsq_quantize_lower,
                                                .batch = quantized_batch<op::lsq_quantize>,
                                                .padded = quantized_padded<op::lsq_quantize>,
                                                .flops = no_products,
                                                .bytes = each_once};
constexpr Record<op::lsq_quantize_backward> kLsqQuantizeBackward{
    .shape = lsq_quantize_backward_shape,
    .lower = lsq_quantize_backward_lower,
    .batch = quantized_batch<op::lsq_quantize_backward>,
    .padded = quantized_padded<op::lsq_quantize_backward>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::amax_observer> kAmaxObserver{.shape = amax_observer_shape,
                                                  .words = {{"mode", "batch ema"}},
                                                  .lower = amax_observer_lower,
                                                  .batch = amax_observer_batch,
                                                  .padded = amax_observer_padded,
                                                  .flops = no_products,
                                                  .bytes = each_once,
                                                  .traits = kNotDifferentiable};

}  // namespace

constinit const OpRecord quantize_def = record<op::quantize, kQuantize>();
constinit const OpRecord dequantize_def = record<op::dequantize, kDequantize>();
constinit const OpRecord fake_quantize_def = record<op::fake_quantize, kFakeQuantize>();
constinit const OpRecord fake_quantize_backward_def =
    record<op::fake_quantize_backward, kFakeQuantizeBackward>();
constinit const OpRecord lsq_quantize_def = record<op::lsq_quantize, kLsqQuantize>();
constinit const OpRecord lsq_quantize_backward_def =
    record<op::lsq_quantize_backward, kLsqQuantizeBackward>();
constinit const OpRecord amax_observer_def = record<op::amax_observer, kAmaxObserver>();

}  // namespace tenon::core
