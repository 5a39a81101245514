// SPDX-License-Identifier: Apache-2.0
// Joins elementwise nodes into fused nodes. A group grows backwards from its last node: it takes
// every producer of the same shape whose readers are in the group. A reduction may end the group if
// the device accepts it. A value that leaves the graph, or that later nodes read, becomes another
// output.
#pragma once

#include <string_view>

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// The form that fuse_elementwise finds, as kFuseForms of fuse.hpp.
inline constexpr std::string_view kElementwiseForm = "fused body";

// Runs after legalize, so that decomposed nodes are joined too. Asks the nodes' device, once per
// form of body. Steps that the device refuses in every body stay outside. If it refuses a body as a
// whole, the nodes stay as they are, and the note of the last one gives the reason. Results equal
// those of separate nodes: halves are rounded between two steps.
Graph fuse_elementwise(const Graph& graph, const Query& query);

}  // namespace tenon::core
