// SPDX-License-Identifier: Apache-2.0
// The order of the passes.
#include "plan/plan.hpp"

#include <map>
#include <unordered_map>

#include "base/log.hpp"
#include "grad/functions.hpp"
#include "grad/grad.hpp"
#include "grad/vmap.hpp"
#include "ir/blob.hpp"
#include "ir/rewrite.hpp"
#include "ir/verify.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "plan/control.hpp"
#include "plan/rewrite/batch.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewrite/fuse_convolutions.hpp"
#include "plan/rewrite/fuse_dequantized.hpp"
#include "plan/rewrite/fuse_elementwise.hpp"
#include "plan/rewrite/fuse_halves.hpp"
#include "plan/rewrite/fuse_products.hpp"
#include "plan/rewrite/fuse_quantized.hpp"
#include "plan/rewrite/hoist.hpp"
#include "plan/rewrite/key.hpp"
#include "plan/rewrite/legalize.hpp"
#include "plan/rewrite/price.hpp"
#include "plan/rewrite/raise.hpp"
#include "plan/rewrite/simplify.hpp"
#include "plan/rewrite/spread.hpp"
#include "plan/rooms.hpp"
#include "tenon/blob.h"

namespace tenon::core {
namespace {

// Outputs and updates leave from storage of their own: one that names an input, a weight, a
// constant or state gets a copy, on the device of a node that reads it, or of one that reads what is
// updated.
Graph copy_what_passes_through(const Graph& from) {
  std::vector<uint32_t> device(from.value_count(), kNone);
  for (NodeId n = from.node_count(); n-- > 0;)
    for (Value v : from[n].operands)
      if (v) device[v.id] = from[n].device;
  Rewriter rw(from);
  for (NodeId n = 0; n < from.node_count(); ++n) rw.copy(n);
  Graph& to = rw.to;
  Builder b(to);
  std::map<Value, Value> copies;
  const auto own = [&](Value old, Value target = {}) {
    const Value v = rw.map(old);
    if (to[v].space == Space::node) return v;
    Value& c = copies[v];
    if (!c) {
      b.provenance = cat("copy of ", to[v].name.empty() ? std::string("constant") : to[v].name);
      const uint32_t wanted = device[(target && device[target.id] != kNone ? target : old).id];
      b.marks.device = wanted == kNone ? 0 : wanted;
      c = b.copy(v);
    }
    return c;
  };
  for (const Output& o : from.outputs()) to.output(o.name, own(o.value));
  for (const Update& u : from.updates()) to.update(rw.map(u.target), own(u.value, u.target));
  return std::move(to);
}

// Rates of all devices, all of them measured; else none, and remarks that say which are not.
std::vector<Rates> measured_rates(const std::vector<std::shared_ptr<Device>>& devices,
                                  const PlanOptions& options, std::vector<std::string>& remarks) {
  std::vector<Rates> rates;
  for (size_t d = 0; d < std::min(devices.size(), options.rates.size()); ++d) {
    const KnownRates& known = options.rates[d];
    if (known.measured)
      rates.push_back(known.rates);
    else
      remarks.push_back(cat("rates of ", devices[d]->info().id, ": ", known.remark));
  }
  if (rates.size() < devices.size()) rates.clear();
  return rates;
}

// Nobody named a device: the one on which a run is cheaper. devices: two.
bool second_is_cheaper(const Graph& graph, const std::vector<std::shared_ptr<Device>>& devices,
                       const std::vector<Rates>& rates, std::vector<std::string>& remarks) {
  double price[2];
  for (size_t d = 0; d < 2; ++d)
    price[d] = price_of_run(graph, rates[d], devices[d]->info().host_addressable);
  const size_t taken = price[1] < price[0] ? 1 : 0;
  remarks.push_back(cat("auto: ", devices[taken]->info().id, ", a run takes about ",
                        price[taken] * 1e6, " us there, ", price[1 - taken] * 1e6, " us on ",
                        devices[1 - taken]->info().id));
  return taken == 1;
}

// What is done to a legal graph: each step may make nodes that a device refuses.
enum class Improve : uint8_t { nothing, join, simplify_and_join };

// From a graph without requests to regions that their devices take.
class Planner {
 public:
  Planner(const std::vector<std::shared_ptr<Device>>& devices, const PlanOptions& options,
          std::span<const Rates> rates, const Evaluate& evaluate)
      : devices_(devices), options_(options), rates_(rates), evaluate_(evaluate) {}

  struct Result {
    LegalGraph legal{};
    std::vector<CutRegion> regions{};
  };

  // A device that sees its region may take a claim back: planning begins again without that claim.
  // Where a node is refused that only an improvement made, there is less improvement.
  Result plan(const Graph& graph) const {
    constexpr int kMostRounds = 64;  // for each improvement
    std::string refused;
    for (Improve improve = options_.simplify ? Improve::simplify_and_join : Improve::nothing;;
         improve = less(improve)) {
      Withdrawn withdrawn;
      for (int round = 0; round < kMostRounds; ++round) {
        Result result;
        try {
          result.legal = legal_graph(graph, withdrawn.without(query()), improve);
        } catch (const Error&) {
          if (withdrawn.empty() || improve == Improve::nothing) throw;
          break;
        }
        result.regions = cut(result.legal.graph, short_work(), hints());
        refused.clear();
        bool news = false;
        for (CutRegion& r : result.regions) {
          const NodeInfo& first = result.legal.graph[r.region.nodes[0]];
          if (first.hosted)
            refused += refused_host(r, result.legal.graph, withdrawn, news);
          else
            refused += refused_in(r, result.legal.graph, withdrawn, news);
        }
        if (refused.empty()) return result;
        if (!news) break;
      }
      if (improve == Improve::nothing)
        fail(Code::internal, "the plugins withdrew claims in every round:", refused);
    }
  }

  Query query() const {
    return [this](const Graph& asked, uint32_t d) {
      const Blob blob = write_blob(asked, hints()).blob;
      std::vector<Verdict> verdicts = devices_[d]->query(blob.data(), blob.size());
      for (NodeId n = 0; n < asked.node_count(); ++n)
        if (is_control(asked[n]) && !verdicts[n].native) verdicts[n] = host(asked, asked[n], d);
      return verdicts;
    };
  }
  uint32_t hints() const { return options_.batch_invariant ? TENON_HINT_BATCH_INVARIANT : 0; }
  bool fuses() const { return options_.fuse && options_.simplify && !options_.decompose_all; }

 private:
  // A node whose functions the host runs on a device, or why it cannot.
  struct Hosted {
    std::shared_ptr<const ControlPlan> plan{};
    std::string why{};
  };
  const Hosted& hosted(const Graph& graph, const NodeInfo& node, uint32_t d) const {
    std::string key = form_key(graph, node);
    append_key(key, d);
    const auto [at, fresh] = hosted_.try_emplace(std::move(key));
    if (!fresh) return at->second;
    try {
      at->second.plan = plan_control(graph, node, devices_[d], options_, evaluate_);
    } catch (const Error& e) {
      if (e.code() != Code::unsupported) {
        hosted_.erase(at);
        throw;
      }
      at->second.why = e.what();
    }
    return at->second;
  }
  // As refused_in, for a region that the host runs: its functions may have changed since the node was
  // claimed.
  std::string refused_host(CutRegion& r, const Graph& graph, Withdrawn& withdrawn,
                           bool& news) const {
    const NodeId n = r.region.nodes[0];
    const Hosted& known = hosted(graph, graph[n], r.region.device);
    r.control = known.plan;
    if (known.plan) return {};
    news |= withdrawn.add(graph, n, known.why);
    return cat(" ", graph[n].op->text(graph[n].provenance), ": ", known.why, ";");
  }
  // The verdict on a node of level control that no plugin takes as a whole.
  Verdict host(const Graph& graph, const NodeInfo& node, uint32_t d) const {
    const Hosted& known = hosted(graph, node, d);
    Verdict verdict;
    verdict.native = verdict.hosted = known.plan != nullptr;
    if (!verdict.native) verdict.reason = TENON_REASON_OTHER, verdict.text = known.why;
    return verdict;
  }

  // By device: bytes that it moves in the time that starting a region takes; guessed without rates.
  std::vector<double> short_work() const {
    constexpr double kOnHost = 1 << 17, kElsewhere = 1 << 23;  // bytes
    std::vector<double> work;
    for (size_t d = 0; d < devices_.size(); ++d)
      if (d < rates_.size())
        work.push_back(rates_[d].run * rates_[d].copy);
      else
        work.push_back(devices_[d]->info().host_addressable ? kOnHost : kElsewhere);
    return work;
  }

  static Improve less(Improve i) { return static_cast<Improve>(static_cast<uint8_t>(i) - 1); }

  LegalGraph legal_graph(Graph g, const Query& query, Improve improve) const {
    if (fuses())
      g = join_products(fuse(join_convolutions(read_halves(g, query), query), query), query);
    g = copy_what_passes_through(g);
    verify(g);
    std::vector<std::string> names;
    for (const auto& d : devices_) names.push_back(d->info().id);
    LegalGraph legal = legalize(g,
                                {.devices = static_cast<uint32_t>(devices_.size()),
                                 .named = options_.named,
                                 .names = names,
                                 .decompose_all = options_.decompose_all,
                                 .rates = rates_},
                                query);
    if (improve == Improve::simplify_and_join) {
      Claims claims(query);
      legal.graph = simplify(
          legal.graph, evaluate_, nullptr,
          [&](const Graph& made, const NodeInfo& node) { return claims.of(made, node).native; });
    }
    if (improve == Improve::simplify_and_join) hoist_weights(legal, query);
    // What was decomposed may have parts that the device joins.
    if (improve != Improve::nothing && fuses())
      legal.graph = join_batches(
          fuse_elementwise(join_products(fuse(legal.graph, query), query), query), query);
    settle_reports(legal);
    verify(legal.graph);
    return legal;
  }

  // Asks about a region as a whole. Names what is refused, and withdraws its claims; news: one of
  // them for the first time.
  std::string refused_in(const CutRegion& r, const Graph& graph, Withdrawn& withdrawn,
                         bool& news) const {
    Device& device = *devices_[r.region.device];
    std::vector<Verdict> verdicts = device.query(r.blob.blob.data(), r.blob.blob.size());
    settle_verdicts(verdicts);
    std::string names;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      if (verdicts[i].native) continue;
      const NodeInfo& node = graph[r.blob.nodes[i]];
      names += cat(" plugin ", device.info().plugin, " refuses ", node.op->name(), " '",
                   node.provenance, "': ", verdicts[i].text, ";");
      news |= withdrawn.add(graph, r.blob.nodes[i], verdicts[i].text);
    }
    return names;
  }

  const std::vector<std::shared_ptr<Device>>& devices_;
  const PlanOptions& options_;
  std::span<const Rates> rates_;
  const Evaluate& evaluate_;
  mutable std::unordered_map<std::string, Hosted> hosted_;  // by form_key and device
};

// Reports of functions, behind those of the nodes that run them.
void report_functions(Plan& plan) {
  for (const PlannedRegion& region : plan.regions) {
    if (!region.control.plan) continue;
    const std::string node = plan.reports[region.report_of_step[0]].name;
    for (const PlannedFunction& f : region.control.plan->functions)
      for (NodeReport report : f.plan->reports) {
        report.name = cat(node, "/", f.name, ": ", report.name);
        report.device = region.device;
        report.flops = 0;  // the node's own count them, with all trips
        plan.reports.push_back(std::move(report));
      }
  }
}

// A device that cannot generate the code of its region withdraws claims: planning begins again, and
// the device refuses the nodes. warn: adds to the remarks.
template <class Warn>
Plan compiled_plan(const Planner& planner, const Graph& graph,
                   const std::vector<std::shared_ptr<Device>>& devices, const PlanOptions& options,
                   const std::vector<std::string>& remarks, const Warn& warn) {
  constexpr int kMostWithdrawals = 64;
  for (int round = 0;; ++round) {
    try {
      Planner::Result planned = planner.plan(graph);
      Plan plan;
      plan.devices = devices;
      plan.remarks = remarks;
      place_values(planned.legal, planned.regions, options, plan);
      plan.reports = std::move(planned.legal.reports);
      report_functions(plan);
      return plan;
    } catch (const Withdrawal& e) {
      if (round == kMostWithdrawals) throw;
      warn(e.what());
    }
  }
}

}  // namespace

Plan make_plan(const Graph& graph, std::vector<std::shared_ptr<Device>> devices,
               const PlanOptions& options, const Evaluate& evaluate) {
  verify(graph);
  // Requests inside functions are expanded first: once a function is inlined, its request would see
  // the values around it.
  Graph g = expand_in_functions(expand_vmaps(lower_meta(bind_functions(graph))));
  std::vector<std::string> remarks;
  const auto warn = [&](const std::string& remark) {
    remarks.push_back(remark);
    log(LogLevel::warning, cat("graph '", graph.name, "': ", remark));
  };
  for (const std::string& pattern : pin_nodes(g, options.pins))
    warn(cat("pin '", pattern, "': no node has a name that matches"));
  std::vector<Rates> rates = measured_rates(devices, options, remarks);
  if (options.choose_device && rates.size() == 2 &&
      second_is_cheaper(expand_grads(g), devices, rates, remarks)) {
    std::swap(devices[0], devices[1]);
    std::swap(rates[0], rates[1]);
  }
  Planner planner(devices, options, rates, evaluate);
  // Before the gradient, so that composites get their own, and after it, for what the gradient
  // wrote.
  if (planner.fuses())
    g = fuse(join_convolutions(raise(std::move(g)), planner.query()), planner.query());

  Rooms rooms(devices, options);
  HomeOf home = options.home;
  for (bool again = true; again;) {
    Graph placed = g;
    std::vector<double> estimate(options.named);
    if (options.named > 1) estimate = spread(placed, rooms.devices(), home);
    placed = expand_grads(placed);
    // Before constants are folded: dequantized weights would become floats.
    if (planner.fuses())
      placed = join_quantized(move_integers(placed, planner.query()), planner.query());
    if (options.simplify) placed = simplify(placed, evaluate);
    Plan plan = compiled_plan(planner, placed, devices, options, remarks, warn);
    again = rooms.take(std::move(plan), estimate, bool(home));
    if (again && std::exchange(home, nullptr))
      warn("weights are on other devices than those of other executables, to keep the limits");
  }
  return std::move(rooms).best();
}

}  // namespace tenon::core
