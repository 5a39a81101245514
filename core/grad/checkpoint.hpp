// SPDX-License-Identifier: Apache-2.0
// Recompute instead of keep: nodes marked with a segment's number run again in the reverse walk, as
// clones, so that what they made need not stay in memory from the forward pass on.
#pragma once

#include <span>
#include <unordered_map>

#include "ir/rewrite.hpp"

namespace tenon::core {

// The nodes that `to` is made from and that depend on `from`, ascending; refused where there are
// none.
std::vector<NodeId> nodes_between(const Graph& graph, std::span<const Value> from,
                                  std::span<const Value> to);

// Marks nodes as one segment. One that has a mark keeps it; ordered nodes get none, for they are
// never doubled.
void checkpoint(Graph& graph, std::span<const NodeId> nodes);

// By value: made in a segment and needed outside of it anyway (by a node, an output, an update), so
// that it stays.
std::vector<bool> kept_values(const Graph& graph);

// The clones of one reverse walk. Appends to the graph a segment at a time, when the walk comes to
// it.
class Recomputed {
 public:
  // kept: by value; nodes from `end` on are none of the forward pass.
  Recomputed(Graph& graph, std::vector<bool> kept, NodeId end);

  // The node as its gradient rule shall see it: operands that the segment made are the clones'.
  NodeInfo node(NodeId id);
  // Output k of a node, made wanted where its clone, or itself where it has none, does not give it.
  Value output(NodeId id, uint32_t k);
  // What a value of a clone stands for; any other is itself.
  Value original(Value v) const;

 private:
  void clone_segment(uint32_t segment);
  bool stays(Value v) const { return v.id < kept_.size() && kept_[v.id]; }

  Graph& graph_;
  std::vector<bool> kept_;
  std::unordered_map<uint32_t, std::vector<NodeId>> segments_;  // those not cloned yet
  std::unordered_map<NodeId, NodeId> clone_of_;
  std::unordered_map<uint32_t, Value> again_;     // value id -> its clone
  std::unordered_map<uint32_t, Value> original_;  // and back
  uint32_t next_clone_ = 1;
};

// Clones that nothing needs go.
Graph drop_dead_clones(const Graph& graph, ValueMap* map);

}  // namespace tenon::core
