// SPDX-License-Identifier: Apache-2.0
// Forward-mode derivatives: how outputs change when inputs move along tangents.
#pragma once

#include <span>

#include "ir/dtypes.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// Appends J·t for each of ys, where J is the Jacobian of ys by xs and t are the tangents, of the
// types of xs. Types may depend on symbols. A y that no x reaches gets zeros.
//
// It is the reverse mode, twice: g = Jᵀ·u is linear in u, and the gradient of <g, t> by u is J·t.
// Nothing reads g itself, so the planner drops it, and what remains is one forward pass of
// derivatives.
std::vector<Value> jvp(Graph& graph, DTypes& dtypes, std::span<const Value> ys,
                       std::span<const Value> xs, std::span<const Value> tangents);

}  // namespace tenon::core
