// SPDX-License-Identifier: Apache-2.0
// cast and copy, of and to every dtype.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const DTypes& all_dtypes() {
  static const DTypes all = kFloats + kInts + DTypes{boolean};
  return all;
}

// Every dtype that numbers are cast to and from.
const DTypes& castable() {
  static const DTypes all = all_dtypes() + DTypes{f8e4m3, f8e5m2, i4, u4};
  return all;
}

Fill cast_content(tenon_dtype from) {
  if (is_float(from) || is_f8(from))
    return Fill::normal(100).with({0,    -0.0,  kInf, -kInf, kNan,     1e-9,  2.5,
                                   -3.5, 70000, 3e9,  -1e10, 1e30,     255.5, -129,
                                   7.5,  8,     -8.5, 15.9,  0.015625, -448,  465});
  if (from == boolean) return Fill::integers(0, 1);
  // Below 2^53, so that f64 holds every integer.
  return Fill::exact({0,
                      1,
                      -1,
                      7,
                      8,
                      -8,
                      -9,
                      15,
                      16,
                      127,
                      128,
                      -129,
                      255,
                      256,
                      32767,
                      65535,
                      16777217,
                      -16777219,
                      2049,
                      INT32_MAX,
                      INT32_MIN,
                      int64_t{1} << 40,
                      -(int64_t{1} << 52)});
}

}  // namespace

void elementwise_cast_rows(Suite& s) {
  for (const tenon_dtype from : castable())
    for (const bool saturate : {true, false})
      s.add({.id = std::string("cast-from-") + dtype_text(from) + (saturate ? "" : "-unsaturated"),
             .sentence = std::string("cast of ") + dtype_text(from) +
                         (saturate ? " to every dtype" : " to the 8-bit floats, not saturated"),
             .dtypes = {from},
             .build =
                 [=](CaseBuilder& b) {
                   const Value x = b.input("x", {3, 17}, cast_content(from));
                   for (const tenon_dtype to : castable())
                     if (saturate || is_f8(to))
                       b.output(std::string("to ") + dtype_text(to),
                                b.add(op::cast{.to = b.as(to), .saturate = saturate, .x = x}));
                 },
             .strided = !is_nibble(from)});
  // Two elements share a byte: odd lengths, one element, none, and enough for several threads.
  for (const tenon_dtype nibble : {i4, u4})
    for (const Dims& dims : std::vector<Dims>{{}, {1}, {0, 3}, {7, 3}, {3, 100003}}) {
      int64_t count = 1;
      for (const int64_t d : dims) count *= d;
      s.add({.id = std::string("cast-") + dtype_text(nibble) + "-of-" + std::to_string(count) +
                   (dims.empty() ? "-scalar" : ""),
             .sentence = std::to_string(count) + " elements to " + dtype_text(nibble) + " and back",
             .dtypes = {f32, bf16, i8, i64, nibble},
             .build =
                 [=](CaseBuilder& b) {
                   const Fill f =
                       is_float(b.own()) ? Fill::uniform(-12, 20) : Fill::integers(-12, 20);
                   const Value x = b.input("x", dims, f);
                   const Value y = b.add(op::cast{.to = nibble, .x = x});
                   b.output("there", y);
                   b.output("back", b.add(op::cast{.to = b.dtype(), .x = y}));
                 },
             .strided = false});
    }
  s.add({.id = "cast-nibbles-known",
         .sentence = "4-bit integers: floats saturate, integers wrap",
         .dtypes = {f32, i32},
         .build = [](CaseBuilder& b) {
           const bool real = is_float(b.own());
           const Value x =
               b.input("x", {9},
                       real ? Fill::list({2.9, -2.9, 300, -300, kNan, kInf, -kInf, 0.4, -9})
                            : Fill::list({7, 8, -8, -9, 15, 16, 17, -1, 100}));
           b.output("i4", b.add(op::cast{.to = i4, .x = x}));
           b.output("u4", b.add(op::cast{.to = u4, .x = x}));
           if (real) {
             b.expect("i4", {2, -2, 7, -8, 0, 7, -8, 0, -8});
             b.expect("u4", {2, 0, 15, 0, 0, 15, 0, 0, 0});
           } else {
             b.expect("i4", {7, -8, -8, 7, -1, 0, 1, -1, 4});
             b.expect("u4", {7, 8, 8, 7, 15, 0, 1, 15, 4});
           }
         }});
  const auto elements = [](CaseBuilder& b, Value blocks) {
    return b.graph().add(op::dequantize_blocks{.to = b.dtype(), .w = blocks});
  };
  s.add({.id = "cast-q8-0",
         .sentence = "a cast to blocks of 8-bit integers",
         .dtypes = kFloats,
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", {5, 3, 96}, Fill::normal());
               b.output("y", elements(b, b.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = x})));
             },
         .tolerance = kExact,
         .scales = {1e-6, 1, 1e4},
         .may_refuse = true});
  s.add({.id = "cast-q8-0-rows",
         .sentence = "a cast to blocks of 8-bit integers of a part of wider rows",
         .dtypes = kFloats,
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", {2, 7, 12, 64}, Fill::normal()),
                           part = b.add(
                               op::narrow{.start = {0, 1, 4, 0}, .len = {2, 5, 5, 64}, .x = x});
               b.output("y", elements(b, b.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = part})));
             },
         .tolerance = kExact,
         .may_refuse = true});
  s.add({.id = "cast-q8-0-known",
         .sentence = "ties go away from zero, one number that is not finite makes its block NaN",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               std::vector<double> x(128, 0), y(128, 0);
               // The scale is 1.
               const double some[] = {127, -127, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49, 126.4};
               const double rounded[] = {127, -127, 1, -1, 2, 3, -3, 0, 126};
               std::copy(std::begin(some), std::end(some), x.begin());
               std::copy(std::begin(rounded), std::end(rounded), y.begin());
               x[40] = kNan, x[70] = -kInf;
               std::fill(y.begin() + 32, y.begin() + 96, kNan);
               const Value in = b.input("x", {2, 64}, Fill::list(x));
               b.output("y", elements(b, b.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = in})));
               b.expect("y", y);
             },
         .may_refuse = true});
  s.add({.id = "cast-q8-0-part",
         .sentence = "a cast to a part of a block is refused",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", {5, 48});
               b.output("y", elements(b, b.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = x})));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "multiple of 32"});
  s.add({.id = "cast-known",
         .sentence = "float to integer truncates, saturates, and NaN gives 0",
         .dtypes = {f32, f64},
         .build = [](CaseBuilder& b) {
           const Value x =
               b.input("x", {8}, Fill::list({2.9, -2.9, 300, -300, kNan, kInf, -kInf, 0.4}));
           b.output("i8", b.add(op::cast{.to = i8, .x = x}));
           b.expect("i8", {2, -2, 127, -128, 0, 127, -128, 0});
           b.output("u8", b.add(op::cast{.to = u8, .x = x}));
           b.expect("u8", {2, 0, 255, 0, 0, 255, 0, 0});
           b.output("bool", b.add(op::cast{.to = boolean, .x = x}));
           b.expect("bool", {1, 1, 1, 1, 1, 1, 1, 1});
         }});
  s.add({.id = "cast-gradient",
         .sentence = "the gradient of a cast between floats is cast back",
         .dtypes = {f32, f64},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {3}, Fill::list({1, 2, 3}));
           const Value y = b.add(op::cast{.to = b.as(bf16), .x = x});
           b.output("dx", b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
           b.expect("dx", {1, 1, 1});
         }});
  s.add({.id = "copy",
         .sentence = "copy keeps every value",
         .dtypes = all_dtypes(),
         .build =
             [](CaseBuilder& b) {
               const bool flag = b.dtype() == boolean;
               const Fill f = is_float(b.dtype()) ? Fill::normal().with({kNan, kInf, -0.0})
                                                  : Fill::integers(0, flag ? 1 : 100);
               b.output("y", b.add(op::copy{.x = b.input("x", {3, 5, 7}, f)}));
             },
         .gradient = false});
  s.add({.id = "stop-gradient",
         .sentence = "stop_gradient keeps every value",
         .dtypes = all_dtypes(),
         .build =
             [](CaseBuilder& b) {
               const bool real = is_float(b.dtype());
               const Fill f = real ? Fill::normal().with({kNan, kInf, -0.0}) : Fill::integers(0, 1);
               b.output("y", b.add(op::stop_gradient{.x = b.input("x", {3, 5, 7}, f)}));
             },
         .gradient = false});
  s.add({.id = "stop-gradient-gradient",
         .sentence = "stop_gradient passes no gradient on",
         .dtypes = kFloats,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {3}, Fill::list({1, 2, 3}));
               const Value y = b.binary("mul", x, b.add(op::stop_gradient{.x = x}));
               b.output("dx", b.graph().gradients(b.reduce("sum", y, {}, false), {x})[0]);
               b.expect("dx", {1, 2, 3});
             },
         .gradient = false});
}

}  // namespace tenon::conform
