// SPDX-License-Identifier: Apache-2.0
// Translation of ONNX models: shapes, refusals, initializers, functions, and models as bytes.
#include "onnx_evaluate.hpp"

namespace tenon::core::onnx {
namespace {

TEST_SUITE("import/onnx") {
  TEST_CASE("shapes: arithmetic on them becomes numbers") {
    // reshape(x, concat(shape(x)[0:1], [-1]))
    const Model m = model({value("x", 1, {"2", "3", "4"})},
                          {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}),
                           node("Unsqueeze", {"n", "axis"}, {"n1"}),
                           node("Concat", {"n1", "rest"}, {"to"}, {attr("axis", 0)}),
                           node("Reshape", {"x", "to"}, {"y"})},
                          {"y"}, {scalar("zero", 0), ints("axis", {0}), ints("rest", {-1})});
    const Imported i = import_model(m, {});
    CHECK(i.graph.node_count() == 1);
    CHECK(i.graph.type(i.graph.outputs()[0].value).text() == "f32[2,12]");
  }
  TEST_CASE("shapes: an unknown one is refused, unless the input is fixed") {
    const Model m = model({value("x", 1, {"6"}), value("to", 7, {"2"})},
                          {node("Reshape", {"x", "to"}, {"y"})}, {"y"});
    const std::string text = refusal(m);
    CHECK(has(text, "Reshape 'Reshape:y' (ai.onnx, opset 21)"));
    CHECK(has(text, "shape"));
    ImportOptions options;
    options.fixed.emplace("to", ints("to", {3, 2}));
    const Imported i = import_model(m, options);
    CHECK(i.graph.inputs().size() == 1);
    CHECK(i.graph.type(i.graph.outputs()[0].value).text() == "f32[3,2]");
  }
  TEST_CASE("refusals: all nodes at once, with name, op, domain, opset and reason") {
    Model m = model({value("x", 1, {"2"})},
                    {node("NoSuchOp", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}),
                     node("Other", {"b"}, {"c"}), node("TopK", {"c"}, {"d", "e"}),
                     node("Sub", {"x", "missing"}, {"f"}), node("Add", {"d", "f"}, {"y"})},
                    {"y"});
    m.graph.nodes[2].domain = "my.domain";
    m.graph.nodes[2].name = "third";
    const std::string text = refusal(m);
    CHECK(has(text, "3 nodes cannot be translated"));
    CHECK(has(text, "NoSuchOp 'NoSuchOp:a' (ai.onnx, opset 21): tenon has no rule"));
    CHECK(has(text, "Other 'third' (my.domain, opset 0): the model does not import its domain"));
    CHECK(has(text, "input 'missing'"));
    CHECK_FALSE(has(text, "Relu"));  // it only reads what is refused
  }
  TEST_CASE("refusals: an error of tenon's shape rule names the node") {
    const std::string text = refusal(model({value("x", 1, {"2"}), value("z", 1, {"3"})},
                                           {node("Add", {"x", "z"}, {"y"})}, {"y"}));
    CHECK(has(text, "Add 'Add:y'"));
    CHECK(has(text, "[2]"));
  }
  TEST_CASE("refusals: wrong types of attributes and missing inputs do not crash") {
    const ValueInfo x = value("x", 1, {"2", "2"});
    CHECK(has(refusal(model({x}, {node("Softmax", {"x"}, {"y"}, {attr("axis", "one")})}, {"y"})),
              "attribute axis"));
    CHECK(has(refusal(model({x}, {node("Gemm", {"x"}, {"y"})}, {"y"})), "input 1"));
    CHECK(has(
        refusal(model({x}, {node("Transpose", {"x"}, {"y"}, {attr("perm", Ints{0, 0})})}, {"y"})),
        "perm"));
    CHECK(
        has(refusal(model({x}, {node("Split", {"x"}, {"y"}, {attr("axis", 9)})}, {"y"})), "axis"));
  }
  TEST_CASE("nodes that nothing reads are left out, also where they could not be translated") {
    const Model m = model({value("x", 1, {"2"})},
                          {node("NoSuchOp", {"x"}, {"a"}), node("Relu", {"x"}, {"y"})}, {"y"});
    CHECK(import_model(m, {}).graph.node_count() == 1);
  }
  TEST_CASE("initializers: large ones are weights, small ones constants, trainable ones weights") {
    const Model m = model({value("x", 1, {"8192"})},
                          {node("Mul", {"x", "big"}, {"a"}), node("Add", {"a", "small"}, {"b"}),
                           node("Sub", {"b", "own"}, {"y"})},
                          {"y"},
                          {floats("big", {8192}, std::vector<float>(8192, 2)),
                           floats("small", {1}, {1}), floats("own", {1}, {3})});
    ImportOptions options;
    options.trainable = {"o*"};
    const Imported i = import_model(m, options);
    REQUIRE(i.weights.size() == 2);
    CHECK(i.weights[0].first == "big");
    CHECK_FALSE(i.graph[i.graph.find(Space::weight, "big")].trainable);
    CHECK(i.graph[i.graph.find(Space::weight, "own")].trainable);
    const std::vector<double> y = run(i, {f32({8192}, std::vector<double>(8192, 5))}).at(0).data;
    CHECK(y[8191] == 5 * 2 + 1 - 3);
  }
  TEST_CASE("names that the model does not have are refused, with those that it has") {
    const auto text_of = [](const char* dim, const char* trainable, const char* fixed) {
      ImportOptions options{.trainable = {trainable}, .fixed = {}};
      options.fixed.emplace(fixed, floats(fixed, {1}, {1}));
      try {
        import_model(model({value("x", 1, {dim}), value("z", 1, {"1"})},
                           {node("Mul", {"x", "w"}, {"a"}), node("Add", {"a", "z"}, {"y"})}, {"y"},
                           {floats("w", {1}, {2}), ints("unused", {1})}),
                     options);
      } catch (const Error& e) {
        return cat(e.code() == Code::not_found ? "not_found: " : "", e.what());
      }
      return std::string("accepted");
    };
    for (const char* dim : {"2", "N"}) {
      CHECK(text_of(dim, "?", "z") == "accepted");
      CHECK(text_of(dim, "w", "zz") ==
            "not_found: onnx: fixed input 'zz': expected an input of the model ('x', 'z')");
      CHECK(
          text_of(dim, "v*", "z") ==
          "not_found: onnx: trainable weight 'v*': expected a weight of floats of the model ('w')");
    }
  }
  TEST_CASE("initializers: a large constant of a node is a weight of its output's name") {
    Attribute a{.name = "value", .kind = Attribute::tensor};
    a.t = std::make_shared<const Tensor>(floats("", {6000}, std::vector<float>(6000, 4)));
    const Imported i = import_model(
        model({value("x", 1, {"6000"})},
              {node("Constant", {}, {"w"}, {a}), node("Add", {"x", "w"}, {"y"})}, {"y"}),
        {});
    REQUIRE(i.weights.size() == 1);
    CHECK(i.weights[0].first == "w");
    CHECK(run(i, {f32({6000}, std::vector<double>(6000, 1))}).at(0)[3] == 5);
  }
  TEST_CASE("functions of the model: inlined, with attributes of the call and defaults") {
    Model m =
        model({value("x", 1, {"2", "2"})}, {node("Mine", {"x"}, {"y"}, {attr("a", 0)})}, {"y"});
    m.graph.nodes[0].domain = "my";
    m.opsets["my"] = 1;
    Function f{.name = "Mine", .domain = "my"};
    f.inputs = {"p", "bias"};
    f.outputs = {"q"};
    f.attribute_defaults = {attr("k", 0)};
    Attribute axis = attr("axis", 0), keep = attr("keepdims", 0);
    axis.refers_to = "a", keep.refers_to = "k";
    f.nodes = {node("Softmax", {"p"}, {"s"}, {axis}), node("ReduceMax", {"s"}, {"q"}, {keep})};
    f.opsets[""] = 21;
    m.functions = {f};
    const Imported i = import_model(m, {});
    CHECK(count_of(i.graph, "softmax") == 1);
    const std::vector<double> y = run(i, {f32({2, 2}, {0, 0, 0, 0})}).at(0).data;
    CHECK(y == std::vector<double>{0.5});
  }
  TEST_CASE("functions that call each other without end are refused") {
    Model m = model({value("x", 1, {"2"})}, {node("F", {"x"}, {"y"})}, {"y"});
    m.graph.nodes[0].domain = "my";
    m.opsets["my"] = 1;
    Function f{.name = "F", .domain = "my"};
    f.inputs = {"p"};
    f.outputs = {"q"};
    f.nodes = {node("F", {"p"}, {"q"})};
    f.nodes[0].domain = "my";
    f.opsets["my"] = 1;
    m.functions = {f};
    CHECK(has(refusal(m), "deep"));
  }
  TEST_CASE("bytes: a model that is written reads back the same") {
    Model m = model(
        {value("x", 1, {"2", "N"})},
        {node("Add", {"x", "w"}, {"y"},
              {attr("axis", -3), attr("mode", "linear"), attr("list", Ints{1, -2}),
               attr("body", subgraph({value("p", 7, {})}, {node("Neg", {"p"}, {"q"})}, {"q"}))})},
        {"y"}, {floats("w", {2}, {1.5f, -2})});
    const Model back = read_base64(write_base64(m));
    REQUIRE(back.graph.nodes.size() == 1);
    const Node& n = back.graph.nodes[0];
    CHECK(n.inputs == m.graph.nodes[0].inputs);
    REQUIRE(n.attributes.size() == 4);
    CHECK(n.attributes[0].i == -3);
    CHECK(n.attributes[1].s == "linear");
    CHECK(n.attributes[2].is == Ints{1, -2});
    CHECK(n.attributes[3].g->nodes[0].op == "Neg");
    CHECK((*back.graph.inputs[0].dims)[0].size == 2);
    CHECK((*back.graph.inputs[0].dims)[1].symbol == "N");
    CHECK(back.graph.initializers[0].content() == m.graph.initializers[0].content());
    CHECK(back.opsets == m.opsets);
  }
  TEST_CASE("bytes: text that is not base 64") {
    CHECK_THROWS_WITH_AS(read_base64("abc"),
                         "onnx: the model's text is not base 64; expected groups of 4 of its "
                         "characters, got 3 characters",
                         Error);
  }
}

}  // namespace
}  // namespace tenon::core::onnx
