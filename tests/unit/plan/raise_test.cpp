// SPDX-License-Identifier: Apache-2.0
// What keeps raise from a match, and what a raised node is known by. The forms themselves, with
// values: tests/exec/raise_test.cpp.
#include "plan/rewrite/raise.hpp"

#include <doctest/doctest.h>

#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"

using namespace tenon::core;

namespace {

// Softmax of x [3,5] in simple ops.
struct Spelt {
  Graph g;
  Builder b{g};
  Value x = g.input("x", {kF32, {3, 5}}), d, e, sum, y;
  Spelt() {
    b.provenance = "layers.0";
    d = b.minus(x, b.reduce("max", x, {1}, true));
    e = b.exp(d);
    sum = b.sum(e, {1});
    y = b.over(e, sum);
  }
};

Graph raised(const Graph& g) {
  Graph r = raise(g);
  CHECK_NOTHROW(verify(r));
  return r;
}

constexpr const char* kAsItWas = "reduce binary unary reduce binary";

}  // namespace

TEST_SUITE("plan/raise") {
  TEST_CASE("a raised node: provenance, name and note of what it was") {
    Spelt s;
    s.g.set_name(s.y, "p");
    s.g.output("y", s.y);
    const Graph r = raised(s.g);
    REQUIRE(ops_of(r) == "softmax");
    const NodeInfo& node = r[NodeId{0}];
    CHECK(node.provenance == "layers.0");
    CHECK(node.note ==
          "raised to softmax: reduce max + binary sub + unary exp + reduce sum + binary div");
    CHECK(r[node.outputs[0]].name == "p");
    CHECK(decode<op::softmax>(node).axis == 1);
    CHECK(r[decode<op::softmax>(node).x].name == "x");
  }

  TEST_CASE("values in between: an output, an update, a reader or a wrt keeps them") {
    {
      Spelt s;
      s.g.output("y", s.y);
      s.g.output("sum", s.sum);
      const Graph r = raised(s.g);
      CHECK(ops_of(r) == kAsItWas);
      CHECK(r[NodeId{4}].note == "not raised to softmax: a value in between is read by others too");
    }
    {
      Spelt s;
      const Value state = s.g.state("last", {kF32, {3, 5}});
      s.g.output("y", s.y);
      s.g.update(state, s.e);
      CHECK(ops_of(raised(s.g)) == kAsItWas);
    }
    {
      Spelt s;
      s.g.output("y", s.y);
      s.g.output("z", s.b.neg(s.d));
      CHECK(ops_of(raised(s.g)) == std::string(kAsItWas) + " unary");
    }
    {
      Spelt s;
      s.g.output("y", s.y);
      const Value loss = s.b.sum(s.y, {0, 1}, false);
      s.g.output("de", s.b.add(op::grad{.loss = loss, .wrt = {s.e}}));
      CHECK(ops_of(raised(s.g)) == std::string(kAsItWas) + " reduce grad");
    }
    {
      Spelt s;
      s.g.output("y", s.y);
      const Value loss = s.b.sum(s.y, {0, 1}, false);
      s.g.output("dx", s.b.add(op::grad{.loss = loss, .wrt = {s.x}}));
      CHECK(ops_of(raised(s.g)) == "softmax reduce grad");
    }
  }

  TEST_CASE("clones: a recomputed copy is raised by itself, not with nodes of another number") {
    Spelt s;
    s.g.output("y", s.y);
    s.g.set_clone(s.g[s.e].node, 7);
    CHECK(ops_of(raised(s.g)) == kAsItWas);
    for (NodeId n = 0; n < s.g.node_count(); ++n) s.g.set_clone(n, 7);
    const Graph r = raised(s.g);
    REQUIRE(ops_of(r) == "softmax");
    CHECK(r[NodeId{0}].clone == 7);
  }

  TEST_CASE("silu: of a value that is a sigmoid itself, in either order") {
    for (const bool swapped : {false, true}) {
      Graph g;
      Builder b(g);
      const Value x = b.unary("sigmoid", g.input("x", {kF32, {4}})), s = b.unary("sigmoid", x);
      g.output("y", swapped ? b.times(s, x) : b.times(x, s));
      const Graph r = raised(g);
      REQUIRE(ops_of(r) == "unary unary");
      CHECK(decode<op::unary>(r[NodeId{1}]).kind == "silu");
    }
  }

  TEST_CASE("a long product is taken apart no further than a form reaches") {
    Graph g;
    Builder b(g);
    Value x = g.input("x", {kF32, {4}});
    for (int i = 0; i < 20000; ++i) x = b.times(x, 0.5);
    g.output("y", x);
    CHECK(raised(g).node_count() == 20000);
  }
}
