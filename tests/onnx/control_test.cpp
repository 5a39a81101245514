// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan of ONNX models: what they become, and what they compute.
#include "cpu.hpp"

namespace tenon::core::onnx {
namespace {

const ValueInfo kX = value("x", 1, {"2"});

Model chooses(Tensor cond, bool known) {
  std::vector<Attribute> branches = {
      attr("then_branch", subgraph({}, {node("Add", {"x", "x"}, {"a"})}, {"a"})),
      attr("else_branch", subgraph({}, {node("Neg", {"x"}, {"b"})}, {"b"}))};
  if (known) return model({kX}, {node("If", {"c"}, {"y"}, branches)}, {"y"}, {std::move(cond)});
  return model({kX, value("c", 9, {})}, {node("If", {"c"}, {"y"}, branches)}, {"y"});
}

// v = v·2, with the sum of v as scan output
Graph doubling() {
  return subgraph({value("i", 7, {}), value("go", 9, {}), value("v", 1, {"2"})},
                  {node("Add", {"v", "v"}, {"w"}), node("Identity", {"go"}, {"on"}),
                   node("ReduceSum", {"w"}, {"s"}, {attr("keepdims", 0)})},
                  {"on", "w", "s"});
}

TEST_SUITE("onnx/control") {
  TEST_CASE("If: a known condition takes its branch") {
    const Imported i = import_model(chooses(constant<uint8_t>("c", 9, {}, {0}), true), {});
    CHECK(count_of(i.graph, "if") == 0);
    CHECK(run(i, {f32({2}, {1, -2})}).at(0).data == std::vector<double>{-1, 2});
  }
  TEST_CASE("If: else a node, whose branches get outer values as operands") {
    const Imported i = import_model(chooses({}, false), {});
    CHECK(count_of(i.graph, "if") == 1);
    const Numbers x = f32({2}, {1, -2});
    CHECK(run(i, {x, numbers(kBool, {}, {1})}).at(0).data == std::vector<double>{2, -4});
    CHECK(run(i, {x, numbers(kBool, {}, {0})}).at(0).data == std::vector<double>{-1, 2});
  }
  TEST_CASE("If: branches of different shapes are refused where the condition is data") {
    Model m = chooses({}, false);
    m.graph.nodes[0].attributes[1] = attr(
        "else_branch", subgraph({}, {node("Concat", {"x", "x"}, {"b"}, {attr("axis", 0)})}, {"b"}));
    CHECK(has(refusal(m), "f32[2] and f32[4]"));
  }
  TEST_CASE("If: a branch that does not fit the shapes fails only if it is taken") {
    Model m = chooses({}, false);
    m.graph.initializers = {floats("three", {3}, {1, 2, 3})};
    m.graph.nodes[0].attributes[1] =
        attr("else_branch", subgraph({}, {node("Add", {"x", "three"}, {"b"})}, {"b"}));
    const Imported i = import_model(m, {});
    const Numbers x = f32({2}, {1, -2});
    CHECK(run(i, {x, numbers(kBool, {}, {1})}).at(0).data == std::vector<double>{2, -4});
    try {
      run(i, {x, numbers(kBool, {}, {0})});
      FAIL_CHECK("the run did not fail");
    } catch (const Error& e) {
      CHECK(has(e.what(), "else_branch"));
      CHECK(has(e.what(), "Add 'Add:b'"));
    }
    m.graph.nodes[0].attributes[1] =
        attr("else_branch", subgraph({}, {node("NoSuchOp", {"x"}, {"b"})}, {"b"}));
    CHECK(has(refusal(m), "NoSuchOp"));
  }
  TEST_CASE("Loop: a known number of trips is a scan, with stacked outputs") {
    const Model m =
        model({kX}, {node("Loop", {"M", "", "x"}, {"last", "sums"}, {attr("body", doubling())})},
              {"last", "sums"}, {scalar("M", 3)});
    const Imported i = import_model(m, {});
    CHECK(count_of(i.graph, "scan") == 1);
    const std::vector<Numbers> y = run(i, {f32({2}, {1, 2})});
    CHECK(y[0].data == std::vector<double>{8, 16});
    CHECK(y[1].data == std::vector<double>{6, 12, 24});
  }
  TEST_CASE("Loop: a condition of the data is a while") {
    Graph body = doubling();
    body.nodes.push_back(node("Less", {"s", "limit"}, {"more"}));
    body.outputs = {{.name = "more"}, {.name = "w"}};
    const Model m = model({kX, value("limit", 1, {})},
                          {node("Loop", {"", "yes", "x"}, {"last"}, {attr("body", body)})},
                          {"last"}, {constant<uint8_t>("yes", 9, {}, {1})});
    const Imported i = import_model(m, {});
    CHECK(count_of(i.graph, "while") == 1);
    CHECK(run(i, {f32({2}, {1, 2}), f32({}, {20})}).at(0).data == std::vector<double>{8, 16});
  }
  TEST_CASE("Loop: shapes that change between trips are written trip by trip") {
    const Graph body = subgraph(
        {value("i", 7, {}), value("go", 9, {}), value("v", 1, {""})},
        {node("Concat", {"v", "x"}, {"w"}, {attr("axis", 0)}), node("Identity", {"go"}, {"on"})},
        {"on", "w"});
    const Model m = model({kX}, {node("Loop", {"M", "", "x"}, {"y"}, {attr("body", body)})}, {"y"},
                          {scalar("M", 2)});
    CHECK(result(m, {f32({2}, {1, 2})}) == std::vector<double>{1, 2, 1, 2, 1, 2});
  }
  TEST_CASE(
      "Loop: one that never ends is refused, and so is one whose output has an unknown length") {
    CHECK(
        has(refusal(model(
                {kX}, {node("Loop", {"", "", "x"}, {"y", ""}, {attr("body", doubling())})}, {"y"})),
            "Loop"));
    CHECK(has(refusal(model({kX, value("M", 7, {})},
                            {node("Loop", {"M", "", "x"}, {"y", "s"}, {attr("body", doubling())})},
                            {"s"})),
              "only after the run"));
  }
  TEST_CASE("Scan: backward over its input, states and slices") {
    const Graph body =
        subgraph({value("s", 1, {}), value("e", 1, {})},
                 {node("Add", {"s", "e"}, {"t"}), node("Identity", {"t"}, {"u"})}, {"t", "u"});
    const Model m = model({value("s0", 1, {}), value("xs", 1, {"3"})},
                          {node("Scan", {"s0", "xs"}, {"last", "all"},
                                {attr("body", body), attr("num_scan_inputs", 1),
                                 attr("scan_input_directions", Ints{1})})},
                          {"last", "all"});
    const std::vector<Numbers> y = run(import_model(m, {}), {f32({}, {10}), f32({3}, {1, 2, 3})});
    CHECK(y[0].data == std::vector<double>{16});
    CHECK(y[1].data == std::vector<double>{13, 15, 16});
  }
}

}  // namespace
}  // namespace tenon::core::onnx
