// SPDX-License-Identifier: Apache-2.0
// lstm and gru: types, refusals, costs, and the loops that they become.
#include "ir/text.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/recurrent");

TEST_CASE("recurrent: types") {
  Rig r;
  const Value x = r(kF16, {7, 2, 24}), w = r(kF16, {1, 24, 6}), s = r(kF16, {1, 2, 6});
  op::lstm n{.x = x, .r = w, .h0 = s, .c0 = s, .lengths = r(kI32, {2})};
  n.want_h = n.want_c = true;
  CHECK(r.infer(n) == "f16[7,2,6]");
  CHECK(r.infer(n, 1) == "f16[1,2,6]");
  CHECK(r.infer(n, 2) == "f16[1,2,6]");
  op::gru both{.direction = "bidirectional",
               .x = r(kF32, {7, 3, 24}),
               .r = r(kF32, {2, 12, 4}),
               .n_bias = r(kF32, {2, 4})};
  both.want_h = true;
  CHECK(r.infer(both) == "f32[7,3,8]");
  CHECK(r.infer(both, 1) == "f32[2,3,4]");
}

TEST_CASE("recurrent: refusals") {
  Rig r;
  const Value x = r(kF32, {7, 2, 24}), w = r(kF32, {1, 24, 6}), s = r(kF32, {1, 2, 6});
  using Lstm = op::lstm;
  r.refuses(Lstm{.gates = "ifgf", .x = x, .r = w}, Code::invalid_argument,
            {"attribute gates", "ifgo", "'ifgf'"});
  r.refuses(Lstm{.direction = "backward", .x = x, .r = w}, Code::invalid_argument,
            {"attribute direction", "bidirectional", "backward"});
  r.refuses(Lstm{.x = r(kI32, {7, 2, 24}), .r = w}, Code::dtype_mismatch, {"operand x", "i32"});
  r.refuses(Lstm{.x = r(kF32, {2, 24}), .r = w}, Code::shape_mismatch, {"operand x", "rank 3"});
  r.refuses(Lstm{.x = x, .r = r(kF32, {24, 6})}, Code::shape_mismatch, {"operand r", "rank 3"});
  r.refuses(Lstm{.x = x, .r = r(kF64, {1, 24, 6})}, Code::dtype_mismatch, {"r", "f32", "f64"});
  r.refuses(Lstm{.x = x, .r = r(kF32, {1, 18, 6})}, Code::shape_mismatch,
            {"operand r", "[1,24,6]", "[1,18,6]"});
  r.refuses(Lstm{.direction = "bidirectional", .x = x, .r = w}, Code::shape_mismatch,
            {"operand r", "[2,24,6]", "[1,24,6]"});
  r.refuses(Lstm{.x = r(kF32, {7, 2, 20}), .r = w}, Code::shape_mismatch,
            {"operand x", "[7,2,24]", "[7,2,20]"});
  r.refuses(Lstm{.x = x, .r = w, .h0 = r(kF32, {2, 6})}, Code::shape_mismatch,
            {"operand h0", "[1,2,6]", "[2,6]"});
  r.refuses(Lstm{.x = x, .r = w, .h0 = s, .c0 = r(kF16, {1, 2, 6})}, Code::dtype_mismatch,
            {"c0", "f32", "f16"});
  r.refuses(Lstm{.x = x, .r = w, .lengths = r(kF32, {2})}, Code::dtype_mismatch,
            {"operand lengths", "f32[2]"});
  r.refuses(Lstm{.x = x, .r = w, .lengths = r(kI64, {3})}, Code::shape_mismatch,
            {"operand lengths", "[2]", "[3]"});
  using Gru = op::gru;
  const Value u = r(kF32, {1, 24, 8}), bias = r(kF32, {1, 8});
  r.refuses(Gru{.gates = "ifgo", .x = x, .r = u}, Code::invalid_argument,
            {"attribute gates", "rzn", "'ifgo'"});
  r.refuses(Gru{.x = x, .r = u, .n_bias = r(kF32, {8})}, Code::shape_mismatch,
            {"operand n_bias", "[1,8]", "[8]"});
  r.refuses(Gru{.reset_after = false, .x = x, .r = u, .n_bias = bias}, Code::invalid_argument,
            {"operand n_bias", "reset_after"});
}

TEST_CASE("recurrent: costs are those of the products with h") {
  Rig r;
  const NodeId n = r.graph.add(op::lstm{.x = r(kF32, {7, 2, 24}), .r = r(kF32, {1, 24, 6})});
  CHECK(product_flops(r.graph, r.graph[n]) == 7 * 2 * 2 * 24 * 6);
  CHECK(least_bytes(r.graph, r.graph[n]) == 4 * (7 * 2 * 24 + 24 * 6 + 7 * 2 * 6));
}

TEST_CASE("recurrent: each direction becomes a scan") {
  Rig r;
  op::gru n{.direction = "bidirectional", .x = r(kBF16, {7, 3, 24}), .r = r(kBF16, {2, 12, 4})};
  n.want_h = true;
  const NodeInfo node = r.graph[r.graph.add(n)];
  Builder b(r.graph);
  std::vector<Value> made;
  REQUIRE(lower_into(b, node, made));
  CHECK(b.type(made[0]).text() == "bf16[7,3,8]");
  CHECK(b.type(made[1]).text() == "bf16[2,3,4]");
  r.graph.output("y", made[0]);
  const std::string text = print(r.graph);
  const size_t first = text.find("= scan("), second = text.find("= scan(", first + 1);
  CHECK(first != std::string::npos);
  CHECK(second != std::string::npos);
  CHECK(text.find("= scan(", second + 1) == std::string::npos);
  const size_t reverse = text.find("reverse=true");
  CHECK(reverse > second);
  CHECK(reverse != std::string::npos);
  // States stay in f32 from step to step.
  CAPTURE(text);
  CHECK(text.find(": f32[3,4]") != std::string::npos);
}

TEST_SUITE_END();
