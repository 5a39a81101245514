// SPDX-License-Identifier: Apache-2.0
// splat_rasterize splat_rasterize_backward. splat_render is decomposed into the other ops of the family.
#include "splat.hpp"

#include <algorithm>

namespace tenon::cuda {
namespace {

using sdk::Refusal;

// The operands, by their positions, and what both directions prepare.
struct Scene {
  args::SplatScene s{};
  int64_t pairs = 0, tiles = 0;
  int64_t areas = 0;  // blocks of 16 x 16 pixels
  int means2d = -1, conics = -1, colors = -1, opacities = -1, offsets = -1, ids = -1,
      background = -1;
  std::vector<std::string> defines{};
  uint64_t pairs_at = 0, used_at = 0;
  CodeFor<entries::splat_clear> clear{};
  CodeFor<entries::splat_check> check{};
  CodeFor<entries::splat_prepare> prepare{};

  // Enqueues the check of the list and the preparation of all pairs.
  args::SplatScene run(const sdk::Call& c) const {
    constexpr int64_t kChecked = 256 * 16;
    args::SplatScene own = s;
    own.means2d = c.in(means2d), own.conics = c.in(conics), own.colors = c.in(colors);
    own.opacities = c.in(opacities), own.background = c.in(background);
    own.offsets = c.in<int32_t>(offsets), own.ids = c.in<int32_t>(ids);
    own.prepared = scratch_at(c, pairs_at), own.used = scratch_at<args::i32>(c, used_at);
    clear.launch(c, {.blocks = 1, .threads = 32}, own);
    check.launch(c, {.blocks = blocks_for(std::max<int64_t>(s.entries, tiles), kChecked)}, own,
                 error_sink(c));
    prepare.launch(c, {.blocks = blocks_for(pairs, 256)}, own);
    return own;
  }
  std::vector<Code> codes() const { return {clear, check, prepare}; }
  std::string describe(const sdk::BadData& bad) const {
    constexpr int64_t kOffsets = int64_t{1} << 32;  // positions of offsets begin there
    const bool offset = bad.position >= kOffsets;
    return (offset ? "operand tile_offsets: expected numbers from 0 to " +
                         std::to_string(s.entries) + " that do not decrease, got another number"
                   : "operand ids: expected numbers from -1 to " + std::to_string(pairs - 1) +
                         ", got another number") +
           " at position " + std::to_string(offset ? bad.position - kOffsets : bad.position);
  }
};

template <class Op>
Scene scene_of(const Op& n, const sdk::Node& node, uint64_t& scratch) {
  const sdk::Type& means = n.means2d.type();
  const int64_t channels = n.colors.type().dims[2];
  const std::string type = splat_type("means2d", means.dtype);
  if (n.response != "ewa") throw Refusal::attribute("response", n.response);
  Scene scene{.s = {.images = means.dims[0],
                    .points = means.dims[1],
                    .width = n.width,
                    .height = n.height,
                    .rows = blocks_for(n.height, n.tile),
                    .columns = blocks_for(n.width, n.tile),
                    .entries = static_cast<int32_t>(n.ids.type().dims[0]),
                    .size = static_cast<int32_t>(n.tile)},
              .pairs = means.dims[0] * means.dims[1],
              .means2d = n.means2d.position(),
              .conics = n.conics.position(),
              .colors = n.colors.position(),
              .opacities = n.opacities.position(),
              .offsets = n.tile_offsets.position(),
              .ids = n.ids.position(),
              .background = n.background.position(),
              .defines = {type, define("CHANNELS", channels)}};
  const int64_t along = blocks_for(n.tile, 16);
  scene.tiles = scene.s.images * scene.s.rows * scene.s.columns;
  scene.areas = launchable(scene.tiles * along * along);
  const int64_t pair_bytes = means.dtype == TENON_DTYPE_F32 ? 48 : 80;  // Pair in splat.cuh
  scene.pairs_at = take_scratch(scratch, static_cast<uint64_t>(scene.pairs * pair_bytes));
  scene.used_at = take_scratch(scratch, 4);
  CudaDevice& device = device_of(node);
  scene.clear = device.code(entries::splat_clear, scene.defines);
  scene.check = device.code(entries::splat_check, scene.defines);
  scene.prepare = device.code(entries::splat_prepare, scene.defines);
  return scene;
}

void may_fail(sdk::Kernel& kernel, const Scene& scene) {
  kernel.can_fail = true;
  kernel.describe = [scene](const sdk::BadData& bad) { return scene.describe(bad); };
}

sdk::Kernel make_rasterize(const sdk::op::splat_rasterize& n, const sdk::Node& node) {
  uint64_t scratch = 0;
  const Scene scene = scene_of(n, node, scratch);
  const auto blend = device_of(node).code(entries::splat_blend, scene.defines);
  std::vector<Code> codes = scene.codes();
  codes.push_back(blend);
  sdk::Kernel kernel = kernel_of(codes, [=](const sdk::Call& c) {
    const args::SplatScene own = scene.run(c);
    blend.launch(c, {.blocks = scene.areas}, own,
                 args::SplatImage{.image = c.outputs[0],
                                  .alpha = c.outputs[1],
                                  .last = static_cast<int32_t*>(c.outputs[2])});
  });
  kernel.scratch = scratch;
  may_fail(kernel, scene);
  return kernel;
}

// ---- backward: sums of each entry of a tile, then of each pair in the order of its entries

enum Output : size_t { kMeans2d, kConics, kColors, kOpacities, kBackground };

sdk::Kernel make_rasterize_backward(const sdk::op::splat_rasterize_backward& n,
                                    const sdk::Node& node) {
  const bool wanted[] = {n.want_dmeans2d, n.want_dconics, n.want_dcolors, n.want_dopacities,
                         n.want_dbackground};
  uint64_t scratch = 0;
  const Scene scene = scene_of(n, node, scratch);
  const sdk::Type& colors = n.colors.type();
  const int64_t bytes = element_bytes(colors.dtype), channels = colors.dims[2];
  const int64_t images = scene.s.images, points = scene.s.points, entries = scene.s.entries;
  CudaDevice& device = device_of(node);
  const auto area = [&](int64_t size) {
    return take_scratch(scratch, static_cast<uint64_t>(size));
  };
  const uint64_t sums_at = area(entries * (6 + channels) * bytes);
  const uint64_t behind_at = area(wanted[kBackground] ? scene.tiles * channels * bytes : 0);
  const uint64_t begins_at = area(scene.pairs * 8);
  const bool joined = wanted[kOpacities] && images != 1;
  const uint64_t opacities_at = area(joined ? scene.pairs * bytes : 0);
  const SplatOrder order(device, entries, scene.pairs, false, scratch);
  const auto differentiate = device.code(entries::splat_differentiate, scene.defines);
  const auto clear = device.code(entries::splat_clear_segments, scene.defines);
  const auto find = device.code(entries::splat_find_segments, scene.defines);
  const auto add = device.code(entries::splat_add_segments, scene.defines);
  const auto add_images = device.code(entries::splat_add_images, scene.defines);
  const auto add_tiles = device.code(entries::splat_add_tiles, scene.defines);
  std::vector<Code> codes = {differentiate, clear, find, add, add_images, add_tiles};
  for (const Code& code : scene.codes()) codes.push_back(code);
  for (const Code& code : order.codes()) codes.push_back(code);
  const int64_t in_block = 256 / (6 + channels <= 16 ? 16 : 32);  // pairs of add_segments
  const auto run = [=, dimage = n.dimage.position(), dalpha = n.dalpha.position(),
                    last = n.last_ids.position()](const sdk::Call& c) {
    const args::SplatScene own = scene.run(c);
    const auto output = [&](Output k) { return wanted[k] ? c.outputs[k] : nullptr; };
    args::SplatGradients g{.dimage = c.in(dimage),
                           .dalpha = c.in(dalpha),
                           .last = c.in<int32_t>(last),
                           .sums = scratch_at(c, sums_at),
                           .behind = output(kBackground) ? scratch_at(c, behind_at) : nullptr,
                           .begins = scratch_at<args::u32>(c, begins_at),
                           .dmeans2d = output(kMeans2d),
                           .dconics = output(kConics),
                           .dcolors = output(kColors)};
    differentiate.launch(c, {.blocks = scene.tiles}, own, g);
    if (g.behind)
      add_tiles.launch(c, {.blocks = images * channels}, own, static_cast<const void*>(g.behind),
                       output(kBackground));
    if (!wanted[kMeans2d] && !wanted[kConics] && !wanted[kColors] && !wanted[kOpacities]) return;
    const args::SplatSort sorted = order.run(c, nullptr, own.ids);
    g.by_pair = sorted.from, g.sorted = sorted.used;
    clear.launch(c, {.blocks = blocks_for(2 * scene.pairs, 256)}, own, g);
    find.launch(c, {.blocks = blocks_for(entries, 256)}, own, g);
    void* const opacities = joined ? scratch_at(c, opacities_at) : output(kOpacities);
    add.launch(c, {.blocks = blocks_for(scene.pairs, in_block)}, own, g, opacities);
    if (joined)
      add_images.launch(c, {.blocks = blocks_for(points, 256)}, own,
                        static_cast<const void*>(opacities), output(kOpacities));
  };
  sdk::Kernel kernel = kernel_of(codes, run);
  kernel.scratch = scratch;
  may_fail(kernel, scene);
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::splat_project, make_splat_project>(),
    sdk::row<sdk::op::splat_sh, make_splat_sh>(),
    sdk::row<sdk::op::splat_bin, make_splat_bin>(),
    sdk::row<sdk::op::splat_sort, make_splat_sort>(),
    sdk::row<sdk::op::splat_rasterize, make_rasterize>(),
    sdk::row<sdk::op::splat_rasterize_backward, make_rasterize_backward>(),
};

}  // namespace

std::span<const sdk::Row> splat_rows() { return kRows; }

}  // namespace tenon::cuda
