// SPDX-License-Identifier: Apache-2.0
// What is joined, what is not and why, with devices that are rules over nodes.
#include "plan/rewrite/fuse.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "grad/grad.hpp"
#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"

using namespace tenon::core;

namespace {

// A device that claims what `takes` says; counts what it was asked.
struct Rule {
  std::function<bool(const Graph&, const NodeInfo&)> takes = [](const Graph&, const NodeInfo&) {
    return true;
  };
  int asked = 0;

  Query query() {
    return [this](const Graph& graph, uint32_t) {
      std::vector<Verdict> verdicts;
      for (NodeId n = 0; n < graph.node_count(); ++n) {
        ++asked;
        Verdict v;
        v.native = takes(graph, graph[n]);
        if (!v.native) v.reason = TENON_REASON_OP, v.text = "not this one";
        verdicts.push_back(v);
      }
      return verdicts;
    };
  }
};

Graph fused(const Graph& g) {
  Rule all;
  Graph f = fuse(g, all.query());
  CHECK_NOTHROW(verify(f));
  return f;
}

// x [4,6], w [6,8], bias [8], r [4,8]
struct Inputs {
  Graph g;
  Builder b{g};
  Value x = g.input("x", {kF32, {4, 6}}), w = g.weight("w", {kF32, {6, 8}}),
        bias = g.weight("bias", {kF32, {8}}), r = g.input("r", {kF32, {4, 8}});
};

}  // namespace

TEST_SUITE("plan/fuse") {
  TEST_CASE("segments: a composite has the number of its nodes, or none where they differ") {
    for (const uint32_t second : {1u, 2u}) {
      Inputs i;
      const Value y = i.b.matmul(i.x, i.w), z = i.b.plus(y, i.bias);
      i.g.output("z", z);
      i.g.set_recompute(i.g[y].node, 1);
      i.g.set_recompute(i.g[z].node, second);
      const Graph f = fused(i.g);
      CHECK(ops_of(f) == "linear");
      CHECK(f[NodeId{0}].recompute == (second == 1 ? 1 : 0));
    }
  }

  TEST_CASE("an update stays a sum of its own, which may be in place") {
    Inputs i;
    const Value sum = i.g.state("sum", {kF32, {4, 8}});
    const Value next = i.b.plus(i.b.matmul(i.x, i.w), sum);
    i.g.update(sum, next);
    CHECK(ops_of(fused(i.g)) == "matmul binary");
  }

  TEST_CASE("product: bias, activation and residual become one linear") {
    Inputs i;
    const Value z = i.b.plus(i.b.matmul(i.x, i.w), i.bias);
    i.g.output("y", i.b.plus(i.r, i.b.unary("gelu", z)));
    const Graph f = fused(i.g);
    REQUIRE(ops_of(f) == "linear");
    const op::linear n = decode<op::linear>(f[NodeId{0}]);
    CHECK(n.act == "gelu");
    CHECK(f[n.a].name == "x");
    CHECK(f[n.b].name == "w");
    CHECK(f[n.bias].name == "bias");
    CHECK(f[n.residual].name == "r");
    CHECK(!n.want_pre_act);
    CHECK(f[NodeId{0}].note == "joined: matmul + binary add + unary gelu + binary add");
  }

  TEST_CASE("product: a bias that is made behind it is waited for") {
    Inputs i;
    const Value product = i.b.matmul(i.x, i.w);
    const Value c = i.g.weight("c", {kF32, {8}});
    const Value late = i.b.plus(c, c);
    i.g.output("y", i.b.unary("relu", i.b.plus(product, late)));
    const Graph f = fused(i.g);
    REQUIRE(ops_of(f) == "binary linear");
    const op::linear n = decode<op::linear>(f[NodeId{1}]);
    CHECK(n.bias == f[NodeId{0}].outputs[0]);
    CHECK(n.act == "relu");
  }

  TEST_CASE("product: an attribute of matmul and a parameter of the activation go along") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {6, 4}}), w = g.weight("w", {kF32, {8, 6}});
    const Value z = b.matmul(x, w, true, true, 0.5);
    g.output("y", b.add(op::unary{.kind = "leaky_relu", .alpha = 0.25, .x = z}));
    const Graph f = fused(g);
    REQUIRE(ops_of(f) == "linear");
    const op::linear n = decode<op::linear>(f[NodeId{0}]);
    CHECK(n.trans_a);
    CHECK(n.trans_b);
    CHECK(n.alpha == 0.5);
    CHECK(n.act_alpha == 0.25);
  }

  TEST_CASE("product: what is read later, or leaves, is kept as pre_act") {
    Inputs i;
    const Value z = i.b.plus(i.b.matmul(i.x, i.w), i.bias);
    const Value y = i.b.unary("silu", z);
    i.g.output("y", y);
    i.g.output("z", z);
    i.g.output("later", i.b.neg(z));
    const Graph f = fused(i.g);
    REQUIRE(ops_of(f) == "linear unary");
    const NodeInfo& linear = f[NodeId{0}];
    CHECK(decode<op::linear>(linear).want_pre_act);
    CHECK(f.outputs()[0].value == linear.outputs[0]);
    CHECK(f.outputs()[1].value == linear.outputs[1]);
    CHECK(f[NodeId{1}].operands[0] == linear.outputs[1]);
  }

  TEST_CASE("product: nothing is joined past the first reader of what is kept") {
    Inputs i;
    const Value z = i.b.matmul(i.x, i.w);
    i.g.output("early", i.b.times(z, i.r));
    i.g.output("y", i.b.unary("silu", z));
    CHECK(ops_of(fused(i.g)) == "matmul binary unary");

    Inputs j;  // act(z) + z: the residual would be the composite's own value
    const Value p = j.b.matmul(j.x, j.w);
    j.g.output("y", j.b.plus(j.b.unary("silu", p), p));
    const Graph f = fused(j.g);
    REQUIRE(ops_of(f) == "linear binary");
    CHECK(!decode<op::linear>(f[NodeId{0}]).residual);

    Inputs k;  // act(z) + 2z
    const Value q = k.b.matmul(k.x, k.w);
    const Value act = k.b.unary("silu", q);
    k.g.output("y", k.b.plus(act, k.b.times(q, 2)));
    CHECK(ops_of(fused(k.g)) == "linear binary binary");
  }

  TEST_CASE("product: no join where types differ, a value doubles, or slopes would be lost") {
    Inputs i;
    const Value z = i.b.matmul(i.x, i.w);
    i.g.output("doubled", i.b.plus(z, z));
    CHECK(ops_of(fused(i.g)) == "matmul binary");

    Inputs j;  // a sum that broadcasts the product
    const Value wide = j.g.input("wide", {kF32, {3, 4, 8}});
    j.g.output("y", j.b.plus(j.b.matmul(j.x, j.w), wide));
    CHECK(ops_of(fused(j.g)) == "matmul binary");

    Inputs k;
    k.g.output("y", k.b.unary("round", k.b.matmul(k.x, k.w)));
    CHECK(ops_of(fused(k.g)) == "matmul unary");
  }

  TEST_CASE("product: the longest chain that the device claims, and why it was not longer") {
    Inputs i;
    const Value z = i.b.plus(i.b.matmul(i.x, i.w), i.bias);
    i.g.output("y", i.b.plus(i.b.unary("gelu", z), i.r));
    Rule device{.takes = [](const Graph&, const NodeInfo& n) {
      return n.op->name() != "linear" || !decode<op::linear>(n).residual;
    }};
    const Graph f = fuse(i.g, device.query());
    REQUIRE(ops_of(f) == "linear binary");
    CHECK(f[NodeId{0}].note == "joined: matmul + binary add + unary gelu");
    CHECK(f[NodeId{1}].note == "not joined into linear: not this one");

    Rule none{.takes = [](const Graph&, const NodeInfo&) { return false; }};
    CHECK(ops_of(fuse(i.g, none.query())) == "matmul binary unary binary");
  }

  TEST_CASE("claims: equal composites are asked for once") {
    Graph g;
    Builder b(g);
    Value x = g.input("x", {kF32, {8, 8}});
    for (int k = 0; k < 10; ++k)
      x = b.unary("relu", b.matmul(x, g.weight("w" + std::to_string(k), {kF32, {8, 8}})));
    g.output("y", x);
    Rule device;
    const Graph f = fuse(g, device.query());
    CHECK(f.node_count() == 10);
    CHECK(device.asked == 1);
  }

  TEST_CASE("norm: the sum before it is joined, and leaves where others read it") {
    Inputs i;
    const Value gamma = i.g.weight("gamma", {kF32, {8}}), q = i.g.input("q", {kF32, {4, 8}});
    const Value sum = i.b.plus(q, i.r);
    const Value y =
        i.b.add(op::rms_norm{.eps = 1e-6, .x = sum, .gamma = gamma, .want_inv_rms = true})[0];
    i.g.output("y", y);
    i.g.output("inv_rms", i.g[i.g[y].node].outputs[1]);
    i.g.output("next", i.b.times(sum, y));
    const Graph f = fused(i.g);
    REQUIRE(ops_of(f) == "residual_rms_norm binary");
    const NodeInfo& norm = f[NodeId{0}];
    const op::residual_rms_norm n = decode<op::residual_rms_norm>(norm);
    CHECK(n.eps == 1e-6);
    CHECK(f[n.x].name == "q");
    CHECK(f[n.residual].name == "r");
    CHECK(n.want_sum);
    CHECK(f.outputs()[1].value == norm.outputs[2]);
    CHECK(f[NodeId{1}].operands[0] == norm.outputs[1]);

    Graph own;  // the sum is gamma too
    Builder ob(own);
    const Value both = ob.plus(own.input("a", {kF32, {8}}), own.input("c", {kF32, {8}}));
    own.output("y", ob.add(op::rms_norm{.x = both, .gamma = both}));
    CHECK(ops_of(fused(own)) == "binary rms_norm");

    Graph g;
    Builder b(g);
    const Value a = g.input("a", {kF32, {4, 8}}), c = g.input("c", {kF32, {4, 8}});
    g.output("y", b.add(op::layer_norm{.x = b.plus(a, c)}));
    const Graph l = fused(g);
    REQUIRE(ops_of(l) == "residual_layer_norm");
    CHECK(!decode<op::residual_layer_norm>(l[NodeId{0}]).want_sum);
  }

  TEST_CASE("gate: an activation times a value becomes swiglu, on either side") {
    for (const bool left : {true, false}) {
      Graph g;
      Builder b(g);
      const Value x = g.input("x", {kF32, {4, 8}}), up = g.input("up", {kF32, {4, 8}});
      const Value gate = b.unary("silu", x);
      g.output("y", left ? b.times(gate, up) : b.times(up, gate));
      const Graph f = fused(g);
      REQUIRE(ops_of(f) == "swiglu");
      const op::swiglu n = decode<op::swiglu>(f[NodeId{0}]);
      CHECK(n.act == "silu");
      CHECK(f[n.gate].name == "x");
      CHECK(f[n.up].name == "up");
    }
    Graph chain;  // its region takes the whole
    Builder c(chain);
    const Value in = chain.input("x", {kF32, {4, 8}});
    chain.output("y", c.times(c.unary("silu", c.neg(in)), in));
    CHECK(ops_of(fused(chain)) == "unary unary binary");
    Graph g;  // broadcast: not the same op
    Builder b(g);
    const Value x = g.input("x", {kF32, {4, 8}}), up = g.input("up", {kF32, {8}});
    g.output("y", b.times(b.unary("silu", x), up));
    CHECK(ops_of(fused(g)) == "unary binary");
  }

  TEST_CASE("notes: what was raised is still told of the joined node, why it was left is not") {
    Inputs i;
    const Value y = i.b.unary("gelu", i.b.matmul(i.x, i.w));
    i.g.output("y", y);
    i.g.set_note(i.g[y].node, "not joined into this; raised to gelu: a + b; reads a half: c");
    const Graph f = fused(i.g);
    CHECK(ops_of(f) == "linear");
    CHECK(f[NodeId{0}].note ==
          "raised to gelu: a + b; reads a half: c; joined: matmul + unary gelu");
  }

  TEST_CASE("gate: integers are not gated, though they have relu") {
    Inputs i;
    const Value p = i.g.input("p", {kI32, {4}}), q = i.g.input("q", {kI32, {4}});
    i.g.output("y", i.b.times(i.b.unary("relu", p), q));
    CHECK(ops_of(fused(i.g)) == "unary binary");
  }

  TEST_CASE(
      "gradient: a value whose gradient is asked for stays, and the composite's gradient is "
      "taken") {
    const auto graph = [](bool of_sum) {
      Graph g;
      Builder b(g);
      const Value a = g.input("a", {kF32, {4, 8}}), c = g.input("c", {kF32, {4, 8}}),
                  gamma = g.weight("gamma", {kF32, {8}});
      const Value sum = b.plus(a, c);
      const Value loss = b.sum(b.add(op::rms_norm{.x = sum, .gamma = gamma}), {0, 1}, false);
      const NodeId n = g.add(op::grad{.loss = loss, .wrt = {of_sum ? sum : a}});
      g.output("d", g[n].outputs[0]);
      return g;
    };
    CHECK(ops_of(fused(graph(true))) == "binary rms_norm reduce grad");
    const Graph f = fused(graph(false));
    CHECK(ops_of(f) == "residual_rms_norm reduce grad");
    CHECK(ops_of(expand_grads(f)).find("rms_norm_backward") != std::string::npos);
  }

  TEST_CASE("clones: a recomputed node is not joined with one that is not") {
    Inputs i;
    const Value z = i.b.matmul(i.x, i.w);
    const Value y = i.b.unary("relu", z);
    i.g.set_clone(i.g[y].node, 1);
    i.g.output("y", y);
    CHECK(ops_of(fused(i.g)) == "matmul unary");
  }
}
