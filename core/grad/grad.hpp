// SPDX-License-Identifier: Apache-2.0
// Replaces requests for gradients (nodes of level meta) by the reverse walk over what lies between
// wrt and loss. Knows no op: gradients come from the records.
#pragma once

#include "ir/rewrite.hpp"

namespace tenon::core {

// Types must be numeric. Requests are expanded in order, so one that reads another's gradients sees
// them as ops. An op on the way without a gradient is decomposed first; one with neither is refused
// by name. A wrt that does not reach the loss gets zeros; one that reaches it only where nothing is
// differentiable is refused. `map`, when given, gets old value -> new value.
Graph expand_grads(const Graph& graph, ValueMap* map = nullptr);

}  // namespace tenon::core
