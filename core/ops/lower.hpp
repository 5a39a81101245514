// SPDX-License-Identifier: Apache-2.0
// Decomposition of single nodes, for passes.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

// `node` is a copy whose operands are values of b.graph; its outputs only say which ones are
// wanted. Returns true, and one value per wanted output in `results`, which has the length of the
// outputs. Returns false and writes nothing if the op has no decomposition or the node is
// primitive.
bool lower_into(Builder& b, const NodeInfo& node, std::vector<Value>& results);

// Decomposes the nodes of level meta that can be, also inside functions of control flow. Types must
// be numeric and functions bound.
Graph lower_meta(const Graph& graph);

}  // namespace tenon::core
