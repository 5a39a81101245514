// SPDX-License-Identifier: Apache-2.0
// splat_project splat_sh: a thread for each Gaussian.
#include "splat.hpp"

namespace tenon::cuda {

sdk::Kernel make_splat_project(const sdk::op::splat_project& n, const sdk::Node& node) {
  const sdk::Type& means = n.means.type();
  if (n.response != "ewa") throw Refusal::attribute("response", n.response);
  const int64_t images = n.viewmats.type().dims[0], points = means.dims[0];
  const args::SplatProject s{.points = points,
                             .pairs = images * points,
                             .width = n.width,
                             .height = n.height,
                             .eps2d = n.eps2d,
                             .nearest = n.near,
                             .farthest = n.far,
                             .clip = n.radius_clip};
  const auto code =
      device_of(node).code(entries::splat_project, {splat_type("means", means.dtype)});
  const Grid grid{.blocks = launchable(blocks_for(s.pairs, 256))};
  return kernel_of({code}, [=, mean = n.means.position(), quats = n.quats.position(),
                            scales = n.scales.position(), views = n.viewmats.position(),
                            intrinsics = n.intrinsics.position()](const sdk::Call& c) {
    args::SplatProject own = s;
    own.means = c.in(mean), own.quats = c.in(quats), own.scales = c.in(scales);
    own.views = c.in(views), own.intrinsics = c.in(intrinsics);
    own.radii = static_cast<int32_t*>(c.outputs[0]);
    own.means2d = c.outputs[1], own.depths = c.outputs[2], own.conics = c.outputs[3];
    code.launch(c, grid, own);
  });
}

sdk::Kernel make_splat_sh(const sdk::op::splat_sh& n, const sdk::Node& node) {
  const sdk::Type& coeffs = n.coeffs.type();
  const args::SplatColors s{
      .images = n.viewmats.type().dims[0], .points = coeffs.dims[0], .values = 3 * coeffs.dims[1]};
  const auto code = device_of(node).code(
      entries::splat_colors, {splat_type("coeffs", coeffs.dtype), define("DEGREE", n.degree)});
  const Grid grid{.blocks = launchable(blocks_for(s.points, 128)), .threads = 128};
  return kernel_of({code}, [=, means = n.means.position(), views = n.viewmats.position(),
                            at = n.coeffs.position()](const sdk::Call& c) {
    args::SplatColors own = s;
    own.means = c.in(means), own.views = c.in(views), own.coeffs = c.in(at);
    own.y = c.outputs[0];
    code.launch(c, grid, own);
  });
}

}  // namespace tenon::cuda
