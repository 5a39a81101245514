// SPDX-License-Identifier: Apache-2.0
// Records of splat_rasterize and splat_rasterize_backward: Gaussians are blended front to back in
// each pixel. The decompositions step through the entries of all tiles at once: [N, S] for N tiles of
// S pixels.
#include <array>
#include <cmath>
#include <limits>

#include "ops/control.hpp"
#include "ops/splat.hpp"
#include "ops/table.hpp"
#include "ops/wanted.hpp"

namespace tenon::core {
namespace {

constexpr double kMostAlpha = 0.999, kLeastAlpha = 1.0 / 255, kLeastLight = 1e-4;
constexpr int64_t kMostChannels = 32;

// ---- shape

template <class Op>
Tiles raster_operands(const Infer& i, const Op& n) {
  want_ewa(i, n.response);
  want_f32_or_f64(i, n.means2d, "means2d");
  i.want_rank(n.means2d, "means2d", 3);
  const Dim images = i.shape(n.means2d)[0], points = i.shape(n.means2d)[1];
  i.want_shape(n.means2d, "means2d", {images, points, 2});
  const auto same = [&](Value v, std::string_view operand, const Shape& shape) {
    i.want_same_dtype(v, operand, n.means2d, "means2d");
    i.want_shape(v, operand, shape);
  };
  same(n.conics, "conics", {images, points, 3});
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

void splat_rasterize_shape(Infer& i, const op::splat_rasterize& n) {
  const Tiles tiles = raster_operands(i, n);
  const DType t = i.dtype(n.means2d);
  i.out(0, {t, tiles.image(i.shape(n.colors)[2])});
  i.out(1, {t, tiles.plane()});
  i.out(2, {kI32, tiles.plane()});
}

void splat_rasterize_backward_shape(Infer& i, const op::splat_rasterize_backward& n) {
  const Tiles tiles = raster_operands(i, n);
  const Dim channels = i.shape(n.colors)[2];
  i.want_same_dtype(n.dimage, "dimage", n.means2d, "means2d");
  i.want_shape(n.dimage, "dimage", tiles.image(channels));
  if (n.dalpha) {
    i.want_same_dtype(n.dalpha, "dalpha", n.means2d, "means2d");
    i.want_shape(n.dalpha, "dalpha", tiles.plane());
  }
  i.want_dtype(n.last_ids, "last_ids", kI32);
  i.want_shape(n.last_ids, "last_ids", tiles.plane());
  if (n.want_dbackground && !n.background)
    i.fail(Code::invalid_argument, "output dbackground: expected operand background, got none");
  i.out(0, i.type(n.means2d));
  i.out(1, i.type(n.conics));
  i.out(2, i.type(n.colors));
  i.out(3, i.type(n.opacities));
  i.out(4, {i.dtype(n.means2d), {tiles.images, channels}});
}

// ---- decomposition

// Runs `step` while the first carried value holds.
Results run_while(Builder& b, const std::vector<Value>& carry, const std::vector<Value>& captured,
                  int64_t trips, const LoopStep& step) {
  return add_while(
      b, {.kind = Control::Kind::loop, .carry = carry, .captured = captured, .trips = trips},
      [](Builder& in, std::span<const Value> now) { return in.copy(now[0]); }, step);
}

// x·y + z·w with the rounding errors of both products added (Dekker): where the products cancel, the
// difference keeps its digits.
Value sum_of_products(Builder& b, Value x, Value y, Value z, Value w) {
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

// The columns of an entry: mean, conic, opacity, then colors.
enum Column : int64_t { kX, kY, kA, kB, kC, kOpacity, kColor };

// What one entry of each tile does to the pixels of the tile.
struct Splat {
  Value dx, dy;         // from a pixel to the mean: [N, S]
  Value slope_x;        // a·dx + b·dy
  Value slope_y;        // b·dx + c·dy
  Value fall;           // e^-σ
  Value raw;            // opacity · e^-σ
  Value alpha, passes;  // 0 where the entry is skipped
  Value colors;         // [N, channels]
};

// entry [N, 6 + channels]; origin [N, 2]: of the first pixel's centre; pixel [2, 1, S]: offsets.
// The power is ½((a·dx + b·dy)²/a + (det/a)·dy²). The usual form would cancel for thin ellipses.
Splat splat_of(Builder& b, Value entry, Value origin, Value pixel) {
  const DType t = b.dtype(entry);
  const auto column = [&](int64_t k) { return b.narrow(entry, 1, k, 1); };
  const auto offset = [&](int64_t k) {
    const Value v = b.narrow(pixel, 0, k, 1);
    return b.reshape(v, {1, b.shape(v)[2]});
  };
  const Value a = column(kA), mixed = column(kB), c = column(kC), opacity = column(kOpacity);
  const Value from_x = b.minus(column(kX), b.narrow(origin, 1, 0, 1));
  const Value from_y = b.minus(column(kY), b.narrow(origin, 1, 1, 1));
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
  const Value power = b.times(b.where(upright, stable, plain), 0.5);
  s.fall = b.exp(b.neg(power));
  s.raw = b.times(opacity, s.fall);
  s.passes = b.logical("and", b.compare("ge", power, 0), b.compare("ge", s.raw, kLeastAlpha));
  s.passes =
      b.logical("and", s.passes, b.compare("lt", s.raw, std::numeric_limits<double>::infinity()));
  s.alpha = b.where(s.passes, b.min(s.raw, b.scalar(t, kMostAlpha)), zero);
  s.colors = b.narrow(entry, 1, kColor, b.shape(entry)[1] - kColor);
  return s;
}

// The scene as the loops read it.
template <class Op>
class Scene {
 public:
  Scene(Builder& builder, const Op& n)
      : b(builder), tiles(tiles_of(b.shape(n.means2d)[0], n)), dtype(b.dtype(n.means2d)) {
    const Shape colors = b.shape(n.colors);
    points = colors[1], channels = colors[2], entries = b.shape(n.ids)[0];
    pairs = tiles.images * points;
    // Row 0 is an entry without opacity, for unused ids. The read fails for ids out of range.
    const Shape each = {pairs, 1};
    const Value opacities =
        b.reshape(b.expand(b.reshape(n.opacities, {1, points}), {tiles.images, points}), each);
    const Value rows = b.concat({b.reshape(n.means2d, {pairs, 2}), b.reshape(n.conics, {pairs, 3}),
                                 opacities, b.reshape(n.colors, {pairs, channels})},
                                1);
    const Value all = b.concat({b.zeros({dtype, {1, kColor + channels}}), rows}, 0);
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
  int64_t points = 0, channels = 0, entries = 0, pairs = 0;
  Value list;           // [M + 1, 6 + channels]; the last row is unused
  Value row;            // the id of each row, i64 [M + 1]
  Value begin, end;     // the entries of each tile, i64 [N, 1]
  Value origin, pixel;  // see splat_of
};

// The entry at `position` [N, 1] of each tile.
Value entry_at(Builder& b, Value list, Value position) {
  const Value last = b.scalar_int(kI64, b.shape(list)[0] - 1);
  return b.add(op::gather{.data = list,
                          .indices = b.reshape(b.min(position, last), {b.shape(position)[0]})});
}
Value any(Builder& b, Value mask) { return b.reduce("any", mask, {0, 1}, false); }

bool splat_rasterize_lower(Lower& l, const op::splat_rasterize& n) {
  Builder& b = l.b;
  const Tiles all = tiles_of(b.shape(n.means2d)[0], n);
  if (all.count() == 0) {
    const DType t = b.dtype(n.means2d);
    l.out(0, b.zeros({t, all.image(b.shape(n.colors)[2])}));
    l.out(1, b.zeros({t, all.plane()}));
    l.out(2, b.zeros({kI32, all.plane()}));
    return true;
  }
  const Scene s(b, n);
  const Shape pixels = s.pixels();
  const Shape colored = {pixels[0], pixels[1], s.channels};
  const Value open = b.expand(b.compare("lt", s.begin, s.end), pixels);
  // position, open, light, color, last
  const Results made = run_while(
      b,
      {any(b, open), s.begin, open, b.full({s.dtype, pixels}, 1), b.zeros({s.dtype, colored}),
       b.expand(b.reshape(s.number(-1), {1, 1}), pixels)},
      {s.list, s.end, s.origin, s.pixel}, s.entries,
      [](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], goes = carry[2], light = carry[3];
        const Splat e = splat_of(in, entry_at(in, captured[0], position), captured[2], captured[3]);
        const DType t = in.dtype(light);
        const Value left = in.times(light, in.minus(in.scalar(t, 1), e.alpha));
        const Value full = in.logical("and", e.passes, in.compare("le", left, kLeastLight));
        const Value adds =
            in.logical("and", goes, in.logical("and", e.passes, in.logical("not", full)));
        const Value weight = in.times(e.alpha, light);
        const Value more = in.times(in.unsqueeze(weight, 2), in.unsqueeze(e.colors, 1));
        const Value color =
            in.plus(carry[4], in.where(in.unsqueeze(adds, 2), more, in.scalar(t, 0)));
        const Value next = in.plus(position, in.scalar_int(kI64, 1));
        Value open = in.logical("and", goes, in.logical("not", full));
        open = in.logical("and", open, in.compare("lt", next, captured[1]));
        return std::vector<Value>{any(in, open), next,
                                  open,          in.where(adds, left, light),
                                  color,         in.where(adds, position, carry[5])};
      });
  const Value light = s.as_image(made[3]);
  Value image = s.as_image(made[4]);
  if (n.background) {
    const Value behind = b.reshape(n.background, {all.images, 1, 1, s.channels});
    image = b.plus(image, b.times(light, behind));
  }
  l.out(0, image);
  l.out(1, b.reshape(b.minus(b.scalar(s.dtype, 1), light), all.plane()));
  l.out(2, b.cast(s.as_plane(made[5]), kI32));
  return true;
}

// The gradients of the pairs [I·P, 6 + channels], side by side as in the list, and the light behind
// all entries [N, S, 1].
struct Gradients {
  Value pairs, light;
};
Gradients gradients_of(Builder& b, const op::splat_rasterize_backward& n,
                       const Scene<op::splat_rasterize_backward>& s) {
  const Shape pixels = s.pixels();
  const auto flat = [&](Value v) { return b.reshape(v, pixels); };
  // The last entry of each pixel; none is before the tile's first one.
  Value last = flat(s.as_tiles(b.unsqueeze(b.cast(n.last_ids, kI64), 3), -1));
  last = b.min(last, b.minus(s.end, s.number(1)));
  const Value open = b.compare("le", s.begin, last);
  // position, light
  const Results forward = run_while(
      b, {any(b, open), s.begin, b.full({s.dtype, pixels}, 1)}, {s.list, last, s.origin, s.pixel},
      s.entries, [](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], light = carry[2];
        const Splat e = splat_of(in, entry_at(in, captured[0], position), captured[2], captured[3]);
        const Value left = in.times(light, in.minus(in.scalar(in.dtype(light), 1), e.alpha));
        const Value on = in.compare("le", position, captured[1]);
        const Value next = in.plus(position, in.scalar_int(kI64, 1));
        return std::vector<Value>{any(in, in.compare("le", next, captured[1])), next,
                                  in.where(on, left, light)};
      });
  const Value light = forward[2];
  const Value dimage = s.as_tiles(n.dimage, 0);
  // What a smaller light behind all entries changes.
  Value behind = b.zeros({s.dtype, pixels});
  if (n.dalpha) behind = flat(s.as_tiles(b.unsqueeze(n.dalpha, 3), 0));
  if (n.background) {
    const int64_t each = s.tiles.rows() * s.tiles.columns();
    const Value color = b.reshape(b.expand(b.reshape(n.background, {s.tiles.images, 1, s.channels}),
                                           {s.tiles.images, each, s.channels}),
                                  {s.tiles.count(), 1, s.channels});
    behind = b.minus(behind, b.sum(b.times(color, dimage), {2}, false));
  }
  behind = b.times(light, behind);
  const Value longest =
      b.reduce("max", b.where(open, b.minus(last, s.begin), s.number(-1)), {0, 1}, false);
  const Results made = run_while(
      b,
      {b.compare("ge", longest, s.number(0)), b.plus(s.begin, longest), light,
       b.zeros({s.dtype, pixels}), b.zeros({s.dtype, {s.pairs, kColor + s.channels}})},
      {s.list, last, s.origin, s.pixel, s.begin, dimage, behind, s.row}, s.entries,
      [](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], after = carry[2], gathered = carry[3], grads = carry[4];
        const Value upstream = captured[5];
        const DType t = in.dtype(after);
        const Value zero = in.scalar(t, 0), one = in.scalar(t, 1);
        const Splat e = splat_of(in, entry_at(in, captured[0], position), captured[2], captured[3]);
        const Value on = in.logical("and", e.passes, in.compare("le", position, captured[1]));
        const auto kept = [&](Value v) { return in.where(on, v, zero); };
        const Value through = in.minus(one, e.alpha);
        const Value before = in.where(on, in.over(after, through), after);
        const Value weight = kept(in.times(e.alpha, before));
        const Value match = in.sum(in.times(in.unsqueeze(e.colors, 1), upstream), {2}, false);
        Value dalpha = in.times(before, match);
        dalpha = in.plus(dalpha, in.over(in.minus(captured[6], gathered), through));
        const Value free = in.logical("and", on, in.compare("le", e.raw, kMostAlpha));
        dalpha = in.where(free, dalpha, zero);
        const Value dpower = in.neg(in.where(free, in.times(e.raw, dalpha), zero));
        const auto product = [&](Value v) {
          return in.sum(in.where(free, in.times(v, dpower), zero), {1});
        };
        const auto half = [&](Value v) { return in.times(in.times(v, v), 0.5); };
        const Value shares = in.times(in.unsqueeze(weight, 2), upstream);
        const Value dcolors = in.sum(in.where(in.unsqueeze(on, 2), shares, zero), {1}, false);
        const Value all =
            in.concat({product(e.slope_x), product(e.slope_y), product(half(e.dx)),
                       product(in.times(e.dx, e.dy)), product(half(e.dy)),
                       in.sum(in.where(free, in.times(e.fall, dalpha), zero), {1}), dcolors},
                      1);
        // Positions beyond a tile's last entry add nothing.
        const Value row = in.reshape(entry_at(in, captured[7], position), {in.shape(position)[0]});
        const Value some = in.reshape(in.reduce("any", on, {1}, true), {in.shape(position)[0]});
        const Value none = in.scalar_int(kI64, in.shape(grads)[0]);
        const Value next = in.minus(position, in.scalar_int(kI64, 1));
        return std::vector<Value>{any(in, in.compare("ge", next, captured[4])), next, before,
                                  in.plus(gathered, kept(in.times(weight, match))),
                                  in.add(op::scatter_add{.oob = "skip",
                                                         .updates = all,
                                                         .indices = in.where(some, row, none),
                                                         .base = grads})};
      });
  return {made[4], light};
}

// The outputs of splat_rasterize_backward, in their order.
enum Output : size_t { kDmeans2d, kDconics, kDcolors, kDopacities, kDbackground };

bool splat_rasterize_backward_lower(Lower& l, const op::splat_rasterize_backward& n) {
  Builder& b = l.b;
  const std::array<Value, 5> operands = {n.means2d, n.conics, n.colors, n.opacities, n.background};
  if (tiles_of(b.shape(n.means2d)[0], n).count() == 0) {
    for (size_t k = 0; k < operands.size(); ++k)
      if (l.wanted(k)) l.out(k, b.zeros(b.type(operands[k])));
    return true;
  }
  const Scene s(b, n);
  const Gradients made = gradients_of(b, n, s);
  const auto columns = [&](Column first, int64_t count) {
    return b.reshape(b.narrow(made.pairs, 1, first, count), {s.tiles.images, s.points, count});
  };
  if (l.wanted(kDmeans2d)) l.out(kDmeans2d, columns(kX, 2));
  if (l.wanted(kDconics)) l.out(kDconics, columns(kA, 3));
  if (l.wanted(kDcolors)) l.out(kDcolors, columns(kColor, s.channels));
  if (l.wanted(kDopacities))
    l.out(kDopacities, b.reshape(b.sum(columns(kOpacity, 1), {0}), {s.points}));
  if (l.wanted(kDbackground))
    l.out(kDbackground, b.sum(b.times(s.as_image(made.light), n.dimage), {1, 2}, false));
  return true;
}

// ---- gradient: the list of entries is fixed

void splat_rasterize_grad(Grad& g, const op::splat_rasterize& n) {
  const Value dimage = g.dy(0), dalpha = g.dy(1);
  if (!dimage && !dalpha) return;
  using Back = op::splat_rasterize_backward;
  const std::pair<Value, bool Back::*> parts[] = {{n.means2d, &Back::want_dmeans2d},
                                                  {n.conics, &Back::want_dconics},
                                                  {n.colors, &Back::want_dcolors},
                                                  {n.opacities, &Back::want_dopacities},
                                                  {n.background, &Back::want_dbackground}};
  give_wanted(g,
              Back{.width = n.width,
                   .height = n.height,
                   .tile = n.tile,
                   .response = n.response,
                   .dimage = dimage ? dimage : g.b.zeros(g.b.type(g.y(0))),
                   .means2d = n.means2d,
                   .conics = n.conics,
                   .colors = n.colors,
                   .opacities = n.opacities,
                   .tile_offsets = n.tile_offsets,
                   .ids = n.ids,
                   .last_ids = g.y(2),
                   .background = n.background,
                   .dalpha = dalpha},
              parts);
}

// ---- cost: of each entry in all pixels of its tile. An exponential counts as one operation.

constexpr double kForwardFlops = 20, kBackwardFlops = 60, kChannelFlops = 2;

template <class Op>
double raster_flops(const Cost& c, const Op& n) {
  constexpr bool kBackward = requires { n.dimage; };
  const double each = kBackward ? kBackwardFlops + 3 * kChannelFlops * c.dim(n.colors, 0)
                                : kForwardFlops + kChannelFlops * c.dim(n.colors, 0);
  return each * c.elements(n.ids) * static_cast<double>(n.tile * n.tile);
}

constexpr std::string_view kResponses = "ewa ray3d";
constexpr Record<op::splat_rasterize> kRasterize{.shape = splat_rasterize_shape,
                                                 .words = {{"response", kResponses}},
                                                 .grad = splat_rasterize_grad,
                                                 .lower = splat_rasterize_lower,
                                                 .batch = batch_one_by_one<op::splat_rasterize>,
                                                 .flops = raster_flops<op::splat_rasterize>,
                                                 .bytes = each_once};
constexpr Record<op::splat_rasterize_backward> kRasterizeBackward{
    .shape = splat_rasterize_backward_shape,
    .words = {{"response", kResponses}},
    .lower = splat_rasterize_backward_lower,
    .batch = batch_one_by_one<op::splat_rasterize_backward>,
    .flops = raster_flops<op::splat_rasterize_backward>,
    .bytes = each_once,
    .traits = kNotDifferentiable};

}  // namespace

const OpRecord splat_rasterize_def = record<op::splat_rasterize, kRasterize>();
const OpRecord splat_rasterize_backward_def =
    record<op::splat_rasterize_backward, kRasterizeBackward>();

}  // namespace tenon::core
