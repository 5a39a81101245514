// SPDX-License-Identifier: Apache-2.0
// Puts independent elementwise work of one form into one node: regions, and elementwise nodes
// alone, whose steps are the same and whose shapes may differ (updates of many small weights). For
// a device that starts each node by itself, as one start.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// What a set, inputs and outputs, may take, and all sets of a batch: what a batch reads lives until
// its last set could run, so that a batch of large sets would cost memory.
inline constexpr uint64_t kBatchSetBytes = 256 << 10, kBatchBytes = 2 << 20;

// Asks the nodes' device, a graph of one node at a time. Types must be numeric. What was joined,
// and why sets were not, stands in the nodes' notes.
Graph join_batches(const Graph& graph, const Query& query);

}  // namespace tenon::core
