// SPDX-License-Identifier: Apache-2.0
// Marks segments for recomputation, and clones their nodes during the reverse walk.
#include "grad/checkpoint.hpp"

#include <algorithm>

#include "ops/table.hpp"

namespace tenon::core {

std::vector<NodeId> nodes_between(const Graph& g, std::span<const Value> from,
                                  std::span<const Value> to) {
  std::vector<bool> begins(g.value_count()), depends(g.value_count()), wanted(g.node_count());
  for (Value v : from) begins[v.id] = depends[v.id] = true;
  for (NodeId n = 0; n < g.node_count(); ++n)
    if (std::any_of(g[n].operands.begin(), g[n].operands.end(),
                    [&](Value v) { return v && depends[v.id]; }))
      for (Value v : g[n].outputs)
        if (v) depends[v.id] = true;
  const auto want = [&](Value v) {
    if (v && g[v].space == Space::node && depends[v.id] && !begins[v.id]) wanted[g[v].node] = true;
  };
  std::for_each(to.begin(), to.end(), want);
  std::vector<NodeId> nodes;
  for (NodeId n = g.node_count(); n-- > 0;) {
    if (!wanted[n]) continue;
    nodes.push_back(n);
    std::for_each(g[n].operands.begin(), g[n].operands.end(), want);
  }
  if (nodes.empty())
    fail(Code::invalid_argument, "checkpoint: no node leads from the first values to the last");
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

void checkpoint(Graph& graph, std::span<const NodeId> nodes) {
  uint32_t segment = 1;
  for (NodeId n = 0; n < graph.node_count(); ++n)
    segment = std::max(segment, graph[n].recompute + 1);
  for (NodeId n : nodes) {
    const OpRecord& op = *graph[n].op;
    if (!graph[n].recompute && !(op.traits & kOrdered) && &op != &grad_def)
      graph.set_recompute(n, segment);
  }
}

std::vector<bool> kept_values(const Graph& g) {
  std::vector<bool> kept(g.value_count());
  for (NodeId n = 0; n < g.node_count(); ++n)
    for (Value v : g[n].operands)
      if (v && g[v].space == Space::node && g[g[v].node].recompute != g[n].recompute)
        kept[v.id] = true;
  for (const Output& o : g.outputs()) kept[o.value.id] = true;
  for (const Update& u : g.updates()) kept[u.value.id] = true;
  return kept;
}

Recomputed::Recomputed(Graph& graph, std::vector<bool> kept, NodeId end)
    : graph_(graph), kept_(std::move(kept)) {
  for (NodeId n = 0; n < end; ++n) {
    if (graph[n].recompute) segments_[graph[n].recompute].push_back(n);
    next_clone_ = std::max(next_clone_, graph[n].clone + 1);
  }
}

void Recomputed::clone_segment(uint32_t segment) {
  const auto found = segments_.find(segment);
  if (found == segments_.end()) return;
  for (const NodeId n : found->second) {
    const NodeInfo node = graph_[n];  // a copy, because the graph grows
    if (std::all_of(node.outputs.begin(), node.outputs.end(),
                    [&](Value v) { return !v || stays(v); }))
      continue;
    std::vector<Value> operands = node.operands;
    for (Value& v : operands)
      if (const auto again = again_.find(v.id); v && again != again_.end()) v = again->second;
    const NodeId clone = graph_.add_node(*node.op, {std::move(operands), node.lists}, node.attrs,
                                         wanted_outputs(node), node.provenance);
    graph_.set_marks(clone, {.clone = next_clone_, .device = node.device, .pinned = node.pinned});
    clone_of_.emplace(n, clone);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (!node.outputs[k] || stays(node.outputs[k])) continue;
      again_.emplace(node.outputs[k].id, graph_[clone].outputs[k]);
      original_.emplace(graph_[clone].outputs[k].id, node.outputs[k]);
    }
  }
  ++next_clone_;
  segments_.erase(found);
}

NodeInfo Recomputed::node(NodeId id) {
  NodeInfo node = graph_[id];
  if (!node.recompute) return node;
  clone_segment(node.recompute);
  for (Value& v : node.operands)
    if (const auto again = again_.find(v.id); v && again != again_.end()) v = again->second;
  return node;
}

Value Recomputed::output(NodeId id, uint32_t k) {
  const auto clone = clone_of_.find(id);
  if (clone == clone_of_.end()) return graph_.want_output(id, k);
  const std::vector<Value>& outputs = graph_[id].outputs;
  if (k < outputs.size() && outputs[k] && stays(outputs[k])) return outputs[k];
  return graph_.want_output(clone->second, k);
}

Value Recomputed::original(Value v) const {
  const auto found = original_.find(v.id);
  return found == original_.end() ? v : found->second;
}

Graph drop_dead_clones(const Graph& graph, ValueMap* map) {
  const std::vector<bool> live = live_nodes(graph);
  Rewriter rewriter(graph);
  const auto gone = [&](Value v) {
    return v && graph[v].space == Space::node && !rewriter.values()[v];
  };
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const std::vector<Value>& operands = graph[n].operands;
    const bool drop =
        !live[n] && (graph[n].clone || std::any_of(operands.begin(), operands.end(), gone));
    if (!drop) rewriter.copy(n);
  }
  Graph out = rewriter.finish();
  *map = rewriter.values();
  return out;
}

}  // namespace tenon::core
