// SPDX-License-Identifier: Apache-2.0
// The request for an ONNX model: a node until shapes are numeric, then replaced by the ops of the
// model.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ir/graph.hpp"

namespace tenon::core {

// The model of a node `onnx` over operands of these types, as a graph with an input for each of
// them. Translated once for the last few types. Defined in import/onnx, which sees this room.
std::shared_ptr<const Graph> onnx_graph(const std::string& model, std::span<const Type> operands);

}  // namespace tenon::core
