// SPDX-License-Identifier: Apache-2.0
// Joins elementwise nodes into regions: from a last node backwards, every maker of one shape whose
// readers are inside, with a reduction at the end where the device takes one. A value that leaves
// the graph, or that nodes behind the region read, becomes one more output.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// After legalize, so that what was decomposed is joined too. Asks the nodes' device, each form of
// region once. Steps that it takes in no region stay outside; a region that it refuses as a whole
// leaves its nodes as they are, and the last of them says why. Results are those of the nodes one
// by one: halves are rounded between two steps.
Graph join_regions(const Graph& graph, const Query& query);

}  // namespace tenon::core
