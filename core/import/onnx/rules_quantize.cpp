// SPDX-License-Identifier: Apache-2.0
// Rules: quantized tensors. Integer products are exact.
#include "import/onnx/helpers.hpp"
#include "ops/quantized.hpp"

namespace tenon::core::onnx {
namespace {

using sdk::is_f8;

// Scale as it broadcasts against x: one number, one for each entry of the axis, or one for each
// block of entries.
Value spread(const Call& c, Value v, const Shape& x, int64_t axis, int64_t block) {
  Builder& b = c.b;
  const Shape s = b.shape(v);
  if (is_one_number(s)) return b.reshape(v, {});
  const int a = c.axis(axis, x.rank());
  if (block > 0) {
    if (s.rank() != x.rank() || s[a] * block < x[a])
      c.wrong("scale ", s.text(), " with blocks of ", block, " does not fit ", x.text());
    const Value numbers = b.binary("div", b.iota({x[a]}, 0, kI64), b.scalar_int(kI64, block));
    return b.add(op::gather{.axis = a, .data = v, .indices = numbers});
  }
  if (s.rank() != 1 || s[0] != x[a])
    c.wrong("scale ", s.text(), " does not fit axis ", a, " of ", x.text());
  Shape along;
  for (int k = 0; k < x.rank(); ++k) along.push(k == a ? x[k] : 1);
  return b.reshape(v, along);
}

// Axis, blocks, scale and zero point of the ops quantize and dequantize.
template <class Op>
Op scaled(const Call& c) {
  Op n{};
  n.axis = c.i("axis", 1), n.block = c.i("block_size", 0);
  n.scale = c.value(1), n.zero_point = c.value_or_none(2);
  if (is_one_number(c.shape(1))) n.block = 0;
  if (n.zero_point && is_one_number(c.shape(1)) && is_one_number(c.shape(2)))
    n.zero_point = c.b.reshape(n.zero_point, c.shape(1));
  return n;
}

void quantize(Call& c) {
  Builder& b = c.b;
  DType to = c.has(2) ? c.dtype(2) : DType{kU8};
  if (c.i("output_dtype", 0)) to = c.dtype_attr("output_dtype", 0);
  // The quotient has the dtype of `precision`, else that of the scale; halves divide in f32.
  const DType t = c.i("precision", 0) ? c.dtype_attr("precision", 1) : c.dtype(1);
  const DType wide = acc_dtype(is_float(t) ? t : DType{kF32});
  if (is_f8(to)) {
    const Value scale =
        spread(c, b.cast(c.value(1), wide), c.shape(0), c.i("axis", 1), c.i("block_size", 0));
    const Value y = b.over(b.cast(c.value(0), wide), scale);
    return c.out(b.add(op::cast{.to = to, .saturate = c.flag("saturate", true), .x = y}));
  }
  if (!quantized_range(to)) c.refuse("quantization to ", dtype_name(to));
  auto n = scaled<op::quantize>(c);
  n.to = to;
  n.x = is_float(c.dtype(0)) ? c.value(0) : b.cast(c.value(0), wide);
  if (wide == kF64 || !is_float(c.dtype(1))) n.scale = b.cast(n.scale, wide);
  c.out(b.add(n));
}

void dequantize(Call& c) {
  Builder& b = c.b;
  const DType to = c.i("output_dtype", 0) ? c.dtype_attr("output_dtype", 1) : c.dtype(1);
  if (is_f8(c.dtype(0))) {
    const DType wide = acc_dtype(to);
    const int64_t axis = c.i("axis", 1), block = c.i("block_size", 0);
    const auto wide_along = [&](size_t k) {
      return spread(c, b.cast(c.value(k), wide), c.shape(0), axis, block);
    };
    Value x = b.cast(c.value(0), wide);
    if (c.has(2)) x = b.minus(x, wide_along(2));
    return c.out(b.cast(b.times(x, wide_along(1)), to));
  }
  auto n = scaled<op::dequantize>(c);
  n.to = to, n.q = c.value(0);
  c.out(b.add(n));
}

void dynamic_quantize(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), zero = b.scalar(kF32, 0);
  const Ints all = iota_list(c.rank(0));
  const Value high = b.max(all.empty() ? x : b.reduce("max", x, all, false), zero);
  const Value low = b.min(all.empty() ? x : b.reduce("min", x, all, false), zero);
  const Value scale = b.over(b.minus(high, low), 255.0);
  const Value origin = b.over(b.neg(low), scale);
  const Value point =
      b.cast(b.unary("round", b.min(b.max(origin, zero), b.scalar(kF32, 255))), kU8);
  c.out(0, b.add(op::quantize{.to = kU8, .x = x, .scale = scale, .zero_point = point}));
  c.out(1, scale);
  c.out(2, point);
}

// ---- products of 8-bit integers

// One number as a scalar; several of rank 1 along the rows or the columns of a matrix.
Value along_matrix(Builder& b, Value v, bool rows) {
  const Shape s = b.shape(v);
  if (s.rank() > 1) return v;
  const int64_t count = s.elements();
  return count == 1 ? b.reshape(v, {}) : b.reshape(v, rows ? Shape{count, 1} : Shape{count});
}

// The product of inputs `p` and `q` with their zero points; with a multiplier, and then a zero point
// of the result, in its dtype, else in i32. Numbers for single rows are not those of the op qmatmul.
Value integer_product(const Call& c, size_t p, size_t zero_p, size_t q, size_t zero_q,
                      Value multiplier, Value zero) {
  Builder& b = c.b;
  for (size_t k : {p, q}) {
    if (c.dtype(k) != kI8 && c.dtype(k) != kU8)
      c.wrong("expected i8 or u8 operands, got ", c.type(k).text());
    if (c.rank(k) < 2) c.refuse("integer products of vectors");
  }
  const auto one = [&](Value v) { return !v || is_one_number(b.shape(v)); };
  const auto by_column = [&](Value v) { return one(v) || b.shape(v).rank() == 1; };
  const Value u = c.value_or_none(zero_p), v = c.value_or_none(zero_q);
  const DType to = zero ? b.dtype(zero) : DType{kI32};
  if (one(u) && by_column(v) && by_column(multiplier) && one(zero))
    return b.add(op::qmatmul{.to = to,
                             .a = c.value(p),
                             .b = c.value(q),
                             .a_zero = u,
                             .b_zero = v,
                             .multiplier = multiplier,
                             .y_zero = zero});
  const Value sums =
      integer_products(b, c.value(p), u ? along_matrix(b, u, true) : u, c.value(q),
                       v ? along_matrix(b, v, false) : v, sum_dtype(to, c.shape(p)[c.rank(p) - 1]));
  return Requantize{{}, multiplier, zero ? along_matrix(b, zero, true) : zero, to, false}(b, sums);
}

void matmul_integer(Call& c) { c.out(integer_product(c, 0, 2, 1, 3, {}, {})); }

void qlinear_matmul(Call& c) {
  Builder& b = c.b;
  if (is_f8(c.dtype(0))) c.refuse("products of 8-bit floats");
  const Value scale =
      requantizing_scale(b, along_matrix(b, c.value(1), true), along_matrix(b, c.value(4), false),
                         along_matrix(b, c.value(6), true));
  c.out(integer_product(c, 0, 2, 3, 5, scale, c.value(7)));
}

constexpr Rule kRules[] = {
    {"QuantizeLinear", 10, quantize},
    {"DequantizeLinear", 10, dequantize},
    {"DynamicQuantizeLinear", 11, dynamic_quantize},
    {"MatMulInteger", 10, matmul_integer},
    {"QLinearMatMul", 10, qlinear_matmul},
};

}  // namespace

Value requantizing_scale(Builder& b, Value p, Value q, Value y) {
  const auto wide = [&](Value v) { return b.cast(v, kF64); };
  return b.cast(b.over(b.times(wide(p), wide(q)), wide(y)), kF32);
}

std::span<const Rule> quantize_rules() { return kRules; }

}  // namespace tenon::core::onnx
