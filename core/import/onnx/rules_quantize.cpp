// SPDX-License-Identifier: Apache-2.0
// Rules: quantized tensors. Integer products are exact.
#include <limits>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

struct Limits {
  double low, high;
};
Limits limits_of(const Call& c, DType t) {
  switch (t) {
    case TENON_DTYPE_I8:
      return {-128, 127};
    case TENON_DTYPE_U8:
      return {0, 255};
    case TENON_DTYPE_I16:
      return {-32768, 32767};
    case TENON_DTYPE_U16:
      return {0, 65535};
    case TENON_DTYPE_I4:
      return {-8, 7};
    case TENON_DTYPE_U4:
      return {0, 15};
    default:
      c.refuse("quantization to ", dtype_name(t));
  }
}
bool is_f8(DType t) { return t == TENON_DTYPE_F8E4M3 || t == TENON_DTYPE_F8E5M2; }

// Scale or zero point as it broadcasts against x: one number, one for each entry of the axis, or one
// for each block of entries.
Value spread(const Call& c, Value v, const Shape& x, int64_t axis, int64_t block) {
  Builder& b = c.b;
  const Shape s = b.shape(v);
  if (s.elements() == 1 && s.rank() <= 1) return b.reshape(v, {});
  if (block > 0) {
    const int a = c.axis(axis, x.rank());
    if (s.rank() != x.rank() || s[a] * block < x[a])
      c.wrong("scale ", s.text(), " with blocks of ", block, " does not fit ", x.text());
    Shape apart, repeated, joined = s;
    for (int k = 0; k < s.rank(); ++k) {
      apart.push(s[k]), repeated.push(s[k]);
      if (k == a) apart.push(1), repeated.push(block);
    }
    joined[a] = s[a] * block;
    return b.narrow(b.reshape(b.expand(b.reshape(v, apart), repeated), joined), a, 0, x[a]);
  }
  const int a = c.axis(axis, x.rank());
  if (s.rank() != 1 || s[0] != x[a])
    c.wrong("scale ", s.text(), " does not fit axis ", a, " of ", x.text());
  Shape along;
  for (int k = 0; k < x.rank(); ++k) along.push(k == a ? x[k] : 1);
  return b.reshape(v, along);
}

}  // namespace

Value saturated(const Call& c, Value y, DType to) {
  Builder& b = c.b;
  const Limits l = limits_of(c, to);
  const DType t = b.dtype(y);
  return b.cast(b.min(b.max(y, b.scalar(t, l.low)), b.scalar(t, l.high)), to);
}

namespace {

Value quantized(const Call& c, Value x, Value scale, Value zero, DType to) {
  Builder& b = c.b;
  if (is_f8(to))
    return b.add(op::cast{.to = to, .saturate = c.flag("saturate", true), .x = b.over(x, scale)});
  Value y = b.unary("round", b.over(x, scale));
  if (zero) y = b.plus(y, b.cast(zero, b.dtype(y)));
  return saturated(c, y, to);
}

void quantize(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t axis = c.i("axis", 1), block = c.i("block_size", 0);
  DType to = c.has(2) ? c.dtype(2) : DType{kU8};
  if (c.i("output_dtype", 0)) to = c.dtype_attr("output_dtype", 0);
  // The quotient has the dtype of `precision`, else that of the scale; halves divide in f32.
  const DType t = c.i("precision", 0) ? c.dtype_attr("precision", 1) : c.dtype(1);
  const DType wide = acc_dtype(is_float(t) ? t : DType{kF32});
  const Value scale = spread(c, b.cast(c.value(1), wide), s, axis, block);
  const Value zero =
      c.has(2) && !is_f8(to) ? spread(c, b.cast(c.value(2), wide), s, axis, block) : Value{};
  c.out(quantized(c, b.cast(c.value(0), wide), scale, zero, to));
}

void dequantize(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t axis = c.i("axis", 1), block = c.i("block_size", 0);
  const DType to = c.i("output_dtype", 0) ? c.dtype_attr("output_dtype", 1) : c.dtype(1);
  const DType wide = acc_dtype(to);
  const Value scale = spread(c, b.cast(c.value(1), wide), s, axis, block);
  Value x = c.value(0);
  if (c.dtype(0) == kI32 && c.has(2)) {
    x = b.cast(b.minus(x, spread(c, c.value(2), s, axis, block)), wide);
  } else {
    x = b.cast(x, wide);
    if (c.has(2)) x = b.minus(x, spread(c, b.cast(c.value(2), wide), s, axis, block));
  }
  c.out(b.cast(b.times(x, scale), to));
}

void dynamic_quantize(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), zero = b.scalar(kF32, 0);
  const Ints all = iota_list(c.rank(0));
  const Value high = b.max(all.empty() ? x : b.reduce("max", x, all, false), zero);
  const Value low = b.min(all.empty() ? x : b.reduce("min", x, all, false), zero);
  const Value scale = b.over(b.minus(high, low), 255.0);
  const Value origin = b.over(b.neg(low), scale);
  const Value point = b.unary("round", b.min(b.max(origin, zero), b.scalar(kF32, 255)));
  c.out(0, saturated(c, b.plus(b.unary("round", b.over(x, scale)), point), kU8));
  c.out(1, scale);
  c.out(2, b.cast(point, kU8));
}

// ---- products of 8-bit integers

// An operand as i8, and what was subtracted from it for that.
struct Narrow {
  Value value;
  int64_t shift;
};
Narrow as_i8(Builder& b, Value x) {
  if (b.dtype(x) == kI8) return {x, 0};
  return {b.cast(b.minus(b.cast(x, kI16), b.scalar_int(kI16, 128)), kI8), 128};
}

}  // namespace

// (p - zero_p)·(q - zero_q) in i32. Both zero points may be absent. With P = p - s and Q = q - t in
// i8, and the zero points u = zero_p - s and v = zero_q - t, this is
// P·Q - u·Σ_k Q - v·Σ_k P + K·u·v.
Value integer_matmul(const Call& c, Value p, Value zero_p, Value q, Value zero_q) {
  Builder& b = c.b;
  for (Value x : {p, q})
    if (b.dtype(x) != kI8 && b.dtype(x) != kU8)
      c.wrong("expected i8 or u8 operands, got ", b.type(x).text());
  if (b.shape(p).rank() < 2 || b.shape(q).rank() < 2) c.refuse("integer products of vectors");
  const int last_p = b.shape(p).rank() - 1, rows_q = b.shape(q).rank() - 2;
  const int64_t inner = b.shape(p)[last_p];
  const Narrow np = as_i8(b, p), nq = as_i8(b, q);
  // One number for each row of p, or column of q.
  const auto point = [&](Value zero, int64_t shift, bool rows) {
    if (!zero && shift == 0) return Value{};
    Value z = zero ? b.cast(zero, kI32) : b.scalar_int(kI32, 0);
    const int64_t count = b.shape(z).elements();
    if (b.shape(z).rank() <= 1)
      z = count == 1 ? b.reshape(z, {})
          : rows     ? b.reshape(z, {count, 1})
                     : b.reshape(z, {1, count});
    return b.minus(z, b.scalar_int(kI32, shift));
  };
  const Value u = point(zero_p, np.shift, true), v = point(zero_q, nq.shift, false);
  Value y = b.matmul(np.value, nq.value, false, false, 1.0, kI32);
  if (u) y = b.minus(y, b.times(u, b.sum(b.cast(nq.value, kI32), {rows_q})));
  if (v) y = b.minus(y, b.times(v, b.sum(b.cast(np.value, kI32), {last_p})));
  if (u && v) y = b.plus(y, b.times(b.times(u, v), b.scalar_int(kI32, inner)));
  return y;
}

namespace {

void matmul_integer(Call& c) {
  c.out(integer_matmul(c, c.value(0), c.value_or_none(2), c.value(1), c.value_or_none(3)));
}

// y = saturate(round(acc · scales) + zero)
Value requantized(const Call& c, Value acc, Value scale, Value zero) {
  Builder& b = c.b;
  const Value y = b.unary("round", b.times(b.cast(acc, kF32), scale));
  return saturated(c, b.plus(y, b.cast(zero, kF32)), b.dtype(zero));
}

void qlinear_matmul(Call& c) {
  Builder& b = c.b;
  if (is_f8(c.dtype(0))) c.refuse("products of 8-bit floats");
  const Value acc = integer_matmul(c, c.value(0), c.value(2), c.value(3), c.value(5));
  const auto along = [&](size_t k, bool rows) {
    const Value s = b.cast(c.value(k), kF32);
    const int64_t count = b.shape(s).elements();
    if (b.shape(s).rank() > 1) return s;
    return count == 1 ? b.reshape(s, {})
           : rows     ? b.reshape(s, {count, 1})
                      : b.reshape(s, {1, count});
  };
  const Value scale = b.over(b.times(along(1, true), along(4, false)), along(6, true));
  c.out(requantized(c, acc, scale,
                    c.shape(7).elements() == 1 ? b.reshape(c.value(7), {}) : c.value(7)));
}

constexpr Rule kRules[] = {
    {"QuantizeLinear", 10, quantize},
    {"DequantizeLinear", 10, dequantize},
    {"DynamicQuantizeLinear", 11, dynamic_quantize},
    {"MatMulInteger", 10, matmul_integer},
    {"QLinearMatMul", 10, qlinear_matmul},
};

}  // namespace

std::span<const Rule> quantize_rules() { return kRules; }

}  // namespace tenon::core::onnx
