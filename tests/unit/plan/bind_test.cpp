// SPDX-License-Identifier: Apache-2.0
// Binding symbols to numbers.
#include "plan/rewrite/bind.hpp"

#include "ir/graphs.hpp"
#include "ir/verify.hpp"

using namespace tenon::core;

namespace {
constexpr std::string_view kModel = R"(graph {
  symbols N, M
  input x: f32[N,4]
  input z: f32[M,4]
  weight w: f32[4] trainable
  y = rms_norm(x, w) @"norm"
  s = concat(y, z) {axis=0}
  l = reduce(s) {kind="sum"}
  g = grad(l, w)
  output "s" = s
  update w = g
}
)";
}  // namespace

TEST_SUITE("plan/bind") {
  TEST_CASE("bind: symbols become numbers and every type is known") {
    const Graph g = graph_of(kModel);
    ValueMap map;
    const Graph bound = bind(g, {{"N", 3}, {"M", 0}}, &map);
    verify(bound);
    CHECK(bound.symbols().empty());
    CHECK(bound.type(bound.inputs()[0]).text() == "f32[3,4]");
    CHECK(bound.type(map[g.find(Space::input, "z")]).text() == "f32[0,4]");
    CHECK(bound.type(bound.outputs()[0].value).text() == "f32[3,4]");
    CHECK(bound.type(bound.update_of(bound.weights()[0])).text() == "f32[4]");
    CHECK(bound[NodeId{0}].provenance == "norm");
    for (uint32_t v = 0; v < bound.value_count(); ++v)
      CHECK(bound.type(Value{v}).dtype != TENON_DTYPE_NONE);
  }

  TEST_CASE("bind: a graph of numbers passes through") {
    const Graph g =
        graph_of("graph { input x: f32[2] y = unary(x) {kind=\"exp\"} output \"y\" = y }");
    CHECK(print(bind(g, {})) == print(g));
  }

  TEST_CASE("bind: symbols are checked by name") {
    const Graph g = graph_of(kModel);
    auto says = [&](const std::map<std::string, int64_t>& symbols) {
      return refusal([&] { bind(g, symbols); });
    };
    CHECK(says({{"N", 3}}) == "bind: symbol 'M', a dim of input 'z', has no number");
    CHECK(says({{"N", 3}, {"M", 1}, {"K", 1}}) ==
          "bind: the graph has no symbol 'K'; it has 'N', 'M'");
    CHECK(says({{"N", 3}, {"M", -1}}) == "bind: symbol 'M': expected a number >= 0, got -1");
    CHECK_SAYS(says({{"N", int64_t{1} << 60}, {"M", 1}}), "overflows");
  }

  TEST_CASE("bind: what does not fit is said at its node") {
    const Graph g = graph_of(
        "graph { input x: f32[N] input z: f32[3] y = binary(x, z) {kind=\"add\"} @\"sum\" output "
        "\"y\" = y }");
    CHECK(refusal(
              [&] {
                bind(g, {{"N", 4}});
              },
              Code::shape_mismatch) == "binary 'sum': shapes [4] and [3] do not broadcast");
  }

  TEST_CASE("bind: an update that does not fit its target is refused") {
    const Graph g = graph_of(
        "graph { input x: f32[N] state s: f32[3] y = unary(x) {kind=\"exp\"} update s = y }");
    CHECK(bind(g, {{"N", 3}}).updates().size() == 1);
    CHECK_SAYS(refusal(
                   [&] {
                     bind(g, {{"N", 4}});
                   },
                   Code::shape_mismatch),
               "update 's': expected f32[3], got f32[4]");
  }

  TEST_CASE("bind: 100,000 nodes") {
    Graph g;
    Value v = g.input("x", {kF32, {g.symbol("N")}});
    for (int i = 0; i < 100000; ++i) v = g[g.add(op::unary{.kind = "exp", .x = v})].outputs[0];
    g.output("y", v);
    const Graph bound = bind(g, {{"N", 7}});
    CHECK(bound.type(bound.outputs()[0].value).text() == "f32[7]");
  }
}
