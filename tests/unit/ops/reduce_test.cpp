// SPDX-License-Identifier: Apache-2.0
// reduce: shapes, refusals, gradients of every kind.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/reduce");

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Function reduce(std::string kind, Ints axes, bool keepdims = false) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::reduce{.kind = kind, .axes = axes, .keepdims = keepdims, .x = in[0]});
  };
}
// Gradient of a full reduction.
std::vector<double> slope(std::string kind, std::vector<double> x, DType t = kF64) {
  const auto n = static_cast<Dim>(x.size());
  return gradients(reduce(std::move(kind), {}), {tensor(t, {n}, std::move(x))}, {true})[0].data;
}

}  // namespace

TEST_CASE("reduce: shapes with axes, keepdims and none") {
  Rig r;
  const Value x = r(kF32, {2, 3, 4});
  const auto y = [&](Ints axes, bool keep, bool noop = false) {
    return r.infer(op::reduce{
        .kind = "sum", .axes = axes, .keepdims = keep, .noop_with_empty_axes = noop, .x = x});
  };
  CHECK(y({}, false) == "f32[]");
  CHECK(y({}, true) == "f32[1,1,1]");
  CHECK(y({}, false, true) == "f32[2,3,4]");
  CHECK(y({-1, 0}, false) == "f32[3]");
  CHECK(y({-1, 0}, true, true) == "f32[1,3,1]");
  CHECK(r.infer(op::reduce{.kind = "any", .axes = {0}, .x = r(kBool, {2, 3})}) == "bool[3]");
  CHECK(r.infer(op::reduce{.kind = "mean", .axes = {1}, .x = r(kI32, {2, 0})}) == "i32[2]");
  CHECK(r.infer(op::reduce{.kind = "sum", .x = r(kF16, {})}) == "f16[]");
}

TEST_CASE("reduce: bools count in i64, and have a largest and a smallest") {
  Rig r;
  const auto type = [&](const char* kind) {
    return r.infer(op::reduce{.kind = kind, .axes = {1}, .keepdims = true, .x = r(kBool, {2, 3})});
  };
  CHECK(type("sum") == "i64[2,1]");
  CHECK(type("prod") == "i64[2,1]");
  CHECK(type("max") == "bool[2,1]");
  CHECK(type("min") == "bool[2,1]");
  const auto y = [](const char* kind, std::vector<double> x) {
    const auto n = static_cast<Dim>(x.size());
    return forward(reduce(kind, {0}), {tensor(kBool, {n}, std::move(x))}).data[0];
  };
  CHECK(y("sum", {1, 0, 1, 1}) == 3);
  CHECK(y("prod", {1, 1}) == 1);
  CHECK(y("max", {0, 0, 1}) == 1);
  CHECK(y("min", {1, 0, 1}) == 0);
}

TEST_CASE("reduce: refusals") {
  Rig r;
  const Value x = r(kF32, {2, 3, 4});
  using Op = op::reduce;
  r.refuses(Op{.kind = "average", .x = x}, Code::invalid_argument, {"kind", "mean", "average"});
  r.refuses(Op{.kind = "sum", .axes = {0, -3}, .x = x}, Code::invalid_argument,
            {"axes", "repeated"});
  r.refuses(Op{.kind = "sum", .axes = {3}, .x = x}, Code::invalid_argument, {"axis 3"});
  r.refuses(Op{.kind = "any", .x = x}, Code::dtype_mismatch, {"any", "f32[2,3,4]"});
  r.refuses(Op{.kind = "mean", .x = r(kBool, {2})}, Code::dtype_mismatch, {"mean", "bool[2]"});
  r.refuses(Op{.kind = "l1", .x = r(kBool, {2})}, Code::dtype_mismatch, {"l1", "bool[2]"});
  r.refuses(Op{.kind = "l2", .x = r(kI32, {2})}, Code::dtype_mismatch, {"l2", "i32[2]"});
}

TEST_CASE("reduce: gradients of every kind, axes and scale") {
  for (const char* kind :
       {"sum", "mean", "max", "min", "prod", "sum_square", "l1", "l2", "logsumexp"})
    for (const Ints& axes : {Ints{}, Ints{-1}, Ints{0}, Ints{0, 2}, Ints{1, 2}})
      for (double scale : {0.05, 4.0}) {
        CAPTURE(kind);
        CAPTURE(axes.size());
        CAPTURE(scale);
        const Tensor x = noise({3, 2, 5}, scale, 7);
        CHECK(gradient_error(reduce(kind, axes, axes.size() == 1), {x}, {}, 1e-6 * scale) < 5e-6);
      }
}

TEST_CASE("reduce: gradients of gradients") {
  for (const char* kind : {"mean", "prod", "sum_square", "l2", "logsumexp"}) {
    CAPTURE(kind);
    CHECK(second_order_error(reduce(kind, {1}), {noise({3, 5}, 1, 7)}) < 1e-5);
  }
}

TEST_CASE("reduce: prod by exclusive products") {
  CHECK(slope("prod", {2, 0, 3}) == std::vector<double>{0, 6, 0});
  CHECK(slope("prod", {0, 5, 0}) == std::vector<double>{0, 0, 0});
  CHECK(slope("prod", {7}) == std::vector<double>{1});
  // y/x would be 0/1e-200 = 0 here.
  CHECK(slope("prod", {1e-200, 1e-200, 1e200})[0] == doctest::Approx(1));
  CHECK(gradients(reduce("prod", {1}), {tensor(kF64, {0, 3}, {})}, {true})[0].type.text() ==
        "f64[0,3]");
  CHECK(gradients(reduce("prod", {1}), {tensor(kF64, {2, 0}, {})}, {true})[0].data.empty());
}

TEST_CASE("reduce: max and min split the gradient among equals, NaN takes all") {
  CHECK(slope("max", {3, 1, 3}) == std::vector<double>{0.5, 0, 0.5});
  CHECK(slope("min", {1, 1, 1, 5}) == std::vector<double>{1. / 3, 1. / 3, 1. / 3, 0});
  CHECK(slope("max", {3, kNan, kInf}) == std::vector<double>{0, 1, 0});
  CHECK(slope("max", {-kInf, -kInf}) == std::vector<double>{0.5, 0.5});
}

TEST_CASE("reduce: l2 has no gradient at the origin") {
  CHECK(slope("l2", {0, 0}) == std::vector<double>{0, 0});
  CHECK(slope("l2", {3, 4})[1] == doctest::Approx(0.8));
  CHECK(slope("l1", {0, -2}) == std::vector<double>{0, -1});
}

TEST_CASE("reduce: half gradients come from wide intermediates") {
  // logsumexp of 100, 101 is 101.31; in bf16 it is 101.5, and e^(x-y) would be 17 % off.
  const auto g = slope("logsumexp", {100, 101}, kBF16);
  CHECK(g[1] == doctest::Approx(0.7310586).epsilon(4e-3));
  // 1/1001 from a count that bf16 cannot hold.
  const auto m = slope("mean", std::vector<double>(1001, 1), kBF16);
  CHECK(m[0] == tensor(kBF16, {1}, {1. / 1001})[0]);
}

TEST_CASE("reduce: no axes and noop make each element a set of its own") {
  const Tensor x = tensor(kF64, {3}, {-2, 0, 0.5});
  for (const auto& [kind, slopes] : {std::pair("sum", std::vector<double>{1, 1, 1}),
                                     {"max", {1, 1, 1}},
                                     {"logsumexp", {1, 1, 1}},
                                     {"sum_square", {-4, 0, 1}},
                                     {"l1", {-1, 0, 1}},
                                     {"l2", {-1, 0, 1}}}) {
    const auto f = [kind = kind](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::reduce{.kind = kind, .noop_with_empty_axes = true, .x = in[0]});
    };
    CAPTURE(kind);
    const Tensor dx = gradients(f, {x}, {true})[0];  // of Σ cos(k)·y_k
    for (size_t k = 0; k < 3; ++k)
      CHECK(dx[k] == doctest::Approx(slopes[k] * std::cos(static_cast<double>(k))));
    CHECK(gradient_error(f, {noise({3}, 1, 1)}) < 2e-6);
  }
  CHECK(gradient_error(reduce("sum_square", {}), {noise({}, 1, 1)}) < 2e-6);
}

TEST_CASE("reduce: the gradient of logsumexp keeps its digits far from zero") {
  for (const double offset : {1e3, -1e5, 1e8}) {
    const auto g = slope("logsumexp", {offset, offset + 8, offset + 8}, kF32);
    const double sum = 2 + std::exp(-8);
    CHECK(g[0] == doctest::Approx(std::exp(-8) / sum).epsilon(1e-6));
    CHECK(g[1] == doctest::Approx(1 / sum).epsilon(1e-6));
  }
}
