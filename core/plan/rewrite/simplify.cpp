// SPDX-License-Identifier: Apache-2.0
// Removes dead code and common subexpressions, applies identities, folds constants.
#include "plan/rewrite/simplify.hpp"

#include <algorithm>
#include <unordered_map>

#include "ops/algebra.hpp"
#include "ops/control.hpp"
#include "plan/rewrite/key.hpp"
#include "plan/rewrite/simplify_control.hpp"

namespace tenon::core {
namespace {

// Nodes with equal keys compute the same, and are worth sharing.
std::string node_key(const NodeInfo& node, const std::vector<bool>& wanted, bool keeps_source) {
  std::string key;
  if (keeps_source) append_key(key, node.source);
  append_key(key, node.op);
  append_key(key, node.clone);
  append_key(key, node.recompute);
  append_key(key, node.device);
  std::vector<Value> operands = node.operands;
  if (operands.size() >= 2 && operands[1] < operands[0] && commutes(node))
    std::swap(operands[0], operands[1]);
  append_key(key, operands.size());
  for (Value v : operands) append_key(key, v.id);
  for (const uint32_t size : node.lists) append_key(key, size);
  for (bool w : wanted) key += w ? '1' : '0';
  for (const Attr& a : node.attrs) append_key(key, a);
  return key;
}

// Contents of constants, equal ones as one. What it has seen it keeps, so addresses stay theirs.
class Contents {
 public:
  const Bytes* one_of(const std::shared_ptr<const Bytes>& data) {
    const auto [known, fresh] = known_.try_emplace(data.get(), data.get());
    if (!fresh) return known->second;
    kept_.push_back(data);
    const std::string_view bytes(reinterpret_cast<const char*>(data->data()), data->size());
    const auto [from, to] = by_hash_.equal_range(std::hash<std::string_view>()(bytes));
    for (auto at = from; at != to; ++at)
      if (*at->second == *data) return known->second = at->second;
    by_hash_.emplace(std::hash<std::string_view>()(bytes), data.get());
    return data.get();
  }

 private:
  std::vector<std::shared_ptr<const Bytes>> kept_;
  std::unordered_map<const Bytes*, const Bytes*> known_;
  std::unordered_multimap<size_t, const Bytes*> by_hash_;
};

// One sweep over a graph in order.
class Sweep {
 public:
  Sweep(const Graph& from, Contents& contents, const Accepts& accepts)
      : from_(from),
        contents_(contents),
        accepts_(accepts),
        rewriter_(from),
        used_(from.value_count()),
        leaves_(from.value_count()) {}

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
    return refused_ ? without_dead(out, map) : std::move(out);
  }

 private:
  void count_uses(const std::vector<bool>& live) {
    auto use = [&](Value v) {
      if (v) used_[v.id] = true;
    };
    for (NodeId n = 0; n < from_.node_count(); ++n)
      if (live[n]) std::for_each(from_[n].operands.begin(), from_[n].operands.end(), use);
    const auto leave = [&](Value v) { use(v), leaves_[v.id] = true; };
    for (const Output& o : from_.outputs()) leave(o.value);
    for (const Update& u : from_.updates()) leave(u.value);
  }

  // As the rewriter's map, but equal constants become one.
  Value map_value(Value old) {
    if (!old || from_[old].space != Space::constant || rewriter_.values()[old])
      return rewriter_.map(old);
    std::string key;
    append_key(key, from_.type(old));
    append_key(key, contents_.one_of(from_[old].data));
    const auto [at, fresh] = constants_.try_emplace(std::move(key), Value{});
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
      if (p.kind == OpPart::Kind::optional_output) unwant(node, k, out);
      k += p.kind == OpPart::Kind::output || p.kind == OpPart::Kind::optional_output;
    }
    if (is_control(node))
      for (size_t i = 0; i < out.size(); ++i) unwant(node, i, out);
    return out;
  }
  void unwant(const NodeInfo& node, size_t k, std::vector<bool>& wants) {
    if (k >= wants.size() || !wants[k] || used_[node.outputs[k].id]) return;
    wants[k] = false;
    changed = true;
  }

  void visit(NodeId id) {
    const NodeInfo& old = from_[id];
    NodeInfo node = old;  // as it will be: operands of the new graph
    for (Value& v : node.operands) v = map_value(v);
    const bool fixed = old.op->traits & kOrdered || old.op->meta() || old.group != kNone;
    if (!fixed && apply_identity(old, node)) {
      changed = true;
      return;
    }
    const std::vector<bool> wants = wanted(old);
    if (!fixed) {
      const auto [at, fresh] =
          nodes_.try_emplace(node_key(node, wants, is_large(old)), rewriter_.to.node_count());
      if (!fresh) {
        changed = true;
        return take_outputs(old, at->second);
      }
    }
    const NodeId made = rewriter_.to.add_node(*node.op, {std::move(node.operands), node.lists},
                                              std::move(node.attrs), wants, node.provenance);
    rewriter_.to.set_marks(made, node);
    if (!node.note.empty()) rewriter_.to.set_note(made, node.note);
    take_outputs(old, made);
  }

  // What was decomposed was written to be computed again where it is needed again: a large value of
  // it, shared by two decompositions, would have to live from one to the other.
  bool is_large(const NodeInfo& old) const {
    if (old.op->traits & kView) return false;
    uint64_t bytes = 0;
    for (Value v : old.outputs)
      if (v) bytes += type_bytes(from_.type(v));
    return bytes > kFoldLimit;
  }

  void take_outputs(const NodeInfo& old, NodeId made) {
    const std::vector<Value> outputs = rewriter_.to[made].outputs;
    for (size_t k = 0; k < old.outputs.size(); ++k)
      if (old.outputs[k] && k < outputs.size() && outputs[k])
        rewriter_.replace(old.outputs[k], outputs[k]);
  }

  static Graph without_dead(const Graph& graph, ValueMap* map) {
    const std::vector<bool> live = live_nodes(graph);
    Rewriter rw(graph);
    for (NodeId n = 0; n < graph.node_count(); ++n)
      if (live[n]) rw.copy(n);
    Graph out = rw.finish();
    *map = map->then(rw.values());
    return out;
  }

  // Identities, again on what they give while that is a new node.
  bool apply_identity(const NodeInfo& old, const NodeInfo& node) {
    if (old.outputs.empty() || !old.outputs[0]) return false;
    const Type type = from_.type(old.outputs[0]);
    Builder b(rewriter_.to, node.provenance);
    b.marks = node;
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
    if (accepts_ && !fits(old.outputs[0], result, before)) {
      refused_ = true;
      return false;
    }
    rewriter_.replace(old.outputs[0], result);
    return true;
  }

  // In a placed graph: is a value of the new graph as good as the old one? The nodes since `before`
  // were made for it; where it is not, they are dead.
  bool fits(Value old, Value result, NodeId before) const {
    const Graph& to = rewriter_.to;
    if (leaves_[old.id] && to[result].space != Space::node) return false;
    for (NodeId n = before; n < to.node_count(); ++n)
      if (!accepts_(to, to[n])) return false;
    return true;
  }

  const Graph& from_;
  Contents& contents_;
  const Accepts& accepts_;
  Rewriter rewriter_;
  std::vector<bool> used_;    // by value: read by a live node, or leaves
  std::vector<bool> leaves_;  // by value
  bool refused_ = false;      // an identity, whose nodes are dead
  std::unordered_map<std::string, NodeId> nodes_;
  std::unordered_map<std::string, Value> constants_;
};

}  // namespace

Graph simplify(const Graph& from, const Evaluate& evaluate, ValueMap* map, const Accepts& accepts) {
  Graph graph = from;
  ValueMap total = ValueMap::identity(from.value_count());
  Contents contents;
  // Sweeps until nothing changes: what one makes may be merged, or found dead, by the next. Few are
  // ever needed; the bound is for the odd graph.
  const auto sweep = [&] {
    for (int round = 0; round < 8; ++round) {
      Sweep sweep(graph, contents, accepts);
      ValueMap step;
      Graph next = sweep.run(&step);
      if (!sweep.changed) return round > 0;
      graph = std::move(next);
      total = total.then(step);
    }
    return true;
  };
  // Identities may leave more that is constant, a folded value more identities, and a branch that is
  // taken more of both.
  for (int round = 0; round < 4; ++round) {
    const bool folded = evaluate && fold_constants(graph, evaluate, bool(accepts), &total);
    const bool chosen = !accepts && simplify_control(graph, evaluate, &total);
    if ((round > 0 && !folded && !chosen) || (!sweep() && !chosen)) break;
  }
  if (map) *map = std::move(total);
  return graph;
}

}  // namespace tenon::core
