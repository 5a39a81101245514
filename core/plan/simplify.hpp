// SPDX-License-Identifier: Apache-2.0
// Makes a graph smaller without changing what it computes: dead code, common subexpressions,
// identities of single ops (ops/algebra.hpp), constants computed once.
#pragma once

#include <functional>

#include "ir/rewrite.hpp"

namespace tenon::core {

// Runs a graph of constants and one node; dense content of its outputs, in their order. May throw:
// the node then stays.
using Evaluate = std::function<std::vector<Bytes>(const Graph& one_node)>;

// Results above this stay nodes, and equal constants above it stay apart.
inline constexpr uint64_t kFoldLimit = 64 * 1024;

// evaluate empty: no folding. Types must be numeric. Ordered nodes are kept as they are; clones
// merge only with clones of the same number.
Graph simplify(const Graph& graph, const Evaluate& evaluate = {}, ValueMap* map = nullptr);

}  // namespace tenon::core
