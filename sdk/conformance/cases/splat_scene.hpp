// SPDX-License-Identifier: Apache-2.0
// Scenes of projected Gaussians for splat_rasterize and its backward op, and their rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

inline const DTypes kDTypes = {f32, f64};

// Points are those of one image; means, conics and rays those of all images.
struct Scene {
  const char* id;
  const char* sentence;
  int64_t images, channels, width, height, tile;
  std::vector<double> means, conics, opacities;
  std::vector<int64_t> offsets, ids;
  bool background = false, gradient = false;
  std::vector<double> rays{};  // p, q, k of each point; none: response ewa

  int64_t points() const { return static_cast<int64_t>(opacities.size()); }
  Dims tiles() const { return {images, (height + tile - 1) / tile, (width + tile - 1) / tile}; }
};

// Every tile lists all Gaussians of its image, in an order of its own. Entry 0 is before all tiles,
// and each tile begins with an unused entry.
inline void list_all(Scene& s) {
  const Dims tiles = s.tiles();
  const int64_t each = tiles[1] * tiles[2];
  s.ids = {1};
  for (int64_t t = 0; t < tiles[0] * each; ++t) {
    s.offsets.push_back(static_cast<int64_t>(s.ids.size()));
    s.ids.push_back(-1);
    for (int64_t k = 0; k < s.points(); ++k)
      s.ids.push_back(t / each * s.points() + (k + t) % s.points());
  }
}

inline op::splat_rasterize rasterized(CaseBuilder& b, const Scene& s) {
  const auto list = [](const std::vector<double>& v) {
    return Fill::list(v.empty() ? std::vector<double>{1} : v);
  };
  const auto whole = [](const std::vector<int64_t>& v) {
    return v.empty() ? std::vector<int64_t>{0} : v;
  };
  op::splat_rasterize n{.width = s.width, .height = s.height, .tile = s.tile};
  std::vector<double> conics = s.conics;
  if (!s.rays.empty()) {
    n.response = "ray3d", conics.clear();
    for (size_t k = 0; k < s.conics.size(); k += 3)
      for (const auto* part : {&s.conics, &s.rays})
        conics.insert(conics.end(), part->begin() + static_cast<std::ptrdiff_t>(k),
                      part->begin() + static_cast<std::ptrdiff_t>(k + 3));
  }
  n.means2d = b.input("means2d", {s.images, s.points(), 2}, list(s.means));
  n.conics = b.input("conics", {s.images, s.points(), s.rays.empty() ? 3 : 6}, list(conics));
  n.colors = b.input("colors", {s.images, s.points(), s.channels}, Fill::uniform(0, 1));
  n.opacities = b.input("opacities", {s.points()}, list(s.opacities));
  n.tile_offsets = b.ints("tile_offsets", s.tiles(), whole(s.offsets), i32);
  n.ids = b.ints("ids", {static_cast<int64_t>(s.ids.size())}, whole(s.ids), i32);
  if (s.background)
    n.background = b.input("background", {s.images, s.channels}, Fill::uniform(0, 1));
  return n;
}

inline void outputs(CaseBuilder& b, const Node& y) {
  b.output("image", y[0]);
  b.scale("image", [&] { return b.number(1); });
  b.output("alpha", y[1]);
  b.scale("alpha", [&] { return b.number(1); });
  b.output("last_ids", y[2], kExact);
}

// The forward row of a scene and the backward one, and with `half` one without dalpha.
inline void raster_rows(Suite& s, const Scene& scene, bool half_too) {
  s.add({.id = std::string("splat-rasterize-") + scene.id,
         .sentence = std::string("splat_rasterize: ") + scene.sentence,
         .dtypes = kDTypes,
         .build = [=](CaseBuilder& b) { outputs(b, b.add(rasterized(b, scene))); },
         .tolerance = scaled(64),
         .gradient = scene.gradient,
         .scales = {1}});
  // Sums of gradients over the pixels of a thin ellipse cancel.
  for (const bool half : {false, true}) {
    if (half && !half_too) continue;
    s.add({.id = std::string("splat-rasterize-backward-") + scene.id + (half ? "-image" : ""),
           .sentence = std::string("splat_rasterize_backward: ") + scene.sentence,
           .dtypes = kDTypes,
           .build =
               [=](CaseBuilder& b) {
                 const op::splat_rasterize n = rasterized(b, scene);
                 const Value last = b.add(n)[2];
                 op::splat_rasterize_backward back{
                     .width = n.width, .height = n.height, .tile = n.tile, .response = n.response};
                 back.dimage =
                     b.input("dimage", {scene.images, scene.height, scene.width, scene.channels},
                             Fill::uniform(-1, 1));
                 if (!half)
                   back.dalpha = b.input("dalpha", {scene.images, scene.height, scene.width},
                                         Fill::uniform(-1, 1));
                 back.means2d = n.means2d, back.conics = n.conics, back.colors = n.colors;
                 back.opacities = n.opacities, back.tile_offsets = n.tile_offsets;
                 back.ids = n.ids, back.last_ids = last, back.background = n.background;
                 back.want_dmeans2d = back.want_dconics = back.want_dcolors = true;
                 back.want_dopacities = true, back.want_dbackground = scene.background;
                 const Node y = b.add(back);
                 const char* const names[] = {"dmeans2d", "dconics", "dcolors", "dopacities",
                                              "dbackground"};
                 for (size_t k = 0; k < (scene.background ? 5 : 4); ++k) {
                   b.output(names[k], y[k]);
                   b.scale(names[k], [&] { return largest_of(b, y[k]); });
                 }
               },
           .tolerance = scaled(std::string_view(scene.id) == "thin" ? 2048 : 256)});
  }
}

}  // namespace tenon::conform
