// SPDX-License-Identifier: Apache-2.0
#include "ops/cost.hpp"

#include <doctest/doctest.h>

#include "ir/text.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/cost");

namespace {

// Of the only node of a graph with these inputs.
double flops(const std::string& inputs, const std::string& node) {
  const Graph g = parse("graph {\n" + inputs + "\n" + node + "\n}\n", "cost");
  REQUIRE(g.node_count() == 1);
  return product_flops(g, g[NodeId{0}]);
}

}  // namespace

TEST_CASE("cost: a product counts two for each multiplied pair, batches and flags included") {
  const std::string in =
      "input a: f32[3,5]\ninput t: f32[5,3]\ninput b: f32[4,5,2]\ninput v: f32[5]";
  CHECK(flops(in, "y = matmul(a, b)") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops(in, "y = matmul(t, b) {trans_a=true}") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops(in, "y = matmul(v, v)") == 10);
  CHECK(flops(in, "y = linear(a, b) {act=\"relu\"}") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops("input t: f32[5,3]\ninput b: f32[4,5]\ninput c: f32[2,5]",
              "(p, q) = batch_linear(t, b, c) {trans_a=true, trans_b=true}") ==
        2.0 * 3 * 5 * (4 + 2));
  CHECK(flops("input x: f32[3,5]\ninput w: f32[5,4]\ninput a: f32[5,2]\ninput b: f32[2,4]",
              "y = lora_matmul(x, w, a, b)") == 2.0 * 3 * (5 * 4 + 5 * 2 + 2 * 4));
}

TEST_CASE("cost: experts are counted once for each row, each gradient that is wanted once") {
  const std::string in =
      "input x: f32[6,3]\ninput w: f32[2,3,4]\ninput i: i32[6]\ninput g: f32[6,4]";
  CHECK(flops(in, "y = grouped_matmul(x, w, i)") == 2.0 * 6 * 3 * 4);
  CHECK(flops(in, "(dx, dw) = grouped_matmul_backward(g, x, w, i)") == 2 * 2.0 * 6 * 3 * 4);
}

TEST_CASE("cost: attention counts the pairs that a causal mask leaves") {
  const std::string in = "input q: f32[2,4,3,8]\ninput k: f32[2,2,5,8]\ninput l: f32[2,4,3]";
  CHECK(flops(in, "o = attention(q, k, k)") == 4.0 * 2 * 4 * 3 * 5 * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true}") == 4.0 * 2 * 4 * (1 + 2 + 3) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true, offset=3}") ==
        4.0 * 2 * 4 * (4 + 5 + 5) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true, offset=-2}") == 4.0 * 2 * 4 * 1 * 8);
  CHECK(flops(in, "(a, b, c) = attention_backward(q, q, k, k, q, l)") == 10.0 * 2 * 4 * 3 * 5 * 8);
}

TEST_CASE("cost: an op without products counts nothing") {
  CHECK(flops("input x: f32[4,4]", "y = softmax(x)") == 0);
}

TEST_SUITE_END();
