// SPDX-License-Identifier: Apache-2.0
// The record of splat_rasterize: Gaussians are blended front to back in each pixel.
#include "ops/splat_rasterize.hpp"
#include "ops/table.hpp"
#include "ops/wanted.hpp"

namespace tenon::core {
namespace {

void splat_rasterize_shape(Infer& i, const op::splat_rasterize& n) {
  const Tiles tiles = raster_operands(i, n);
  const DType t = i.dtype(n.means2d);
  i.out(0, {t, tiles.image(i.shape(n.colors)[2])});
  i.out(1, {t, tiles.plane()});
  i.out(2, {kI32, tiles.plane()});
}

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
      [at = s.columns](Builder& in, std::span<const Value> carry, std::span<const Value> captured) {
        const Value position = carry[1], goes = carry[2], light = carry[3];
        const Splat e =
            splat_of(in, at, entry_at(in, captured[0], position), captured[2], captured[3]);
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

constexpr Record<op::splat_rasterize> kRasterize{.shape = splat_rasterize_shape,
                                                 .words = {{"response", "ewa ray3d"}},
                                                 .grad = splat_rasterize_grad,
                                                 .lower = splat_rasterize_lower,
                                                 .batch = batch_one_by_one<op::splat_rasterize>,
                                                 .flops = raster_flops<op::splat_rasterize>,
                                                 .bytes = each_once};
}  // namespace

const OpRecord splat_rasterize_def = record<op::splat_rasterize, kRasterize>();

}  // namespace tenon::core
