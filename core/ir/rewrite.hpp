// SPDX-License-Identifier: Apache-2.0
// How a pass writes a new graph from an old one: everything that has a name is there from the
// start, nodes are copied or replaced one by one, and the map from old values to new ones says
// where each went.
#pragma once

#include <span>

#include "ir/graph.hpp"

namespace tenon::core {

// Old value -> new value; absent where the old one was dropped.
class ValueMap {
 public:
  ValueMap() = default;
  explicit ValueMap(size_t count) : now_(count) {}
  static ValueMap identity(size_t count);
  Value operator[](Value old) const { return old.id < now_.size() ? now_[old.id] : Value{}; }
  void set(Value old, Value now) { now_[old.id] = now; }
  size_t size() const { return now_.size(); }
  // This map followed by another.
  ValueMap then(const ValueMap& next) const;

 private:
  std::vector<Value> now_;
};

class Rewriter {
 public:
  // Copies symbols, inputs, weights and states. input_types, when given, replace the inputs' types
  // (by position), and the symbols go.
  explicit Rewriter(const Graph& from, std::span<const Type> input_types = {});
  Graph to;

  // The new value of an old one; constants are copied at their first use. A node's value must have
  // been made.
  Value map(Value old);
  std::vector<Value> map(std::span<const Value> old);
  // The node with mapped operands; maps its outputs.
  NodeId copy(NodeId node);
  // From here on `old` is `now`, which takes over its name where it has none.
  void replace(Value old, Value now);
  // Writes outputs and updates, and hands the graph over.
  Graph finish();
  const ValueMap& values() const { return values_; }

 private:
  const Graph& from_;
  ValueMap values_;
};

// Marks what outputs, updates and ordered nodes need; by node.
std::vector<bool> live_nodes(const Graph& graph);

// The recomputed segment of what stands for these nodes: theirs, or none where they are of several,
// for then what it makes is kept.
uint32_t segment_of(const Graph& graph, std::span<const NodeId> nodes);

// Full-length wishes as Graph::add_node takes them.
std::vector<bool> wanted_outputs(const NodeInfo& node);

}  // namespace tenon::core
