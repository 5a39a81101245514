// SPDX-License-Identifier: Apache-2.0
// splat_rasterize, its backward op and splat_render. Every alpha is far from the thresholds that skip
// an entry or end a pixel, so that all devices agree.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/families.hpp"
#include "cases/splat_scene.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
std::vector<Scene> scenes() {
  // Wide Gaussians: all pass in all pixels.
  const std::vector<double> means = {2, 1.5, 7.5, 4, 5, 3, 9, 1, 1, 5, 4.5, 2.5, 8, 3.5, 6, 0.5};
  const std::vector<double> conics = {0.05,  0.01, 0.04,  0.03, -0.02, 0.05, 0.06, 0,
                                      0.03,  0.04, 0.015, 0.03, 0.03,  0.01, 0.05, 0.05,
                                      -0.01, 0.04, 0.04,  0.02, 0.03,  0.06, 0.01, 0.04};
  const auto first = [](const std::vector<double>& v, size_t n) {
    return std::vector<double>(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
  };
  std::vector<Scene> all = {
      {"soft",
       "two images that tiles do not divide",
       2,
       3,
       10,
       6,
       4,
       means,
       conics,
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       true,
       true},
      {"gray",
       "one channel without a background",
       1,
       1,
       9,
       7,
       16,
       first(means, 8),
       first(conics, 12),
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       false,
       true},
      {"odd-tiles",
       "tiles of 5 pixels, 5 channels",
       2,
       5,
       13,
       11,
       5,
       means,
       conics,
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       true},
      {"one-pixel-tiles",
       "tiles of one pixel",
       1,
       2,
       3,
       2,
       1,
       first(means, 8),
       first(conics, 12),
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       false},
      {"many-channels",
       "32 channels",
       1,
       32,
       9,
       7,
       16,
       first(means, 8),
       first(conics, 12),
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       true},
      {"large-tiles",
       "a tile of 64 pixels",
       1,
       3,
       9,
       7,
       64,
       first(means, 8),
       first(conics, 12),
       {0.6, 0.7, 0.5, 0.8},
       {},
       {},
       true},
      // Alpha is about the opacity, so pixels are full after two to five entries.
      {"cover",
       "Gaussians that cover each other, so that pixels become full",
       1,
       3,
       9,
       6,
       8,
       first(means, 8),
       {1e-4, 0, 1e-4, 2e-4, 0, 1e-4, 1e-4, 0, 3e-4, 1e-4, 5e-5, 1e-4},
       {0.97, 0.995, 0.9, 0.98},
       {},
       {},
       true,
       true},
      // Variances of 1e5 and 0.35 turned by 45 degrees: the usual form of the power loses all digits.
      {"thin",
       "long thin ellipses far from their means",
       1,
       3,
       40,
       24,
       16,
       {310.25, 300.5, -199.75, 213.5},
       {1.4285764285, -1.4285664286, 1.4285764285, 1.2499955, 1.2499905, 1.2499955},
       {0.5, 0.6},
       {},
       {},
       true}};
  for (Scene& s : all) list_all(s);
  all.push_back({"no-points",
                 "no Gaussians",
                 2,
                 3,
                 9,
                 6,
                 4,
                 {},
                 {},
                 {},
                 {0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2},
                 {-1, -1},
                 true});
  all.push_back({"no-entries",
                 "no entries",
                 1,
                 3,
                 9,
                 6,
                 4,
                 first(means, 8),
                 first(conics, 12),
                 {0.6, 0.7, 0.5, 0.8},
                 {0, 0, 0, 0, 0, 0},
                 {},
                 true});
  all.push_back({"no-images", "no images", 0, 3, 9, 6, 4, {}, {}, {0.6, 0.7}, {}, {-1}, true});
  return all;
}

void rasterize_rows(Suite& s) {
  for (const Scene& scene : scenes()) raster_rows(s, scene, std::string_view(scene.id) == "soft");
}

// One row of pixels, in which a Gaussian falls to a half at a distance of one pixel.
void hand_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    std::vector<double> conics, opacities;
    std::vector<double> image, alpha, last;
  };
  const double a = 2 * std::log(2.0);
  const std::vector<Form> all = {
      {"hand",
       "two Gaussians by hand, one of them flat",
       {a, 0, 1, 0, 0, 0},
       {0.8, 0.5},
       {0.8 + 0.1 * 2 + 0.1 * 3, 0.4 + 0.3 * 2 + 0.3 * 3, 0.05 + 0.475 * 2 + 0.475 * 3},
       {0.9, 0.7, 0.525},
       {1, 1, 1}},
      {"saturated",
       "an opacity above 1 ends at 0.999, and the next entry would leave nothing",
       {0, 0, 0, 0, 0, 0},
       {2, 0.95},
       {0.999 + 0.001 * 3, 0.999 + 0.001 * 3, 0.999 + 0.001 * 3},
       {0.999, 0.999, 0.999},
       {0, 0, 0}},
      {"skipped",
       "alphas that are not finite or too small, and powers below 0",
       {0, 0, 0, -1, 0, -1},
       {kInf, 0.5},
       {3, 3, 3},
       {0, 0, 0},
       {-1, -1, -1}},
      {"transparent",
       "opacities of 0, and NaN",
       {a, 0, 1, a, 0, 1},
       {0, kNan},
       {3, 3, 3},
       {0, 0, 0},
       {-1, -1, -1}}};
  for (const Form& f : all)
    s.add({.id = std::string("splat-rasterize-") + f.id,
           .sentence = std::string("splat_rasterize: ") + f.sentence,
           .dtypes = kDTypes,
           .build =
               [=](CaseBuilder& b) {
                 const double far = std::string_view(f.id) == "skipped" ? 5.5 : 0.5;
                 outputs(b, b.add(op::splat_rasterize{
                                .width = 3,
                                .height = 1,
                                .means2d =
                                    b.input("means2d", {1, 2, 2}, Fill::list({0.5, 0.5, far, 0.5})),
                                .conics = b.input("conics", {1, 2, 3}, Fill::list(f.conics)),
                                .colors = b.input("colors", {1, 2, 1}, Fill::list({1, 2})),
                                .opacities = b.input("opacities", {2}, Fill::list(f.opacities)),
                                .tile_offsets = b.ints("tile_offsets", {1, 1, 1}, {0}, i32),
                                .ids = b.ints("ids", {2}, {0, 1}, i32),
                                .background = b.input("background", {1, 1}, Fill::list({3}))}));
                 b.expect("image", f.image);
                 b.expect("alpha", f.alpha);
                 b.expect("last_ids", f.last);
               },
           .tolerance = scaled(64)});
}

void failure_rows(Suite& s) {
  const Scene soft = scenes()[0];
  struct Form {
    const char* id;
    std::vector<int64_t> offsets, ids;
  };
  for (const Form& f : {Form{"id-too-large", {0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {0, 8, 1}},
                        Form{"id-below", {0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {0, 1, -2}},
                        Form{"offset-too-large", {0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4}, {0, 1, 2}},
                        Form{"offset-below", {-1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {0, 1, 2}},
                        Form{"offset-less", {0, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {0, 1, 2}}}) {
    Scene scene = soft;
    scene.offsets = f.offsets, scene.ids = f.ids;
    s.add_failure(
        std::string("splat-rasterize-") + f.id, "splat_rasterize: a list that is out of range",
        [=](CaseBuilder& b) { b.output("image", b.add(rasterized(b, scene))[0]); },
        TENON_INDEX_OUT_OF_RANGE, "at position");
  }
}

// Gaussians that cover the whole image, so that no change of a number changes the list.
void render_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    int64_t images, points;
    bool background, gradient;
    const char* response = "ewa";
  };
  for (const Form& f : {Form{"one", "one camera", 1, 4, true, true},
                        Form{"rays", "responses along rays", 1, 4, true, true, "ray3d"},
                        Form{"rays-two", "along rays, two cameras", 2, 4, false, false, "ray3d"},
                        Form{"two", "two cameras, black behind", 2, 4, false, false},
                        Form{"no-points", "no Gaussians", 1, 0, true, false}})
    s.add(
        {.id = std::string("splat-render-") + f.id,
         .sentence = std::string("splat_render: ") + f.sentence,
         .dtypes = kDTypes,
         .build =
             [=](CaseBuilder& b) {
               const double c = std::cos(0.1), w = std::sin(0.1);
               const int64_t p = f.points;
               op::splat_render n{.width = 20,
                                  .height = 14,
                                  .degree = 1,
                                  .tile = 8,
                                  .max_intersections = 60,
                                  .response = f.response};
               n.means = b.input("means", {p, 3},
                                 Fill::list({0, 0, 3, 0.3, -0.2, 4, -0.4, 0.3, 2.5, 0.2, 0.4, 5}));
               n.quats = b.input(
                   "quats", {p, 4},
                   Fill::list({1, 0, 0, 0, 0.5, 0.5, -0.3, 0.2, 2, -1, 0.5, 3, -1, 0.2, 1, -0.6}));
               n.scales =
                   b.input("scales", {p, 3},
                           Fill::list({1, 1.2, 0.9, 1.3, 1.1, 1.5, 0.8, 1, 1.1, 1.9, 1.8, 1.6}));
               n.opacities = b.input("opacities", {p}, Fill::list({0.5, 0.6, 0.7, 0.55}));
               n.coeffs = b.input("coeffs", {p, 4, 3}, Fill::uniform(-0.3, 0.3));
               std::vector<double> views = {1, 0, 0, 0,   0, 1, 0, 0,    0,  0, 1, 0,   0, 0, 0, 1,
                                            c, 0, w, 0.1, 0, 1, 0, -0.1, -w, 0, c, 0.2, 0, 0, 0, 1};
               views.resize(static_cast<size_t>(16 * f.images));
               n.viewmats = b.input("viewmats", {f.images, 4, 4}, Fill::list(views));
               n.intrinsics = b.input("intrinsics", {f.images, 3, 3},
                                      Fill::list({25, 0, 10, 0, 26, 7, 0, 0, 1}));
               if (f.background)
                 n.background = b.input("background", {f.images, 3}, Fill::uniform(0, 1));
               const Node y = b.add(n);
               b.output("image", y[0]);
               b.scale("image", [&] { return b.number(1); });
               b.output("alpha", y[1]);
               b.scale("alpha", [&] { return b.number(1); });
             },
         .tolerance = scaled(256),
         .gradient = f.gradient,
         .scales = {1}});
}

// ---- along rays

void ray_rows(Suite& s) {
  // Cameras at 4 to 10 standard deviations, and ellipses seen from aside.
  const std::vector<double> rays = {0.02,  -0.01, 0.03, -0.015, 0.01,  0.05, 0,    0.02,
                                    0.01,  0.01,  0.02, 0.02,   -0.02, 0.01, 0.04, 0.015,
                                    -0.02, 0.03,  0.01, 0,      0.06,  0,    0.01, 0.02};
  std::vector<Scene> all = scenes();
  for (size_t k = 0; k < 3; ++k) {
    Scene one = all[k];
    one.rays.assign(rays.begin(), rays.begin() + static_cast<std::ptrdiff_t>(one.conics.size()));
    one.id = k == 0 ? "rays" : k == 1 ? "rays-gray" : "rays-odd-tiles";
    one.sentence = "responses along rays";
    raster_rows(s, one, k == 0);
  }
  // The first pair lets no pixel behind x = 5.2 pass, and the camera is inside the second Gaussian.
  Scene near = all[1];
  near.id = "rays-near", near.sentence = "points behind the camera, and a camera inside a Gaussian";
  near.rays = {0.3125, 0, 0.03, 0.01, 0.02, 0.9, -0.21, 0.3, 0.1, 0, -0.17, 0.02};
  raster_rows(s, near, false);
  Scene none = *std::find_if(all.begin(), all.end(), [](const Scene& scene) {
    return std::string_view(scene.id) == "no-entries";
  });
  none.id = "rays-no-entries", none.rays.assign(12, 0);
  raster_rows(s, none, false);
}

// One row of pixels. The first Gaussian has the form 8·ln 2·x² at a distance x, so with p = -1 its
// power is 8·ln 2·x²/(2·((1 + x)² + 4·x²)). The second one is behind the camera but in the first pixel.
void ray_hand_rows(Suite& s) {
  const double a = 8 * std::log(2.0);
  const double second = 0.8 * std::exp2(-0.5), third = 0.8 * std::exp2(-16.0 / 25);
  s.add({.id = "splat-rasterize-rays-hand",
         .sentence = "splat_rasterize: two Gaussians along rays by hand",
         .dtypes = kDTypes,
         .build =
             [=](CaseBuilder& b) {
               outputs(b,
                       b.add(op::splat_rasterize{
                           .width = 3,
                           .height = 1,
                           .response = "ray3d",
                           .means2d = b.input("means2d", {1, 2, 2}, Fill::list({0.5, 0.5})),
                           .conics = b.input("conics", {1, 2, 6},
                                             Fill::list({a, 0, 1, -1, 0, 4 / a, 0, 0, 0, 1, 0, 0})),
                           .colors = b.input("colors", {1, 2, 1}, Fill::list({1, 2})),
                           .opacities = b.input("opacities", {2}, Fill::list({0.8, 0.5})),
                           .tile_offsets = b.ints("tile_offsets", {1, 1, 1}, {0}, i32),
                           .ids = b.ints("ids", {2}, {0, 1}, i32),
                           .background = b.input("background", {1, 1}, Fill::list({3}))}));
               b.expect("image", {1.3, second + 3 * (1 - second), third + 3 * (1 - third)});
               b.expect("alpha", {0.9, second, third});
               b.expect("last_ids", {1, 0, 0});
             },
         .tolerance = scaled(64)});
}

}  // namespace

void splat_raster_rows(Suite& s) {
  rasterize_rows(s);
  hand_rows(s);
  failure_rows(s);
  render_rows(s);
  ray_rows(s);
  ray_hand_rows(s);
}

}  // namespace tenon::conform
