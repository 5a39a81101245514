// SPDX-License-Identifier: Apache-2.0
// Invariants of every graph, checked when a graph is compiled, and in tests after every pass.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// Throws an Error that names the node or value. Checks that operands exist and are computed before
// they are read; operands and attributes fit the op's entry; types match the shape rules; values
// and nodes agree; names are unique; outputs and updates exist and fit. The graph may still have
// symbols.
void verify(const Graph& graph);

}  // namespace tenon::core
