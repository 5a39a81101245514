// SPDX-License-Identifier: Apache-2.0
// Gaussian splats by value, where the rows of the kit do not reach: the capacity of the list of
// entries, Gaussians that no camera sees, refused derivatives, and equal bits in each run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

template <class T>
Tensor tensor(tenon_dtype dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
  Tensor t(TensorType(dtype, std::move(dims)));
  std::ranges::copy(values, t.values<T>().begin());
  return t;
}
Tensor floats(std::vector<int64_t> dims, const std::vector<float>& values) {
  return tensor<float>(f32, std::move(dims), values);
}

// splat_render of `points` Gaussians by one camera, and the gradients of its weighed image.
struct Render {
  Graph g{"render"};
  Value image{};
  std::vector<Value> wrt{};
  Value loss{};

  explicit Render(int64_t points) {
    op::splat_render n{.width = 50, .height = 36, .degree = 1, .max_intersections = 20 * points};
    n.means = g.input("means", {f32, {points, 3}});
    n.quats = g.input("quats", {f32, {points, 4}});
    n.scales = g.input("scales", {f32, {points, 3}});
    n.opacities = g.input("opacities", {f32, {points}});
    n.coeffs = g.input("coeffs", {f32, {points, 4, 3}});
    n.viewmats = g.input("viewmats", {f32, {1, 4, 4}});
    n.intrinsics = g.input("intrinsics", {f32, {1, 3, 3}});
    image = g.add(n)[0];
    wrt = {n.means, n.quats, n.scales, n.opacities, n.coeffs};
    const Value weighed = g.add(
        op::binary{.kind = "mul", .a = image, .b = g.input("weights", {f32, {1, 36, 50, 3}})});
    loss = g.add(op::reduce{.kind = "sum", .x = weighed});
  }
  void give_gradients() {
    const std::vector<Value> d = g.gradients(loss, wrt);
    const char* const names[] = {"d_means", "d_quats", "d_scales", "d_opacities", "d_coeffs"};
    for (size_t k = 0; k < d.size(); ++k) g.output(names[k], d[k]);
    g.output("image", image);
  }
};

// Random Gaussians in front of the camera, behind the given ones.
Inputs render_inputs(int64_t points, const std::vector<float>& first_means = {}) {
  const auto random = [](uint64_t key, std::vector<int64_t> dims, float scale, float shift) {
    Tensor t(TensorType(f32, std::move(dims)));
    auto values = t.values<float>();
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scale * static_cast<float>(noise(key, i)) + shift;
    return t;
  };
  Inputs out = {{"means", random(1, {points, 3}, 0.8f, 0)},
                {"quats", random(2, {points, 4}, 1, 0)},
                {"scales", random(3, {points, 3}, 0.05f, 0.1f)},
                {"opacities", random(4, {points}, 0.4f, 0.5f)},
                {"coeffs", random(5, {points, 4, 3}, 0.3f, 0)},
                {"viewmats", floats({1, 4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 0, 0, 0, 1})},
                {"intrinsics", floats({1, 3, 3}, {60, 0, 25, 0, 60, 18, 0, 0, 1})},
                {"weights", random(6, {1, 36, 50, 3}, 1, 0)}};
  std::ranges::copy(first_means, out[0].second.values<float>().begin());
  return out;
}

}  // namespace

TEST_SUITE("splats") {
  TEST_CASE("splats: more entries than the capacity are an error") {
    // 1 + 4 + 1 entries.
    const Inputs inputs = {{"radii", tensor<int32_t>(i32, {1, 3}, {3, 2, 1})},
                           {"means", floats({1, 3, 2}, {5, 5, 16, 16, 30, 30})},
                           {"depths", floats({1, 3}, {1, 2, 3})}};
    for (const std::string& device : control_devices())
      for (const int64_t capacity : {5, 6}) {
        CAPTURE(device);
        Graph g("bin");
        const Node y = g.add(op::splat_bin{.width = 32,
                                           .height = 32,
                                           .max_intersections = capacity,
                                           .radii = g.input("radii", {i32, {1, 3}}),
                                           .means2d = g.input("means", {f32, {1, 3, 2}}),
                                           .depths = g.input("depths", {f32, {1, 3}})});
        g.output("ids", y[1]);
        if (capacity == 6) {
          const Tensor ids = run_once(device, g, inputs).at("ids");
          CHECK(std::ranges::equal(ids.values<int32_t>(), std::vector<int32_t>{0, 1, 1, 1, 1, 2}));
          continue;
        }
        tenon_code code = TENON_OK;
        const std::string text = error_of([&] { run_once(device, g, inputs); }, &code);
        // The adversary leaves the op to the cpu plugin.
        if (device.starts_with("template")) {
          CHECK(code == TENON_INDEX_OUT_OF_RANGE);
          continue;
        }
        CHECK(code == TENON_OUT_OF_MEMORY);
        CHECK(says(text, {"splat_bin", "max_intersections", "expected at least", "6", "given 5"}));
      }
  }

  TEST_CASE("splats: Gaussians that no camera sees change nothing and have no gradient") {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Render r(6);
      r.give_gradients();
      const auto wanted = run_once(device, r.g, render_inputs(6, {0, 0, -9}));  // behind the camera
      const Tensor& image = wanted.at("image");
      CHECK(*std::ranges::max_element(image.values<float>()) > 0.1f);
      for (const std::vector<float>& mean :
           {std::vector<float>{kNan, 0, 0}, {0, 3e38f, 0}, {0, 0, -3}, {1e6f, 0, 0}}) {
        const auto got = run_once(device, r.g, render_inputs(6, mean));
        for (const auto& [name, value] : got) {
          CAPTURE(name);
          const auto x = value.values<float>(), y = wanted.at(name).values<float>();
          CHECK(std::ranges::equal(x, y));
          if (name == "d_means") CHECK((x[0] == 0 && x[1] == 0 && x[2] == 0));
        }
      }
    }
  }

  TEST_CASE("splats: a conic that is not finite, and a camera that is not, poison no gradient") {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph g("conic");
      op::splat_rasterize n{.width = 3, .height = 1};
      n.means2d = g.input("means", {f32, {1, 2, 2}});
      n.conics = g.input("conics", {f32, {1, 2, 3}});
      n.colors = g.input("colors", {f32, {1, 2, 1}});
      n.opacities = g.input("opacities", {f32, {2}});
      n.tile_offsets = g.input("offsets", {i32, {1, 1, 1}});
      n.ids = g.input("ids", {i32, {2}});
      const Value loss = g.add(op::reduce{.kind = "sum", .x = g.add(n)[0]});
      g.output("d", g.gradients(loss, {n.means2d})[0]);
      const Tensor d = run_once(device, g,
                                {{"means", floats({1, 2, 2}, {0.5f, 0.5f, 0.5f, 0.5f})},
                                 {"conics", floats({1, 2, 3}, {1, 0, kInf, 1, 0, 1})},
                                 {"colors", floats({1, 2, 1}, {1, 2})},
                                 {"opacities", floats({2}, {0.5f, 0.6f})},
                                 {"offsets", tensor<int32_t>(i32, {1, 1, 1}, {0})},
                                 {"ids", tensor<int32_t>(i32, {2}, {0, 1})}})
                           .at("d");
      const auto x = d.values<float>();
      CHECK((x[0] == 0 && x[1] == 0 && std::isfinite(x[2]) && std::isfinite(x[3])));

      Render r(6);
      r.give_gradients();
      Inputs inputs = render_inputs(6);
      inputs[5].second.values<float>()[0] = kInf;  // viewmats
      for (const auto& [name, value] : run_once(device, r.g, inputs)) {
        CAPTURE(name);
        CHECK(std::ranges::all_of(value.values<float>(), [](float v) { return v == 0; }));
      }
    }
  }

  TEST_CASE("splats: each run has the same bits") {
    Render r(400);
    r.give_gradients();
    const Inputs inputs = render_inputs(400);
    const auto first = run_once("cpu:0", r.g, inputs), second = run_once("cpu:0", r.g, inputs);
    for (const auto& [name, value] : first)
      CHECK(std::memcmp(value.data(), second.at(name).data(), value.size()) == 0);
  }

  TEST_CASE("splats: second and forward derivatives are refused by name") {
    tenon_code code = TENON_OK;
    const std::string second = error_of(
        [&] {
          Render r(3);
          const Value d = r.g.gradients(r.loss, {r.wrt[0]})[0];
          const Value sum = r.g.add(op::reduce{.kind = "sum_square", .x = d});
          r.g.output("d", r.g.gradients(sum, {r.wrt[0]})[0]);
          run_once("cpu:0", r.g, render_inputs(3));
        },
        &code);
    CHECK(code == TENON_UNSUPPORTED);
    CHECK(says(second, {"splat_rasterize_backward", "has no gradient"}));
    const std::string forward = error_of(
        [&] {
          Render r(3);
          const Value t = r.g.input("t", {f32, {3, 3}});
          r.g.output("d", r.g.jvp({r.image}, {r.wrt[0]}, {t})[0]);
          Inputs inputs = render_inputs(3);
          inputs.emplace_back("t", floats({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}));
          run_once("cpu:0", r.g, inputs);
        },
        &code);
    CHECK(code == TENON_UNSUPPORTED);
    CHECK(says(forward, {"splat_rasterize_backward", "has no gradient"}));
  }
}
