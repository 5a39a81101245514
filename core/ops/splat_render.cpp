// SPDX-License-Identifier: Apache-2.0
// The record of splat_render: the chain of the family's other ops.
#include "ops/splat.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// This op checks its operands and attributes itself, so that messages name it and not an op of the
// chain. The texts are those of the chain.
void splat_render_shape(Infer& i, const op::splat_render& n) {
  want_f32_or_f64(i, n.means, "means");
  i.want_rank(n.means, "means", 2);
  const DType t = i.dtype(n.means);
  const Dim points = i.shape(n.means)[0];
  const auto same = [&](Value v, std::string_view operand, const Shape& shape) {
    i.want_same_dtype(v, operand, n.means, "means");
    i.want_shape(v, operand, shape);
  };
  i.want_shape(n.means, "means", {points, 3});
  same(n.quats, "quats", {points, 4});
  same(n.scales, "scales", {points, 3});
  same(n.opacities, "opacities", {points});
  i.want_rank(n.viewmats, "viewmats", 3);
  const Dim images = i.shape(n.viewmats)[0];
  same(n.viewmats, "viewmats", {images, 4, 4});
  same(n.intrinsics, "intrinsics", {images, 3, 3});
  if (n.background) same(n.background, "background", {images, 3});
  want_projection(i, n);
  want_harmonics(i, n.degree, n.coeffs, n.means);
  const Tiles tiles = want_tiles(i, images, n);
  want_ids(i, images, points);
  want_capacity(i, n.max_intersections);
  i.out(0, {t, tiles.image(3)});
  i.out(1, {t, tiles.plane()});
}

bool splat_render_lower(Lower& l, const op::splat_render& n) {
  Builder& b = l.b;
  const Results seen = b.add(op::splat_project{.width = n.width,
                                               .height = n.height,
                                               .eps2d = n.eps2d,
                                               .near = n.near,
                                               .far = n.far,
                                               .radius_clip = n.radius_clip,
                                               .response = n.response,
                                               .means = n.means,
                                               .quats = n.quats,
                                               .scales = n.scales,
                                               .viewmats = n.viewmats,
                                               .intrinsics = n.intrinsics});
  const Value colors = b.add(op::splat_sh{
      .degree = n.degree, .means = n.means, .viewmats = n.viewmats, .coeffs = n.coeffs});
  const Results entries = b.add(op::splat_bin{.width = n.width,
                                              .height = n.height,
                                              .tile = n.tile,
                                              .max_intersections = n.max_intersections,
                                              .radii = seen[0],
                                              .means2d = seen[1],
                                              .depths = seen[2]});
  const Results sorted = b.add(op::splat_sort{.images = b.shape(n.viewmats)[0],
                                              .width = n.width,
                                              .height = n.height,
                                              .tile = n.tile,
                                              .keys = entries[0],
                                              .ids = entries[1]});
  const Results made = b.add(op::splat_rasterize{.width = n.width,
                                                 .height = n.height,
                                                 .tile = n.tile,
                                                 .response = n.response,
                                                 .means2d = seen[1],
                                                 .conics = seen[3],
                                                 .colors = colors,
                                                 .opacities = n.opacities,
                                                 .tile_offsets = sorted[1],
                                                 .ids = sorted[0],
                                                 .background = n.background});
  l.out(0, made[0]);
  l.out(1, made[1]);
  return true;
}

constexpr Record<op::splat_render> kRender{.shape = splat_render_shape,
                                           .words = {{"response", "ewa ray3d"}},
                                           .lower = splat_render_lower,
                                           .flops = no_products,
                                           .bytes = each_once};

}  // namespace

const OpRecord splat_render_def = record<op::splat_render, kRender>();

}  // namespace tenon::core
