// SPDX-License-Identifier: Apache-2.0
// Translates an ONNX model to a graph of tenon.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "import/onnx/model.hpp"

namespace tenon::core::onnx {

struct ImportOptions {
  // Patterns of names of weights that are trainable: * stands for any characters, ? for one.
  std::vector<std::string> trainable{};
  // Inputs whose content does not change from run to run: they become constants. Models whose shapes
  // depend on the content of an input need that.
  std::map<std::string, Tensor, std::less<>> fixed{};
};

struct Imported {
  core::Graph graph;
  std::vector<std::pair<std::string, Tensor>> weights{};  // the content of the graph's weights
};

// If all dims of the model's inputs are numbers, the graph consists of tenon's ops. Otherwise the
// model becomes one node `onnx` (ops/onnx.hpp), which the planner expands once symbols have numbers.
// A dim without a name gets the symbol "<input>_dim_<k>". Fails with a list of all nodes that cannot
// be translated, each with its name, op, domain, opset and the reason.
Imported import_model(const Model& model, const ImportOptions& options);

}  // namespace tenon::core::onnx
