// SPDX-License-Identifier: Apache-2.0
#include "plan/region.hpp"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "ops/region.hpp"
#include "plan/key.hpp"

namespace tenon::core {
namespace {

// Nodes that become one; the last is the root, in whose place it stands.
struct Group {
  std::vector<NodeId> nodes{};   // ascending
  std::vector<Value> inputs{};   // in the order of their first reading
  std::vector<Value> outputs{};  // of the nodes; the root's is the first
  std::shared_ptr<Graph> body{};
};

class Joiner {
 public:
  Joiner(const Graph& graph, const Query& query)
      : g_(graph),
        query_(query),
        readers_(graph.value_count()),
        leaves_(graph.value_count()),
        done_(graph.node_count()),
        notes_(graph.node_count()) {
    for (NodeId n = 0; n < g_.node_count(); ++n)
      for (Value v : g_[n].operands)
        if (v) readers_[v.id].push_back(n);
    for (const Output& o : g_.outputs()) leaves_[o.value.id] = true;
    for (const Update& u : g_.updates()) leaves_[u.value.id] = true;
  }

  Graph run() && {
    for (NodeId n = g_.node_count(); n-- > 0;)
      if (!done_[n] && (is_step(n) || is_reduction(n))) try_root(n);
    Rewriter rw(g_);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (const auto found = at_.find(n); found != at_.end()) {
        emit(rw, found->second);
      } else if (!joined_.contains(n)) {
        const NodeId now = rw.copy(n);
        if (!notes_[n].empty()) rw.to.set_note(now, std::move(notes_[n]));
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
  NodeId maker(Value v) const { return v && g_[v].space == Space::node ? g_[v].node : kNone; }
  // What a body carries itself.
  bool is_number(Value v) const {
    return g_[v].space == Space::constant && g_.type(v).shape.elements() == 1 &&
           tenon_dtype_bits(g_.type(v).dtype) >= 8;
  }

  void try_root(NodeId root) {
    Group group = grown(root);
    if (group.nodes.size() < 2) return;
    write_body(group);
    const Verdict& verdict = claim(group);
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
        if (!v || is_number(v)) continue;
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
      const auto& readers = readers_[v.id];
      const auto before = std::upper_bound(readers.begin(), readers.end(), root) - readers.begin();
      if (static_cast<size_t>(before) != inside[v.id]) continue;
      const bool leaves = leaves_[v.id] || static_cast<size_t>(before) != readers.size();
      if (leaves && group.outputs.size() == kRegionOutputs) continue;
      size_t more = 0;
      for (Value o : g_[n].operands) more += o && !is_number(o) && !inputs.contains(o.id);
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

  // The nodes as steps, in their order.
  void write_body(Group& group) const {
    group.body = std::make_shared<Graph>();
    Graph& body = *group.body;
    std::unordered_map<uint32_t, Value> now, rounded;
    const auto read = [&](Value v) -> Value {
      if (!v) return {};
      Value& in = now[v.id];
      if (!in && is_number(v)) in = body.constant(g_.type(v), g_[v].data);
      if (!in) {
        in = body.input(std::to_string(group.inputs.size()), g_.type(v));
        group.inputs.push_back(v);
      }
      if (body[in].space != Space::node) return in;
      Value& r = rounded[v.id];
      return r ? r : r = rounded_step(body, in);
    };
    for (NodeId n : group.nodes) {
      std::vector<Value> operands;
      for (Value v : g_[n].operands) operands.push_back(read(v));
      const NodeId step = body.add_node(*g_[n].op, std::move(operands), g_[n].attrs, {true});
      now[g_[n].outputs[0].id] = body[step].outputs[0];
    }
    for (Value v : group.outputs) body.output(std::to_string(body.outputs().size()), now[v.id]);
  }

  // The device's answer to a region of this form.
  const Verdict& claim(const Group& group) {
    Graph one;
    std::vector<Value> operands;
    for (Value v : group.inputs)
      operands.push_back(one.input(std::to_string(operands.size()), g_.type(v)));
    const NodeId n = add_region(one, std::move(operands), group, {});
    std::string key = form_key(one, one[n]);
    if (const auto found = claims_.find(key); found != claims_.end()) return found->second;
    for (Value v : one[n].outputs) one.output(std::to_string(one.outputs().size()), v);
    return claims_.emplace(std::move(key), query_(one, 0)[0]).first->second;
  }

  static NodeId add_region(Graph& to, std::vector<Value> operands, const Group& group,
                           std::string_view provenance) {
    return to.add_node(region_record(), std::move(operands), region_attrs(group.body),
                       std::vector<bool>(group.outputs.size(), true), provenance);
  }

  void emit(Rewriter& rw, const Group& group) const {
    std::string provenance, parts;
    for (NodeId n : group.nodes) {
      parts += cat(parts.empty() ? "joined: " : " + ", g_[n].op->name());
      if (const AttrValue* kind = g_[n].attr("kind"))
        parts += cat(" ", std::get<std::string>(*kind));
      if (provenance.empty()) provenance = g_[n].provenance;
    }
    const NodeId made = add_region(rw.to, rw.map(group.inputs), group, provenance);
    rw.to.set_clone(made, g_[group.nodes[0]].clone);
    for (size_t k = 0; k < group.outputs.size(); ++k)
      rw.replace(group.outputs[k], rw.to[made].outputs[k]);
    rw.to.set_note(made, std::move(parts));
  }

  const Graph& g_;
  const Query& query_;
  std::vector<std::vector<NodeId>> readers_;  // by value, ascending
  std::vector<bool> leaves_;
  std::vector<bool> done_;  // in a region, or in one that was refused
  std::vector<std::string> notes_;
  std::unordered_set<NodeId> joined_;
  std::unordered_map<NodeId, Group> at_;  // by root
  std::unordered_map<std::string, Verdict> claims_;
};

}  // namespace

Graph join_regions(const Graph& graph, const Query& query) { return Joiner(graph, query).run(); }

}  // namespace tenon::core
