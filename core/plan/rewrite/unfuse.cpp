// SPDX-License-Identifier: Apache-2.0
// Legalizes a graph for a device that takes everything but what can be decomposed.
#include "plan/rewrite/unfuse.hpp"

#include "grad/functions.hpp"
#include "grad/grad.hpp"
#include "grad/vmap.hpp"
#include "ir/rewrite.hpp"
#include "ir/verify.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "plan/rewrite/legalize.hpp"

namespace tenon::core {
namespace {

std::vector<Verdict> take_all(const Graph& graph, uint32_t) {
  std::vector<Verdict> verdicts(graph.node_count());
  for (Verdict& v : verdicts) v.native = true;
  return verdicts;
}

// Of a graph without requests. Functions come last: a decomposition may add some.
Graph decomposed(const Graph& from) {
  const Graph flat = legalize(from, {.decompose_all = true}, take_all).graph;
  Rewriter rewriter(flat);
  for (NodeId n = 0; n < flat.node_count(); ++n) {
    if (!is_control(flat[n])) {
      rewriter.copy(n);
      continue;
    }
    const Control control = control_of(flat, flat[n]);
    const std::vector<Type> types = input_types(flat, control);
    std::vector<FunctionAttr> functions;
    for (const FunctionAttr& f : control.functions)
      functions.push_back(std::make_shared<const Graph>(decomposed(*bound_function(f, types))));
    copy_with_functions(rewriter, flat, n, functions);
  }
  Graph graph = rewriter.finish();
  for (NodeId n = 0; n < graph.node_count(); ++n)
    graph.set_marks(n, {.clone = graph[n].clone, .recompute = graph[n].recompute});
  return graph;
}

}  // namespace

Graph expanded(const Graph& graph) {
  return expand_grads(expand_in_functions(expand_vmaps(lower_meta(bind_functions(graph)))));
}

Graph unfused(const Graph& graph) {
  verify(graph);
  Graph out = decomposed(expanded(graph));
  verify(out);
  return out;
}

}  // namespace tenon::core
