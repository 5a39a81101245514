// SPDX-License-Identifier: Apache-2.0
// Recomputation: the reverse walk clones nodes that are marked with the number of a segment. So the
// values of the forward pass need not stay in memory.
#pragma once

#include <span>
#include <unordered_map>

#include "ir/rewrite.hpp"

namespace tenon::core {

// Returns the nodes that depend on `from` and that `to` depends on, ascending. Fails if there are
// none.
std::vector<NodeId> nodes_between(const Graph& graph, std::span<const Value> from,
                                  std::span<const Value> to);

// Marks nodes as one segment. A node keeps an earlier mark. Ordered nodes get none, because they
// must not run twice.
void checkpoint(Graph& graph, std::span<const NodeId> nodes);

// By value: computed in a segment and needed outside of it (by a node, an output, an update), so it
// is kept.
std::vector<bool> kept_values(const Graph& graph);

// The clones of one reverse walk. Appends one segment at a time, when the walk reaches it.
class Recomputed {
 public:
  // kept: by value. Nodes from `end` on do not belong to the forward pass.
  Recomputed(Graph& graph, std::vector<bool> kept, NodeId end);

  // Returns the node for its gradient rule: operands from the segment are replaced by their clones.
  NodeInfo node(NodeId id);
  // Returns output k of a node's clone, or of the node if it has no clone. Makes the output wanted.
  Value output(NodeId id, uint32_t k);
  // Returns the original of a cloned value; any other value is its own original.
  Value original(Value v) const;

 private:
  void clone_segment(uint32_t segment);
  bool stays(Value v) const { return v.id < kept_.size() && kept_[v.id]; }

  Graph& graph_;
  std::vector<bool> kept_;
  std::unordered_map<uint32_t, std::vector<NodeId>> segments_;  // not cloned yet
  std::unordered_map<NodeId, NodeId> clone_of_;
  std::unordered_map<uint32_t, Value> again_;     // value id -> its clone
  std::unordered_map<uint32_t, Value> original_;  // clone -> value
  uint32_t next_clone_ = 1;
};

// Removes clones that nothing reads.
Graph drop_dead_clones(const Graph& graph, ValueMap* map);

}  // namespace tenon::core
