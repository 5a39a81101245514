// SPDX-License-Identifier: Apache-2.0
// What splat_rasterize and splat_rasterize_backward share: checks of operands, and the entries of all
// tiles as their decompositions step through them, [N, S] for N tiles of S pixels.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "ops/control.hpp"
#include "ops/splat.hpp"

namespace tenon::core {

constexpr double kMostAlpha = 0.999, kLeastAlpha = 1.0 / 255, kLeastLight = 1e-4;
constexpr int64_t kMostChannels = 32;

// ---- shape

template <class Op>
Tiles raster_operands(const Infer& i, const Op& n) {
  want_f32_or_f64(i, n.means2d, "means2d");
  i.want_rank(n.means2d, "means2d", 3);
  const Dim images = i.shape(n.means2d)[0], points = i.shape(n.means2d)[1];
  i.want_shape(n.means2d, "means2d", {images, points, 2});
  const auto same = [&](Value v, std::string_view operand, const Shape& shape) {
    i.want_same_dtype(v, operand, n.means2d, "means2d");
    i.want_shape(v, operand, shape);
  };
  same(n.conics, "conics", {images, points, conic_width(n.response)});
  i.want_rank(n.colors, "colors", 3);
  const Dim channels = i.shape(n.colors)[2];
  same(n.colors, "colors", {images, points, channels});
  if (channels < 1 || channels > kMostChannels)
    i.fail(Code::invalid_argument, "operand colors: expected 1 to ", kMostChannels,
           " channels, got ", i.type(n.colors).text());
  same(n.opacities, "opacities", {points});
  if (n.background) same(n.background, "background", {images, channels});
  const Tiles tiles = want_tiles(i, images, n);
  want_ids(i, images, points);
  i.want_dtype(n.tile_offsets, "tile_offsets", kI32);
  i.want_shape(n.tile_offsets, "tile_offsets", tiles.shape());
  i.want_dtype(n.ids, "ids", kI32);
  i.want_rank(n.ids, "ids", 1);
  if (i.shape(n.ids)[0] > std::numeric_limits<int32_t>::max())
    i.fail(Code::invalid_argument, "operand ids: expected at most 2^31 - 1 entries, got ",
           i.shape(n.ids)[0]);
  return tiles;
}

// ---- decomposition

// Runs `step` while the first carried value holds.
inline Results run_while(Builder& b, const std::vector<Value>& carry,
                         const std::vector<Value>& captured, int64_t trips, const LoopStep& step) {
  return add_while(
      b, {.kind = Control::Kind::loop, .carry = carry, .captured = captured, .trips = trips},
      [](Builder& in, std::span<const Value> now) { return in.copy(now[0]); }, step);
}

// x·y + z·w with the rounding errors of both products added (Dekker): where the products cancel, the
// difference keeps its digits.
inline Value sum_of_products(Builder& b, Value x, Value y, Value z, Value w) {
  const double splitter = b.dtype(x) == kF64 ? 134217729.0 : 4097.0;
  struct Product {
    Value value, error;
  };
  const auto halves = [&](Value v) {
    const Value scaled = b.times(v, splitter);
    const Value high = b.minus(scaled, b.minus(scaled, v));
    return std::array{high, b.minus(v, high)};
  };
  const auto product = [&](Value p, Value q) {
    const Value value = b.times(p, q);
    const auto [p_high, p_low] = halves(p);
    const auto [q_high, q_low] = halves(q);
    Value error = b.minus(b.times(p_high, q_high), value);
    error = b.plus(error, b.times(p_high, q_low));
    error = b.plus(error, b.times(p_low, q_high));
    return Product{value, b.plus(error, b.times(p_low, q_low))};
  };
  const Product left = product(x, y), right = product(z, w);
  return b.plus(b.plus(left.value, right.value), b.plus(left.error, right.error));
}

// The columns of an entry: mean, conic, opacity, colors.
struct Columns {
  int64_t conic;  // 3, or 6 along rays

  explicit Columns(std::string_view response) : conic(conic_width(response)) {}
  bool rays() const { return conic > 3; }
  static constexpr int64_t kMean = 0, kConic = 2;
  int64_t opacity() const { return kConic + conic; }
  int64_t colors() const { return opacity() + 1; }
};

// What one entry of each tile does to the pixels of the tile.
struct Splat {
  Value dx, dy;         // from a pixel to the mean: [N, S]
  Value slope_x;        // a·dx + b·dy
  Value slope_y;        // b·dx + c·dy
  Value power;          // σ
  Value fall;           // e^-σ
  Value raw;            // opacity · e^-σ
  Value alpha, passes;  // 0 where the entry is skipped
  Value colors;         // [N, channels]
  // Along rays; absent otherwise. along: 1 + p·dx + q·dy, and share: along/(along² + k·form).
  Value share, p, q;
};

// entry [N, columns]; origin [N, 2]: of the first pixel's centre; pixel [2, 1, S]: offsets.
// The form is (a·dx + b·dy)²/a + (det/a)·dy². The usual one would cancel for thin ellipses.
inline Splat splat_of(Builder& b, const Columns& at, Value entry, Value origin, Value pixel) {
  const DType t = b.dtype(entry);
  const auto column = [&](int64_t k) { return b.narrow(entry, 1, k, 1); };
  const auto offset = [&](int64_t k) {
    const Value v = b.narrow(pixel, 0, k, 1);
    return b.reshape(v, {1, b.shape(v)[2]});
  };
  const Value a = column(at.kConic), mixed = column(at.kConic + 1), c = column(at.kConic + 2);
  const Value from_x = b.minus(column(at.kMean), b.narrow(origin, 1, 0, 1));
  const Value from_y = b.minus(column(at.kMean + 1), b.narrow(origin, 1, 1, 1));
  const Value x = offset(0), y = offset(1);
  Splat s;
  s.dx = b.minus(from_x, x), s.dy = b.minus(from_y, y);
  const Value one = b.scalar(t, 1), zero = b.scalar(t, 0);
  const Value upright = b.compare("gt", a, 0), pivot = b.where(upright, a, one);
  const Value at_origin = sum_of_products(b, a, from_x, mixed, from_y);
  s.slope_x = b.minus(at_origin, b.plus(b.times(a, x), b.times(mixed, y)));
  const Value rest = b.over(sum_of_products(b, a, c, b.neg(mixed), mixed), pivot);
  s.slope_y =
      b.where(upright, b.plus(b.times(b.over(mixed, pivot), s.slope_x), b.times(rest, s.dy)),
              b.plus(b.times(mixed, s.dx), b.times(c, s.dy)));
  const auto square = [&](Value v) { return b.times(v, v); };
  const Value stable = b.plus(b.over(square(s.slope_x), pivot), b.times(rest, square(s.dy)));
  const Value plain = b.plus(b.plus(b.times(a, square(s.dx)), b.times(c, square(s.dy))),
                             b.times(b.times(b.times(mixed, s.dx), s.dy), 2));
  const Value form = b.where(upright, stable, plain);
  s.passes = b.compare("ge", form, 0);
  if (at.rays()) {
    s.p = column(at.kConic + 3), s.q = column(at.kConic + 4);
    const Value near = column(at.kConic + 5);
    const Value along = b.plus(b.plus(b.times(s.p, s.dx), b.times(s.q, s.dy)), one);
    const Value all = b.plus(square(along), b.times(near, form));
    s.share = b.over(along, all);
    s.power = b.times(b.over(form, all), 0.5);
    s.passes = b.logical("and", s.passes, b.compare("gt", along, 0));
    s.passes = b.logical("and", s.passes, b.compare("ge", s.power, 0));
  } else {
    s.power = b.times(form, 0.5);
  }
  s.fall = b.exp(b.neg(s.power));
  s.raw = b.times(column(at.opacity()), s.fall);
  s.passes = b.logical("and", s.passes, b.compare("ge", s.raw, kLeastAlpha));
  s.passes =
      b.logical("and", s.passes, b.compare("lt", s.raw, std::numeric_limits<double>::infinity()));
  s.alpha = b.where(s.passes, b.min(s.raw, b.scalar(t, kMostAlpha)), zero);
  s.colors = b.narrow(entry, 1, at.colors(), b.shape(entry)[1] - at.colors());
  return s;
}

// The scene as the loops read it.
template <class Op>
class Scene {
 public:
  Scene(Builder& builder, const Op& n)
      : b(builder),
        tiles(tiles_of(b.shape(n.means2d)[0], n)),
        dtype(b.dtype(n.means2d)),
        columns(n.response) {
    const Shape colors = b.shape(n.colors);
    points = colors[1], channels = colors[2], entries = b.shape(n.ids)[0];
    pairs = tiles.images * points;
    // Row 0 is an entry without opacity, for unused ids. The read fails for ids out of range.
    const Shape each = {pairs, 1};
    const Value opacities =
        b.reshape(b.expand(b.reshape(n.opacities, {1, points}), {tiles.images, points}), each);
    const Value rows =
        b.concat({b.reshape(n.means2d, {pairs, 2}), b.reshape(n.conics, {pairs, columns.conic}),
                  opacities, b.reshape(n.colors, {pairs, channels})},
                 1);
    const Value all = b.concat({b.zeros({dtype, {1, columns.colors() + channels}}), rows}, 0);
    const Value given = b.concat({b.cast(n.ids, kI64), b.ints(kI64, std::array{int64_t{-1}})}, 0);
    const Value row =
        b.where(b.compare("lt", given, number(-1)), number(pairs + 1), b.plus(given, number(1)));
    list = b.add(op::gather{.data = all, .indices = row});
    this->row = b.minus(row, number(1));
    // Likewise for offsets; they do not decrease.
    const int64_t count = tiles.count();
    const Value offsets = b.cast(b.reshape(n.tile_offsets, {count}), kI64);
    const Value before =
        b.concat({b.ints(kI64, std::array{int64_t{0}}), b.narrow(offsets, 0, 0, count - 1)}, 0);
    const Value safe = b.where(b.compare("lt", offsets, before), number(entries + 1), offsets);
    begin = b.add(op::gather{.data = b.iota({entries + 1}, 0, kI64), .indices = safe});
    end = b.concat({b.narrow(begin, 0, 1, count - 1), b.ints(kI64, std::array{entries})}, 0);
    begin = b.reshape(begin, {count, 1}), end = b.reshape(end, {count, 1});
    const auto size = static_cast<double>(tiles.size);
    const auto first = [&](int64_t axis) {
      const Value at =
          b.iota({1, tiles.rows(), tiles.columns()}, static_cast<int>(2 - axis), dtype, 0.5, size);
      return b.reshape(b.expand(at, tiles.shape()), {count, 1});
    };
    origin = b.concat({first(0), first(1)}, 1);
    const auto offset = [&](int axis) {
      const Value at = b.iota({tiles.size, tiles.size}, axis, dtype);
      return b.reshape(at, {1, 1, tiles.pixels()});
    };
    pixel = b.concat({offset(1), offset(0)}, 0);
  }

  Value number(int64_t v) const { return b.scalar_int(kI64, v); }
  Shape pixels() const { return {tiles.count(), tiles.pixels()}; }

  // From tiles [N, S, ..] to images [I, H, W, ..], and back. A rest of a tile beyond the image gets
  // `otherwise`.
  Value as_image(Value v) const {
    const Dim depth = b.shape(v).elements() / (tiles.count() * tiles.pixels());
    const int64_t size = tiles.size;
    v = b.reshape(v, {tiles.images, tiles.rows(), tiles.columns(), size, size, depth});
    v = b.reshape(b.transpose(v, {0, 1, 3, 2, 4, 5}),
                  {tiles.images, tiles.rows() * size, tiles.columns() * size, depth});
    return b.narrow(b.narrow(v, 1, 0, tiles.height), 2, 0, tiles.width);
  }
  Value as_plane(Value v) const { return b.reshape(as_image(v), tiles.plane()); }
  Value as_tiles(Value v, double otherwise) const {
    const Dim depth = b.shape(v)[3];
    const int64_t size = tiles.size, high = tiles.rows() * size, wide = tiles.columns() * size;
    const DType t = b.dtype(v);
    if (const int64_t more = wide - tiles.width; more > 0)
      v = b.concat({v, b.full({t, {tiles.images, tiles.height, more, depth}}, otherwise)}, 2);
    if (const int64_t more = high - tiles.height; more > 0)
      v = b.concat({v, b.full({t, {tiles.images, more, wide, depth}}, otherwise)}, 1);
    v = b.reshape(v, {tiles.images, tiles.rows(), size, tiles.columns(), size, depth});
    return b.reshape(b.transpose(v, {0, 1, 3, 2, 4, 5}), {tiles.count(), tiles.pixels(), depth});
  }

  Builder& b;
  const Tiles tiles;
  const DType dtype;
  const Columns columns;
  int64_t points = 0, channels = 0, entries = 0, pairs = 0;
  Value list;           // [M + 1, columns]; the last row is unused
  Value row;            // the id of each row, i64 [M + 1]
  Value begin, end;     // the entries of each tile, i64 [N, 1]
  Value origin, pixel;  // see splat_of
};

// The entry at `position` [N, 1] of each tile.
inline Value entry_at(Builder& b, Value list, Value position) {
  const Value last = b.scalar_int(kI64, b.shape(list)[0] - 1);
  return b.add(op::gather{.data = list,
                          .indices = b.reshape(b.min(position, last), {b.shape(position)[0]})});
}
inline Value any(Builder& b, Value mask) { return b.reduce("any", mask, {0, 1}, false); }

// ---- cost: of each entry in all pixels of its tile. An exponential counts as one operation.

constexpr double kForwardFlops = 20, kBackwardFlops = 60, kChannelFlops = 2;
constexpr double kRayFlops = 8, kRayBackwardFlops = 24;  // more along rays

template <class Op>
double raster_flops(const Cost& c, const Op& n) {
  constexpr bool kBackward = requires { n.dimage; };
  double each = kBackward ? kBackwardFlops + 3 * kChannelFlops * c.dim(n.colors, 0)
                          : kForwardFlops + kChannelFlops * c.dim(n.colors, 0);
  if (n.response == "ray3d") each += kBackward ? kRayBackwardFlops : kRayFlops;
  return each * c.elements(n.ids) * static_cast<double>(n.tile * n.tile);
}

}  // namespace tenon::core
