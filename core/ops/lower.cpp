// SPDX-License-Identifier: Apache-2.0
// Decomposes one node by its record, and checks the types of the results.
#include "ops/lower.hpp"

#include "ir/rewrite.hpp"
#include "ops/control.hpp"

namespace tenon::core {

bool lower_into(Builder& b, const NodeInfo& node, std::vector<Value>& results) {
  results.assign(std::max(node.outputs.size(), output_count(*node.op)), {});
  if (!node.op->lower) return false;
  const std::vector<Type> types = infer_types(b.graph, node, results.size());
  Lower lower(b, node, results);
  if (!node.op->lower(lower, b.graph, node)) return false;
  results.resize(node.outputs.size());
  for (size_t k = 0; k < results.size(); ++k) {
    if (!node.outputs[k]) continue;
    const std::string_view name = node.op->schema->output_name(k);
    check(bool(results[k]), node.op->name(), ": its decomposition leaves out output ", name);
    check(b.type(results[k]) == types[k], node.op->name(), ": its decomposition gives output ",
          name, " as ", b.type(results[k]).text(), ", expected ", types[k].text());
  }
  return true;
}

namespace {

bool is_lowered_meta(const NodeInfo& node) { return node.op->meta() && node.op->lower; }

bool has_lowered_meta(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (is_lowered_meta(graph[n])) return true;
    if (!is_control(graph[n])) continue;
    for (const FunctionAttr& f : control_of(graph, graph[n]).functions)
      if (has_lowered_meta(*f)) return true;
  }
  return false;
}

}  // namespace

Graph lower_meta(const Graph& graph) {
  if (!has_lowered_meta(graph)) return graph;
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (is_lowered_meta(node)) {
      NodeInfo now = node;
      now.operands = rewriter.map(node.operands);
      Builder b(rewriter.to, node.provenance);
      b.marks = node;
      std::vector<Value> results;
      if (!lower_into(b, now, results))
        fail(Code::unsupported, node.op->text(node.provenance), ": has no decomposition");
      for (size_t k = 0; k < results.size(); ++k)
        if (node.outputs[k]) rewriter.replace(node.outputs[k], results[k]);
    } else if (is_control(node)) {
      std::vector<FunctionAttr> functions;
      for (const FunctionAttr& f : control_of(graph, node).functions)
        functions.push_back(std::make_shared<const Graph>(lower_meta(*f)));
      copy_with_functions(rewriter, graph, n, functions);
    } else {
      rewriter.copy(n);
    }
  }
  return rewriter.finish();
}

}  // namespace tenon::core
