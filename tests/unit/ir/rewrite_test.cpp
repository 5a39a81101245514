// SPDX-License-Identifier: Apache-2.0
// Copying and replacing nodes, and the map of values.
#include "ir/rewrite.hpp"
#include "graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"

using namespace tenon::core;

namespace {
Graph copy_all(const Graph& g, ValueMap* map = nullptr) {
  Rewriter r(g);
  for (NodeId n = 0; n < g.node_count(); ++n) r.copy(n);
  Graph out = r.finish();
  if (map) *map = r.values();
  return out;
}
}  // namespace

TEST_SUITE("ir/rewrite") {
  TEST_CASE("copy: names, types, attributes, clones, outputs and updates survive") {
    const std::string text = R"(graph "g" {
  symbols N
  input x: f32[N,4]
  weight w: f32[4] trainable
  weight v: f32[4]
  state n: i64[]
  const one: i64[] = {1}
  y = rms_norm(x, w) {eps=1e-06} @"layers.0" clone 3
  m = binary(n, one) {kind="add"}
  output "y" = y
  output "also y" = y
  update n = m
}
)";
    CHECK(print(copy_all(graph_of(text))) == text);
  }

  TEST_CASE("replace: readers see the new value, which takes the old one's name") {
    const Graph g = graph_of(
        "graph { input x: f32[2] a = unary(x) {kind=\"gelu\"} b = unary(a) {kind=\"exp\"} output "
        "\"b\" = b }");
    Rewriter r(g);
    Builder b(r.to);
    r.replace(g[NodeId{0}].outputs[0], b.neg(r.map(g.inputs()[0])));
    r.copy(1);
    const Graph out = r.finish();
    CHECK(print(out) ==
          "graph {\n  input x: f32[2]\n  a = unary(x) {kind=\"neg\"}\n  b = unary(a) "
          "{kind=\"exp\"}\n  output \"b\" = b\n}\n");
    CHECK(r.values()[g[NodeId{1}].outputs[0]] == out.outputs()[0].value);
    verify(out);
  }

  TEST_CASE("map: constants come when they are used, once") {
    const Graph g = graph_of(
        "graph { const c: f32[] = {1.0} const unused: f32[] = {2.0} a = unary(c) {kind=\"exp\"} b "
        "= unary(c) {kind=\"neg\"} }");
    ValueMap map;
    const Graph out = copy_all(g, &map);
    CHECK(out.value_count() == 3);
    CHECK(out[NodeId{0}].operands[0] == out[NodeId{1}].operands[0]);
    CHECK(out[map[Value{0}]].data == g[Value{0}].data);
    CHECK(!map[Value{1}]);
  }

  TEST_CASE("map: reading a node's value before it is made is said") {
    const Graph g = chain(2);
    Rewriter r(g);
    CHECK_SAYS(refusal([&] { r.copy(1); }, Code::internal), "read before it is made");
  }

  TEST_CASE("values: maps follow each other") {
    ValueMap a(3), b(3);
    a.set({0}, {2});
    b.set({2}, {1});
    const ValueMap both = a.then(b);
    CHECK(both[Value{0}] == Value{1});
    CHECK(!both[Value{1}]);
    CHECK(!both[Value{}]);
  }

  TEST_CASE("live: what outputs, updates and what they read need") {
    const Graph g = graph_of(
        "graph { input x: f32[] state s: f32[] a = unary(x) {kind=\"exp\"} dead = unary(a) "
        "{kind=\"exp\"}"
        " b = unary(x) {kind=\"neg\"} update s = b output \"a\" = a }");
    CHECK(live_nodes(g) == std::vector<bool>{true, false, true});
  }

  TEST_CASE("copy: 100,000 nodes") { CHECK(copy_all(chain(100000)).node_count() == 100000); }
}
