// SPDX-License-Identifier: Apache-2.0
// splat_project and splat_sh. Gaussians are far from every threshold that decides what is culled, and
// radii from whole numbers, so that all devices agree.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const DTypes kDTypes = {f32, f64};

// ---- scenes

struct Scene {
  std::vector<double> means, quats, scales;
  int64_t points() const { return static_cast<int64_t>(means.size() / 3); }
};

// In front of both cameras, of all shapes and turns; quaternions of any length.
const Scene kFront{
    {0, 0, 2, 0.3, -0.2, 3, -0.5, 0.4, 2.5, 0.6, 0.3, 4, -0.2, -0.5, 3.5, 0.1, 0.1, 6},
    {1,  0,   0, 0,    0.5, 0.5, -0.3, 0.2,  2,   -1,  0.5, 3,
     -1, 0.2, 1, -0.6, 0.1, 0.0, 0.2,  -0.1, 0.3, 0.9, 0.4, 0.7},
    {0.1, 0.2, 0.3, 0.3, 0.02, 0.1, 0.07, 0.11, 0.25, 0.4, 0.3, 0.5, 0.9, 0.01, 0.01, 1.2, 0.8,
     0.6}};
// Large, and beyond the border where x/z or y/z is clamped.
const Scene kAside{
    {4, 0.2, 2, -3.5, 0.3, 2, 0.2, 3.4, 2.2, -0.3, -3.2, 2.1, 4.1, 3.9, 2.3},
    {1, 0.1, 0.2, 0.3, 0.5, 0.5, -0.3, 0.2, 2, -1, 0.5, 3, -1, 0.2, 1, -0.6, 0.7, 0.1, 0.2, 0.1},
    {1.5, 1.2, 1.3, 1.3, 1.1, 1.1, 1.07, 1.11, 1.25, 1.4, 1.3, 1.5, 1.6, 1.9, 1.5}};

// One camera in the origin, or a second one that is turned by 0.3 about y and moved.
Value cameras(CaseBuilder& b, int64_t count, bool fixed = false) {
  const double c = std::cos(0.3), s = std::sin(0.3);
  std::vector<double> all = {1, 0, 0, 0,   0, 1, 0, 0,    0,  0, 1, 0,   0, 0, 0, 1,
                             c, 0, s, 0.2, 0, 1, 0, -0.1, -s, 0, c, 0.5, 0, 0, 0, 1};
  if (count == 1) all.resize(16);
  const Fill fill = Fill::list(all);
  return b.input("viewmats", {count, 4, 4}, fixed ? fill.fixed() : fill);
}
Value intrinsics(CaseBuilder& b, int64_t count) {
  return b.input("intrinsics", {count, 3, 3},
                 Fill::list({50, 0, 32, 0, 55, 24, 0, 0, 1, 60, 0, 30, 0, 58, 25, 0, 0, 1}));
}

op::splat_project projected(CaseBuilder& b, const Scene& s, int64_t count,
                            op::splat_project n = {}) {
  const auto list = [](const std::vector<double>& v) {
    return Fill::list(v.empty() ? std::vector<double>{1} : v);
  };
  if (n.width == 0) n.width = 64, n.height = 48;
  n.means = b.input("means", {s.points(), 3}, list(s.means));
  n.quats = b.input("quats", {s.points(), 4}, list(s.quats));
  n.scales = b.input("scales", {s.points(), 3}, list(s.scales));
  n.viewmats = cameras(b, count);
  n.intrinsics = intrinsics(b, count);
  return n;
}

void outputs(CaseBuilder& b, const Node& y, bool rays = false) {
  b.output("radii", y[0], kExact);
  b.output("means2d", y[1]);
  b.scale("means2d", [&] { return b.number(200); });
  b.output("depths", y[2]);
  b.scale("depths", [&] { return b.number(8); });
  b.output("conics", y[3]);
  b.scale("conics", [&] { return b.number(rays ? 64 : 4); });
}

// ---- rows

void project_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    const Scene& scene;
    int64_t cameras;
    op::splat_project n{};
  };
  for (const Form& f : {Form{"one", "one camera", kFront, 1}, Form{"two", "two cameras", kFront, 2},
                        Form{"sharp", "nothing is added to the variances", kFront, 1, {.eps2d = 0}},
                        Form{"aside", "x/z and y/z are clamped", kAside, 2},
                        Form{"rays", "along rays", kFront, 1, {.response = "ray3d"}},
                        Form{"rays-two", "along rays", kFront, 2, {.response = "ray3d"}},
                        Form{"rays-aside", "along rays", kAside, 2, {.response = "ray3d"}}})
    s.add({.id = std::string("splat-project-") + f.id,
           .sentence = std::string("splat_project: ") + f.sentence,
           .dtypes = kDTypes,
           .build =
               [=](CaseBuilder& b) {
                 outputs(b, b.add(projected(b, f.scene, f.cameras, f.n)), f.n.response != "ewa");
               },
           .tolerance = scaled(256),
           .gradient = true,
           .second_order = f.cameras == 1,
           .scales = {1}});
  for (const auto& [id, points, count] :
       {std::tuple("no-points", 0, 2), std::tuple("no-cameras", 6, 0)})
    s.add({.id = std::string("splat-project-") + id,
           .sentence = "splat_project: an empty dim",
           .dtypes = kDTypes,
           .build =
               [points = points, count = count](CaseBuilder& b) {
                 outputs(b, b.add(projected(b, points ? kFront : Scene{}, count)));
               },
           .tolerance = scaled(256)});
  // Variances 25.3 and 100.3: the larger one's root is 10.015.
  s.add({.id = "splat-project-hand",
         .sentence = "splat_project: an axis-parallel Gaussian by hand",
         .dtypes = kDTypes,
         .build =
             [](CaseBuilder& b) {
               const op::splat_project n{
                   .width = 64,
                   .height = 64,
                   .means = b.input("means", {1, 3}, Fill::list({0, 0, 2})),
                   .quats = b.input("quats", {1, 4}, Fill::list({3, 0, 0, 0})),
                   .scales = b.input("scales", {1, 3}, Fill::list({0.1, 0.2, 0.3})),
                   .viewmats = cameras(b, 1),
                   .intrinsics = b.input("intrinsics", {1, 3, 3},
                                         Fill::list({100, 0, 31, 0, 100, 33, 0, 0, 1}))};
               outputs(b, b.add(n));
               b.expect("radii", {31});
               b.expect("means2d", {31, 33});
               b.expect("depths", {2});
               b.expect("conics", {1 / 25.3, 0, 1 / 100.3});
             },
         .tolerance = scaled(64)});
}

// Two Gaussians at a depth of 2: in the middle, and 0.5 aside.
void ray_hand_rows(Suite& s) {
  s.add(
      {.id = "splat-project-rays-hand",
       .sentence = "splat_project: axis-parallel Gaussians along rays by hand",
       .dtypes = kDTypes,
       .build =
           [](CaseBuilder& b) {
             const op::splat_project n{
                 .width = 64,
                 .height = 64,
                 .response = "ray3d",
                 .means = b.input("means", {2, 3}, Fill::list({0, 0, 2, 0.5, 0, 2})),
                 .quats = b.input("quats", {2, 4}, Fill::list({3, 0, 0, 0})),
                 .scales = b.input("scales", {2, 3}, Fill::list({0.1, 0.2, 0.3})),
                 .viewmats = cameras(b, 1),
                 .intrinsics = b.input("intrinsics", {1, 3, 3},
                                       Fill::list({100, 0, 31, 0, 100, 33, 0, 0, 1}))};
             outputs(b, b.add(n));
             b.expect("radii", {31, 31});
             b.expect("means2d", {31, 33, 56, 33});
             b.expect("depths", {2, 2});
             b.expect("conics", {0.04, 0, 0.01, 0, 0, 0.0225, 0.0256, 0, 0.01, -0.0144, 0, 0.0144});
           },
       .tolerance = scaled(64)});
}

// Only the last Gaussian is visible.
void culled_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    Scene scene;
    op::splat_project n{};
  };
  const std::vector<double> q = {1, 0, 0, 0, 1, 0, 0, 0}, size = {0.1, 0.2, 0.3, 0.1, 0.2, 0.3};
  const std::vector<Form> all = {
      {"behind", "behind the camera", {{0, 0, -2, 0, 0, 2}, q, size}},
      {"in-the-camera", "in the camera", {{0, 0, 0, 0, 0, 2}, q, size}},
      {"near", "nearer than near", {{0, 0, 0.5, 0, 0, 2}, q, size}, {.near = 1}},
      {"far", "farther than far", {{0, 0, 9, 0, 0, 2}, q, size}, {.far = 5}},
      {"left", "left of the image", {{-5, 0, 2, 0, 0, 2}, q, size}},
      {"below", "below the image", {{0, 5, 2, 0, 0, 2}, q, size}},
      {"small", "of a radius up to the clip", {{0, 0, 8, 0, 0, 2}, q, size}, {.radius_clip = 9}},
      {"flat",
       "without any extent",
       {{0, 0, 2, 0, 0, 2}, q, {0, 0, 0, 0.1, 0.2, 0.3}},
       {.eps2d = 0}},
      {"no-turn", "without a rotation", {{0, 0, 2, 0, 0, 2}, {0, 0, 0, 0, 1, 0, 0, 0}, size}},
      {"nan-mean", "NaN in a mean", {{0, kNan, 2, 0, 0, 2}, q, size}},
      {"inf-mean", "an infinite mean", {{kInf, 0, 2, 0, 0, 2}, q, size}},
      {"nan-quat", "NaN in a rotation", {{0, 0, 2, 0, 0, 2}, {1, kNan, 0, 0, 1, 0, 0, 0}, size}},
      {"inf-scale", "an infinite scale", {{0, 0, 2, 0, 0, 2}, q, {0.1, kInf, 0.3, 0.1, 0.2, 0.3}}},
      {"huge",
       "of an extent that overflows",
       {{0, 0, 2, 0, 0, 2}, q, {1e30, 1e30, 1e30, 0.1, 0.2, 0.3}}}};
  for (const Form& f : all) {
    // An f64 does not overflow there, so another device would see the Gaussian.
    const bool huge = std::string_view(f.id) == "huge";
    s.add({.id = std::string("splat-culled-") + f.id,
           .sentence = std::string("splat_project: culled is a Gaussian ") + f.sentence,
           .dtypes = huge ? DTypes{f32} : kDTypes,
           .build =
               [=](CaseBuilder& b) {
                 const Node y = b.add(projected(b, f.scene, 1, f.n));
                 outputs(b, y);
                 b.expect("radii", {0, 17});
                 b.expect("means2d", {0, 0, 32, 24});
                 b.expect("depths", {0, 2});
                 if (f.n.eps2d > 0)
                   b.expect("conics", {0, 0, 0, 1 / 6.55, 0, 1 / 30.55});
                 else
                   b.expect("conics", {0, 0, 0, 1 / 6.25, 0, 1 / 30.25});
               },
           .tolerance = scaled(64),
           .known_only = huge});
  }
  s.add(
      {.id = "splat-culled-camera",
       .sentence = "splat_project: a camera with NaN sees nothing",
       .dtypes = kDTypes,
       .build = [](CaseBuilder& b) {
         op::splat_project n = projected(b, kFront, 1);
         n.intrinsics = b.input("broken", {1, 3, 3}, Fill::list({50, 0, kNan, 0, 55, 24, 0, 0, 1}));
         const Node y = b.add(n);
         b.output("radii", y[0], kExact);
         b.expect("radii", std::vector<double>(6, 0));
         b.output("means2d", y[1]);
         b.expect("means2d", std::vector<double>(12, 0));
       }});
}

void color_rows(Suite& s) {
  for (int64_t degree = 0; degree <= 3; ++degree)
    for (const int64_t count : {1, 2})
      s.add({.id = "splat-sh-" + std::to_string(degree) + (count == 1 ? "" : "-two"),
             .sentence = "splat_sh of degree " + std::to_string(degree),
             .dtypes = kDTypes,
             .build =
                 [=](CaseBuilder& b) {
                   // Coefficients of more degrees than are used.
                   const int64_t terms = (degree + 1) * (degree + 1) + (count == 2 ? 3 : 0);
                   b.output(
                       "y",
                       b.add(op::splat_sh{
                           .degree = degree,
                           .means = b.input("means", {6, 3}, Fill::list(kFront.means)),
                           .viewmats = cameras(b, count),
                           .coeffs = b.input("coeffs", {6, terms, 3}, Fill::uniform(-0.3, 0.4))}));
                   b.scale("y", [&] { return b.number(3); });
                 },
             .tolerance = scaled(64),
             .gradient = true,
             .second_order = degree == 2,
             .scales = {1}});
  // Red has term 2, green term 6, blue a negative term 0.
  s.add({.id = "splat-sh-hand",
         .sentence = "splat_sh: straight ahead, and in the camera's centre",
         .dtypes = kDTypes,
         .build =
             [](CaseBuilder& b) {
               std::vector<double> coeffs(54);
               for (size_t p = 0; p < 2; ++p) {
                 const size_t first = p * 27;
                 coeffs[first + 2 * 3] = 1, coeffs[first + 6 * 3 + 1] = 1, coeffs[first + 2] = -2;
               }
               b.output("y", b.add(op::splat_sh{
                                 .degree = 2,
                                 .means = b.input("means", {2, 3}, Fill::list({0, 0, 2, 0, 0, 0})),
                                 .viewmats = cameras(b, 1),
                                 .coeffs = b.input("coeffs", {2, 9, 3}, Fill::list(coeffs))}));
               b.expect("y", {0.98860251190291992, 1.1307831305050401, 0, 0.5, 0.5, 0});
             },
         .tolerance = ulps(4)});
}

}  // namespace

void splat_cases(Suite& s) {
  s.floor({.joined = 130, .own_joined = 50});
  project_rows(s);
  ray_hand_rows(s);
  culled_rows(s);
  color_rows(s);
  splat_bin_rows(s);
  splat_raster_rows(s);
}

}  // namespace tenon::conform
