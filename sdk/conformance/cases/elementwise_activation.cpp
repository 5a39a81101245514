// SPDX-License-Identifier: Apache-2.0
// unary activation_backward: every kind, its tails, its edges and its slope.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool rounding(std::string_view kind) {
  return kind == "floor" || kind == "ceil" || kind == "trunc" || kind == "round";
}
bool exact(std::string_view kind) {
  return rounding(kind) || kind == "neg" || kind == "abs" || kind == "sign" || kind == "relu" ||
         kind.starts_with("is_");
}

// Where the kind has values, away from its kinks by more than a step of finite differences.
Fill domain(std::string_view kind) {
  if (kind == "log" || kind == "log2" || kind == "sqrt" || kind == "rsqrt")
    return Fill::uniform(0.05, 6);
  if (kind == "log1p") return Fill::uniform(-0.2, 4);
  if (kind == "asin" || kind == "acos" || kind == "atanh") return Fill::uniform(-0.98, 0.98);
  if (kind == "acosh") return Fill::uniform(1.05, 6);
  if (kind == "tan") return Fill::uniform(-1.3, 1.3);
  if (kind == "reciprocal") return Fill::uniform(0.2, 3);
  return Fill::normal(2);
}
std::vector<double> scales_of(std::string_view kind) {
  if (kind == "acosh") return {1, 4};  // a smaller x has no result
  if (kind == "asin" || kind == "acos" || kind == "atanh" || kind == "tan") return {0.05, 1};
  return {0.05, 1, 4};
}

Tolerance forward_tolerance(const UnaryInfo& info) {
  if (exact(info.name)) return kExact;
  if (info.name == "hard_sigmoid")
    return {.ulps = 8, .factor = 4};  // 0.2x + 0.5 cancels: of size one
  return ulps(info.primitive || info.name == "square" || info.name == "reciprocal" ? 4 : 8);
}

void judged(CaseBuilder& b, const std::string& kind, Value y) {
  b.output("y", y);
  if (kind == "hard_sigmoid") b.scale("y", [&] { return b.number(1); });
}
// In primitives an exponent's rounding grows with its size, and a subnormal factor has few digits.
double decomposed_cost(std::string_view kind) {
  return kind == "gelu" || kind == "gelu_tanh" || kind == "silu" || kind == "mish" ? 256 : 2;
}

void forward_rows(Suite& s, const UnaryInfo& info) {
  const std::string kind(info.name);
  const Tolerance t = forward_tolerance(info);
  const bool smooth = !rounding(kind) && kind != "is_nan" && kind != "is_inf";
  s.add({.id = "unary-" + kind,
         .sentence = kind + " over its domain, with zeros, infinities and NaN",
         .build =
             [=](CaseBuilder& b) {
               const Fill f = domain(kind).with(
                   {0, -0.0, kInf, -kInf, kNan, 1e-6, -1e-6, 1, -1, 0.5, 2.5, -2.5});
               judged(b, kind, b.add(op::unary{.kind = kind, .x = b.input("x", {5, 67}, f)}));
             },
         .tolerance = t,
         .decomposed = decomposed_cost(kind)});
  s.add({.id = "unary-" + kind + "-tails",
         .sentence = kind + " far from zero",
         .build =
             [=](CaseBuilder& b) {
               const Value x =
                   b.input("x", {4, 50},
                           Fill::distinct(-100, 100).with({-11.5, -9.25, -6.5, -5, 88, -87, 20}));
               judged(b, kind, b.add(op::unary{.kind = kind, .x = x}));
             },
         .tolerance = t,
         .decomposed = decomposed_cost(kind),
         .strided = false});
  s.add({.id = "unary-" + kind + "-empty",
         .sentence = kind + " of nothing",
         .dtypes = {f32, f16},
         .build =
             [=](CaseBuilder& b) {
               b.output("y", b.add(op::unary{.kind = kind, .x = b.input("x", {3, 0})}));
             },
         .strided = false});
  if (smooth)
    s.add({.id = "unary-" + kind + "-slope",
           .sentence = "the slope of " + kind,
           .dtypes = {f64},
           .build =
               [=](CaseBuilder& b) {
                 judged(b, kind,
                        b.add(op::unary{.kind = kind, .x = b.input("x", {3, 7}, domain(kind))}));
               },
           .tolerance = t,
           .decomposed = decomposed_cost(kind),
           .strided = false,
           .gradient = true,
           .second_order = true,
           .scales = scales_of(kind)});
  if (info.integer)
    s.add({.id = "unary-" + kind,
           .sentence = kind + " of integers, wrapping at the least",
           .dtypes = kInts,
           .build = [=](CaseBuilder& b) {
             const Fill f = Fill::exact({0, 1, -1, 5, -7, 127, -128, 255, -32768, 32767, INT32_MIN,
                                         INT32_MAX, INT64_MIN, INT64_MAX});
             b.output("y", b.add(op::unary{.kind = kind, .x = b.input("x", {3, 14}, f)}));
           }});
}

// |f'| made of the absolute values of its terms: what rounding may cost near its zero.
Value slope_scale(CaseBuilder& b, const std::string& kind, Value x, Value dy) {
  const Value one = b.number(1);
  Value s = one;
  const auto sigma = [&](Value v) { return b.unary("sigmoid", v); };
  const Value a = b.binary("min", b.abs(x), b.number(1e3));  // beyond, each term has its limit
  if (kind == "silu") s = b.binary("mul", sigma(x), b.binary("add", one, a));
  if (kind == "gelu" || kind == "gelu_tanh") {
    const Value square = b.binary("mul", a, a);
    const Value far = b.binary("add", one, square);
    const Value bell = b.unary("exp", b.binary("mul", b.number(-0.5), square));
    const Value tail = b.binary("mul", b.binary("mul", a, far), bell);
    s = b.binary("add",
                 b.binary("mul", b.number(0.5),
                          b.unary("erfc", b.binary("mul", b.number(-0.7071067811865476), x))),
                 tail);
  }
  if (kind == "mish")
    s = b.binary("mul", b.binary("min", one, b.unary("exp", x)), b.binary("add", one, a));
  return b.binary("mul", b.abs(dy), s);
}
bool crosses_zero(std::string_view kind) {
  return kind == "silu" || kind == "gelu" || kind == "gelu_tanh" || kind == "mish" ||
         kind == "hard_swish";
}

void backward_rows(Suite& s, const UnaryInfo& info) {
  const std::string kind(info.name);
  if (kind == "is_nan" || kind == "is_inf") return;
  Tolerance t = ulps(8);
  if (crosses_zero(kind)) t.factor = 16;
  for (const bool from_output : {false, true}) {
    if (from_output && !info.from_output) continue;
    const std::string id = "activation-backward-" + kind + (from_output ? "-from-output" : "");
    s.add({.id = id,
           .sentence = "gradient of " + kind + (from_output ? " from its output" : ""),
           .build =
               [=](CaseBuilder& b) {
                 Fill f = from_output ? Fill::uniform(0.05, 0.95) : domain(kind);
                 if (!from_output) f = f.with({0, kNan, -6, 6, -9, 1e-6});
                 const Value x = b.input("x", {5, 67}, f), dy = b.input("dy", {5, 67});
                 b.output("dx", b.add(op::activation_backward{
                                    .kind = kind, .from_output = from_output, .x = x, .dy = dy}));
                 if (crosses_zero(kind)) b.scale("dx", [&] { return slope_scale(b, kind, x, dy); });
               },
           .tolerance = t,
           .decomposed = std::max(8.0, decomposed_cost(kind))});
  }
}

// The whole range of every float dtype: what is not in f32 or a half becomes zero or infinity
// there.
std::vector<double> whole_range() {
  std::vector<double> x = {0, -0.0, kInf, -kInf, kNan};
  for (const double m :
       {5e-324, 1e-310, 2.3e-308, 1e-300, 1e-160, 1e-100, 1e-45, 3e-42, 1e-40,  1.2e-38, 1e-30,
        1e-20,  1e-15,  6e-8,     1e-7,   6e-5,   1e-4,   0.01,  0.1,   0.4,    0.7,     0.99,
        1.0,    1.5,    2.0,      2.9,    4.0,    5.5,    8.0,   9.25,  11.5,   13.0,    14.5,
        17.0,   20.0,   26.0,     30.1,   37.0,   38.2,   45.0,  60.0,  80.0,   87.0,    88.5,
        91.0,   100.0,  103.0,    340.0,  700.0,  709.5,  730.0, 744.0, 1e3,    3e4,     6e4,
        1e6,    1e8,    1e10,     1e16,   1e19,   2e19,   1e20,  3e21,  1e30,   1e37,    3e38,
        1e77,   1e100,  1e154,    1e160,  1e162,  1e200,  1e300, 1e308, 1.7e308}) {
    x.push_back(m);
    x.push_back(-m);
  }
  return x;
}

void range_rows(Suite& s, const UnaryInfo& info) {
  const std::string kind(info.name);
  if (kind == "is_nan" || kind == "is_inf") return;
  const std::vector<double> x = whole_range();
  const auto n = static_cast<int64_t>(x.size());
  s.add({.id = "unary-" + kind + "-range",
         .sentence = kind + " over the whole range of its dtype",
         .build =
             [=](CaseBuilder& b) {
               judged(b, kind,
                      b.add(op::unary{.kind = kind, .x = b.input("x", {n}, Fill::list(x))}));
             },
         .tolerance = forward_tolerance(info),
         .decomposed = decomposed_cost(kind),
         .strided = false});
  Tolerance t = ulps(8);
  if (crosses_zero(kind)) t.factor = 16;
  s.add({.id = "activation-backward-" + kind + "-range",
         .sentence = "the slope of " + kind + " over the whole range of its dtype",
         .build =
             [=](CaseBuilder& b) {
               const Value v = b.input("x", {n}, Fill::list(x));
               const Value dy = b.input("dy", {n}, Fill::list({1}));
               b.output("dx", b.add(op::activation_backward{.kind = kind, .x = v, .dy = dy}));
               if (crosses_zero(kind)) b.scale("dx", [&] { return slope_scale(b, kind, v, dy); });
             },
         .tolerance = t,
         .decomposed = std::max(8.0, decomposed_cost(kind)),
         .strided = false});
}

void edge_rows(Suite& s) {
  for (const char* kind : {"floor", "ceil", "trunc", "round", "sign"})
    s.add({.id = std::string("unary-") + kind + "-flat",
           .sentence = std::string(kind) + " is flat: its gradient is zero",
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {6}, Fill::list({0.3, -1.7, 2.5, 3, 0, kInf}));
             const Value y = b.add(op::unary{.kind = kind, .x = x});
             // Beside a term that has a slope, and alone.
             const Value both = b.binary("add", y, b.binary("mul", x, x));
             b.output("alone", b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
             b.expect("alone", {0, 0, 0, 0, 0, 0});
             b.output("beside", b.graph().gradients(b.reduce("sum", both, {}, false), {x})[0]);
           }});
  // alpha x + beta is rounded twice; what it is at the ends decides whether they have a slope.
  struct Ends {
    const char* id;
    double alpha, beta;
    std::vector<double> ends, inside;
  };
  for (const Ends& e : {Ends{"default", TENON_UNSET, TENON_UNSET, {-2.5, 2.5}, {-2.375, 2.375}},
                        Ends{"sixth", 1.0 / 6, 0.5, {-3, 3}, {-2.875, 2.875}},
                        Ends{"tenth", 0.1, 0.25, {-2.5, 7.5}, {-2.375, 7.375}},
                        Ends{"falling", -1.0 / 6, 0.5, {3, -3}, {2.875, -2.875}}})
    s.add({.id = std::string("hard-sigmoid-ends-") + e.id,
           .sentence = "hard_sigmoid has no slope at its two ends",
           .build =
               [=](CaseBuilder& b) {
                 std::vector<double> x = e.ends;
                 x.insert(x.end(), e.inside.begin(), e.inside.end());
                 const double alpha = std::isnan(e.alpha) ? 0.2 : e.alpha;
                 const Value v = b.input("x", {4}, Fill::list(x));
                 b.output("dx", b.add(op::activation_backward{
                                    .kind = "hard_sigmoid",
                                    .alpha = e.alpha,
                                    .beta = e.beta,
                                    .x = v,
                                    .dy = b.input("dy", {4}, Fill::list({1}))}));
                 b.expect("dx", {0, 0, alpha, alpha});
               },
           .tolerance = ulps(4)});
}

void parameter_rows(Suite& s) {
  struct Parameters {
    const char* kind;
    double alpha, beta;
  };
  for (const Parameters& p :
       {Parameters{"leaky_relu", 0.3, TENON_UNSET}, Parameters{"elu", 1.7, TENON_UNSET},
        Parameters{"selu", 1.5, 1.1}, Parameters{"hard_sigmoid", 1.0 / 6, 0.5},
        Parameters{"silu", 1.702, TENON_UNSET}}) {
    s.add({.id = std::string("unary-") + p.kind + "-parameters",
           .sentence = std::string(p.kind) + " with parameters of its own",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {3, 21}, Fill::normal(3));
                 const Value y =
                     b.add(op::unary{.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .x = x});
                 b.output("y", y);
                 const bool hard = std::string_view(p.kind) == "hard_sigmoid";
                 if (hard) b.scale("y", [&] { return b.binary("add", b.number(1), b.abs(y)); });
               },
           // α = 1/6 has no exact f32: its rounding is a part of x's size.
           .tolerance = {.ulps = 8, .factor = 8},
           .decomposed = 2,
           .gradient = true});
  }
  s.add(
      {.id = "unary-round-known",
       .sentence = "round goes half to even",
       .build = [](CaseBuilder& b) {
         const Value x = b.input("x", {8}, Fill::list({0.5, 1.5, 2.5, -0.5, -1.5, 3.25, -2.75, 4}));
         b.output("y", b.add(op::unary{.kind = "round", .x = x}));
         b.expect("y", {0, 2, 2, 0, -2, 3, -3, 4});
       }});
  for (const char* kind : {"floor", "ceil", "trunc", "round"})
    s.add({.id = std::string("unary-") + kind + "-straight-through",
           .sentence = std::string(kind) + " with ste passes gradients through",
           .dtypes = {f32, f64},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {3}, Fill::list({0.3, -1.7, 2.5}));
             const Value y = b.add(op::unary{.kind = kind, .ste = true, .x = x});
             b.output("dx", b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
             b.expect("dx", {1, 1, 1});
           }});
  s.add({.id = "unary-kinks-known",
         .sentence = "the slope at a kink is the one specified",
         .dtypes = {f32, f64},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1}, Fill::list({0}));
           for (const auto& [kind, slope] : {std::pair("relu", 0.0),
                                             {"abs", 0.0},
                                             {"leaky_relu", 1.0},
                                             {"elu", 1.0},
                                             {"sqrt", kInf},
                                             {"reciprocal", -kInf},
                                             {"rsqrt", -kInf}}) {
             const Value y = b.add(op::unary{.kind = kind, .x = x});
             const std::string name = std::string("slope of ") + kind;
             b.output(name, b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
             b.expect(name, {slope});
           }
         }});
  for (const char* kind : {"sin", "cos", "tan"})
    s.add({.id = std::string("unary-") + kind + "-large",
           .sentence = std::string(kind) + " reduces large arguments fully",
           .dtypes = {f32, bf16, f64},
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input(
                     "x", {64},
                     Fill::uniform(-1e6, 1e6).with({1e8, -3e10, 1e20, 39001, 1e30, -2.5e37}));
                 b.output("y", b.add(op::unary{.kind = kind, .x = x}));
               },
           .tolerance = ulps(4)});
  s.add({.id = "unary-kind-refused",
         .sentence = "an unknown kind is refused by name",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::unary{.kind = "nope", .x = b.input("x", {3})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "nope"});
}

}  // namespace

void elementwise_activation_rows(Suite& s) {
  for (const UnaryInfo& info : kUnaryKinds) {
    forward_rows(s, info);
    backward_rows(s, info);
    range_rows(s, info);
  }
  parameter_rows(s);
  edge_rows(s);
  elementwise_swiglu_rows(s);
}

}  // namespace tenon::conform
