// SPDX-License-Identifier: Apache-2.0
// splat_bin and splat_sort: lists of entries, which are exact.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const DTypes kDTypes = {f32, f64};

// The key of a tile and of the depth (1 + fraction/2^23)·2^exponent.
constexpr int64_t key(int64_t tile, int64_t exponent, int64_t fraction = 0) {
  return tile << 32 | ((127 + exponent) << 23) | fraction;
}

// Gaussians 1 and 6 are culled; 2, 4 and 7 touch several tiles, 7 all of its image.
void bin_rows(Suite& s) {
  const auto hand = [](CaseBuilder& b, int64_t capacity) {
    return b.add(op::splat_bin{
        .width = 40,
        .height = 20,
        .max_intersections = capacity,
        .radii = b.ints("radii", {2, 4}, {2, 0, 5, 3, 1, 1, 0, 90}, i32),
        .means2d = b.input(
            "means2d", {2, 4, 2},
            Fill::list({8, 8, 8, 8, 33, 17, -1, 10, 16, 16, 40, 19.5, 5, 5, 20, 10}).fixed()),
        .depths = b.input("depths", {2, 4}, Fill::list({2, 1, 0.5, 4, 1, 1.5, 3, 8}).fixed())});
  };
  const auto outputs = [](CaseBuilder& b, const Node& y) {
    b.output("keys", y[0], kExact);
    b.output("ids", y[1], kExact);
    b.output("count", y[2], kExact);
  };
  s.add({.id = "splat-bin-hand",
         .sentence = "splat_bin: two images of 3 x 2 tiles by hand",
         .dtypes = kDTypes,
         .build = [=](CaseBuilder& b) {
           outputs(b, hand(b, 20));
           b.expect("count", {17});
           b.expect("ids", {0, 2, 2, 2, 2, 3, 4, 4, 4, 4, 5, 7, 7, 7, 7, 7, 7, -1, -1, -1});
         }});
  s.add({.id = "splat-bin-full",
         .sentence = "splat_bin: as many entries as the capacity",
         .dtypes = kDTypes,
         .build = [=](CaseBuilder& b) {
           outputs(b, hand(b, 17));
           std::vector<double> keys;
           for (const int64_t k :
                {key(0, 1), key(1, -1), key(2, -1), key(4, -1), key(5, -1), key(0, 2), key(6, 0),
                 key(7, 0), key(9, 0), key(10, 0), key(11, 0, 1 << 22), key(6, 3), key(7, 3),
                 key(8, 3), key(9, 3), key(10, 3), key(11, 3)})
             keys.push_back(static_cast<double>(k));
           b.expect("keys", keys);
         }});
  // Only the last Gaussian is visible.
  s.add({.id = "splat-bin-invisible",
         .sentence = "splat_bin: numbers that are not finite, and depths that are not positive",
         .dtypes = kDTypes,
         .build = [=](CaseBuilder& b) {
           outputs(b, b.add(op::splat_bin{
                          .width = 16,
                          .height = 16,
                          .max_intersections = 4,
                          .radii = b.ints("radii", {1, 7}, {1, 1, 1, 1, 1, -1, 1}, i32),
                          .means2d = b.input(
                              "means2d", {1, 7, 2},
                              Fill::list({kNan, 1, 1, kInf, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9}).fixed()),
                          .depths = b.input("depths", {1, 7},
                                            Fill::list({1, 1, kNan, kInf, -1, 1, 1}).fixed())}));
           b.expect("count", {1});
           b.expect("ids", {6, -1, -1, -1});
         }});
  // Depths of all magnitudes: their bits in the order of the numbers.
  s.add({.id = "splat-bin-depths",
         .sentence = "splat_bin: the bits of depths",
         .dtypes = kDTypes,
         .build = [=](CaseBuilder& b) {
           outputs(b, b.add(op::splat_bin{
                          .width = 7,
                          .height = 9,
                          .tile = 3,
                          .max_intersections = 80,
                          .radii = b.ints("radii", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 1}, i32),
                          .means2d = b.input("means2d", {1, 8, 2}, Fill::list({3, 4}).fixed()),
                          .depths = b.input("depths", {1, 8},
                                            Fill::list({1, 1.9999999, 3e38, 1.2e-38, 0.1, 12345.678,
                                                        0.99999994, 7e-20})
                                                .fixed())}));
         }});
  for (const auto& [id, images, points] :
       {std::tuple("no-points", 2, 0), std::tuple("no-images", 0, 3)})
    s.add({.id = std::string("splat-bin-") + id,
           .sentence = "splat_bin: an empty dim",
           .dtypes = kDTypes,
           .build = [=, images = int64_t{images}, points = int64_t{points}](CaseBuilder& b) {
             outputs(b, b.add(op::splat_bin{.width = 16,
                                            .height = 16,
                                            .max_intersections = 2,
                                            .radii = b.ints("radii", {images, points}, {1}, i32),
                                            .means2d = b.input("means2d", {images, points, 2}),
                                            .depths = b.input("depths", {images, points})}));
             b.expect("count", {0});
             b.expect("ids", {-1, -1});
           }});
}

void sort_rows(Suite& s) {
  const auto outputs = [](CaseBuilder& b, const Node& y) {
    b.output("sorted_ids", y[0], kExact);
    b.output("tile_offsets", y[1], kExact);
  };
  s.add({.id = "splat-sort-hand",
         .sentence = "splat_sort: equal keys, and keys of no tile, by hand",
         .dtypes = {f32},
         .build = [=](CaseBuilder& b) {
           outputs(b, b.add(op::splat_sort{
                          .width = 32,
                          .height = 16,
                          .keys = b.ints("keys", {8},
                                         {key(1, 0), key(0, 2), -5, key(0, 1), key(1, 0), key(2, 0),
                                          std::numeric_limits<int64_t>::max(), key(0, 1)}),
                          .ids = b.ints("ids", {8}, {3, 1, 7, 4, 2, 5, -1, 0}, i32)}));
           b.expect("sorted_ids", {-1, 4, 0, 1, 3, 2, -1, -1});
           b.expect("tile_offsets", {1, 4});
         }});
  s.add({.id = "splat-sort-many",
         .sentence = "splat_sort: many entries of 30 tiles",
         .dtypes = {f32},
         .build = [=](CaseBuilder& b) {
           constexpr int64_t kEntries = 5000;
           std::vector<int64_t> keys, ids;
           for (int64_t e = 0; e < kEntries; ++e) {
             keys.push_back(key(e * 7919 % 33 - 2, 0, e * 31 % 64));
             ids.push_back(e);
           }
           outputs(b, b.add(op::splat_sort{.images = 2,
                                           .width = 41,
                                           .height = 22,
                                           .tile = 9,
                                           .keys = b.ints("keys", {kEntries}, keys),
                                           .ids = b.ints("ids", {kEntries}, ids, i32)}));
         }});
  for (const auto& [id, images, entries] :
       {std::tuple("no-entries", 2, 0), std::tuple("no-images", 0, 3)})
    s.add({.id = std::string("splat-sort-") + id,
           .sentence = "splat_sort: an empty dim",
           .dtypes = {f32},
           .build = [=, images = int64_t{images}, entries = int64_t{entries}](CaseBuilder& b) {
             outputs(b, b.add(op::splat_sort{.images = images,
                                             .width = 16,
                                             .height = 16,
                                             .keys = b.ints("keys", {entries}, {key(0, 0)}),
                                             .ids = b.ints("ids", {entries}, {1}, i32)}));
           }});
}

}  // namespace

void splat_bin_rows(Suite& s) {
  bin_rows(s);
  sort_rows(s);
}

}  // namespace tenon::conform
