// SPDX-License-Identifier: Apache-2.0
// A graph with numbers in place of its symbols, twice: what differs depends on symbols or on data.
#pragma once

#include <optional>

#include "import/onnx/model.hpp"
#include "ir/graph.hpp"

namespace tenon::core::onnx {

struct Trial {
  core::Graph graph{};
  std::optional<core::Graph> other{};        // absent: all dims are numbers
  std::vector<std::string> symbols{};        // of the given graph
  std::vector<Type> inputs{};                // of the given graph
  std::vector<int64_t> numbers{}, others{};  // of the symbols in both

  // A dim as ONNX has it: a number, the name of a symbol, or unknown.
  ValueInfo::Dim dim_of(Value v, int axis) const;
};

// Keeps the nodes that outputs need. Fails (unsupported) if some node refuses all numbers that are
// tried for the symbols.
Trial trial_of(const core::Graph& graph);

}  // namespace tenon::core::onnx
