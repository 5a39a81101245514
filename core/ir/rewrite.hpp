// SPDX-License-Identifier: Apache-2.0
// Helps a pass to write a new graph from an old one. Named values exist from the start; nodes are
// copied or replaced one by one; a map gives the new value of each old one.
#pragma once

#include <span>

#include "ir/graph.hpp"

namespace tenon::core {

// Old value -> new value; absent if the old value was dropped.
class ValueMap {
 public:
  ValueMap() = default;
  explicit ValueMap(size_t count) : now_(count) {}
  static ValueMap identity(size_t count);
  Value operator[](Value old) const { return old.id < now_.size() ? now_[old.id] : Value{}; }
  void set(Value old, Value now) { now_[old.id] = now; }
  size_t size() const { return now_.size(); }
  // Composes this map with another one.
  ValueMap then(const ValueMap& next) const;

 private:
  std::vector<Value> now_;
};

class Rewriter {
 public:
  // Copies symbols, inputs, weights and states. input_types, if given, replaces the types of the
  // inputs by position; then there are no symbols.
  explicit Rewriter(const Graph& from, std::span<const Type> input_types = {});
  Graph to;

  // Returns the new value of an old one. Copies constants at first use. The value of a node must
  // have been copied or replaced before.
  Value map(Value old);
  std::vector<Value> map(std::span<const Value> old);
  // Copies a node with mapped operands. Maps its outputs.
  NodeId copy(NodeId node);
  NodeId copy(NodeId node, Attrs attrs);  // with other attributes
  // Maps `old` to `now`. `now` takes over the name if it has none.
  void replace(Value old, Value now);
  // Writes outputs and updates. Returns the graph.
  Graph finish();
  const ValueMap& values() const { return values_; }

 private:
  const Graph& from_;
  ValueMap values_;
};

// Copies nodes of one graph into another, which may have nodes already. A value that was set is read
// instead of its copy. Constants are copied when they are first read.
class Copier {
 public:
  Copier(const Graph& from, Graph& to) : from_(from), to_(to), now_(from.value_count()) {}

  void set(Value old, Value now) { now_[old.id] = now; }
  Value operator()(Value old);
  // provenance: instead of the node's own, if not empty.
  NodeId copy(NodeId node, std::string_view provenance = {});
  // The nodes that compute these values out of those that are set, in order.
  std::vector<NodeId> makers_of(std::span<const Value> values) const;

 private:
  const Graph& from_;
  Graph& to_;
  std::vector<Value> now_;
};

// By value: these ones, and all that they are computed from.
std::vector<bool> needed_for(const Graph& graph, std::span<const Value> values);

// By node: needed by outputs, updates or ordered nodes.
std::vector<bool> live_nodes(const Graph& graph);

// The recomputation segment for the replacement of these nodes: their common segment, or none if
// they differ, because then the result is kept.
uint32_t segment_of(const Graph& graph, std::span<const NodeId> nodes);

// The wanted flags of a node at full length, for Graph::add_node.
std::vector<bool> wanted_outputs(const NodeInfo& node);

}  // namespace tenon::core
