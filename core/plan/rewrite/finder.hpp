// SPDX-License-Identifier: Apache-2.0
// Finds nodes that a composite op replaces, asks the device about it, and replaces them.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {

// A composite in place of some nodes; it stands where the last of them stood.
struct Join {
  const OpRecord* op = nullptr;
  Operands operands{};  // of the old graph
  Attrs attrs{};
  std::vector<bool> wanted{};
  std::vector<std::pair<Value, size_t>> results{};  // old value, output that takes its place
  std::vector<NodeId> nodes{};                      // ascending
};

template <class Op>
Join join_of(const Op& op, std::vector<NodeId> nodes,
             std::vector<std::pair<Value, size_t>> results) {
  Encoder e;
  visit(op, e);
  std::sort(nodes.begin(), nodes.end());
  return {&record_of(Op::kName), std::move(e.operands), std::move(e.attrs),
          std::move(e.outputs),  std::move(results),    std::move(nodes)};
}

// Who reads what, and the joins found so far.
class Finder {
 public:
  Finder(const Graph& graph, const Query& query)
      : g_(graph),
        readers_(graph),
        taken_(graph.node_count()),
        asked_for_(graph.value_count()),
        notes_(graph.node_count()),
        claims_(query) {
    for (NodeId n = 0; n < graph.node_count(); ++n)
      if (graph[n].op->meta())
        for (Value v : graph[n].operands)
          if (v) asked_for_[v.id] = true;
  }

  const Graph& graph() const { return g_; }
  bool free(NodeId n) const { return !taken_[n] && g_[n].group == kNone; }
  // A node of op Op that is free to be joined.
  template <class Op>
  std::optional<Op> as(NodeId n) const {
    if (n == kNone || !free(n) || g_[n].op != &record_of(Op::kName)) return {};
    return decode<Op>(g_[n]);
  }
  // The node that makes v, or kNone.
  NodeId maker(Value v) const { return maker_of(g_, v); }
  std::span<const NodeId> readers(Value v) const { return readers_.of(v); }
  bool leaves(Value v) const { return readers_.leaves(v); }
  // Does this node alone read v, once?
  bool only_reader(Value v, NodeId n) const { return readers_.one(v) && readers_.of(v)[0] == n; }
  // Can v be made at node n's place: nothing before reads it, and its gradient is not asked for by
  // name?
  bool may_wait(Value v, NodeId n) const {
    const auto readers = readers_.of(v);
    return !asked_for_[v.id] && (readers.empty() || readers.front() >= n);
  }
  // May they be one node: of one clone, on one device?
  bool alike(NodeId a, NodeId b) const {
    return g_[a].clone == g_[b].clone && g_[a].device == g_[b].device;
  }

  // Says at node n why it is not joined.
  void refuse(NodeId n, std::string_view op, std::string_view why) {
    notes_[n] = cat("not joined into ", op, ": ", why);
  }
  // Takes the nodes if the device claims the composite; else notes why not at its last node.
  bool take(Join join) {
    std::vector<Join> one;
    one.push_back(std::move(join));
    return take_all(std::move(one));
  }
  // The same for composites that all must be claimed.
  bool take_all(std::vector<Join> joins) {
    for (const Join& join : joins) {
      const NodeId last = join.nodes.back();
      const Verdict& verdict =
          claims_.of(g_, *join.op, join.operands, join.attrs, join.wanted, g_[last].device);
      if (const std::string why = claims_.why_not(verdict, g_, join.nodes); !why.empty()) {
        refuse(last, join.op->name(), why);
        return false;
      }
    }
    for (Join& join : joins) {
      for (NodeId n : join.nodes) taken_[n] = true;
      const NodeId last = join.nodes.back();
      at_.emplace(last, std::move(join));
    }
    return true;
  }

  Graph rewrite() && {
    return with_joined(g_, at_, taken_, notes_,
                       [&](Rewriter& rw, const auto& join) { emit(rw, join); });
  }

 private:
  void emit(Rewriter& rw, const Join& join) {
    const Parts parts = parts_of(g_, join.nodes);
    const NodeId made =
        rw.to.add_node(*join.op, {rw.map(join.operands.values), join.operands.lists}, join.attrs,
                       join.wanted, parts.provenance);
    rw.to.set_marks(made, marks_of(g_, join.nodes));
    for (const auto& [old, output] : join.results) rw.replace(old, rw.to[made].outputs[output]);
    rw.to.set_note(made, joined_note(g_, join.nodes, cat("joined: ", parts.names)));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> taken_;
  std::vector<bool> asked_for_;  // by value: a request names it
  std::vector<std::string> notes_;
  std::unordered_map<NodeId, Join> at_;
  Claims claims_;
};

}  // namespace tenon::core
