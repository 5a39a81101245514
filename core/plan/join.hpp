// SPDX-License-Identifier: Apache-2.0
// What the passes share that put one node in the place of several: the device's answer to it, the
// body that it carries, and what it tells of its parts.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/legalize.hpp"

namespace tenon::core {

// What a device says of single nodes, each kind of node asked once.
class Claims {
 public:
  explicit Claims(const Query& query) : query_(query) {}
  // A node over these values of g, or their likes.
  const Verdict& of(const Graph& g, const OpRecord& op, std::span<const Value> operands,
                    const Attrs& attrs, const std::vector<bool>& wanted);

 private:
  const Query& query_;
  std::unordered_map<std::string, Verdict> answers_;  // by form_key
};

// Names of nodes that become one, "binary mul + reduce", and the first provenance among them.
struct Parts {
  std::string names, provenance;
};
Parts parts_of(const Graph& g, std::span<const NodeId> nodes);

// Says this of a node, if it is anything, behind what passes before said. A pass that runs twice
// says it once.
void add_note(Graph& g, NodeId n, const std::string& note);

// Is v a constant of one element, which a body carries itself?
bool is_number(const Graph& g, Value v);

// Nodes as steps of a region, in their order.
struct StepsOf {
  FunctionAttr body;
  std::vector<Value> inputs;  // of g, in the order of their first reading
};
StepsOf steps_of(const Graph& g, std::span<const NodeId> nodes, std::span<const Value> outputs);

}  // namespace tenon::core
