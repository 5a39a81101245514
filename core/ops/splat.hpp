// SPDX-License-Identifier: Apache-2.0
// What several files of the splat family share: images and their tiles, and checks of operands.
#pragma once

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/control.hpp"
#include "ops/record.hpp"

namespace tenon::core {

constexpr int64_t kLargestImage = 1 << 20, kLargestTile = 64, kHighestDegree = 3;

inline void want_image_size(const Infer& i, int64_t width, int64_t height) {
  for (const auto& [attr, given] : {std::pair("width", width), std::pair("height", height)})
    if (given < 1 || given > kLargestImage)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number from 1 to ",
             kLargestImage, ", given ", given);
}

inline void want_f32_or_f64(const Infer& i, Value v, std::string_view operand) {
  if (i.dtype(v) != kF32 && i.dtype(v) != kF64)
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected f32 or f64, got ",
           i.type(v).text());
}

// The attributes of splat_project.
template <class Op>
void want_projection(const Infer& i, const Op& n) {
  want_image_size(i, n.width, n.height);
  for (const auto& [attr, given] :
       {std::pair("eps2d", n.eps2d), std::pair("radius_clip", n.radius_clip)})
    if (!std::isfinite(given) || given < 0)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number >= 0, given ", given);
  if (!std::isfinite(n.near) || n.near <= 0)
    i.fail(Code::invalid_argument, "attribute near: expected a number > 0, given ", n.near);
  if (!(n.far > n.near))
    i.fail(Code::invalid_argument, "attribute far: expected a number > near = ", n.near, ", given ",
           n.far);
}

// The attribute degree and the operand coeffs of splat_sh.
inline void want_harmonics(const Infer& i, int64_t degree, Value coeffs, Value means) {
  if (degree < 0 || degree > kHighestDegree)
    i.fail(Code::invalid_argument, "attribute degree: expected a number from 0 to ", kHighestDegree,
           ", given ", degree);
  i.want_same_dtype(coeffs, "coeffs", means, "means");
  i.want_rank(coeffs, "coeffs", 3);
  const Shape shape = i.shape(coeffs);
  const Dim points = i.shape(means)[0];
  const int64_t least = (degree + 1) * (degree + 1);
  if (shape[0] != points || shape[1] < least || shape[2] != 3)
    i.fail(Code::shape_mismatch, "operand coeffs: expected [", points, ",>= ", least,
           ",3] for degree ", degree, ", got ", i.type(coeffs).text());
}

// The tiles of `images` images. Those at the right and bottom borders may reach over them.
struct Tiles {
  int64_t images, width, height, size;

  int64_t rows() const { return (height + size - 1) / size; }
  int64_t columns() const { return (width + size - 1) / size; }
  int64_t count() const { return images * rows() * columns(); }
  int64_t pixels() const { return size * size; }  // of a tile
  Shape shape() const { return {images, rows(), columns()}; }
  Shape image(int64_t channels) const { return {images, height, width, channels}; }
  Shape plane() const { return {images, height, width}; }
};

template <class Op>
Tiles tiles_of(int64_t images, const Op& n) {
  return {images, n.width, n.height, n.tile};
}

// The attributes width, height and tile, and the number of tiles: keys hold it in 31 bits.
template <class Op>
Tiles want_tiles(const Infer& i, int64_t images, const Op& n) {
  want_image_size(i, n.width, n.height);
  if (n.tile < 1 || n.tile > kLargestTile)
    i.fail(Code::invalid_argument, "attribute tile: expected a number from 1 to ", kLargestTile,
           ", given ", n.tile);
  const Tiles tiles = tiles_of(images, n);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (images > kMost / (tiles.rows() * tiles.columns()))
    i.fail(Code::invalid_argument, "expected at most 2^31 - 1 tiles, got ", images, " images of ",
           tiles.rows() * tiles.columns());
  return tiles;
}

// Ids are i32: the number of pairs of a camera and a Gaussian.
inline void want_ids(const Infer& i, int64_t images, int64_t points) {
  if (images > 0 && points > std::numeric_limits<int32_t>::max() / images)
    i.fail(Code::invalid_argument,
           "expected at most 2^31 - 1 pairs of an image and a Gaussian, got ", images, " x ",
           points);
}

inline void want_capacity(const Infer& i, int64_t given) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (given < 1 || given > kMost)
    i.fail(Code::invalid_argument, "attribute max_intersections: expected a number from 1 to ",
           kMost, ", given ", given);
}

// The numbers of a conic: a, b, c of the quadratic form of the way from a pixel to the mean; along
// rays also the slopes p, q and the nearness k.
inline Dim conic_width(std::string_view response) { return response == "ray3d" ? 6 : 3; }

// Visits an op: collects its operands, and replaces those in `by`.
struct OperandsOf {
  std::vector<Value> all{};
  std::vector<std::pair<Value, Value>> by{};

  template <class T>
  void attr(const char*, T&, const T&) {}
  void operand(const char*, Value& x) {
    if (x) all.push_back(x);
    for (const auto& [from, to] : by)
      if (x && x.id == from.id) return void(x = to);
  }
  void optional(const char* name, Value& x) { operand(name, x); }
  void output(const char*, bool = true) {}
};

// A batch rule: one example after the other. A batch of the decomposition would step through all
// lists at once, as long as the longest one lasts.
template <class Op>
bool batch_one_by_one(Batch& v, const Op& n) {
  Op one = n;
  OperandsOf operands;
  visit(one, operands);
  Control scan{.kind = Control::Kind::trips, .trips = v.size()};
  std::vector<Value> of_xs, of_captured;
  for (const Value x : operands.all) {
    (v.batched(x) ? scan.xs : scan.captured).push_back(v.given(x));
    (v.batched(x) ? of_xs : of_captured).push_back(x);
  }
  std::vector<size_t> places;
  const Results made = add_scan(v.b, scan,
                                [&](Builder& in, std::span<const Value>, std::span<const Value> xs,
                                    std::span<const Value> captured) {
                                  OperandsOf replace;
                                  for (size_t k = 0; k < xs.size(); ++k)
                                    replace.by.emplace_back(of_xs[k], xs[k]);
                                  for (size_t k = 0; k < captured.size(); ++k)
                                    replace.by.emplace_back(of_captured[k], captured[k]);
                                  Op inner = n;
                                  visit(inner, replace);
                                  const Results results = in.add(inner);
                                  std::vector<Value> wanted;
                                  for (size_t k = 0; k < results.outputs.size(); ++k)
                                    if (results.outputs[k])
                                      wanted.push_back(results.outputs[k]), places.push_back(k);
                                  return wanted;
                                });
  for (size_t k = 0; k < places.size(); ++k) v.out(places[k], made[k]);
  return true;
}

}  // namespace tenon::core
