// SPDX-License-Identifier: Apache-2.0
// What only a weight decides leaves the run, and what makes it.
#include "plan/rewrite/hoist.hpp"

#include "ir/graphs.hpp"
#include "ir/verify.hpp"

using namespace tenon::core;

namespace {

Query all_but(std::string_view refused = "") {
  return [refused](const Graph& graph, uint32_t) {
    std::vector<Verdict> verdicts(graph.node_count());
    for (NodeId n = 0; n < graph.node_count(); ++n)
      verdicts[n].native = graph[n].op->name() != refused;
    return verdicts;
  };
}

LegalGraph hoisted(std::string_view statements, const Query& query = all_but()) {
  LegalGraph legal;
  legal.graph = graph_of(cat("graph { ", statements, " }"));
  hoist_weights(legal, query);
  verify(legal.graph);
  return legal;
}

// "exp(w as f32[2]) ..." for each node, then what is hoisted: its name and its maker's nodes.
std::string shown(const LegalGraph& legal) {
  std::string text;
  const auto nodes = [&](const Graph& g) {
    for (NodeId n = 0; n < g.node_count(); ++n) {
      text += cat(text.empty() || text.back() == ' ' ? "" : " ", g[n].op->name(), "(");
      for (size_t k = 0; k < g[n].operands.size(); ++k)
        text += cat(k ? "," : "", g[g[n].operands[k]].name);
      text += ")";
    }
  };
  nodes(legal.graph);
  for (const auto& [name, h] : legal.hoisted) {
    text += cat(" | ", name, " of ", h.source, ": ");
    nodes(*h.maker);
  }
  return text;
}

constexpr std::string_view kNames =
    "input x: f32[2,3] weight w: bf16[3,4] weight v: bf16[3,4] const k: f32[] = {2} ";

}  // namespace

TEST_SUITE("plan/hoist") {
  TEST_CASE("cast: of a weight that no run changes, once") {
    const LegalGraph legal = hoisted(cat(kNames, R"(
      c = cast(w) {to=f32} y = matmul(x, c) output "y" = y)"));
    CHECK(shown(legal) == "matmul(x,w as f32[3,4]) | w as f32[3,4] of w: cast(w)");
    const Hoisted& h = legal.hoisted.begin()->second;
    CHECK(h.maker->weights().size() == 1);
    CHECK(h.maker->type(h.maker->outputs()[0].value).text() == "f32[3,4]");
  }

  TEST_CASE("cast: of a weight or state that the run updates stays") {
    CHECK(shown(hoisted(cat(kNames, R"(
      c = cast(w) {to=f32} y = matmul(x, c) n = unary(w) {kind="neg"} update w = n
      output "y" = y)"))) == "cast(w) matmul(x,c) unary(w)");
    CHECK(hoisted("state s: bf16[3,4] input x: f32[2,3] c = cast(s) {to=f32} y = matmul(x, c) "
                  "output \"y\" = y")
              .hoisted.empty());
  }

  TEST_CASE("chain: a whole one, with its constants; the views at its end stay") {
    CHECK(shown(hoisted(cat(kNames, R"(
      t = transpose(w) {perm=[1,0]} c = cast(t) {to=f32} m = binary(c, k) {kind="mul"}
      r = transpose(m) {perm=[1,0]} y = matmul(x, r) output "y" = y)"))) ==
          "transpose(w as f32[4,3]) matmul(x,r) | w as f32[4,3] of w: transpose(w) cast() "
          "binary(,)");
    // Nothing is gained by copying what a view shows.
    CHECK(hoisted(cat(kNames, R"(
      t = transpose(w) {perm=[1,0]} c = cast(x) {to=bf16} y = matmul(c, t) {trans_b=true}
      output "y" = y)"))
              .hoisted.empty());
  }

  TEST_CASE("chain: what two weights decide, or an input, stays") {
    CHECK(shown(hoisted(cat(kNames, R"(
      a = cast(w) {to=f32} b = cast(v) {to=f32} c = binary(a, b) {kind="add"} y = matmul(x, c)
      output "y" = y)"))) ==
          "binary(w as f32[3,4],v as f32[3,4]) matmul(x,c) | v as f32[3,4] of v: cast(w) | "
          "w as f32[3,4] of w: cast(w)");
  }

  TEST_CASE("what leaves the graph is made in the run") {
    CHECK(shown(hoisted(cat(kNames, R"(c = cast(w) {to=f32} y = matmul(x, c) output "y" = y
      output "c" = c)"))) == "cast(w) matmul(x,c)");
  }

  TEST_CASE("what is much larger than its weight stays, and what the device does not take") {
    CHECK(hoisted(R"(input x: f32[100,8] weight w: f32[8] const one: f32[100,8] = 0x)" +
                  std::string(6400, '0') + R"( g = binary(w, one) {kind="add"}
      y = binary(x, g) {kind="mul"} output "y" = y)")
              .hoisted.empty());
    const std::string text = cat(kNames, "c = cast(w) {to=f32} y = matmul(x, c) output \"y\" = y");
    CHECK(hoisted(text, all_but("cast")).hoisted.empty());
    CHECK(hoisted(text, all_but("matmul")).hoisted.size() == 1);  // it makes no weight
  }

  TEST_CASE("equal ones are one weight, different ones have different names") {
    const LegalGraph legal = hoisted(cat(kNames, R"(
      a = cast(w) {to=f32} b = cast(w) {to=f32} m = binary(b, k) {kind="mul"}
      y = matmul(x, a) z = matmul(x, b) u = matmul(x, m)
      output "y" = y output "z" = z output "u" = u)"));
    REQUIRE(legal.graph.node_count() == 3);
    CHECK(legal.hoisted.size() == 2);
    CHECK(legal.hoisted.contains("w as f32[3,4] (2)"));
    CHECK(legal.graph[NodeId{0}].operands[1] == legal.graph[NodeId{1}].operands[1]);
    CHECK(legal.graph[NodeId{0}].operands[1] != legal.graph[NodeId{2}].operands[1]);
  }

  TEST_CASE("grouped, ordered and random nodes stay") {
    LegalGraph legal;
    legal.graph = graph_of(
        cat("graph { ", kNames, "c = cast(w) {to=f32} y = matmul(x, c) output \"y\" = y }"));
    Marks marks;
    marks.group = 3;
    legal.graph.set_marks(0, marks);
    hoist_weights(legal, all_but());
    CHECK(legal.hoisted.empty());
    CHECK(hoisted("weight w: i64[2] input x: u32[8] r = random_bits(w) {shape=[8]} "
                  "y = binary(x, r) {kind=\"add\"} output \"y\" = y")
              .hoisted.empty());
  }

  TEST_CASE("a weight of which much is made: the run makes what would take too much memory") {
    Graph g;
    const Value w = g.weight("w", {kF32, {4}}), scalars = g.weight("scalars", {kF32, {1000}});
    Value sum = g.input("x", {kF32, {4}});
    const auto add = [&](Value v) {
      sum = g[g.add(op::binary{.kind = "add", .a = sum, .b = v})].outputs[0];
    };
    for (int i = 0; i < 1000; ++i) {
      const double alpha = 0x1p-10 * i;
      add(g[g.add(op::unary{.kind = "leaky_relu", .alpha = alpha, .x = w})].outputs[0]);
      const Value all = g[g.add(op::unary{.kind = "elu", .alpha = alpha, .x = scalars})].outputs[0];
      add(g[g.add(op::reduce{.kind = "sum", .x = all})].outputs[0]);
    }
    g.output("y", sum);
    LegalGraph legal{.graph = std::move(g)};
    hoist_weights(legal, all_but());
    verify(legal.graph);
    size_t of_w = 0;
    for (const auto& [name, h] : legal.hoisted) of_w += h.source == "w";
    CHECK(of_w == 4);                          // four times its bytes
    CHECK(legal.hoisted.size() == of_w + 16);  // small ones: so many programs make them
  }

  TEST_CASE("100,000 nodes of one weight") {
    Graph g;
    Value v = g.weight("w", {kF32, {4}});
    std::vector<Value> made;
    for (int i = 0; i < 50000; ++i) {
      v = g[g.add(op::unary{.kind = "tanh", .x = v})].outputs[0];
      made.push_back(v);
    }
    Value sum = g.input("x", {kF32, {4}});
    for (const Value m : made)
      sum = g[g.add(op::binary{.kind = "add", .a = sum, .b = m})].outputs[0];
    g.output("y", sum);
    LegalGraph legal{.graph = std::move(g)};
    hoist_weights(legal, all_but());
    verify(legal.graph);
    CHECK(legal.hoisted.size() == 4);
  }
}
