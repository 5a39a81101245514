// SPDX-License-Identifier: Apache-2.0
// Infers types with numbers in place of symbols.
#include "ir/dtypes.hpp"

#include <set>

namespace tenon::core {
namespace {

// 1 broadcasts with everything, 5040 has many divisors and is longer than most windows and slices.
constexpr Dim kNumbers[] = {1, 5040, 2, 8, 64, 5040 * 1024, 3, 5, 0};

}  // namespace

void DTypes::forget() {
  copy_.reset();
  now_.clear();
  nodes_.clear();
}

void DTypes::copy_node(const Graph& graph, NodeId id) {
  const NodeInfo& node = graph[id];
  const auto known = nodes_.find(id);
  if (known == nodes_.end()) {
    std::vector<Value> operands;
    for (Value v : node.operands) operands.push_back(v ? now_[v.id] : Value{});
    std::vector<bool> wanted;
    for (Value v : node.outputs) wanted.push_back(bool(v));
    const NodeId made = copy_->add_node(*node.op, Operands(std::move(operands), node.lists),
                                        node.attrs, std::move(wanted), node.provenance);
    nodes_.emplace(id, made);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (node.outputs[k]) now_[node.outputs[k].id] = (*copy_)[made].outputs[k];
    return;
  }
  for (uint32_t k = 0; k < node.outputs.size(); ++k)  // those that became wanted later
    if (const Value v = node.outputs[k]; v && !now_[v.id])
      now_[v.id] = copy_->want_output(known->second, k);
}

void DTypes::follow(const Graph& graph, Value value) {
  now_.resize(graph.value_count());
  std::set<NodeId> missing;  // operands come before their nodes
  std::vector<Value> open = {value};
  while (!open.empty()) {
    const Value v = open.back();
    open.pop_back();
    if (!v || now_[v.id]) continue;
    const ValueInfo& info = graph[v];
    switch (info.space) {
      case Space::input: {
        Type type = info.type;
        for (int i = 0; i < type.shape.rank(); ++i)
          if (is_symbol(type.shape[i])) type.shape[i] = kNumbers[number_];
        now_[v.id] = copy_->input(info.name, type);
        break;
      }
      case Space::weight:
        now_[v.id] = copy_->weight(info.name, info.type);
        break;
      case Space::state:
        now_[v.id] = copy_->state(info.name, info.type);
        break;
      case Space::constant:
        now_[v.id] = copy_->constant(info.type, info.data);
        break;
      case Space::node:
        if (missing.insert(info.node).second && !nodes_.contains(info.node))
          for (Value operand : graph[info.node].operands) open.push_back(operand);
        break;
    }
  }
  for (const NodeId n : missing) copy_node(graph, n);
}

DType DTypes::of(const Graph& graph, Value value) {
  if (const DType known = graph.type(value).dtype; known != TENON_DTYPE_NONE) return known;
  for (; number_ < std::size(kNumbers); ++number_) {
    try {
      if (!copy_) copy_.emplace();
      follow(graph, value);
      return copy_->type(now_[value.id]).dtype;
    } catch (const Error&) {  // a node refuses this number
      forget();
    }
  }
  number_ = 0;
  return TENON_DTYPE_NONE;
}

}  // namespace tenon::core
