// SPDX-License-Identifier: Apache-2.0
// Rules: arithmetic, element by element.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {

Value swap_axes(Builder& b, Value x, int p, int q) {
  Ints perm = iota_list(b.shape(x).rank());
  std::swap(perm[static_cast<size_t>(p)], perm[static_cast<size_t>(q)]);
  return b.transpose(x, perm);
}

Value flip(Builder& b, Value x, int axis) {
  const int64_t length = b.shape(x)[axis];
  return length < 2 ? x : b.narrow(x, axis, length - 1, length, -1);
}

Shape common_shape(Builder& b, std::initializer_list<Value> values) {
  Shape out;
  for (Value v : values) out = broadcast(out, b.shape(v), "broadcast");
  return out;
}

namespace {

template <Kind kind>
void binary(Call& c) {
  if (c.folds())
    if (auto known = known_binary(kind, *c.known(0), c.need(1, "B")))
      return c.out(std::move(*known));
  c.out(c.b.binary(std::string_view(kind), c.value(0), c.value(1)));
}

template <Kind kind>
void unary(Call& c) {
  if (c.folds())
    if (auto known = known_unary(kind, *c.known(0))) return c.out(std::move(*known));
  c.out(c.b.unary(std::string_view(kind), c.value(0)));
}

// Max, Min, Sum: any number of inputs.
template <Kind kind>
void variadic(Call& c) {
  if (c.inputs() == 0) c.wrong("expected at least one input");
  if (c.folds()) {
    std::optional<Known> all = *c.known(0);
    for (size_t k = 1; k < c.inputs() && all; ++k)
      all = known_binary(kind, *all, c.need(k, "input"));
    if (all) return c.out(std::move(*all));
  }
  Value y = c.value(0);
  for (size_t k = 1; k < c.inputs(); ++k) y = c.b.binary(std::string_view(kind), y, c.value(k));
  c.out(y);
}

void mean(Call& c) {
  if (c.inputs() == 0) c.wrong("expected at least one input");
  Value y = c.value(0);
  for (size_t k = 1; k < c.inputs(); ++k) y = c.b.plus(y, c.value(k));
  c.out(c.b.over(y, static_cast<double>(c.inputs())));
}

void mod(Call& c) {
  const bool truncated = c.flag("fmod", false);
  if (truncated || is_float(c.dtype(0))) return truncated ? binary<"fmod">(c) : binary<"mod">(c);
  binary<"mod">(c);
}

// The exponent may have another dtype; the result has that of the base.
void pow(Call& c) {
  const DType base = c.dtype(0), exponent = c.dtype(1);
  if (base == exponent) return binary<"pow">(c);
  Builder& b = c.b;
  const auto as = [&](size_t k, DType t) { return b.cast(c.value(k), t); };
  if (is_integer(base) && is_float(exponent)) {
    const DType wide = exponent == kF64 || tenon_dtype_bits(base) > 16 ? kF64 : kF32;
    return c.out(b.cast(b.binary("pow", as(0, wide), as(1, wide)), base));
  }
  if (is_integer(base)) {
    // Exponents that the base's dtype cannot hold have a defined result only for bases 0, 1, -1.
    return c.out(b.cast(b.binary("pow", as(0, kI64), as(1, kI64)), base));
  }
  if (c.folds())
    if (auto known = known_binary("pow", *c.known(0), known_cast(c.need(1, "B"), base)))
      return c.out(std::move(*known));
  c.out(b.binary("pow", c.value(0), as(1, base)));
}

void reciprocal(Call& c) { unary<"reciprocal">(c); }

void is_inf(Call& c) {
  Builder& b = c.b;
  const Value x = b.widen(c.value(0));
  const bool negative = c.flag("detect_negative", true), positive = c.flag("detect_positive", true);
  const Value infinite = b.unary("is_inf", x);
  if (negative && positive) return c.out(infinite);
  if (!negative && !positive) return c.out(b.logical("and", infinite, b.logical("not", infinite)));
  c.out(b.logical("and", infinite, b.compare(positive ? "gt" : "lt", x, 0.0)));
}

template <Kind kind>
void bitwise(Call& c) {
  if (!is_integer(c.dtype(0))) c.wrong("expected integers, got ", c.type(0).text());
  binary<kind>(c);
}

void bitwise_not(Call& c) {
  if (!is_integer(c.dtype(0))) c.wrong("expected integers, got ", c.type(0).text());
  c.out(c.b.binary("bit_xor", c.value(0), c.b.scalar_int(c.dtype(0), -1)));
}

void bit_shift(Call& c) {
  const std::string direction = c.s("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.wrong("attribute direction: expected LEFT or RIGHT, got '", direction, "'");
  if (!is_integer(c.dtype(0))) c.wrong("expected integers, got ", c.type(0).text());
  direction == "LEFT" ? binary<"shift_left">(c) : binary<"shift_right">(c);
}

constexpr Rule kRules[] = {
    {"Add", 7, binary<"add">},
    {"Sub", 7, binary<"sub">},
    {"Mul", 7, binary<"mul">},
    {"Div", 7, binary<"div">},
    {"Pow", 7, pow},
    {"Mod", 10, mod},
    {"Max", 6, variadic<"max">},
    {"Min", 6, variadic<"min">},
    {"Sum", 6, variadic<"add">},
    {"Mean", 6, mean},
    {"Abs", 6, unary<"abs">},
    {"Neg", 6, unary<"neg">},
    {"Sign", 9, unary<"sign">},
    {"Exp", 6, unary<"exp">},
    {"Log", 6, unary<"log">},
    {"Sqrt", 6, unary<"sqrt">},
    {"Reciprocal", 6, reciprocal},
    {"Floor", 6, unary<"floor">},
    {"Ceil", 6, unary<"ceil">},
    {"Round", 11, unary<"round">},
    {"Sin", 7, unary<"sin">},
    {"Cos", 7, unary<"cos">},
    {"Tan", 7, unary<"tan">},
    {"Asin", 7, unary<"asin">},
    {"Acos", 7, unary<"acos">},
    {"Atan", 7, unary<"atan">},
    {"Sinh", 9, unary<"sinh">},
    {"Cosh", 9, unary<"cosh">},
    {"Asinh", 9, unary<"asinh">},
    {"Acosh", 9, unary<"acosh">},
    {"Atanh", 9, unary<"atanh">},
    {"Erf", 9, unary<"erf">},
    {"IsNaN", 9, unary<"is_nan">},
    {"IsInf", 10, is_inf},
    {"BitwiseAnd", 18, bitwise<"bit_and">},
    {"BitwiseOr", 18, bitwise<"bit_or">},
    {"BitwiseXor", 18, bitwise<"bit_xor">},
    {"BitwiseNot", 18, bitwise_not},
    {"BitShift", 11, bit_shift},
};

}  // namespace

std::span<const Rule> elementwise_rules() { return kRules; }

}  // namespace tenon::core::onnx
