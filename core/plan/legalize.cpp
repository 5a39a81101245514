// SPDX-License-Identifier: Apache-2.0
// Finds a place for each node: native, decomposed, on the fallback device, or refused.
#include "plan/legalize.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ops/cost.hpp"
#include "ops/record.hpp"
#include "plan/key.hpp"
#include "plan/price.hpp"

namespace tenon::core {
namespace {

// A node written in ops that its device takes: inputs "0", "1", ... (present operands by position),
// outputs likewise.
struct Recipe {
  bool legal = false;
  std::string why;  // when not legal: what no device op could be found for
  Graph graph;
};

class Legalizer {
 public:
  Legalizer(const Graph& from, const LegalizeOptions& options, const Query& query)
      : from_(from), options_(options), query_(query), rewriter_(from) {}

  LegalGraph run() {
    const std::vector<Verdict> first = query_(from_, 0);
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      const auto why_not = try_device(n, 0, first[n]);
      if (!why_not || try_fallback(n, *why_not)) continue;
      refused_ += cat(refused_.empty() ? "" : "; ", report(n).op, " '", report(n).name,
                      "': ", report(n).reason);
      if (++refused_count_ == 10) break;
    }
    if (refused_count_) fail(Code::unsupported, "no device takes ", refused_);
    out_.graph = rewriter_.finish();
    return std::move(out_);
  }

 private:
  NodeReport& report(NodeId n) {
    if (out_.reports.size() <= n) {
      const NodeInfo& node = from_[n];
      std::string name = node.provenance;
      for (Value v : node.outputs)
        if (name.empty() && v) name = from_[v].name.empty() ? cat("%", v.id) : from_[v].name;
      out_.reports.push_back({.name = std::move(name),
                              .provenance = node.provenance,
                              .op = std::string(node.op->name()),
                              .reason = {},
                              .note = node.note,
                              .flops = product_flops(from_, node)});
    }
    return out_.reports[n];
  }

  // Nothing when device d takes the node; else why not, or why another device is preferred. A plugin
  // may give an empty reason.
  std::optional<std::string> try_device(NodeId n, uint32_t d, const Verdict& verdict) {
    const NodeInfo& node = from_[n];
    NodeReport& r = report(n);
    const bool whole = verdict.native && !(options_.decompose_all && can_lower(from_, node));
    if (whole) {
      if (!refused_count_) rewriter_.copy(n);
      assign(n, d);
      return std::nullopt;
    }
    const std::string reason = verdict.native ? "decomposition was asked for" : verdict.text;
    const Recipe& recipe = recipe_for(from_, node, d);
    if (!recipe.legal) return recipe.why.empty() ? reason : cat(reason, " (", recipe.why, ")");
    if (d == 0 && !verdict.native)
      if (const auto cheaper = cheaper_elsewhere(n, recipe.graph))
        return cat(reason, "; ", *cheaper);
    if (!refused_count_) {  // after a refusal the rest is only asked, for the message
      std::vector<Value> operands;
      for (Value v : node.operands) operands.push_back(v ? rewriter_.map(v) : Value{});
      const std::vector<Value> results = inline_recipe(recipe.graph, operands, rewriter_.to, node);
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k]) rewriter_.replace(node.outputs[k], results[k]);
    }
    assign(n, d);
    r.verdict = NodeVerdict::decomposed;
    r.reason = reason;
    return std::nullopt;
  }

  // Why the decomposition on device 0 is dearer than carrying everything to device 1 and back;
  // nothing when it is not, or when that is unknown.
  std::optional<std::string> cheaper_elsewhere(NodeId n, const Graph& recipe) {
    if (options_.rates.size() < 2 || options_.devices < 2) return std::nullopt;
    const Rates &here = options_.rates[0], &there = options_.rates[1];
    double stays = 0;
    for (NodeId k = 0; k < recipe.node_count(); ++k) stays += price_of(recipe, recipe[k], here);
    double goes = 0;
    for (Value v : from_[n].operands)
      if (v) goes += price_of_transfer(type_bytes(from_.type(v)), here, there);
    for (Value v : from_[n].outputs)
      if (v) goes += price_of_transfer(type_bytes(from_.type(v)), there, here);
    if (goes >= stays) return std::nullopt;
    if (second_.empty()) second_ = query_(from_, 1);
    if (second_[n].native) {
      goes += price_of(from_, from_[n], there);
    } else {
      const Recipe& other = recipe_for(from_, from_[n], 1);
      if (!other.legal) return std::nullopt;
      for (NodeId k = 0; k < other.graph.node_count(); ++k)
        goes += price_of(other.graph, other.graph[k], there);
    }
    if (goes >= stays) return std::nullopt;
    return cat("decomposed on the wanted device it would take ", microseconds(stays),
               ", on the other ", microseconds(goes));
  }
  static std::string microseconds(double seconds) {
    return cat(std::round(seconds * 1e7) / 10, " us");
  }

  bool try_fallback(NodeId n, const std::string& why) {
    NodeReport& r = report(n);
    r.verdict = NodeVerdict::refused;
    r.reason = why;
    if (options_.devices < 2) return false;
    if (second_.empty()) second_ = query_(from_, 1);
    if (const auto second_why = try_device(n, 1, second_[n])) {
      report(n).reason = cat(why, "; on the second device: ", *second_why);
      return false;
    }
    report(n).verdict = NodeVerdict::fallback;
    report(n).reason = why;
    return true;
  }

  // The new nodes since the last call belong to source node n and device d.
  void assign(NodeId n, uint32_t d) {
    out_.device.resize(rewriter_.to.node_count(), d);
    out_.report_of.resize(rewriter_.to.node_count(), n);
    report(n).device = d;
  }

  static bool can_lower(const Graph& g, const NodeInfo& node) {
    if (!node.op->lower) return false;
    Graph scratch;
    std::vector<Value> results;
    return lower_alone(g, node, scratch, results);
  }

  // A graph of the node's decomposition over inputs of the operands' types; false for a primitive.
  static bool lower_alone(const Graph& g, const NodeInfo& node, Graph& alone,
                          std::vector<Value>& results) {
    NodeInfo mapped = node;
    for (size_t k = 0; k < node.operands.size(); ++k)
      if (node.operands[k])
        mapped.operands[k] = alone.input(std::to_string(k), g.type(node.operands[k]));
    results.assign(node.outputs.size(), {});
    Builder b(alone, node.provenance);
    Lower lower(b, mapped, results);
    return node.op->lower(lower, alone, mapped);
  }

  const Recipe& recipe_for(const Graph& g, const NodeInfo& node, uint32_t d) {
    std::string key = form_key(g, node);
    append_key(key, d);
    if (const auto found = recipes_.find(key); found != recipes_.end()) return found->second;
    Recipe recipe = make_recipe(g, node, d);
    return recipes_.emplace(key, std::move(recipe)).first->second;
  }

  Recipe make_recipe(const Graph& g, const NodeInfo& node, uint32_t d) {
    Recipe out;
    if (!node.op->lower) {
      out.why = node.op->primitive() ? "" : "the op has no decomposition";
      return out;
    }
    Graph lowered;
    std::vector<Value> results;
    if (!lower_alone(g, node, lowered, results)) return out;
    for (size_t k = 0; k < results.size(); ++k)
      if (node.outputs[k]) {
        check(static_cast<bool>(results[k]), node.op->name(), ": its decomposition leaves output ",
              k, " out");
        // A result that is an operand itself gets a node: what leaves a graph is made in it.
        if (lowered[results[k]].space != Space::node)
          results[k] = Builder(lowered, node.provenance).copy(results[k]);
        check(lowered.type(results[k]) == g.type(node.outputs[k]), node.op->name(),
              ": its decomposition gives ", lowered.type(results[k]).text(), " for output ", k,
              " of type ", g.type(node.outputs[k]).text());
        lowered.output(std::to_string(k), results[k]);
      }
    // The decomposition's own nodes: native, or decomposed in turn.
    const std::vector<Verdict> verdicts = query_(lowered, d);
    Rewriter rw(lowered);
    for (NodeId n = 0; n < lowered.node_count(); ++n) {
      const NodeInfo& part = lowered[n];
      if (verdicts[n].native && !(options_.decompose_all && can_lower(lowered, part))) {
        rw.copy(n);
        continue;
      }
      const Recipe& inner = recipe_for(lowered, part, d);
      if (!inner.legal) {
        out.why = cat("its decomposition needs ", part.op->name(), ": ", verdicts[n].text,
                      inner.why.empty() ? "" : ", " + inner.why);
        return out;
      }
      std::vector<Value> operands;
      for (Value v : part.operands) operands.push_back(v ? rw.map(v) : Value{});
      const std::vector<Value> inlined = inline_recipe(inner.graph, operands, rw.to, part);
      for (size_t k = 0; k < part.outputs.size(); ++k)
        if (part.outputs[k]) rw.replace(part.outputs[k], inlined[k]);
    }
    out.graph = rw.finish();
    out.legal = true;
    return out;
  }

  // Copies a recipe's nodes into `to`; operands and results by position.
  static std::vector<Value> inline_recipe(const Graph& recipe, const std::vector<Value>& operands,
                                          Graph& to, const NodeInfo& node) {
    std::vector<Value> map(recipe.value_count());
    for (Value v : recipe.inputs()) map[v.id] = operands[std::stoul(recipe[v].name)];
    const auto mapped = [&](Value v) -> Value {
      if (!v) return {};
      Value& m = map[v.id];
      if (!m)
        m = to.constant(recipe.type(v),
                        recipe[v].data);  // what is neither input nor made is constant
      return m;
    };
    for (NodeId n = 0; n < recipe.node_count(); ++n) {
      const NodeInfo& part = recipe[n];
      std::vector<Value> part_operands;
      for (Value v : part.operands) part_operands.push_back(mapped(v));
      const NodeId made = to.add_node(*part.op, std::move(part_operands), part.attrs,
                                      wanted_outputs(part), node.provenance);
      to.set_clone(made, node.clone);
      for (size_t k = 0; k < part.outputs.size(); ++k)
        if (part.outputs[k]) map[part.outputs[k].id] = to[made].outputs[k];
    }
    std::vector<Value> results(node.outputs.size());
    for (const Output& o : recipe.outputs()) results[std::stoul(o.name)] = mapped(o.value);
    return results;
  }

  const Graph& from_;
  const LegalizeOptions& options_;
  const Query& query_;
  Rewriter rewriter_;
  LegalGraph out_;
  std::vector<Verdict> second_;
  std::unordered_map<std::string, Recipe> recipes_;
  std::string refused_;
  int refused_count_ = 0;
};

}  // namespace

std::string_view verdict_name(NodeVerdict v) {
  constexpr std::string_view names[] = {"native", "decomposed", "fallback", "refused"};
  return names[static_cast<size_t>(v)];
}

LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query) {
  return Legalizer(from, options, query).run();
}

}  // namespace tenon::core
