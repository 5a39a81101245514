// SPDX-License-Identifier: Apache-2.0
// Cases of dynamic_slice and dynamic_update_slice.
#include "cases/index.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

struct Slice {
  const char* id;
  const char* sentence;
  Dims x, size;
  std::vector<int64_t> start;
  const char* oob = "error";
  tenon_dtype index = i64;
};

}  // namespace

void index_slice_rows(Suite& s) {
  for (const Slice& c :
       {Slice{"block", "a block inside", {5, 7, 3}, {2, 4, 3}, {3, 1, 0}},
        Slice{"i32", "i32 start", {5, 7}, {2, 4}, {0, 3}, "error", i32},
        Slice{"whole", "all of it", {5, 7}, {5, 7}, {0, 0}},
        Slice{"row", "one row of a cache", {9, 33}, {1, 33}, {6, 0}},
        Slice{"vector", "of a vector", {9}, {4}, {5}},
        Slice{"clamp-high", "a start beyond the end, clamped", {5, 7}, {2, 4}, {9, 5}, "clamp"},
        Slice{"clamp-low", "a negative start, clamped", {5, 7}, {2, 4}, {-3, -1}, "clamp", i32},
        Slice{"none", "an empty block", {5, 7}, {0, 4}, {5, 1}}}) {
    s.add({.id = std::string("dynamic-slice-") + c.id,
           .sentence = std::string("dynamic_slice: ") + c.sentence,
           .dtypes = movable(),
           .build =
               [=](CaseBuilder& b) {
                 const Value start =
                     b.ints("start", {static_cast<int64_t>(c.start.size())}, c.start, c.index);
                 b.output("y", b.add(op::dynamic_slice{.size = c.size,
                                                       .oob = c.oob,
                                                       .x = b.input("x", c.x, content(b)),
                                                       .start = start}));
               },
           .gradient = c.size[0] > 0,
           .scales = {1}});
    s.add({.id = std::string("dynamic-update-slice-") + c.id,
           .sentence = std::string("dynamic_update_slice: ") + c.sentence,
           .dtypes = movable(),
           .build =
               [=](CaseBuilder& b) {
                 const Value start =
                     b.ints("start", {static_cast<int64_t>(c.start.size())}, c.start, c.index);
                 const Value x = b.input("base", c.x, content(b)),
                             u = b.input("update", c.size, content(b));
                 b.output("y", b.add(op::dynamic_update_slice{
                                   .oob = c.oob, .base = x, .update = u, .start = start}));
               },
           .gradient = c.size[0] > 0,
           .scales = {1}});
  }
}

}  // namespace tenon::conform
