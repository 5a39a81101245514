// SPDX-License-Identifier: Apache-2.0
// binary compare logical where; casts and copies are in elementwise_cast.cpp, the activations in
// elementwise_activation.cpp.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Every pair of these meets.
const std::vector<double> kSpecials = {0,    -0.0, 1,    -1,    2,    -2.5,  0.5, 3,
                                       1e-7, 6e4,  kInf, -kInf, kNan, -7.25, 10,  1e-40};
const std::vector<int64_t> kIntSpecials = {
    0,         1,         -1,        2,      -3,    7,    5,   INT64_MIN,
    INT64_MAX, INT32_MIN, INT32_MAX, -32768, 32767, -128, 127, 255};

Tolerance binary_tolerance(const std::string& kind) {
  if (kind == "max" || kind == "min" || kind == "fmod") return kExact;
  return ulps(kind == "pow" ? 8 : 4);
}

void binary_float(Suite& s, const std::string& kind) {
  const bool pow = kind == "pow";
  const Fill left = pow ? Fill::uniform(0.3, 2.5) : Fill::normal(3);
  const Fill right =
      kind == "div" || kind == "mod" || kind == "fmod" ? Fill::uniform(0.5, 3) : Fill::normal(2);
  const Tolerance t = binary_tolerance(kind);
  s.add({.id = "binary-" + kind,
         .sentence = kind + " of two operands, broadcast both ways",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("a", {3, 1, 7}, left), y = b.input("b", {5, 1}, right);
               b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
             },
         .tolerance = t,
         .gradient = true});
  s.add({.id = "binary-" + kind + "-long",
         .sentence = kind + " of equal shapes, longer than a vector and not a multiple of one",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("a", {5, 203}, left), y = b.input("b", {5, 203}, right);
               b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
             },
         .tolerance = t});
  s.add({.id = "binary-" + kind + "-specials",
         .sentence = kind + " of every pair of zeros, infinities, NaN and small numbers",
         .build =
             [=](CaseBuilder& b) {
               const auto n = static_cast<int64_t>(kSpecials.size());
               const Value x = b.input("a", {n, 1}, Fill::list(kSpecials));
               const Value y = b.input("b", {1, n}, Fill::list(kSpecials));
               b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
             },
         .tolerance = t});
  s.add({.id = "binary-" + kind + "-empty",
         .sentence = kind + " with a dimension of zero",
         .dtypes = {f32, bf16},
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("a", {4, 0, 3}), y = b.input("b", {1, 3});
               b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
             },
         .tolerance = t});
}

void binary_int(Suite& s, const std::string& kind) {
  s.add({.id = "binary-" + kind,
         .sentence = kind + " of integers at the edges of their range",
         .dtypes = kInts,
         .build = [=](CaseBuilder& b) {
           const auto n = static_cast<int64_t>(kIntSpecials.size());
           const Value x = b.input("a", {n, 1}, Fill::exact(kIntSpecials));
           const Value y = b.input("b", {1, n}, Fill::exact(kIntSpecials));
           b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
         }});
}

void known_ints(Suite& s, const std::string& kind, std::vector<int64_t> a, std::vector<int64_t> c,
                std::vector<double> y, const DTypes& dtypes = {i32},
                const std::string& suffix = "") {
  s.add({.id = "binary-" + kind + "-known" + suffix,
         .sentence = kind + " of integers: division by zero, overflow and signs as specified",
         .dtypes = dtypes,
         .build = [=](CaseBuilder& b) {
           const auto n = static_cast<int64_t>(a.size());
           const Value x = b.input("a", {n}, Fill::exact(a)), z = b.input("b", {n}, Fill::exact(c));
           b.output("y", b.add(op::binary{.kind = kind, .a = x, .b = z}));
           b.expect("y", y);
         }});
}

void binary_cases(Suite& s) {
  for (const char* kind : {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod", "atan2"})
    binary_float(s, kind);
  for (const char* kind : {"add", "sub", "mul", "div", "max", "min", "mod", "fmod", "pow"})
    binary_int(s, kind);
  for (const char* kind : {"bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"})
    binary_int(s, kind);
  const int64_t least = INT32_MIN;
  known_ints(s, "div", {7, -7, 7, 0, -5, least}, {0, 2, -2, 3, 0, -1},
             {-1, -3, -3, 0, -1, -2147483648.0});
  known_ints(s, "mod", {7, -7, 7, -7, 5, least}, {3, 3, -3, -3, 0, -1}, {1, 2, -2, -1, 5, 0});
  known_ints(s, "fmod", {7, -7, 7, -7, least}, {3, 3, -3, -3, -1}, {1, -1, 1, -1, 0});
  known_ints(s, "pow", {2, -1, -1, 1, 3, 0, 2, 0}, {10, -3, -4, -9, -1, 0, 31, 5},
             {1024, -1, 1, 1, 0, 1, -2147483648.0, 0});
  known_ints(s, "bit_and", {12, -1, -8, least}, {10, 255, 6, -1}, {8, 255, 0, -2147483648.0});
  known_ints(s, "bit_or", {12, -1, 0, least}, {10, 255, 6, 1}, {14, -1, 6, -2147483647.0});
  known_ints(s, "bit_xor", {12, -1, 5, least}, {10, 255, 5, -1}, {6, -256, 0, 2147483647.0});
  known_ints(s, "shift_left", {1, -1, 3, 3, 3, 5}, {31, 1, 32, -1, 1000, 0},
             {-2147483648.0, -2, 0, 0, 0, 5});
  known_ints(s, "shift_right", {-8, 8, -1, 7, -7, least}, {1, 3, 40, -1, -1, 31},
             {-4, 1, -1, 0, -1, -1});
  known_ints(s, "shift_right", {200, 255, 1, 7}, {3, 7, 8, 0}, {25, 1, 0, 7}, {u8}, "-unsigned");
  s.add({.id = "binary-bit-float",
         .sentence = "bit_and of floats is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {3});
               b.output("y", b.add(op::binary{.kind = "bit_and", .a = x, .b = x}));
             },
         .error = TENON_DTYPE_MISMATCH,
         .error_text = "bit_and"});
  for (const char* kind : {"max", "min"}) {
    const std::string k = kind;
    s.add({.id = "binary-" + k + "-ties",
           .sentence = k + " where operands are equal: each gets half of the gradient",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("a", {2, 3}, Fill::list({1, -2, 0, 3, 0.5, 7}));
                 const Value y = b.input("b", {2, 3}, Fill::list({1, -2, 0, 2, 0.5, 9}));
                 b.output("y", b.add(op::binary{.kind = k, .a = x, .b = y}));
               },
           .gradient = true});
    s.add({.id = "binary-" + k + "-bool",
           .sentence = k + " of bools is " + (k == "max" ? "or" : "and"),
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("a", {4}, Fill::list({0, 0, 1, 1}));
             const Value y = b.input("b", {4}, Fill::list({0, 1, 0, 1}));
             b.output("y", b.add(op::binary{.kind = k, .a = x, .b = y}));
             b.expect("y", k == "max" ? std::vector<double>{0, 1, 1, 1}
                                      : std::vector<double>{0, 0, 0, 1});
           }});
  }
  s.add({.id = "binary-pow-gradient-at-zero",
         .sentence = "pow at a = 0: no NaN, and db = 0 where b >= 0",
         .dtypes = {f32, f64},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {4}, Fill::list({0, 0, 2, 0}));
               const Value y = b.input("b", {4}, Fill::list({2, 1, 0, 0}));
               const Value p = b.add(op::binary{.kind = "pow", .a = x, .b = y});
               const auto g = b.graph().gradients(b.reduce("sum", p, {}, false), {x, y});
               b.output("da", g[0]);
               b.expect("da", {0, 1, 0, 0});
               b.output("db", g[1]);
               b.expect("db", {0, 0, std::log(2.0), 0});
             },
         .tolerance = ulps(8)});
  s.add({.id = "binary-shapes-refused",
         .sentence = "operands that do not broadcast are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {3, 4}), y = b.input("b", {3});
               b.output("y", b.add(op::binary{.kind = "add", .a = x, .b = y}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "binary"});
  s.add({.id = "binary-dtypes-refused",
         .sentence = "operands of two dtypes are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {3}), y = b.input("b", i32, {3}, Fill::integers(0, 3));
               b.output("y", b.add(op::binary{.kind = "add", .a = x, .b = y}));
             },
         .error = TENON_DTYPE_MISMATCH,
         .error_text = "operand b"});
}

void compare_cases(Suite& s) {
  for (const char* k : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    const std::string kind = k;
    s.add({.id = "compare-" + kind,
           .sentence = kind + " of every pair of special numbers; with a NaN only ne is true",
           .build = [=](CaseBuilder& b) {
             const auto n = static_cast<int64_t>(kSpecials.size());
             const Value x = b.input("a", {2, n, 1}, Fill::list(kSpecials));
             const Value y = b.input("b", {n}, Fill::list(kSpecials));
             b.output("y", b.add(op::compare{.kind = kind, .a = x, .b = y}));
           }});
    s.add({.id = "compare-" + kind,
           .sentence = kind + " of integers and bools",
           .dtypes = kInts + DTypes{boolean},
           .build = [=](CaseBuilder& b) {
             const Fill f = b.dtype() == boolean ? Fill::integers(0, 1) : Fill::exact(kIntSpecials);
             const Value x = b.input("a", {16, 1}, f), y = b.input("b", {16}, f);
             b.output("y", b.add(op::compare{.kind = kind, .a = x, .b = y}));
           }});
  }
  for (const char* k : {"and", "or", "xor", "not"}) {
    const std::string kind = k;
    s.add({.id = "logical-" + kind,
           .sentence = "logical " + kind + " of bools, broadcast",
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("a", {3, 1, 5}, Fill::integers(0, 1));
             op::logical n{.kind = kind, .a = x};
             if (kind != "not") n.b = b.input("b", {7, 1}, Fill::integers(0, 1));
             b.output("y", b.add(n));
           }});
  }
}

void where_cases(Suite& s) {
  s.add({.id = "where",
         .sentence = "where selects, three operands broadcast, a NaN not selected never leaks",
         .dtypes = kFloats + kInts + DTypes{boolean},
         .build = [](CaseBuilder& b) {
           const bool real = is_float(b.dtype());
           const Fill f = real ? Fill::normal().with({kNan, kInf}) : Fill::integers(0, 1);
           const Value c = b.input("cond", boolean, {5, 1}, Fill::integers(0, 1).fixed());
           const Value x = b.input("a", {3, 1, 7}, f), y = b.input("b", {7}, f);
           b.output("y", b.add(op::where{.cond = c, .a = x, .b = y}));
         }});
  s.add({.id = "where-select",
         .sentence = "where sends its gradient to the branch that was taken",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value c = b.input("cond", boolean, {3, 1, 5}, Fill::integers(0, 1).fixed());
               const Value x = b.input("a", {4, 1}), y = b.input("b", {1});
               b.output("y", b.add(op::where{.cond = c, .a = x, .b = y}));
             },
         .gradient = true});
}

}  // namespace

void elementwise_cases(Suite& s) {
  s.floor({.joined = 1100, .own_joined = 990});
  binary_cases(s);
  compare_cases(s);
  elementwise_cast_rows(s);
  where_cases(s);
  elementwise_activation_rows(s);
}

}  // namespace tenon::conform
