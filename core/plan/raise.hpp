// SPDX-License-Identifier: Apache-2.0
// Simple ops that spell out a composite become it, before gradients are taken: softmax, gelu, silu,
// norms, cross entropy, attention. Only what means the same on all data, NaN and infinities
// included, with values in between that nobody else reads; up to rounding.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// Types must be numeric. What a node was made of, and why a candidate was left, stands in the note.
Graph raise(Graph g);

}  // namespace tenon::core
