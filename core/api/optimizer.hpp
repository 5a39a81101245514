// SPDX-License-Identifier: Apache-2.0
// One training step as a graph rewrite (specification 9).
#pragma once

#include "ir/graph.hpp"
#include "tenon/tenon.h"

namespace tenon::core {

// Gradients of loss for every trainable weight, clipping by the global norm, the optimizer, the
// updates. Returns the norm.
Value minimize(Graph& graph, Value loss, const tenon_optimizer& optimizer);

}  // namespace tenon::core
