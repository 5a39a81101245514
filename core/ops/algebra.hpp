// SPDX-License-Identifier: Apache-2.0
// Identities of single ops, by op: what makes a node needless or cheaper whatever its data are. NaN
// stays NaN, dtypes stay; the sign of a zero is nobody's (specification, section 0). The pass that
// applies them names no op.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

// What to use instead of output 0 of this node, whose operands are values of b.graph and whose
// output is of type `out`; absent when no identity applies. May append nodes.
Value simpler(Builder& b, const NodeInfo& node, const Type& out);

// May the first two operands change places? A fact of the kind for ops that have one.
bool commutes(const NodeInfo& node);

}  // namespace tenon::core
