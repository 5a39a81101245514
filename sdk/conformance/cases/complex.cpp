// SPDX-License-Identifier: Apache-2.0
// conj complex_abs complex_norm_sq, and the ops of other families that take complex numbers.
#include "cases/complex.hpp"

#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// |a| |b|, for the parts of a product.
Value product_scale(CaseBuilder& b, Value x, Value y) {
  const Value size = b.binary("mul", b.graph().add(op::complex_abs{.x = x}),
                              b.graph().add(op::complex_abs{.x = y}));
  Dims dims = b.graph().type(size).dims;
  dims.push_back(1);
  return b.graph().add(op::reshape{.shape = dims, .allow_zero = true, .x = size});
}

void binary_rows(Suite& s) {
  struct Shapes {
    const char* id;
    Dims a, b;
  };
  for (const char* kind : {"add", "sub", "mul"}) {
    const bool product = std::string_view(kind) == "mul";
    for (const Shapes& c : {Shapes{"", {3, 7}, {3, 7}}, Shapes{"-rows", {3, 7}, {7}},
                            Shapes{"-columns", {3, 1}, {3, 7}}, Shapes{"-scalar", {5}, {}},
                            Shapes{"-long", {1031}, {1031}}, Shapes{"-empty", {0, 3}, {3}}}) {
      s.add({.id = std::string("complex-") + kind + c.id,
             .sentence = std::string(kind) + " of complex numbers",
             .dtypes = kParts,
             .build =
                 [=](CaseBuilder& b) {
                   const Value x = complex_input(b, "a", c.a), y = complex_input(b, "b", c.b);
                   complex_output(b, "y", b.add(op::binary{.kind = kind, .a = x, .b = y}));
                   if (product) b.scale("y", [&] { return product_scale(b, x, y); });
                 },
             .tolerance = product ? scaled(4) : ulps(1),
             .gradient = c.id != std::string_view("-empty"),
             .second_order = product && c.id == std::string_view("-rows"),
             .scales = {1}});
    }
  }
  s.add({.id = "complex-mul-known",
         .sentence = "products of complex numbers that are whole numbers",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "a", {3}, Fill::list({1, 2, 0, 1, -3, 4}));
               const Value y = complex_input(b, "b", {3}, Fill::list({3, -1, 0, 1, 2, 5}));
               complex_output(b, "y", b.add(op::binary{.kind = "mul", .a = x, .b = y}));
               b.expect("y", {5, 5, -1, 0, -26, -7});
             },
         .tolerance = ulps(1)});
  s.add({.id = "complex-mul-squared",
         .sentence = "a complex number times itself, its gradient too",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "x", {3, 5});
               complex_output(b, "y", b.add(op::binary{.kind = "mul", .a = x, .b = x}));
               b.scale("y", [&] { return product_scale(b, x, x); });
             },
         .tolerance = scaled(4),
         .gradient = true,
         .second_order = true,
         .scales = {1}});
}

void unary_rows(Suite& s) {
  const auto row = [&](const char* id, const char* sentence, auto f) {
    s.add({.id = id,
           .sentence = sentence,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 complex_output(b, "y", f(b, complex_input(b, "x", {5, 9})));
               },
           .tolerance = kExact,
           .gradient = true,
           .scales = {1}});
  };
  row("conj", "conjugates", [](CaseBuilder& b, Value x) { return b.add(op::conj{.x = x}); });
  row("complex-neg", "neg of complex numbers",
      [](CaseBuilder& b, Value x) { return b.add(op::unary{.kind = "neg", .x = x}); });
  row("complex-copy", "copy of complex numbers",
      [](CaseBuilder& b, Value x) { return b.add(op::copy{.x = x}); });
  row("complex-turned", "complex numbers, transposed and joined",
      [](CaseBuilder& b, Value x) -> Value {
        const Value t = b.add(op::transpose{.perm = {1, 0}, .x = x});
        return b.add(op::concat{.axis = 1, .xs = {t, t}});
      });
  row("complex-pad", "complex numbers between zeros", [](CaseBuilder& b, Value x) -> Value {
    return b.add(op::pad{.before = {1, 0}, .after = {0, 2}, .x = x});
  });
  row("complex-where", "complex numbers of two tensors", [](CaseBuilder& b, Value x) -> Value {
    const Value other = b.add(op::conj{.x = x});
    const Value cond = b.input("cond", TENON_DTYPE_BOOL, {1, 9}, Fill::list({1, 0, 0, 1}));
    return b.add(op::where{.cond = cond, .a = x, .b = other});
  });
  row("complex-narrow", "every second complex number, backwards",
      [](CaseBuilder& b, Value x) -> Value {
        return b.add(op::narrow{.start = {4, 8}, .len = {2, 4}, .step = {-2, -2}, .x = x});
      });
  s.add({.id = "complex-pad-twos",
         .sentence = "complex numbers between twos, which have no imaginary part",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Value x = complex_input(b, "x", {2}, Fill::list({1, -1, 3, 4}));
           complex_output(b, "y", b.add(op::pad{.before = {1}, .after = {1}, .value = 2, .x = x}));
           b.expect("y", {2, 0, 1, -1, 3, 4, 2, 0});
         }});
}

void length_rows(Suite& s) {
  const Fill far = Fill::list({3, 4, 1e30, -1e30, 1e-30, 0, 0, 0, -5, 12, 1e-20, 1e-20});
  s.add({.id = "complex-abs",
         .sentence = "lengths, also where squares overflow",
         .dtypes = kParts,
         .build =
             [=](CaseBuilder& b) {
               b.output("y", b.add(op::complex_abs{.x = complex_input(b, "x", {6}, far)}));
             },
         .tolerance = ulps(3)});
  s.add({.id = "complex-abs-specials",
         .sentence = "lengths of infinite numbers, with NaN too",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Fill fill = Fill::list({kInf, 1, kNan, kInf, -kInf, kInf, kNan, 1, 3, kNan});
           b.output("y", b.add(op::complex_abs{.x = complex_input(b, "x", {5}, fill)}));
           b.expect("y", {kInf, kInf, kInf, kNan, kNan});
         }});
  s.add({.id = "complex-abs-many",
         .sentence = "lengths and their gradient",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::complex_abs{.x = complex_input(b, "x", {7, 11})}));
             },
         .tolerance = ulps(3),
         .gradient = true});
  s.add({.id = "complex-norm-sq",
         .sentence = "squared lengths",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::complex_norm_sq{.x = complex_input(b, "x", {7, 11})}));
             },
         .tolerance = ulps(2),
         .gradient = true,
         .second_order = true});
}

void cast_rows(Suite& s) {
  s.add({.id = "cast-to-complex",
         .sentence = "a real number becomes the real part",
         .dtypes = kFloats,
         .build =
             [](CaseBuilder& b) {
               const tenon_dtype to = b.dtype() == f64 ? TENON_DTYPE_C128 : TENON_DTYPE_C64;
               complex_output(b, "y", b.add(op::cast{.to = to, .x = b.input("x", {3, 5})}));
             },
         .gradient = true,
         .scales = {1}});
  s.add({.id = "cast-integers-to-complex",
         .sentence = "an integer becomes the real part",
         .dtypes = {i32, u8, boolean},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {4}, Fill::list({0, 1, 1, 0}));
           const Value y = b.add(op::cast{.to = TENON_DTYPE_C64, .x = x});
           b.output("y", b.add(op::view_as_real{.x = y}));
           b.expect("y", {0, 0, 1, 0, 1, 0, 0, 0});
         }});
  s.add({.id = "cast-between-complex",
         .sentence = "from c64 to c128 and back",
         .dtypes = {f32},
         .build = [](CaseBuilder& b) {
           const Value x = complex_input(b, "x", {3, 5});
           const Value wide = b.add(op::cast{.to = TENON_DTYPE_C128, .x = x});
           const Value back = b.add(op::cast{.to = TENON_DTYPE_C64, .x = wide});
           b.output("wide", b.add(op::view_as_real{.x = wide}));
           b.output("back", b.add(op::view_as_real{.x = back}));
         }});
  s.add_failure(
      "cast-from-complex-refused", "a complex number is not cast to a real one",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::cast{.to = f32, .x = complex_input(b, "x", {3})}));
      },
      TENON_UNSUPPORTED, "view_as_real");
  s.add_failure(
      "complex-div-refused", "complex numbers are not divided",
      [](CaseBuilder& b) {
        const Value x = complex_input(b, "x", {3});
        b.output("y", b.add(op::binary{.kind = "div", .a = x, .b = x}));
      },
      TENON_DTYPE_MISMATCH, "c64");
}

}  // namespace

void complex_cases(Suite& s) {
  s.floor({.joined = 65, .own_joined = 55});
  binary_rows(s);
  unary_rows(s);
  length_rows(s);
  cast_rows(s);
}

}  // namespace tenon::conform
