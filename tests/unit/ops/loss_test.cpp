// SPDX-License-Identifier: Apache-2.0
// Losses: types, refusals, gradients at kinks. Values: sdk/conformance/cases/loss.cpp.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/loss");

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Of x and target, and of weights if there are more operands.
template <class Op>
Function loss(Op n) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    Op full = n;
    full.x = in[0], full.target = in[1];
    if constexpr (requires { full.weight; })
      if (in.size() > 2) full.weight = in[2];
    return b.add(full);
  };
}
// The gradient of the mean for x.
template <class Op>
std::vector<double> slope(Op n, std::vector<double> x, std::vector<double> target) {
  const auto size = static_cast<Dim>(x.size());
  return gradients(loss(n),
                   {tensor(kF64, {size}, std::move(x)), tensor(kF64, {size}, std::move(target))},
                   {true, false})[0]
      .data;
}

}  // namespace

TEST_CASE("loss: types") {
  Rig r;
  const Value x = r(kBF16, {4, 7}), y = r(kBF16, {4, 7});
  CHECK(r.infer(op::mse_loss{.x = x, .target = y}) == "f32[]");
  CHECK(r.infer(op::l1_loss{.reduction = "none", .x = x, .target = y}) == "f32[4,7]");
  CHECK(r.infer(op::kl_div{.reduction = "batchmean", .x = x, .target = y}) == "f32[]");
  CHECK(r.infer(op::binary_cross_entropy_with_logits{
            .x = x, .target = y, .weight = r(kBF16, {4, 1}), .pos_weight = r(kBF16, {7})}) ==
        "f32[]");
  CHECK(r.infer(op::nll_loss{.reduction = "none", .x = x, .labels = r(kI32, {4})}) == "f32[4]");
  CHECK(r.infer(op::ctc_loss{.reduction = "none",
                             .x = r(kF64, {9, 2, 5}),
                             .labels = r(kI32, {2, 3}),
                             .x_lengths = r(kI64, {2}),
                             .label_lengths = r(kI32, {2})}) == "f64[2]");
}

TEST_CASE("loss: refusals") {
  Rig r;
  const Value x = r(kF32, {4, 7}), y = r(kF32, {4, 7});
  r.refuses(op::mse_loss{.reduction = "batchmean", .x = x, .target = y}, Code::invalid_argument,
            {"reduction", "none sum mean", "batchmean"});
  r.refuses(op::mse_loss{.x = r(kI32, {4}), .target = r(kI32, {4})}, Code::dtype_mismatch,
            {"operand x", "i32[4]"});
  r.refuses(op::l1_loss{.x = x, .target = r(kF16, {4, 7})}, Code::dtype_mismatch,
            {"target", "f16"});
  r.refuses(op::l1_loss{.x = x, .target = r(kF32, {7})}, Code::shape_mismatch,
            {"operand target", "[4,7]", "[7]"});
  r.refuses(op::smooth_l1_loss{.beta = -1, .x = x, .target = y}, Code::invalid_argument,
            {"attribute beta", ">= 0", "-1"});
  r.refuses(op::huber_loss{.delta = 0, .x = x, .target = y}, Code::invalid_argument,
            {"attribute delta", "> 0", "given 0"});
  r.refuses(op::huber_loss{.delta = kInf, .x = x, .target = y}, Code::invalid_argument,
            {"attribute delta", "inf"});
  r.refuses(op::binary_cross_entropy{.x = x, .target = y, .weight = r(kF32, {4})},
            Code::shape_mismatch, {"operand weight", "broadcasts to [4,7]", "f32[4]"});
  r.refuses(op::binary_cross_entropy_with_logits{.x = x, .target = y, .pos_weight = r(kF64, {7})},
            Code::dtype_mismatch, {"pos_weight", "f64"});
  r.refuses(op::nll_loss{.x = x, .labels = r(kI32, {7})}, Code::shape_mismatch,
            {"operand labels", "[4]", "i32[7]"});
  r.refuses(op::nll_loss{.x = x, .labels = r(kI32, {4}), .weight = r(kF32, {4})},
            Code::shape_mismatch, {"operand weight", "[7]"});
  r.refuses(op::nll_loss{.ignore_index = int64_t{1} << 40, .x = x, .labels = r(kI32, {4})},
            Code::invalid_argument, {"attribute ignore_index", "i32"});

  const auto ctc = [&] {
    return op::ctc_loss{.x = r(kF32, {9, 2, 5}),
                        .labels = r(kI32, {2, 3}),
                        .x_lengths = r(kI64, {2}),
                        .label_lengths = r(kI32, {2})};
  };
  op::ctc_loss n = ctc();
  n.x = x;
  r.refuses(n, Code::shape_mismatch, {"operand x", "rank 3"});
  n = ctc(), n.labels = r(kI32, {3, 3});
  r.refuses(n, Code::shape_mismatch, {"operand labels", "[2,3]", "[3,3]"});
  n = ctc(), n.labels = r(kF32, {2, 3});
  r.refuses(n, Code::dtype_mismatch, {"operand labels", "f32[2,3]"});
  n = ctc(), n.label_lengths = r(kI32, {3});
  r.refuses(n, Code::shape_mismatch, {"operand label_lengths", "[2]", "i32[3]"});
  n = ctc(), n.x_lengths = r(kF32, {2});
  r.refuses(n, Code::dtype_mismatch, {"operand x_lengths", "f32[2]"});
  n = ctc(), n.blank = 5;
  r.refuses(n, Code::invalid_argument, {"attribute blank", "5 classes", "given 5"});
}

TEST_CASE("loss: gradients at kinks and at infinity") {
  using Row = std::vector<double>;
  CHECK(slope(op::l1_loss{.reduction = "sum"}, {0, 2, -2}, {0, 0, 0}) == Row{0, 1, -1});
  CHECK(slope(op::smooth_l1_loss{.reduction = "sum"}, {kInf, -kInf, 0.5, 1}, {0, 0, 0, 0}) ==
        Row{1, -1, 0.5, 1});
  CHECK(slope(op::huber_loss{.delta = 2}, {kInf, 1}, {0, 0}) == Row{1, 0.5});
  CHECK(slope(op::binary_cross_entropy_with_logits{.reduction = "sum"}, {0, 0, 2000, -2000},
              {0, 1, 1, 1}) == Row{0.5, -0.5, 0, -1});
  // A probability that is wrongly 0 or 1 leaves; one that is right stays.
  const Row far = slope(op::binary_cross_entropy{.reduction = "sum"}, {0, 1, 0, 1}, {1, 0, 0, 1});
  CHECK(far[0] == doctest::Approx(-1e12));
  CHECK(far[1] == doctest::Approx(1e12));
  CHECK(far[2] == 0);
  CHECK(far[3] == 0);
  // A target of 0 costs nothing.
  CHECK(gradients(loss(op::kl_div{.reduction = "sum"}),
                  {tensor(kF64, {1}, {-3}), tensor(kF64, {1}, {0})}, {true, true})[1]
            .data == Row{3});
}

TEST_CASE("loss: gradients, first and second order") {
  const Tensor x = noise({3, 4}, 2, 1), y = noise({3, 4}, 2, 2), weight = noise({4}, 1, 3);
  for (const char* reduction : {"none", "sum", "mean"}) {
    CAPTURE(reduction);
    const auto check = [&](const Function& f, const std::vector<Tensor>& at) {
      CHECK(gradient_error(f, at) < 2e-6);
      CHECK(second_order_error(f, at) < 1e-5);
    };
    check(loss(op::mse_loss{.reduction = reduction}), {x, y});
    check(loss(op::smooth_l1_loss{.beta = 0.7, .reduction = reduction}), {x, y});
    check(loss(op::huber_loss{.delta = 0.7, .reduction = reduction}), {x, y});
    check(loss(op::binary_cross_entropy_with_logits{.reduction = reduction}), {x, y, weight});
    check(loss(op::kl_div{.log_target = true, .reduction = reduction}), {x, y});
    const auto part = [](Tensor t) {
      for (double& v : t.data) v = 0.5 + v / 5;
      return t;
    };
    check(loss(op::binary_cross_entropy{.reduction = reduction}), {part(x), part(y), weight});
    check(loss(op::kl_div{.reduction = reduction}), {x, part(y)});
  }
}

TEST_SUITE_END();
