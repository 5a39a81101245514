// SPDX-License-Identifier: Apache-2.0
// The order of the passes.
#include "plan/plan.hpp"

#include <map>

#include "grad/grad.hpp"
#include "ir/blob.hpp"
#include "ir/rewrite.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "plan/batch.hpp"
#include "plan/fuse.hpp"
#include "plan/fuse_products.hpp"
#include "plan/price.hpp"
#include "plan/raise.hpp"
#include "plan/region.hpp"

namespace tenon::core {
namespace {

// Outputs and updates leave from storage of their own: one that names an input, a weight, a
// constant or state gets a copy.
Graph copy_what_passes_through(const Graph& from) {
  Rewriter rw(from);
  for (NodeId n = 0; n < from.node_count(); ++n) rw.copy(n);
  Graph& to = rw.to;
  Builder b(to);
  std::map<Value, Value> copies;
  const auto own = [&](Value old) {
    const Value v = rw.map(old);
    if (to[v].space == Space::node) return v;
    Value& c = copies[v];
    if (!c) {
      b.provenance = cat("copy of ", to[v].name.empty() ? std::string("constant") : to[v].name);
      c = b.copy(v);
    }
    return c;
  };
  for (const Output& o : from.outputs()) to.output(o.name, own(o.value));
  for (const Update& u : from.updates()) to.update(rw.map(u.target), own(u.value));
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

}  // namespace

Plan make_plan(const Graph& graph, std::vector<std::shared_ptr<Device>> devices,
               const PlanOptions& options, const Evaluate& evaluate) {
  verify(graph);
  std::vector<std::string> remarks;
  std::vector<Rates> rates = measured_rates(devices, options, remarks);
  if (options.choose_device && rates.size() == 2 &&
      second_is_cheaper(graph, devices, rates, remarks)) {
    std::swap(devices[0], devices[1]);
    std::swap(rates[0], rates[1]);
  }
  const Query query = [&](const Graph& asked, uint32_t d) {
    const Blob blob = write_blob(asked).blob;
    return devices[d]->query(blob.data(), blob.size());
  };
  const bool fuses = options.fuse && options.simplify && !options.decompose_all;
  Graph g = graph;
  // Before the gradient, so that composites get their own, and after it, for what the gradient
  // wrote.
  if (fuses) g = fuse(raise(std::move(g)), query);
  g = expand_grads(g);
  if (options.simplify) g = simplify(g, evaluate);
  if (fuses) g = join_batches(join_regions(join_products(fuse(g, query), query), query), query);
  g = copy_what_passes_through(g);
  verify(g);

  const LegalizeOptions legal_options{
      .devices = options.allow_fallback && devices.size() > 1 && devices[0] != devices[1] ? 2u : 1u,
      .decompose_all = options.decompose_all,
      .rates = rates};
  LegalGraph legal = legalize(g, legal_options, query);
  verify(legal.graph);

  Plan plan;
  plan.devices = std::move(devices);
  plan.graph_nodes = g.node_count();
  place_values(legal, options, plan);
  plan.reports = std::move(legal.reports);
  plan.remarks = std::move(remarks);
  return plan;
}

}  // namespace tenon::core
