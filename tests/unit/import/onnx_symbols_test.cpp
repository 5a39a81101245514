// SPDX-License-Identifier: Apache-2.0
// ONNX models whose dims are symbols: the node `onnx` and its decomposition.
#include "ir/text.hpp"
#include "onnx_evaluate.hpp"
#include "ops/lower.hpp"
#include "plan/rewrite/bind.hpp"

namespace tenon::core::onnx {
namespace {

// The rows of x, each divided by the number of rows, times w.
Model averages() {
  return model(
      {value("x", 1, {"N", "2"}), value("z", 1, {"N", ""})},
      {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}),
       node("Cast", {"n"}, {"f"}, {attr("to", 1)}), node("Div", {"x", "f"}, {"d"}),
       node("MatMul", {"d", "w"}, {"p"}), node("Concat", {"p", "z"}, {"y"}, {attr("axis", 1)})},
      {"y"}, {scalar("zero", 0), floats("w", {2, 3000}, std::vector<float>(6000, 1))});
}

TEST_SUITE("import/onnx/symbols") {
  TEST_CASE("a model with symbols is one node until they have numbers") {
    const Imported i = import_model(averages(), {});
    CHECK(i.graph.node_count() == 1);
    CHECK(i.graph.symbols() == std::vector<std::string>{"N", "z_dim_1"});
    REQUIRE(i.weights.size() == 1);
    const core::Graph bound = bind(i.graph, {{"N", 4}, {"z_dim_1", 3}});
    CHECK(bound.type(bound.outputs()[0].value).text() == "f32[4,3003]");
    const core::Graph ops = lower_meta(bound);
    CHECK(count_of(ops, "onnx") == 0);
    CHECK(count_of(ops, "matmul") == 1);
    Imported numeric{ops, i.weights};
    const std::vector<double> y = run(numeric, {f32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                                                f32({4, 3}, std::vector<double>(12, 9))})
                                      .at(0)
                                      .data;
    CHECK(y[0] == 0.75);
    CHECK(y[3003 * 3] == 3.75);
    CHECK(y[3003 * 3 + 3000] == 9);
  }
  TEST_CASE("the node survives the text form") {
    const Imported i = import_model(averages(), {});
    const core::Graph back = parse(print(i.graph), "text");
    CHECK(print(back) == print(i.graph));
    const core::Graph bound = bind(back, {{"N", 1}, {"z_dim_1", 2}});
    CHECK(bound.type(bound.outputs()[0].value).text() == "f32[1,3002]");
  }
  TEST_CASE("refusals come with the numbers that they belong to") {
    Model m = averages();
    m.graph.nodes.push_back(node("Reshape", {"y", "to"}, {"r"}));
    m.graph.initializers.push_back(ints("to", {5, -1}));
    m.graph.outputs = {{.name = "r"}};
    const Imported i = import_model(m, {});
    CHECK(bind(i.graph, {{"N", 5}, {"z_dim_1", 2}}).node_count() == 1);
    try {
      bind(i.graph, {{"N", 4}, {"z_dim_1", 2}});
      FAIL_CHECK("not refused");
    } catch (const Error& e) {
      CHECK(has(e.what(), "Reshape 'Reshape:r'"));
    }
  }
  TEST_CASE("a damaged model in the node is an error") {
    for (const char* text : {"", "abcd", "*", "////"}) {
      core::Graph g;
      const Value x = g.input("x", {kF32, {2}});
      CHECK_THROWS_AS(g.add(op::onnx{.model = text, .xs = {x}, .count_ys = 1}), Error);
    }
  }
  TEST_CASE("gradients pass through") {
    const Imported i = import_model(averages(), {.trainable = {"w"}});
    core::Graph g = lower_meta(bind(i.graph, {{"N", 2}, {"z_dim_1", 1}}));
    CHECK(g[g.find(Space::weight, "w")].trainable);
  }
}

}  // namespace
}  // namespace tenon::core::onnx
