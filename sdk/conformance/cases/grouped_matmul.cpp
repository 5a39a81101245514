// SPDX-License-Identifier: Apache-2.0
// grouped_matmul and its backward op. The error scale is the same product of absolute values.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  int64_t rows, in, out, experts;
  std::vector<int64_t> ids{};  // repeated; with none: offsets
  std::vector<int64_t> offsets{};
  bool trans_w = false;
  bool p = false, wide_p = false;
  tenon_dtype index = i64;

  Dims w() const { return trans_w ? Dims{experts, out, in} : Dims{experts, in, out}; }
  bool small() const { return rows > 0 && rows < 20 && in > 0; }

  template <class Op>
  void set(CaseBuilder& b, Op& n) const {
    n.trans_w = trans_w;
    n.x = b.input("x", {rows, in});
    n.w = b.input("w", w());
    if (offsets.empty()) {
      std::vector<int64_t> list;
      for (int64_t k = 0; k < rows; ++k) list.push_back(ids[static_cast<size_t>(k) % ids.size()]);
      n.ids = b.ints("ids", {rows}, list.empty() ? std::vector<int64_t>{0} : list, index);
    } else {
      n.offsets = b.ints("offsets", {experts + 1}, offsets, index);
    }
    if (p || wide_p)
      n.p = b.input("p", wide_p ? b.own_acc() : b.own(), {rows}, Fill::uniform(-1, 2));
  }
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"ids", "an expert for each row", 7, 5, 4, 3, {2, 0, 2, 1, 0}},
      {"i32", "i32 ids", 7, 5, 4, 3, {2, 0, 1}, {}, false, false, false, i32},
      {"dropped", "rows of no expert", 7, 5, 4, 3, {-1, 0, 2, -1}, {}, false, true},
      {"unused", "experts without rows", 6, 5, 4, 5, {3, 1}, {}, false, true},
      {"offsets", "sorted rows", 7, 5, 4, 3, {}, {0, 2, 2, 7}},
      {"offsets-p",
       "sorted rows with factors, i32",
       7,
       5,
       4,
       3,
       {},
       {0, 3, 6, 7},
       false,
       true,
       false,
       i32},
      {"trans", "w transposed", 7, 5, 4, 3, {2, 0, 2, 1}, {}, true},
      {"trans-p", "w transposed, with factors", 7, 5, 4, 3, {2, -1, 0, 1}, {}, true, true},
      {"wide-p",
       "factors in the accumulation dtype",
       7,
       5,
       4,
       3,
       {1, 0, 2},
       {},
       false,
       false,
       true},
      {"one", "a single row", 1, 33, 17, 4, {2}, {}, false, true},
      {"tiles", "sizes over a tile", 70, 65, 49, 4, {0, 3, 1, 3, 0, 3}, {}, false, true},
      {"tiles-trans", "sizes over a tile, w transposed", 70, 65, 49, 4, {0, 3, 1}, {}, true},
      {"vectors",
       "lengths of whole vectors",
       96,
       64,
       48,
       3,
       {2, 0, 2, -1, 1, 2},
       {},
       false,
       false,
       true},
      {"vectors-trans",
       "lengths of whole vectors, sorted rows, w transposed",
       96,
       40,
       72,
       3,
       {},
       {0, 37, 37, 96},
       true,
       true},
      {"vectors-plain",
       "lengths of whole vectors, sorted rows without factors",
       90,
       48,
       40,
       2,
       {},
       {0, 51, 90}},
      {"many-rows",
       "more rows than one block sorts",
       9000,
       3,
       2,
       2,
       {1, 0, 0, -1, 1},
       {},
       false,
       true},
      {"parts",
       "more rows than are gathered at a time",
       2100,
       3,
       5,
       2,
       {1, 1, 0, 1},
       {},
       false,
       true},
      {"no-rows", "no rows", 0, 5, 4, 3, {0}},
      {"no-terms", "sums of nothing", 3, 0, 4, 2, {1, 0, -1}},
  };
  return all;
}

void forward_row(Suite& s, const Form& f) {
  s.add({.id = std::string("grouped-matmul-") + f.id,
         .sentence = std::string("grouped_matmul: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::grouped_matmul n{};
               f.set(b, n);
               b.output("y", b.add(n));
               b.scale("y", [&] {
                 op::grouped_matmul m = n;
                 m.x = b.abs(n.x), m.w = b.abs(n.w);
                 if (n.p) m.p = b.abs(n.p);
                 return b.add(m);
               });
             },
         .tolerance = product_of(f.in),
         .decomposed = 2,
         .gradient = f.small(),
         .second_order = f.small() && f.p,
         .scales = {0.05, 1}});
}

void backward_row(Suite& s, const Form& f) {
  s.add({.id = std::string("grouped-matmul-backward-") + f.id,
         .sentence = std::string("gradients of grouped_matmul: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::grouped_matmul_backward n{};
               f.set(b, n);
               n.dy = b.input("dy", {f.rows, f.out});
               n.want_dx = n.want_dw = n.want_dp = true;
               const auto outputs = [&](const Node& d, auto each) {
                 each("dx", d[0]), each("dw", d[1]), each("dp", d[2]);
               };
               outputs(b.add(n), [&](const char* name, Value v) { b.output(name, v); });
               op::grouped_matmul_backward m = n;
               m.dy = b.abs(n.dy), m.x = b.abs(n.x), m.w = b.abs(n.w);
               if (n.p) m.p = b.abs(n.p);
               const Node sizes = b.add(m);
               outputs(sizes, [&](const char* name, Value v) { b.scale(name, [&] { return v; }); });
             },
         .tolerance = product_of(std::max({f.rows, f.in * f.out, int64_t{1}})),
         .decomposed = 2});
}

void refusals(Suite& s) {
  const auto error = [&](const std::string& id, const char* sentence, Form f, tenon_code code,
                         const char* text) {
    s.add({.id = "grouped-matmul-" + id,
           .sentence = sentence,
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::grouped_matmul n{};
                 f.set(b, n);
                 b.output("y", b.add(n));
               },
           .error = code,
           .error_text = text});
  };
  for (const int64_t id : {int64_t{3}, int64_t{-2}})
    error("range" + std::string(id < 0 ? "-below" : "-above"),
          "grouped_matmul: an expert that does not exist is an error",
          {"", "", 4, 5, 4, 3, {0, id, 1}}, TENON_INDEX_OUT_OF_RANGE, "");
  int k = 0;
  for (const Dims& offsets :
       {Dims{1, 2, 3, 4}, Dims{0, 3, 2, 4}, Dims{0, 1, 2, 3}, Dims{0, 9, 9, 4}})
    error("offsets-" + std::to_string(k++), "grouped_matmul: offsets that do not ascend to the end",
          {"", "", 4, 5, 4, 3, {}, offsets}, TENON_INDEX_OUT_OF_RANGE, "");
  s.add({.id = "grouped-matmul-neither-refused",
         .sentence = "grouped_matmul: without ids and offsets",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::grouped_matmul{.x = b.input("x", {3, 4}),
                                                      .w = b.input("w", {2, 4, 5})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "ids and offsets"});
  s.add({.id = "grouped-matmul-shapes-refused",
         .sentence = "grouped_matmul: contracted lengths that differ are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::grouped_matmul{.trans_w = true,
                                                      .x = b.input("x", {3, 4}),
                                                      .w = b.input("w", {2, 4, 5}),
                                                      .ids = b.ints("ids", {3}, {0, 1, 0})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand w"});
}

}  // namespace

void grouped_matmul_cases(Suite& s) {
  s.floor({.joined = 150, .own_joined = 0});
  for (const Form& f : forms()) {
    forward_row(s, f);
    backward_row(s, f);
  }
  refusals(s);
  s.add({.id = "grouped-matmul-poison",
         .sentence = "grouped_matmul: what is not a row's own does not get into it",
         .build =
             [](CaseBuilder& b) {
               const double nan = std::numeric_limits<double>::quiet_NaN();
               // The second row is dropped, expert 1 has no row; both are full of NaN.
               op::grouped_matmul n{.x = b.input("x", {3, 2}, Fill::list({1, 2, nan, nan, 3, 4})),
                                    .w = b.input("w", {2, 2, 1}, Fill::list({5, 6, nan, nan})),
                                    .ids = b.ints("ids", {3}, {0, -1, 0}),
                                    .p = b.input("p", {3}, Fill::list({1, nan, 2}))};
               b.output("y", b.add(n));
               b.expect("y", {17, 0, 78});
               op::grouped_matmul_backward d{.dy = b.input("dy", {3, 1}, Fill::list({1, nan, 1})),
                                             .x = n.x,
                                             .w = n.w,
                                             .ids = n.ids,
                                             .p = n.p,
                                             .want_dx = true,
                                             .want_dw = true,
                                             .want_dp = true};
               const Node g = b.add(d);
               b.output("dx", g[0]);
               b.expect("dx", {5, 6, 0, 0, 10, 12});
               b.output("dw", g[1]);
               b.expect("dw", {7, 10, 0, 0});
               b.output("dp", g[2]);
               b.expect("dp", {17, 0, 39});
             },
         .tolerance = product_of(2)});
}

}  // namespace tenon::conform
