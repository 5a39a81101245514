// SPDX-License-Identifier: Apache-2.0
// Removes dead code and common subexpressions, applies identities, folds constants.
#include "plan/simplify.hpp"

#include <algorithm>
#include <unordered_map>

#include "ops/algebra.hpp"
#include "plan/key.hpp"

namespace tenon::core {
namespace {

// Nodes with equal keys compute the same.
std::string node_key(const NodeInfo& node, const std::vector<bool>& wanted) {
  std::string key;
  append_key(key, node.op);
  append_key(key, node.clone);
  append_key(key, node.recompute);
  std::vector<Value> operands = node.operands;
  if (operands.size() >= 2 && operands[1] < operands[0] && commutes(node))
    std::swap(operands[0], operands[1]);
  append_key(key, operands.size());
  for (Value v : operands) append_key(key, v.id);
  for (bool w : wanted) key += w ? '1' : '0';
  for (const Attr& a : node.attrs) append_key(key, a);
  return key;
}

std::string constant_key(const ValueInfo& v) {
  std::string key;
  append_key(key, v.type.dtype);
  append_key(key, v.type.shape.rank());
  for (Dim d : v.type.shape) append_key(key, d);
  if (v.data->size() > kFoldLimit)
    append_key(key, v.data.get());
  else
    key.append(reinterpret_cast<const char*>(v.data->data()), v.data->size());
  return key;
}

// One sweep over a graph in order.
class Sweep {
 public:
  Sweep(const Graph& from, const Evaluate& evaluate)
      : from_(from), evaluate_(evaluate), rewriter_(from), used_(from.value_count()) {}

  bool changed = false;

  Graph run(ValueMap* map) {
    const std::vector<bool> live = live_nodes(from_);
    count_uses(live);
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      if (live[n])
        visit(n);
      else
        changed = true;
    }
    for (const Output& o : from_.outputs()) map_value(o.value);
    for (const Update& u : from_.updates()) map_value(u.value);
    Graph out = rewriter_.finish();
    *map = rewriter_.values();
    return out;
  }

 private:
  void count_uses(const std::vector<bool>& live) {
    auto use = [&](Value v) {
      if (v) used_[v.id] = true;
    };
    for (NodeId n = 0; n < from_.node_count(); ++n)
      if (live[n]) std::for_each(from_[n].operands.begin(), from_[n].operands.end(), use);
    for (const Output& o : from_.outputs()) use(o.value);
    for (const Update& u : from_.updates()) use(u.value);
  }

  // As the rewriter's map, but equal constants become one.
  Value map_value(Value old) {
    if (!old || from_[old].space != Space::constant || rewriter_.values()[old])
      return rewriter_.map(old);
    const auto [at, fresh] = constants_.try_emplace(constant_key(from_[old]), Value{});
    if (fresh) return at->second = rewriter_.map(old);
    changed = true;
    rewriter_.replace(old, at->second);
    return at->second;
  }

  // What the node must still give: an optional output that nobody reads is no longer wanted.
  std::vector<bool> wanted(const NodeInfo& node) {
    std::vector<bool> out = wanted_outputs(node);
    if (node.op->traits & kOrdered) return out;
    size_t k = 0;
    for (const OpPart& p : node.op->schema->parts()) {
      if (p.kind == OpPart::Kind::optional_output && k < out.size() && out[k] &&
          !used_[node.outputs[k].id]) {
        out[k] = false;
        changed = true;
      }
      k += p.kind == OpPart::Kind::output || p.kind == OpPart::Kind::optional_output;
    }
    return out;
  }

  void visit(NodeId id) {
    const NodeInfo& old = from_[id];
    NodeInfo node = old;  // as it will be: operands of the new graph
    for (Value& v : node.operands) v = map_value(v);
    const bool fixed = old.op->traits & kOrdered || old.op->schema->level == OpLevel::meta;
    if (!fixed && (apply_identity(old, node) || fold(old, node))) {
      changed = true;
      return;
    }
    const std::vector<bool> wants = wanted(old);
    if (!fixed) {
      const auto [at, fresh] = nodes_.try_emplace(node_key(node, wants), rewriter_.to.node_count());
      if (!fresh) {
        changed = true;
        return take_outputs(old, at->second);
      }
    }
    const NodeId made = rewriter_.to.add_node(*node.op, std::move(node.operands),
                                              std::move(node.attrs), wants, node.provenance);
    if (node.clone) rewriter_.to.set_clone(made, node.clone);
    if (node.recompute) rewriter_.to.set_recompute(made, node.recompute);
    if (!node.note.empty()) rewriter_.to.set_note(made, node.note);
    take_outputs(old, made);
  }

  void take_outputs(const NodeInfo& old, NodeId made) {
    const std::vector<Value> outputs = rewriter_.to[made].outputs;
    for (size_t k = 0; k < old.outputs.size(); ++k)
      if (old.outputs[k] && k < outputs.size() && outputs[k])
        rewriter_.replace(old.outputs[k], outputs[k]);
  }

  // Identities, again on what they give while that is a new node.
  bool apply_identity(const NodeInfo& old, const NodeInfo& node) {
    if (old.outputs.empty() || !old.outputs[0]) return false;
    const Type type = from_.type(old.outputs[0]);
    Builder b(rewriter_.to, node.provenance);
    b.clone = node.clone, b.recompute = node.recompute;
    const NodeId before = rewriter_.to.node_count();
    const Value first = simpler(b, node, type);
    if (!first) return false;
    Value result = first;
    for (int i = 0; i < 8; ++i) {
      const ValueInfo& info = rewriter_.to[result];
      if (info.space != Space::node || info.node < before) break;
      const NodeInfo next = rewriter_.to[info.node];
      const Value better = simpler(b, next, type);
      if (!better) break;
      result = better;
    }
    check(b.type(result) == type, node.op->name(), ": an identity changes its type from ",
          type.text(), " to ", b.type(result).text());
    rewriter_.replace(old.outputs[0], result);
    return true;
  }

  bool foldable(const NodeInfo& old, const NodeInfo& node) const {
    if (!evaluate_ || node.op->schema->family == "random") return false;
    uint64_t in = 0, out = 0;
    for (Value v : node.operands) {
      if (!v) continue;
      const ValueInfo& info = rewriter_.to[v];
      if (info.space != Space::constant) return false;
      in += info.data->size();
    }
    for (Value v : old.outputs)
      if (v) out += type_bytes(from_.type(v));
    // A view that repeats its operand is worth more as a view.
    return out <= kFoldLimit && !(node.op->traits & kView && out > in);
  }

  bool fold(const NodeInfo& old, const NodeInfo& node) {
    if (!foldable(old, node)) return false;
    Graph one;
    std::vector<Value> operands;
    for (Value v : node.operands)
      operands.push_back(v ? one.constant(rewriter_.to.type(v), rewriter_.to[v].data) : Value{});
    const NodeId made = one.add_node(*node.op, std::move(operands), node.attrs, wanted_outputs(old),
                                     node.provenance);
    std::vector<Value> results;
    for (Value v : old.outputs)
      if (v) results.push_back(v);
    for (Value v : one[made].outputs)
      if (v) one.output(std::to_string(one.outputs().size()), v);
    std::vector<Bytes> contents;
    try {
      contents = evaluate_(one);
    } catch (const Error&) {
      return false;  // it fails as it would have failed: in the run
    }
    check(contents.size() == results.size(), "simplify: evaluating ", node.op->name(), " gave ",
          contents.size(), " results, expected ", results.size());
    for (size_t k = 0; k < results.size(); ++k)
      rewriter_.replace(
          results[k], rewriter_.to.constant(from_.type(results[k]),
                                            std::make_shared<const Bytes>(std::move(contents[k]))));
    return true;
  }

  const Graph& from_;
  const Evaluate& evaluate_;
  Rewriter rewriter_;
  std::vector<bool> used_;  // by value: read by a live node, or leaves
  std::unordered_map<std::string, NodeId> nodes_;
  std::unordered_map<std::string, Value> constants_;
};

}  // namespace

Graph simplify(const Graph& from, const Evaluate& evaluate, ValueMap* map) {
  Graph graph = from;
  ValueMap total = ValueMap::identity(from.value_count());
  // What a sweep makes may be merged, or found dead, by the next. Few are ever needed; the bound is
  // for the odd graph.
  for (int round = 0; round < 8; ++round) {
    Sweep sweep(graph, evaluate);
    ValueMap step;
    Graph next = sweep.run(&step);
    if (!sweep.changed) break;
    graph = std::move(next);
    total = total.then(step);
  }
  if (map) *map = std::move(total);
  return graph;
}

}  // namespace tenon::core
