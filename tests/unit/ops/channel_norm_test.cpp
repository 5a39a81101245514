// SPDX-License-Identifier: Apache-2.0
// group_norm and layer_norm2d: types, refusals, values by hand, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/channel_norm");

namespace {

Value optional(const std::vector<Value>& in, size_t k) { return k < in.size() ? in[k] : Value{}; }

Function group_norm(int64_t groups, double eps = 1e-5) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::group_norm{.groups = groups,
                                .eps = eps,
                                .x = in[0],
                                .gamma = optional(in, 1),
                                .beta = optional(in, 2)});
  };
}
Value layer_norm2d(Builder& b, const std::vector<Value>& in) {
  return b.add(op::layer_norm2d{.x = in[0], .gamma = optional(in, 1), .beta = optional(in, 2)});
}

}  // namespace

TEST_CASE("group_norm, layer_norm2d: types of results and statistics") {
  Rig r;
  const Value x = r(kBF16, {2, 6, 3, 4}), gamma = r(kF32, {6}), narrow = r(kBF16, {6});
  CHECK(r.infer(op::group_norm{.groups = 3, .x = x, .gamma = gamma, .want_mean = true}) ==
        "bf16[2,6,3,4]");
  CHECK(r.infer(op::group_norm{.groups = 3, .x = x, .want_mean = true}, 1) == "f32[2,3]");
  CHECK(r.infer(op::group_norm{.x = r(kF64, {5, 4}), .want_inv_std = true}, 2) == "f64[5,1]");
  CHECK(r.infer(op::layer_norm2d{.x = x, .beta = narrow, .want_inv_std = true}, 2) ==
        "f32[2,1,3,4]");
  const op::group_norm_backward back{
      .groups = 2, .dy = x, .x = x, .gamma = gamma, .want_dgamma = true};
  CHECK(r.infer(back, 1) == "f32[6]");
  CHECK(r.infer(op::layer_norm2d_backward{.dy = x, .x = x, .want_dbeta = true}, 2) == "bf16[6]");
}

TEST_CASE("group_norm, layer_norm2d: refusals") {
  Rig r;
  const Value x = r(kF16, {2, 6, 3, 4});
  r.refuses(op::group_norm{.groups = 4, .x = x}, Code::invalid_argument, {"groups", "6", "4"});
  r.refuses(op::group_norm{.groups = 0, .x = x}, Code::invalid_argument, {"groups", "0"});
  r.refuses(op::group_norm{.x = r(kF16, {6})}, Code::shape_mismatch, {"x", "rank 2", "f16[6]"});
  r.refuses(op::group_norm{.x = r(kI32, {2, 6})}, Code::dtype_mismatch, {"x", "i32[2,6]"});
  r.refuses(op::group_norm{.eps = NAN, .x = x}, Code::invalid_argument, {"eps", "nan"});
  r.refuses(op::group_norm{.x = x, .beta = r(kF16, {3})}, Code::shape_mismatch,
            {"beta", "[6]", "f16[3]"});
  r.refuses(op::layer_norm2d{.x = r(kF16, {2, 6, 3})}, Code::shape_mismatch, {"x", "rank 4"});
  r.refuses(op::layer_norm2d{.x = x, .gamma = r(kBF16, {6})}, Code::dtype_mismatch,
            {"gamma", "f16 or f32", "bf16[6]"});
  r.refuses(
      op::group_norm_backward{
          .groups = 2, .dy = x, .x = x, .mean = r(kF32, {2, 3}), .want_dx = true},
      Code::shape_mismatch, {"mean", "[2,2]", "f32[2,3]"});
  r.refuses(op::layer_norm2d_backward{.dy = r(kF16, {2, 6, 3}), .x = x, .want_dx = true},
            Code::shape_mismatch, {"dy", "[2,6,3,4]"});
}

TEST_CASE("group_norm: values by hand") {
  // Groups of two channels of two pixels: {1, 3, 5, 7} and {2, 2, 2, 2}.
  const Tensor x = tensor(kF64, {1, 4, 2}, {1, 3, 5, 7, 2, 2, 2, 2});
  const Tensor y = forward(group_norm(2, 0.2),
                           {x, tensor(kF64, {4}, {1, 2, 3, 4}), tensor(kF64, {4}, {0, 0, 0, 9})});
  const double r = 1 / std::sqrt(5.2);
  const std::vector<double> want = {-3 * r, -r, 2 * r, 6 * r, 0, 0, 9, 9};
  for (size_t k = 0; k < 8; ++k) CHECK(y[k] == doctest::Approx(want[k]));
}

TEST_CASE("layer_norm2d: is layer_norm with the channels last") {
  const std::vector<Tensor> at = {noise({2, 5, 2, 3}, 3, 1), noise({5}, 1, 2), noise({5}, 1, 3)};
  const auto last = [](Builder& b, const std::vector<Value>& in) -> Value {
    const Value rows = b.transpose(in[0], {0, 2, 3, 1});
    const Value y = b.add(op::layer_norm{.eps = 1e-6, .x = rows, .gamma = in[1], .beta = in[2]});
    return b.transpose(y, {0, 3, 1, 2});
  };
  const Tensor got = forward(layer_norm2d, at), want = forward(last, at);
  for (size_t k = 0; k < want.data.size(); ++k)
    CHECK(got[k] == doctest::Approx(want[k]).epsilon(1e-12));
}

TEST_CASE("group_norm, layer_norm2d: gradients at two scales") {
  for (double scale : {0.05, 4.0}) {
    CAPTURE(scale);
    for (int64_t groups : {1, 2, 4}) {
      CAPTURE(groups);
      const std::vector<Tensor> at = {noise({2, 4, 3}, scale, 1), noise({4}, 1, 2),
                                      noise({4}, 1, 3)};
      CHECK(gradient_error(group_norm(groups), at, {}, 1e-6 * scale) < 2e-6);
      CHECK(gradient_error(group_norm(groups), {at[0]}, {}, 1e-6 * scale) < 2e-6);
      CHECK(gradient_error(group_norm(groups), at, {false, true, false}) < 2e-6);
    }
    const std::vector<Tensor> at = {noise({2, 4, 2, 2}, scale, 1), noise({4}, 1, 2),
                                    noise({4}, 1, 3)};
    CHECK(gradient_error(layer_norm2d, at, {}, 1e-6 * scale) < 2e-6);
    CHECK(gradient_error(layer_norm2d, {at[0]}, {}, 1e-6 * scale) < 2e-6);
  }
}

TEST_CASE("group_norm, layer_norm2d: gradients of gradients and of the statistics") {
  const std::vector<Tensor> at = {noise({1, 4, 2, 1}, 1, 1), noise({4}, 1, 2), noise({4}, 1, 3)};
  CHECK(second_order_error(group_norm(2), at) < 1e-5);
  CHECK(second_order_error(layer_norm2d, at) < 1e-5);
  for (size_t stat : {1, 2}) {
    CAPTURE(stat);
    const auto group = [=](Builder& b, const std::vector<Value>& in) -> Value {
      const Results r =
          b.add(op::group_norm{.groups = 2, .x = in[0], .want_mean = true, .want_inv_std = true});
      return b.times(b.reshape(r[0], {1, 2, 4}), b.reshape(r[stat], {1, 2, 1}));
    };
    const auto pixel = [=](Builder& b, const std::vector<Value>& in) -> Value {
      const Results r =
          b.add(op::layer_norm2d{.x = in[0], .want_mean = true, .want_inv_std = true});
      return b.times(r[0], r[stat]);
    };
    CHECK(gradient_error(group, {at[0]}) < 2e-6);
    CHECK(gradient_error(pixel, {at[0]}) < 2e-6);
  }
}

TEST_CASE("group_norm, layer_norm2d: half parameters get sums made in f32") {
  // 600 ones: 600 in bf16, where a bf16 sum stops at 256.
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::group_norm_backward{.dy = in[0], .x = in[0], .want_dbeta = true})[2];
  };
  const Tensor dbeta = forward(f, {tensor(kBF16, {2, 1, 300}, std::vector<double>(600, 1))});
  CHECK(dbeta.data == std::vector<double>{600});
}

TEST_SUITE_END();
