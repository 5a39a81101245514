// SPDX-License-Identifier: Apache-2.0
// The products that may read a half, and the cast that they no longer need.
#include "plan/rewrite/fuse_halves.hpp"

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

// The half behind a cast to f32, or absent.
Value half_behind(const Graph& g, Value v) {
  const NodeId n = maker_of(g, v);
  if (n == kNone || g[n].op != &record_of(op::cast::kName) || g.type(v).dtype != kF32) return {};
  const Value x = g[n].operands[0];
  return is_half(g.type(x).dtype) ? x : Value{};
}

bool is_product(const NodeInfo& node) {
  return node.op == &record_of(op::matmul::kName) || node.op == &record_of(op::linear::kName);
}

}  // namespace

Graph read_halves(const Graph& graph, const Query& query) {
  Claims claims(query);
  Rewriter rw(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    std::string note;
    bool replaced = false;
    // b, which more often is a weight, before a; not both: their product would be one of halves.
    for (const size_t k : {1, 0}) {
      if (!is_product(node) || node.group != kNone || replaced) break;
      const Value half = half_behind(graph, node.operands[k]);
      if (!half || graph.type(node.operands[1 - k]).dtype != kF32) continue;
      std::vector<Value> operands = node.operands;
      operands[k] = half;
      const Verdict& verdict = claims.of(graph, *node.op, {operands, node.lists}, node.attrs,
                                         wanted_outputs(node), node.device);
      const NodeId parts[] = {graph[node.operands[k]].node, n};
      if (const std::string why = claims.why_not(verdict, graph, parts); !why.empty()) {
        append_note(note, cat("reads no half: ", why));
        continue;
      }
      const NodeId made = rw.to.add_node(*node.op, {rw.map(operands), node.lists}, node.attrs,
                                         wanted_outputs(node), node.provenance);
      rw.to.set_marks(made, node);
      rw.to.set_note(made, node.note);
      add_note(rw.to, made, cat(kHalfNote, parts_of(graph, parts).names));
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i]) rw.replace(node.outputs[i], rw.to[made].outputs[i]);
      replaced = true;
    }
    if (replaced) continue;
    const NodeId made = rw.copy(n);
    add_note(rw.to, made, note);
  }
  return rw.finish();
}

}  // namespace tenon::core
