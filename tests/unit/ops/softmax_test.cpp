// SPDX-License-Identifier: Apache-2.0
// softmax and cross_entropy: types, refusals, edges, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/softmax");

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Function softmax(int64_t axis, bool log) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::softmax{.axis = axis, .log = log, .x = in[0]});
  };
}
// Operands: logits, labels, weight when there are three.
Function cross_entropy(op::cross_entropy n) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::cross_entropy full = n;
    full.logits = in[0];
    full.labels = in[1];
    if (in.size() > 2) full.weight = in[2];
    return b.add(full);
  };
}
double loss(const op::cross_entropy& n, const std::vector<Tensor>& at) {
  return forward(cross_entropy(n), at)[0];
}

}  // namespace

TEST_CASE("softmax: types and refusals") {
  Rig r;
  const Value x = r(kF16, {2, 3});
  CHECK(r.infer(op::softmax{.axis = -2, .x = x}) == "f16[2,3]");
  CHECK(r.infer(op::softmax_backward{.dy = x, .y = x}) == "f16[2,3]");
  r.refuses(op::softmax{.axis = 2, .x = x}, Code::invalid_argument, {"axis 2"});
  r.refuses(op::softmax{.x = r(kF16, {})}, Code::invalid_argument, {"axis -1"});
  r.refuses(op::softmax{.x = r(kI32, {3})}, Code::dtype_mismatch, {"x", "i32[3]"});
  r.refuses(op::softmax_backward{.dy = x, .y = r(kF32, {2, 3})}, Code::dtype_mismatch,
            {"y", "f16"});
  r.refuses(op::softmax_backward{.dy = x, .y = r(kF16, {3})}, Code::shape_mismatch, {"y", "[2,3]"});
}

TEST_CASE("softmax: rows with infinities and NaN") {
  const auto row = [](std::vector<double> x, bool log) {
    const auto n = static_cast<Dim>(x.size());
    return forward(softmax(-1, log), {tensor(kF64, {n}, std::move(x))}).data;
  };
  CHECK(row({-kInf, 0}, false) == std::vector<double>{0, 1});
  CHECK(row({-kInf, 0}, true) == std::vector<double>{-kInf, 0});
  CHECK(row({1e300, 1e300}, false) == std::vector<double>{0.5, 0.5});
  for (bool log : {false, true})
    for (double bad : {kInf, kNan})
      for (double y : row({1, bad, 2}, log)) CHECK(std::isnan(y));
  for (double y : row({-kInf, -kInf}, false)) CHECK(std::isnan(y));
  CHECK(forward(softmax(0, false), {tensor(kF64, {0, 3}, {})}).data.empty());
}

TEST_CASE("softmax: gradients on any axis, first and second order") {
  for (bool log : {false, true})
    for (int64_t axis : {-1, 0, 1}) {
      CAPTURE(log);
      CAPTURE(axis);
      for (double scale : {0.05, 4.0})
        CHECK(gradient_error(softmax(axis, log), {noise({3, 4, 2}, scale, 1)}, {}, 1e-6 * scale) <
              2e-6);
      CHECK(second_order_error(softmax(axis, log), {noise({2, 3, 2}, 1, 1)}) < 1e-5);
    }
}

TEST_CASE("cross_entropy: types") {
  Rig r;
  const Value x = r(kBF16, {2, 7, 3}), labels = r(kI64, {2, 3});
  using Op = op::cross_entropy;
  CHECK(r.infer(Op{.axis = 1, .logits = x, .labels = labels}) == "f32[]");
  CHECK(r.infer(Op{.axis = 1, .reduction = "none", .logits = x, .labels = labels}) == "f32[2,3]");
  CHECK(r.infer(Op{.axis = 1, .logits = x, .labels = labels, .want_lse = true}, 1) == "f32[2,3]");
  CHECK(r.infer(Op{.logits = r(kF64, {7}), .labels = r(kI32, {})}) == "f64[]");
  CHECK(r.infer(op::cross_entropy_backward{
            .axis = 1, .dy = r(kF32, {}), .logits = x, .labels = labels, .lse = r(kF32, {2, 3})}) ==
        "bf16[2,7,3]");
}

TEST_CASE("cross_entropy: refusals") {
  Rig r;
  const Value x = r(kF32, {4, 7}), labels = r(kI32, {4});
  using Op = op::cross_entropy;
  r.refuses(Op{.reduction = "avg", .logits = x, .labels = labels}, Code::invalid_argument,
            {"reduction", "mean", "avg"});
  r.refuses(Op{.label_smoothing = 1, .logits = x, .labels = labels}, Code::invalid_argument,
            {"label_smoothing", "1"});
  r.refuses(Op{.label_smoothing = kNan, .logits = x, .labels = labels}, Code::invalid_argument,
            {"label_smoothing"});
  r.refuses(Op{.ignore_index = int64_t{1} << 32, .logits = x, .labels = labels},
            Code::invalid_argument, {"ignore_index", "4294967296"});
  r.refuses(Op{.logits = x, .labels = r(kF32, {4})}, Code::dtype_mismatch, {"labels", "f32[4]"});
  r.refuses(Op{.logits = x, .labels = r(kI32, {4, 1})}, Code::shape_mismatch,
            {"labels", "[4]", "i32[4,1]"});
  r.refuses(Op{.logits = r(kF32, {4, 0}), .labels = labels}, Code::shape_mismatch,
            {"logits", "class", "f32[4,0]"});
  r.refuses(Op{.logits = x, .labels = labels, .weight = r(kF64, {7})}, Code::dtype_mismatch,
            {"weight", "f64[7]"});
  r.refuses(Op{.logits = x, .labels = labels, .weight = r(kF32, {4})}, Code::shape_mismatch,
            {"weight", "[7]"});
  r.refuses(op::cross_entropy_backward{.dy = r(kF32, {4}), .logits = x, .labels = labels},
            Code::shape_mismatch, {"dy", "[]", "f32[4]"});
  r.refuses(
      op::cross_entropy_backward{
          .dy = r(kF32, {}), .logits = x, .labels = labels, .lse = r(kF32, {4, 1})},
      Code::shape_mismatch, {"lse", "[4]"});
}

TEST_CASE("cross_entropy: gradients with weights, ignored items, smoothing, axes and reductions") {
  const Tensor labels = tensor(kI64, {2, 3}, {1, 3, -100, 0, 2, 3});
  const Tensor weight = tensor(kF64, {4}, {0.5, 1.5, 2, 0.25});
  for (const char* reduction : {"none", "sum", "mean"})
    for (double smoothing : {0.0, 0.1})
      for (int64_t axis : {1, -1, 0})
        for (bool weighted : {false, true}) {
          CAPTURE(reduction);
          CAPTURE(smoothing);
          CAPTURE(axis);
          CAPTURE(weighted);
          const Shape shape = axis == 1   ? Shape{2, 4, 3}
                              : axis == 0 ? Shape{4, 2, 3}
                                          : Shape{2, 3, 4};
          const auto f =
              cross_entropy({.axis = axis, .label_smoothing = smoothing, .reduction = reduction});
          std::vector<Tensor> at = {noise(shape, 2, 1), labels};
          if (weighted) at.push_back(weight);
          CHECK(gradient_error(f, at, {true, false, false}) < 2e-6);
          if (axis == 1) CHECK(second_order_error(f, at, {true, false, false}) < 1e-5);
        }
}

TEST_CASE("cross_entropy: values by hand") {
  const Tensor x = tensor(kF64, {2, 3}, {1, 2, 3, 0, 0, 0}), labels = tensor(kI32, {2}, {2, 0});
  const double first = std::log(std::exp(-2) + std::exp(-1) + 1), second = std::log(3);
  CHECK(loss({}, {x, labels}) == doctest::Approx((first + second) / 2));
  CHECK(loss({.reduction = "sum"}, {x, labels}) == doctest::Approx(first + second));
  CHECK(loss({}, {x, labels, tensor(kF64, {3}, {1, 1, 3})}) ==
        doctest::Approx((3 * first + second) / 4));
  CHECK(loss({.ignore_index = 2}, {x, labels}) == doctest::Approx(second));
  CHECK(loss({.label_smoothing = 0.3}, {x, tensor(kI32, {2}, {2, -100})}) ==
        doctest::Approx(0.7 * first + 0.1 * (3 * first + 3)));
}

TEST_CASE("cross_entropy: edges") {
  const Tensor x = tensor(kF64, {2, 2}, {0, -kInf, -kInf, -kInf});
  const auto at = [&](double a, double b) {
    return std::vector<Tensor>{x, tensor(kI32, {2}, {a, b})};
  };
  const op::cross_entropy sum{.reduction = "sum"};
  CHECK(loss(sum, at(0, -100)) == 0);
  CHECK(loss(sum, at(1, -100)) == kInf);
  CHECK(loss({.label_smoothing = 0.1, .reduction = "sum"}, at(0, -100)) == kInf);
  CHECK(std::isnan(loss(sum, at(0, 0))));
  CHECK(std::isnan(loss({}, at(-100, -100))));
  CHECK(loss(sum, at(-100, -100)) == 0);
  // Ignored rows have no gradient, whatever is in them.
  const auto g = gradients(cross_entropy({}),
                           {tensor(kF64, {2, 2}, {0, 0, kNan, kInf}), tensor(kI32, {2}, {0, -100})},
                           {true, false});
  CHECK(g[0].data == std::vector<double>{-0.5, 0.5, 0, 0});
}

TEST_CASE("cross_entropy: a label outside the classes is refused when run") {
  const Tensor x = noise({2, 3}, 1, 1);
  for (double bad : {3.0, -1.0, -3.0}) {
    try {
      loss({}, {x, tensor(kI64, {2}, {0, bad})});
      FAIL_CHECK("not refused: ", bad);
    } catch (const Error& e) {
      CHECK(e.code() == Code::index_out_of_range);
    }
  }
}

TEST_CASE("cross_entropy: gradient through lse, and none for the weights") {
  const Tensor x = noise({3, 4}, 2, 1), labels = tensor(kI64, {3}, {1, 3, 0});
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    const Results r = b.add(
        op::cross_entropy{.reduction = "none", .logits = in[0], .labels = in[1], .want_lse = true});
    return b.times(r[0], r[1]);
  };
  CHECK(gradient_error(f, {x, labels}, {true, false}) < 2e-6);
  const auto lse = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::cross_entropy{.logits = in[0], .labels = in[1], .want_lse = true})[1];
  };
  CHECK(gradient_error(lse, {x, labels}, {true, false}) < 2e-6);
  CHECK_THROWS_WITH_AS(
      gradients(cross_entropy({}), {x, labels, noise({4}, 1, 2)}, {false, false, true}),
      doctest::Contains("no gradient for operand weight"), Error);
}
