// SPDX-License-Identifier: Apache-2.0
// Training steps as graph rewrites (specification 9).
#pragma once

#include "ir/graph.hpp"
#include "tenon/tenon.h"

namespace tenon::core {

// Adds the gradients of loss for every trainable weight, clipping by the global norm, the optimizer
// and the updates. Returns the norm.
Value minimize(Graph& graph, Value loss, const tenon_optimizer& optimizer);

// The same, divided between two graphs over one store: accumulate() sums gradients in state,
// apply() does a step with their mean.
void accumulate(Graph& graph, Value loss);
Value apply(Graph& graph, const tenon_optimizer& optimizer);

}  // namespace tenon::core
