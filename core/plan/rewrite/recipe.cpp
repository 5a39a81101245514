// SPDX-License-Identifier: Apache-2.0
// Decomposes nodes for a device, until it takes all parts.
#include "plan/rewrite/recipe.hpp"

#include <map>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/key.hpp"
#include "plan/rewrite/price.hpp"

namespace tenon::core {
namespace {

// The node's decomposition over stand-ins for its operands, in `alone.graph`; false for a
// primitive.
bool lower_alone(const Graph& g, const NodeInfo& node, Trial& alone, std::vector<Value>& results) {
  alone = trial_of(g, node.operands);
  NodeInfo mapped = node;
  mapped.operands = alone.operands;
  results.assign(node.outputs.size(), {});
  Builder b(alone.graph, node.provenance);
  Lower lower(b, mapped, results);
  return node.op->lower(lower, alone.graph, mapped);
}

bool can_lower(const Graph& g, const NodeInfo& node) {
  if (!node.op->lower || node.op->traits & kGradOfDecomposition) return false;
  Trial scratch;
  std::vector<Value> results;
  return lower_alone(g, node, scratch, results);
}

}  // namespace

void add_seconds(std::optional<double>& sum, std::optional<double> part) {
  if (sum && part)
    *sum += *part;
  else
    sum.reset();
}

std::optional<double> said_by(const Verdict& v) {
  return v.cost > 0 ? std::optional(v.cost) : std::nullopt;
}

std::vector<Verdict> Recipes::verdicts(const Graph& g, uint32_t d) const {
  std::vector<Verdict> verdicts = query_(g, d);
  for (NodeId n = 0; n < g.node_count(); ++n) {
    Verdict& v = verdicts[n];
    if (v.native && decompose_all_ && can_lower(g, g[n]))
      v.native = false, v.text = "decomposition was asked for";
  }
  settle_verdicts(verdicts);
  return verdicts;
}

std::optional<double> Recipes::price(const Graph& g, const NodeInfo& node, const Verdict& v,
                                     uint32_t d) const {
  if (v.cost > 0) return v.cost;
  if (d < rates_.size()) return price_of(g, node, rates_[d]);
  return {};
}

const Recipe& Recipes::of(const Graph& g, const NodeInfo& node, uint32_t d) {
  std::string key = form_key(g, node);
  append_key(key, d);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  // A registered op may be decomposed into itself.
  constexpr int kDeepest = 64;
  if (depth_ == kDeepest)
    fail(Code::invalid_argument, node.op->name(),
         ": its decomposition does not come to an end: ", kDeepest,
         " decompositions lie inside each other");
  ++depth_;
  Recipe recipe = make(g, node, d);
  --depth_;
  return known_.emplace(key, std::move(recipe)).first->second;
}

Recipe Recipes::make(const Graph& g, const NodeInfo& node, uint32_t d) {
  Recipe out;
  if (node.op->traits & kGradOfDecomposition) return out;
  if (!node.op->lower) {
    out.why = node.op->primitive() ? "" : "the op has no decomposition";
    return out;
  }
  Trial alone;
  std::vector<Value> results;
  if (!lower_alone(g, node, alone, results)) return out;
  Graph& lowered = alone.graph;
  for (size_t k = 0; k < results.size(); ++k)
    if (node.outputs[k]) {
      check(static_cast<bool>(results[k]), node.op->name(), ": its decomposition leaves output ", k,
            " out");
      // A result that is an operand itself gets a node: what leaves a graph is made in it.
      if (lowered[results[k]].space != Space::node)
        results[k] = Builder(lowered, node.provenance).copy(results[k]);
      check(lowered.type(results[k]) == g.type(node.outputs[k]), node.op->name(),
            ": its decomposition gives ", lowered.type(results[k]).text(), " for output ", k,
            " of type ", g.type(node.outputs[k]).text());
      lowered.output(std::to_string(k), results[k]);
    }
  // The decomposition's own nodes: native, or decomposed in turn.
  const std::vector<Verdict> said = verdicts(lowered, d);
  out.said = out.priced = 0;
  Rewriter rw(lowered);
  for (Value v : alone.operands) out.operands.push_back(v ? rw.map(v) : Value{});
  for (NodeId n = 0; n < lowered.node_count(); ++n) {
    const NodeInfo& part = lowered[n];
    if (said[n].native) {
      Marks marks = part;
      marks.group = said[n].group;
      marks.hosted = said[n].hosted;
      rw.to.set_marks(rw.copy(n), marks);
      add_seconds(out.said, said_by(said[n]));
      add_seconds(out.priced, price(lowered, part, said[n], d));
      continue;
    }
    const Recipe& inner = of(lowered, part, d);
    if (!inner.legal) {
      out.why = cat("its decomposition needs ", part.op->name(), ": ", said[n].text,
                    inner.why.empty() ? "" : ", " + inner.why);
      return out;
    }
    add_seconds(out.said, inner.said);
    add_seconds(out.priced, inner.priced);
    std::vector<Value> operands;
    for (Value v : part.operands) operands.push_back(v ? rw.map(v) : Value{});
    const std::vector<Value> inlined = write(inner, operands, rw.to, part, part);
    for (size_t k = 0; k < part.outputs.size(); ++k)
      if (part.outputs[k]) rw.replace(part.outputs[k], inlined[k]);
  }
  out.graph = rw.finish();
  out.legal = true;
  return out;
}

std::vector<Value> Recipes::write(const Recipe& recipe, const std::vector<Value>& operands,
                                  Graph& to, const NodeInfo& node, Marks marks) {
  const Graph& graph = recipe.graph;
  std::vector<Value> map(graph.value_count());
  for (size_t k = 0; k < operands.size(); ++k)
    if (operands[k]) map[recipe.operands[k].id] = operands[k];
  const auto mapped = [&](Value v) -> Value {
    if (!v) return {};
    Value& m = map[v.id];
    // What is neither an operand nor made is constant.
    if (!m) m = to.constant(graph.type(v), graph[v].data);
    return m;
  };
  std::map<uint32_t, uint32_t> groups;
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& part = graph[n];
    std::vector<Value> part_operands;
    for (Value v : part.operands) part_operands.push_back(mapped(v));
    const NodeId made = to.add_node(*part.op, {std::move(part_operands), part.lists}, part.attrs,
                                    wanted_outputs(part), node.provenance);
    marks.group = kNone;
    marks.hosted = part.hosted;
    if (part.group != kNone) {
      const auto [at, fresh] = groups.try_emplace(part.group, next_group_);
      next_group_ += fresh;
      marks.group = at->second;
    }
    to.set_marks(made, marks);
    for (size_t k = 0; k < part.outputs.size(); ++k)
      if (part.outputs[k]) map[part.outputs[k].id] = to[made].outputs[k];
  }
  std::vector<Value> results(node.outputs.size());
  for (const Output& o : graph.outputs()) results[std::stoul(o.name)] = mapped(o.value);
  return results;
}

}  // namespace tenon::core
