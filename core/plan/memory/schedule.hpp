// SPDX-License-Identifier: Apache-2.0
// The order in which nodes run, chosen for memory. Knows sizes and readers, no op.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// Pairs (before, after) that hold beside what values say: ordered nodes keep their order, and what
// reads a weight or state comes before the node that makes its new content, where it stands before
// it, so that the update may be in place. before < after.
std::vector<std::pair<NodeId, NodeId>> order_constraints(const Graph& graph);

// Every node once, in an order in which they may run; deterministic, near-linear. What is only
// needed later waits until then unless that keeps more alive; what frees as much as it takes runs
// as soon as it may (an update right after its gradient). Never a higher peak than the graph's own
// order has.
std::vector<NodeId> schedule(const Graph& graph);

// Most bytes that intermediates take at once in this order, as far as a graph alone tells: views
// take none, elementwise nodes write over an operand that dies, updates are in place.
uint64_t order_peak(const Graph& graph, std::span<const NodeId> order);

}  // namespace tenon::core
