// SPDX-License-Identifier: Apache-2.0
// Rules for single ops of ONNX, with results computed by hand.
#include <algorithm>
#include <cmath>

#include "cpu.hpp"
#include "import/onnx/rules.hpp"

namespace tenon::core::onnx {
namespace {

Model one(Node n, std::vector<ValueInfo> inputs, std::vector<Tensor> initializers = {},
          int64_t opset = 21) {
  const std::string out = n.outputs[0];
  return model(std::move(inputs), {std::move(n)}, {out}, std::move(initializers), opset);
}
const Numbers kLine = f32({4}, {1, 2, 3, 4});
const ValueInfo kX = value("x", 1, {"4"});

TEST_SUITE("onnx/rules") {
  TEST_CASE("the table: each row is found at its opset, and none before it") {
    for (const auto& family : all_rules())
      for (const Rule& r : family) {
        CAPTURE(std::string(r.op));
        CHECK(find_rule(r.domain, r.op, r.since) != nullptr);
        if (r.since > 1) CHECK(find_rule(r.domain, r.op, 0) == nullptr);
      }
    CHECK(find_rule("", "Gelu", 19) == nullptr);
    CHECK(find_rule("other", "Relu", 21) == nullptr);
  }
  TEST_CASE("models: an input that has a default is no input of the graph, read or not") {
    for (const bool read : {true, false}) {
      const Imported got =
          import_model(one(node("Reshape", {"x", read ? "s" : "t"}, {"y"}),
                           {kX, value("s", 7, {"2"})}, {ints("s", {2, 2}), ints("t", {4, 1})}),
                       {});
      REQUIRE(got.graph.inputs().size() == 1);
      CHECK(got.graph[got.graph.inputs()[0]].name == "x");
    }
  }
  TEST_CASE("Slice: ends beyond the axis, negative steps, attributes of old opsets") {
    const auto slice = [](int64_t start, int64_t end, int64_t step) {
      return result(one(node("Slice", {"x", "s", "e", "a", "t"}, {"y"}), {kX},
                        {ints("s", {start}), ints("e", {end}), ints("a", {0}), ints("t", {step})}),
                    {kLine});
    };
    CHECK(slice(1, INT64_MAX, 2) == std::vector<double>{2, 4});
    CHECK(slice(-1, INT64_MIN, -1) == std::vector<double>{4, 3, 2, 1});
    CHECK(slice(2, 0, -1) == std::vector<double>{3, 2});
    CHECK(slice(0, INT64_MAX, INT64_MAX) == std::vector<double>{1});
    CHECK(slice(3, 1, 1).empty());
    CHECK(result(one(node("Slice", {"x"}, {"y"}, {attr("starts", Ints{1}), attr("ends", Ints{3})}),
                     {kX}, {}, 9),
                 {kLine}) == std::vector<double>{2, 3});
  }
  TEST_CASE("axes: an attribute in old opsets, an input in new ones") {
    const ValueInfo x = value("x", 1, {"2", "2"});
    const Numbers m = f32({2, 2}, {1, 2, 3, 4});
    const Node old = node("ReduceSum", {"x"}, {"y"}, {attr("axes", Ints{0}), attr("keepdims", 0)});
    CHECK(result(one(old, {x}, {}, 11), {m}) == std::vector<double>{4, 6});
    const Node now = node("ReduceSum", {"x", "a"}, {"y"}, {attr("keepdims", 0)});
    CHECK(result(one(now, {x}, {ints("a", {1})}, 13), {m}) == std::vector<double>{3, 7});
    const Node none = node("ReduceSum", {"x"}, {"y"}, {attr("noop_with_empty_axes", 1)});
    CHECK(result(one(none, {x}, {}, 13), {m}) == m.data);
  }
  TEST_CASE("Softmax: flattens before opset 13") {
    const ValueInfo x = value("x", 1, {"1", "2", "2"});
    const Numbers m = f32({1, 2, 2}, {0, 0, 0, 0});
    CHECK(result(one(node("Softmax", {"x"}, {"y"}), {x}, {}, 11), {m}) ==
          std::vector<double>(4, 0.25));
    CHECK(result(one(node("Softmax", {"x"}, {"y"}), {x}, {}, 13), {m}) ==
          std::vector<double>(4, 0.5));
  }
  TEST_CASE("Pad: reflects more than once, wraps, crops with negative numbers") {
    const auto pad = [](const char* mode, int64_t before, int64_t after) {
      return result(one(node("Pad", {"x", "p"}, {"y"}, {attr("mode", mode)}), {kX},
                        {ints("p", {before, after})}),
                    {kLine});
    };
    CHECK(pad("reflect", 2, 1) == std::vector<double>{3, 2, 1, 2, 3, 4, 3});
    CHECK(pad("wrap", 1, 5) == std::vector<double>{4, 1, 2, 3, 4, 1, 2, 3, 4, 1});
    CHECK(pad("edge", 1, 0) == std::vector<double>{1, 1, 2, 3, 4});
    CHECK(pad("constant", -1, -2) == std::vector<double>{2});
  }
  TEST_CASE("CumProd: all four directions") {
    const auto product = [](int64_t exclusive, int64_t reverse) {
      return result(one(node("CumProd", {"x", "a"}, {"y"},
                             {attr("exclusive", exclusive), attr("reverse", reverse)}),
                        {kX}, {scalar("a", 0)}, 26),
                    {kLine});
    };
    CHECK(product(0, 0) == std::vector<double>{1, 2, 6, 24});
    CHECK(product(1, 0) == std::vector<double>{1, 1, 2, 6});
    CHECK(product(0, 1) == std::vector<double>{24, 24, 12, 4});
    CHECK(product(1, 1) == std::vector<double>{24, 12, 4, 1});
  }
  TEST_CASE("Einsum: products, diagonals, sums and ellipses") {
    const ValueInfo x = value("x", 1, {"2", "2"}), z = value("z", 1, {"2", "2"});
    const Numbers m = f32({2, 2}, {1, 2, 3, 4}), n = f32({2, 2}, {0, 1, 1, 0});
    const auto einsum = [&](const char* equation, bool two) {
      const std::vector<std::string> inputs =
          two ? std::vector<std::string>{"x", "z"} : std::vector<std::string>{"x"};
      const std::vector<ValueInfo> values =
          two ? std::vector<ValueInfo>{x, z} : std::vector<ValueInfo>{x};
      return result(one(node("Einsum", inputs, {"y"}, {attr("equation", equation)}), values),
                    two ? std::vector<Numbers>{m, n} : std::vector<Numbers>{m});
    };
    CHECK(einsum("ij,jk->ik", true) == std::vector<double>{2, 1, 4, 3});
    CHECK(einsum("ij,jk", true) == std::vector<double>{2, 1, 4, 3});
    CHECK(einsum("ii->i", false) == std::vector<double>{1, 4});
    CHECK(einsum("ij->j", false) == std::vector<double>{4, 6});
    CHECK(einsum("...i,...i->...", true) == std::vector<double>{2, 3});
    CHECK(has(refusal(one(node("Einsum", {"x"}, {"y"}, {attr("equation", "ijk->i")}), {x})),
              "equation"));
  }
  TEST_CASE("QuantizeLinear: halves to even, saturates") {
    const Node n = node("QuantizeLinear", {"x", "s", "z"}, {"y"});
    const Model m = one(n, {kX}, {floats("s", {}, {2}), constant<uint8_t>("z", 2, {}, {10})});
    CHECK(result(m, {f32({4}, {1, 3, -100, 1000})}) == std::vector<double>{10, 12, 0, 255});
  }
  TEST_CASE("Gather and OneHot: indices count from the end") {
    CHECK(result(one(node("Gather", {"x", "i"}, {"y"}), {kX}, {ints("i", {-1, 0})}), {kLine}) ==
          std::vector<double>{4, 1});
    const Model hot = one(node("OneHot", {"x", "d", "v"}, {"y"}), {kX},
                          {scalar("d", 3), floats("v", {2}, {5, 7})});
    CHECK(result(hot, {f32({4}, {0, -1, 2, 9})}) ==
          std::vector<double>{7, 5, 5, 5, 5, 7, 5, 5, 7, 5, 5, 5});
  }
  TEST_CASE("LSTM: a hand-computed step, and a sequence that ends early") {
    // One unit, weights 0, biases 0: all gates are 1/2, the new content is 0, so c halves.
    const std::vector<ValueInfo> inputs = {value("x", 1, {"2", "1", "1"}),
                                           value("c", 1, {"1", "1", "1"})};
    const Node n = node("LSTM", {"x", "w", "r", "", "len", "", "c"}, {"", "h", "last"},
                        {attr("hidden_size", 1)});
    Model m = model(inputs, {n}, {"last", "h"},
                    {floats("w", {1, 4, 1}, {0, 0, 0, 0}), floats("r", {1, 4, 1}, {0, 0, 0, 0}),
                     constant<int32_t>("len", 6, {1}, {1})});
    const std::vector<Numbers> y =
        run(import_model(m, {}), {f32({2, 1, 1}, {1, 1}), f32({1, 1, 1}, {4})});
    CHECK(y[0].data == std::vector<double>{2});
    CHECK(y[1][0] == doctest::Approx(0.5 * std::tanh(2.0)));
  }
  TEST_CASE("random numbers: in range, spread, and the same in each run") {
    Attribute low{.name = "low", .kind = Attribute::f32},
        high{.name = "high", .kind = Attribute::f32};
    low.f = 2, high.f = 3;
    const Model m = model({kX},
                          {node("RandomUniform", {}, {"r"}, {attr("shape", Ints{64}), low, high}),
                           node("Concat", {"r", "x"}, {"y"}, {attr("axis", 0)})},
                          {"y"});
    const std::vector<double> y = result(m, {kLine});
    const auto [least, most] = std::minmax_element(y.begin(), y.begin() + 64);
    CHECK(*least >= 2);
    CHECK(*most < 3);
    CHECK(*most - *least > 0.5);
    CHECK(result(m, {kLine}) == y);
  }
  TEST_CASE("ScatterElements: a reduction combines all updates of a place") {
    const auto scatter = [](const char* reduction) {
      return result(
          one(node("ScatterElements", {"x", "i", "u"}, {"y"}, {attr("reduction", reduction)}), {kX},
              {ints("i", {1, -3, 0}), floats("u", {3}, {5, 7, -2})}),
          {kLine});
    };
    CHECK(scatter("add") == std::vector<double>{-1, 14, 3, 4});
    CHECK(scatter("mul") == std::vector<double>{-2, 70, 3, 4});
    CHECK(scatter("max") == std::vector<double>{1, 7, 3, 4});
    CHECK(scatter("min") == std::vector<double>{-2, 2, 3, 4});
  }
  TEST_CASE("ScatterND: a reduction combines rows, and bools by or and and") {
    const auto scatter = [](const char* reduction, int32_t type, const Numbers& x,
                            const Numbers& updates) {
      const Model m =
          model({value("x", type, {"3", "2"}), value("u", type, {"2", "2"})},
                {node("ScatterND", {"x", "i", "u"}, {"y"}, {attr("reduction", reduction)})}, {"y"},
                {constant<int64_t>("i", 7, {2, 1}, {2, -1})});
      return result(m, {x, updates});
    };
    const Numbers x = f32({3, 2}, {1, 2, 3, 4, 5, 6}), u = f32({2, 2}, {2, 9, -1, 3});
    CHECK(scatter("mul", 1, x, u) == std::vector<double>{1, 2, 3, 4, -10, 162});
    CHECK(scatter("max", 1, x, u) == std::vector<double>{1, 2, 3, 4, 5, 9});
    CHECK(scatter("min", 1, x, u) == std::vector<double>{1, 2, 3, 4, -1, 3});
    const Numbers a = numbers(kBool, {3, 2}, {1, 0, 0, 1, 0, 1}),
                  b = numbers(kBool, {2, 2}, {0, 1, 1, 0});
    CHECK(scatter("max", 9, a, b) == std::vector<double>{1, 0, 0, 1, 1, 1});
    CHECK(scatter("min", 9, a, b) == std::vector<double>{1, 0, 0, 1, 0, 0});
  }
  TEST_CASE("MatMul, Gemm: integers wrap, also beyond 2^53; a fraction is applied in f64") {
    const double big = 0x1p53;
    const auto of = [&](const Node& n, int32_t type, DType t, std::vector<double> x,
                        std::vector<double> w) {
      return result(model({value("x", type, {"1", "2"}), value("w", type, {"2", "1"})}, {n}, {"y"}),
                    {numbers(t, {1, 2}, std::move(x)), numbers(t, {2, 1}, std::move(w))});
    };
    // 2^53·2^11 + 3·5 wraps to 15; f64 would lose the 15.
    CHECK(of(node("MatMul", {"x", "w"}, {"y"}), 7, kI64, {big, 3}, {2048, 5}) ==
          std::vector<double>{15});
    CHECK(of(node("Gemm", {"x", "w"}, {"y"}), 6, kI32, {65536, -3}, {65536, 5}) ==
          std::vector<double>{-15});
    Attribute half{.name = "alpha", .kind = Attribute::f32};
    half.f = 0.5;
    CHECK(of(node("Gemm", {"x", "w"}, {"y"}, {half}), 6, kI32, {6, -3}, {5, 4}) ==
          std::vector<double>{9});
  }
  TEST_CASE("MatMulInteger: zero points of both operands, all signs") {
    const Model m =
        model({value("a", 2, {"1", "2"}), value("b", 3, {"2", "1"})},
              {node("MatMulInteger", {"a", "b", "za", "zb"}, {"y"})}, {"y"},
              {constant<uint8_t>("za", 2, {}, {200}), constant<int8_t>("zb", 3, {}, {-3})});
    // (255 - 200)·(-128 + 3) + (0 - 200)·(127 + 3)
    CHECK(result(m, {numbers(kU8, {1, 2}, {255, 0}), numbers(kI8, {2, 1}, {-128, 127})}) ==
          std::vector<double>{55.0 * -125 - 200.0 * 130});
  }
  TEST_CASE("MatMulInteger: zero points of rows and of columns") {
    const Model m =
        model({value("a", 3, {"2", "2"}), value("b", 3, {"2", "2"})},
              {node("MatMulInteger", {"a", "b", "za", "zb"}, {"y"})}, {"y"},
              {constant<int8_t>("za", 3, {2}, {1, -2}), constant<int8_t>("zb", 3, {2}, {3, 4})});
    // Rows (0,1), (5,6) by columns (2,4), (2,4).
    CHECK(result(m, {numbers(kI8, {2, 2}, {1, 2, 3, 4}), numbers(kI8, {2, 2}, {5, 6, 7, 8})}) ==
          std::vector<double>{4, 4, 34, 34});
  }
  TEST_CASE("QLinearMatMul: scales of columns, and of rows") {
    const auto product = [](bool rows) {
      const std::vector<int64_t> two = {2};
      const Model m = model(
          {value("a", 3, {"2", "1"}), value("b", 3, {"1", "2"})},
          {node("QLinearMatMul", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"y"})}, {"y"},
          {rows ? floats("as", two, {1, 3}) : floats("as", {}, {0.5}),
           rows ? constant<int8_t>("az", 3, two, {0, 1}) : constant<int8_t>("az", 3, {}, {0}),
           rows ? floats("bs", {}, {0.5}) : floats("bs", two, {1, 3}),
           rows ? constant<int8_t>("bz", 3, {}, {0}) : constant<int8_t>("bz", 3, two, {0, 1}),
           floats("ys", {}, {1}), constant<int8_t>("yz", 3, {}, {10})});
      return result(m, {numbers(kI8, {2, 1}, {1, 5}), numbers(kI8, {1, 2}, {3, 4})});
    };
    // By columns: 1·3/2, 1·3·3/2; 5·3/2, 5·3·3/2, halves to even.
    CHECK(product(false) == std::vector<double>{12, 14, 18, 32});
    // By rows: 1·3/2, 1·4/2; 4·3·3/2, 4·4·3/2.
    CHECK(product(true) == std::vector<double>{12, 12, 28, 34});
  }
  TEST_CASE("QLinearConv: a scale and a zero point of each filter, padding at the zero point") {
    const Model m =
        model({value("x", 2, {"1", "1", "3"})},
              {node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"y"},
                    {attr("pads", std::vector<int64_t>{1, 0})})},
              {"y"},
              {floats("xs", {}, {1}), constant<uint8_t>("xz", 2, {}, {10}),
               constant<int8_t>("w", 3, {2, 1, 2}, {1, 2, 3, 4}), floats("ws", {2}, {0.5, 1}),
               constant<int8_t>("wz", 3, {2}, {0, 3}), floats("ys", {}, {1}),
               constant<uint8_t>("yz", 2, {}, {5}), constant<int32_t>("b", 6, {2}, {1, -2})});
    // x: (0) 1 2 3. Filter 1 2: (2 5 8 + 1)/2; filter 0 1: 1 2 3 - 2.
    CHECK(result(m, {numbers(kU8, {1, 1, 3}, {11, 12, 13})}) ==
          std::vector<double>{7, 8, 9, 4, 5, 6});
  }
  TEST_CASE("QuantizeLinear, DequantizeLinear: blocks along an axis") {
    const std::vector<Attribute> blocks = {attr("axis", 1), attr("block_size", 2)};
    const Model m = model(
        {value("x", 1, {"1", "3"})},
        {node("QuantizeLinear", {"x", "s", "z"}, {"q"}, blocks),
         node("DequantizeLinear", {"q", "s", "z"}, {"y"}, blocks)},
        {"q", "y"}, {floats("s", {1, 2}, {2, 0.5}), constant<int8_t>("z", 3, {1, 2}, {1, -1})});
    CHECK(result(m, {f32({1, 3}, {5, -4, 1})}) == std::vector<double>{3, -1, 1});
  }
  TEST_CASE("NonMaxSuppression: as many rows as boxes are taken") {
    // The second box overlaps the first, the third is apart, the fourth has too low a score.
    const Model m =
        model({value("b", 1, {"1", "4", "4"}), value("s", 1, {"1", "1", "4"})},
              {node("NonMaxSuppression", {"b", "s", "most", "iou", "least"}, {"y"})}, {"y"},
              {scalar("most", 10), floats("iou", {}, {0.5f}), floats("least", {}, {0.1f})});
    const std::vector<double> boxes = {0, 0, 2, 2, 0, 0, 2, 1.9, 5, 5, 6, 6, 8, 8, 9, 9};
    CHECK(result(m, {f32({1, 4, 4}, boxes), f32({1, 1, 4}, {0.8, 0.9, 0.3, 0.05})}) ==
          std::vector<double>{0, 0, 1, 0, 0, 2});
  }
  TEST_CASE("GRU: the reset comes before or behind the last product") {
    // z is 0 and r is 1/2. The candidate has weight 2 and bias 3; h0 is 1.
    const auto gru = [](int64_t behind) {
      const Model m =
          model({value("x", 1, {"1", "1", "1"})},
                {node("GRU", {"x", "w", "r", "b", "", "h0"}, {"", "h"},
                      {attr("hidden_size", 1), attr("linear_before_reset", behind)})},
                {"h"},
                {floats("w", {1, 3, 1}, {-99, 0, 0}), floats("r", {1, 3, 1}, {0, 0, 2}),
                 floats("b", {1, 6}, {0, 0, 0, 0, 0, 3}), floats("h0", {1, 1, 1}, {1})});
      return result(m, {f32({1, 1, 1}, {1})})[0];
    };
    CHECK(gru(1) == doctest::Approx(std::tanh(2.5)));
    CHECK(gru(0) == doctest::Approx(std::tanh(4.0)));
  }
  TEST_CASE(
      "ScatterElements, ScatterND, GatherND: an index out of range is an error on each axis") {
    const Numbers three = f32({3, 2}, {1, 2, 3, 4, 5, 6});
    const ValueInfo x = value("x", 1, {"3", "2"});
    const auto written = [&](const char* op, const Ints& dims, const Ints& at, int64_t axis,
                             const char* reduction) {
      Node n = node(op, {"x", "i", "u"}, {"y"}, {attr("reduction", reduction)});
      if (std::string(op) == "ScatterElements") n.attributes.push_back(attr("axis", axis));
      const Tensor u =
          std::string(op) == "ScatterND" ? floats("u", {1}, {9}) : floats("u", dims, {9, 9});
      return result(one(std::move(n), {x}, {constant<int64_t>("i", 7, dims, at), u}), {three});
    };
    for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
      CAPTURE(std::string(reduction));
      CHECK_THROWS_AS(written("ScatterElements", {1, 2}, {0, 5}, 1, reduction), Error);
      CHECK_THROWS_AS(written("ScatterElements", {2, 1}, {0, -3}, 1, reduction), Error);
      CHECK_THROWS_AS(written("ScatterElements", {2, 1}, {0, -5}, 0, reduction), Error);
      CHECK_THROWS_AS(written("ScatterND", {1, 2}, {0, 5}, 0, reduction), Error);
      CHECK_THROWS_AS(written("ScatterND", {1, 2}, {2, -3}, 0, reduction), Error);
    }
    CHECK(written("ScatterElements", {2, 1}, {-1, -2}, 1, "none") ==
          std::vector<double>{1, 9, 9, 4, 5, 6});
    CHECK(written("ScatterND", {1, 2}, {-1, -2}, 0, "max") ==
          std::vector<double>{1, 2, 3, 4, 9, 6});
    const auto read = [&](int64_t row, int64_t column) {
      return result(one(node("GatherND", {"x", "i"}, {"y"}), {x},
                        {constant<int64_t>("i", 7, {1, 2}, {row, column})}),
                    {three});
    };
    CHECK(read(-1, -2) == std::vector<double>{5});
    CHECK_THROWS_AS(read(0, 5), Error);
    CHECK_THROWS_AS(read(2, -3), Error);
  }
}

}  // namespace
}  // namespace tenon::core::onnx
