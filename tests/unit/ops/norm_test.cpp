// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm, with and without residual: types, refusals, gradients at two scales.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/norm");

namespace {

Value optional(const std::vector<Value>& in, size_t k) { return k < in.size() ? in[k] : Value{}; }

Function layer_norm(int64_t axis = -1, double eps = 1e-5) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::layer_norm{
        .axis = axis, .eps = eps, .x = in[0], .gamma = optional(in, 1), .beta = optional(in, 2)});
  };
}
Function rms_norm(int64_t axis = -1, double eps = 1e-5) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::rms_norm{
        .axis = axis, .eps = eps, .x = in[0], .gamma = in[1], .beta = optional(in, 2)});
  };
}
const Shape kShape{3, 2, 5};

}  // namespace

TEST_CASE("layer_norm, rms_norm: types of results and statistics") {
  Rig r;
  const Value x = r(kBF16, {2, 3, 4}), gamma = r(kF32, {3, 4}), narrow = r(kBF16, {4});
  CHECK(r.infer(op::layer_norm{.axis = 1, .x = x, .gamma = gamma, .want_mean = true}) ==
        "bf16[2,3,4]");
  CHECK(r.infer(op::layer_norm{.x = x, .want_mean = true}, 1) == "f32[2,3,1]");
  CHECK(r.infer(op::layer_norm{.axis = 1, .x = x, .want_inv_std = true}, 2) == "f32[2,1,1]");
  CHECK(r.infer(op::rms_norm{.x = x, .gamma = narrow, .want_inv_rms = true}, 1) == "f32[2,3,1]");
  CHECK(r.infer(op::residual_rms_norm{.x = x, .residual = x, .gamma = narrow, .want_sum = true},
                1) == "bf16[2,3,4]");
  CHECK(r.infer(op::residual_layer_norm{.x = x, .residual = x, .want_inv_std = true}, 3) ==
        "f32[2,3,1]");
  const op::layer_norm_backward back{
      .axis = 1, .dy = x, .x = x, .gamma = gamma, .want_dgamma = true};
  CHECK(r.infer(back, 1) == "f32[3,4]");
  CHECK(r.infer(op::rms_norm_backward{.dy = x, .x = x, .gamma = narrow, .want_dbeta = true}, 2) ==
        "bf16[4]");
  CHECK(r.infer(op::layer_norm{.x = r(kF64, {2, 0}), .want_mean = true}, 1) == "f64[2,1]");
}

TEST_CASE("layer_norm, rms_norm: refusals") {
  Rig r;
  const Value x = r(kF16, {2, 4}), gamma = r(kF16, {4});
  r.refuses(op::layer_norm{.eps = -1, .x = x}, Code::invalid_argument, {"eps", "-1"});
  r.refuses(op::rms_norm{.eps = NAN, .x = x, .gamma = gamma}, Code::invalid_argument,
            {"eps", "nan"});
  r.refuses(op::layer_norm{.eps = INFINITY, .x = x}, Code::invalid_argument, {"eps", "inf"});
  r.refuses(op::layer_norm{.axis = -3, .x = x}, Code::invalid_argument, {"axis -3"});
  r.refuses(op::layer_norm{.x = r(kI32, {4})}, Code::dtype_mismatch, {"x", "i32[4]"});
  r.refuses(op::layer_norm{.x = x, .gamma = r(kF16, {2, 4})}, Code::shape_mismatch,
            {"gamma", "[4]", "f16[2,4]"});
  r.refuses(op::rms_norm{.x = x, .gamma = gamma, .beta = r(kBF16, {4})}, Code::dtype_mismatch,
            {"beta", "f16 or f32", "bf16[4]"});
  r.refuses(op::residual_rms_norm{.x = x, .residual = r(kF16, {4}), .gamma = gamma},
            Code::shape_mismatch, {"residual", "[2,4]", "f16[4]"});
  r.refuses(op::residual_layer_norm{.x = x, .residual = x, .bias = r(kF16, {2})},
            Code::shape_mismatch, {"bias", "[4]"});
  r.refuses(
      op::rms_norm_backward{
          .dy = x, .x = x, .gamma = gamma, .inv_rms = r(kF16, {2, 1}), .want_dx = true},
      Code::dtype_mismatch, {"inv_rms", "f32", "f16[2,1]"});
  r.refuses(op::layer_norm_backward{.dy = x, .x = x, .mean = r(kF32, {2}), .want_dx = true},
            Code::shape_mismatch, {"mean", "[2,1]", "f32[2]"});
  r.refuses(op::rms_norm_backward{.dy = x, .x = x, .gamma = gamma, .dsum = gamma, .want_dx = true},
            Code::shape_mismatch, {"dsum", "[2,4]"});
}

TEST_CASE("layer_norm: gradients at two scales, on one and two axes") {
  for (double scale : {0.05, 4.0})
    for (int64_t axis : {-1, 1, 0}) {
      CAPTURE(scale);
      CAPTURE(axis);
      const Shape dims(kShape.dims().subspan(static_cast<size_t>(axis < 0 ? 2 : axis)));
      const std::vector<Tensor> at = {noise(kShape, scale, 1), noise(dims, 1, 2),
                                      noise(dims, 1, 3)};
      CHECK(gradient_error(layer_norm(axis), at, {}, 1e-6 * scale) < 2e-6);
      CHECK(gradient_error(layer_norm(axis), {at[0]}, {}, 1e-6 * scale) < 2e-6);
      CHECK(gradient_error(layer_norm(axis), at, {false, true, false}) < 2e-6);
    }
}

TEST_CASE("rms_norm: gradients at three scales") {
  for (double scale : {0.05, 1.0, 4.0})
    for (int64_t axis : {-1, 1}) {
      CAPTURE(scale);
      CAPTURE(axis);
      const Shape dims(kShape.dims().subspan(static_cast<size_t>(axis < 0 ? 2 : axis)));
      const std::vector<Tensor> at = {noise(kShape, scale, 1), noise(dims, 1, 2),
                                      noise(dims, 1, 3)};
      CHECK(gradient_error(rms_norm(axis), at, {}, 1e-6 * scale) < 2e-6);
      CHECK(gradient_error(rms_norm(axis), {at[0], at[1]}, {}, 1e-6 * scale) < 2e-6);
    }
}

TEST_CASE("rms_norm: with eps 0 the gradient is orthogonal to x") {
  const Tensor x = noise({1, 7}, 3, 1);
  const Tensor dx = gradients(rms_norm(-1, 0), {x, noise({7}, 1, 2)}, {true, false})[0];
  double dot = 0;
  for (size_t k = 0; k < 7; ++k) dot += dx[k] * x[k];
  CHECK(std::fabs(dot) < 1e-12);
}

TEST_CASE("layer_norm, rms_norm: gradients of gradients") {
  const std::vector<Tensor> at = {noise({2, 4}, 1, 1), noise({4}, 1, 2), noise({4}, 1, 3)};
  CHECK(second_order_error(rms_norm(), at) < 1e-5);
  CHECK(second_order_error(layer_norm(), at) < 1e-5);
}

TEST_CASE("norms: gradients through the statistics") {
  const std::vector<Tensor> at = {noise(kShape, 1, 1), noise({5}, 1, 2)};
  const auto layer = [](Builder& b, const std::vector<Value>& in) -> Value {
    const Results r =
        b.add(op::layer_norm{.x = in[0], .gamma = in[1], .want_mean = true, .want_inv_std = true});
    return b.plus(b.times(r[0], r[1]), r[2]);
  };
  CHECK(gradient_error(layer, at) < 2e-6);
  const auto rms = [](Builder& b, const std::vector<Value>& in) -> Value {
    const Results r = b.add(op::rms_norm{.x = in[0], .gamma = in[1], .want_inv_rms = true});
    return b.times(r[0], r[1]);
  };
  CHECK(gradient_error(rms, at) < 2e-6);
  const auto mean = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::layer_norm{.x = in[0], .gamma = in[1], .want_mean = true})[1];
  };
  CHECK(gradient_error(mean, at, {true, false}) < 2e-6);
}

TEST_CASE("residual norms: gradients with either output or both, first and second order") {
  const std::vector<Tensor> at = {noise({2, 5}, 1, 1), noise({2, 5}, 1, 2), noise({5}, 1, 3),
                                  noise({5}, 1, 4), noise({5}, 1, 5)};
  for (int use : {1, 2, 3}) {
    CAPTURE(use);
    const auto combine = [=](Builder& b, Value y, Value sum) {
      return use == 1 ? y : use == 2 ? sum : b.times(y, sum);
    };
    const auto layer = [=](Builder& b, const std::vector<Value>& in) {
      const Results r = b.add(op::residual_layer_norm{.x = in[0],
                                                      .residual = in[1],
                                                      .bias = in[2],
                                                      .gamma = in[3],
                                                      .beta = in[4],
                                                      .want_sum = true});
      return combine(b, r[0], r[1]);
    };
    const auto rms = [=](Builder& b, const std::vector<Value>& in) {
      const Results r = b.add(op::residual_rms_norm{.x = in[0],
                                                    .residual = in[1],
                                                    .bias = in[2],
                                                    .gamma = in[3],
                                                    .beta = in[4],
                                                    .want_sum = true});
      return combine(b, r[0], r[1]);
    };
    const std::vector<bool> reached = {true, true, true, use != 2, use != 2};
    CHECK(gradient_error(layer, at, reached) < 2e-6);
    CHECK(gradient_error(rms, at, reached) < 2e-6);
    CHECK(gradient_error(rms, at, {false, false, true, false, false}) < 2e-6);
    if (use == 3) CHECK(second_order_error(rms, at) < 1e-5);
  }
}

TEST_CASE("layer_norm: f32 rows far from zero keep their digits") {
  for (double mean : {4096.0, 1e4}) {
    Tensor x = noise({1, 64}, 1.7, 1);
    for (double& v : x.data) v = static_cast<float>(v + mean);
    const Tensor exact = forward(layer_norm(), {x});
    const Tensor y = forward(layer_norm(), {tensor(kF32, {1, 64}, x.data)});
    for (size_t k = 0; k < 64; ++k) CHECK(std::fabs(y[k] - exact[k]) < 1e-6);
  }
}

TEST_CASE("layer_norm, rms_norm: constant, empty and poisoned rows") {
  const Tensor constant = tensor(kF32, {1, 3}, {0.1, 0.1, 0.1});
  for (double v : forward(layer_norm(), {constant}).data) CHECK(v == 0);
  CHECK(forward(layer_norm(), {tensor(kF32, {2, 0}, {})}).data.empty());
  const auto g = gradients(rms_norm(), {tensor(kF64, {0, 2}, {}), noise({2}, 1, 1)}, {true, true});
  CHECK(g[1].data == std::vector<double>{0, 0});
  const Tensor y = forward(layer_norm(), {tensor(kF32, {2, 2}, {1, INFINITY, 1, 3})});
  CHECK(std::isnan(y[0]));
  CHECK(std::isnan(y[1]));
  CHECK(y[3] == doctest::Approx(1).epsilon(1e-4));
}

TEST_CASE("norms: half rows normalize the sum before it is rounded") {
  // 256 + 1 is 256 in bf16, but the statistics see 257.
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::residual_rms_norm{.eps = 0, .x = in[0], .residual = in[1], .gamma = in[2]});
  };
  const Tensor y = forward(f, {tensor(kBF16, {1, 2}, {256, 256}), tensor(kBF16, {1, 2}, {1, -1}),
                               tensor(kF32, {2}, {256, 256})});
  CHECK(y[0] == tensor(kBF16, {1}, {256 * 257 / std::sqrt((257. * 257 + 255. * 255) / 2)})[0]);
  CHECK(y[0] > y[1]);
}
