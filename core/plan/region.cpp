// SPDX-License-Identifier: Apache-2.0
// Grows elementwise regions from their last node, and writes their bodies.
#include "plan/region.hpp"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "ops/region.hpp"
#include "plan/join.hpp"
#include "plan/reader.hpp"

namespace tenon::core {
namespace {

// Nodes that become one; the last is the root, in whose place it stands.
struct Group {
  std::vector<NodeId> nodes{};   // ascending
  std::vector<Value> outputs{};  // of the nodes; the root's is the first
  StepsOf steps{};
};

class Joiner {
 public:
  Joiner(const Graph& graph, const Query& query)
      : g_(graph),
        readers_(graph),
        done_(graph.node_count()),
        notes_(graph.node_count()),
        claims_(query) {}

  Graph run() && {
    for (NodeId n = g_.node_count(); n-- > 0;)
      if (!done_[n] && (is_step(n) || is_reduction(n))) try_root(n);
    Rewriter rw(g_);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (const auto found = at_.find(n); found != at_.end()) {
        emit(rw, found->second);
      } else if (!joined_.contains(n)) {
        const NodeId now = rw.copy(n);
        add_note(rw.to, now, notes_[n]);
      }
    }
    return rw.finish();
  }

 private:
  bool has_one_output(NodeId n) const { return g_[n].outputs.size() == 1 && g_[n].outputs[0]; }
  bool is_step(NodeId n) const {
    return (g_[n].op->traits & kElementwise) && !(g_[n].op->traits & kOrdered) && has_one_output(n);
  }
  bool is_reduction(NodeId n) const {
    return (g_[n].op->traits & kReduction) && has_one_output(n) &&
           maker(g_[n].operands[0]) != kNone;
  }
  NodeId maker(Value v) const { return maker_of(g_, v); }

  void try_root(NodeId root) {
    Group group = grown(root);
    if (group.nodes.size() < 2) return;
    group.steps = steps_of(g_, group.nodes, group.outputs);
    const Verdict& verdict =
        claims_.of(g_, region_record(), group.steps.inputs, region_attrs(group.steps.body),
                   std::vector<bool>(group.outputs.size(), true));
    if (!verdict.native) {
      notes_[root] = cat("not joined into ", region_record().name(), ": ", verdict.text);
      // Without its reduction the same region may be taken; parts of it are not tried.
      if (is_reduction(root)) return;
    }
    for (NodeId n : group.nodes) {
      done_[n] = true;
      if (verdict.native) joined_.insert(n);
    }
    if (verdict.native) at_.emplace(root, std::move(group));
  }

  // The makers are met from the last to the first, so when one is met every reader that could be
  // inside is. One with a reader outside, not behind the root, stays outside: the region would
  // have to run before and after that reader.
  Group grown(NodeId root) const {
    Group group;
    const Shape& d = g_.type(is_step(root) ? g_[root].outputs[0] : g_[root].operands[0]).shape;
    std::unordered_map<uint32_t, size_t> inside;  // value -> readings by the group
    std::unordered_set<uint32_t> inputs;
    std::priority_queue<NodeId> next;
    size_t steps = 0;
    const auto take = [&](NodeId n) {
      group.nodes.push_back(n);
      steps += step_count(g_[n].op, g_.type(g_[n].outputs[0]));
      for (Value v : g_[n].operands) {
        if (!v || is_number(g_, v)) continue;
        if (inside[v.id]++ == 0) {
          inputs.insert(v.id);
          if (maker(v) != kNone) next.push(maker(v));
        }
      }
    };
    take(root);
    group.outputs.push_back(g_[root].outputs[0]);
    while (!next.empty()) {
      const NodeId n = next.top();
      next.pop();
      if (done_[n] || !is_step(n) || g_[n].clone != g_[root].clone) continue;
      const Value v = g_[n].outputs[0];
      if (g_.type(v).shape != d) continue;
      const auto readers = readers_.of(v);
      const auto before = std::upper_bound(readers.begin(), readers.end(), root) - readers.begin();
      if (static_cast<size_t>(before) != inside[v.id]) continue;
      const bool leaves = readers_.leaves(v) || static_cast<size_t>(before) != readers.size();
      if (leaves && group.outputs.size() == kRegionOutputs) continue;
      size_t more = 0;
      for (Value o : g_[n].operands) more += o && !is_number(g_, o) && !inputs.contains(o.id);
      if (inputs.size() - 1 + more > kRegionInputs ||
          steps + step_count(g_[n].op, g_.type(v)) > kRegionSteps)
        continue;
      inputs.erase(v.id);
      if (leaves) group.outputs.push_back(v);
      take(n);
    }
    std::reverse(group.nodes.begin(), group.nodes.end());
    return group;
  }

  void emit(Rewriter& rw, const Group& group) const {
    const Parts parts = parts_of(g_, group.nodes);
    const NodeId made =
        rw.to.add_node(region_record(), rw.map(group.steps.inputs), region_attrs(group.steps.body),
                       std::vector<bool>(group.outputs.size(), true), parts.provenance);
    rw.to.set_clone(made, g_[group.nodes[0]].clone);
    for (size_t k = 0; k < group.outputs.size(); ++k)
      rw.replace(group.outputs[k], rw.to[made].outputs[k]);
    rw.to.set_note(made, cat("joined: ", parts.names));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> done_;  // in a region, or in one that was refused
  std::vector<std::string> notes_;
  std::unordered_set<NodeId> joined_;
  std::unordered_map<NodeId, Group> at_;  // by root
  Claims claims_;
};

}  // namespace

Graph join_regions(const Graph& graph, const Query& query) { return Joiner(graph, query).run(); }

}  // namespace tenon::core
