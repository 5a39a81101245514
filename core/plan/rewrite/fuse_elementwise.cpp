// SPDX-License-Identifier: Apache-2.0
// Grows groups of elementwise nodes, merges neighbouring groups, and writes the bodies.
#include "plan/rewrite/fuse_elementwise.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "ir/rewrite.hpp"
#include "ops/fused.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/fuse_dequantized.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

// Nodes that become one node. The last is the root; the new node takes its position.
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
        alone_(graph.node_count()),
        notes_(graph.node_count()),
        root_of_(graph.node_count()),
        claims_(query) {
    std::iota(root_of_.begin(), root_of_.end(), 0u);
  }

  Graph run() && {
    for (NodeId n = g_.node_count(); n-- > 0;)
      if (is_step(n) || is_reduction(n)) try_root(n);
    for (NodeId n = g_.node_count(); n-- > 0;) join_near(n);
    Rewriter rw(g_);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (const auto found = at_.find(n); found != at_.end()) {
        emit(rw, found->second);
      } else if (root_of_[n] == n) {
        const NodeId now = rw.copy(n);
        add_note(rw.to, now, notes_[n]);
      }
    }
    return rw.finish();
  }

 private:
  bool has_one_output(NodeId n) const { return g_[n].outputs.size() == 1 && g_[n].outputs[0]; }
  bool is_step(NodeId n) const {
    return can_be_step(g_, g_[n]) && !(g_[n].op->traits & kOrdered) && g_[n].group == kNone &&
           has_one_output(n);
  }
  bool is_reduction(NodeId n) const {
    return (g_[n].op->traits & kReduction) && g_[n].group == kNone && has_one_output(n) &&
           maker(g_[n].operands[0]) != kNone;
  }
  NodeId maker(Value v) const { return maker_of(g_, v); }

  void try_root(NodeId root) {
    while (!done_[root] && !alone_[root]) {
      Group group = grown(root);
      if (group.nodes.size() < 2) return;
      group.steps = steps_of(g_, group.nodes, group.outputs);
      const std::string why = why_not(group);
      if (why.empty()) return take(root, std::move(group));
      const std::string note = cat("not joined into ", fused_record().name(), ": ", why);
      // The remaining nodes may be accepted without the refused steps.
      if (drop_refused_steps(group)) {
        if (notes_[root].empty()) notes_[root] = note;
        continue;
      }
      notes_[root] = note;
      // The group may be accepted without its reduction. Other subsets are not tried.
      if (is_reduction(root)) return;
      for (NodeId n : group.nodes) done_[n] = true;
    }
  }

  void take(NodeId root, Group group) {
    for (NodeId n : group.nodes) {
      done_[n] = true;
      root_of_[n] = root;
    }
    notes_[root].clear();
    at_.insert_or_assign(root, std::move(group));
  }

  // Asks the device. Returns the reason why the group does not become one node, or an empty text.
  std::string why_not(const Group& group) {
    const Verdict& verdict =
        claims_.of(g_, fused_record(), group.steps.inputs, fused_attrs(group.steps.body),
                   std::vector<bool>(group.outputs.size(), true), g_[group.nodes[0]].device);
    return claims_.why_not(verdict, g_, group.nodes);
  }

  Group one_step(NodeId n) const {
    const std::vector<Value>& outputs = g_[n].outputs;
    return {.nodes = {n}, .outputs = outputs, .steps = steps_of(g_, std::span(&n, 1), outputs)};
  }

  // Marks steps that the device refuses even in a body of one step. Returns false if there are
  // none.
  bool drop_refused_steps(const Group& group) {
    bool any = false;
    for (NodeId n : group.nodes) {
      if (!is_step(n)) continue;
      if (why_not(one_step(n)).empty()) continue;
      any = alone_[n] = true;
    }
    return any;
  }

  // Producers are visited from last to first. So when a producer is visited, every reader that can
  // be in the group is in it already. A producer with a reader outside, before the root, stays
  // outside: the group would have to run both before and after that reader.
  Group grown(NodeId root) const {
    Group group;
    const Shape& d = g_.type(is_step(root) ? g_[root].outputs[0] : g_[root].operands[0]).shape;
    std::unordered_map<uint32_t, size_t> inside;  // value -> reads by the group
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
      if (done_[n] || alone_[n] || !is_step(n) || g_[n].clone != g_[root].clone ||
          g_[n].device != g_[root].device)
        continue;
      const Value v = g_[n].outputs[0];
      if (g_.type(v).shape != d) continue;
      const auto readers = readers_.of(v);
      const auto before = std::upper_bound(readers.begin(), readers.end(), root) - readers.begin();
      if (static_cast<size_t>(before) != inside[v.id]) continue;
      const bool leaves = readers_.leaves(v) || static_cast<size_t>(before) != readers.size();
      if (leaves && group.outputs.size() == kFusedOutputs) continue;
      size_t more = 0;
      for (Value o : g_[n].operands) more += o && !is_number(g_, o) && !inputs.contains(o.id);
      if (inputs.size() - 1 + more > kFusedInputs ||
          steps + step_count(g_[n].op, g_.type(v)) > kFusedSteps)
        continue;
      inputs.erase(v.id);
      if (leaves) group.outputs.push_back(v);
      take(n);
    }
    std::reverse(group.nodes.begin(), group.nodes.end());
    return group;
  }

  // ---- merges

  // Merges the group of this root with groups nearby that share an operand with it, or feed it: the
  // shared value is then read once. The merged group takes the position of one of the two.
  void join_near(NodeId root) {
    if (root_of_[root] != root) return;
    std::optional<Group> group = group_at(root);
    std::unordered_set<NodeId> tried = {root};
    while (group) {
      std::optional<Merger> merger;
      for (const NodeId other : neighbours(*group, root)) {
        if (!tried.insert(other).second) continue;
        merger = merger_of(root, *group, other);
        if (merger) break;
      }
      if (!merger) return;
      at_.erase(root), at_.erase(merger->other);
      take(merger->place, merger->group);
      if (merger->place != root) return;  // visited later
      group = std::move(merger->group);
    }
  }

  // The group of a root, or a single step that is in no group.
  std::optional<Group> group_at(NodeId root) const {
    if (const auto found = at_.find(root); found != at_.end()) return found->second;
    if (done_[root] || alone_[root] || !is_step(root)) return {};
    return one_step(root);
  }
  const Shape& shape_of(NodeId root) const {
    return g_.type(is_step(root) ? g_[root].outputs[0] : g_[root].operands[0]).shape;
  }

  // Roots before this one whose groups read or produce a full-size operand of this group.
  std::vector<NodeId> neighbours(const Group& group, NodeId root) const {
    constexpr int kNear = 8;  // readers of a value that are considered
    std::vector<NodeId> roots;
    const auto add = [&](NodeId n) {
      if (root_of_[n] < root) roots.push_back(root_of_[n]);
    };
    for (Value v : group.steps.inputs) {
      if (g_.type(v).shape != shape_of(root)) continue;
      if (maker(v) != kNone) add(maker(v));
      const auto readers = readers_.of(v);
      auto at = std::lower_bound(readers.begin(), readers.end(), root);
      for (int k = 0; k < kNear && at != readers.begin(); ++k) add(*--at);
    }
    return roots;
  }

  struct Merger {
    Group group;
    NodeId place, other;
  };
  std::optional<Merger> merger_of(NodeId root, const Group& later, NodeId other) {
    const std::optional<Group> earlier = group_at(other);
    if (!earlier || g_[other].clone != g_[root].clone || g_[other].device != g_[root].device ||
        shape_of(other) != shape_of(root) || steps_in(later) + steps_in(*earlier) > kFusedSteps ||
        (reduction_in(later) != kNone && reduction_in(*earlier) != kNone))
      return {};
    const uint64_t saved = bytes_of_both(later, *earlier);
    const bool sinks = read_behind(*earlier, root) && bytes_of_one(*earlier, later) <= saved;
    if (!sinks && !(made_before(later, *earlier, other) && bytes_of(later.outputs) <= saved))
      return {};
    Merger m{.group = later, .place = sinks ? root : other, .other = other};
    m.group.nodes.insert(m.group.nodes.end(), earlier->nodes.begin(), earlier->nodes.end());
    std::ranges::sort(m.group.nodes, {},  // the reduction, if any, comes last
                      [&](NodeId n) { return std::pair(!is_step(n), n); });
    for (Value v : earlier->outputs)
      if (readers_.leaves(v) || !read_in(v, {root, other})) m.group.outputs.push_back(v);
    if (m.group.outputs.size() > kFusedOutputs) return {};
    m.group.steps = steps_of(g_, m.group.nodes, m.group.outputs);
    // A half that passed from one group to the other now needs a rounding step.
    if (m.group.steps.inputs.size() > kFusedInputs || steps_in(m.group) > kFusedSteps ||
        !why_not(m.group).empty())
      return {};
    return m;
  }

  static size_t steps_in(const Group& group) { return group.steps.body->node_count(); }

  NodeId reduction_in(const Group& group) const {
    return is_step(group.nodes.back()) ? kNone : group.nodes.back();
  }

  // True if all readers of the group's outputs come after this root.
  bool read_behind(const Group& group, NodeId root) const {
    return std::ranges::all_of(group.outputs, [&](Value v) {
      return std::ranges::all_of(readers_.of(v), [&](NodeId r) { return root_of_[r] > root; });
    });
  }
  // True if all operands of the group are available before this root, apart from those that steps
  // of `earlier` produce.
  bool made_before(const Group& group, const Group& earlier, NodeId root) const {
    return std::ranges::all_of(group.steps.inputs, [&](Value v) {
      const NodeId m = maker(v);
      return m == kNone || root_of_[m] < root ||
             (root_of_[m] == root && m != reduction_in(earlier));
    });
  }
  bool read_in(Value v, std::initializer_list<NodeId> roots) const {
    return std::ranges::all_of(readers_.of(v), [&](NodeId r) {
      return std::find(roots.begin(), roots.end(), root_of_[r]) != roots.end();
    });
  }

  // Bytes that the two groups access separately and a merged group accesses once.
  uint64_t bytes_of_both(const Group& later, const Group& earlier) const {
    uint64_t bytes = 0;
    for (Value v : later.steps.inputs)
      if (std::ranges::count(earlier.steps.inputs, v) || std::ranges::count(earlier.outputs, v))
        bytes += type_bytes(g_.type(v));
    return bytes;
  }
  // Bytes that only `one` reads.
  uint64_t bytes_of_one(const Group& one, const Group& other) const {
    uint64_t bytes = 0;
    for (Value v : one.steps.inputs)
      if (!std::ranges::count(other.steps.inputs, v)) bytes += type_bytes(g_.type(v));
    return bytes;
  }
  uint64_t bytes_of(std::span<const Value> values) const {
    uint64_t bytes = 0;
    for (Value v : values) bytes += type_bytes(g_.type(v));
    return bytes;
  }

  void emit(Rewriter& rw, const Group& group) const {
    const Parts parts = parts_of(g_, group.nodes);
    const NodeId made =
        rw.to.add_node(fused_record(), rw.map(group.steps.inputs), fused_attrs(group.steps.body),
                       std::vector<bool>(group.outputs.size(), true), parts.provenance);
    rw.to.set_marks(made, marks_of(g_, group.nodes));
    for (size_t k = 0; k < group.outputs.size(); ++k)
      rw.replace(group.outputs[k], rw.to[made].outputs[k]);
    rw.to.set_note(made, joined_note(g_, group.nodes, cat("joined: ", parts.names)));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> done_;   // in a group, or in a refused one
  std::vector<bool> alone_;  // steps that the device refuses in every body
  std::vector<std::string> notes_;
  std::vector<NodeId> root_of_;           // by node: the root of its group, or itself
  std::unordered_map<NodeId, Group> at_;  // by root
  Claims claims_;
};

}  // namespace

Graph fuse_elementwise(const Graph& graph, const Query& query) {
  const Graph repeated = repeat_dequantize(graph, query);
  return Joiner(repeated, query).run();
}

}  // namespace tenon::core
