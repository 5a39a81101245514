// SPDX-License-Identifier: Apache-2.0
// Copies a graph node by node, and keeps the map from old to new values.
#include "ir/rewrite.hpp"

#include <algorithm>

#include "ops/record.hpp"

namespace tenon::core {

ValueMap ValueMap::identity(size_t count) {
  ValueMap map(count);
  for (uint32_t i = 0; i < count; ++i) map.now_[i] = {i};
  return map;
}

ValueMap ValueMap::then(const ValueMap& next) const {
  ValueMap map(size());
  for (size_t i = 0; i < size(); ++i) map.now_[i] = next[now_[i]];
  return map;
}

std::vector<bool> wanted_outputs(const NodeInfo& node) {
  std::vector<bool> wanted;
  for (Value v : node.outputs) wanted.push_back(bool(v));
  return wanted;
}

uint32_t segment_of(const Graph& graph, std::span<const NodeId> nodes) {
  const uint32_t segment = nodes.empty() ? 0 : graph[nodes[0]].recompute;
  for (NodeId n : nodes)
    if (graph[n].recompute != segment) return 0;
  return segment;
}

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.node_count());
  auto mark = [&](Value v) {
    if (v && graph[v].space == Space::node) live[graph[v].node] = true;
  };
  for (const Output& o : graph.outputs()) mark(o.value);
  for (const Update& u : graph.updates()) mark(u.value);
  for (NodeId n = graph.node_count(); n-- > 0;) {
    if (graph[n].op->traits & kOrdered) live[n] = true;
    if (live[n])
      for (Value v : graph[n].operands) mark(v);
  }
  return live;
}

std::vector<bool> needed_for(const Graph& graph, std::span<const Value> values) {
  std::vector<bool> needed(graph.value_count());
  for (Value v : values) needed[v.id] = true;
  for (NodeId n = graph.node_count(); n-- > 0;) {
    const NodeInfo& node = graph[n];
    if (std::ranges::any_of(node.outputs, [&](Value v) { return v && needed[v.id]; }))
      for (Value v : node.operands)
        if (v) needed[v.id] = true;
  }
  return needed;
}

Value Copier::operator()(Value old) {
  if (!old) return {};
  Value& now = now_[old.id];
  if (!now) {
    check(from_[old].space == Space::constant, "rewrite: a value is read before it is made");
    now = to_.constant(from_.type(old), from_[old].data);
  }
  return now;
}

NodeId Copier::copy(NodeId id, std::string_view provenance) {
  const NodeInfo& node = from_[id];
  std::vector<Value> operands;
  for (Value v : node.operands) operands.push_back((*this)(v));
  const NodeId made =
      to_.add_node(*node.op, {std::move(operands), node.lists}, node.attrs, wanted_outputs(node),
                   provenance.empty() ? node.provenance : provenance);
  to_.set_marks(made, node);
  if (!node.note.empty()) to_.set_note(made, node.note);
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (const Value v = node.outputs[k]; v && !now_[v.id]) set(v, to_[made].outputs[k]);
  return made;
}

std::vector<NodeId> Copier::makers_of(std::span<const Value> values) const {
  std::vector<bool> needed(from_.value_count());
  const auto need = [&](Value v) {
    if (v && !now_[v.id]) needed[v.id] = true;
  };
  std::ranges::for_each(values, need);
  std::vector<NodeId> makers;
  for (NodeId n = from_.node_count(); n-- > 0;) {
    const NodeInfo& node = from_[n];
    if (std::ranges::none_of(node.outputs, [&](Value v) { return v && needed[v.id]; })) continue;
    makers.push_back(n);
    std::ranges::for_each(node.operands, need);
  }
  std::ranges::reverse(makers);
  return makers;
}

Rewriter::Rewriter(const Graph& from, std::span<const Type> input_types)
    : from_(from), values_(from.value_count()) {
  to.name = from.name;
  if (input_types.empty())
    for (const std::string& s : from.symbols()) to.symbol(s);
  for (size_t k = 0; k < from.inputs().size(); ++k) {
    const ValueInfo& v = from[from.inputs()[k]];
    values_.set(from.inputs()[k], to.input(v.name, input_types.empty() ? v.type : input_types[k]));
  }
  for (Value w : from.weights())
    values_.set(w, to.weight(from[w].name, from[w].type, from[w].trainable));
  for (Value s : from.states()) values_.set(s, to.state(from[s].name, from[s].type));
}

Value Rewriter::map(Value old) {
  if (!old) return {};
  if (Value now = values_[old]) return now;
  const ValueInfo& v = from_[old];
  check(v.space == Space::constant, "rewrite: a value is read before it is made");
  const Value now = to.constant(v.type, v.data);
  if (!v.name.empty()) to.set_name(now, v.name);
  values_.set(old, now);
  return now;
}

std::vector<Value> Rewriter::map(std::span<const Value> old) {
  std::vector<Value> now;
  now.reserve(old.size());
  for (Value v : old) now.push_back(map(v));
  return now;
}

NodeId Rewriter::copy(NodeId id) { return copy(id, from_[id].attrs); }

NodeId Rewriter::copy(NodeId id, Attrs attrs) {
  const NodeInfo& node = from_[id];
  const NodeId now = to.add_node(*node.op, {map(node.operands), node.lists}, std::move(attrs),
                                 wanted_outputs(node), node.provenance);
  to.set_marks(now, node);
  if (!node.note.empty()) to.set_note(now, node.note);
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (node.outputs[k]) replace(node.outputs[k], to[now].outputs[k]);
  return now;
}

void Rewriter::replace(Value old, Value now) {
  values_.set(old, now);
  if (now && !from_[old].name.empty() && to[now].name.empty()) to.set_name(now, from_[old].name);
}

Graph Rewriter::finish() {
  for (const Output& o : from_.outputs()) to.output(o.name, map(o.value));
  for (const Update& u : from_.updates()) to.update(map(u.target), map(u.value));
  return std::move(to);
}

}  // namespace tenon::core
