// SPDX-License-Identifier: Apache-2.0
// Trial graphs of one node or a join, the device's answers to them, and claims taken back.
#include "plan/rewrite/claims.hpp"

#include <cmath>
#include <unordered_set>

#include "ir/blob.hpp"
#include "ir/rewrite.hpp"
#include "plan/rewrite/key.hpp"

namespace tenon::core {
namespace {

std::string form_key(const Graph& g, const NodeInfo& node, uint32_t device) {
  std::string key = form_key(g, node);
  append_key(key, device);
  return key;
}

// What an operand is, as far as a device is told.
void append_operand(std::string& key, const Graph& g, Value v) {
  const ValueInfo& info = g[v];
  append_key(key, info.space == Space::node ? Space::input : info.space);
  append_key(key, info.type);
  append_key(key, bool(g.update_of(v)));
  if (info.space == Space::constant && info.data->size() <= kBlobConstantLimit)
    key.append(reinterpret_cast<const char*>(info.data->data()), info.data->size());
}

}  // namespace

bool costs_less(double a, double b) { return a < b * (1 - 1e-3); }

void settle_verdicts(std::vector<Verdict>& verdicts) {
  std::unordered_set<uint32_t> broken;
  for (Verdict& v : verdicts) {
    if (v.native) continue;
    if (v.text.empty()) v.text = "refused, and the plugin does not say why";
    if (v.group != TENON_NONE) broken.insert(v.group);
  }
  for (Verdict& v : verdicts) {
    if (!v.native || !broken.contains(v.group)) continue;
    v.native = false;
    v.reason = TENON_REASON_OTHER;
    v.text = "claimed only together with a node that is refused";
  }
}

Trial trial_of(const Graph& g, std::span<const Value> operands) {
  Trial trial;
  std::unordered_map<uint32_t, Value> seen;
  const auto stand_in = [&](Value v, const std::string& name) {
    const ValueInfo& info = g[v];
    switch (info.space) {
      case Space::constant:
        return trial.graph.constant(info.type, info.data);
      case Space::weight:
        return trial.graph.weight(name, info.type, info.trainable);
      case Space::state:
        return trial.graph.state(name, info.type);
      default:
        return trial.graph.input(name, info.type);
    }
  };
  for (Value v : operands) {
    if (!v) {
      trial.operands.push_back({});
      continue;
    }
    const auto [at, fresh] = seen.try_emplace(v.id);
    if (fresh) {
      at->second = stand_in(v, std::to_string(trial.operands.size()));
      if (g.update_of(v)) trial.graph.update(at->second, at->second);
    }
    trial.operands.push_back(at->second);
  }
  return trial;
}

std::string form_key(const Graph& g, const NodeInfo& node) {
  std::string key;
  append_key(key, node.op);
  append_key(key, node.attrs.size());
  for (const Attr& a : node.attrs) append_key(key, a);
  append_key(key, node.operands.size());
  for (const uint32_t size : node.lists) append_key(key, size);
  std::unordered_map<uint32_t, size_t> first;  // value -> operand
  for (Value v : node.operands) {
    const auto [at, fresh] = first.try_emplace(v.id, first.size());
    append_key(key, at->second);
    if (!v)
      key += '-';
    else if (fresh)
      append_operand(key, g, v);
  }
  for (Value v : node.outputs) key += v ? '1' : '0';
  return key;
}

const Verdict& Claims::of(const Graph& g, const OpRecord& op, const Operands& operands,
                          const Attrs& attrs, const std::vector<bool>& wanted, uint32_t device) {
  Trial trial = trial_of(g, operands.values);
  const NodeId n =
      trial.graph.add_node(op, {std::move(trial.operands), operands.lists}, attrs, wanted);
  std::string key = form_key(trial.graph, trial.graph[n], device);
  if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
  for (Value v : trial.graph[n].outputs)
    if (v) trial.graph.output(std::to_string(trial.graph.outputs().size()), v);
  std::vector<Verdict> verdicts = query_(trial.graph, device);
  settle_verdicts(verdicts);
  return answers_.emplace(std::move(key), std::move(verdicts[0])).first->second;
}

const Verdict& Claims::of(const Graph& g, const NodeInfo& node) {
  return of(g, *node.op, {node.operands, node.lists}, node.attrs, wanted_outputs(node),
            node.device);
}

std::string Claims::why_not(const Verdict& joined, const Graph& g, std::span<const NodeId> parts) {
  if (!joined.native) return joined.text;
  if (joined.cost == 0) return {};
  double apart = 0;
  for (NodeId n : parts) {
    const Verdict& part = of(g, g[n]);
    if (!part.native || part.cost == 0) return {};  // what they cost is not known
    apart += part.cost;
  }
  if (!costs_less(apart, joined.cost)) return {};
  return cat("it would take ", microseconds(joined.cost), ", its parts ", microseconds(apart));
}

bool Withdrawn::add(const Graph& g, NodeId n, const std::string& why) {
  return why_.emplace(form_key(g, g[n], g[n].device), why).second;
}

Query Withdrawn::without(Query query) const {
  if (why_.empty()) return query;
  return [this, query = std::move(query)](const Graph& g, uint32_t d) {
    std::vector<Verdict> verdicts = query(g, d);
    for (NodeId n = 0; n < g.node_count(); ++n) {
      if (!verdicts[n].native) continue;
      const auto found = why_.find(form_key(g, g[n], d));
      if (found == why_.end()) continue;
      verdicts[n].native = false;
      verdicts[n].reason = TENON_REASON_OTHER;
      verdicts[n].text = cat("claimed at first, refused in its region: ", found->second);
    }
    settle_verdicts(verdicts);
    return verdicts;
  };
}

std::string microseconds(double seconds) { return cat(std::round(seconds * 1e7) / 10, " us"); }

}  // namespace tenon::core
