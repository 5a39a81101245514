// SPDX-License-Identifier: Apache-2.0
// Finds a place for each node: native, decomposed, on another device, or refused.
#include "plan/rewrite/legalize.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/placement.hpp"
#include "plan/rewrite/reader.hpp"
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
        answers_(options.devices),
        place_(from.node_count()) {
    for (NodeId n = 0; n < from.node_count(); ++n) place_[n] = wanted(n);
  }

  LegalGraph run() {
    wanted_ = wanted_verdicts();
    if (!options_.decompose_all) weigh_claims();
    if (options_.devices > 1 && options_.rates.size() >= options_.devices) place();
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      if (place_[n] != wanted(n)) {
        leave(n);
        continue;
      }
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
  // Was a node taken; if not, why.
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

  // What else a claimed node could cost, told by its device alone: an estimate from rates is too
  // rough to overrule a claim.
  std::optional<double> decomposed(NodeId n) {
    const Recipe& recipe = recipes_.of(from_, from_[n], wanted(n));
    return recipe.legal ? recipe.said : std::nullopt;
  }

  // Claims that cost more than their decomposition count as refused; a group costs what its nodes
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
      add_seconds(other, decomposed(n));
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

  // ---- devices by price

  // What device d says of a node that is wanted elsewhere. Nodes of a group may be placed apart, so
  // its claims do not count.
  Verdict answer_alone(NodeId n, uint32_t d) {
    Verdict v = answer(n, d);
    if (v.group != TENON_NONE) v.native = false, v.text = "claimed only together with other nodes";
    return v;
  }

  struct Price {
    std::optional<double> seconds{};  // absent: the device does not take the node
    bool said = false;                // by the device, all of it
  };
  Price price(NodeId n, uint32_t d, const Verdict& v) {
    if (v.native) return {recipes_.price(from_, from_[n], v, d), v.cost > 0};
    const Recipe& recipe = recipes_.of(from_, from_[n], d);
    if (!recipe.legal) return {};
    return {recipe.priced, recipe.said.has_value()};
  }

  // Nodes that a claim of unknown cost does not hold: refused ones, decomposed ones, and claims
  // whose cost the device says.
  bool may_leave(NodeId n) const {
    return !from_[n].pinned && (!wanted_[n].native || wanted_[n].cost > 0);
  }

  bool reads_entry(NodeId n) const {
    return std::ranges::any_of(from_[n].operands, [&](Value v) {
      return v && (from_[v].space == Space::weight || from_[v].space == Space::state);
    });
  }

  void place() {
    NodePrices prices(from_.node_count(), options_.devices);
    std::vector<Price> home(from_.node_count());
    bool any = false;
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      home[n] = price(n, wanted(n), wanted_[n]);
      if (home[n].seconds) prices.at(n, wanted(n)) = *home[n].seconds;
      any |= may_leave(n) || !home[n].seconds;
    }
    if (!any) return;
    for (uint32_t d = 0; d < options_.devices; ++d) {
      price_leaving(prices, home, d);
      if (d > 0 && options_.named == 1) price_following(prices, home, d);
    }
    place_ = place_by_price(from_, prices, groups(), options_.rates);
  }

  // Of nodes that may leave their device for d. If the app names several devices, nodes are spread
  // for memory: what reads weights or state stays, and among these devices only a node moves that
  // is cheaper there by itself.
  void price_leaving(NodePrices& prices, const std::vector<Price>& home, uint32_t d) {
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      const bool refused = !home[n].seconds;
      if (d == wanted(n) || (!refused && (!may_leave(n) || options_.decompose_all))) continue;
      if (!refused && options_.named > 1 && reads_entry(n)) continue;
      const Price there = price(n, d, answer_alone(n, d));
      if (!there.seconds || (wanted_[n].native && !there.said)) continue;
      const bool both_named = d < options_.named && wanted(n) < options_.named;
      if (!refused && both_named && !costs_less(*there.seconds, *home[n].seconds)) continue;
      prices.at(n, d) = *there.seconds;
    }
  }

  // Of claimed nodes between nodes that may be on d: they follow those if carrying values to and
  // fro would cost more. Rates are too rough to overrule a claim, so none of them gains by itself.
  // Not where the app names several devices, since their nodes are spread for memory.
  void price_following(NodePrices& prices, const std::vector<Price>& home, uint32_t d) {
    if (options_.decompose_all) return;
    const auto may_be = [&](NodeId n) { return prices.at(n, d) < NodePrices::kNoDevice; };
    std::vector<bool> before(from_.node_count()), behind(from_.node_count());
    for (NodeId n = 0; n < from_.node_count(); ++n)
      for (Value v : from_[n].operands)
        if (const NodeId m = maker_of(from_, v); m != kNone)
          before[n] = before[n] || before[m] || may_be(m);
    for (NodeId n = from_.node_count(); n-- > 0;)
      for (Value v : from_[n].operands)
        if (const NodeId m = maker_of(from_, v); m != kNone)
          behind[m] = behind[m] || behind[n] || may_be(n);
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      if (!before[n] || !behind[n] || !wanted_[n].native || from_[n].pinned) continue;
      if (d == wanted(n) || may_be(n)) continue;
      if (const Price there = price(n, d, answer_alone(n, d)); there.seconds)
        prices.at(n, d) = std::max(*there.seconds, *home[n].seconds);
    }
  }

  // By node, the first of its group.
  std::vector<NodeId> groups() const {
    std::vector<NodeId> first(from_.node_count());
    std::map<uint32_t, NodeId> of_group;
    for (NodeId n = 0; n < from_.node_count(); ++n) {
      const bool alone = !wanted_[n].native || wanted_[n].group == TENON_NONE;
      first[n] = alone ? n : of_group.try_emplace(wanted_[n].group, n).first->second;
    }
    return first;
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
    if (!recipe.legal) return {false, why_not(verdict, recipe)};
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

  static std::string why_not(const Verdict& verdict, const Recipe& recipe) {
    return recipe.why.empty() ? verdict.text : cat(verdict.text, " (", recipe.why, ")");
  }

  // To the device that prices chose.
  void leave(NodeId n) {
    const uint32_t d = place_[n];
    const Verdict there = answer_alone(n, d);
    const Taken taken = try_device(n, d, there);
    check(taken.yes, report(n).op, ": a device with a price refuses it: ", taken.why);
    report(n).verdict = NodeVerdict::fallback;
    report(n).reason = why_leave(n, price(n, d, there));
  }
  std::string why_leave(NodeId n, const Price& there) {
    const Verdict& here = wanted_[n];
    const auto costs = [&](std::optional<double> seconds) {
      return cat("it would take ", microseconds(seconds.value_or(0)), ", on ",
                 device_name(place_[n]), " ", microseconds(there.seconds.value_or(0)));
    };
    if (!here.native) {
      const Recipe& recipe = recipes_.of(from_, from_[n], wanted(n));
      if (!recipe.legal) return why_not(here, recipe);
      return cat(here.text, "; decomposed on the wanted device ", costs(recipe.priced));
    }
    if (there.said && here.cost > 0 && costs_less(*there.seconds, here.cost))
      return cat("on the wanted device ", costs(here.cost));
    return cat("the nodes around it are on ", device_name(place_[n]),
               ", and carrying values to and fro would take longer");
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

  std::vector<uint32_t> others(NodeId n) const {
    std::vector<uint32_t> order;
    for (uint32_t d = 0; d < options_.devices; ++d)
      if (d != wanted(n)) order.push_back(d);
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
  std::vector<uint32_t> place_;                               // by node: its device
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> groups_;  // of a device -> of the legal graph
  std::string refused_;
  int refused_count_ = 0;
};

}  // namespace

LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query) {
  return Legalizer(from, options, query).run();
}

}  // namespace tenon::core
