// SPDX-License-Identifier: Apache-2.0
// argmax argmin topk sort: ties, NaN and the order of indices are exact.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Content {
  const char* id;
  const char* sentence;
  Dims dims;
  int64_t axis;
  Fill fill;
};

const std::vector<Content>& contents() {
  static const std::vector<Content> all = {
      {"last", "the last axis", {3, 4, 9}, -1, Fill::normal()},
      {"first", "the first axis", {9, 5}, 0, Fill::normal()},
      {"middle", "a middle axis", {3, 9, 4}, 1, Fill::normal()},
      {"ties", "many equal elements", {4, 33}, 1, Fill::integers(-2, 2)},
      {"nan",
       "NaN above +inf, infinities, both zeros",
       {3, 17},
       1,
       Fill::normal().with({kNan, -kInf, kInf, 0, -0.0, kNan, kInf, -kInf, -0.0, 0})},
      {"one", "one element", {5, 1}, 1, Fill::normal()},
      {"long", "long rows", {2, 3001}, 1, Fill::normal()},
      {"long-ties", "long rows of few values", {2, 3001}, 1, Fill::integers(0, 9)},
  };
  return all;
}

template <class Op>
void arg_rows(Suite& s, const std::string& name) {
  for (const Content& c : contents())
    for (const bool last : {false, true})
      s.add({.id = name + "-" + c.id + (last ? "-select-last" : ""),
             .sentence = name + ": " + c.sentence,
             .build = [=](CaseBuilder& b) {
               const Value x = b.input("x", c.dims, c.fill);
               b.output("y",
                        b.add(Op{.axis = c.axis, .keepdims = last, .select_last = last, .x = x}));
             }});
  // Several NaN: the first wins, with select_last too. Rows, columns, and rows of several chunks.
  for (const bool last : {false, true}) {
    const std::string select = last ? "-select-last" : "";
    s.add({.id = name + "-first-nan" + select,
           .sentence = name + ": the first of several NaN",
           .build = [=](CaseBuilder& b) {
             const Fill f = Fill::list({1, kNan, 5, kNan, 2, kNan, kInf, kNan, -kInf, 3, 7, kNan});
             const Value rows = b.input("rows", {3, 4}, f), columns = b.input("columns", {4, 3}, f);
             b.output("rows", b.add(Op{.select_last = last, .x = rows}));
             b.expect("rows", {1, 1, 3});
             b.output("columns", b.add(Op{.axis = 0, .select_last = last, .x = columns}));
             b.expect("columns", {1, 0, 1});
           }});
    s.add({.id = name + "-first-nan-long" + select,
           .sentence = name + ": the first of several NaN in long rows and columns",
           .build = [=](CaseBuilder& b) {
             const auto far = [](int64_t i) { return i == 4099 || i == 8300 || i == 8999; };
             std::vector<double> x;
             for (int64_t i = 0; i < 9000; ++i)
               x.push_back(far(i) ? kNan : static_cast<double>(i % 5));
             b.output("rows", b.add(Op{.select_last = last,
                                       .x = b.input("rows", {2, 9000}, Fill::list(x))}));
             b.expect("rows", {4099, 4099});
             b.output("columns", b.add(Op{.axis = 0,
                                          .select_last = last,
                                          .x = b.input("columns", {9000, 1}, Fill::list(x))}));
             b.expect("columns", {4099});
           }});
    // Rows that blocks of a device share.
    s.add({.id = name + "-wide" + select,
           .sentence = name + ": ties, and several NaN, far apart in rows of 140007 elements",
           .build = [=](CaseBuilder& b) {
             constexpr int64_t kLength = 140007;
             const bool greatest = std::is_same_v<Op, op::argmax>;
             std::vector<double> ties(kLength), nans(kLength);
             for (int64_t i = 0; i < kLength; ++i)
               ties[i] = nans[i] = static_cast<double>(i % 5) - 2;
             for (const int64_t i : {int64_t{17502}, int64_t{70003}, kLength - 1})
               ties[i] = greatest ? 3 : -3;
             for (const int64_t i : {int64_t{52503}, int64_t{52504}, int64_t{122505}})
               nans[i] = kNan;
             b.output("ties", b.add(Op{.select_last = last,
                                       .x = b.input("ties", {1, kLength}, Fill::list(ties))}));
             b.expect("ties", {last ? kLength - 1.0 : 17502.0});
             b.output("nans", b.add(Op{.select_last = last,
                                       .x = b.input("nans", {1, kLength}, Fill::list(nans))}));
             b.expect("nans", {52503});
           }});
  }
  s.add({.id = name + "-int",
         .sentence = name + " of integers",
         .dtypes = kInts,
         .build = [](CaseBuilder& b) {
           const Value x =
               b.input("x", {5, 9},
                       Fill::exact({3, -7, 100, 0, 5, -128, 127, 100, 2, INT64_MIN, INT64_MAX}));
           b.output("y", b.add(Op{.axis = 0, .x = x}));
           b.output("z", b.add(Op{.axis = 1, .select_last = true, .x = x}));
         }});
  s.add(
      {.id = name + "-bool",
       .sentence = name + " of bools: false comes before true",
       .dtypes = {boolean},
       .build = [](CaseBuilder& b) {
         const bool greatest = std::is_same_v<Op, op::argmax>;
         const Value x = b.input("x", {3, 4}, Fill::list({0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0}));
         b.output("first", b.add(Op{.axis = 1, .x = x}));
         b.expect("first", greatest ? std::vector<double>{1, 0, 0} : std::vector<double>{0, 0, 0});
         b.output("last", b.add(Op{.axis = 1, .select_last = true, .x = x}));
         b.expect("last", greatest ? std::vector<double>{3, 3, 3} : std::vector<double>{2, 3, 3});
       }});
  s.add({.id = name + "-empty-refused",
         .sentence = name + " over no elements is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(Op{.axis = 1, .x = b.input("x", {3, 0})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand x"});
  s.add({.id = name + "-no-rows",
         .sentence = name + " of no rows is empty",
         .dtypes = {f32, i32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(Op{.axis = 1, .x = b.input("x", {0, 3})}));
             },
         .strided = false});
}

void topk_rows(Suite& s) {
  for (const Content& c : contents()) {
    const int64_t axis = c.axis < 0 ? c.axis + static_cast<int64_t>(c.dims.size()) : c.axis;
    const int64_t length = c.dims[static_cast<size_t>(axis)];
    for (const bool largest : {true, false})
      for (const int64_t k : {int64_t{1}, length / 2 + 1, length}) {
        if (k != 1 && k == length / 2 + 1 && k == length) continue;
        if (length == 1 && k != 1) continue;
        const std::string what = k == length && length > 1 ? "-all" : k == 1 ? "-one" : "-half";
        s.add(
            {.id = std::string("topk-") + c.id + (largest ? "" : "-smallest") + what,
             .sentence = std::string("topk: ") + c.sentence,
             .build = [=](CaseBuilder& b) {
               const Node y = b.add(op::topk{
                   .k = k, .axis = c.axis, .largest = largest, .x = b.input("x", c.dims, c.fill)});
               b.output("values", y[0]);
               b.output("indices", y[1]);
             }});
        if (length == 1) break;
      }
  }
  s.add({.id = "topk-40-of-3001", .sentence = "a few of long rows", .build = [](CaseBuilder& b) {
           const Node y = b.add(op::topk{
               .k = 40, .x = b.input("x", {3, 3001}, Fill::normal().with({kNan, -kInf, kInf}))});
           b.output("values", y[0]);
           b.output("indices", y[1]);
         }});
  // Rows that take several blocks of a device.
  struct Wide {
    const char* id;
    int64_t k;
    Dims dims;
    int64_t axis;
    bool largest;
    Fill fill;
  };
  const Fill odd = Fill::normal().with({kNan, -kInf, kInf, 0, -0.0});
  std::vector<double> rising(30011);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<double>(i) - 15000;
  for (const Wide& w : {Wide{"50-of-30011", 50, {2, 30011}, 1, true, odd},
                        Wide{"50-of-30016", 50, {2, 30016}, 1, true, odd},
                        Wide{"50-of-30011-ties", 50, {2, 30011}, 1, true, Fill::integers(0, 9)},
                        Wide{"50-of-30011-rising", 50, {2, 30011}, 1, true, Fill::list(rising)},
                        Wide{"256-of-70001", 256, {1, 70001}, 1, true, odd},
                        Wide{"600-of-30011-ties", 600, {2, 30011}, 1, false, Fill::integers(0, 9)},
                        Wide{"9000-of-9001", 9000, {9001, 2}, 0, true, odd}})
    s.add(
        {.id = std::string("topk-") + w.id,
         .sentence = "some of very long rows",
         .build = [=](CaseBuilder& b) {
           const Node y = b.add(op::topk{
               .k = w.k, .axis = w.axis, .largest = w.largest, .x = b.input("x", w.dims, w.fill)});
           b.output("values", y[0]);
           b.output("indices", y[1]);
         }});
  s.add({.id = "topk-int",
         .sentence = "topk of integers",
         .dtypes = kInts,
         .build = [](CaseBuilder& b) {
           const Node y = b.add(op::topk{.k = 4,
                                         .axis = 0,
                                         .x = b.input("x", {9, 3},
                                                      Fill::exact({3, -7, 100, 0, 5, -128, 127, 100,
                                                                   2, INT64_MIN, INT64_MAX}))});
           b.output("values", y[0]);
           b.output("indices", y[1]);
         }});
  for (const bool largest : {true, false})
    s.add({.id = std::string("topk-bool") + (largest ? "" : "-smallest"),
           .sentence = "topk of bools",
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Node y = b.add(
                 op::topk{.k = 3,
                          .largest = largest,
                          .x = b.input("x", {2, 5}, Fill::list({0, 1, 0, 1, 1, 0, 0, 1, 0, 1}))});
             b.output("values", y[0]);
             b.expect("values", largest ? std::vector<double>{1, 1, 1, 1, 1, 0}
                                        : std::vector<double>{0, 0, 1, 0, 0, 0});
             b.output("indices", y[1]);
             b.expect("indices", largest ? std::vector<double>{1, 3, 4, 2, 4, 0}
                                         : std::vector<double>{0, 2, 1, 0, 1, 3});
           }});
  s.add({.id = "topk-slope",
         .sentence = "the gradient of topk goes to the chosen",
         .dtypes = {f64},
         .build =
             [](CaseBuilder& b) {
               const Node y = b.add(op::topk{
                   .k = 3, .axis = 1, .x = b.input("x", {3, 7, 2}, Fill::distinct(-2, 2))});
               b.output("values", y[0]);
               b.output("indices", y[1]);
             },
         .gradient = true});
  s.add({.id = "topk-none",
         .sentence = "k = 0 is empty",
         .dtypes = {f32, bf16},
         .build = [](CaseBuilder& b) {
           const Node y = b.add(op::topk{.k = 0, .x = b.input("x", {3, 5})});
           b.output("values", y[0]);
           b.output("indices", y[1]);
         }});
  s.add({.id = "topk-too-many",
         .sentence = "k beyond the axis is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::topk{.k = 6, .x = b.input("x", {3, 5})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "attribute k"});
}

void sort_rows(Suite& s) {
  for (const Content& c : contents())
    for (const bool descending : {false, true})
      s.add({.id = std::string("sort-") + c.id + (descending ? "-descending" : ""),
             .sentence = std::string("sort: ") + c.sentence,
             .build = [=](CaseBuilder& b) {
               const Node y = b.add(op::sort{
                   .axis = c.axis, .descending = descending, .x = b.input("x", c.dims, c.fill)});
               b.output("values", y[0]);
               b.output("indices", y[1]);
             }});
  for (const bool descending : {false, true})
    s.add({.id = std::string("sort-int") + (descending ? "-descending" : ""),
           .sentence = "sort of integers",
           .dtypes = kInts,
           .build = [=](CaseBuilder& b) {
             const Fill f = Fill::exact(
                 {3, -7, 100, 0, 5, -128, 127, 100, 2, INT64_MIN, INT64_MAX, -1, INT32_MIN});
             const Node y = b.add(
                 op::sort{.axis = 0, .descending = descending, .x = b.input("x", {37, 2}, f)});
             b.output("values", y[0]);
             b.output("indices", y[1]);
           }});
  for (const bool descending : {false, true})
    s.add({.id = std::string("sort-bool") + (descending ? "-descending" : ""),
           .sentence = "sort of bools: false comes before true",
           .dtypes = {boolean},
           .build = [=](CaseBuilder& b) {
             const Node y = b.add(op::sort{.axis = 0,
                                           .descending = descending,
                                           .x = b.input("x", {5}, Fill::list({0, 1, 0, 1, 1}))});
             b.output("values", y[0]);
             b.expect("values", descending ? std::vector<double>{1, 1, 1, 0, 0}
                                           : std::vector<double>{0, 0, 1, 1, 1});
             b.output("indices", y[1]);
             b.expect("indices", descending ? std::vector<double>{1, 3, 4, 0, 2}
                                            : std::vector<double>{0, 2, 1, 3, 4});
             const Node rows = b.add(op::sort{
                 .descending = descending, .x = b.input("rows", {3, 3001}, Fill::integers(0, 1))});
             b.output("row-values", rows[0]);
             b.output("row-indices", rows[1]);
           }});
  for (const bool descending : {false, true})
    s.add({.id = std::string("sort-very-long") + (descending ? "-descending" : ""),
           .sentence = "sort of rows that take several blocks of a device",
           .dtypes = kFloats + kInts,
           .build = [=](CaseBuilder& b) {
             const Node y = b.add(op::sort{.axis = 1,
                                           .descending = descending,
                                           .x = b.input("x", {2, 19001}, Fill::integers(0, 120))});
             b.output("values", y[0]);
             b.output("indices", y[1]);
           }});
  s.add({.id = "sort-very-long-nan",
         .sentence = "NaN in very long rows",
         .build = [](CaseBuilder& b) {
           const Node y = b.add(op::sort{
               .axis = 0,
               .x = b.input("x", {19001, 2}, Fill::normal().with({kNan, -kInf, kInf, 0, -0.0}))});
           b.output("values", y[0]);
           b.output("indices", y[1]);
         }});
  s.add({.id = "sort-slope",
         .sentence = "the gradient of sort goes back to where elements came from",
         .dtypes = {f64},
         .build =
             [](CaseBuilder& b) {
               const Node y =
                   b.add(op::sort{.axis = 1, .x = b.input("x", {3, 7, 2}, Fill::distinct(-2, 2))});
               b.output("values", y[0]);
               b.output("indices", y[1]);
             },
         .gradient = true});
  s.add({.id = "sort-empty",
         .sentence = "sort of empty rows and of no rows",
         .dtypes = {f32, i64},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::sort{.x = b.input("x", {3, 0})}));
               b.output("z", b.add(op::sort{.x = b.input("z", {0, 3})}));
             },
         .strided = false});
}

}  // namespace

void order_cases(Suite& s) {
  s.floor({.joined = 440, .own_joined = 0});
  arg_rows<op::argmax>(s, "argmax");
  arg_rows<op::argmin>(s, "argmin");
  topk_rows(s);
  sort_rows(s);
}

}  // namespace tenon::conform
