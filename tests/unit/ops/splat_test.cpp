// SPDX-License-Identifier: Apache-2.0
// splat_project and splat_sh: types and refusals. Values and gradients: sdk/conformance/cases/splat.cpp.
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

TEST_SUITE_END();
