// SPDX-License-Identifier: Apache-2.0
// Simplifies nodes that run functions (if, while, scan).
#pragma once

#include "plan/rewrite/fold.hpp"

namespace tenon::core {

// - A constant condition leaves one branch of an `if`.
// - A `while` whose condition depends on constants alone is counted, and becomes a `scan`.
// - Short scans are written out.
// - What no trip changes moves out of a loop. What nobody reads leaves it.
// evaluate empty: no `while` is counted. Functions must be bound, or take operands of numeric types.
// False when there was nothing to do.
bool simplify_control(Graph& graph, const Evaluate& evaluate, ValueMap* map);

}  // namespace tenon::core
