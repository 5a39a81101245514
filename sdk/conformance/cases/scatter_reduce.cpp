// SPDX-License-Identifier: Apache-2.0
// Cases of scatter_reduce and scatter_elements_reduce.
#include <algorithm>
#include <limits>

#include "cases/families.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Place {
  const char* id;
  const char* sentence;
  Dims base, indices, updates;
  int64_t axis;
  std::vector<int64_t> values;
  const char* oob = "error";
  tenon_dtype index = i64;

  bool small() const {
    int64_t n = 1;
    for (const int64_t d : base) n *= d;
    return n > 0 && n < 100 && !values.empty();
  }
};

// Irregular, with repetitions; every third one counts from the end.
std::vector<int64_t> spread(int64_t count, int64_t length) {
  std::vector<int64_t> out;
  for (int64_t k = 0; k < count; ++k)
    out.push_back((k * k * 7 + k * 3 + k / 5) % length - (k % 3 == 1 ? length : 0));
  return out;
}

const std::vector<Place>& slices() {
  static const std::vector<Place> all = {
      {"rows", "rows", {9, 5}, {6}, {6, 5}, 0, {3, 0, 8, 3, -6, 1}},
      {"i32", "i32 indices", {9, 5}, {4}, {4, 5}, 0, {3, 0, 8, 3}, "error", i32},
      {"table", "indices of rank 2", {7, 3}, {2, 3}, {2, 3, 3}, 0, {3, 0, 6, 3, -1, 2}},
      {"middle", "a middle axis", {3, 5, 4}, {4}, {3, 4, 4}, 1, {3, 0, 4, 3}},
      {"vector", "a vector", {9}, {7}, {7}, 0, {3, 0, 8, 3, 1, 3, 3}},
      {"scalar", "a single index", {9, 5}, {}, {5}, 0, {4}},
      {"skip", "skipped indices", {5, 4}, {6}, {6, 4}, 0, {-6, 5, 2, 2, -5, 4}, "skip", i32},
      {"wide", "long rows", {7, 300}, {11}, {11, 300}, 0, spread(11, 7)},
      {"none", "no indices", {9, 5}, {0}, {0, 5}, 0, {}},
      {"no-columns", "empty rows", {9, 0}, {3}, {3, 0}, 0, {1, 2, 3}},
  };
  return all;
}

const std::vector<Place>& elements() {
  const auto place = [](const char* id, const char* sentence, const Dims& base, const Dims& at,
                        int64_t axis, const char* oob = "error", tenon_dtype index = i64) {
    int64_t count = 1;
    for (const int64_t d : at) count *= d;
    return Place{id,
                 sentence,
                 base,
                 at,
                 at,
                 axis,
                 spread(count, base[static_cast<size_t>(axis)] + (oob[0] == 'e' ? 0 : 2)),
                 oob,
                 index};
  };
  static const std::vector<Place> all = {
      place("last", "along the last axis", {3, 9}, {3, 7}, 1),
      place("first", "along the first axis", {9, 5}, {4, 5}, 0, "error", i32),
      place("cropped", "indices shorter off the axis", {4, 5, 4}, {2, 8, 3}, 1),
      place("clamp", "clamped indices", {3, 5}, {3, 9}, 1, "clamp"),
      place("skip", "skipped indices", {5, 3}, {9, 3}, 0, "skip", i32),
      place("long", "long lines", {2, 300}, {2, 1500}, 1),
      place("columns", "many columns", {5, 3001}, {3, 3001}, 0),
      place("none", "no indices", {9, 5}, {0, 5}, 0),
  };
  return all;
}

// Products of floats stay near 1. Else numbers of which many are equal.
Fill numbers(const CaseBuilder& b, const std::string& kind) {
  const bool is_signed = std::ranges::find(kSigned, b.own()) != kSigned.end();
  if (b.own() == boolean) return Fill::integers(0, 1);
  if (!is_float(b.own())) return Fill::integers(is_signed ? -100 : 0, 100);
  return kind == "mul" ? Fill::uniform(0.6, 1.5) : Fill::normal();
}

template <class Op>
void place_rows(Suite& s, const std::string& name, const Place& p, int64_t repetitions) {
  for (const std::string kind : {"mul", "max", "min"}) {
    const bool product = kind == "mul";
    s.add({.id = name + "-" + kind + "-" + p.id,
           .sentence = name + ", kind " + kind + ": " + p.sentence,
           .dtypes = kFloats + kInts + (product ? DTypes{} : DTypes{boolean}),
           .build =
               [=](CaseBuilder& b) {
                 const Value base = b.input("base", p.base, numbers(b, kind)),
                             indices = b.ints("indices", p.indices, p.values, p.index),
                             updates = b.input("updates", p.updates, numbers(b, kind));
                 b.output("y", b.add(Op{.kind = kind,
                                        .axis = p.axis,
                                        .oob = p.oob,
                                        .base = base,
                                        .indices = indices,
                                        .updates = updates}));
               },
           .tolerance = product ? scaled(2.0 * static_cast<double>(repetitions)) : kExact,
           .decomposed = product ? 2.0 : 1.0,
           .gradient = p.small(),
           .second_order = product && p.small(),
           .scales = {1}});
  }
}

// More updates of a row than its kernel takes at once, of many rows and of one column.
void many_rows(Suite& s) {
  struct Many {
    const char* id;
    int64_t rows, updates, columns;
  };
  for (const Many& m : {Many{"few-rows", 3, 2000, 17}, Many{"rows", 5000, 9000, 3},
                        Many{"numbers", 40000, 70000, 1}})
    for (const std::string kind : {"max", "min"})
      s.add({.id = "scatter-reduce-" + kind + "-many-" + m.id,
             .sentence = "scatter_reduce, kind " + kind + ": many updates",
             .dtypes = {f32, bf16, i16, u64},
             .build = [=](CaseBuilder& b) {
               b.output(
                   "y",
                   b.add(op::scatter_reduce{
                       .kind = kind,
                       .base = b.input("base", {m.rows, m.columns}, numbers(b, kind)),
                       .indices = b.ints("indices", {m.updates}, spread(m.updates, m.rows)),
                       .updates = b.input("updates", {m.updates, m.columns}, numbers(b, kind))}));
             }});
  s.add({.id = "scatter-reduce-mul-many",
         .sentence = "scatter_reduce, kind mul: many updates; integers wrap",
         .dtypes = {i8, u16, i32, i64},
         .build = [=](CaseBuilder& b) {
           b.output("y", b.add(op::scatter_reduce{
                             .kind = "mul",
                             .base = b.input("base", {5, 3}, Fill::exact({3, -1, 7, 1, -5})),
                             .indices = b.ints("indices", {2000}, spread(2000, 5)),
                             .updates = b.input("updates", {2000, 3},
                                                Fill::exact({3, 1, -7, 5, 1, 9, -1}))}));
         }});
}

// Row 0 is not written. Values and gradients of places with ties, NaN, infinities and zeros.
void known_rows(Suite& s) {
  struct Known {
    const char* kind;
    std::vector<double> base, updates, y, base_slope, updates_slope;
  };
  const std::vector<int64_t> at = {1, 1, 2, 3, 3, 4};
  for (const Known& k : {Known{"max",
                               {kNan, 2, 5, 1, -3},
                               {2, 2, 1, kNan, 4, -kInf},
                               {kNan, 2, 5, kNan, -3},
                               {1, 1.0 / 3, 1, 0, 1},
                               {1.0 / 3, 1.0 / 3, 0, 1, 0, 0}},
                         Known{"min",
                               {kInf, 2, 5, kNan, 3},
                               {2, 1, 5, 1, kNan, kInf},
                               {kInf, 1, 5, kNan, 3},
                               {1, 0, 0.5, 0.5, 1},
                               {0, 1, 0.5, 0, 0.5, 0}},
                         Known{"mul",
                               {0, 2, 0, 0, 5},
                               {0, 3, 7, 0, 2, 3},
                               {0, 0, 0, 0, 15},
                               {1, 0, 7, 0, 3},
                               {6, 0, 0, 0, 0, 5}}}) {
    const std::string kind = k.kind;
    for (const bool element : {false, true})
      s.add({.id = (element ? "scatter-elements-reduce-" : "scatter-reduce-") + kind + "-known",
             .sentence = "kind " + kind + ": NaN, infinities, zeros; ties share the gradient",
             .build = [=](CaseBuilder& b) {
               const Value base = b.input("base", {5}, Fill::list(k.base)),
                           indices = b.ints("indices", {6}, at),
                           updates = b.input("updates", {6}, Fill::list(k.updates));
               const Value y =
                   element
                       ? Value(b.add(op::scatter_elements_reduce{
                             .kind = kind, .base = base, .indices = indices, .updates = updates}))
                       : Value(b.add(op::scatter_reduce{
                             .kind = kind, .base = base, .indices = indices, .updates = updates}));
               b.output("y", y);
               b.expect("y", k.y);
               Graph& g = b.graph();
               const auto grads = g.gradients(g.sum(y), {base, updates});
               b.side_output("dbase", grads[0], sum_of(4));
               b.expect("dbase", k.base_slope);
               b.side_output("dupdates", grads[1], sum_of(4));
               b.expect("dupdates", k.updates_slope);
             }});
  }
}

void refusals(Suite& s) {
  for (const int64_t index : {int64_t{9}, int64_t{-10}, int64_t{1} << 40}) {
    const std::string which = index < 0 ? "-below" : index == 9 ? "-above" : "-far";
    s.add_failure(
        "scatter-reduce-range" + which, "scatter_reduce: an index out of range is an error",
        [=](CaseBuilder& b) {
          b.output("y", b.add(op::scatter_reduce{.kind = "max",
                                                 .base = b.input("base", {9, 3}),
                                                 .indices = b.ints("indices", {3}, {0, index, 1}),
                                                 .updates = b.input("updates", {3, 3})}));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
    s.add_failure(
        "scatter-elements-reduce-range" + which,
        "scatter_elements_reduce: an index out of range is an error",
        [=](CaseBuilder& b) {
          b.output("y", b.add(op::scatter_elements_reduce{
                            .kind = "min",
                            .axis = 1,
                            .base = b.input("base", {3, 9}),
                            .indices = b.ints("indices", {3, 2}, {0, index, 1, 2, 3, 4}),
                            .updates = b.input("updates", {3, 2})}));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
  }
  s.add_failure(
      "scatter-reduce-mul-bool", "scatter_reduce: products of bools are refused",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::scatter_reduce{
                          .kind = "mul",
                          .base = b.input("base", {3}, Fill::integers(0, 1)),
                          .indices = b.ints("indices", {1}, {0}),
                          .updates = b.input("updates", {1}, Fill::integers(0, 1))}));
      },
      TENON_DTYPE_MISMATCH, "base", boolean);
}

}  // namespace

void scatter_reduce_cases(Suite& s) {
  s.floor({.joined = 630, .own_joined = 0});
  for (const Place& p : slices()) place_rows<op::scatter_reduce>(s, "scatter-reduce", p, 4);
  for (const Place& p : elements())
    place_rows<op::scatter_elements_reduce>(s, "scatter-elements-reduce", p, 16);
  many_rows(s);
  known_rows(s);
  refusals(s);
}

}  // namespace tenon::conform
