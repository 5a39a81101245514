// SPDX-License-Identifier: Apache-2.0
// Replaces requests for a body over a batch (nodes vmap) by the ops of the body with the batch as
// axis 0. Values that no example changes stay as they are. An op is written by its batch rule, else
// decomposed, else run once for each example in a scan.
#pragma once

#include "ir/rewrite.hpp"

namespace tenon::core {

// Types must be numeric and functions bound. Requests inside functions of control flow are replaced
// too. Requests for gradients inside a body are expanded first; those of the graph stay, and pass
// through what is written here.
Graph expand_vmaps(const Graph& graph);

}  // namespace tenon::core
