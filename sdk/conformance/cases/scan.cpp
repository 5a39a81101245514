// SPDX-License-Identifier: Apache-2.0
// Cases of cumsum and cumprod.
#include <algorithm>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Mode {
  const char* id;
  bool exclusive, reverse;
};

void rows(Suite& s, const Mode& m) {
  struct Shape {
    const char* id;
    Dims dims;
    int64_t axis;
    bool gradient;
  };
  for (const Shape& c :
       {Shape{"-last", {3, 4, 7}, -1, true}, Shape{"-first", {7, 5}, 0, true},
        Shape{"-middle", {3, 7, 4}, 1, true}, Shape{"-long", {3, 2053}, 1, false},
        Shape{"-long-first", {2053, 3}, 0, false}, Shape{"-one", {4, 1}, 1, true},
        Shape{"-pieces", {1, 65536}, 1, false}, Shape{"-pieces-odd", {2, 40011}, 1, false}}) {
    const int64_t length = c.axis < 0 ? c.dims.back() : c.dims[static_cast<size_t>(c.axis)];
    s.add({.id = std::string("cumsum") + m.id + c.id,
           .sentence = std::string("cumulative sum along an axis") + m.id,
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", c.dims);
                 const op::cumsum n{
                     .axis = c.axis, .exclusive = m.exclusive, .reverse = m.reverse, .x = x};
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   op::cumsum size = n;
                   size.x = b.abs(x);
                   return b.add(size);
                 });
               },
           .tolerance = sum_of(std::max<int64_t>(length, 2053)),
           .gradient = c.gradient});
  }
  s.add({.id = std::string("cumsum") + m.id + "-int",
         .sentence = "cumulative sum of integers wraps",
         .dtypes = kInts,
         .build = [=](CaseBuilder& b) {
           const Value x = b.input(
               "x", {3, 11, 2}, Fill::exact({100, -7, 127, 1, INT32_MAX, INT64_MAX, 5, -128, 3}));
           b.output("y", b.add(op::cumsum{
                             .axis = 1, .exclusive = m.exclusive, .reverse = m.reverse, .x = x}));
         }});
  s.add({.id = std::string("cumsum") + m.id + "-specials",
         .sentence = "an infinity or a NaN stays from where it came in",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input(
                   "x", {3, 4}, Fill::list({1, -kInf, kInf, 2, 1, kNan, 3, 4, 1, kInf, 2, 3}));
               b.output("y",
                        b.add(op::cumsum{.exclusive = m.exclusive, .reverse = m.reverse, .x = x}));
             },
         .tolerance = sum_of(4)});
  s.add({.id = std::string("cumsum") + m.id + "-empty",
         .sentence = "cumulative sum of nothing",
         .dtypes = {f32, i32},
         .build =
             [=](CaseBuilder& b) {
               b.output("y", b.add(op::cumsum{.exclusive = m.exclusive,
                                              .reverse = m.reverse,
                                              .x = b.input("x", {3, 0})}));
               b.output("z", b.add(op::cumsum{.exclusive = m.exclusive,
                                              .reverse = m.reverse,
                                              .x = b.input("z", {0, 3})}));
             },
         .strided = false});
}

void product_rows(Suite& s, const Mode& m) {
  struct Shape {
    const char* id;
    Dims dims;
    int64_t axis;
    bool gradient;
  };
  const auto add = [m](CaseBuilder& b, int64_t axis, Value x) {
    return b.add(op::cumprod{.axis = axis, .exclusive = m.exclusive, .reverse = m.reverse, .x = x});
  };
  for (const Shape& c : {Shape{"-last", {3, 4, 7}, -1, true}, Shape{"-first", {7, 5}, 0, true},
                         Shape{"-middle", {3, 7, 70}, 1, false}, Shape{"-long", {3, 203}, 1, false},
                         Shape{"-one", {4, 1}, 1, true}}) {
    s.add({.id = std::string("cumprod") + m.id + c.id,
           .sentence = std::string("cumulative product along an axis") + m.id,
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", add(b, c.axis, b.input("x", c.dims, Fill::uniform(0.6, 1.6))));
               },
           .tolerance = ulps(c.dims.back() > 100 ? 64 : 8),
           .decomposed = 4,
           .gradient = c.gradient});
  }
  s.add({.id = std::string("cumprod") + m.id + "-zeros",
         .sentence = "cumulative product with zeros, its gradient too",
         .build =
             [=](CaseBuilder& b) {
               b.output(
                   "y",
                   add(b, 1, b.input("x", {2, 5}, Fill::list({1.5, 0, 2, 3, -1, 0, 2, 0, 1, 4}))));
             },
         .tolerance = ulps(4),
         .gradient = true});
  s.add({.id = std::string("cumprod") + m.id + "-int",
         .sentence = "cumulative product of integers wraps",
         .dtypes = kInts,
         .build = [=](CaseBuilder& b) {
           b.output("y", add(b, 1,
                             b.input("x", {3, 11, 2},
                                     Fill::exact({3, -7, 5, 1, 9, INT64_MAX, 5, -1, 3}))));
         }});
  s.add({.id = std::string("cumprod") + m.id + "-empty",
         .sentence = "cumulative product of nothing",
         .dtypes = {f32, i32},
         .build =
             [=](CaseBuilder& b) {
               b.output("y", add(b, -1, b.input("x", {3, 0})));
               b.output("z", add(b, -1, b.input("z", {0, 3})));
             },
         .strided = false});
}

// Bools count in i64.
void bool_rows(Suite& s, const Mode& m) {
  const std::vector<double> x = {1, 1, 0, 1, 1};
  std::vector<double> sums(x.size()), products(x.size());
  double sum = 0, product = 1;
  for (size_t k = 0; k < x.size(); ++k) {
    const size_t i = m.reverse ? x.size() - 1 - k : k;
    if (m.exclusive) sums[i] = sum, products[i] = product;
    sum += x[i], product *= x[i];
    if (!m.exclusive) sums[i] = sum, products[i] = product;
  }
  s.add({.id = std::string("cumsum") + m.id + "-bool",
         .sentence = "cumulative sum and product of bools",
         .dtypes = {boolean},
         .build = [=](CaseBuilder& b) {
           const Value line = b.input("x", {5}, Fill::list(x));
           const auto both = [&](const std::string& name, Value v, int64_t axis) {
             b.output(name + "-sum",
                      b.add(op::cumsum{
                          .axis = axis, .exclusive = m.exclusive, .reverse = m.reverse, .x = v}));
             b.output(name + "-product",
                      b.add(op::cumprod{
                          .axis = axis, .exclusive = m.exclusive, .reverse = m.reverse, .x = v}));
           };
           both("line", line, 0);
           b.expect("line-sum", sums);
           b.expect("line-product", products);
           both("rows", b.input("rows", {3, 700, 2}, Fill::integers(0, 1)), 1);
         }});
}

}  // namespace

void scan_cases(Suite& s) {
  s.floor({.joined = 130, .own_joined = 0});
  for (const Mode& m : {Mode{"", false, false}, Mode{"-exclusive", true, false},
                        Mode{"-reverse", false, true}, Mode{"-exclusive-reverse", true, true}})
    rows(s, m), product_rows(s, m), bool_rows(s, m);
}

}  // namespace tenon::conform
