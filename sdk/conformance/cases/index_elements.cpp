// SPDX-License-Identifier: Apache-2.0
// Cases of gather_elements and scatter_elements_add.
#include "cases/families.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

struct Place {
  const char* id;
  const char* sentence;
  Dims data, ids;
  int64_t axis;
  const char* oob = "error";
  tenon_dtype index = i64;
  bool outside = false;  // some indices are out of range

  int64_t at() const { return axis < 0 ? axis + static_cast<int64_t>(data.size()) : axis; }
  int64_t dim() const { return data[static_cast<size_t>(at())]; }
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t d : ids) n *= d;
    return n;
  }
  // Irregular, with repetitions, some from the end.
  std::vector<int64_t> values() const {
    const int64_t d = std::max<int64_t>(dim(), 1);
    std::vector<int64_t> out;
    for (int64_t k = 0; k < count(); ++k) {
      int64_t v = (k * k * 7 + k * 3 + k / 5) % d;
      if (k % 3 == 1) v -= d;
      if (outside && k % 4 == 2) v = k % 8 == 2 ? d + k : -d - 1 - k;
      out.push_back(v);
    }
    return out;
  }
  bool small() const { return count() > 0 && count() < 100 && dim() > 0; }
};

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"last", "along the last axis", {3, 9}, {3, 4}, -1},
      {"first", "along the first axis", {9, 5}, {4, 5}, 0},
      {"middle", "along a middle axis", {2, 7, 3}, {2, 4, 3}, 1},
      {"vector", "in a vector", {9}, {6}, 0},
      {"i32", "i32 indices", {3, 9}, {3, 4}, 1, "error", i32},
      {"cropped", "indices shorter off the axis", {4, 6, 5}, {2, 8, 4}, 1},
      {"cropped-last", "indices shorter off the last axis", {4, 3, 6}, {2, 2, 9}, 2},
      {"deep", "four axes", {2, 3, 4, 5}, {2, 3, 2, 5}, 2},
      {"clamp", "indices clamped", {3, 5}, {3, 7}, 1, "clamp", i64, true},
      {"skip", "indices out of range skipped", {3, 5}, {3, 7}, 1, "skip", i64, true},
      {"skip-first", "skipped along the first axis", {5, 3}, {7, 3}, 0, "skip", i32, true},
      {"skip-empty", "an empty axis, all skipped", {3, 0}, {3, 2}, 1, "skip"},
      {"long", "long lines, many repetitions", {2, 300}, {2, 1500}, 1},
      {"columns", "many columns", {5, 3001}, {3, 3001}, 0},
      {"none", "no indices", {9, 5}, {0, 5}, 0},
      {"no-columns", "empty rows", {9, 0}, {3, 0}, 0},
  };
  return all;
}

void place_rows(Suite& s, const Place& p) {
  s.add({.id = std::string("gather-elements-") + p.id,
         .sentence = std::string("gather_elements: ") + p.sentence,
         .dtypes = movable(),
         .build =
             [=](CaseBuilder& b) {
               b.output("y", b.add(op::gather_elements{
                                 .axis = p.axis,
                                 .oob = p.oob,
                                 .data = b.input("data", p.data, content(b)),
                                 .indices = b.ints("indices", p.ids, p.values(), p.index)}));
             },
         .gradient = p.small(),
         .second_order = false,
         .scales = {1}});
  for (const bool base : {false, true})
    s.add({.id = std::string("scatter-elements-add-") + p.id + (base ? "-base" : ""),
           .sentence = std::string("scatter_elements_add, duplicates accumulate: ") + p.sentence,
           .dtypes = kFloats + DTypes{i32, i64, u8},
           .build =
               [=](CaseBuilder& b) {
                 op::scatter_elements_add n{
                     .axis = p.axis,
                     .oob = p.oob,
                     .updates = b.input("updates", p.ids, content(b)),
                     .indices = b.ints("indices", p.ids, p.values(), p.index)};
                 if (base)
                   n.base = b.input("base", p.data, content(b));
                 else
                   n.shape = p.data;
                 b.output("y", b.add(n));
                 if (is_float(b.own()))
                   b.scale("y", [&] {
                     op::scatter_elements_add m = n;
                     m.updates = b.abs(n.updates);
                     if (base) m.base = b.abs(n.base);
                     return b.add(m);
                   });
               },
           .tolerance = sum_of(8),
           .decomposed = 2,
           .gradient = p.small(),
           .scales = {1}});
}

void refusals(Suite& s) {
  for (const int64_t index : {int64_t{9}, int64_t{-10}, int64_t{1} << 40}) {
    const std::string which = index < 0 ? "-below" : index == 9 ? "-above" : "-far";
    // Off the last element of the tensor and inside it: both are outside the axis.
    s.add_failure(
        "gather-elements-range" + which, "gather_elements: an index out of range is an error",
        [=](CaseBuilder& b) {
          b.output("y", b.add(op::gather_elements{
                            .axis = 0,
                            .data = b.input("data", {9, 3}),
                            .indices = b.ints("indices", {2, 3}, {0, 1, index, 2, 3, 4})}));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
    s.add_failure(
        "scatter-elements-add-range" + which,
        "scatter_elements_add: an index out of range is an error",
        [=](CaseBuilder& b) {
          b.output("y", b.add(op::scatter_elements_add{
                            .axis = 1,
                            .shape = {3, 9},
                            .updates = b.input("updates", {3, 2}),
                            .indices = b.ints("indices", {3, 2}, {0, index, 1, 2, 3, 4})}));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
  }
  s.add_failure(
      "gather-elements-longer", "gather_elements: indices longer off the axis are refused",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::gather_elements{.axis = 1,
                                                .data = b.input("data", {2, 3}),
                                                .indices = b.ints("indices", {3, 1}, {0, 0, 0})}));
      },
      TENON_SHAPE_MISMATCH, "indices");
  s.add_failure(
      "scatter-elements-add-updates", "scatter_elements_add: updates of another shape are refused",
      [](CaseBuilder& b) {
        b.output("y",
                 b.add(op::scatter_elements_add{.shape = {4, 2},
                                                .updates = b.input("updates", {2, 2}),
                                                .indices = b.ints("indices", {1, 2}, {0, 0})}));
      },
      TENON_SHAPE_MISMATCH, "updates");
}

}  // namespace

void index_elements_cases(Suite& s) {
  s.floor({.joined = 300, .own_joined = 0});
  for (const Place& p : places()) place_rows(s, p);
  refusals(s);
}

}  // namespace tenon::conform
