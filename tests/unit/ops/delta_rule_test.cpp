// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule: types, refusals, costs and the loop that it becomes. Values and gradients:
// sdk/conformance/cases/delta_rule.cpp and tests/peers/scans.py.
#include "ir/text.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/delta_rule");

namespace {

// B = 2, T = 5, H = 2, HV = 4, K = 3, V = 6.
op::gated_delta_rule full(Rig& r, DType t, DType wide) {
  return {.q = r(t, {2, 5, 2, 3}),
          .k = r(t, {2, 5, 2, 3}),
          .v = r(t, {2, 5, 4, 6}),
          .g = r(wide, {2, 5, 4}),
          .beta = r(t, {2, 5, 4}),
          .state = r(wide, {2, 4, 3, 6}),
          .want_state_out = true};
}
op::gated_delta_rule packed(Rig& r, Shape ends) {
  return {.q = r(kF32, {1, 5, 2, 3}),
          .k = r(kF32, {1, 5, 2, 3}),
          .v = r(kF32, {1, 5, 4, 6}),
          .g = r(kF32, {1, 5, 4, 3}),
          .beta = r(kF32, {1, 5, 4}),
          .cu_seqlens = r(kI32, ends),
          .want_state_out = true};
}

}  // namespace

TEST_CASE("gated_delta_rule: types") {
  Rig r;
  const op::gated_delta_rule n = full(r, kBF16, kF32);
  CHECK(r.infer(n) == "bf16[2,5,4,6]");
  CHECK(r.infer(n, 1) == "f32[2,4,3,6]");
  CHECK(r.infer(packed(r, {8}), 1) == "f32[7,4,3,6]");
  op::gated_delta_rule_backward back{
      .dout = n.v, .q = n.q, .k = n.k, .v = n.v, .g = n.g, .beta = n.beta};
  back.want_dq = back.want_dk = back.want_dv = back.want_dg = back.want_dbeta = true;
  back.want_dstate = true;
  const char* const types[] = {"bf16[2,5,2,3]", "bf16[2,5,2,3]", "bf16[2,5,4,6]",
                               "f32[2,5,4]",    "bf16[2,5,4]",   "f32[2,4,3,6]"};
  for (size_t k = 0; k < std::size(types); ++k) CHECK(r.infer(back, k) == types[k]);
}

TEST_CASE("gated_delta_rule: refusals") {
  Rig r;
  const op::gated_delta_rule good = full(r, kF32, kF32);
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> words) {
    op::gated_delta_rule n = good;
    change(n);
    r.refuses(n, code, words);
  };
  refuses(
      [&](auto& n) {
        n.q = r(kI32, {2, 5, 2, 3});
      },
      Code::dtype_mismatch, {"operand q", "i32"});
  refuses(
      [&](auto& n) {
        n.q = r(kF32, {5, 2, 3});
      },
      Code::shape_mismatch, {"operand q", "rank 4"});
  refuses(
      [&](auto& n) {
        n.k = r(kF32, {2, 5, 2, 4});
      },
      Code::shape_mismatch, {"operand k", "[2,5,2,3]", "[2,5,2,4]"});
  refuses(
      [&](auto& n) {
        n.v = r(kF16, {2, 5, 4, 6});
      },
      Code::dtype_mismatch, {"operand v", "f32", "f16"});
  refuses(
      [&](auto& n) {
        n.v = r(kF32, {2, 4, 4, 6});
      },
      Code::shape_mismatch, {"operand v", "[2,5,4,6]", "[2,4,4,6]"});
  refuses(
      [&](auto& n) {
        n.v = r(kF32, {2, 5, 3, 6});
      },
      Code::shape_mismatch, {"operand v", "multiple of the 2 heads", "got 3"});
  refuses(
      [&](auto& n) {
        n.q = n.k = r(kF32, {2, 5, 2, 0});
      },
      Code::shape_mismatch, {"operand q", "at least one element"});
  refuses(
      [&](auto& n) {
        n.g = r(kF32, {2, 5});
      },
      Code::shape_mismatch, {"operand g", "rank 3 or 4"});
  refuses(
      [&](auto& n) {
        n.g = r(kF32, {2, 5, 4, 6});
      },
      Code::shape_mismatch, {"operand g", "[2,5,4,3]", "[2,5,4,6]"});
  refuses(
      [&](auto& n) {
        n.g = r(kBF16, {2, 5, 4});
      },
      Code::dtype_mismatch, {"operand g", "f32", "bf16"});
  refuses(
      [&](auto& n) {
        n.beta = r(kF32, {2, 5, 2});
      },
      Code::shape_mismatch, {"operand beta", "[2,5,4]", "[2,5,2]"});
  refuses(
      [&](auto& n) {
        n.state = r(kF32, {2, 4, 6, 3});
      },
      Code::shape_mismatch, {"operand state", "[2,4,3,6]", "[2,4,6,3]"});
  refuses([&](auto& n) { n.chunk = 0; }, Code::invalid_argument, {"attribute chunk", "given 0"});
  refuses([&](auto& n) { n.cu_seqlens = r(kI32, {3}); }, Code::shape_mismatch,
          {"operand q", "batch of 1", "got 2"});
  r.refuses(packed(r, {1}), Code::shape_mismatch, {"operand cu_seqlens", "two entries", "[1]"});
  r.refuses(packed(r, {2, 2}), Code::shape_mismatch, {"operand cu_seqlens", "rank 1"});
  op::gated_delta_rule wrong = packed(r, {3});
  wrong.cu_seqlens = r(kF32, {3});
  r.refuses(wrong, Code::dtype_mismatch, {"operand cu_seqlens", "f32[3]"});
  op::gated_delta_rule_backward back{
      .dout = good.v, .q = good.q, .k = good.k, .v = good.v, .g = good.g, .beta = good.beta};
  back.want_dq = true;
  back.dstate_out = r(kF32, {2, 4, 3, 5});
  r.refuses(back, Code::shape_mismatch, {"operand dstate_out", "[2,4,3,6]", "[2,4,3,5]"});
  back.dstate_out = {}, back.dout = r(kF32, {2, 5, 4, 5});
  r.refuses(back, Code::shape_mismatch, {"operand dout", "[2,5,4,6]", "[2,5,4,5]"});
}

TEST_CASE("gated_delta_rule: costs are those of the products with the state") {
  Rig r;
  const NodeId n = r.graph.add(full(r, kF32, kF32));
  CHECK(product_flops(r.graph, r.graph[n]) == 7 * 2 * 5 * 4 * 3 * 6);
}

TEST_CASE("gated_delta_rule: becomes a scan, whose state is in f32") {
  Rig r;
  const NodeInfo node = r.graph[r.graph.add(full(r, kBF16, kF32))];
  Builder b(r.graph);
  std::vector<Value> made;
  REQUIRE(lower_into(b, node, made));
  CHECK(b.type(made[0]).text() == "bf16[2,5,4,6]");
  CHECK(b.type(made[1]).text() == "f32[2,4,3,6]");
  r.graph.output("o", made[0]);
  const std::string text = print(r.graph);
  CAPTURE(text);
  const size_t first = text.find("= scan(");
  CHECK(first != std::string::npos);
  CHECK(text.find("= scan(", first + 1) == std::string::npos);
  CHECK(text.find(": f32[2,2,2,3,6]") != std::string::npos);
}

TEST_SUITE_END();
