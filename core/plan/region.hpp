// SPDX-License-Identifier: Apache-2.0
// Joins elementwise nodes into regions: from a last node backwards, every maker of one shape whose
// readers are inside, with a reduction at the end where the device takes one. A value that leaves
// the graph, or that nodes behind the region read, becomes one more output.
#pragma once

#include "plan/legalize.hpp"

namespace tenon::core {

// After the composites of fuse.hpp. Asks `query` for device 0, each form of region once; a region
// that is not claimed as a whole leaves its nodes as they are, and the last of them says why.
// Results are those of the nodes one by one: halves are rounded between two steps.
Graph join_regions(const Graph& graph, const Query& query);

}  // namespace tenon::core
