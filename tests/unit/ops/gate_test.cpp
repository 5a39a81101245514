// SPDX-License-Identifier: Apache-2.0
// group_limited_gate: types and refusals. Routes, weights and gradients: sdk/conformance/cases/gate.cpp.
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/gate");

TEST_CASE("gate: types") {
  Rig r;
  const Value x = r(kBF16, {5, 32});
  CHECK(r.infer(op::group_limited_gate{.logits = x, .bias = r(kF32, {32})}) == "i32[5,8]");
  CHECK(r.infer(op::group_limited_gate{.logits = x}, 1) == "f32[5,8]");
  CHECK(r.infer(op::group_limited_gate_backward{
            .dy = r(kF32, {5, 8}), .logits = x, .index = r(kI32, {5, 8})}) == "bf16[5,32]");
}

TEST_CASE("gate: refusals") {
  Rig r;
  const Value x = r(kF32, {5, 32});
  using Gate = op::group_limited_gate;
  r.refuses(Gate{.logits = r(kI32, {5, 32})}, Code::dtype_mismatch, {"operand logits", "i32"});
  r.refuses(Gate{.logits = r(kF32, {32})}, Code::shape_mismatch, {"operand logits", "rank 2"});
  r.refuses(Gate{.n_group = 7, .logits = x}, Code::invalid_argument,
            {"attribute n_group", "divisor", "32", "given 7"});
  r.refuses(Gate{.n_group = 0, .logits = x}, Code::invalid_argument, {"n_group", "given 0"});
  r.refuses(Gate{.topk_group = 9, .logits = x}, Code::invalid_argument,
            {"attribute topk_group", "1 to 8", "given 9"});
  r.refuses(Gate{.topk_group = 0, .logits = x}, Code::invalid_argument, {"topk_group", "given 0"});
  r.refuses(Gate{.topk_group = 2, .top_k = 9, .logits = x}, Code::invalid_argument,
            {"attribute top_k", "1 to 8", "given 9"});
  r.refuses(Gate{.n_group = 32, .logits = x}, Code::invalid_argument,
            {"attribute group_score", "top2_sum", "at least 2", "got 1"});
  CHECK(r.infer(Gate{.n_group = 32, .topk_group = 8, .group_score = "max", .logits = x}) ==
        "i32[5,8]");
  r.refuses(Gate{.score = "relu", .logits = x}, Code::invalid_argument,
            {"attribute score", "sigmoid softmax identity", "relu"});
  r.refuses(Gate{.logits = x, .bias = r(kF32, {5})}, Code::shape_mismatch,
            {"operand bias", "[32]", "[5]"});
  r.refuses(Gate{.logits = r(kF16, {5, 32}), .bias = r(kF16, {32})}, Code::dtype_mismatch,
            {"operand bias", "f32", "f16"});
  using Backward = op::group_limited_gate_backward;
  r.refuses(Backward{.dy = r(kF32, {5, 8}), .logits = x, .index = r(kI32, {4, 8})},
            Code::shape_mismatch, {"operand index", "[5,8]", "[4,8]"});
  r.refuses(Backward{.dy = r(kF32, {5, 7}), .logits = x, .index = r(kI32, {5, 8})},
            Code::shape_mismatch, {"operand dy", "[5,8]", "[5,7]"});
}

TEST_SUITE_END();
