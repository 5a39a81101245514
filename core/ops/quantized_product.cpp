// SPDX-License-Identifier: Apache-2.0
// qmatmul qconv: specification 7.5 and 7.6. Sums of products of 8-bit integers are exact; what follows
// them is rounded step by step, so that results have the same bits on all devices.
#include <algorithm>

#include "ops/conv.hpp"
#include "ops/padded.hpp"
#include "ops/quantized.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Signed as_signed(Builder& b, Value x) {
  if (b.dtype(x) == kI8) return {x, 0};
  return {b.cast(b.minus(b.cast(x, kI16), b.scalar_int(kI16, 128)), kI8), 128};
}

namespace {

// A zero point less the shift of its operand, in i32; absent if that is 0.
Value shifted(Builder& b, Value zero, int64_t shift) {
  if (!zero && shift == 0) return {};
  const Value by = b.scalar_int(kI32, shift);
  return zero ? b.minus(b.cast(zero, kI32), by) : b.neg(by);
}

}  // namespace

// With P = p - s and Q = q - t in i8, and the zero points u = zero_p - s and v = zero_q - t, the sum
// is P·Q - u·Σ_k Q - v·Σ_k P + K·u·v. It wraps to the right number where a part of it leaves i32.
Value integer_products(Builder& b, Value p, Value zero_p, Value q, Value zero_q, DType sum) {
  const int columns = b.shape(p).rank() - 1, rows = b.shape(q).rank() - 2;
  const int64_t depth = b.shape(p)[columns];
  const Signed np = as_signed(b, p), nq = as_signed(b, q);
  const Value u = shifted(b, zero_p, np.shift), v = shifted(b, zero_q, nq.shift);
  Value total;
  for (int64_t from = 0; from == 0 || from < depth; from += kMostTerms) {
    const int64_t count = std::min(kMostTerms, depth - from);
    const Value left = b.narrow(np.value, columns, from, count);
    const Value right = b.narrow(nq.value, rows, from, count);
    Value y = b.matmul(left, right, false, false, 1.0, kI32);
    if (u) y = b.minus(y, b.times(u, b.sum(b.cast(right, kI32), {rows})));
    if (v) y = b.minus(y, b.times(v, b.sum(b.cast(left, kI32), {columns})));
    if (u && v) y = b.plus(y, b.times(b.times(u, v), b.scalar_int(kI32, count)));
    y = b.cast(y, sum);
    total = total ? b.plus(total, y) : y;
  }
  return total;
}

Value Requantize::operator()(Builder& b, Value sums) const {
  if (bias) sums = b.plus(sums, b.cast(bias, b.dtype(sums)));
  if (!multiplier) return relu ? b.max(sums, b.scalar_int(kI32, 0)) : sums;
  Value y = b.unary("round", b.times(b.cast(sums, kF32), multiplier));
  const Value origin = zero ? b.cast(zero, kF32) : b.scalar(kF32, 0);
  if (zero) y = b.plus(y, origin);
  const QuantizedRange range = *quantized_range(to);
  y = b.max(y, relu ? origin : b.scalar(kF32, range.low));
  return b.cast(b.min(y, b.scalar(kF32, range.high)), to);
}

namespace {

constexpr std::string_view kTo = "none i8 u8 i32", kActs = "none relu";

// ---- shape

void want_bytes(const Infer& i, Value v, std::string_view operand) {
  if (i.dtype(v) != kI8 && i.dtype(v) != kU8)
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected i8 or u8, got ",
           i.type(v).text());
}
// One number, or where there may be one per column, one of each.
void want_numbers(const Infer& i, Value v, std::string_view operand, int64_t columns) {
  if (!v || is_one_number(i.shape(v)) || i.shape(v) == Shape{columns}) return;
  i.fail(Code::shape_mismatch, "operand ", operand, ": expected one number or shape [", columns,
         "], got ", i.type(v).text());
}
void want_one(const Infer& i, Value v, std::string_view operand) {
  if (v && !is_one_number(i.shape(v)))
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected one number, got ",
           i.type(v).text());
}

// Checks what follows the sums, and returns the dtype of the result.
template <class Op>
DType want_result(const Infer& i, const Op& n, int64_t columns) {
  i.want_dtype(n.bias, "bias", kI32);
  if (n.bias) i.want_shape(n.bias, "bias", {columns});
  i.want_dtype(n.multiplier, "multiplier", kF32);
  want_numbers(i, n.multiplier, "multiplier", columns);
  want_one(i, n.y_zero, "y_zero");
  const DType to = n.to != TENON_DTYPE_NONE ? n.to : n.y_zero ? i.dtype(n.y_zero) : DType{kI32};
  if (to != kI8 && to != kU8 && to != kI32)
    i.fail(Code::dtype_mismatch, n.to != TENON_DTYPE_NONE ? "attribute to" : "operand y_zero",
           ": expected i8, u8 or i32, got ", dtype_name(to));
  if (to == kI32 && n.multiplier)
    i.fail(Code::invalid_argument,
           "operand multiplier: expected none with the result i32; hint: attribute to is i8 or u8");
  if (to != kI32 && !n.multiplier)
    i.fail(Code::invalid_argument, "operand multiplier: expected one with the result ",
           dtype_name(to), ", got none");
  if (to == kI32 && n.y_zero)
    i.fail(Code::invalid_argument, "operand y_zero: expected none with the result i32");
  i.want_dtype(n.y_zero, "y_zero", to);
  return to;
}

Shape product_shape(const Shape& a, const Shape& b, std::string_view who) {
  const auto batch = [](const Shape& s) {
    return Shape(s.dims().first(static_cast<size_t>(s.rank() - 2)));
  };
  Shape y = broadcast(batch(a), batch(b), who);
  y.push(a[a.rank() - 2]);
  y.push(b[b.rank() - 1]);
  return y;
}

void qmatmul_shape(Infer& i, const op::qmatmul& n) {
  want_bytes(i, n.a, "a");
  want_bytes(i, n.b, "b");
  const Shape a = i.shape(n.a), b = i.shape(n.b);
  for (const auto& [s, name] : {std::pair{&a, "a"}, std::pair{&b, "b"}})
    if (s->rank() < 2)
      i.fail(Code::shape_mismatch, "operand ", name, ": expected rank 2 or more, got ", s->text());
  const int ra = a.rank(), rb = b.rank();
  if (a[ra - 1] != b[rb - 2])
    i.fail(Code::shape_mismatch, "operand b: expected a contracted length of ", a[ra - 1],
           " as in a ", i.type(n.a).text(), ", got ", b[rb - 2], " in ", i.type(n.b).text());
  const int64_t columns = b[rb - 1];
  i.want_dtype(n.a_zero, "a_zero", i.dtype(n.a));
  want_one(i, n.a_zero, "a_zero");
  i.want_dtype(n.b_zero, "b_zero", i.dtype(n.b));
  want_numbers(i, n.b_zero, "b_zero", columns);
  const DType to = want_result(i, n, columns);
  i.out(0, {to, sized(i, product_shape(a, b, i.who()))});
}

void qconv_shape(Infer& i, const op::qconv& n) {
  want_bytes(i, n.x, "x");
  want_bytes(i, n.w, "w");
  want_image(i, n.x, "x");
  i.want_rank(n.w, "w", i.shape(n.x).rank());
  const Shape x = i.shape(n.x), w = i.shape(n.w);
  if (n.groups < 1)
    i.fail(Code::invalid_argument, "attribute groups: expected a number >= 1, given ", n.groups);
  for (const auto& [channels, name] : {std::pair{x[1], "x"}, std::pair{w[0], "w"}})
    if (channels % n.groups != 0)
      i.fail(Code::shape_mismatch, "operand ", name, ": expected a multiple of ", n.groups,
             " groups of channels, got ", channels);
  if (w[1] != x[1] / n.groups)
    i.fail(Code::shape_mismatch, "operand w: expected ", x[1] / n.groups,
           " channels along axis 1, as in a group of x ", i.type(n.x).text(), ", got ",
           i.type(n.w).text());
  const ConvAxes axes = want_axes(i, n, spatial(w), spatial(x));
  want_windows(i, axes);
  i.want_dtype(n.x_zero, "x_zero", i.dtype(n.x));
  want_one(i, n.x_zero, "x_zero");
  i.want_dtype(n.w_zero, "w_zero", i.dtype(n.w));
  want_numbers(i, n.w_zero, "w_zero", w[0]);
  const DType to = want_result(i, n, w[0]);
  i.out(0, {to, sized(i, image_shape(x[0], w[0], counts_of(axes)))});
}

// ---- decomposition

template <class Op>
DType result_dtype(Builder& b, const Op& n) {
  if (n.to != TENON_DTYPE_NONE) return n.to;
  return n.y_zero ? b.dtype(n.y_zero) : DType{kI32};
}
// One number as a scalar, several in the shape given.
Value along(Builder& b, Value v, const Shape& several) {
  if (!v) return {};
  return b.reshape(v, is_one_number(b.shape(v)) ? Shape{} : several);
}

bool qmatmul_lower(Lower& l, const op::qmatmul& n) {
  Builder& b = l.b;
  const Shape a = b.shape(n.a), s = b.shape(n.b);
  const DType to = result_dtype(b, n);
  const int64_t depth = a[a.rank() - 1];
  if (const Shape y = product_shape(a, s, "qmatmul"); y.elements() == 0)
    return l.out(0, b.zeros({to, y})), true;
  if (depth > kMostParts * kMostTerms) return false;
  const Shape columns{s[s.rank() - 1]};
  const Value sums = integer_products(b, n.a, along(b, n.a_zero, {}), n.b,
                                      along(b, n.b_zero, columns), sum_dtype(to, a[a.rank() - 1]));
  const Requantize finish{n.bias, along(b, n.multiplier, columns), along(b, n.y_zero, {}), to,
                          n.act == "relu"};
  l.out(0, finish(b, sums));
  return true;
}

// The columns of x as i8, [N, C·taps, windows]. Taps outside of x are its zero point.
Value signed_columns(Builder& b, const Conv& c, Value x, Value zero) {
  const auto unfold = [&](Value v) {
    op::im2col n{.layout = "unfold"};
    n.pads.resize(2 * c.axes.size());
    for (size_t k = 0; k < c.axes.size(); ++k) {
      const ConvAxis& a = c.axes[k];
      n.kernel.push_back(a.kernel), n.stride.push_back(a.stride), n.dilation.push_back(a.dilation);
      n.pads[k] = a.before, n.pads[k + c.axes.size()] = a.after;
    }
    n.x = v;
    return Value(b.add(n));
  };
  const bool padded =
      std::ranges::any_of(c.axes, [](const ConvAxis& a) { return a.before != 0 || a.after != 0; });
  const Value columns = unfold(x);
  if (!padded || !zero) return columns;
  const int64_t taps = taps_of(c.axes), windows = windows_of(c.axes);
  const Value inside =
      b.compare("ne", unfold(b.full({kI8, image_shape(1, 1, c.size())}, 1)), b.scalar_int(kI8, 0));
  const Value filled = b.where(b.reshape(inside, {1, 1, taps, windows}),
                               b.reshape(columns, {c.n, c.c, taps, windows}), zero);
  return b.reshape(filled, {c.n, c.c * taps, windows});
}

bool qconv_lower(Lower& l, const op::qconv& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.x), w = b.shape(n.w);
  const DType to = result_dtype(b, n);
  const Conv c{x[0], x[1], w[0], n.groups, axes_of(n, spatial(w), spatial(x))};
  if (c.y().elements() == 0) return l.out(0, b.zeros({to, c.y()})), true;
  if (c.depth() > kMostParts * kMostTerms) return false;
  const int64_t windows = windows_of(c.axes), filters = c.m / c.groups;
  // The zero point as i8, as x is.
  const Signed pixels = as_signed(b, n.x);
  Value zero = along(b, n.x_zero, {});
  if (zero)
    zero = as_signed(b, zero).value;
  else if (pixels.shift != 0)
    zero = b.scalar_int(kI8, -pixels.shift);
  const Value columns =
      b.reshape(signed_columns(b, c, pixels.value, zero), {c.n, c.groups, c.depth(), windows});
  const Value weights = b.reshape(n.w, {1, c.groups, filters, c.depth()});
  const Value sums = integer_products(b, weights, along(b, n.w_zero, {c.groups, filters, 1}),
                                      columns, zero, sum_dtype(to, c.depth()));
  const Shape channels = image_shape(1, c.m, Ints(c.axes.size(), 1));
  const Requantize finish{along(b, n.bias, channels), along(b, n.multiplier, channels),
                          along(b, n.y_zero, {}), to, n.act == "relu"};
  l.out(0, finish(b, b.reshape(sums, c.y())));
  return true;
}

// ---- batch

bool qmatmul_batch(Batch& v, const op::qmatmul& n) {
  for (Value x : {n.a_zero, n.b_zero, n.bias, n.multiplier, n.y_zero})
    if (v.batched(x)) return false;
  const int axes = std::max(v.rank(n.a), v.rank(n.b));
  return v.add(n, [&](Value x) { return x == n.a || x == n.b ? v.aligned(x, axes) : v.given(x); });
}

// The batch joins N, unless examples have weights of their own.
bool qconv_batch(Batch& v, const op::qconv& n) {
  for (Value x : {n.w, n.x_zero, n.w_zero, n.bias, n.multiplier, n.y_zero})
    if (v.batched(x)) return false;
  return v.add_folded(n, [&](Value x) { return x == n.x ? Value{} : v.given(x); });
}

// ---- padding

bool qmatmul_padded(Padded& p, const op::qmatmul& n) {
  return p.along(n.a, -1) || p.along(n.b, -2) ? p.refuse("its contracted axis is padded") : true;
}
bool qconv_padded(Padded& p, const op::qconv& n) {
  if (p.any_from(n.x, 1)) return p.refuse("its channels or images are padded");
  return p.any(n.w) ? p.refuse("its weights are padded") : true;
}

// ---- cost

double qmatmul_flops(const Cost& c, const op::qmatmul& n) {
  return 2 * c.dim(n.a, 0) * c.elements(c.out(0));
}
double qconv_flops(const Cost& c, const op::qconv& n) {
  const double filters = static_cast<double>(c.shape(n.w)[0]);
  return 2 * c.elements(c.out(0)) * c.elements(n.w) / std::max(filters, 1.0);
}

constexpr Record<op::qmatmul> kQmatmul{.shape = qmatmul_shape,
                                       .words = {{"to", kTo}, {"act", kActs}},
                                       .lower = qmatmul_lower,
                                       .batch = qmatmul_batch,
                                       .padded = qmatmul_padded,
                                       .flops = qmatmul_flops,
                                       .bytes = each_once,
                                       .traits = kNotDifferentiable};
constexpr Record<op::qconv> kQconv{.shape = qconv_shape,
                                   .words = {{"to", kTo}, {"act", kActs}},
                                   .lower = qconv_lower,
                                   .batch = qconv_batch,
                                   .padded = qconv_padded,
                                   .flops = qconv_flops,
                                   .bytes = each_once,
                                   .traits = kNotDifferentiable};

}  // namespace

constinit const OpRecord qmatmul_def = record<op::qmatmul, kQmatmul>();
constinit const OpRecord qconv_def = record<op::qconv, kQconv>();

}  // namespace tenon::core
