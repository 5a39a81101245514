// SPDX-License-Identifier: Apache-2.0
// Which norms and gates become a part of products with blocks, where these stand, and what stays apart.
#include "plan/rewrite/fuse_blocks.hpp"

#include <doctest/doctest.h>

#include "grad/grad.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kInputs =
    "input x: f32[1,64] input r: f32[1,64] weight w: q8_0[64,64] weight v: q8_0[128,64] "
    "weight c: f32[64] weight d: f32[128] weight gamma: f32[64] ";

Graph joined(std::string_view statements, const Query& device = answering(true)) {
  return rewritten(cat(kInputs, statements),
                   [&](const Graph& g) { return join_block_products(g, device); });
}
std::string ops_joined(std::string_view statements) { return ops_of(joined(statements)); }

// A device that claims what this says of composites.
Query claiming(std::function<bool(const op::dequant_matmul&)> takes) {
  return [takes = std::move(takes)](const Graph& graph, uint32_t) {
    REQUIRE(graph.node_count() == 1);
    Verdict v;
    v.native = takes(decode<op::dequant_matmul>(graph[NodeId{0}]));
    if (!v.native) v.reason = TENON_REASON_OP, v.text = "not this one";
    return std::vector<Verdict>{v};
  };
}

op::dequant_matmul product_at(const Graph& g, NodeId n) {
  REQUIRE(g[n].op->name() == "dequant_matmul");
  return decode<op::dequant_matmul>(g[n]);
}

}  // namespace

TEST_SUITE("plan/fuse_blocks") {
  TEST_CASE("norm: goes into the product that reads it") {
    const Graph g = joined(R"(n = rms_norm(x, gamma) {eps=0.25}
      y = dequant_matmul(n, w, c) {compute="int8"} output "y" = y)");
    REQUIRE(ops_of(g) == "dequant_matmul");
    const op::dequant_matmul p = product_at(g, 0);
    CHECK(g[p.x].name == "x");
    CHECK(g[p.w].name == "w");
    CHECK(g[p.bias].name == "c");
    CHECK(g[p.gamma].name == "gamma");
    CHECK(!p.residual);
    CHECK(p.eps == 0.25);
    CHECK(p.compute == "int8");
    CHECK(p.gate == "none");
    CHECK(!p.want_sum);
    CHECK(g[NodeId{0}].note == "joined: rms_norm + dequant_matmul");
  }

  TEST_CASE("norm, sum and gate: one node, whose sum takes the place of the norm's") {
    const Graph g = joined(R"((n, s) = residual_rms_norm(x, r, _, gamma) {eps=0.5, axis=1}
      p = dequant_matmul(n, v, d) y = swiglu(p) {act="gelu"} z = binary(s, y) {kind="add"}
      output "z" = z output "s" = s)");
    REQUIRE(ops_of(g) == "dequant_matmul binary");
    const op::dequant_matmul p = product_at(g, 0);
    CHECK(g[p.x].name == "x");
    CHECK(g[p.residual].name == "r");
    CHECK(g[p.gamma].name == "gamma");
    CHECK(g[p.bias].name == "d");
    CHECK(p.eps == 0.5);
    CHECK(p.gate == "gelu");
    CHECK(p.want_sum);
    CHECK(g[NodeId{1}].operands[0] == g[NodeId{0}].outputs[1]);
    CHECK(g[NodeId{1}].operands[1] == g[NodeId{0}].outputs[0]);
    CHECK(g.outputs()[1].value == g[NodeId{0}].outputs[1]);
    CHECK(g[NodeId{0}].note == "joined: residual_rms_norm + dequant_matmul + swiglu");
  }

  TEST_CASE("norm: goes into all products that read it, and the first one gives the sum") {
    const Graph g = joined(R"((n, s) = residual_rms_norm(x, r, _, gamma)
      a = dequant_matmul(n, w) b = dequant_matmul(n, v) h = swiglu(b) e = dequant_matmul(n, w, c)
      t = binary(s, h) {kind="mul"}
      output "a" = a output "h" = h output "e" = e output "t" = t)");
    REQUIRE(ops_of(g) == "dequant_matmul dequant_matmul dequant_matmul binary");
    for (const NodeId n : {0, 1, 2}) {
      const op::dequant_matmul p = product_at(g, n);
      CHECK(g[p.x].name == "x");
      CHECK(g[p.residual].name == "r");
      CHECK(p.want_sum == (n == 0));
      CHECK(p.gate == (n == 1 ? "silu" : "none"));
    }
    CHECK(g[NodeId{3}].operands[0] == g[NodeId{0}].outputs[1]);
    // A sum that nobody reads is not kept.
    CHECK(!product_at(joined(R"(n = residual_rms_norm(x, r, _, gamma) a = dequant_matmul(n, w)
      output "a" = a)"),
                      0)
               .want_sum);
  }

  TEST_CASE("gate: goes into a product without a norm") {
    const Graph g = joined(R"(p = dequant_matmul(x, v) y = swiglu(p) {act="relu"}
      output "y" = y)");
    REQUIRE(ops_of(g) == "dequant_matmul");
    CHECK(product_at(g, 0).gate == "relu");
    CHECK(!product_at(g, 0).gamma);
    CHECK(g[NodeId{0}].note == "joined: dequant_matmul + swiglu");
  }

  TEST_CASE("norm: stays where others read it, or it has more than a product takes") {
    const auto apart = [](std::string_view norm, std::string_view more = "") {
      const std::string ops =
          ops_joined(cat(norm, " y = dequant_matmul(n, w) output \"y\" = y ", more));
      CHECK_MESSAGE(ops.find("norm") != ops.npos, norm, " ", more);
    };
    constexpr std::string_view kNorm = "n = rms_norm(x, gamma)";
    apart(kNorm, R"(t = unary(n) {kind="neg"} output "t" = t)");
    apart(kNorm, R"(output "n" = n)");
    apart(cat("state s: f32[1,64] ", kNorm), "update s = n");
    apart(kNorm, R"(z = dequant_matmul(n, w) clone 1 output "z" = z)");
    apart(kNorm, R"(z = dequant_matmul(n, w) {gate="silu"} output "z" = z)");
    apart(kNorm, R"(z = dequant_matmul(n, w, _, gamma) output "z" = z)");
    apart("n = rms_norm(x, gamma, c)");
    apart("n = rms_norm(x, gamma) clone 1");
    apart("(n, i) = rms_norm(x, gamma)", R"(output "i" = i)");
    apart("weight all: f32[1,64] n = rms_norm(x, all) {axis=0}");
    apart("n = layer_norm(x, gamma)");
    apart("n = residual_rms_norm(x, r, c, gamma)");
    apart("n = residual_rms_norm(x, r, _, gamma, c)");
    apart("(n, _, i) = residual_rms_norm(x, r, _, gamma)", R"(output "i" = i)");
    apart("(n, s) = residual_rms_norm(x, r, _, gamma) t = unary(s) {kind=\"neg\"}",
          R"(output "t" = t)");
    // A product of another norm that reads this one as its bias.
    CHECK(ops_joined(R"(input u: f32[64] weight k: f32[64] n = rms_norm(u, gamma)
      m = rms_norm(u, k) y = dequant_matmul(m, w, n) z = dequant_matmul(n, w)
      output "y" = y output "z" = z)") == "rms_norm dequant_matmul dequant_matmul");
  }

  TEST_CASE("norm: a product that reads the norm, or its sum, as its bias") {
    constexpr std::string_view kRows = "input u: f32[64] input t: f32[64] ";
    CHECK(ops_joined(cat(kRows, R"(n = rms_norm(u, gamma) y = dequant_matmul(n, w, n)
      output "y" = y)")) == "rms_norm dequant_matmul");
    CHECK(ops_joined(cat(kRows, R"((n, s) = residual_rms_norm(u, t, _, gamma)
      y = dequant_matmul(n, w, s) output "y" = y)")) == "residual_rms_norm dequant_matmul");
    // The sum of the first product is there for the second one.
    const Graph g = joined(cat(kRows, R"((n, s) = residual_rms_norm(u, t, _, gamma)
      y = dequant_matmul(n, w) z = dequant_matmul(n, w, s) output "y" = y output "z" = z)"));
    REQUIRE(ops_of(g) == "dequant_matmul dequant_matmul");
    CHECK(product_at(g, 1).bias == g[NodeId{0}].outputs[1]);
    CHECK(!product_at(g, 1).want_sum);
  }

  TEST_CASE("gate: stays where it is another one, or others read the product") {
    const auto apart = [](std::string_view gate, std::string_view more = "") {
      const std::string ops =
          ops_joined(cat("p = dequant_matmul(x, v) ", gate, " output \"y\" = y ", more));
      CHECK_MESSAGE(ops.find("swiglu") != ops.npos, gate, " ", more);
    };
    apart("y = swiglu(p) {gate_first=false}");
    apart("y = swiglu(p) clone 1");
    apart("y = swiglu(p)", R"(output "p" = p)");
    apart("y = swiglu(p)", R"(t = unary(p) {kind="neg"} output "t" = t)");
    apart("t = unary(p) {kind=\"neg\"} y = swiglu(p)", R"(output "t" = t)");
    apart("input u: f32[1,128] y = swiglu(p, u)");
    apart("input u: f32[1,128] y = swiglu(u, p)");
    apart("y = swiglu(p, p)");
    apart("q = swiglu(p) {gate_first=false} y = swiglu(p)", R"(output "q" = q)");
  }

  TEST_CASE("sum: what reads it before the gate keeps the gate apart") {
    const Graph g = joined(R"((n, s) = residual_rms_norm(x, r, _, gamma) p = dequant_matmul(n, v)
      t = unary(s) {kind="neg"} y = swiglu(p) output "t" = t output "y" = y)");
    REQUIRE(ops_of(g) == "dequant_matmul unary swiglu");
    CHECK(product_at(g, 0).want_sum);
    CHECK(product_at(g, 0).gate == "none");
    // The first product does not wait for its gate where the second one reads the sum before that.
    CHECK(ops_joined(R"(input u: f32[64] input t: f32[64]
      (n, s) = residual_rms_norm(u, t, _, gamma) p = dequant_matmul(n, v)
      z = dequant_matmul(n, w, s) y = swiglu(p) output "y" = y output "z" = z)") ==
          "dequant_matmul dequant_matmul swiglu");
  }

  TEST_CASE("claims: what the device refuses stays apart, and says so") {
    constexpr std::string_view kAll = R"((n, s) = residual_rms_norm(x, r, _, gamma)
      p = dequant_matmul(n, v) y = swiglu(p) a = dequant_matmul(n, w)
      output "y" = y output "s" = s output "a" = a)";
    const auto with = [&](auto takes) { return joined(kAll, claiming(takes)); };
    const Graph none = with([](const op::dequant_matmul&) { return false; });
    CHECK(ops_of(none) == "residual_rms_norm dequant_matmul swiglu dequant_matmul");
    CHECK(none[NodeId{2}].note == "not joined into dequant_matmul: not this one");
    CHECK(ops_of(with([](const auto& p) { return p.gate == "none"; })) ==
          "dequant_matmul swiglu dequant_matmul");
    CHECK(ops_of(with([](const auto& p) { return !p.gamma; })) ==
          "residual_rms_norm dequant_matmul dequant_matmul");
    // All products or none of them.
    CHECK(ops_of(with([](const auto& p) { return !p.gamma || p.want_sum; })) ==
          "residual_rms_norm dequant_matmul dequant_matmul");
  }

  TEST_CASE("claims: a graph without products with blocks is not asked about") {
    int asked = 0;
    joined(R"(n = rms_norm(x, gamma) y = swiglu(n) output "y" = y)", answering(true, &asked));
    CHECK(asked == 0);
  }

  TEST_CASE("fuse: a residual sum before the norm, and a gate in simple ops, are joined first") {
    const Graph g = rewritten(cat(kInputs, R"(s = binary(x, r) {kind="add"}
      n = rms_norm(s, gamma) p = dequant_matmul(n, v) y = swiglu(p) z = binary(s, y) {kind="add"}
      output "z" = z)"),
                              [](const Graph& from) { return fuse(from, answering(true)); });
    REQUIRE(ops_of(g) == "dequant_matmul binary");
    CHECK(product_at(g, 0).want_sum);
    CHECK(g[product_at(g, 0).residual].name == "r");
  }

  TEST_CASE("fuse: gradients of joined nodes are those of their parts") {
    const Graph g =
        rewritten(cat(kInputs, R"((n, s) = residual_rms_norm(x, r, _, gamma)
      p = dequant_matmul(n, v) y = swiglu(p) loss = reduce(y) {kind="sum"} dx = grad(loss, x)
      output "dx" = dx output "s" = s)"),
                  [](const Graph& from) { return expand_grads(fuse(from, answering(true))); });
    CHECK(ops_of(g).starts_with("dequant_matmul reduce"));
    CHECK(ops_of(g).find("swiglu_backward") != std::string::npos);
    CHECK(ops_of(g).find("rms_norm_backward") != std::string::npos);
  }
}
