// SPDX-License-Identifier: Apache-2.0
// Finds a place for each node: native, decomposed, on another device, or refused.
#include "plan/rewrite/legalize.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/price.hpp"
#include "plan/rewrite/recipe.hpp"

namespace tenon::core {
namespace {

class Legalizer {
 public:
  Legalizer(const Graph& from, const LegalizeOptions& options, const Query& query)
      : from_(from),
        options_(options),
        recipes_(query, options.decompose_all, options.rates),
        rewriter_(from),
        answers_(options.devices) {}

  LegalGraph run() {
    wanted_ = wanted_verdicts();
    if (!options_.decompose_all) weigh_claims();
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      const Taken taken = try_device(n, wanted(n), wanted_[n]);
      if (taken.yes || try_fallback(n, taken.why)) continue;
      refused_ += cat(refused_.empty() ? "" : "; ", report(n).op, " '", report(n).name,
                      "': ", report(n).reason);
      if (++refused_count_ == 10) break;
    }
    if (refused_count_) fail(Code::unsupported, "no device takes ", refused_);
    out_.graph = rewriter_.finish();
    return std::move(out_);
  }

 private:
  // Was a node taken; if not, why, or why another device is to be preferred.
  struct Taken {
    bool yes = false;
    std::string why{};
  };

  // ---- what devices say

  uint32_t wanted(NodeId n) const { return from_[n].device; }
  // Groups have numbers of their own in the legal graph.
  const std::vector<Verdict>& answers(uint32_t d) {
    std::vector<Verdict>& known = answers_[d];
    if (!known.empty()) return known;
    known = recipes_.verdicts(from_, d);
    for (Verdict& v : known)
      if (v.group != TENON_NONE) v.group = group_of(d, v.group);
    return known;
  }
  const Verdict& answer(NodeId n, uint32_t d) { return answers(d)[n]; }
  // The answer of each node's wanted device. A group that has a node of another device counts as
  // refused.
  std::vector<Verdict> wanted_verdicts() {
    std::vector<Verdict> out(from_.node_count());
    for (uint32_t d = 0; d < options_.devices; ++d) {
      std::vector<NodeId> here;
      for (NodeId n = 0; n < from_.node_count(); ++n)
        if (wanted(n) == d) here.push_back(n);
      if (here.empty()) continue;
      std::vector<Verdict> verdicts = answers(d);
      for (NodeId n = 0; n < from_.node_count(); ++n)
        if (wanted(n) != d) verdicts[n].native = false;
      settle_verdicts(verdicts);
      for (NodeId n : here) out[n] = std::move(verdicts[n]);
    }
    return out;
  }

  // ---- costs

  // Seconds that carrying everything from the wanted device to another one and back takes.
  std::optional<double> carrying(NodeId n, uint32_t d) const {
    if (options_.rates.size() < options_.devices) return {};
    const Rates &here = options_.rates[wanted(n)], &there = options_.rates[d];
    double seconds = 0;
    for (Value v : from_[n].operands)
      if (v) seconds += price_of_transfer(type_bytes(from_.type(v)), here, there);
    for (Value v : from_[n].outputs)
      if (v) seconds += price_of_transfer(type_bytes(from_.type(v)), there, here);
    return seconds;
  }

  // Of a node on another device than the wanted one, with the way there and back.
  std::optional<double> price_there(NodeId n, uint32_t d) {
    std::optional<double> goes = carrying(n, d);
    if (!goes) return {};
    if (const Verdict& v = answer(n, d); v.native) {
      add_seconds(goes, recipes_.price(from_, from_[n], v, d));
    } else {
      const Recipe& recipe = recipes_.of(from_, from_[n], d);
      add_seconds(goes, recipe.legal ? recipe.priced : std::nullopt);
    }
    return goes;
  }

  // What else a claimed node could cost, told by devices alone: an estimate from rates is too rough
  // to overrule a claim.
  std::optional<double> otherwise(NodeId n) {
    std::optional<double> best;
    const auto offer = [&](std::optional<double> seconds) {
      if (seconds && (!best || *seconds < *best)) best = seconds;
    };
    if (const Recipe& recipe = recipes_.of(from_, from_[n], wanted(n)); recipe.legal)
      offer(recipe.said);
    if (from_[n].pinned) return best;
    for (uint32_t d = 0; d < options_.devices; ++d) {
      if (d == wanted(n)) continue;
      std::optional<double> there = carrying(n, d);
      if (!there) continue;
      add_seconds(there, answer(n, d).native ? said_by(answer(n, d)) : std::nullopt);
      offer(there);
    }
    return best;
  }

  // Claims that cost more than what else there is count as refused; a group costs what its nodes
  // do.
  void weigh_claims() {
    std::map<uint32_t, std::vector<NodeId>> groups;
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      if (!wanted_[n].native || wanted_[n].cost == 0) continue;
      if (wanted_[n].group == TENON_NONE)
        weigh(std::span(&n, 1));
      else
        groups[wanted_[n].group].push_back(n);
    }
    for (const auto& [group, nodes] : groups) weigh(nodes);
  }
  void weigh(std::span<const NodeId> nodes) {
    double claimed = 0;
    std::optional<double> other = 0;
    for (NodeId n : nodes) {
      claimed += wanted_[n].cost;
      add_seconds(other, otherwise(n));
    }
    if (!other || !costs_less(*other, claimed)) return;
    for (NodeId n : nodes) {
      wanted_[n].native = false;
      wanted_[n].text =
          cat("the device would take ", microseconds(claimed), " for it",
              nodes.size() > 1 ? " and its group" : "", ", otherwise it is ", microseconds(*other));
    }
    // A node that gave no cost leaves its group with the others.
    settle_verdicts(wanted_);
  }

  // Why the decomposition on the wanted device costs more than another device, the way there and
  // back included; empty when it does not, or that is not known.
  std::string cheaper_elsewhere(NodeId n, const Recipe& recipe) {
    if (from_[n].pinned || !recipe.priced) return {};
    std::optional<double> best;
    uint32_t there = 0;
    for (uint32_t d = 0; d < options_.devices; ++d) {
      if (d == wanted(n)) continue;
      // Where the way alone costs more, nobody is asked.
      if (const auto way = carrying(n, d); !way || *way >= *recipe.priced) continue;
      const std::optional<double> goes = price_there(n, d);
      if (goes && *goes < *recipe.priced && (!best || *goes < *best)) best = goes, there = d;
    }
    if (!best) return {};
    return cat("decomposed on the wanted device it would take ", microseconds(*recipe.priced),
               ", on ", device_name(there), " ", microseconds(*best));
  }

  // ---- nodes

  NodeReport& report(NodeId n) {
    if (out_.reports.size() <= n) out_.reports.push_back(report_of(from_, from_[n]));
    return out_.reports[n];
  }

  Taken try_device(NodeId n, uint32_t d, const Verdict& verdict) {
    const NodeInfo& node = from_[n];
    NodeReport& r = report(n);
    Marks marks = node;
    marks.device = d, marks.source = n, marks.group = kNone, marks.hosted = false;
    if (verdict.native) {
      r.device = d;
      if (refused_count_) return {true};
      const NodeId now = rewriter_.copy(n);
      if (verdict.group != TENON_NONE) marks.group = verdict.group;
      marks.hosted = verdict.hosted;
      rewriter_.to.set_marks(now, marks);
      return {true};
    }
    const Recipe& recipe = recipes_.of(from_, node, d);
    if (!recipe.legal)
      return {false, recipe.why.empty() ? verdict.text : cat(verdict.text, " (", recipe.why, ")")};
    if (d == wanted(n) && !options_.decompose_all)
      if (const std::string cheaper = cheaper_elsewhere(n, recipe); !cheaper.empty())
        return {false, cat(verdict.text, "; ", cheaper)};
    if (!refused_count_) {  // after a refusal the rest is only asked, for the message
      std::vector<Value> operands;
      for (Value v : node.operands) operands.push_back(v ? rewriter_.map(v) : Value{});
      const std::vector<Value> results =
          recipes_.write(recipe, operands, rewriter_.to, node, marks);
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k]) rewriter_.replace(node.outputs[k], results[k]);
    }
    r.device = d;
    r.verdict = NodeVerdict::decomposed;
    r.reason = verdict.text;
    return {true};
  }

  bool try_fallback(NodeId n, const std::string& why) {
    report(n).verdict = NodeVerdict::refused;
    report(n).reason = on_device(wanted(n), why);
    for (const uint32_t d : others(n)) {
      const Taken taken = try_device(n, d, answer(n, d));
      if (!taken.yes) {
        report(n).reason += "; " + on_device(d, taken.why);
        continue;
      }
      report(n).verdict = NodeVerdict::fallback;
      report(n).reason = why;
      return true;
    }
    return false;
  }

  // The devices other than the wanted one in their order; those with a price first, the cheapest
  // first.
  std::vector<uint32_t> others(NodeId n) {
    std::vector<std::pair<double, uint32_t>> prices;
    for (uint32_t d = 0; d < options_.devices; ++d)
      if (d != wanted(n))
        prices.emplace_back(price_there(n, d).value_or(std::numeric_limits<double>::infinity()), d);
    std::ranges::sort(prices);
    std::vector<uint32_t> order;
    for (const auto& [price, d] : prices) order.push_back(d);
    return order;
  }

  // "cpu:0: no kernel for op softmax"
  std::string on_device(uint32_t d, const std::string& why) const {
    return cat(device_name(d), ": ", why);
  }
  std::string device_name(uint32_t d) const {
    return d < options_.names.size() ? options_.names[d] : cat("device ", d);
  }

  uint32_t group_of(uint32_t device, uint32_t group) {
    const auto [at, fresh] = groups_.try_emplace({device, group}, 0);
    if (fresh) at->second = recipes_.new_group();
    return at->second;
  }

  const Graph& from_;
  const LegalizeOptions& options_;
  Recipes recipes_;
  Rewriter rewriter_;
  LegalGraph out_;
  std::vector<std::vector<Verdict>> answers_;                 // [device]: of from_; when asked for
  std::vector<Verdict> wanted_;                               // of from_
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> groups_;  // of a device -> of the legal graph
  std::string refused_;
  int refused_count_ = 0;
};

}  // namespace

LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query) {
  return Legalizer(from, options, query).run();
}

}  // namespace tenon::core
