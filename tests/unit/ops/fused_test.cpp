// SPDX-License-Identifier: Apache-2.0
// The elementwise fused bodies: types, refused bodies, decomposition.
#include "evaluate.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "rig.hpp"

using namespace tenon::core;

namespace {

FunctionAttr body(std::string_view statements) {
  return std::make_shared<const Graph>(parse(cat("graph { ", statements, " }"), "body"));
}

// y = (x + c) * 2, and its sum over the rows.
const FunctionAttr& sum_of_rows() {
  static const FunctionAttr the = body(R"(
    input x: f32[2,3] input c: f32[2,1] const two: f32[] = {2.0}
    t = binary(x, c) {kind="add"} y = binary(t, two) {kind="mul"}
    r = reduce(y) {kind="sum", axes=[1]} output "y" = y output "r" = r)");
  return the;
}

}  // namespace

TEST_SUITE_BEGIN("ops/fused");

TEST_CASE("elementwise_region: its types are the body's") {
  Rig r;
  const op::elementwise_region fused{
      .body = sum_of_rows(), .xs = {r(kF32, {2, 3}), r(kF32, {2, 1})}, .count_ys = 2};
  CHECK(r.infer(fused, 0) == "f32[2,3]");
  CHECK(r.infer(fused, 1) == "f32[2]");
  CHECK_NOTHROW(verify(r.graph));
}

TEST_CASE("elementwise_region: refuses operands that are not the body's") {
  Rig r;
  const Value x = r(kF32, {2, 3}), c = r(kF32, {2, 1});
  const auto fused = [&](std::vector<Value> xs, size_t count) {
    return op::elementwise_region{.body = sum_of_rows(), .xs = std::move(xs), .count_ys = count};
  };
  r.refuses(fused({x, r(kF32, {1, 3})}, 2), Code::shape_mismatch, {"entry 1", "f32[2,1]"});
  r.refuses(fused({r(kF64, {2, 3}), c}, 2), Code::dtype_mismatch, {"entry 0", "f64[2,3]"});
  r.refuses(fused({x}, 2), Code::invalid_argument, {"operand xs: expected 2, got 1"});
  r.refuses(fused({x, c}, 1), Code::invalid_argument, {"output ys: expected 2, got 1"});
  r.refuses(op::elementwise_region{.xs = {x}, .count_ys = 1}, Code::invalid_argument,
            {"attribute body is required"});
}

TEST_CASE("elementwise_region: quantize and dequantize with one constant scale are steps") {
  Rig r;
  const Value q = r(TENON_DTYPE_U8, {2, 3});
  const NodeId n = r.graph.add(op::elementwise_region{
      .body = body("input q: u8[2,3] const s: f32[1] = {0.5} const z: u8[1] = {7} const t: f32[] = "
                   "{2} x = dequantize(q, s, z) y = quantize(x, t) {to=i8} output \"y\" = y "
                   "output \"x\" = x"),
      .xs = {q},
      .count_ys = 2});
  CHECK(r.graph.type(r.graph[n].outputs[0]).text() == "i8[2,3]");
  CHECK(r.graph.type(r.graph[n].outputs[1]).text() == "f32[2,3]");
}

TEST_CASE("elementwise_region: refuses what is no body, and says why") {
  Rig r;
  const Value x = r(kF32, {2, 3});
  const auto refuses = [&](std::string_view statements,
                           std::initializer_list<std::string_view> words,
                           Code code = Code::invalid_argument) {
    r.refuses(op::elementwise_region{.body = body(statements), .xs = {x}, .count_ys = 1}, code,
              words);
  };
  refuses("input x: f32[2,3] output \"y\" = x", {"made by no step"});
  refuses("input x: f32[2,N] y = unary(x) {kind=\"exp\"} output \"y\" = y", {"has symbols"});
  refuses("input x: f32[2,3] y = softmax(x) output \"y\" = y", {"softmax cannot be a step"});
  refuses("input x: f32[2,3] input s: f32[] y = quantize(x, s) output \"y\" = y",
          {"quantize cannot be a step"});
  refuses(
      "input x: f32[3] const s: f32[1] = {1} y = quantize(x, s) {axis=0, block=3} output \"y\" = y",
      {"quantize cannot be a step"});
  refuses("input x: f32[2,3] y = reduce(x) {kind=\"sum\"} output \"y\" = y",
          {"reduce can only be the last step of a fused body"});
  refuses(
      "input x: f32[2,3] s = unary(x) {kind=\"exp\"} "
      "m = reduce(s) {kind=\"sum\"} y = unary(m) {kind=\"exp\"} output \"y\" = y",
      {"reduce can only be the last step of a fused body"});
  refuses(
      "input x: f32[2,3] s = unary(x) {kind=\"exp\"} m = reduce(s) {kind=\"sum\"} "
      "output \"s\" = s",
      {"the result of reduce is not an output"});
  refuses("input x: f32[2,3] y = unary(x) {kind=\"exp\"} output \"y\" = y output \"z\" = y",
          {"output 'z' is another output too"});
  refuses("input x: f32[2,3] weight w: f32[] y = binary(x, w) {kind=\"add\"} output \"y\" = y",
          {"has weights"});
  refuses(
      "input x: f32[2,3] const c: f32[2] = {1.0, 2.0} s = unary(x) {kind=\"exp\"} "
      "output \"y\" = s",
      {"a constant has 2 elements"});
  refuses(
      "input x: f32[2,3] const c: f32[1,1,1] = {1.0} s = unary(x) {kind=\"exp\"} "
      "z = binary(s, c) {kind=\"add\"} output \"y\" = s output \"z\" = z",
      {"output 'y'", "f32[2,3]", "[1,2,3]"}, Code::shape_mismatch);
  refuses("input x: f32[2,3] const c: f32[] = {1.0} s = unary(c) {kind=\"exp\"} output \"y\" = s",
          {"value 'x'", "does not broadcast"}, Code::shape_mismatch);
}

TEST_CASE("batch_elementwise_region: each set has a shape of its own") {
  Rig r;
  op::batch_elementwise_region batch{
      .body = sum_of_rows(),
      .sets = 2,
      .xs = {r(kF32, {2, 3}), r(kF32, {2, 1}), r(kF32, {5, 4}), r(kF32, {4})},
      .count_ys = 4};
  CHECK(r.infer(batch, 0) == "f32[2,3]");
  CHECK(r.infer(batch, 1) == "f32[2]");
  CHECK(r.infer(batch, 2) == "f32[5,4]");
  CHECK(r.infer(batch, 3) == "f32[5]");
  batch.xs[3] = r(kF32, {3});
  r.refuses(batch, Code::shape_mismatch, {"operand xs: set 1", "[5,4]"});
  batch.xs[3] = r(kI32, {4});
  r.refuses(batch, Code::dtype_mismatch, {"entry 1 of set 1", "expected f32"});
  batch.sets = 0;
  r.refuses(batch, Code::invalid_argument, {"attribute sets"});
}

TEST_CASE("elementwise_region: halves round at a cast and at the outputs alone") {
  // 1 + 2^-9 is lost in bf16: unless it is rounded between, the difference is left.
  const auto fused = [](std::string_view middle) {
    return [=](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::elementwise_region{
          .body = body(cat("input x: bf16[2] const one: bf16[] = {1.0} "
                           "s = binary(x, one) {kind=\"add\"} ",
                           middle, " y = binary(t, one) {kind=\"sub\"} output \"y\" = y")),
          .xs = {in[0]},
          .count_ys = 1});
    };
  };
  const std::vector<Tensor> at = {tensor(kBF16, {2}, {0x1p-9, 2})};
  CHECK(forward(fused("t = copy(s)"), at).data == std::vector<double>{0x1p-9, 2});
  CHECK(forward(fused("t = cast(s) {to=bf16}"), at).data == std::vector<double>{0, 2});
}

TEST_CASE("elementwise_region: the gradient is the written out body's") {
  const FunctionAttr both = body(R"(
    input x: f64[3,4] input w: f64[4] const half: f64[] = {0.5}
    t = binary(x, w) {kind="mul"} a = unary(t) {kind="gelu"} y = binary(a, half) {kind="add"}
    r = reduce(y) {kind="sum_square", axes=[-1]} output "r" = r)");
  const auto fused = [&](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::elementwise_region{.body = both, .xs = in, .count_ys = 1});
  };
  const std::vector<Tensor> at = {noise({3, 4}, 1, 1), noise({4}, 1, 2)};
  CHECK(gradient_error(fused, at) < 1e-6);
  CHECK(second_order_error(fused, at) < 1e-5);
}

TEST_SUITE_END();
