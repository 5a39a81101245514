// SPDX-License-Identifier: Apache-2.0
// Models with symbols, on the cpu: runs of several sizes, and gradients through the node `onnx`.
#include "cpu.hpp"

namespace tenon::core::onnx {
namespace {

// The rows of x, each divided by their number, times w [2, 3].
Model averages() {
  return model({value("x", 1, {"N", "2"})},
               {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}),
                node("Cast", {"n"}, {"f"}, {attr("to", 1)}), node("Div", {"x", "f"}, {"d"}),
                node("MatMul", {"d", "w"}, {"y"})},
               {"y"}, {scalar("zero", 0), floats("w", {2, 3}, {1, 2, 3, 4, 5, 6})});
}

class Run {
 public:
  explicit Run(Imported imported) : store_(std::make_shared<Store>()) {
    for (const auto& [name, t] : imported.weights)
      store_->set(Space::weight, name, {t.dtype, Shape(std::span<const Dim>(t.dims))}, t.content());
    ExecutableOptions options;
    options.device = "cpu:0";
    executable_ =
        std::make_shared<Executable>(cpu(), std::move(imported.graph), store_, std::move(options));
    context_ = std::make_unique<Context>(executable_);
  }
  std::vector<float> operator()(int64_t rows, const std::vector<float>& x, const char* output) {
    context_->set("x", {kF32, {rows, 2}}, std::as_bytes(std::span(x)));
    context_->run();
    const Type type = context_->output_type(output);
    std::vector<float> out(static_cast<size_t>(type.shape.elements()));
    context_->get(output, out.data(), out.size() * sizeof(float));
    return out;
  }

 private:
  std::shared_ptr<Store> store_;
  std::shared_ptr<Executable> executable_;
  std::unique_ptr<Context> context_;
};

TEST_SUITE("onnx/symbols") {
  TEST_CASE("each size is translated anew: shape arithmetic follows it") {
    Run run(import_model(averages(), {}));
    CHECK(run(1, {1, 2}, "y") == std::vector<float>{9, 12, 15});
    CHECK(run(2, {1, 2, 3, 4}, "y") == std::vector<float>{4.5f, 6, 7.5f, 9.5f, 13, 16.5f});
    CHECK(run(1, {2, 2}, "y") == std::vector<float>{10, 14, 18});
  }
  TEST_CASE("gradients pass through the model") {
    Imported imported = import_model(averages(), {.trainable = {"w"}});
    REQUIRE(imported.weights.size() == 1);
    core::Graph& g = imported.graph;
    const Value y = g.outputs()[0].value, w = g.find(Space::weight, "w");
    const Value loss = g[g.add(op::reduce{.kind = "sum", .x = y})].outputs[0];
    g.output("dw", g[g.add(op::grad{.loss = loss, .wrt = {w}})].outputs[0]);
    Run run(std::move(imported));
    // d(sum of y)/dw has the means of the columns of x, repeated.
    CHECK(run(2, {1, 2, 3, 4}, "dw") == std::vector<float>{2, 2, 2, 3, 3, 3});
    CHECK(run(4, {1, 0, 1, 0, 1, 0, 5, 4}, "dw") == std::vector<float>{2, 2, 2, 1, 1, 1});
  }
}

}  // namespace
}  // namespace tenon::core::onnx
