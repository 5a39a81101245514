// SPDX-License-Identifier: Apache-2.0
// What must hold of every graph, checked at compile's entry and after every pass in tests.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// Throws an Error that names the node or value: operands exist and are made before they are read,
// arity and attributes fit the op's entry, types are what the shape rules say, values and nodes
// agree, names are unique, outputs and updates exist and fit. A passing graph may still have
// symbols.
void verify(const Graph& graph);

}  // namespace tenon::core
