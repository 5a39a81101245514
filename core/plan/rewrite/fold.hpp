// SPDX-License-Identifier: Apache-2.0
// Computes once what depends on constants alone, in one graph of all such nodes.
#pragma once

#include <functional>

#include "ir/rewrite.hpp"

namespace tenon::core {

// Runs a graph of constants; dense content of its outputs, in their order. May throw: some node of
// it cannot be computed, and stays.
using Evaluate = std::function<std::vector<Bytes>(const Graph& constants)>;

// Results above this stay nodes.
inline constexpr uint64_t kFoldLimit = 64 * 1024;

// Replaces nodes that depend on constants alone by their results; what is then dead stays. Nodes
// that leave the graph keep their places with stays_made. Random, ordered and grouped nodes stay,
// and so does a view that only repeats its operand: it is worth more as a view. False when there
// was nothing to do.
bool fold_constants(Graph& graph, const Evaluate& evaluate, bool stays_made, ValueMap* map);

}  // namespace tenon::core
