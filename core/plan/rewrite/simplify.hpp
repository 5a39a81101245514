// SPDX-License-Identifier: Apache-2.0
// Makes a graph smaller without changing what it computes: dead code, common subexpressions,
// identities of single ops (ops/algebra.hpp), constants computed once (fold.hpp), equal constants
// as one, branches and loops (simplify_control.hpp).
#pragma once

#include <functional>

#include "plan/rewrite/fold.hpp"

namespace tenon::core {

// Of a graph that was placed: does the device of this node, which simplifying would make, take it?
using Accepts = std::function<bool(const Graph& graph, const NodeInfo& node)>;

// evaluate empty: no folding. Types must be numeric. Ordered and grouped nodes are kept as they
// are. Nodes merge only with those of the same clone and device. With `accepts`, what leaves the
// graph is still made by a node of it.
Graph simplify(const Graph& graph, const Evaluate& evaluate = {}, ValueMap* map = nullptr,
               const Accepts& accepts = {});

}  // namespace tenon::core
