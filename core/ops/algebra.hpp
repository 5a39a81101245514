// SPDX-License-Identifier: Apache-2.0
// Identities of single ops that hold for all data. NaN and dtypes are preserved; the sign of zero
// is not (specification, section 0).
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

// Returns a replacement for output 0 of this node, or an absent value if no identity applies. The
// operands of the node are values of b.graph; its output has type `out`. May append nodes.
Value simpler(Builder& b, const NodeInfo& node, const Type& out);

// True if the first two operands may be exchanged, which may depend on the kind.
bool commutes(const NodeInfo& node);

}  // namespace tenon::core
