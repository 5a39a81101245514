// SPDX-License-Identifier: Apache-2.0
// Graphs that Graph's own checks cannot make, and what the verifier says of them.
#include "ir/verify.hpp"
#include "graphs.hpp"

namespace tenon::core {

// Makes what Graph's own checks refuse.
struct GraphSurgery {
  static ValueInfo& value(Graph& g, Value v) { return g.values_[v.id]; }
  static NodeInfo& node(Graph& g, NodeId n) { return g.nodes_[n]; }
  static std::vector<Output>& outputs(Graph& g) { return g.outputs_; }
  static std::vector<Update>& updates(Graph& g) { return g.updates_; }
  static std::vector<Value>& inputs(Graph& g) { return g.inputs_; }
};

}  // namespace tenon::core

using namespace tenon::core;
using S = GraphSurgery;

namespace {

Graph sound() {
  return graph_of(R"(graph {
    input x: f32[2,4]
    input z: f32[2,4]
    weight w: f32[4] trainable
    state n: f32[2,4]
    const c: f32[2] = {1.0, 2.0}
    a = unary(x) {kind="exp"} @"first"
    b = rms_norm(a, w) {eps=1e-06} @"norm"
    d = binary(b, z) {kind="add"}
    output "d" = d
    update n = d
  })");
}

std::string why(void (*damage)(Graph&), Code code = Code::invalid_argument) {
  Graph g = sound();
  damage(g);
  return refusal([&] { verify(g); }, code);
}

}  // namespace

TEST_SUITE("ir/verify") {
  TEST_CASE("verify: sound graphs pass, before and after their shapes are known") {
    verify(sound());
    verify(
        graph_of("graph { input x: f32[N,4] weight w: f32[4] y = rms_norm(x, w) l = reduce(y) "
                 "{kind=\"sum\"} g = grad(l, w) }"));
    verify(Graph());
  }

  TEST_CASE("verify: operands") {
    CHECK_SAYS(why([](Graph& g) { S::node(g, 0).operands[0] = g[NodeId{2}].outputs[0]; }),
               "graph: node 0, unary 'first': operand x is made after it, by node 2, binary");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 2).operands[1] = Value{99}; }),
               "node 2, binary: operand b does not exist");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 2).operands[1] = Value{}; }),
               "node 2, binary: operand b is missing");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 2).operands.push_back(Value{0}); }),
               "node 2, binary: has too many operands");
  }

  TEST_CASE("verify: values and nodes agree") {
    CHECK_SAYS(why([](Graph& g) { S::value(g, g[NodeId{0}].outputs[0]).node = 1; }),
               "node 1, rms_norm 'norm' does not make it");
    CHECK_SAYS(why([](Graph& g) { S::value(g, g[NodeId{0}].outputs[0]).node = 77; }),
               "its node does not exist");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 0).outputs[0] = g[NodeId{1}].outputs[0]; }),
               "does not make it");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{0}).node = 1; }),
               "'x': is made by no node and names one");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 0).outputs.clear(); }), "does not make it");
  }

  TEST_CASE("verify: types are what the shape rules say") {
    CHECK_SAYS(why([](Graph& g) {
                 S::value(g, g[NodeId{1}].outputs[0]).type = {kF32, {2, 5}};
               }),
               "node 1, rms_norm 'norm': output y: expected f32[2,4], got f32[2,5]");
    CHECK_SAYS(why([](Graph& g) { S::value(g, g[NodeId{2}].outputs[0]).type.dtype = kF16; }),
               "expected f32[2,4], got f16[2,4]");
    CHECK_SAYS(why(
                   [](Graph& g) {
                     S::value(g, g.find(Space::weight, "w")).type = {kF32, {5}};
                   },
                   Code::shape_mismatch),
               "rms_norm 'norm': operand gamma");
    CHECK_SAYS(why([](Graph& g) { S::value(g, g.find(Space::weight, "w")).type.shape[0] = -1; }),
               "'w': only inputs may have symbolic dims");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{0}).type.shape[0] = -3; }),
               "'x': a dim is no symbol of the graph");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{0}).type.dtype = 99; }), "'x': has no dtype");
  }

  TEST_CASE("verify: attributes fit the entry") {
    CHECK_SAYS(why([](Graph& g) { S::node(g, 1).attrs[0].name = "epsilon"; }),
               "node 1, rms_norm 'norm': attribute epsilon is unknown or out of order");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 1).attrs[0].value = true; }),
               "attribute eps has the wrong type");
    CHECK_SAYS(why([](Graph& g) { S::node(g, 0).attrs[0].value = std::string("explode"); }),
               "unary 'first': attribute kind");
  }

  TEST_CASE("verify: constants have their content, others none") {
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{4}).data = nullptr; }),
               "'c': a constant without content");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{4}).data = bytes_of({1}); }),
               "f32[2] takes 8 bytes, its content has 4");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{0}).data = bytes_of({1}); }),
               "'x': has content and is no constant");
  }

  TEST_CASE("verify: names, outputs and updates") {
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{1}).name = "x"; }),
               "'x': its name is used twice");
    CHECK_SAYS(why([](Graph& g) { S::value(g, Value{1}).name = "y"; }),
               "'y': is not found by its name");
    CHECK_SAYS(why([](Graph& g) { S::inputs(g)[0] = g.find(Space::weight, "w"); }),
               "is in the list of another space");
    CHECK_SAYS(why([](Graph& g) {
                 S::outputs(g).push_back({"d", {0}});
               }),
               "output 'd': name empty or used twice");
    CHECK_SAYS(why([](Graph& g) { S::outputs(g)[0].value = {99}; }), "output 'd' does not exist");
    CHECK_SAYS(why([](Graph& g) { S::updates(g)[0].target = {0}; }), "neither a weight nor state");
    CHECK_SAYS(why([](Graph& g) { S::updates(g)[0].value = g.find(Space::weight, "w"); }),
               "expected f32[2,4], got f32[4]");
    CHECK_SAYS(why([](Graph& g) { S::updates(g).push_back(g.updates()[0]); }), "stands twice");
  }

  TEST_CASE("verify: 100,000 nodes") { verify(chain(100000)); }
}
