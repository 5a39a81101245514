// SPDX-License-Identifier: Apache-2.0
// softmax softmax_backward; cross_entropy is in softmax_loss.cpp.
#include <cmath>
#include <limits>

#include "cases/softmax.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shape {
  const char* id;
  Dims dims;
  int64_t axis;
  bool gradient;
  int64_t terms() const {
    return dims[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis)];
  }
};

void softmax_rows(Suite& s, bool log, const Shape& c) {
  const std::string name = log ? "log-softmax" : "softmax";
  s.add({.id = name + c.id,
         .sentence = name + " along an axis",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", c.dims, Fill::normal(3));
               const Value y = b.add(op::softmax{.axis = c.axis, .log = log, .x = x});
               b.output("y", y);
               b.scale("y", [&] { return softmax_scale(b, x, y, c.axis, log); });
             },
         .tolerance = sum_of(c.terms()),
         .decomposed = 2,
         .gradient = c.gradient,
         .second_order = c.gradient && c.terms() > 1});
  s.add({.id = name + "-backward" + c.id,
         .sentence = "gradient of " + name + " along an axis",
         .build =
             [=](CaseBuilder& b) {
               const Value dy = b.input("dy", c.dims);
               // As results of the forward, though a row's sum is not quite one.
               const double n = static_cast<double>(c.terms());
               const Value y = b.input(
                   "y", c.dims,
                   log ? Fill::uniform(-2 - std::log(n), -std::log(n)) : Fill::uniform(0, 2 / n));
               b.output("dx",
                        b.add(op::softmax_backward{.axis = c.axis, .log = log, .dy = dy, .y = y}));
               b.scale("dx", [&] {
                 const Value p = log ? b.unary("exp", y) : b.abs(y);
                 const Value sum =
                     b.reduce("sum", log ? b.abs(dy) : b.binary("mul", b.abs(dy), p), {c.axis});
                 return log ? b.binary("add", b.abs(dy), b.binary("mul", p, sum))
                            : b.binary("mul", p, b.binary("add", b.abs(dy), sum));
               });
             },
         .tolerance = sum_of(c.terms()),
         .decomposed = 2,
         .gradient = c.gradient,
         .scales = {1}});
}

void edge_rows(Suite& s) {
  for (const bool log : {false, true}) {
    const std::string name = log ? "log-softmax" : "softmax";
    s.add({.id = name + "-specials",
           .sentence =
               name + ": -inf counts for nothing; +inf, NaN or nothing finite makes the row NaN",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {5, 3},
                                         Fill::list({-kInf, 1, 2, kInf, 1, 2, kNan, 1, 2, -kInf,
                                                     -kInf, -kInf, -kInf, -kInf, 3}));
                 b.output("y", b.add(op::softmax{.log = log, .x = x}));
                 if (!log) return;
                 b.scale("y", [&] { return b.number(8); });
               },
           .tolerance = sum_of(3)});
    s.add({.id = name + "-large",
           .sentence = name + " of numbers whose exponentials overflow",
           .build =
               [=](CaseBuilder& b) {
                 const Value x =
                     b.input("x", {2, 3}, Fill::list({1000, 1001, 999, -1000, -1001, -1000}));
                 b.output("y", b.add(op::softmax{.log = log, .x = x}));
                 b.scale("y", [&] { return b.number(1000); });
               },
           .tolerance = sum_of(3)});
    s.add({.id = name + "-empty",
           .sentence = name + " of empty rows and of no rows",
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(op::softmax{.log = log, .x = b.input("x", {3, 0})}));
                 b.output("z", b.add(op::softmax{.log = log, .x = b.input("z", {0, 3})}));
               },
           .strided = false});
  }
}

}  // namespace

void softmax_cases(Suite& s) {
  s.floor({.joined = 280, .own_joined = 0});
  for (const bool log : {false, true})
    for (const Shape& c :
         {Shape{"-axis0", {5, 3, 4}, 0, true}, Shape{"-axis1", {3, 5, 7}, 1, true},
          Shape{"-last", {3, 2, 7}, -1, true}, Shape{"-vector", {13}, 0, true},
          Shape{"-one", {4, 1}, 1, true}, Shape{"-long", {3, 1031}, 1, false},
          Shape{"-long-first", {517, 3}, 0, false}, Shape{"-wide", {67, 64}, 1, false},
          Shape{"-very-long", {3, 16411}, 1, false}})
      softmax_rows(s, log, c);
  edge_rows(s);
  softmax_loss_rows(s);
}

}  // namespace tenon::conform
