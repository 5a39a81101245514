// SPDX-License-Identifier: Apache-2.0
// What a device is asked about, what counts as the same question, and what becomes of its answers.
#include "plan/rewrite/claims.hpp"

#include "ir/graphs.hpp"
#include "ops/build.hpp"

using namespace tenon::core;

namespace {

Verdict claimed(double cost = 0, uint32_t group = TENON_NONE) {
  Verdict v;
  v.native = true, v.cost = cost, v.group = group;
  return v;
}
Verdict refused(std::string text = "no", uint32_t group = TENON_NONE) {
  Verdict v;
  v.text = std::move(text), v.group = group;
  return v;
}

// Claims every node; keeps the graphs that it was asked about.
struct Listening {
  std::vector<Graph> heard{};
  Query query() {
    return [this](const Graph& g, uint32_t) {
      heard.push_back(g);
      return std::vector<Verdict>(g.node_count(), claimed());
    };
  }
};

// The form of each node of a graph in which they differ in one thing.
std::vector<std::string> forms(std::string_view statements) {
  const Graph g = graph_of(cat("graph { ", statements, " }"));
  std::vector<std::string> keys;
  for (NodeId n = 0; n < g.node_count(); ++n) keys.push_back(form_key(g, g[n]));
  return keys;
}

}  // namespace

TEST_SUITE("plan/claims") {
  TEST_CASE("form: an operand's kind and a small constant's content are part of it") {
    const auto keys = forms(R"(
      input x: f32[2] input z: f32[2] weight w: f32[2] weight u: f32[2] state s: f32[2]
      const k: f32[2] = {1, 2} const l: f32[2] = {1, 3} const m: f32[2] = {1, 2}
      a = binary(x, z) {kind="add"} b = binary(x, w) {kind="add"} c = binary(x, u) {kind="add"}
      d = binary(x, s) {kind="add"} e = binary(x, k) {kind="add"} f = binary(x, l) {kind="add"}
      g = binary(x, m) {kind="add"} h = binary(x, x) {kind="add"} i = binary(z, a) {kind="add"}
      update u = a)");
    CHECK(keys[4] == keys[6]);  // equal content
    CHECK(keys[0] == keys[8]);  // what a node makes is an input where it is asked about alone
    for (size_t a = 0; a < 8; ++a)
      for (size_t b = 0; b < a; ++b)
        if (a != 6 || b != 4) CHECK_MESSAGE(keys[a] != keys[b], a, " and ", b);
  }

  TEST_CASE("form: types, attributes and wanted outputs are part of it, provenance is not") {
    const auto keys = forms(R"(
      input x: f32[2,4] input y: f32[2,5] input h: bf16[2,4] weight w: f32[4] weight v: f32[5]
      a = rms_norm(x, w) b = rms_norm(y, v) c = rms_norm(h, w) d = rms_norm(x, w) {eps=0.5}
      (e, r) = rms_norm(x, w) f = rms_norm(x, w) @ "elsewhere")");
    CHECK(keys[0] == keys[5]);
    for (size_t a = 0; a < 5; ++a)
      for (size_t b = 0; b < a; ++b) CHECK_MESSAGE(keys[a] != keys[b], a, " and ", b);
  }

  TEST_CASE("trial: stand-ins keep kind, content, updates and identity") {
    const Graph g = graph_of(R"(graph { input x: f32[2] weight w: f32[2] trainable state s: f32[2]
      const k: f32[2] = {1, 2} y = binary(x, w) {kind="add"} update w = y })");
    const Value x = g.inputs()[0], w = g.weights()[0], s = g.states()[0],
                y = g[NodeId{0}].outputs[0];
    Value k;
    for (uint32_t v = 0; v < g.value_count(); ++v)
      if (g[Value{v}].space == Space::constant) k = Value{v};
    const std::vector<Value> operands = {x, w, {}, s, k, y, w};
    const Trial t = trial_of(g, operands);
    REQUIRE(t.operands.size() == 7);
    const auto space = [&](size_t i) { return t.graph[t.operands[i]].space; };
    CHECK(space(0) == Space::input);
    CHECK(space(1) == Space::weight);
    CHECK(t.graph[t.operands[1]].trainable);
    CHECK(!t.operands[2]);
    CHECK(space(3) == Space::state);
    CHECK(space(4) == Space::constant);
    CHECK(*t.graph[t.operands[4]].data == *g[k].data);
    CHECK(space(5) == Space::input);
    CHECK(t.operands[6] == t.operands[1]);
    CHECK(t.graph.update_of(t.operands[1]));
    CHECK(!t.graph.update_of(t.operands[3]));
  }

  TEST_CASE("claims: each form is asked about once, of each device") {
    const Graph g = graph_of(R"(graph { input x: f32[2] weight w: f32[2]
      a = binary(x, w) {kind="add"} b = binary(a, w) {kind="add"} c = binary(a, x) {kind="add"} })");
    Listening device;
    const Query query = device.query();
    Claims claims(query);
    for (NodeId n = 0; n < 3; ++n) CHECK(claims.of(g, g[n]).native);
    CHECK(device.heard.size() == 2);
    CHECK(device.heard[0].weights().size() == 1);
    CHECK(device.heard[1].weights().empty());
    NodeInfo elsewhere = g[NodeId{0}];
    elsewhere.device = 1;
    claims.of(g, elsewhere);
    CHECK(device.heard.size() == 3);
  }

  TEST_CASE("verdicts: a group is all or none, and a refusal has a text") {
    std::vector<Verdict> v = {claimed(0, 3), claimed(0, 4), refused("not this", 4),
                              claimed(0, 3), claimed(),     claimed(0, 4),
                              refused("")};
    settle_verdicts(v);
    CHECK(v[0].native);
    CHECK(!v[1].native);
    CHECK(v[1].text == "claimed only together with a node that is refused");
    CHECK(v[2].text == "not this");
    CHECK(v[3].native);
    CHECK(v[4].native);
    CHECK(!v[5].native);
    CHECK(!v[6].text.empty());
  }

  TEST_CASE("costs: a node that would take longer than its parts is not made of them") {
    const Graph g = graph_of(R"(graph { input x: f32[2] a = unary(x) {kind="exp"}
      b = unary(a) {kind="neg"} c = unary(b) {kind="log"} })");
    const Query query = [](const Graph& asked, uint32_t) {
      const std::string kind = std::get<std::string>(*asked[NodeId{0}].attr("kind"));
      return std::vector<Verdict>{kind == "exp"   ? claimed(3e-6)
                                  : kind == "neg" ? claimed(1e-6)
                                                  : claimed()};
    };
    Claims claims(query);
    const std::vector<NodeId> two = {0, 1}, three = {0, 1, 2};
    CHECK(claims.why_not(claimed(4e-6), g, two).empty());
    CHECK(claims.why_not(claimed(5e-6), g, two) == "it would take 5 us, its parts 4 us");
    CHECK(claims.why_not(claimed(), g, two).empty());        // it gives no cost
    CHECK(claims.why_not(claimed(5e-6), g, three).empty());  // one of its parts gives none
    CHECK(claims.why_not(refused("never"), g, two) == "never");
  }

  TEST_CASE("withdrawn: a form is refused from then on, on its device, with its group") {
    const Graph g = graph_of(R"(graph { input x: f32[2] a = unary(x) {kind="exp"}
      b = unary(a) {kind="exp"} c = unary(b) {kind="neg"} d = unary(c) {kind="log"} })");
    Query query = [](const Graph& asked, uint32_t) {
      std::vector<Verdict> v(asked.node_count(), claimed());
      v[2].group = v[3].group = 7;
      return v;
    };
    Withdrawn withdrawn;
    CHECK(withdrawn.empty());
    CHECK(withdrawn.add(g, 1, "the second one"));
    CHECK(!withdrawn.add(g, 1, "again"));
    auto v = withdrawn.without(query)(g, 0);
    CHECK(!v[0].native);  // the same form
    CHECK(v[1].text == "claimed at first, refused in its region: the second one");
    CHECK(v[2].native);
    for (const Verdict& other : withdrawn.without(query)(g, 1)) CHECK(other.native);
    CHECK(withdrawn.add(g, 2, "no neg"));
    v = withdrawn.without(query)(g, 0);
    CHECK(!v[2].native);
    CHECK(!v[3].native);
  }
}
