// SPDX-License-Identifier: Apache-2.0
// The reverse walk: calls the gradient rules of the records and adds up the gradients of each
// value.
#include "grad/grad.hpp"

#include <algorithm>

#include "grad/checkpoint.hpp"
#include "grad/functions.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

std::string node_text(const NodeInfo& node) { return node.op->text(node.provenance); }
std::string grad_provenance(const NodeInfo& node) {
  return cat("grad of ",
             node.provenance.empty() ? node.op->name() : std::string_view(node.provenance));
}

bool carries_gradient(DType t) { return is_float(t) || is_complex(t); }

Path find_path(const Graph& g, NodeId end, std::span<const Value> losses,
               std::span<const Value> from) {
  Path path{std::vector<bool>(g.value_count()), std::vector<bool>(end)};
  auto depends = [&](Value v) { return v && path.depends[v.id]; };
  for (Value v : from) path.depends[v.id] = true;
  for (NodeId n = 0; n < end; ++n) {
    if (!std::any_of(g[n].operands.begin(), g[n].operands.end(), depends)) continue;
    for (Value v : g[n].outputs)
      if (v && (carries_gradient(g.type(v).dtype) || g[n].op->traits & kStraightThrough))
        path.depends[v.id] = true;
  }
  auto mark = [&](Value v) {
    if (depends(v) && g[v].space == Space::node) path.nodes[g[v].node] = true;
  };
  std::for_each(losses.begin(), losses.end(), mark);
  for (NodeId n = end; n-- > 0;)
    if (path.nodes[n]) std::for_each(g[n].operands.begin(), g[n].operands.end(), mark);
  return path;
}

// By node: a loss depends on it in any way, integers included.
std::vector<bool> ancestors(const Graph& g, NodeId end, std::span<const Value> losses) {
  std::vector<bool> nodes(end);
  auto mark = [&](Value v) {
    if (v && g[v].space == Space::node) nodes[g[v].node] = true;
  };
  std::for_each(losses.begin(), losses.end(), mark);
  for (NodeId n = end; n-- > 0;)
    if (nodes[n]) std::for_each(g[n].operands.begin(), g[n].operands.end(), mark);
  return nodes;
}

// The reverse walk over one graph. Appends to it.
class Walk final : public Grad {
 public:
  Walk(Builder& builder, const Path& path, Recomputed& recomputed, const SavedTrips& saved)
      : Grad(builder),
        path_(path),
        recomputed_(recomputed),
        saved_(saved),
        gradients_(path.depends.size()) {}

  // Begins at the losses, with a gradient of each; absent: none comes from there.
  void run(std::span<const Value> losses, std::span<const Value> seeds) {
    for (size_t k = 0; k < losses.size(); ++k) {
      if (!seeds[k] || !path_.depends[losses[k].id]) continue;
      Value& sum = gradients_[losses[k].id];
      sum = sum ? b.plus(sum, seeds[k]) : seeds[k];
    }
    for (NodeId n = static_cast<NodeId>(path_.nodes.size()); n-- > 0;)
      if (path_.nodes[n]) visit_node(n);
  }
  // Absent if no reader gave a gradient.
  Value gradient(Value v) const { return v.id < gradients_.size() ? gradients_[v.id] : Value{}; }

  Value dy(size_t k) override {
    return k < node_.outputs.size() && node_.outputs[k] ? gradient(node_.outputs[k]) : Value{};
  }
  Value y(size_t k) override { return recomputed_.output(id_, static_cast<uint32_t>(k)); }
  bool wants(Value operand) const override {
    operand = recomputed_.original(operand);
    return operand && operand.id < path_.depends.size() && path_.depends[operand.id];
  }
  void give(Value operand, Value gradient) override {
    operand = recomputed_.original(operand);
    if (!gradient || !wants(operand)) return;
    const Type given = b.type(gradient), type = b.type(operand);
    const bool through = !carries_gradient(type.dtype);  // see kStraightThrough
    check(through ? is_float(given.dtype) && given.shape == type.shape : given == type,
          node_text(node_), ": its gradient rule gives ", given.text(), " for an operand of type ",
          type.text());
    Value& sum = gradients_[operand.id];
    if (through && sum) gradient = b.cast(gradient, b.dtype(sum));
    sum = sum ? b.plus(sum, gradient) : gradient;
  }
  void through_functions() override {
    const auto complex = [&](Value v) { return v && is_complex(b.dtype(v)); };
    if (std::ranges::any_of(node_.operands, complex) || std::ranges::any_of(node_.outputs, complex))
      refuse("xs", "it is complex; hint: pass its parts, by view_as_real");
    const Control control = control_of(b.graph, node_);
    switch (control.kind) {
      case Control::Kind::branch:
        return through_branch(*this, node_, control);
      case Control::Kind::trips:
        return through_trips(*this, control, saved_.at(id_));
      case Control::Kind::loop:
        refuse("carry", "the number of its trips has no bound; hint: give max_trip");
    }
  }
  [[noreturn]] void refuse(std::string_view operand, std::string_view why) override {
    fail(Code::unsupported, node_text(node_), ": no gradient for operand ", operand, ": ", why);
  }

 private:
  void visit_node(NodeId id) {
    const auto& outputs = b.graph[id].outputs;
    if (std::none_of(outputs.begin(), outputs.end(), [&](Value v) { return v && gradient(v); }))
      return;
    id_ = id;
    if (!b.graph[id].op->grad)
      fail(Code::unsupported, node_text(b.graph[id]), ": has no gradient",
           b.graph[id].op->traits & kNotDifferentiable ? "" : " and no decomposition");
    node_ = recomputed_.node(id);  // a copy, because the rule appends to the graph
    b.provenance = grad_provenance(node_);
    b.marks.device = node_.device, b.marks.pinned = node_.pinned;
    node_.op->grad(*this, b.graph, node_);
  }

  const Path& path_;
  Recomputed& recomputed_;
  const SavedTrips& saved_;
  std::vector<Value> gradients_;  // by value of the original graph
  NodeId id_ = kNone;
  NodeInfo node_;
};

// Fails if all paths from wrt to the loss pass through something without a gradient. If there is no
// path at all, the gradient is zero.
void refuse_cut_way(const Graph& g, NodeId end, std::span<const Value> losses, Value wrt) {
  const std::vector<bool> above = ancestors(g, end, losses);
  const Path path = find_path(g, end, losses, std::span(&wrt, 1));
  for (NodeId n = 0; n < end; ++n) {
    if (path.nodes[n]) return;  // there is a path, and its gradient is zero
  }
  auto depends = [&](Value v) { return v && path.depends[v.id]; };
  for (NodeId n = 0; n < end; ++n) {
    const NodeInfo& node = g[n];
    if (above[n] && std::any_of(node.operands.begin(), node.operands.end(), depends) &&
        std::none_of(node.outputs.begin(), node.outputs.end(), depends))
      fail(Code::unsupported, node_text(node), ": has no gradient, and the way from ",
           g[wrt].name.empty() ? "a wrt" : cat("wrt '", g[wrt].name, "'"),
           " to the loss leads through it");
  }
}

Graph expand(const Graph& graph, NodeId request, const SavedTrips& saved, ValueMap* map) {
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < request; ++n) rewriter.copy(n);
  const NodeInfo& node = graph[request];
  std::vector<Value> operands = rewriter.map(node.operands);
  const Value loss = operands[0];
  operands.erase(operands.begin());
  std::vector<bool> kept(rewriter.to.value_count());
  const std::vector<bool> kept_before = kept_values(graph);
  for (uint32_t v = 0; v < graph.value_count(); ++v)
    if (const Value now = rewriter.values()[Value{v}]; now && kept_before[v]) kept[now.id] = true;
  const NodeId end = rewriter.to.node_count();
  Builder b(rewriter.to, "grad of loss");
  b.marks.device = node.device;
  const Value seed = b.full(b.type(loss), 1);
  const std::vector<Value> gradients = walk_back(rewriter.to, end, {&loss, 1}, {&seed, 1}, operands,
                                                 std::move(kept), saved, Cut::is_refused);
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (node.outputs[k]) rewriter.replace(node.outputs[k], gradients[k]);
  for (NodeId n = request + 1; n < graph.node_count(); ++n) rewriter.copy(n);
  Graph out = rewriter.finish();
  *map = rewriter.values();
  return out;
}

bool needs_lowering(const NodeInfo& node) {
  const uint32_t traits = node.op->traits;
  return (!node.op->grad || traits & kGradOfDecomposition) && node.op->lower &&
         !(traits & kNotDifferentiable);
}

// Decomposes marked nodes without a gradient. Returns false if no node could be decomposed.
bool lower_marked(Graph& graph, const std::vector<bool>& marked, ValueMap* map) {
  Rewriter rewriter(graph);
  bool changed = false;
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    std::vector<Value> results;
    if (n < marked.size() && marked[n] && needs_lowering(graph[n])) {
      NodeInfo node = graph[n];
      node.operands = rewriter.map(node.operands);
      Builder b(rewriter.to, node.provenance);
      b.marks = node;
      if (!lower_into(b, node, results)) results.clear();
    }
    if (results.empty()) {
      rewriter.copy(n);
      continue;
    }
    changed = true;
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k] && graph[n].outputs[k]) rewriter.replace(graph[n].outputs[k], results[k]);
  }
  if (!changed) return false;
  graph = rewriter.finish();
  *map = map->then(rewriter.values());
  return true;
}

NodeId first_request(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n)
    if (graph[n].op == &grad_def) return n;
  return kNone;
}

Way way_of_request(const Graph& graph) {
  const NodeId request = first_request(graph);
  const auto& operands = graph[request].operands;
  return {request, {operands[0]}, {operands.begin() + 1, operands.end()}};
}

}  // namespace

std::vector<Value> walk_back(Graph& graph, NodeId end, std::span<const Value> losses,
                             std::span<const Value> seeds, std::span<const Value> wrt,
                             std::vector<bool> kept, const SavedTrips& saved, Cut cut) {
  const Path path = find_path(graph, end, losses, wrt);
  Builder b(graph);
  Recomputed recomputed(graph, std::move(kept), end);
  Walk walk(b, path, recomputed, saved);
  walk.run(losses, seeds);
  std::vector<Value> gradients;
  for (Value v : wrt) {
    Value gradient = walk.gradient(v);
    if (!gradient) {
      if (cut == Cut::is_refused) refuse_cut_way(graph, end, losses, v);
      b.provenance = cat("grad of ", graph[v].name);
      gradient = b.zeros(b.type(v));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

Path find_path(const Graph& graph, const Way& way) {
  return find_path(graph, way.end, way.losses, way.wrt);
}

// Repeats until every node on the path has a gradient or cannot get one.
void lower_way(Graph& graph, const FindWay& find, ValueMap* map) {
  // A registered op may be decomposed into itself, also several times over.
  constexpr int kMostRounds = 64;
  const uint64_t most_nodes = 64 * uint64_t{graph.node_count()} + (1 << 17);
  for (int round = 0;; ++round) {
    const Way way = find(graph);
    const std::vector<bool> nodes = find_path(graph, way).nodes;
    NodeId first = 0;
    while (first < way.end && !(nodes[first] && needs_lowering(graph[first]))) ++first;
    const bool any = first < way.end;
    if (any && (round == kMostRounds || graph.node_count() > most_nodes))
      fail(Code::invalid_argument, node_text(graph[first]),
           ": has no gradient, and its decomposition does not come to an end");
    if (!any || !lower_marked(graph, nodes, map)) return;
  }
}

Graph expand_grads(const Graph& from, ValueMap* map) {
  Graph graph = from;
  ValueMap total = ValueMap::identity(from.value_count());
  bool checkpointed = false;
  for (NodeId n = 0; n < from.node_count(); ++n) checkpointed |= from[n].recompute != 0;
  for (NodeId request; (request = first_request(graph)) != kNone;) {
    for (Value v : graph[request].operands)
      check(graph.type(v).dtype != TENON_DTYPE_NONE && graph.type(v).shape.numeric(),
            "grad: shapes are not bound yet");
    lower_way(graph, way_of_request, &total);
    ValueMap step;
    SavedTrips saved;
    graph = save_trips(graph, way_of_request(graph), &saved, &step);
    total = total.then(step);
    graph = expand(graph, first_request(graph), saved, &step);
    total = total.then(step);
  }
  if (checkpointed) {
    ValueMap step;
    graph = drop_dead_clones(graph, &step);
    total = total.then(step);
  }
  if (map) *map = std::move(total);
  return graph;
}

}  // namespace tenon::core
