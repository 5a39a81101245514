// SPDX-License-Identifier: Apache-2.0
// gather gather_backward scatter scatter_add non_zero. dynamic_slice and dynamic_update_slice are in
// index_slice.cpp.
#include <array>
#include <limits>
#include <numeric>

#include "cases/index.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

struct Place {
  const char* id;
  const char* sentence;
  Dims data, ids;
  int64_t axis;
  std::vector<int64_t> values;
  const char* oob = "error";
  tenon_dtype index = i64;
  Dims rows() const {  // of updates
    Dims out(data.begin(), data.begin() + at());
    out.insert(out.end(), ids.begin(), ids.end());
    out.insert(out.end(), data.begin() + at() + 1, data.end());
    return out;
  }
  int64_t at() const { return axis < 0 ? axis + static_cast<int64_t>(data.size()) : axis; }
};

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"rows", "rows of a table", {9, 5}, {4}, 0, {3, 0, 8, 3}},
      {"i32", "i32 indices", {9, 5}, {4}, 0, {3, 0, 8, 3}, "error", i32},
      {"table",
       "a two-dimensional index tensor",
       {9, 5},
       {3, 4},
       0,
       {3, 0, 8, 3, 1, 1, 7, 2, 5, 4, 6, 0}},
      {"negative", "negative indices count from the end", {9, 5}, {4}, 0, {-1, -9, 8, -3}},
      {"middle", "a middle axis", {3, 9, 5}, {4}, 1, {3, 0, 8, 3}},
      {"middle-table",
       "a middle axis, two-dimensional indices",
       {3, 7, 4},
       {2, 3},
       1,
       {3, 0, 6, 3, -1, 2}},
      {"last", "the last axis", {3, 9}, {5}, -1, {3, 0, 8, 3, 1}},
      {"scalar", "a single index", {9, 5}, {}, 0, {4}},
      {"vector", "a vector", {9}, {6}, 0, {3, 0, 8, 3, 1, 3}},
      {"clamp", "indices clamped", {9, 5}, {5}, 0, {-20, 20, 9, -10, 4}, "clamp"},
      {"skip", "indices out of range skipped", {9, 5}, {5}, 0, {-20, 20, 9, -10, 4}, "skip"},
      {"skip-middle", "skipped on a middle axis", {2, 4, 3}, {3}, 1, {4, -5, -1}, "skip", i32},
      {"wide", "long rows", {7, 300}, {11}, 0, {1, 6, 1, 2, 1, 0, 5, 5, 1, 3, 6}},
      {"none", "no indices", {9, 5}, {0}, 0, {0}},
      {"no-columns", "empty rows", {9, 0}, {3}, 0, {1, 2, 3}},
  };
  return all;
}

bool small(const Place& p) {
  return p.data.back() > 0 && p.data.back() < 100 && (p.ids.empty() || p.ids[0] > 0);
}

void place_rows(Suite& s, const Place& p) {
  s.add({.id = std::string("gather-") + p.id,
         .sentence = std::string("gather: ") + p.sentence,
         .dtypes = movable(),
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("data", p.data, content(b)),
                           i = b.ints("indices", p.ids, p.values, p.index);
               b.output("y",
                        b.add(op::gather{.axis = p.axis, .oob = p.oob, .data = x, .indices = i}));
             },
         .gradient = small(p),
         .second_order = false,
         .scales = {1}});
  for (const bool padding : {false, true})
    s.add({.id = std::string("gather-backward-") + p.id + (padding ? "-padding" : ""),
           .sentence = std::string("gradient of gather: ") + p.sentence,
           .build =
               [=](CaseBuilder& b) {
                 const Value dy = b.input("dy", p.rows()),
                             i = b.ints("indices", p.ids, p.values, p.index);
                 op::gather_backward n{.axis = p.axis,
                                       .dim = p.data[static_cast<size_t>(p.at())],
                                       .oob = p.oob,
                                       .dy = dy,
                                       .indices = i};
                 if (padding) n.padding_idx = 3;
                 b.output("ddata", b.add(n));
                 b.scale("ddata", [&] {
                   op::gather_backward m = n;
                   m.dy = b.abs(dy);
                   return b.add(m);
                 });
               },
           .tolerance = sum_of(8),
           .decomposed = 2});
  if (std::string_view(p.oob) != "clamp")
    for (const bool base : {false, true})
      s.add({.id = std::string("scatter-add-") + p.id + (base ? "-base" : ""),
             .sentence = std::string("scatter_add, duplicates accumulate: ") + p.sentence,
             .dtypes = kFloats + DTypes{i32, i64, u8},
             .build =
                 [=](CaseBuilder& b) {
                   const Value u = b.input("updates", p.rows(), content(b)),
                               i = b.ints("indices", p.ids, p.values, p.index);
                   op::scatter_add n{.axis = p.axis, .oob = p.oob, .updates = u, .indices = i};
                   if (base)
                     n.base = b.input("base", p.data, content(b));
                   else
                     n.dim = p.data[static_cast<size_t>(p.at())];
                   b.output("y", b.add(n));
                   if (is_float(b.own()))
                     b.scale("y", [&] {
                       op::scatter_add m = n;
                       m.updates = b.abs(u);
                       if (base) m.base = b.abs(n.base);
                       return b.add(m);
                     });
                 },
             .tolerance = sum_of(8),
             .gradient = small(p),
             .scales = {1}});
  s.add({.id = std::string("scatter-") + p.id,
         .sentence = std::string("scatter, the last of equal indices wins: ") + p.sentence,
         .dtypes = movable(),
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("base", p.data, content(b)),
                           u = b.input("updates", p.rows(), content(b));
               const Value i = b.ints("indices", p.ids, p.values, p.index);
               b.output("y",
                        b.add(op::scatter{
                            .axis = p.axis, .oob = p.oob, .base = x, .indices = i, .updates = u}));
             },
         .gradient = small(p),
         .scales = {1}});
}

// Rows that consist of whole blocks.
void block_rows(Suite& s) {
  const auto elements = [](CaseBuilder& b, Value blocks) {
    return b.graph().add(op::dequantize_blocks{.to = b.dtype(), .w = blocks});
  };
  s.add({.id = "gather-q8-0",
         .sentence = "gather: rows of blocks, skipped and repeated",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("data", TENON_DTYPE_Q8_0, {3, 9, 2, 64}, Fill::blocks()),
                           i = b.ints("indices", {2, 3}, {3, -1, 8, 3, 9, 0});
               b.output("y", elements(b, b.add(op::gather{
                                             .axis = 1, .oob = "skip", .data = x, .indices = i})));
             },
         .tolerance = kExact,
         .may_refuse = true});
  for (const int64_t axis : {0, 1})
    s.add({.id = "scatter-q8-0-" + std::to_string(axis),
           .sentence = "scatter, the last of equal indices wins: rows of blocks, skipped ones",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 const Dims rows = axis == 0 ? Dims{4, 7, 96} : Dims{6, 4, 96};
                 const Value x = b.input("base", TENON_DTYPE_Q8_0, {6, 7, 96}, Fill::blocks()),
                             u = b.input("updates", TENON_DTYPE_Q8_0, rows, Fill::blocks()),
                             i = b.ints("indices", {4}, {5, 2, 9, 5});
                 b.output(
                     "y",
                     elements(
                         b,
                         b.add(op::scatter{
                             .axis = axis, .oob = "skip", .base = x, .indices = i, .updates = u})));
               },
           .tolerance = kExact,
           .may_refuse = true});
  s.add({.id = "gather-q8-0-long",
         .sentence = "gather: long rows of blocks",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("data", TENON_DTYPE_Q8_0, {5, 16, 4, 128}, Fill::blocks()),
                           i = b.ints("indices", {4}, {4, 0, 4, -2});
               b.output("y", elements(b, b.add(op::gather{.data = x, .indices = i})));
             },
         .tolerance = kExact,
         .may_refuse = true});
  s.add({.id = "scatter-q8-0-many",
         .sentence = "scatter of more rows of blocks than there are places",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               constexpr int64_t kUpdates = 700;
               std::vector<int64_t> rows;
               for (int64_t i = 0; i < kUpdates; ++i) rows.push_back(i * 37 % 211);
               const Value x = b.input("base", TENON_DTYPE_Q8_0, {200, 32}, Fill::blocks()),
                           u = b.input("updates", TENON_DTYPE_Q8_0, {kUpdates, 32}, Fill::blocks()),
                           i = b.ints("indices", {kUpdates}, rows);
               b.output("y",
                        elements(b, b.add(op::scatter{
                                        .oob = "skip", .base = x, .indices = i, .updates = u})));
             },
         .tolerance = kExact,
         .may_refuse = true});
  s.add({.id = "gather-q8-0-last-axis",
         .sentence = "gather: blocks are not cut",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("data", TENON_DTYPE_Q8_0, {6, 64}, Fill::blocks());
               const Value i = b.ints("indices", {1}, {0});
               b.output("y", elements(b, b.add(op::gather{.axis = -1, .data = x, .indices = i})));
             },
         .error = TENON_UNSUPPORTED,
         .error_text = "last axis"});
}

// Rows beyond 2^24, which no float tells apart. Row i of the table holds i mod 251.
void far_rows(Suite& s) {
  constexpr int64_t kRows = (int64_t{1} << 24) + 4, kTail = 5;
  static constexpr std::array<int64_t, 3> kIds = {kRows - 1, kRows - 3, kRows - 2};
  const auto table = [](CaseBuilder& b, const char* name) {
    std::vector<int64_t> content(251);
    std::iota(content.begin(), content.end(), int64_t{0});
    return b.input(name, {kRows, 1}, Fill::exact(std::move(content)));
  };
  s.add({.id = "gather-far",
         .sentence = "gather: rows beyond 2^24",
         .dtypes = {u8},
         .build =
             [=](CaseBuilder& b) {
               const Value x = table(b, "data"),
                           i = b.ints("indices", {3}, {kIds.begin(), kIds.end()});
               b.output("y", b.add(op::gather{.data = x, .indices = i}));
               std::vector<double> rows;
               for (const int64_t id : kIds) rows.push_back(static_cast<double>(id % 251));
               b.expect("y", rows);
             },
         .strided = false});
  s.add({.id = "scatter-add-far",
         .sentence = "scatter_add: rows beyond 2^24, one of them twice",
         .dtypes = {u8},
         .build =
             [=](CaseBuilder& b) {
               const Value u = b.input("updates", {4, 1}, Fill::exact({1, 2, 4, 8})),
                           i = b.ints("indices", {4}, {kIds[0], kIds[1], kIds[2], kIds[0]});
               const Value y =
                   b.add(op::scatter_add{.updates = u, .indices = i, .base = table(b, "base")});
               b.output("tail", b.graph().add(op::narrow{.start = {kRows - kTail, 0}, .x = y}));
               std::vector<double> rows;
               for (int64_t row = kRows - kTail; row < kRows; ++row)
                 rows.push_back(static_cast<double>(row % 251));
               rows[4] += 1 + 8, rows[2] += 2, rows[3] += 4;
               b.expect("tail", rows);
             },
         .strided = false});
}

// A device that sorts updates by their rows takes several blocks, or several passes, for these.
void many_rows(Suite& s) {
  struct Many {
    const char* id;
    int64_t updates, rows, columns;
  };
  for (const Many& m : {Many{"updates", 70003, 301, 3}, Many{"rows", 3001, 70001, 3},
                        Many{"columns", 4001, 1501, 200}, Many{"equal", 3001, 7, 200}})
    for (const bool base : {false, true})
      s.add({.id = std::string("scatter-add-many-") + m.id + (base ? "-base" : ""),
             .sentence = std::string("scatter_add: many ") + m.id,
             .dtypes = {f32, bf16, i32},
             .build =
                 [=](CaseBuilder& b) {
                   std::vector<int64_t> places;
                   for (int64_t k = 0; k < m.updates; ++k) places.push_back(k * k / 3 % m.rows);
                   const Value u = b.input("updates", {m.updates, m.columns}, content(b)),
                               i = b.ints("indices", {m.updates}, places);
                   op::scatter_add n{.updates = u, .indices = i};
                   if (base)
                     n.base = b.input("base", {m.rows, m.columns}, content(b));
                   else
                     n.dim = m.rows;
                   b.output("y", b.add(n));
                   if (is_float(b.own()))
                     b.scale("y", [&] {
                       op::scatter_add abs = n;
                       abs.updates = b.abs(u);
                       if (base) abs.base = b.abs(n.base);
                       return b.add(abs);
                     });
                 },
             .tolerance = sum_of(1024),
             .scales = {1}});
}

// The places of elements, and what reads them: rows behind the extent count nowhere.
void non_zero(Suite& s) {
  struct Places {
    const char* id;
    const char* sentence;
    Dims dims;
    std::vector<int64_t> values;
    int64_t bound = -1;
  };
  for (const Places& p : {
           Places{"vector", "a vector", {9}, {0, 1, 0, 0, 1, 1, 0, 1, 0}},
           Places{"matrix", "a matrix", {3, 4}, {0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1}},
           Places{"cube", "rank 3", {2, 2, 3}, {1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0}},
           Places{"bound", "a bound that leaves some out", {3, 3}, {1, 1, 0, 1, 1, 1, 0, 1, 1}, 4},
           Places{"wide-bound", "a bound above the elements", {4}, {1, 0, 1, 1}, 7},
           Places{"all", "every element", {2, 3}, {1, 1, 1, 1, 1, 1}},
           Places{"none", "no element", {5}, {0, 0, 0, 0, 0}},
           Places{"empty", "an empty operand", {0, 3}, {}},
           Places{"scalar", "a single number", {}, {1}},
       })
    s.add({.id = std::string("non-zero-") + p.id,
           .sentence = std::string("non_zero: ") + p.sentence,
           .dtypes = kFloats + DTypes{i8, i32, i64, u8, TENON_DTYPE_BOOL},
           .build =
               [=](CaseBuilder& b) {
                 Graph& g = b.graph();
                 const Value x = g.cast(b.ints("x", p.dims, p.values), b.dtype());
                 const Node found = b.add(op::non_zero{.bound = p.bound, .x = x});
                 // Of fixed shapes, so that neighbours can read them; the second one tells the order.
                 b.output("count", found[1]);
                 b.output("sum", g.sum(found[0], {.axes = {0}}));
                 b.output("steps", g.sum(g.cumsum(found[0], {.axis = 0}), {.axes = {0}}));
               },
           .decomposed = 2});
}

void range_errors(Suite& s) {
  for (const int64_t index : {int64_t{9}, int64_t{-10}, int64_t{1} << 40}) {
    const std::string which = index < 0 ? "-below" : index == 9 ? "-above" : "-far";
    const auto error = [&](const char* name, Build build) {
      s.add({.id = std::string(name) + "-range" + which,
             .sentence = std::string(name) + ": an index out of range is an error",
             .dtypes = {f32},
             .build = std::move(build),
             .error = TENON_INDEX_OUT_OF_RANGE,
             .error_text = ""});
    };
    error("gather", [=](CaseBuilder& b) {
      b.output("y", b.add(op::gather{.data = b.input("data", {9, 3}),
                                     .indices = b.ints("indices", {3}, {0, index, 1})}));
    });
    error("scatter", [=](CaseBuilder& b) {
      b.output("y", b.add(op::scatter{.base = b.input("base", {9, 3}),
                                      .indices = b.ints("indices", {3}, {0, index, 1}),
                                      .updates = b.input("updates", {3, 3})}));
    });
    error("scatter-add", [=](CaseBuilder& b) {
      b.output("y", b.add(op::scatter_add{.dim = 9,
                                          .updates = b.input("updates", {3, 3}),
                                          .indices = b.ints("indices", {3}, {0, index, 1})}));
    });
    error("gather-backward", [=](CaseBuilder& b) {
      b.output("y", b.add(op::gather_backward{.dim = 9,
                                              .dy = b.input("dy", {3, 3}),
                                              .indices = b.ints("indices", {3}, {0, index, 1})}));
    });
    error("dynamic-slice", [=](CaseBuilder& b) {
      b.output("y", b.add(op::dynamic_slice{.size = {2, 3},
                                            .x = b.input("x", {9, 3}),
                                            .start = b.ints("start", {2}, {index, 0})}));
    });
    error("dynamic-update-slice", [=](CaseBuilder& b) {
      b.output("y", b.add(op::dynamic_update_slice{.base = b.input("base", {9, 3}),
                                                   .update = b.input("update", {2, 3}),
                                                   .start = b.ints("start", {2}, {index, 0})}));
    });
  }
  s.add({.id = "gather-float-indices",
         .sentence = "indices must be integers",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::gather{.data = b.input("data", {9, 3}),
                                              .indices = b.input("indices", {3})}));
             },
         .error = TENON_DTYPE_MISMATCH,
         .error_text = "indices"});
}

}  // namespace

void index_cases(Suite& s) {
  s.floor({.joined = 600, .own_joined = 0});
  for (const Place& p : places()) place_rows(s, p);
  block_rows(s);
  far_rows(s);
  many_rows(s);
  non_zero(s);
  range_errors(s);
  index_slice_rows(s);
}

}  // namespace tenon::conform
