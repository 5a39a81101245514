// SPDX-License-Identifier: Apache-2.0
// quantize dequantize fake_quantize lsq_quantize amax_observer and backward; the products are in
// quantized_product.cpp. Results have the same bits on all devices, so floats keep the case's own
// dtype in the reference too: a quotient in f64 would lie on the other side of a half now and then.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  const char* id;
  const char* sentence;
  Dims x;
  int64_t axis, block;
  Dims scale;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"tensor", "one scale", {3, 37}, 1, 0, {}},
      {"tensor-one", "one scale in a list", {7}, 0, 0, {1}},
      {"axis", "a scale per channel", {2, 5, 21}, 1, 0, {5}},
      {"axis-first", "a scale per row", {6, 35}, 0, 0, {6}},
      {"axis-last", "a scale per column", {4, 3, 19}, -1, 0, {19}},
      {"blocks", "blocks of three, the last one short", {3, 11, 5}, 1, 3, {3, 4, 5}},
      {"blocks-last", "blocks of 16 in a row", {5, 40}, 1, 16, {5, 3}},
      {"blocks-all", "a block longer than the axis", {4, 9}, 0, 7, {1, 9}},
      {"large", "more than a tile", {3, 2, 3001}, 1, 0, {2}},
  };
  return all;
}

struct To {
  const char* id;
  tenon_dtype dtype;
  int64_t low, high;
};
const std::vector<To>& targets() {
  static const std::vector<To> all = {
      {"i8", i8, -128, 127},  {"u8", u8, 0, 255}, {"i16", i16, -32768, 32767},
      {"u16", u16, 0, 65535}, {"i4", i4, -8, 7},  {"u4", u4, 0, 15},
  };
  return all;
}

Value cast(CaseBuilder& b, Value x, tenon_dtype to) {
  return b.graph().add(op::cast{.to = to, .x = x});
}
// Floats of the case's own dtype, in the reference too.
Value floats(CaseBuilder& b, const char* name, const Dims& dims, const Fill& fill) {
  return cast(b, b.input(name, dims, fill), b.own());
}
Fill scales() { return Fill::list({0.25, 0.1, 1.5, 0.0625, 0.7, 3}).fixed(); }
// Integers of any dtype, 4 bits too.
Value integers(CaseBuilder& b, const char* name, const Dims& dims, const To& t) {
  const tenon_dtype wide = is_nibble(t.dtype) ? (t.low < 0 ? i8 : u8) : t.dtype;
  const Fill fill = Fill::integers(t.low, t.high)
                        .with({static_cast<double>(t.low), static_cast<double>(t.high)})
                        .fixed();
  const Value x = b.input(name, wide, dims, fill);
  return wide == t.dtype ? x : cast(b, x, t.dtype);
}
// An output of 4-bit integers is shown as bytes.
Value shown(CaseBuilder& b, Value q, const To& t) {
  return is_nibble(t.dtype) ? cast(b, q, t.low < 0 ? i8 : u8) : q;
}

void quantize_rows(Suite& s, const Form& f, const To& t, bool zero) {
  const std::string id = std::string(f.id) + "-" + t.id + (zero ? "-zero" : "");
  s.add({.id = "quantize-" + id,
         .sentence = std::string("quantize to ") + t.id + ": " + f.sentence,
         .build = [=](CaseBuilder& b) {
           // Wide enough to saturate; NaN becomes the zero point.
           const double spread = static_cast<double>(t.high - t.low) / 3;
           op::quantize n{.axis = f.axis, .block = f.block, .to = t.dtype};
           n.x = floats(b, "x", f.x,
                        Fill::normal(spread).with({kNan, kInf, -kInf, 0.375, -0.125, 1e30, -1e30}));
           n.scale = floats(b, "scale", f.scale, scales());
           if (zero) n.zero_point = integers(b, "zero", f.scale, t);
           b.output("q", shown(b, b.add(n), t));
         }});
  s.add({.id = "dequantize-" + id,
         .sentence = std::string("dequantize from ") + t.id + ": " + f.sentence,
         .build = [=](CaseBuilder& b) {
           op::dequantize n{.axis = f.axis, .block = f.block};
           n.q = integers(b, "q", f.x, t);
           n.scale = floats(b, "scale", f.scale, scales());
           if (zero) n.zero_point = integers(b, "zero", f.scale, t);
           b.output("y", b.add(n));
         }});
}

// The scale has a true gradient.
void dequantize_gradient_row(Suite& s, const Form& f) {
  s.add({.id = std::string("dequantize-scale-") + f.id,
         .sentence = std::string("the gradient of dequantize for scale: ") + f.sentence,
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               op::dequantize n{.axis = f.axis, .block = f.block};
               n.q = integers(b, "q", f.x, {"i8", i8, -20, 20});
               n.scale = b.input("scale", f.scale, Fill::uniform(0.5, 2));
               n.zero_point = integers(b, "zero", f.scale, {"i8", i8, -5, 5});
               b.output("y", b.add(n));
             },
         .tolerance = ulps(2),
         .gradient = true,
         .scales = {1}});
}

void mixed_rows(Suite& s) {
  s.add({.id = "quantize-ties",
         .sentence = "quantize: halves go to the even number",
         .build = [](CaseBuilder& b) {
           op::quantize n{.to = i8};
           n.x = floats(b, "x", {401}, Fill::integers(-255, 255));
           n.scale = floats(b, "scale", {}, Fill::list({2}).fixed());
           b.output("q", b.add(n));
         }});
  s.add({.id = "quantize-known",
         .sentence = "quantize: known values at the ends of the range",
         .build = [](CaseBuilder& b) {
           op::quantize n{};
           n.x = floats(b, "x", {10},
                        Fill::list({kNan, kInf, -kInf, 0, -0.25, 0.25, 0.75, 61.75, 62.25, -1.75}));
           n.scale = floats(b, "scale", {}, Fill::list({0.5}).fixed());
           n.zero_point = b.ints("zero", {}, {3}, u8);
           b.output("q", b.add(n));
           b.expect("q", {3, 255, 0, 3, 3, 3, 5, 127, 127, 0});
         }});
  s.add({.id = "quantize-f32-scale",
         .sentence = "quantize: halves by an f32 scale",
         .dtypes = kHalves,
         .build = [](CaseBuilder& b) {
           op::quantize n{.axis = 0, .to = u8};
           n.x = floats(b, "x", {3, 70}, Fill::normal(9));
           n.scale = cast(b, b.input("scale", f32, {3}, Fill::list({0.1, 0.3, 0.7}).fixed()), f32);
           n.zero_point = b.ints("zero", {3}, {128, 0, 90}, u8);
           b.output("q", b.add(n));
         }});
  s.add({.id = "dequantize-to",
         .sentence = "dequantize: the result has another dtype than the scale",
         .build = [](CaseBuilder& b) {
           op::dequantize n{.axis = 0, .to = b.own()};
           n.q = integers(b, "q", {3, 70}, {"i8", i8, -128, 127});
           n.scale = cast(b, b.input("scale", f32, {3}, Fill::list({0.1, 0.3, 0.7}).fixed()), f32);
           b.output("y", b.add(n));
         }});
  for (const bool zero : {false, true})
    s.add({.id = std::string("dequantize-i32") + (zero ? "-zero" : ""),
           .sentence = "dequantize: sums of products",
           .build = [=](CaseBuilder& b) {
             op::dequantize n{.axis = 1};
             n.q = b.input(
                 "q", i32, {5, 7},
                 Fill::integers(-3000000, 3000000).with({2147483647.0, -2147483648.0}).fixed());
             n.scale = floats(b, "scale", {7}, scales());
             if (zero)
               n.zero_point = b.ints("zero", {7}, {0, 1, -1, 1000, -70000, 5, 2147483647}, i32);
             b.output("y", b.add(n));
           }});
  s.add({.id = "quantize-dequantize",
         .sentence = "a quantized tensor and back",
         .build = [](CaseBuilder& b) {
           const Value x = floats(b, "x", {3, 50}, Fill::normal(4));
           const Value scale = floats(b, "scale", {3}, scales());
           const Value q = b.add(op::quantize{.axis = 0, .to = i8, .x = x, .scale = scale});
           b.output("y", b.add(op::dequantize{.axis = 0, .q = q, .scale = scale}));
         }});
}

// ---- estimators

void fake_rows(Suite& s, const Form& f, bool zero) {
  const std::string id = std::string(f.id) + (zero ? "-zero" : "");
  const auto set = [=](CaseBuilder& b, auto& n) {
    n.axis = f.axis, n.qmin = -21, n.qmax = 30;
    n.x = floats(b, "x", f.x, Fill::normal(9).with({kInf, -kInf}));
    n.scale = floats(b, "scale", f.scale, scales());
    if (zero) n.zero_point = b.input("zero", i32, f.scale, Fill::integers(-9, 9).fixed());
  };
  s.add({.id = "fake-quantize-" + id,
         .sentence = std::string("fake_quantize: ") + f.sentence,
         .build = [=](CaseBuilder& b) {
           op::fake_quantize n{};
           set(b, n);
           b.output("y", b.add(n));
         }});
  for (const std::string ste : {"clipped", "identity", "tanh", "hard_tanh"}) {
    const bool smooth = ste == "tanh" || ste == "hard_tanh";
    s.add({.id = "fake-quantize-backward-" + id + "-" + (ste == "hard_tanh" ? "hard-tanh" : ste),
           .sentence = std::string("gradient of fake_quantize: ") + f.sentence,
           .build =
               [=](CaseBuilder& b) {
                 op::fake_quantize_backward n{};
                 set(b, n);
                 n.ste = ste;
                 n.dy = floats(b, "dy", f.x, Fill::normal());
                 b.output("dx", b.add(n));
                 b.scale("dx", [&] { return cast(b, b.abs(n.dy), f64); });
               },
           .tolerance = smooth ? scaled(16) : kExact,
           .decomposed = 2});
  }
}

void learned_rows(Suite& s, const Form& f) {
  const auto set = [=](CaseBuilder& b, auto& n) {
    n.axis = f.axis, n.qmin = -7, n.qmax = 8, n.grad_factor = 0.125;
    n.x = floats(b, "x", f.x, Fill::normal(3));
    // One of them is not positive: it counts as 1e-12.
    n.scale = floats(b, "scale", f.scale, Fill::list({0.25, 0.5, 1.5, 0.0625, -1, 3}).fixed());
  };
  s.add({.id = std::string("lsq-quantize-") + f.id,
         .sentence = std::string("lsq_quantize: ") + f.sentence,
         .build = [=](CaseBuilder& b) {
           op::lsq_quantize n{};
           set(b, n);
           b.output("y", b.add(n));
         }});
  int64_t terms = 1;
  for (const int64_t d : f.x) terms *= d;
  s.add({.id = std::string("lsq-quantize-backward-") + f.id,
         .sentence = std::string("gradients of lsq_quantize: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::lsq_quantize_backward n{.want_dx = true, .want_dscale = true};
               set(b, n);
               n.dy = floats(b, "dy", f.x, Fill::normal());
               const Node r = b.add(n);
               b.output("dx", r[0], kExact);
               b.output("dscale", r[1]);
               // Each term is at most 8 of dy, and the difference of a level and x/s is of its size.
               b.scale("dscale", [&] {
                 return b.binary("mul", cast(b, b.reduce("sum", b.abs(n.dy), {}, false), f64),
                                 b.number(8));
               });
             },
         .tolerance = sum_of(terms),
         .decomposed = 2});
}

void observer_rows(Suite& s, const Form& f) {
  for (const std::string mode : {"batch", "ema"})
    s.add({.id = std::string("amax-observer-") + mode + "-" + f.id,
           .sentence = "amax_observer, " + mode + ": " + f.sentence,
           .build =
               [=](CaseBuilder& b) {
                 op::amax_observer n{.axis = f.axis, .mode = mode, .decay = 0.9, .qmax = 127};
                 n.x = b.input("x", f.x, Fill::normal(3));
                 n.state = b.input("state", b.own_acc(), f.scale,
                                   Fill::list({2.5, 0, 4, -1, 7, 3}).fixed());
                 const Node r = b.add(n);
                 b.side_output("state_out", r[0]);
                 b.side_output("scale", r[1]);
               },
           .tolerance = ulps(4)});
}

}  // namespace

void quantized_cases(Suite& s) {
  s.floor({.joined = 780, .own_joined = 150});
  for (const Form& f : forms()) {
    const bool all = std::string_view(f.id) == "axis" || std::string_view(f.id) == "blocks";
    for (const To& t : targets())
      if (all || t.dtype == i8 || t.dtype == u4) quantize_rows(s, f, t, t.dtype != i8 || all);
    dequantize_gradient_row(s, f);
    if (f.block > 0) continue;
    fake_rows(s, f, false);
    if (all) fake_rows(s, f, true);
    learned_rows(s, f);
    observer_rows(s, f);
  }
  mixed_rows(s);
  quantized_product_rows(s);
}

}  // namespace tenon::conform
