// SPDX-License-Identifier: Apache-2.0
// Joins a convolution with what follows it: factors and sums per channel (a batch norm of inference,
// a bias), a residual, an activation.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// Factors go into the filters, so they must be finite constants, and the filters must be constant or
// a weight that no run changes: then `hoist` computes the product once. Factors are joined only for
// f32 and f64: filters of halves would round once more. Asks the convolution's device about each
// joined form once. What was joined, and why a candidate was not, stands in the nodes' notes.
Graph join_convolutions(const Graph& graph, const Query& query);

}  // namespace tenon::core
