// SPDX-License-Identifier: Apache-2.0
// Elementwise ops as nodes of ONNX.
#include <algorithm>
#include <cmath>

#include "export/call.hpp"
#include "tenon/unary.hpp"

namespace tenon::core::onnx {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Pair {
  std::string_view kind, op;
};

std::string_view op_of(std::span<const Pair> pairs, std::string_view kind) {
  const auto at = std::ranges::find(pairs, kind, &Pair::kind);
  return at == pairs.end() ? std::string_view() : at->op;
}

bool is_unsigned(DType t) { return t == kU8 || t == kU16 || t == kU32 || t == kU64 || t == kBool; }

// ---- binary

// The sign of a result of C's fmod becomes that of b.
Ref floor_modulo(Call& c, const Ref& a, const Ref& b) {
  Emitter& e = c.e;
  const Ref r = e.add("Mod", {a, b}, {attribute("fmod", 1)}), zero = e.scalar(a.dtype, 0);
  const Ref differs = e.add("Xor", {e.add("Less", {r, zero}), e.add("Less", {b, zero})});
  const Ref exact = e.add("Equal", {r, zero});
  const Ref moves = e.add("And", {differs, e.add("Not", {exact})});
  return e.where(moves, e.add("Add", {r, b}), r);
}

// From an arc tangent of at most 1: the other octants by symmetry.
Ref atan2_of(Call& c, const Ref& y, const Ref& x) {
  Emitter& e = c.e;
  const DType given = y.dtype;
  const Ref a = e.widen(y), b = e.widen(x);
  const DType t = a.dtype;
  const auto number = [&](double v) { return e.scalar(t, v); };
  const auto less = [&](const Ref& p, const Ref& q) { return e.add("Less", {p, q}); };
  const Ref p = e.add("Abs", {a}), q = e.add("Abs", {b});
  const Ref large = e.add("Max", {p, q}), small = e.add("Min", {p, q});
  const Ref infinite = e.add("Equal", {small, number(INFINITY)});
  const Ref origin = e.add("Equal", {large, number(0)});
  Ref ratio = e.add("Div", {small, e.where(origin, number(1), large)});
  ratio = e.where(infinite, number(1), ratio);
  Ref r = e.add("Atan", {ratio});
  r = e.where(less(q, p), e.add("Sub", {number(kPi / 2), r}), r);
  // -0 counts as negative.
  const auto negative = [&](const Ref& v) {
    return e.add("Or", {less(v, number(0)), less(e.add("Reciprocal", {v}), number(0))});
  };
  r = e.where(negative(b), e.add("Sub", {number(kPi), r}), r);
  return e.cast(e.where(negative(a), e.add("Neg", {r}), r), given);
}

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

// ONNX shifts unsigned numbers by less than their bits. A negative number is shifted right as the
// complement of its complement.
Ref shifted(Call& c, bool left, const Ref& a, const Ref& places) {
  Emitter& e = c.e;
  const DType u = unsigned_of(a.dtype);
  const bool by_complement = !left && !is_unsigned(a.dtype);
  const Ref negative = by_complement ? e.add("Less", {a, e.scalar(a.dtype, 0)}) : Ref{};
  const auto complement = [&](const Ref& x) {
    return by_complement ? e.where(negative, e.add("BitwiseNot", {x}), x) : x;
  };
  const Ref x = e.cast(complement(a), u), by = e.cast(places, u);
  const Ref few = e.add("Less", {by, e.scalar(u, static_cast<double>(tenon_dtype_bits(u)))});
  // Chosen as i64: ONNX Runtime has no Where of u64.
  const auto chosen = [&](const Ref& v) {
    return e.cast(e.where(few, e.cast(v, kI64), e.integer(0)), u);
  };
  const Ref y = e.add("BitShift", {x, chosen(by)},
                      {attribute("direction", std::string(left ? "LEFT" : "RIGHT"))});
  return complement(e.cast(chosen(y), a.dtype));
}

void write_binary(Call& c) {
  static constexpr Pair kOps[] = {
      {"add", "Add"},          {"sub", "Sub"},           {"mul", "Mul"}, {"div", "Div"},
      {"max", "Max"},          {"min", "Min"},           {"pow", "Pow"}, {"bit_and", "BitwiseAnd"},
      {"bit_or", "BitwiseOr"}, {"bit_xor", "BitwiseXor"}};
  const auto n = decode<op::binary>(c.node);
  const Ref a = c.in(n.a), b = c.in(n.b);
  if (a.dtype == kBool && (n.kind == "max" || n.kind == "min"))
    return c.out(c.e.add(n.kind == "max" ? "Or" : "And", {a, b}));
  if (n.kind == "fmod") return c.out(c.e.add("Mod", {a, b}, {attribute("fmod", 1)}));
  if (n.kind == "mod")
    return c.out(is_float(a.dtype) ? floor_modulo(c, a, b) : c.e.add("Mod", {a, b}));
  if (n.kind == "atan2") return c.out(atan2_of(c, a, b));
  if (n.kind == "shift_left" || n.kind == "shift_right")
    return c.out(shifted(c, n.kind == "shift_left", a, b));
  const std::string_view op = op_of(kOps, n.kind);
  if (op.empty()) c.refuse("ONNX has no op for kind ", n.kind);
  if (op == "Pow" && is_unsigned(a.dtype) && tenon_dtype_bits(a.dtype) == 64)
    c.refuse("ONNX's Pow does not take u64");
  c.out(c.e.add(op, {a, b}));
}

void write_compare(Call& c) {
  static constexpr Pair kOps[] = {{"eq", "Equal"},   {"ne", "Equal"},
                                  {"lt", "Less"},    {"le", "LessOrEqual"},
                                  {"gt", "Greater"}, {"ge", "GreaterOrEqual"}};
  const auto n = decode<op::compare>(c.node);
  const Ref y = c.e.add(op_of(kOps, n.kind), {c.in(n.a), c.in(n.b)});
  c.out(n.kind == "ne" ? c.e.add("Not", {y}) : y);
}

void write_logical(Call& c) {
  static constexpr Pair kOps[] = {{"and", "And"}, {"or", "Or"}, {"xor", "Xor"}};
  const auto n = decode<op::logical>(c.node);
  if (n.kind == "not") return c.out(c.e.add("Not", {c.in(n.a)}));
  c.out(c.e.add(op_of(kOps, n.kind), {c.in(n.a), c.in(n.b)}));
}

// ---- unary

// Functions that ONNX lacks, of a float of the accumulation dtype.

Ref expm1_of(Emitter& e, const Ref& x) {
  // Near 0: 2t/(1 - t) with t = tanh(x/2), which loses no digits.
  const auto number = [&](double v) { return e.scalar(x.dtype, v); };
  const Ref t = e.add("Tanh", {e.add("Mul", {x, number(0.5)})});
  const Ref near = e.add("Div", {e.add("Mul", {t, number(2)}), e.add("Sub", {number(1), t})});
  const Ref far = e.add("Sub", {e.add("Exp", {x}), number(1)});
  return e.where(e.add("Less", {e.add("Abs", {x}), number(0.5)}), near, far);
}

Ref log1p_of(Emitter& e, const Ref& x) {
  // log(u)·x/(u - 1) corrects the rounding of u = 1 + x.
  const Ref one = e.scalar(x.dtype, 1);
  const Ref u = e.add("Add", {x, one}), log = e.add("Log", {u});
  const Ref rest = e.add("Sub", {u, one});
  const Ref is_one = e.add("Equal", {rest, e.scalar(x.dtype, 0)});
  const Ref corrected = e.add("Div", {e.add("Mul", {log, x}), e.where(is_one, one, rest)});
  const Ref large = e.add("Less", {e.scalar(x.dtype, 1e6), u});
  return e.where(is_one, x, e.where(large, log, corrected));
}

Ref trunc_of(Emitter& e, const Ref& x) {
  return e.where(e.add("Less", {x, e.scalar(x.dtype, 0)}), e.add("Ceil", {x}), e.add("Floor", {x}));
}

// e^(-x²)·p(s)/(1 + 2x) for x ≥ 0, with s = (x - 3.75)/(x + 3.75) and a polynomial p that was fitted to
// (1 + 2x)·e^(x²)·erfc x. Its relative error is about 1e-12.
Ref erfc_of(Emitter& e, const Ref& x) {
  constexpr double kFitted[] = {
      1.2375126308368283,      -0.14024059858819718,   0.0035854156488634575,
      0.08227673860883906,     -0.10880393454602272,   0.09230431965594006,
      -0.05869335274123274,    0.028362285509371275,   -0.009746819789409802,
      0.0017556055599053056,   0.00029442623469104164, -0.00029013582125175065,
      5.039045927890032e-05,   2.2403777624396935e-05, -1.0112604298497368e-05,
      -1.0351546998102691e-06, 9.400499927464273e-07};
  const auto number = [&](double v) { return e.scalar(x.dtype, v); };
  const auto add = [&](const Ref& a, double b) { return e.add("Add", {a, number(b)}); };
  // Beyond 30 the result is 0 in all dtypes.
  const Ref a = e.add("Min", {e.add("Abs", {x}), number(30)});
  const Ref s = e.add("Div", {add(a, -3.75), add(a, 3.75)});
  Ref p = number(std::end(kFitted)[-1]);
  for (size_t k = std::size(kFitted) - 1; k-- > 0;) p = add(e.add("Mul", {p, s}), kFitted[k]);
  const Ref bell = e.add("Exp", {e.add("Neg", {e.add("Mul", {a, a})})});
  const Ref y = e.add("Div", {e.add("Mul", {bell, p}), add(e.add("Mul", {a, number(2)}), 1)});
  return e.where(e.add("Less", {x, number(0)}), e.add("Sub", {number(2), y}), y);
}

constexpr Pair kUnary[] = {
    {"neg", "Neg"},           {"abs", "Abs"},
    {"sign", "Sign"},         {"exp", "Exp"},
    {"log", "Log"},           {"sqrt", "Sqrt"},
    {"floor", "Floor"},       {"ceil", "Ceil"},
    {"round", "Round"},       {"sin", "Sin"},
    {"cos", "Cos"},           {"tan", "Tan"},
    {"atan", "Atan"},         {"asin", "Asin"},
    {"acos", "Acos"},         {"sinh", "Sinh"},
    {"cosh", "Cosh"},         {"tanh", "Tanh"},
    {"erf", "Erf"},           {"is_nan", "IsNaN"},
    {"is_inf", "IsInf"},      {"reciprocal", "Reciprocal"},
    {"sigmoid", "Sigmoid"},   {"softplus", "Softplus"},
    {"softsign", "Softsign"}, {"hard_swish", "HardSwish"},
    {"mish", "Mish"},         {"asinh", "Asinh"},
    {"acosh", "Acosh"},       {"atanh", "Atanh"},
};

}  // namespace

Ref write_unary(Call& c, const std::string& kind, double given_alpha, double given_beta,
                const Ref& x) {
  Emitter& e = c.e;
  const UnaryInfo* info = find_unary(kind);
  if (!info) c.refuse("ONNX has no op for kind ", kind);
  const double alpha = unary_alpha(*info, given_alpha), beta = unary_beta(*info, given_beta);
  for (const double parameter : {alpha, beta})
    if (x.dtype == kF64 && info->kind != UnaryKind::silu && !fits_f32(parameter))
      c.refuse("parameters of ONNX's nodes are f32, ", parameter, " is not");
  if (info->kind == UnaryKind::neg && is_unsigned(x.dtype))
    return e.add("Sub", {e.scalar(x.dtype, 0), x});
  if (const std::string_view op = op_of(kUnary, kind); !op.empty()) return e.add(op, {x});
  const auto widened = [&](Ref (*f)(Emitter&, const Ref&)) {
    return e.cast(f(e, e.widen(x)), x.dtype);
  };
  switch (info->kind) {
    case UnaryKind::relu:
      return is_unsigned(x.dtype) ? e.add("Identity", {x}) : e.add("Relu", {x});
    case UnaryKind::square:
      return e.add("Mul", {x, x});
    case UnaryKind::leaky_relu:
      return e.add("LeakyRelu", {x}, {attribute("alpha", alpha)});
    case UnaryKind::elu:
      return e.add("Elu", {x}, {attribute("alpha", alpha)});
    case UnaryKind::selu:
      return e.add("Selu", {x}, {attribute("alpha", alpha), attribute("gamma", beta)});
    case UnaryKind::hard_sigmoid:
      return e.add("HardSigmoid", {x}, {attribute("alpha", alpha), attribute("beta", beta)});
    case UnaryKind::gelu:
      return e.add("Gelu", {x});
    case UnaryKind::gelu_tanh:
      return e.add("Gelu", {x}, {attribute("approximate", "tanh")});
    case UnaryKind::silu: {
      const Ref scaled = alpha == 1 ? x : e.add("Mul", {x, e.scalar(x.dtype, alpha)});
      return e.add("Mul", {x, e.add("Sigmoid", {scaled})});
    }
    case UnaryKind::rsqrt:
      return widened(
          [](Emitter& to, const Ref& w) { return to.add("Reciprocal", {to.add("Sqrt", {w})}); });
    case UnaryKind::trunc:
      return trunc_of(e, x);
    case UnaryKind::expm1:
      return widened(expm1_of);
    case UnaryKind::log1p:
      return widened(log1p_of);
    case UnaryKind::erfc:
      return widened(erfc_of);
    default:
      c.refuse("ONNX has no op for kind ", kind);
  }
}

namespace {

void write_unary_node(Call& c) {
  const auto n = decode<op::unary>(c.node);
  c.out(write_unary(c, n.kind, n.alpha, n.beta, c.in(n.x)));
}

// The largest number of an integer dtype.
Ref most_of(Emitter& e, DType t) {
  const size_t bytes = (tenon_dtype_bits(t) + 7) / 8;
  Bytes ones(bytes, std::byte{0xFF});
  if (!is_unsigned(t)) ones.back() = std::byte{0x7F};  // little endian
  return e.constant({t, {}}, std::make_shared<const Bytes>(std::move(ones)));
}

// ONNX says nothing of floats that an integer dtype does not hold; tenon saturates, and NaN is 0.
Ref saturated(Emitter& e, const Ref& x, DType to) {
  Ref w = e.widen(x);
  if (w.dtype != kF64) w = e.cast(w, kF32);
  w = e.where(e.add("IsNaN", {w}), e.scalar(w.dtype, 0), w);
  const bool is_signed = to == TENON_DTYPE_I4 || !(is_unsigned(to) || to == TENON_DTYPE_U4);
  const int bits = static_cast<int>(tenon_dtype_bits(to)) - is_signed;
  const double end = std::ldexp(1.0, bits), low = is_signed ? -end : 0;
  // Before `end`, as far as the float holds it.
  const int digits = w.dtype == kF64 ? 53 : 24;
  const bool exact = bits <= digits;
  const double high = exact ? end - 1 : end - std::ldexp(1.0, bits - digits);
  const Ref clipped = e.add("Clip", {w, e.scalar(w.dtype, low), e.scalar(w.dtype, high)});
  const Ref y =
      e.add_plain("Cast", {clipped}, {attribute("to", int64_t{element_of_dtype(to)})}, {to})[0];
  if (exact) return y;
  return e.where(e.add("Less", {w, e.scalar(w.dtype, end)}), y, most_of(e, to));
}

void write_cast(Call& c) {
  const auto n = decode<op::cast>(c.node);
  const Ref x = c.in(n.x);
  if (is_blocks(n.to)) c.refuse("ONNX has no blocks");
  if (x.dtype == n.to) return c.out(c.e.add("Identity", {x}));
  const bool from_float = is_float(x.dtype) || sdk::is_f8(x.dtype);
  if (from_float && (is_integer(n.to) || sdk::is_nibble(n.to)))
    return c.out(saturated(c.e, x, n.to));
  std::vector<Attribute> attributes = {attribute("to", int64_t{element_of_dtype(n.to)})};
  if (sdk::is_f8(n.to) && !n.saturate) attributes.push_back(attribute("saturate", 0));
  c.out(c.e.add_plain("Cast", {x}, std::move(attributes), {n.to})[0]);
}

void write_copy(Call& c) { c.out(c.e.add("Identity", {c.in(decode<op::copy>(c.node).x)})); }

void write_where(Call& c) {
  const auto n = decode<op::where>(c.node);
  c.out(c.e.where(c.in(n.cond), c.in(n.a), c.in(n.b)));
}

constexpr ExportRule kRules[] = {
    {"binary", write_binary},    {"compare", write_compare}, {"logical", write_logical},
    {"unary", write_unary_node}, {"cast", write_cast},       {"copy", write_copy},
    {"where", write_where},
};

}  // namespace

std::span<const ExportRule> elementwise_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
