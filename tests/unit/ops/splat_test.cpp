// SPDX-License-Identifier: Apache-2.0
// Types, refusals and costs. Values and gradients: sdk/conformance/cases/splat*.cpp.
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/splat");

namespace {

op::splat_project projection(Rig& r, DType t = kF32) {
  return {.width = 64,
          .height = 48,
          .means = r(t, {7, 3}),
          .quats = r(t, {7, 4}),
          .scales = r(t, {7, 3}),
          .viewmats = r(t, {2, 4, 4}),
          .intrinsics = r(t, {2, 3, 3})};
}

}  // namespace

TEST_CASE("splat_project: types") {
  Rig r;
  for (const auto& [t, name] : {std::pair(kF32, "f32"), std::pair(kF64, "f64")}) {
    const auto n = projection(r, t);
    CHECK(r.infer(n) == "i32[2,7]");
    CHECK(r.infer(n, 1) == std::string(name) + "[2,7,2]");
    CHECK(r.infer(n, 2) == std::string(name) + "[2,7]");
    CHECK(r.infer(n, 3) == std::string(name) + "[2,7,3]");
    auto rays = n;
    rays.response = "ray3d";
    CHECK(r.infer(rays, 3) == std::string(name) + "[2,7,6]");
  }
}

TEST_CASE("splat_project: refusals") {
  Rig r;
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> texts) {
    auto n = projection(r);
    change(n);
    r.refuses(n, code, texts);
  };
  refuses([](auto& n) { n.width = 0; }, Code::invalid_argument, {"attribute width", "given 0"});
  refuses([](auto& n) { n.height = (1 << 20) + 1; }, Code::invalid_argument,
          {"attribute height", "1 to 1048576"});
  refuses([](auto& n) { n.eps2d = -1; }, Code::invalid_argument, {"attribute eps2d", "given -1"});
  refuses([](auto& n) { n.radius_clip = -0.5; }, Code::invalid_argument,
          {"attribute radius_clip", ">= 0", "given -0.5"});
  refuses([](auto& n) { n.near = 0; }, Code::invalid_argument, {"attribute near", "> 0"});
  refuses([](auto& n) { n.response = "ray"; }, Code::invalid_argument, {"response", "ray3d"});
  refuses([](auto& n) { n.far = 0.01; }, Code::invalid_argument, {"attribute far", "> near"});
  refuses(
      [&](auto& n) {
        n.means = r(kF16, {7, 3});
      },
      Code::dtype_mismatch, {"operand means", "f32 or f64", "f16"});
  refuses(
      [&](auto& n) {
        n.means = r(kF32, {7, 2});
      },
      Code::shape_mismatch, {"operand means", "[7,3]", "[7,2]"});
  refuses(
      [&](auto& n) {
        n.quats = r(kF32, {7, 3});
      },
      Code::shape_mismatch, {"operand quats", "[7,4]", "[7,3]"});
  refuses(
      [&](auto& n) {
        n.scales = r(kF64, {7, 3});
      },
      Code::dtype_mismatch, {"operand scales", "f64"});
  refuses(
      [&](auto& n) {
        n.viewmats = r(kF32, {2, 3, 4});
      },
      Code::shape_mismatch, {"operand viewmats", "[2,4,4]", "[2,3,4]"});
  refuses(
      [&](auto& n) {
        n.intrinsics = r(kF32, {3, 3, 3});
      },
      Code::shape_mismatch, {"operand intrinsics", "[2,3,3]", "[3,3,3]"});
}

TEST_CASE("splat_sh: types and refusals") {
  Rig r;
  op::splat_sh n{.degree = 2,
                 .means = r(kF32, {7, 3}),
                 .viewmats = r(kF32, {2, 4, 4}),
                 .coeffs = r(kF32, {7, 9, 3})};
  CHECK(r.infer(n) == "f32[2,7,3]");
  n.degree = 3;
  r.refuses(n, Code::shape_mismatch, {"operand coeffs", ">= 16", "degree 3", "[7,9,3]"});
  n.degree = 4;
  r.refuses(n, Code::invalid_argument, {"attribute degree", "0 to 3", "given 4"});
  n.degree = 0;
  n.coeffs = r(kF32, {7, 9, 4});
  r.refuses(n, Code::shape_mismatch, {"operand coeffs", "[7,9,4]"});
}

TEST_CASE("splat_bin: types and refusals") {
  Rig r;
  const auto made = [&](DType t) {
    return op::splat_bin{.width = 40,
                         .height = 20,
                         .max_intersections = 9,
                         .radii = r(kI32, {2, 7}),
                         .means2d = r(t, {2, 7, 2}),
                         .depths = r(t, {2, 7})};
  };
  for (const DType t : {kF32, kF64}) {
    CHECK(r.infer(made(t)) == "i64[9]");
    CHECK(r.infer(made(t), 1) == "i32[9]");
    CHECK(r.infer(made(t), 2) == "i64[]");
  }
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> texts) {
    auto n = made(kF32);
    change(n);
    r.refuses(n, code, texts);
  };
  refuses([](auto& n) { n.max_intersections = 0; }, Code::invalid_argument,
          {"attribute max_intersections", "from 1", "given 0"});
  refuses([](auto& n) { n.tile = 0; }, Code::invalid_argument, {"attribute tile", "given 0"});
  refuses([](auto& n) { n.tile = 65; }, Code::invalid_argument, {"attribute tile", "1 to 64"});
  refuses([](auto& n) { n.width = 0; }, Code::invalid_argument, {"attribute width", "given 0"});
  // 2^40 tiles in each image.
  refuses([](auto& n) { n.width = n.height = 1 << 20, n.tile = 1; }, Code::invalid_argument,
          {"2^31 - 1 tiles", "2 images of 1099511627776"});
  refuses(
      [&](auto& n) {
        n.radii = r(kI64, {2, 7});
      },
      Code::dtype_mismatch, {"operand radii", "i32", "i64"});
  refuses(
      [&](auto& n) {
        n.means2d = r(kF16, {2, 7, 2});
      },
      Code::dtype_mismatch, {"operand means2d", "f32 or f64", "f16"});
  refuses(
      [&](auto& n) {
        n.means2d = r(kF32, {2, 7, 3});
      },
      Code::shape_mismatch, {"operand means2d", "[2,7,2]", "[2,7,3]"});
  refuses(
      [&](auto& n) {
        n.depths = r(kF32, {2, 8});
      },
      Code::shape_mismatch, {"operand depths", "[2,7]", "[2,8]"});
}

TEST_CASE("splat_sort: types and refusals") {
  Rig r;
  const auto made = [&] {
    return op::splat_sort{
        .images = 2, .width = 40, .height = 20, .keys = r(kI64, {9}), .ids = r(kI32, {9})};
  };
  CHECK(r.infer(made()) == "i32[9]");
  CHECK(r.infer(made(), 1) == "i32[2,2,3]");
  auto n = made();
  n.images = -1;
  r.refuses(n, Code::invalid_argument, {"attribute images", "given -1"});
  n = made();
  n.ids = r(kI32, {8});
  r.refuses(n, Code::shape_mismatch, {"operand ids", "[9]", "[8]"});
  n = made();
  n.keys = r(kI32, {9});
  r.refuses(n, Code::dtype_mismatch, {"operand keys", "i64", "i32"});
}

namespace {

template <class Op>
Op raster(Rig& r, DType t = kF32) {
  Op n;
  n.width = 40, n.height = 20;
  n.means2d = r(t, {2, 7, 2}), n.conics = r(t, {2, 7, 3}), n.colors = r(t, {2, 7, 5});
  n.opacities = r(t, {7}), n.tile_offsets = r(kI32, {2, 2, 3}), n.ids = r(kI32, {9});
  n.background = r(t, {2, 5});
  return n;
}
op::splat_rasterize_backward raster_backward(Rig& r) {
  auto n = raster<op::splat_rasterize_backward>(r);
  n.dimage = r(kF32, {2, 20, 40, 5}), n.dalpha = r(kF32, {2, 20, 40});
  n.last_ids = r(kI32, {2, 20, 40});
  n.want_dmeans2d = n.want_dconics = n.want_dcolors = n.want_dopacities = n.want_dbackground = true;
  return n;
}

}  // namespace

TEST_CASE("splat_rasterize: types and refusals") {
  Rig r;
  for (const auto& [t, name] : {std::pair(kF32, "f32"), std::pair(kF64, "f64")}) {
    const auto n = raster<op::splat_rasterize>(r, t);
    CHECK(r.infer(n) == std::string(name) + "[2,20,40,5]");
    CHECK(r.infer(n, 1) == std::string(name) + "[2,20,40]");
    CHECK(r.infer(n, 2) == "i32[2,20,40]");
  }
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> texts) {
    auto n = raster<op::splat_rasterize>(r);
    change(n);
    r.refuses(n, code, texts);
  };
  refuses([](auto& n) { n.response = "ray3d"; }, Code::shape_mismatch,
          {"operand conics", "[2,7,6]", "[2,7,3]"});
  refuses(
      [&](auto& n) {
        n.conics = r(kF32, {2, 7, 6});
      },
      Code::shape_mismatch, {"operand conics", "[2,7,3]", "[2,7,6]"});
  refuses([](auto& n) { n.response = "box"; }, Code::invalid_argument, {"response", "box"});
  refuses(
      [&](auto& n) {
        n.colors = r(kF32, {2, 7, 33});
      },
      Code::invalid_argument, {"operand colors", "1 to 32 channels", "[2,7,33]"});
  refuses([&](auto& n) { n.opacities = r(kF32, {2}); }, Code::shape_mismatch,
          {"operand opacities", "[7]", "[2]"});
  refuses(
      [&](auto& n) {
        n.tile_offsets = r(kI32, {2, 3, 2});
      },
      Code::shape_mismatch, {"operand tile_offsets", "[2,2,3]", "[2,3,2]"});
  refuses([&](auto& n) { n.ids = r(kI64, {9}); }, Code::dtype_mismatch,
          {"operand ids", "i32", "i64"});
  refuses(
      [&](auto& n) {
        n.background = r(kF32, {1, 5});
      },
      Code::shape_mismatch, {"operand background", "[2,5]", "[1,5]"});
}

TEST_CASE("splat_rasterize_backward: types and refusals") {
  Rig r;
  auto n = raster_backward(r);
  for (const auto& [k, type] :
       {std::pair(0, "f32[2,7,2]"), std::pair(1, "f32[2,7,3]"), std::pair(2, "f32[2,7,5]"),
        std::pair(3, "f32[7]"), std::pair(4, "f32[2,5]")})
    CHECK(r.infer(n, static_cast<size_t>(k)) == type);
  n.response = "ray3d", n.conics = r(kF32, {2, 7, 6});
  CHECK(r.infer(n, 1) == "f32[2,7,6]");
  n = raster_backward(r);
  n.background = {};
  r.refuses(n, Code::invalid_argument, {"output dbackground", "operand background", "none"});
  n = raster_backward(r);
  n.dimage = r(kF32, {2, 20, 40, 3});
  r.refuses(n, Code::shape_mismatch, {"operand dimage", "[2,20,40,5]", "[2,20,40,3]"});
  n = raster_backward(r);
  n.last_ids = r(kF32, {2, 20, 40});
  r.refuses(n, Code::dtype_mismatch, {"operand last_ids", "i32", "f32"});
}

TEST_CASE("splat_render: types and refusals") {
  Rig r;
  const auto made = [&] {
    return op::splat_render{.width = 40,
                            .height = 20,
                            .degree = 1,
                            .max_intersections = 9,
                            .means = r(kF32, {7, 3}),
                            .quats = r(kF32, {7, 4}),
                            .scales = r(kF32, {7, 3}),
                            .opacities = r(kF32, {7}),
                            .coeffs = r(kF32, {7, 4, 3}),
                            .viewmats = r(kF32, {2, 4, 4}),
                            .intrinsics = r(kF32, {2, 3, 3})};
  };
  CHECK(r.infer(made()) == "f32[2,20,40,3]");
  CHECK(r.infer(made(), 1) == "f32[2,20,40]");
  auto rays = made();
  rays.response = "ray3d";
  CHECK(r.infer(rays) == "f32[2,20,40,3]");
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> texts) {
    auto n = made();
    change(n);
    r.refuses(n, code, texts);
  };
  refuses([](auto& n) { n.response = "3d"; }, Code::invalid_argument, {"response", "ray3d"});
  refuses([](auto& n) { n.max_intersections = 0; }, Code::invalid_argument,
          {"attribute max_intersections", "given 0"});
  refuses([](auto& n) { n.degree = 2; }, Code::shape_mismatch, {"operand coeffs", ">= 9"});
  refuses([](auto& n) { n.near = 0; }, Code::invalid_argument, {"attribute near"});
  refuses(
      [&](auto& n) {
        n.background = r(kF32, {2, 4});
      },
      Code::shape_mismatch, {"operand background", "[2,3]", "[2,4]"});
}

TEST_CASE("splat_rasterize: cost") {
  Rig r;
  // 9 entries of 16 x 16 pixels: 20 operations and 2 for each of 5 channels; backward 60 and 6.
  const auto flops = [&](const auto& n) {
    const NodeId node = r.graph.add(n);
    return product_flops(r.graph, r.graph[node]);
  };
  CHECK(flops(raster<op::splat_rasterize>(r)) == 9 * 256 * 30);
  CHECK(flops(raster_backward(r)) == 9 * 256 * 90);
  // Along rays 8 and 24 more.
  auto rays = raster<op::splat_rasterize>(r);
  rays.response = "ray3d", rays.conics = r(kF32, {2, 7, 6});
  CHECK(flops(rays) == 9 * 256 * 38);
  auto back = raster_backward(r);
  back.response = "ray3d", back.conics = r(kF32, {2, 7, 6});
  CHECK(flops(back) == 9 * 256 * 114);
}

TEST_SUITE_END();
