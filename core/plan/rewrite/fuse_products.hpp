// SPDX-License-Identifier: Apache-2.0
// Joins products that share their left operand (q, k and v of an attention, gate and up of an MLP)
// into one node, for a device that reads it once and starts once for all. The weights stay operands
// of their own, so that each may be updated in place.
#pragma once

#include <string_view>

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// The form that join_products finds, as kFuseForms of fuse.hpp.
inline constexpr std::string_view kProductsForm = "sibling products";

// Asks the nodes' device, a graph of one node at a time. Types must be numeric. What was joined,
// and why it was not, stands in the nodes' notes. After gradients: it has none of its own.
Graph join_products(const Graph& graph, const Query& query);

}  // namespace tenon::core
