// SPDX-License-Identifier: Apache-2.0
// Finds the nodes that depend on constants alone, and puts their results in their place.
#include "plan/rewrite/fold.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/control.hpp"
#include "ops/record.hpp"

namespace tenon::core {
namespace {

using Computed = std::map<Value, std::shared_ptr<const Bytes>>;

class Folder {
 public:
  Folder(const Graph& graph, const Evaluate& evaluate, bool stays_made)
      : g_(graph), evaluate_(evaluate), leaves_(graph.value_count()), stays_made_(stays_made) {
    for (const Output& o : g_.outputs()) leaves_[o.value.id] = true;
    for (const Update& u : g_.updates()) leaves_[u.value.id] = true;
    for (uint32_t v = 0; v < g_.value_count(); ++v) {
      const NodeId n = g_[Value{v}].node;
      behind_.push_back(type_bytes(g_.type(Value{v})));
      if (n != kNone && g_[n].op->traits & kView)
        behind_[v] = std::min(behind_[v], behind_[g_[n].operands[0].id]);
    }
  }

  // By value: what it is. A node that fails is found, and what reads it is computed in the run.
  const Computed& run() {
    do {
      failed_.clear();
      find_known();
      const std::vector<Value> wanted = find_wanted();
      if (!wanted.empty()) solve(wanted);
    } while (!failed_.empty());
    return results_;
  }

 private:
  bool is_known(Value v) const {
    return g_[v].space == Space::constant || (g_[v].node != kNone && known_[g_[v].node]);
  }

  // Nodes whose values can be told before any run.
  void find_known() {
    known_.assign(g_.node_count(), false);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      const NodeInfo& node = g_[n];
      if (node.op->traits & kOrdered || node.op->meta() || is_random(*node.op) ||
          is_control(node) || node.group != kNone || stays_.contains(n))
        continue;
      uint64_t bytes = 0;
      bool leaves = false;
      for (Value v : node.outputs)
        if (v) bytes += type_bytes(g_.type(v)), leaves |= leaves_[v.id];
      known_[n] = bytes <= kFoldLimit && !(stays_made_ && leaves) &&
                  std::ranges::all_of(node.operands, [&](Value v) { return !v || is_known(v); });
    }
  }

  bool only_repeats(const NodeInfo& node) const {
    return node.op->traits & kView &&
           type_bytes(g_.type(node.outputs[0])) > behind_[node.operands[0].id];
  }

  // Known values that a run needs; behind views that repeat, what they repeat.
  std::vector<Value> find_wanted() const {
    std::set<Value> wanted;
    std::vector<bool> views(g_.node_count());  // which a run needs
    const auto need = [&](Value v) {
      if (!v || g_[v].node == kNone || !known_[g_[v].node] || results_.contains(v)) return;
      if (only_repeats(g_[g_[v].node]))
        views[g_[v].node] = true;
      else
        wanted.insert(v);
    };
    for (const Output& o : g_.outputs()) need(o.value);
    for (const Update& u : g_.updates()) need(u.value);
    for (NodeId n = g_.node_count(); n-- > 0;)
      if (!known_[n] || views[n])
        for (Value v : g_[n].operands) need(v);
    return {wanted.begin(), wanted.end()};
  }

  // All at once; where that fails, half by half, down to the nodes that fail.
  void solve(std::span<const Value> wanted) {
    if (const auto contents = computed(wanted)) {
      for (size_t k = 0; k < wanted.size(); ++k)
        results_[wanted[k]] = std::make_shared<const Bytes>(std::move((*contents)[k]));
      return;
    }
    if (wanted.size() > 1) {
      solve(wanted.first(wanted.size() / 2));
      return solve(wanted.subspan(wanted.size() / 2));
    }
    const NodeId bad = first_failure(wanted[0]);
    failed_.insert(bad);
    stays_.insert(bad);
  }

  // Nothing when one of the nodes behind them fails, as it will then fail in the run.
  std::optional<std::vector<Bytes>> computed(std::span<const Value> wanted) const {
    const Graph part = graph_of(wanted);
    std::vector<Bytes> contents;
    try {
      contents = evaluate_(part);
    } catch (const Error&) {
      return {};
    }
    check(contents.size() == wanted.size(), "fold: ", wanted.size(), " values were computed as ",
          contents.size());
    return contents;
  }

  // The first of v's makers, by their order, that cannot be computed.
  NodeId first_failure(Value v) const {
    const std::vector<NodeId> makers = makers_of(std::span(&v, 1));
    size_t good = 0, bad = makers.size();  // with so many of them it works, and fails
    while (bad - good > 1) {
      const size_t middle = (good + bad) / 2;
      std::vector<Value> made;
      for (NodeId n : std::span(makers).first(middle))
        for (Value o : g_[n].outputs)
          if (o) made.push_back(o);
      (computed(made) ? good : bad) = middle;
    }
    return makers[good];
  }

  std::vector<NodeId> makers_of(std::span<const Value> values) const {
    std::set<NodeId, std::greater<>> next;
    std::vector<NodeId> makers;
    const auto need = [&](Value v) {
      if (v && g_[v].node != kNone && !results_.contains(v)) next.insert(g_[v].node);
    };
    for (Value v : values) need(v);
    while (!next.empty()) {
      const NodeId n = *next.begin();
      next.erase(next.begin());
      makers.push_back(n);
      for (Value v : g_[n].operands) need(v);
    }
    std::ranges::reverse(makers);
    return makers;
  }

  Graph graph_of(std::span<const Value> wanted) const {
    Graph part;
    std::map<Value, Value> now;
    const auto map = [&](Value v) -> Value {
      if (!v) return {};
      const auto [at, fresh] = now.try_emplace(v);
      if (!fresh) return at->second;
      const auto known = results_.find(v);
      return at->second =
                 part.constant(g_.type(v), known == results_.end() ? g_[v].data : known->second);
    };
    for (NodeId n : makers_of(wanted)) {
      const NodeInfo& node = g_[n];
      std::vector<Value> operands;
      for (Value v : node.operands) operands.push_back(map(v));
      const NodeId made = part.add_node(*node.op, {std::move(operands), node.lists}, node.attrs,
                                        wanted_outputs(node), node.provenance);
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k]) now[node.outputs[k]] = part[made].outputs[k];
    }
    for (Value v : wanted) part.output(std::to_string(part.outputs().size()), now.at(v));
    return part;
  }

  const Graph& g_;
  const Evaluate& evaluate_;
  std::vector<bool> leaves_;
  std::vector<uint64_t> behind_;  // fewest bytes that a value is seen through views of
  const bool stays_made_;
  std::vector<bool> known_;          // by node
  std::set<NodeId> stays_, failed_;  // what failed: ever, and in this round
  Computed results_;
};

}  // namespace

bool fold_constants(Graph& graph, const Evaluate& evaluate, bool stays_made, ValueMap* map) {
  Folder folder(graph, evaluate, stays_made);
  const Computed& results = folder.run();
  if (results.empty()) return false;
  Rewriter rw(graph);
  const auto is_result = [&](Value v) { return !v || results.contains(v); };
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const std::vector<Value>& outputs = graph[n].outputs;
    if (!std::ranges::all_of(outputs, is_result)) rw.copy(n);
    for (Value v : outputs)
      if (const auto at = results.find(v); v && at != results.end())
        rw.replace(v, rw.to.constant(graph.type(v), at->second));
  }
  graph = rw.finish();
  *map = map->then(rw.values());
  return true;
}

}  // namespace tenon::core
