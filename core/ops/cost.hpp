// SPDX-License-Identifier: Apache-2.0
// What a node costs to compute, for reports.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// Floating-point operations of the products in a node of a bound graph: two for each multiplied
// pair. 0 for an op without products, whose limit is memory.
double product_flops(const Graph& graph, const NodeInfo& node);

}  // namespace tenon::core
