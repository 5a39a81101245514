// SPDX-License-Identifier: Apache-2.0
// rope: layouts, pairings, tables and positions.
#include <algorithm>
#include <cmath>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  Dims x;
  const char* layout = "bshd";
  int64_t n_rot = 0;
  bool interleaved = false, inverse = false;
  int64_t offset = 0, heads = 0;
  enum class Positions : uint8_t { counted, given, per_token } positions = Positions::counted;
};

const std::vector<Form>& forms() {
  using enum Form::Positions;
  static const std::vector<Form> all = {
      {"bshd", "batch, steps, heads", {2, 5, 3, 8}},
      {"bhsd", "batch, heads, steps", {2, 3, 5, 8}, "bhsd"},
      {"bsh", "heads folded into the last axis", {2, 5, 24}, "bsh", 0, false, false, 0, 3},
      {"interleaved", "neighbours are pairs", {2, 5, 3, 8}, "bshd", 0, true},
      {"partial", "half of the head turns, the rest is copied", {2, 5, 3, 8}, "bshd", 4},
      {"partial-interleaved", "a part, in neighbours", {2, 3, 5, 10}, "bhsd", 6, true},
      {"inverse", "turns back", {2, 5, 3, 8}, "bshd", 0, false, true},
      {"inverse-interleaved", "turns back, in neighbours", {2, 5, 24}, "bsh", 4, true, true, 0, 3},
      {"offset", "starts at a later position", {2, 5, 3, 8}, "bshd", 0, false, false, 4},
      {"ids", "positions given", {2, 5, 3, 8}, "bshd", 0, false, false, 0, 0, given},
      {"ids-bhsd", "positions given", {2, 3, 5, 8}, "bhsd", 4, false, false, 0, 0, given},
      {"per-token", "tables per token", {2, 5, 3, 8}, "bshd", 4, false, false, 0, 0, per_token},
      {"per-token-bhsd", "tables per token", {2, 3, 5, 8}, "bhsd", 0, true, false, 0, 0, per_token},
      {"wide", "heads of 64", {1, 33, 4, 64}},
      {"no-steps", "no steps", {2, 0, 3, 8}},
      {"no-batch", "an empty batch", {0, 5, 3, 8}},
      {"no-heads", "no heads", {2, 5, 0, 8}},
      {"no-heads-interleaved", "no heads, in neighbours", {2, 0, 5, 8}, "bhsd", 0, true},
      {"no-dim", "heads of no elements", {2, 5, 3, 0}},
      {"no-dim-interleaved", "heads of no elements, in neighbours", {2, 5, 3, 0}, "bshd", 0, true},
      {"no-dim-bhsd", "heads of no elements", {2, 3, 5, 0}, "bhsd", 0, true, true},
      {"no-dim-bsh", "heads of no elements", {2, 5, 0}, "bsh", 0, true, false, 0, 3},
      {"no-dim-ids",
       "heads of no elements, positions given",
       {2, 5, 3, 0},
       "bshd",
       0,
       true,
       false,
       0,
       0,
       given},
      {"no-dim-per-token",
       "heads of no elements, tables per token",
       {2, 5, 3, 0},
       "bshd",
       0,
       true,
       false,
       0,
       0,
       per_token},
  };
  return all;
}

op::rope built(CaseBuilder& b, const Form& f) {
  op::rope n{.layout = f.layout,
             .n_rot = f.n_rot,
             .interleaved = f.interleaved,
             .inverse = f.inverse,
             .offset = f.offset,
             .num_heads = f.heads};
  n.x = b.input("x", f.x);
  const bool bhsd = std::string_view(f.layout) == "bhsd", bsh = std::string_view(f.layout) == "bsh";
  const int64_t batch = f.x[0], steps = f.x[bhsd ? 2 : 1], dim = bsh ? f.x[2] / f.heads : f.x[3];
  const int64_t half = (f.n_rot ? f.n_rot : dim) / 2;
  const bool token = f.positions == Form::Positions::per_token;
  const Dims table = token ? Dims{batch, steps, half} : Dims{steps + f.offset + 4, half};
  // Any numbers do; as a rotation they would hide an error in the scale.
  n.cos = b.input("cos", b.own_acc(), table, Fill::uniform(-1, 1));
  n.sin = b.input("sin", b.own_acc(), table, Fill::uniform(-1, 1));
  if (f.positions == Form::Positions::given)
    n.position_ids = b.ints("ids", {batch, steps}, {3, 0, 8, 1, 3, 7, 5, 2, 2, 6});
  return n;
}

struct Grid {
  const char* id;
  const char* sentence;
  Dims x;
  int64_t width, height;
  int64_t tail = 0;
  double theta = 10000;
  bool inverse = false;
};

void grid_rows(Suite& s) {
  for (const Grid& f : {Grid{"grid", "one grid", {2, 6, 3, 8}, 3, 2},
                        Grid{"frames", "a grid for each of several frames", {1, 12, 2, 4}, 2, 3},
                        Grid{"tail", "tokens behind the grid are copied", {2, 9, 3, 12}, 2, 3, 3},
                        Grid{"tail-only", "no grid at all", {2, 3, 2, 8}, 2, 3, 3},
                        Grid{"inverse", "turns back", {2, 8, 2, 8}, 4, 2, 0, 100, true},
                        Grid{"wide", "a wide grid and long heads", {1, 70, 2, 64}, 35, 2},
                        Grid{"no-dim", "heads of no elements", {2, 6, 3, 0}, 3, 2},
                        Grid{"no-batch", "an empty batch", {0, 6, 3, 8}, 3, 2}})
    s.add({.id = std::string("rope-axial2d-") + f.id,
           .sentence = std::string("rope_axial2d: ") + f.sentence,
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(op::rope_axial2d{.width = f.width,
                                                      .height = f.height,
                                                      .theta = f.theta,
                                                      .exclude_tail = f.tail,
                                                      .inverse = f.inverse,
                                                      .x = b.input("x", f.x)}));
                 b.scale("y", [&] { return b.number(4); });
               },
           .tolerance = scaled(8),
           .decomposed = 2,
           .gradient = std::ranges::find(f.x, 0) == f.x.end() && f.x.back() < 60,
           .scales = {1}});
  s.add({.id = "rope-axial2d-known",
         .sentence = "rope_axial2d: columns turn the first half of a head, rows the second",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {1, 4, 1, 4}, Fill::list({1, 0, 0, 1}));
               b.output("y", b.add(op::rope_axial2d{.width = 2, .height = 2, .x = x}));
               const double c = std::cos(1), s = std::sin(1);
               b.expect("y", {1, 0, 0, 1, c, s, 0, 1, 1, 0, -s, c, c, s, -s, c});
             },
         .tolerance = ulps(4)});
  for (const Grid& f : {Grid{"heads", "multiple of 4", {1, 6, 2, 6}, 3, 2},
                        Grid{"tokens", "whole grids of 3 x 2", {1, 7, 2, 8}, 3, 2}})
    s.add_failure(
        std::string("rope-axial2d-refused-") + f.id, "heads and tokens that do not fit are refused",
        [=](CaseBuilder& b) {
          b.output("y", b.add(op::rope_axial2d{
                            .width = f.width, .height = f.height, .x = b.input("x", f.x)}));
        },
        TENON_SHAPE_MISMATCH, f.sentence);
}

}  // namespace

void rope_cases(Suite& s) {
  grid_rows(s);
  s.floor({.joined = 60, .own_joined = 0});
  for (const Form& f : forms())
    s.add({.id = std::string("rope-") + f.id,
           .sentence = std::string("rope: ") + f.sentence,
           .build =
               [=](CaseBuilder& b) {
                 const op::rope n = built(b, f);
                 b.output("y", b.add(n));
                 b.scale("y", [&] { return b.number(8); });
               },
           .tolerance = scaled(4),
           .gradient = std::ranges::find(f.x, 0) == f.x.end() && f.x.back() < 60,
           .scales = {0.05, 4}});
  struct Bad {
    const char* id;
    const char* text;
    tenon_code code;
    std::vector<int64_t> ids;
  };
  for (const Bad& bad : {Bad{"too-large", "position", TENON_INDEX_OUT_OF_RANGE, {0, 9, 1}},
                         Bad{"negative", "position", TENON_INDEX_OUT_OF_RANGE, {0, -1, 1}}})
    s.add({.id = std::string("rope-id-") + bad.id,
           .sentence = "a position outside of the tables is an error, a negative one too",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::rope n{};
                 n.x = b.input("x", {1, 3, 2, 4});
                 n.cos = b.input("cos", f32, {9, 2}, Fill::normal());
                 n.sin = b.input("sin", f32, {9, 2}, Fill::normal());
                 n.position_ids = b.ints("ids", {1, 3}, bad.ids, i32);
                 b.output("y", b.add(n));
               },
           .error = bad.code,
           .error_text = ""});
  struct Shape {
    const char* id;
    int64_t n_rot, offset;
    Dims table;
  };
  for (const Shape& c : {Shape{"odd", 3, 0, {9, 2}}, Shape{"too-wide", 6, 0, {9, 3}},
                         Shape{"past-tables", 0, 7, {9, 2}}, Shape{"table-width", 0, 0, {9, 4}}})
    s.add({.id = std::string("rope-refused-") + c.id,
           .sentence = "n_rot, offset and tables that do not fit are refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::rope n{.n_rot = c.n_rot, .offset = c.offset};
                 n.x = b.input("x", {1, 3, 2, 4});
                 n.cos = b.input("cos", f32, c.table, Fill::normal());
                 n.sin = b.input("sin", f32, c.table, Fill::normal());
                 b.output("y", b.add(n));
               },
           .error = TENON_SHAPE_MISMATCH,
           .error_text = "rope"});
}

}  // namespace tenon::conform
