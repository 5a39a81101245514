// SPDX-License-Identifier: Apache-2.0
// What the passes share that put one node in the place of several: the body that it carries, and
// what it keeps of its parts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// Names of nodes that become one, "binary mul + reduce", and the first provenance among them.
struct Parts {
  std::string names, provenance;
};
Parts parts_of(const Graph& g, std::span<const NodeId> nodes);
// Marks of the one node: theirs, but where they differ it stands for several.
Marks marks_of(const Graph& g, std::span<const NodeId> nodes);

// Says this of a node, if it is anything, behind what passes before said. A pass that runs twice
// says it once.
void add_note(Graph& g, NodeId n, const std::string& note);
void append_note(std::string& notes, const std::string& note);

// Is v a constant of one element, which a body carries itself?
bool is_number(const Graph& g, Value v);

// Nodes as steps of a region, in their order.
struct StepsOf {
  FunctionAttr body;
  std::vector<Value> inputs;  // of g, in the order of their first reading
};
StepsOf steps_of(const Graph& g, std::span<const NodeId> nodes, std::span<const Value> outputs);

}  // namespace tenon::core
