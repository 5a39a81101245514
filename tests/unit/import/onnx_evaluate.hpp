// SPDX-License-Identifier: Apache-2.0
// Runs imported graphs without a device.
#pragma once

#include "../ops/evaluate.hpp"
#include "onnx_rig.hpp"

namespace tenon::core::onnx {

// The outputs of an imported graph for these inputs, in the order of the graph.
inline std::vector<core::Tensor> run(const Imported& imported,
                                     const std::vector<core::Tensor>& inputs) {
  const core::Graph& g = imported.graph;
  Values given;
  for (size_t k = 0; k < inputs.size(); ++k) given[g.inputs().at(k)] = inputs[k];
  for (const auto& [name, t] : imported.weights) {
    const Value w = g.find(Space::weight, name);
    const Bytes content = t.content();
    core::Tensor weight{g.type(w), {}};
    REQUIRE(t.dtype == kF32);
    for (size_t i = 0; i < content.size() / sizeof(float); ++i) {
      float v = 0;
      std::memcpy(&v, content.data() + i * sizeof v, sizeof v);
      weight.data.push_back(static_cast<double>(v));
    }
    given[w] = std::move(weight);
  }
  std::vector<Value> wanted;
  for (const Output& o : g.outputs()) wanted.push_back(o.value);
  return evaluate(g, given, wanted);
}
inline core::Tensor f32(Shape shape, std::vector<double> data) {
  return core::tensor(kF32, shape, std::move(data));
}

}  // namespace tenon::core::onnx
