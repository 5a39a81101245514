// SPDX-License-Identifier: Apache-2.0
// binary compare logical unary activation_backward cast copy stop_gradient where swiglu swiglu_backward:
// specification 1 and 2.5. The kinds' formulas are in activation.cpp.
#include "ops/activation.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

bool is_number(DType t) { return is_float(t) || is_integer(t); }

// ---- binary

constexpr std::string_view kBinaryWords =
    "add sub mul div max min pow mod fmod atan2 bit_and bit_or bit_xor shift_left shift_right";

bool is_on_bits(std::string_view kind) {
  return kind.starts_with("bit_") || kind.starts_with("shift_");
}

void binary_shape(Infer& i, const op::binary& n) {
  i.want_same_dtype(n.a, "a", n.b, "b");
  const DType t = i.dtype(n.a);
  const bool fits = n.kind == "atan2"                    ? is_float(t)
                    : is_on_bits(n.kind)                 ? is_integer(t)
                    : n.kind == "max" || n.kind == "min" ? is_number(t) || t == kBool
                    : n.kind == "add" || n.kind == "sub" || n.kind == "mul"
                        ? is_number(t) || is_complex(t)
                        : is_number(t);
  if (!fits)
    i.fail(Code::dtype_mismatch, "operand a: kind ", n.kind, " does not take ", i.type(n.a).text());
  i.out(0, {t, broadcast(i.shape(n.a), i.shape(n.b), i.who())});
}

// Reduces a gradient of the broadcast shape to an operand.
void give_summed(Grad& g, Value operand, Value gradient) {
  const Type to = g.b.type(operand);
  g.give(operand, g.b.cast(g.b.sum_to(gradient, to.shape), to.dtype));
}

// The gradient of a in max and min: half on a tie, 0 if the other operand won, all of it for NaN.
Value extreme_gradient(Builder& b, std::string_view lost, Value a, Value other, Value dy) {
  const Value rest = b.where(b.compare(lost, a, other), b.scalar(b.dtype(dy), 0), dy);
  return b.where(b.compare("eq", a, other), b.times(dy, 0.5), rest);
}

Value pow_da(Builder& b, Value a, Value e, Value dy) {
  // For e = 0, the result is 0 regardless of a. 1 replaces a, so that the dropped branch is finite.
  const Value none = b.compare("eq", e, 0);
  const Value safe = b.where(none, b.scalar(b.dtype(e), 1), e);
  const Value slope = b.times(safe, b.binary("pow", a, b.minus(safe, 1)));
  return b.where(none, b.scalar(b.dtype(dy), 0), b.times(dy, slope));
}

Value pow_db(Builder& b, Value a, Value e, Value dy) {
  const Value none = b.logical("and", b.compare("eq", a, 0), b.compare("ge", e, 0));
  const Value safe = b.where(none, b.scalar(b.dtype(a), 1), a);
  const Value slope = b.times(b.binary("pow", safe, e), b.log(safe));
  return b.where(none, b.scalar(b.dtype(dy), 0), b.times(dy, slope));
}

// The gradient of a product by its other factor.
Value times_other(Builder& b, Value dy, Value other) {
  return b.times(dy, is_complex(b.dtype(other)) ? b.conj(other) : other);
}

Value binary_da(Builder& b, std::string_view kind, Value a, Value c, Value dy) {
  if (kind == "mul") return times_other(b, dy, c);
  if (kind == "div") return b.over(dy, c);
  if (kind == "max") return extreme_gradient(b, "lt", a, c, dy);
  if (kind == "min") return extreme_gradient(b, "gt", a, c, dy);
  if (kind == "pow") return pow_da(b, a, c, dy);
  if (kind == "atan2") return b.over(b.times(dy, c), b.plus(b.times(a, a), b.times(c, c)));
  return dy;  // add sub mod fmod
}

Value binary_db(Builder& b, std::string_view kind, Value a, Value c, Value dy) {
  if (kind == "sub") return b.neg(dy);
  if (kind == "mul") return times_other(b, dy, a);
  if (kind == "div") return b.neg(b.times(dy, b.over(b.over(a, c), c)));
  if (kind == "max") return extreme_gradient(b, "lt", c, a, dy);
  if (kind == "min") return extreme_gradient(b, "gt", c, a, dy);
  if (kind == "pow") return pow_db(b, a, c, dy);
  if (kind == "mod") return b.neg(b.times(dy, b.unary("floor", b.over(a, c))));
  if (kind == "fmod") return b.neg(b.times(dy, b.unary("trunc", b.over(a, c))));
  if (kind == "atan2") return b.neg(b.over(b.times(dy, a), b.plus(b.times(a, a), b.times(c, c))));
  return dy;  // add
}

void binary_grad(Grad& g, const op::binary& n) {
  Builder& b = g.b;
  // A single operation is rounded once in its own dtype. Expressions with more steps use the
  // accumulation dtype.
  const auto wide = [&](Value operand) {
    if (n.kind == "add" || n.kind == "sub") return false;
    return n.kind != "mul" || b.shape(operand) != b.shape(g.dy());
  };
  const auto give = [&](Value operand, auto rule) {
    if (!g.wants(operand)) return;
    const bool w = wide(operand);
    const auto in = [&](Value v) { return w ? b.widen(v) : v; };
    const Value a = in(n.a), c = in(n.b);
    give_summed(g, operand, rule(b, n.kind, a, c, in(g.dy())));
  };
  give(n.a, binary_da);
  give(n.b, binary_db);
}

// (a, b)(c, d) = (a, b) c + (b, a) (-d, d): one pass over pairs.
Value complex_product(Builder& b, Value x, Value y) {
  const Value a = b.as_real(x), c = b.as_real(y);
  const int last = b.shape(x).rank(), other = b.shape(y).rank();
  const Value real = b.narrow(c, other, 0, 1), imaginary = b.narrow(c, other, 1, 1);
  const Value turned = b.times(b.narrow(a, last, 1, 2, -1), b.pair(b.dtype(a), -1, 1));
  return b.as_complex(b.plus(b.times(a, real), b.times(turned, imaginary)));
}

bool binary_lower(Lower& l, const op::binary& n) {
  Builder& b = l.b;
  if (!is_complex(b.dtype(n.a))) return false;
  l.out(0, n.kind == "mul" ? complex_product(b, n.a, n.b)
                           : b.as_complex(b.binary(n.kind, b.as_real(n.a), b.as_real(n.b))));
  return true;
}

bool binary_padded(Padded& p, const op::binary& n) {
  const bool smooth =
      n.kind == "add" || n.kind == "sub" || n.kind == "mul" || n.kind == "max" || n.kind == "min";
  if (!smooth)
    for (Value v : {n.a, n.b}) p.avoid_singular(v);
  return true;
}

constexpr Record<op::binary> kBinary{.shape = binary_shape,
                                     .words = {{"kind", kBinaryWords}},
                                     .grad = binary_grad,
                                     .lower = binary_lower,
                                     .batch = batch_aligned<op::binary>,
                                     .padded = binary_padded,
                                     .flops = no_products,
                                     .bytes = each_once,
                                     .traits = kElementwise};

// ---- compare logical

void compare_shape(Infer& i, const op::compare& n) {
  i.want_same_dtype(n.a, "a", n.b, "b");
  const DType t = i.dtype(n.a);
  if (!is_number(t) && t != kBool)
    i.fail(Code::dtype_mismatch, "operand a: expected a float, an integer or bool, got ",
           i.type(n.a).text());
  i.out(0, {kBool, broadcast(i.shape(n.a), i.shape(n.b), i.who())});
}
constexpr Record<op::compare> kCompare{.shape = compare_shape,
                                       .words = {{"kind", "eq ne lt le gt ge"}},
                                       .batch = batch_aligned<op::compare>,
                                       .flops = no_products,
                                       .bytes = each_once,
                                       .traits = kElementwise};

void logical_shape(Infer& i, const op::logical& n) {
  i.want_dtype(n.a, "a", kBool);
  i.want_dtype(n.b, "b", kBool);
  if (n.kind == "not") {
    if (n.b)
      i.fail(Code::invalid_argument, "operand b: kind not takes one operand, two were given");
    i.out(0, i.type(n.a));
    return;
  }
  if (!n.b)
    i.fail(Code::invalid_argument, "operand b: kind ", n.kind,
           " takes two operands, one was given");
  i.out(0, {kBool, broadcast(i.shape(n.a), i.shape(n.b), i.who())});
}
constexpr Record<op::logical> kLogical{.shape = logical_shape,
                                       .words = {{"kind", "and or xor not"}},
                                       .batch = batch_aligned<op::logical>,
                                       .flops = no_products,
                                       .bytes = each_once,
                                       .traits = kElementwise};

// ---- unary activation_backward

bool is_test(UnaryKind kind) { return kind == UnaryKind::is_nan || kind == UnaryKind::is_inf; }

// Checks of both ops. `x` is the forward's operand or a value of its type.
template <class Op>
const UnaryInfo& want_unary(const Infer& i, const Op& n) {
  const UnaryInfo& info = want_activation(i, "kind", n.kind, n.alpha, n.beta);
  if (n.ste && !is_rounding(info.kind))
    i.fail(Code::invalid_argument,
           "attribute ste: only floor, ceil, trunc and round take it, given with kind ", n.kind);
  return info;
}

void unary_shape(Infer& i, const op::unary& n) {
  const UnaryInfo& info = want_unary(i, n);
  const Type x = i.type(n.x);
  const bool turned = is_complex(x.dtype) && info.kind == UnaryKind::neg;
  if (!is_float(x.dtype) && !(info.integer && is_integer(x.dtype)) && !turned)
    i.fail(Code::dtype_mismatch, "operand x: kind ", n.kind, " does not take ", x.text(),
           is_complex(x.dtype) && info.kind == UnaryKind::abs ? "; hint: complex_abs does" : "");
  i.out(0, {is_test(info.kind) ? kBool : x.dtype, x.shape});
}

void unary_grad(Grad& g, const op::unary& n) {
  if (!g.wants(n.x)) return;
  const UnaryInfo& info = *find_unary(n.kind);
  if (n.ste) return g.give(n.x, g.dy());
  if (is_flat(info.kind)) return g.give(n.x, g.b.zeros(g.b.type(n.x)));
  if (info.kind == UnaryKind::neg) return g.give(n.x, g.b.neg(g.dy()));
  g.give(n.x, g.b.add(op::activation_backward{.kind = n.kind,
                                              .alpha = n.alpha,
                                              .beta = n.beta,
                                              .from_output = info.from_output,
                                              .x = info.from_output ? g.y() : n.x,
                                              .dy = g.dy()}));
}

bool unary_lower(Lower& l, const op::unary& n) {
  const Activation act = activation(n.kind, n.alpha, n.beta);
  const DType t = l.type(n.x).dtype;
  if (is_complex(t)) {
    l.out(0, l.b.as_complex(l.b.neg(l.b.as_real(n.x))));
    return true;
  }
  if (act.info.primitive) return false;
  l.out(0, l.b.cast(activate(l.b, act, l.b.widen(n.x)), t));
  return true;
}
bool unary_padded(Padded& p, const op::unary& n) {
  p.avoid_singular(n.x);
  return true;
}

constexpr Record<op::unary> kUnary{.shape = unary_shape,
                                   .words = {{"kind", kUnaryWords}},
                                   .grad = unary_grad,
                                   .lower = unary_lower,
                                   .batch = batch_aligned<op::unary>,
                                   .padded = unary_padded,
                                   .flops = no_products,
                                   .bytes = each_once,
                                   .traits = kElementwise};

void activation_backward_shape(Infer& i, const op::activation_backward& n) {
  const UnaryInfo& info = want_unary(i, n);
  if (is_test(info.kind))
    i.fail(Code::unsupported, "attribute kind: ", n.kind, " has no derivative");
  if (n.from_output && !info.from_output)
    i.fail(Code::unsupported, "attribute from_output: the derivative of ", n.kind,
           " needs the forward's input");
  i.want_float(n.x, "x");
  i.want_same_dtype(n.x, "x", n.dy, "dy");
  i.want_shape(n.dy, "dy", i.shape(n.x));
  i.out(0, i.type(n.x));
}

bool activation_backward_lower(Lower& l, const op::activation_backward& n) {
  Builder& b = l.b;
  const DType t = l.type(n.x).dtype;
  const Activation act = activation(n.kind, n.alpha, n.beta);
  const Value x = b.widen(n.x);
  const Value slope =
      n.from_output ? activation_slope_from_output(b, act, x) : activation_slope(b, act, n.ste, x);
  l.out(0, b.cast(b.times(b.widen(n.dy), slope), t));
  return true;
}
constexpr Record<op::activation_backward> kActivationBackward{
    .shape = activation_backward_shape,
    .words = {{"kind", kUnaryWords}},
    .lower = activation_backward_lower,
    .batch = batch_all<op::activation_backward>,
    .flops = no_products,
    .bytes = each_once,
    .traits = kElementwise};

// ---- cast copy stop_gradient where

void cast_shape(Infer& i, const op::cast& n) {
  if (n.to == TENON_DTYPE_NONE) i.fail(Code::invalid_argument, "attribute to: a dtype is required");
  const DType from = i.dtype(n.x);
  if (is_blocks(from))
    i.fail(Code::dtype_mismatch, "operand x: got ", i.type(n.x).text(),
           "; dequantize_blocks makes numbers of blocks");
  if (n.to == TENON_DTYPE_Q8_0) {
    i.want_float(n.x, "x");
    return i.out(0, {n.to, i.shape(n.x)});
  }
  if (is_blocks(n.to))
    i.fail(Code::unsupported, "attribute to: expected q8_0 of the dtypes of blocks, given ",
           dtype_name(n.to));
  if (n.to >= TENON_DTYPE_COUNT)
    i.fail(Code::invalid_argument, "attribute to: ", n.to, " is no dtype");
  if (is_complex(from) && !is_complex(n.to))
    i.fail(Code::unsupported, "operand x: complex numbers are cast to c64 and c128 only, got ",
           i.type(n.x).text(), " to ", dtype_name(n.to),
           "; hint: view_as_real gives the parts, complex_abs the length");
  if (is_complex(n.to) && !is_complex(from) && !is_number(from) && from != kBool)
    i.fail(Code::unsupported,
           "operand x: expected a float, an integer, bool or a complex number, got ",
           i.type(n.x).text(), " to ", dtype_name(n.to), "; hint: cast to f32 first");
  i.out(0, {n.to, i.shape(n.x)});
}

void cast_grad(Grad& g, const op::cast& n) {
  if (!g.wants(n.x)) return;
  const DType from = g.b.dtype(n.x);
  if ((!is_float(from) && !is_complex(from)) || (!is_float(n.to) && !is_complex(n.to)))
    g.refuse("x",
             cat("a cast from ", dtype_name(from), " to ", dtype_name(n.to), " has no derivative"));
  const bool joined = is_complex(n.to) && !is_complex(from);
  g.give(n.x, g.b.cast(joined ? g.b.part(g.dy(), 0) : g.dy(), from));
}

bool cast_lower(Lower& l, const op::cast& n) {
  Builder& b = l.b;
  if (!is_complex(n.to)) return false;
  const DType part = sdk::part_dtype(n.to);
  const int rank = b.shape(n.x).rank();
  l.out(0, b.as_complex(is_complex(b.dtype(n.x))
                            ? b.cast(b.as_real(n.x), part)
                            : pad_axis(b, b.unsqueeze(b.cast(n.x, part), rank), rank, 0, 1)));
  return true;
}

bool cast_padded(Padded& p, const op::cast& n) {
  if (is_blocks(n.to) && p.along(n.x, -1)) return p.refuse("its blocks of elements are padded");
  return true;
}

// Version 2 casts to complex numbers.
uint32_t cast_version(const op::cast& n) { return is_complex(n.to) ? 2 : 1; }

constexpr Record<op::cast> kCast{
    .shape = cast_shape,
    .words = {{"to",
               "f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64 i4 u4 bool f8e4m3 f8e5m2 c64 c128 "
               "q8_0"}},
    .grad = cast_grad,
    .lower = cast_lower,
    .batch = batch_aligned<op::cast>,
    .padded = cast_padded,
    .flops = no_products,
    .bytes = each_once,
    .traits = kElementwise | kReadsBlocks,
    .lowest_version = cast_version};

void copy_shape(Infer& i, const op::copy& n) { i.out(0, i.type(n.x)); }
void copy_grad(Grad& g, const op::copy& n) {
  if (g.wants(n.x)) g.give(n.x, g.dy());
}
constexpr Record<op::copy> kCopy{.shape = copy_shape,
                                 .grad = copy_grad,
                                 .batch = batch_aligned<op::copy>,
                                 .flops = no_products,
                                 .bytes = each_once,
                                 .traits = kElementwise};

void stop_gradient_shape(Infer& i, const op::stop_gradient& n) { i.out(0, i.type(n.x)); }
void stop_gradient_grad(Grad&, const op::stop_gradient&) {}  // zero
bool stop_gradient_lower(Lower& l, const op::stop_gradient& n) {
  l.out(0, n.x);
  return true;
}
constexpr Record<op::stop_gradient> kStopGradient{.shape = stop_gradient_shape,
                                                  .grad = stop_gradient_grad,
                                                  .lower = stop_gradient_lower,
                                                  .batch = batch_aligned<op::stop_gradient>,
                                                  .flops = no_products,
                                                  .bytes = each_once,
                                                  .traits = kElementwise};

void where_shape(Infer& i, const op::where& n) {
  i.want_dtype(n.cond, "cond", kBool);
  i.want_same_dtype(n.a, "a", n.b, "b");
  const Shape both = broadcast(i.shape(n.a), i.shape(n.b), i.who());
  i.out(0, {i.dtype(n.a), broadcast(i.shape(n.cond), both, i.who())});
}

void where_grad(Grad& g, const op::where& n) {
  const Value zero = g.b.scalar(g.b.dtype(g.dy()), 0);
  if (g.wants(n.a)) give_summed(g, n.a, g.b.where(n.cond, g.dy(), zero));
  if (g.wants(n.b)) give_summed(g, n.b, g.b.where(n.cond, zero, g.dy()));
}
// Of complex numbers: their parts.
bool where_lower(Lower& l, const op::where& n) {
  Builder& b = l.b;
  if (!is_complex(b.dtype(n.a))) return false;
  const Value cond = b.unsqueeze(n.cond, b.shape(n.cond).rank());
  l.out(0, b.as_complex(b.where(cond, b.as_real(n.a), b.as_real(n.b))));
  return true;
}
constexpr Record<op::where> kWhere{.shape = where_shape,
                                   .grad = where_grad,
                                   .lower = where_lower,
                                   .batch = batch_aligned<op::where>,
                                   .flops = no_products,
                                   .bytes = each_once,
                                   .traits = kElementwise};

// ---- swiglu swiglu_backward

// Checks gate and up; returns the type of y.
template <class Op>
Type want_swiglu(const Infer& i, const Op& n) {
  i.want_float(n.gate, "gate");
  Type y = i.type(n.gate);
  if (n.up) {
    if (!n.gate_first)
      i.fail(Code::invalid_argument,
             "attribute gate_first: is for the packed form, operand up was given");
    i.want_same_dtype(n.gate, "gate", n.up, "up");
    i.want_shape(n.up, "up", y.shape);
    return y;
  }
  const int rank = y.shape.rank();
  if (rank == 0 || y.shape[rank - 1] % 2 != 0)
    i.fail(Code::shape_mismatch, "operand gate: packed, so its last axis must be even, got ",
           y.text());
  y.shape[rank - 1] /= 2;
  return y;
}

struct Gated {
  Value gate, up;
};
// Widens gate and up; splits a packed operand.
template <class Op>
Gated gated(Builder& b, const Op& n) {
  const Value gate = b.widen(n.gate);
  if (n.up) return {gate, b.widen(n.up)};
  const Shape packed = b.shape(gate);
  const int last = packed.rank() - 1;
  const Dim half = packed[last] / 2;
  const Value first = b.narrow(gate, last, 0, half), second = b.narrow(gate, last, half, half);
  return n.gate_first ? Gated{first, second} : Gated{second, first};
}

void swiglu_shape(Infer& i, const op::swiglu& n) { i.out(0, want_swiglu(i, n)); }

void swiglu_grad(Grad& g, const op::swiglu& n) {
  const bool gate = g.wants(n.gate), up = g.wants(n.up);
  if (!gate && !up) return;
  const Results r = g.b.add(op::swiglu_backward{.act = n.act,
                                                .gate_first = n.gate_first,
                                                .dy = g.dy(),
                                                .gate = n.gate,
                                                .up = n.up,
                                                .want_dup = up});
  if (gate) g.give(n.gate, r[0]);
  if (up) g.give(n.up, r[1]);
}

bool swiglu_lower(Lower& l, const op::swiglu& n) {
  const DType t = l.type(n.gate).dtype;
  const Gated in = gated(l.b, n);
  l.out(0, l.b.cast(l.b.times(l.b.unary(n.act, in.gate), in.up), t));
  return true;
}
// gate, where it is packed, holds two halves along its last axis.
template <class Op>
bool swiglu_padded(Padded& p, const Op& n) {
  return !n.up && p.along(n.gate, -1) ? p.refuse("its packed axis is padded") : true;
}

constexpr Record<op::swiglu> kSwiglu{.shape = swiglu_shape,
                                     .words = {{"act", "silu gelu gelu_tanh relu sigmoid"}},
                                     .grad = swiglu_grad,
                                     .lower = swiglu_lower,
                                     .batch = batch_all<op::swiglu>,
                                     .padded = swiglu_padded<op::swiglu>,
                                     .flops = no_products,
                                     .bytes = each_once};

void swiglu_backward_shape(Infer& i, const op::swiglu_backward& n) {
  const Type y = want_swiglu(i, n);
  i.want_same_dtype(n.gate, "gate", n.dy, "dy");
  i.want_shape(n.dy, "dy", y.shape);
  if (!n.up && n.want_dup)
    i.fail(Code::invalid_argument, "output dup: a packed gate has its gradient in dgate");
  i.out(0, i.type(n.gate));
  i.out(1, y);
}

bool swiglu_backward_lower(Lower& l, const op::swiglu_backward& n) {
  Builder& b = l.b;
  const DType t = l.type(n.gate).dtype;
  const Gated in = gated(b, n);
  const Value dy = b.widen(n.dy);
  const Value dgate =
      b.add(op::activation_backward{.kind = n.act, .x = in.gate, .dy = b.times(dy, in.up)});
  if (n.up && !l.wanted(1)) {
    l.out(0, b.cast(dgate, t));
    return true;
  }
  const Value dup = b.times(dy, b.unary(n.act, in.gate));
  if (n.up) {
    l.out(0, b.cast(dgate, t));
    l.out(1, b.cast(dup, t));
    return true;
  }
  const int last = b.shape(dgate).rank() - 1;
  const Value packed = n.gate_first ? b.concat({dgate, dup}, last) : b.concat({dup, dgate}, last);
  l.out(0, b.cast(packed, t));
  return true;
}
constexpr Record<op::swiglu_backward> kSwigluBackward{
    .shape = swiglu_backward_shape,
    .words = {{"act", "silu gelu gelu_tanh relu sigmoid"}},
    .lower = swiglu_backward_lower,
    .batch = batch_all<op::swiglu_backward>,
    .padded = swiglu_padded<op::swiglu_backward>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord binary_def = record<op::binary, kBinary>();
constinit const OpRecord compare_def = record<op::compare, kCompare>();
constinit const OpRecord logical_def = record<op::logical, kLogical>();
constinit const OpRecord unary_def = record<op::unary, kUnary>();
constinit const OpRecord activation_backward_def =
    record<op::activation_backward, kActivationBackward>();
constinit const OpRecord cast_def = record<op::cast, kCast>();
constinit const OpRecord copy_def = record<op::copy, kCopy>();
constinit const OpRecord stop_gradient_def = record<op::stop_gradient, kStopGradient>();
constinit const OpRecord where_def = record<op::where, kWhere>();
constinit const OpRecord swiglu_def = record<op::swiglu, kSwiglu>();
constinit const OpRecord swiglu_backward_def = record<op::swiglu_backward, kSwigluBackward>();

}  // namespace tenon::core
