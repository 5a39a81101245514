// SPDX-License-Identifier: Apache-2.0
// A graph in primitives, for apps and people who want to see or use it.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// Replaces the nodes of level meta: gradients, vmap, models. graph: bound (numbers only).
Graph expanded(const Graph& graph);

// Expands gradients and decomposes every node that can be, also inside functions. An op without a
// decomposition stays. graph: bound (numbers only).
Graph unfused(const Graph& graph);

}  // namespace tenon::core
