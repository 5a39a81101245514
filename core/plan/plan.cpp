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

}  // namespace

Plan make_plan(const Graph& graph, std::vector<std::shared_ptr<Device>> devices,
               const PlanOptions& options, const Evaluate& evaluate) {
  verify(graph);
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
      .decompose_all = options.decompose_all};
  LegalGraph legal = legalize(g, legal_options, query);
  verify(legal.graph);

  Plan plan;
  plan.devices = std::move(devices);
  plan.graph_nodes = g.node_count();
  place_values(legal, options, plan);
  plan.reports = std::move(legal.reports);
  return plan;
}

}  // namespace tenon::core
