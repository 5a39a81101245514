// SPDX-License-Identifier: Apache-2.0
// Replaces gradient requests (nodes of level meta) by the reverse walk between wrt and loss. The
// gradients of ops come from their records.
#pragma once

#include "ir/rewrite.hpp"

namespace tenon::core {

// Types must be numeric. Requests are expanded in order, so a later request can read the gradients
// of an earlier one. An op without a gradient is decomposed; if it has no decomposition either, the
// request fails and names the op. A wrt that does not reach the loss gets zeros. A wrt that reaches
// it only through non-differentiable ops is an error. `map`, if given, receives old value -> new
// value.
Graph expand_grads(const Graph& graph, ValueMap* map = nullptr);

}  // namespace tenon::core
