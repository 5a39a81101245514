// SPDX-License-Identifier: Apache-2.0
// Who reads what of a graph, and what leaves it: what every pass asks that takes nodes together.
#pragma once

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// Lists of nodes by number, all in one piece; each in the order its items came in.
class NodeLists {
 public:
  NodeLists(size_t count, std::span<const std::pair<uint32_t, NodeId>> items)
      : first_(count + 1), items_(items.size()) {
    for (const auto& [list, item] : items) ++first_[list + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for (const auto& [list, item] : items) items_[next[list]++] = item;
  }
  std::span<const NodeId> operator[](uint32_t list) const {
    return std::span(items_).subspan(first_[list], first_[list + 1] - first_[list]);
  }

 private:
  std::vector<uint32_t> first_;
  std::vector<NodeId> items_;
};

class Readers {
 public:
  explicit Readers(const Graph& graph)
      : by_(graph.value_count(), reads(graph)), leaves_(graph.value_count()) {
    for (const Output& o : graph.outputs()) leaves_[o.value.id] = true;
    for (const Update& u : graph.updates()) leaves_[u.value.id] = true;
  }
  // Ascending; a node stands there as often as it reads v.
  std::span<const NodeId> of(Value v) const { return by_[v.id]; }
  // Is v an output or what something is updated with?
  bool leaves(Value v) const { return leaves_[v.id]; }
  // Is v read once, and by nobody outside?
  bool one(Value v) const { return !leaves(v) && of(v).size() == 1; }

 private:
  static std::vector<std::pair<uint32_t, NodeId>> reads(const Graph& graph) {
    std::vector<std::pair<uint32_t, NodeId>> out;
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (Value v : graph[n].operands)
        if (v) out.emplace_back(v.id, n);
    return out;
  }

  NodeLists by_;
  std::vector<bool> leaves_;
};

// The node that makes v; kNone where none does, or v is absent.
inline NodeId maker_of(const Graph& graph, Value v) {
  return v && graph[v].space == Space::node ? graph[v].node : kNone;
}

}  // namespace tenon::core
