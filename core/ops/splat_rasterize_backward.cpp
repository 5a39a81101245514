// SPDX-License-Identifier: Apache-2.0
// The record of splat_rasterize_backward: a walk forward finds the light behind all entries, and one
// back divides each entry's share out again.
#include "ops/splat_rasterize.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

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

// The gradients of the pairs [I·P, columns], side by side as in the list, and the light behind
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
      s.entries,
      [at = s.columns](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], light = carry[2];
        const Splat e =
            splat_of(in, at, entry_at(in, captured[0], position), captured[2], captured[3]);
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
       b.zeros({s.dtype, pixels}), b.zeros({s.dtype, {s.pairs, s.columns.colors() + s.channels}})},
      {s.list, last, s.origin, s.pixel, s.begin, dimage, behind, s.row}, s.entries,
      [at = s.columns](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], after = carry[2], gathered = carry[3], grads = carry[4];
        const Value upstream = captured[5];
        const DType t = in.dtype(after);
        const Value zero = in.scalar(t, 0), one = in.scalar(t, 1);
        const Splat e =
            splat_of(in, at, entry_at(in, captured[0], position), captured[2], captured[3]);
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
        // Of half the form; the power along rays is form/(2·(along² + k·form)).
        const Value dform = at.rays() ? in.times(dpower, in.times(e.share, e.share)) : dpower;
        const auto total = [&](Value v) { return in.sum(in.where(free, v, zero), {1}); };
        const auto product = [&](Value v) { return total(in.times(v, dform)); };
        const auto half = [&](Value v) { return in.times(in.times(v, v), 0.5); };
        const Value shares = in.times(in.unsqueeze(weight, 2), upstream);
        const Value dcolors = in.sum(in.where(in.unsqueeze(on, 2), shares, zero), {1}, false);
        Value dx = product(e.slope_x), dy = product(e.slope_y);
        std::vector<Value> conic = {product(half(e.dx)), product(in.times(e.dx, e.dy)),
                                    product(half(e.dy))};
        if (at.rays()) {
          const Value twice = in.times(in.times(e.power, dpower), -2);
          const Value dalong = in.times(e.share, twice);
          const Value sum = total(dalong);
          dx = in.plus(dx, in.times(e.p, sum)), dy = in.plus(dy, in.times(e.q, sum));
          for (const Value part :
               {in.times(e.dx, dalong), in.times(e.dy, dalong), in.times(e.power, twice)})
            conic.push_back(total(part));
        }
        std::vector<Value> parts = {dx, dy};
        parts.insert(parts.end(), conic.begin(), conic.end());
        parts.push_back(total(in.times(e.fall, dalpha)));
        parts.push_back(dcolors);
        const Value all = in.concat(parts, 1);
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
  const auto columns = [&](int64_t first, int64_t count) {
    return b.reshape(b.narrow(made.pairs, 1, first, count), {s.tiles.images, s.points, count});
  };
  if (l.wanted(kDmeans2d)) l.out(kDmeans2d, columns(s.columns.kMean, 2));
  if (l.wanted(kDconics)) l.out(kDconics, columns(s.columns.kConic, s.columns.conic));
  if (l.wanted(kDcolors)) l.out(kDcolors, columns(s.columns.colors(), s.channels));
  if (l.wanted(kDopacities))
    l.out(kDopacities, b.reshape(b.sum(columns(s.columns.opacity(), 1), {0}), {s.points}));
  if (l.wanted(kDbackground))
    l.out(kDbackground, b.sum(b.times(s.as_image(made.light), n.dimage), {1, 2}, false));
  return true;
}

constexpr Record<op::splat_rasterize_backward> kRasterizeBackward{
    .shape = splat_rasterize_backward_shape,
    .words = {{"response", "ewa ray3d"}},
    .lower = splat_rasterize_backward_lower,
    .batch = batch_one_by_one<op::splat_rasterize_backward>,
    .flops = raster_flops<op::splat_rasterize_backward>,
    .bytes = each_once,
    .traits = kNotDifferentiable};

}  // namespace

const OpRecord splat_rasterize_backward_def =
    record<op::splat_rasterize_backward, kRasterizeBackward>();

}  // namespace tenon::core
