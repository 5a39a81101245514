// SPDX-License-Identifier: Apache-2.0
// pool: windows along one to three axes, of all kinds.
#include <limits>

#include "cases/pool.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// pool: one to three axes, all kinds.
struct Windows {
  const char* id;
  Dims x, kernel, stride{}, pads{}, dilation{};
  bool ceil_mode = false;
};

}  // namespace

void pool_general_rows(Suite& s) {
  for (const Windows& w :
       {Windows{"line", {2, 3, 11}, {3}, {2}, {1, 1}},
        {"line-ceil", {1, 2, 8}, {3}, {3}, {}, {}, true},
        {"image", {1, 2, 5, 6}, {2, 3}, {2, 1}, {0, 1, 1, 1}},
        {"volume", {1, 2, 4, 5, 3}, {2, 3, 2}, {2, 1, 1}, {1, 1, 0, 0, 1, 1}},
        {"volume-ceil", {1, 1, 5, 4, 5}, {2, 3, 2}, {2, 2, 2}, {}, {1, 1, 2}, true},
        {"hole", {1, 1, 2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2, 2, 2, 2}, {3, 3, 3}}})
    for (const char* kind : {"max", "min", "avg", "sum", "prod"}) {
      int64_t terms = 1;
      for (const int64_t k : w.kernel) terms *= k;
      const std::string_view name = kind;
      const bool orders = name == "max" || name == "min";
      const auto set = [=] {
        op::pool n{.kind = kind, .kernel = w.kernel, .stride = w.stride, .pads = w.pads};
        n.dilation = w.dilation, n.ceil_mode = w.ceil_mode;
        return n;
      };
      s.add({.id = std::string("pool-") + kind + "-" + w.id,
             .sentence = std::string("pool: ") + kind + " of windows, " + w.id,
             .build =
                 [=](CaseBuilder& b) {
                   auto n = set();
                   n.x = b.input("x", w.x, orders ? Fill::distinct(-3, 3) : Fill::normal());
                   if (orders) {
                     // An infinity has no gradient to be judged by differences.
                     b.side_output("y", b.add(n)[0]);
                     const bool most = name == "max";
                     b.output("capped", b.binary(most ? "max" : "min", b.add(n)[0],
                                                 b.number(most ? -100 : 100)));
                     return;
                   }
                   b.output("y", b.add(n)[0]);
                   b.scale("y", [&] {
                     auto m = n;
                     m.x = b.abs(n.x);
                     return b.add(m)[0];
                   });
                 },
             .tolerance = sum_of(terms),
             .decomposed = 2,
             .gradient = true,
             .second_order = false,
             .scales = {1}});
      if (orders)
        s.add({.id = std::string("pool-") + kind + "-indices-" + w.id,
               .sentence = std::string("pool with positions: ") + kind + ", " + w.id,
               .build = [=](CaseBuilder& b) {
                 auto n = set();
                 n.x = b.input("x", w.x, Fill::integers(-2, 2).with({kNan}));
                 n.want_indices = true;
                 const Node y = b.add(n);
                 b.output("y", y[0]);
                 b.output("indices", y[1]);
               }});
      else if (name != "avg")
        s.add({.id = std::string("pool-") + kind + "-integers-" + w.id,
               .sentence = std::string("pool of integers: ") + kind + ", " + w.id,
               .dtypes = {i32, i64},
               .build = [=](CaseBuilder& b) {
                 auto n = set();
                 n.x = b.input("x", w.x, Fill::integers(-3, 3));
                 b.output("y", b.add(n)[0]);
               }});
    }
  s.add({.id = "pool-known",
         .sentence = "pools of a small volume, with numbers known by hand",
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("x", {1, 1, 2, 2, 3}, Fill::list({1, 2, 3, 4, 0, 6, 7, 8, 9, -1, 5, 2}));
               const auto pool = [&](const char* kind, bool indices) {
                 return b.add(op::pool{.kind = kind,
                                       .kernel = {2, 2, 2},
                                       .stride = {1, 1, 1},
                                       .x = x,
                                       .want_indices = indices});
               };
               const Node most = pool("max", true), least = pool("min", true);
               b.output("most", most[0]);
               b.expect("most", {8, 9});
               b.output("most_at", most[1]);
               b.expect("most_at", {7, 8});
               b.output("least", least[0]);
               b.expect("least", {-1, 0});
               b.output("least_at", least[1]);
               b.expect("least_at", {9, 4});
               b.output("sum", pool("sum", false)[0]);
               b.expect("sum", {26, 35});
               b.output("mean", pool("avg", false)[0]);
               b.expect("mean", {3.25, 4.375});
               b.output("product", pool("prod", false)[0]);
               b.expect("product", {0, 0});
               op::pool padded{.kind = "avg",
                               .kernel = {2, 2, 2},
                               .stride = {2, 2, 2},
                               .pads = {1, 1, 1, 1, 1, 1}};
               padded.x = b.input("one", {1, 1, 1, 1, 1}, Fill::list({8}));
               b.output("corner", b.add(padded)[0]);
               b.expect("corner", {8});
               padded.count_include_pad = true;
               b.output("corner_padded", b.add(padded)[0]);
               b.expect("corner_padded", {1});
               padded.divisor_override = 4;
               b.output("corner_divided", b.add(padded)[0]);
               b.expect("corner_divided", {2});
             },
         .tolerance = sum_of(8)});
  s.add({.id = "pool-unsigned",
         .sentence = "the smallest of unsigned integers, with a window that has no taps",
         .dtypes = {u8, u64},
         .build = [](CaseBuilder& b) {
           op::pool n{.kind = "min", .kernel = {2}, .stride = {1}, .pads = {2, 2}, .dilation = {3}};
           n.x = b.input("x", {2, 3, 2}, Fill::integers(0, 9));
           n.want_indices = true;
           const Node y = b.add(n);
           b.output("y", y[0]);
           b.output("indices", y[1]);
         }});
}

}  // namespace tenon::conform
