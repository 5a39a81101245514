// SPDX-License-Identifier: Apache-2.0
// reduce: every kind over every subset of axes.
#include <cmath>
#include <limits>

#include "cases/families.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string text_of(const Dims& axes) {
  std::string out;
  for (const int64_t a : axes) out += "-" + std::to_string(a);
  return axes.empty() ? "-all" : out;
}

Tolerance tolerance_of(const std::string& kind, int64_t terms) {
  if (kind == "max" || kind == "min") return kExact;
  return kind == "prod" ? scaled(2.0 * static_cast<double>(terms)) : sum_of(terms);
}

void judged(CaseBuilder& b, const std::string& kind, const op::reduce& n) {
  b.output("y", b.add(n));
  if (kind == "sum" || kind == "mean")
    b.scale("y", [&] {
      op::reduce m = n;
      m.x = b.abs(n.x);
      return b.add(m);
    });
  if (kind == "logsumexp")
    b.scale("y", [&] {
      op::reduce m = n;
      m.kind = "max";
      m.x = b.abs(n.x);
      return b.binary("add", b.add(m), b.number(4));
    });
}

Fill fill_of(const std::string& kind) {
  if (kind == "prod") return Fill::uniform(0.6, 1.5);
  if (kind == "max" || kind == "min") return Fill::distinct(-4, 4);
  return Fill::normal(1.5);
}

void float_rows(Suite& s, const std::string& kind) {
  const std::vector<Dims> subsets = {{}, {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {-1, 0, 1}};
  for (const Dims& axes : subsets) {
    s.add({.id = "reduce-" + kind + text_of(axes),
           .sentence = kind + " over axes" + text_of(axes),
           .build =
               [=](CaseBuilder& b) {
                 judged(b, kind,
                        {.kind = kind,
                         .axes = axes,
                         .keepdims = axes.size() == 1,
                         .x = b.input("x", {3, 5, 7}, fill_of(kind))});
               },
           .tolerance = tolerance_of(kind, 105),
           .gradient = true});
  }
  struct Long {
    const char* id;
    Dims dims, axes;
    int64_t terms;
  };
  for (const Long& c :
       {Long{"-long-last", {3, 1031}, {1}, 1031}, Long{"-long-first", {1031, 5}, {0}, 1031},
        Long{"-long-middle", {2, 517, 9}, {1}, 517}}) {
    if (kind == "prod") continue;  // leaves the range of f16
    s.add({.id = "reduce-" + kind + c.id,
           .sentence = kind + " over a long axis",
           .build =
               [=](CaseBuilder& b) {
                 judged(b, kind,
                        {.kind = kind, .axes = c.axes, .x = b.input("x", c.dims, fill_of(kind))});
               },
           .tolerance = tolerance_of(kind, c.terms),
           .strided = false});
  }
  s.add({.id = "reduce-" + kind + "-specials",
         .sentence = kind + " with a NaN, both infinities, all infinite",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input(
                   "x", {6, 4}, Fill::list({1,     kNan,  2,     3,     1,    kInf,  2,    3,
                                            1,     -kInf, 2,     3,     kInf, -kInf, 1,    2,
                                            -kInf, -kInf, -kInf, -kInf, kInf, kInf,  kNan, 0}));
               judged(b, kind, {.kind = kind, .axes = {1}, .x = x});
             },
         .tolerance = tolerance_of(kind, 4)});
  s.add({.id = "reduce-" + kind + "-empty",
         .sentence = kind + " over nothing gives its identity; of no rows, nothing",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", {3, 0, 2});
               b.output("y", b.add(op::reduce{.kind = kind, .axes = {1}, .x = x}));
               b.output("none", b.add(op::reduce{.kind = kind, .axes = {0}, .x = x}));
             },
         .strided = false});
}

void int_rows(Suite& s, const std::string& kind) {
  s.add({.id = "reduce-" + kind + "-int",
         .sentence = kind + " of integers wraps, mean truncates",
         .dtypes = kInts,
         .build = [=](CaseBuilder& b) {
           const Fill f = Fill::exact(
               {3, -7, 100, 0, 5, -1, 127, -128, 32767, 2, INT32_MIN, 9, INT32_MAX, -4});
           const Value x = b.input("x", {3, 5, 7}, f);
           b.output("y", b.add(op::reduce{.kind = kind, .axes = {1}, .x = x}));
           b.output("all", b.add(op::reduce{.kind = kind, .keepdims = true, .x = x}));
         }});
}

// With noop_with_empty_axes no axes means that each element is a set of its own, as ONNX has it:
// the step before and the step after the sum remain.
void noop_rows(Suite& s) {
  const std::vector<double> x = {-2, 3, 0.5, -0.0, 4, -kInf, kInf, kNan};
  const auto each = [&](double (*f)(double)) {
    std::vector<double> y;
    for (const double v : x) y.push_back(f(v));
    return y;
  };
  const auto same = [](double v) { return v; };
  const auto magnitude = [](double v) { return std::fabs(v); };
  struct Known {
    const char* kind;
    std::vector<double> y, slope;
  };
  const std::vector<double> ones(x.size(), 1);
  const std::vector<double> signs = {-1, 1, 1, 0, 1, -1, 1, kNan};
  for (const Known& k :
       {Known{"sum", each(same), ones}, Known{"mean", each(same), ones},
        Known{"max", each(same), ones}, Known{"min", each(same), ones},
        Known{"prod", each(same), ones}, Known{"logsumexp", each(same), ones},
        Known{"sum_square", each([](double v) { return v * v; }),
              each([](double v) { return 2 * v; })},
        Known{"l1", each(magnitude), signs}, Known{"l2", each(magnitude), signs}}) {
    const std::string kind = k.kind;
    const auto reduced = [kind](Value v) {
      return op::reduce{.kind = kind, .noop_with_empty_axes = true, .x = v};
    };
    s.add({.id = "reduce-" + kind + "-noop",
           .sentence = kind + " over an empty set of axes: each element by itself",
           .build =
               [=](CaseBuilder& b) {
                 const Value v = b.input("x", {2, 4}, Fill::list(x));
                 const Value y = b.add(reduced(v));
                 b.output("y", y);
                 b.expect("y", k.y);
                 b.side_output("dx", b.graph().gradients(b.reduce("sum", y, {}, false), {v})[0]);
                 b.expect("dx", k.slope);
               },
           .tolerance = ulps(4)});
    s.add({.id = "reduce-" + kind + "-noop-slope",
           .sentence = kind + " over an empty set of axes: the gradient",
           .dtypes = {f64},
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(reduced(b.input("x", {3, 5}, fill_of(kind)))));
               },
           .tolerance = ulps(4),
           .strided = false,
           .gradient = true});
  }
  for (const char* kind : {"sum", "mean", "max", "min", "prod", "sum_square", "l1"})
    s.add({.id = std::string("reduce-") + kind + "-noop-int",
           .sentence = std::string(kind) + " of integers over an empty set of axes",
           .dtypes = kInts,
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {2, 3}, Fill::exact({3, -7, 0, 11, -11, 1}));
             const Value y = b.add(op::reduce{.kind = kind, .noop_with_empty_axes = true, .x = x});
             b.output("y", y);
             if (b.dtype() == u8 || b.dtype() == u16 || b.dtype() == u32 || b.dtype() == u64)
               return;
             const std::string_view k = kind;
             b.expect("y", k == "sum_square" ? std::vector<double>{9, 49, 0, 121, 121, 1}
                           : k == "l1"       ? std::vector<double>{3, 7, 0, 11, 11, 1}
                                             : std::vector<double>{3, -7, 0, 11, -11, 1});
           }});
  for (const char* kind : {"any", "all"})
    s.add({.id = std::string("reduce-") + kind + "-noop-bool",
           .sentence = std::string(kind) + " of bools over an empty set of axes",
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {3}, Fill::list({1, 0, 1}));
             b.output("y", b.add(op::reduce{.kind = kind, .noop_with_empty_axes = true, .x = x}));
             b.expect("y", {1, 0, 1});
           }});
}

// Sums and products of bools count in i64; the largest and the smallest are bools.
void bool_rows(Suite& s) {
  struct Known {
    const char* kind;
    std::vector<double> all, rows, none;
  };
  for (const Known& k :
       {Known{"sum", {7}, {3, 0, 4}, {0, 0}}, Known{"prod", {0}, {0, 0, 1}, {1, 1}},
        Known{"max", {1}, {1, 0, 1}, {0, 0}}, Known{"min", {0}, {0, 0, 1}, {1, 1}}}) {
    const std::string kind = k.kind;
    s.add({.id = "reduce-" + kind + "-bool",
           .sentence = kind + " of bools",
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {3, 4}, Fill::list({1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}));
             b.output("all", b.add(op::reduce{.kind = kind, .x = x}));
             b.expect("all", k.all);
             b.output("rows", b.add(op::reduce{.kind = kind, .axes = {-1}, .x = x}));
             b.expect("rows", k.rows);
             b.output("none", b.add(op::reduce{.kind = kind,
                                               .axes = {0},
                                               .x = b.input("z", {0, 2}, Fill::integers(0, 1))}));
             b.expect("none", k.none);
             b.output("long",
                      b.add(op::reduce{.kind = kind,
                                       .axes = {0},
                                       .keepdims = true,
                                       .x = b.input("long", {3001, 5}, Fill::integers(0, 1))}));
           }});
  }
}

void known_rows(Suite& s) {
  struct Known {
    const char* kind;
    double value;
  };
  for (const Known& k : {Known{"sum", 0},
                         {"mean", kNan},
                         {"prod", 1},
                         {"max", -kInf},
                         {"min", kInf},
                         {"logsumexp", -kInf},
                         {"l1", 0},
                         {"l2", 0},
                         {"sum_square", 0}})
    s.add({.id = std::string("reduce-") + k.kind + "-identity",
           .sentence = std::string("the identity of ") + k.kind,
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(op::reduce{
                                   .kind = k.kind, .axes = {0}, .x = b.input("x", {0, 2})}));
                 b.expect("y", {k.value, k.value});
               },
           .strided = false});
  for (const char* kind : {"any", "all"}) {
    for (const Dims& axes : std::vector<Dims>{{}, {0}, {1}, {0, 2}})
      s.add({.id = std::string("reduce-") + kind + text_of(axes),
             .sentence = std::string(kind) + " of bools",
             .dtypes = {boolean},
             .build = [=](CaseBuilder& b) {
               const double rare = std::string_view(kind) == "any" ? 0 : 1;
               const Value x =
                   b.input("x", {3, 5, 7},
                           Fill::list({rare, rare, rare, 1 - rare, rare, rare, rare, rare, rare}));
               b.output("y", b.add(op::reduce{.kind = kind, .axes = axes, .x = x}));
             }});
    s.add({.id = std::string("reduce-") + kind + "-identity",
           .sentence = std::string(kind) + " of nothing",
           .dtypes = {boolean},
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(op::reduce{.kind = kind,
                                                .axes = {1},
                                                .x = b.input("x", {2, 0}, Fill::integers(0, 1))}));
                 const double y = std::string_view(kind) == "all";
                 b.expect("y", {y, y});
               },
           .strided = false});
  }
  bool_rows(s);
  noop_rows(s);
  for (const Offset& offset : offsets())
    s.add({.id = std::string("reduce-logsumexp-offset-") + offset.id,
           .sentence = "the gradient of logsumexp of numbers that are far from zero together",
           .dtypes = offset.dtypes,
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {3, 2, 5}, Fill::list(offset.numbers()));
                 const Value y = b.add(op::reduce{.kind = "logsumexp", .axes = {0, 2}, .x = x});
                 b.output("dx", b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
                 b.scale("dx", [&] { return distance_scale(b, x, {0, 2}); });
               },
           .tolerance = sum_of(15)});
  s.add({.id = "reduce-prod-zeros",
         .sentence = "prod with one zero and with two: the gradient does not divide",
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("x", {3, 4}, Fill::list({2, 0, 3, 0.5, 0, 2, 0, 1.5, 1, 2, 3, 4}));
               b.output("y", b.add(op::reduce{.kind = "prod", .axes = {1}, .x = x}));
             },
         .tolerance = scaled(8),
         .gradient = true});
  s.add({.id = "reduce-ties-known",
         .sentence = "max and min share the gradient among equals; l2 has none at zero",
         .dtypes = {f32, f64},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3}, Fill::list({2, 2, 2, 1, 5, 5}));
               const Value z = b.input("z", {2}, Fill::list({0, 0}));
               const auto slope = [&](const char* kind, Value v) {
                 return b.graph().gradients(
                     b.reduce("sum", b.add(op::reduce{.kind = kind, .axes = {-1}, .x = v}), {},
                              false),
                     {v})[0];
               };
               b.output("max", slope("max", x));
               b.expect("max", {1.0 / 3, 1.0 / 3, 1.0 / 3, 0, 0.5, 0.5});
               b.output("min", slope("min", x));
               b.expect("min", {1.0 / 3, 1.0 / 3, 1.0 / 3, 1, 0, 0});
               b.output("l2", slope("l2", z));
               b.expect("l2", {0, 0});
             },
         .tolerance = ulps(4)});
  s.add({.id = "reduce-axis-refused",
         .sentence = "an axis out of range is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y",
                        b.add(op::reduce{.kind = "sum", .axes = {2}, .x = b.input("x", {3, 4})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "reduce"});
  s.add({.id = "reduce-axis-repeated",
         .sentence = "an axis given twice is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::reduce{
                                 .kind = "sum", .axes = {1, -1}, .x = b.input("x", {3, 4})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "repeated"});
}

}  // namespace

void reduce_cases(Suite& s) {
  s.floor({.joined = 500, .own_joined = 210});
  for (const char* kind :
       {"sum", "mean", "max", "min", "prod", "sum_square", "l1", "l2", "logsumexp"})
    float_rows(s, kind);
  for (const char* kind : {"sum", "mean", "max", "min", "prod"}) int_rows(s, kind);
  known_rows(s);
}

}  // namespace tenon::conform
