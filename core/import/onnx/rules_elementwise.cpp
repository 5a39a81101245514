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

// asinh, acosh, atanh: by log1p, so that results near 0 are accurate, and by the logarithm alone
// where a square would overflow.
constexpr double kLn2 = 0.6931471805599453;
double no_square_above(DType t) { return t == kF64 ? 1e150 : 1e15; }

void asinh(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), w = b.widen(x), a = b.unary("abs", w);
  const double most = no_square_above(b.dtype(w));
  const Value s = b.min(a, b.scalar(b.dtype(w), most)), square = b.times(s, s);
  const Value small = b.unary(
      "log1p", b.plus(s, b.over(square, b.plus(b.unary("sqrt", b.plus(square, 1.0)), 1.0))));
  const Value large = b.plus(b.log(b.max(a, b.scalar(b.dtype(w), 1.0))), kLn2);
  const Value y = b.where(b.compare("gt", a, most), large, small);
  c.out(b.cast(b.where(b.compare("lt", w, 0.0), b.neg(y), y), b.dtype(x)));
}

void acosh(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), w = b.widen(x);
  const double most = no_square_above(b.dtype(w));
  const Value s = b.min(w, b.scalar(b.dtype(w), most)), less = b.minus(s, 1.0);
  const Value small =
      b.unary("log1p", b.plus(less, b.unary("sqrt", b.times(less, b.plus(s, 1.0)))));
  const Value large = b.plus(b.log(b.max(w, b.scalar(b.dtype(w), 1.0))), kLn2);
  c.out(b.cast(b.where(b.compare("gt", w, most), large, small), b.dtype(x)));
}

void atanh(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), w = b.widen(x), a = b.unary("abs", w);
  const Value one = b.scalar(b.dtype(w), 1.0);
  const Value y = b.times(b.unary("log1p", b.over(b.times(a, 2.0), b.minus(one, a))), 0.5);
  c.out(b.cast(b.where(b.compare("lt", w, 0.0), b.neg(y), y), b.dtype(x)));
}

void is_inf(Call& c) {
  Builder& b = c.b;
  const Value x = b.widen(c.value(0));
  const bool negative = c.flag("detect_negative", true), positive = c.flag("detect_positive", true);
  const Value infinite = b.unary("is_inf", x);
  if (negative && positive) return c.out(infinite);
  if (!negative && !positive) return c.out(b.logical("and", infinite, b.logical("not", infinite)));
  c.out(b.logical("and", infinite, b.compare(positive ? "gt" : "lt", x, 0.0)));
}

// A value with a last axis of bits, each 0 or 1, in the unsigned dtype of its width.
DType unsigned_of(DType t) {
  switch (tenon_dtype_bits(t)) {
    case 8:
      return kU8;
    case 16:
      return kU16;
    case 32:
      return kU32;
    default:
      return kU64;
  }
}
Value powers_of_two(Builder& b, DType t) {
  const auto bits = static_cast<int64_t>(tenon_dtype_bits(t));
  Ints powers;
  for (int64_t k = 0; k < bits; ++k) powers.push_back(static_cast<int64_t>(uint64_t{1} << k));
  return b.ints(t, powers);
}
Value bits_of(Builder& b, Value x, DType t) {
  const Value u = b.cast(x, t);
  return b.binary("fmod", b.over(b.unsqueeze(u, b.shape(u).rank()), powers_of_two(b, t)),
                  b.scalar_int(t, 2));
}

// kind: the op that does on bits what is asked for.
template <Kind kind>
void bitwise(Call& c) {
  Builder& b = c.b;
  const DType t = c.dtype(0);
  if (!is_integer(t)) c.wrong("expected integers, got ", c.type(0).text());
  const DType u = unsigned_of(t);
  const Value p = bits_of(b, c.value(0), u), q = bits_of(b, c.value(1), u);
  Value bits = b.binary(std::string_view(kind), p, q);
  if (std::string_view(kind) == "add") bits = b.binary("fmod", bits, b.scalar_int(u, 2));
  const int last = b.shape(bits).rank() - 1;
  c.out(b.cast(b.sum(b.times(bits, powers_of_two(b, u)), {last}, false), t));
}

void bitwise_not(Call& c) {
  if (!is_integer(c.dtype(0))) c.wrong("expected integers, got ", c.type(0).text());
  c.out(c.b.minus(c.b.scalar_int(c.dtype(0), -1), c.value(0)));
}

void bit_shift(Call& c) {
  Builder& b = c.b;
  const DType t = c.dtype(0);
  const std::string direction = c.s("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.wrong("attribute direction: expected LEFT or RIGHT, got '", direction, "'");
  const Value x = c.value(0), n = c.value(1), zero = b.scalar_int(t, 0);
  Value in = b.compare("lt", n, b.scalar_int(t, tenon_dtype_bits(t)));
  const bool is_signed = t == kI8 || t == kI16 || t == kI32 || t == kI64;
  if (is_signed) in = b.logical("and", in, b.compare("ge", n, zero));
  const Value factor = b.binary("pow", b.scalar_int(t, 2), b.where(in, n, zero));
  if (direction == "LEFT") return c.out(b.where(in, b.times(x, factor), zero));
  if (!is_signed) return c.out(b.where(in, b.over(x, factor), zero));
  // The sign is shifted in. 2 to the highest bit is negative: only the sign is left then.
  const Value sign = b.where(b.compare("lt", x, zero), b.scalar_int(t, -1), zero);
  const Value quotient = b.over(b.minus(x, b.binary("mod", x, factor)), factor);
  in = b.logical("and", in, b.compare("gt", factor, zero));
  c.out(b.where(in, quotient, sign));
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
    {"Asinh", 9, asinh},
    {"Acosh", 9, acosh},
    {"Atanh", 9, atanh},
    {"Erf", 9, unary<"erf">},
    {"IsNaN", 9, unary<"is_nan">},
    {"IsInf", 10, is_inf},
    {"BitwiseAnd", 18, bitwise<"mul">},
    {"BitwiseOr", 18, bitwise<"max">},
    {"BitwiseXor", 18, bitwise<"add">},
    {"BitwiseNot", 18, bitwise_not},
    {"BitShift", 11, bit_shift},
};

}  // namespace

std::span<const Rule> elementwise_rules() { return kRules; }

}  // namespace tenon::core::onnx
