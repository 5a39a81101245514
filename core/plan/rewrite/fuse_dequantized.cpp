// SPDX-License-Identifier: Apache-2.0
// Both passes copy the graph node by node. move_integers looks at operands in the new graph, where
// dequantize has moved already.
#include "plan/rewrite/fuse_dequantized.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "ir/rewrite.hpp"
#include "ops/fused.hpp"
#include "ops/quantized.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

// A dequantize from 8 bits to f32 with constants as scale and zero point.
std::optional<op::dequantize> dequantized(const Graph& g, Value v) {
  const NodeId n = maker_of(g, v);
  if (n == kNone || g[n].op != &record_of(op::dequantize::kName) || g[n].group != kNone ||
      !can_be_step(g, g[n]) || g.type(v).dtype != kF32)
    return {};
  const auto d = decode<op::dequantize>(g[n]);
  const DType q = g.type(d.q).dtype;
  if ((q != kI8 && q != kU8) || g.type(d.scale).dtype != kF32) return {};
  return d;
}

// Equal constants. absent: stands for zeros.
bool is_same(const Graph& g, Value a, Value b) {
  const auto is_zero = [&](Value v) {
    return !v ||
           std::ranges::all_of(*g[v].data, [](auto byte) { return byte == decltype(byte){}; });
  };
  if (!a || !b) return is_zero(a) && is_zero(b);
  return g.type(a).dtype == g.type(b).dtype && *g[a].data == *g[b].data;
}
bool is_same(const Graph& g, const op::dequantize& a, const op::dequantize& b) {
  return g.type(a.q).dtype == g.type(b.q).dtype && is_same(g, a.scale, b.scale) &&
         is_same(g, a.zero_point, b.zero_point);
}

// Differences of 8-bit integers come back from products with such a scale.
bool is_exact(const Graph& g, Value scale) {
  float s;
  std::memcpy(&s, g[scale].data->data(), sizeof s);
  constexpr float kMostSteps = 255;
  return std::isnormal(s) && std::isfinite(s * kMostSteps);
}

class Mover {
 public:
  Mover(const Graph& graph, const Query& query)
      : g_(graph), readers_(graph), rw_(graph), claims_(query) {}

  Graph run() && {
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (!moved(n) && !dropped(n) && !split(n)) rw_.copy(n);
    return rw_.finish();
  }

 private:
  static bool is_mover(const NodeInfo& node) {
    constexpr std::string_view kMovers[] = {op::reshape::kName, op::transpose::kName,
                                            op::narrow::kName, op::concat::kName,
                                            op::resize::kName};
    if (std::ranges::none_of(kMovers, [&](auto name) { return node.op == &record_of(name); }))
      return false;
    if (node.op != &record_of(op::resize::kName)) return true;
    const auto n = decode<op::resize>(node);
    return n.mode == "nearest" && n.coordinates != "tf_crop_and_resize";  // which makes numbers
  }

  // dequantize behind the node instead of in front of it
  bool moved(NodeId n) {
    const NodeInfo& node = g_[n];
    if (node.group != kNone || !is_mover(node) || node.outputs.size() != 1 || !node.outputs[0])
      return false;
    const bool list = node.op == &record_of(op::concat::kName);
    std::vector<Value> operands = rw_.map(node.operands);
    std::optional<op::dequantize> first;
    for (size_t k = 0; k < (list ? operands.size() : 1); ++k) {
      const std::optional<op::dequantize> d = dequantized(rw_.to, operands[k]);
      if (!d || (first && !is_same(rw_.to, *first, *d))) return false;
      if (!first) first = d;
      operands[k] = d->q;
    }
    if (!first) return false;
    const Verdict& verdict = claims_.of(rw_.to, *node.op, {operands, node.lists}, node.attrs,
                                        wanted_outputs(node), node.device);
    if (!verdict.native) return false;
    const NodeId made = rw_.to.add_node(*node.op, {std::move(operands), node.lists}, node.attrs,
                                        wanted_outputs(node), node.provenance);
    rw_.to.set_marks(made, node);
    if (!node.note.empty()) rw_.to.set_note(made, node.note);
    first->q = rw_.to[made].outputs[0];
    const NodeId last = rw_.to.add(*first, node.provenance);
    rw_.to.set_marks(last, node);
    rw_.replace(node.outputs[0], rw_.to[last].outputs[0]);
    return true;
  }

  bool is_quantize(const NodeInfo& node) const {
    return node.op == &record_of(op::quantize::kName) && node.group == kNone &&
           can_be_step(g_, node);
  }
  // quantize(dequantize(q)) with equal scales is q. x: of the new graph. Absent if it is another value.
  Value undone(const NodeInfo& node, Value x) {
    const auto q = decode<op::quantize>(node);
    const std::optional<op::dequantize> d = dequantized(rw_.to, x);
    if (!d || g_.type(node.outputs[0]).dtype != rw_.to.type(d->q).dtype) return {};
    if (!is_same(rw_.to, d->scale, rw_.map(q.scale)) ||
        !is_same(rw_.to, d->zero_point, rw_.map(q.zero_point)) || !is_exact(rw_.to, d->scale))
      return {};
    return d->q;
  }
  bool dropped(NodeId n) {
    if (!is_quantize(g_[n])) return false;
    const Value q = undone(g_[n], rw_.map(g_[n].operands[0]));
    if (q) rw_.replace(g_[n].outputs[0], q);
    return bool(q);
  }

  // quantize(concat(..)) of dequantized values becomes concat(quantize(..)).
  bool split(NodeId n) {
    const NodeInfo& node = g_[n];
    if (!is_quantize(node) || !readers_.one(node.operands[0])) return false;
    const NodeId made = maker_of(rw_.to, rw_.map(node.operands[0]));
    if (made == kNone || rw_.to[made].op != &record_of(op::concat::kName)) return false;
    const NodeInfo joined = rw_.to[made];
    if (std::ranges::any_of(joined.operands, [&](Value v) { return !dequantized(rw_.to, v); }))
      return false;
    std::vector<Value> parts;
    for (Value v : joined.operands) {
      parts.push_back(undone(node, v));
      if (parts.back()) continue;
      std::vector<Value> operands = rw_.map(node.operands);
      operands[0] = v;
      const NodeId part = rw_.to.add_node(*node.op, {std::move(operands), node.lists}, node.attrs,
                                          {true}, node.provenance);
      rw_.to.set_marks(part, node);
      parts.back() = rw_.to[part].outputs[0];
    }
    const Operands integers(std::move(parts), joined.lists);
    if (!claims_.of(rw_.to, *joined.op, integers, joined.attrs, {true}, node.device).native)
      return false;
    const NodeId last =
        rw_.to.add_node(*joined.op, integers, joined.attrs, {true}, joined.provenance);
    rw_.to.set_marks(last, joined);
    rw_.replace(node.outputs[0], rw_.to[last].outputs[0]);
    return true;
  }

  const Graph& g_;
  const Readers readers_;
  Rewriter rw_;
  Claims claims_;
};

}  // namespace

Graph move_integers(const Graph& graph, const Query& query) { return Mover(graph, query).run(); }

Graph repeat_dequantize(const Graph& graph, const Query& query) {
  Claims claims(query);
  const Readers readers(graph);
  const auto is_step = [&](NodeId n) {
    const NodeInfo& node = graph[n];
    return node.group == kNone && ((node.op->traits & kReduction) || can_be_step(graph, node));
  };
  // By value: is it repeated?
  std::vector<bool> repeated(graph.value_count());
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const std::vector<Value>& outputs = graph[n].outputs;
    if (outputs.size() != 1 || !dequantized(graph, outputs[0]) ||
        readers.of(outputs[0]).size() < 2 || std::ranges::none_of(readers.of(outputs[0]), is_step))
      continue;
    const StepsOf step = steps_of(graph, std::span(&n, 1), outputs);
    repeated[outputs[0].id] =
        claims
            .of(graph, fused_record(), step.inputs, fused_attrs(step.body), {true}, graph[n].device)
            .native;
  }
  Rewriter rw(graph);
  std::vector<Value> shared(graph.value_count());
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (node.outputs.size() == 1 && node.outputs[0] && repeated[node.outputs[0].id]) {
      const Value v = node.outputs[0];
      if (readers.leaves(v) || !std::ranges::all_of(readers.of(v), is_step))
        shared[v.id] = rw.to[rw.copy(n)].outputs[0];
      continue;
    }
    std::vector<Value> own;
    if (is_step(n))
      for (Value v : node.operands)
        if (v && repeated[v.id] && std::ranges::find(own, v) == own.end()) own.push_back(v);
    for (Value v : own) rw.copy(graph[v].node);
    rw.copy(n);
    for (Value v : own)
      if (shared[v.id]) rw.replace(v, shared[v.id]);
  }
  return rw.finish();
}

}  // namespace tenon::core
