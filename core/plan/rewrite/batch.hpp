// SPDX-License-Identifier: Apache-2.0
// Joins independent elementwise work with the same steps into one node, for example the updates of
// many small weights. A set is a fused node or an elementwise node; the shapes of sets may differ.
// This saves launches on devices where each node costs a launch.
#pragma once

#include <string_view>

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// The form that join_batches finds, as kFuseForms of fuse.hpp.
inline constexpr std::string_view kBatchForm = "batch";

// Limits on the bytes of one set (inputs and outputs) and of a batch. The operands of a batch stay
// alive until its last set could run, so batches of large sets would cost memory.
inline constexpr uint64_t kBatchSetBytes = 256 << 10, kBatchBytes = 2 << 20;

// Asks the nodes' device, with a graph of one node. Types must be numeric. The nodes' notes say
// what was joined, and why other sets were not.
Graph join_batches(const Graph& graph, const Query& query);

}  // namespace tenon::core
