// SPDX-License-Identifier: Apache-2.0
// The costs of specification 2 and 5: products counted from shapes, whatever the data masks.
#include "ops/cost.hpp"

#include <algorithm>

#include "ops/record.hpp"

namespace tenon::core {
namespace {

double elements(const Graph& g, Value v) {
  double n = 1;
  for (Dim d : g.type(v).shape.dims()) n *= static_cast<double>(d);
  return n;
}

double dim(const Graph& g, Value v, int from_the_end) {
  const Shape& s = g.type(v).shape;
  return static_cast<double>(s[s.rank() - 1 - from_the_end]);
}

template <class Op>
double of_product(const Graph& g, const NodeInfo& node) {
  const Op n = decode<Op>(node);
  const double k = dim(g, n.a, n.trans_a ? 1 : 0);
  return 2 * k * elements(g, node.outputs[0] ? node.outputs[0] : node.outputs[1]);
}

double of_batch_linear(const Graph& g, const NodeInfo& node) {
  const auto n = decode<op::batch_linear>(node);
  double results = 0;
  for (Value y : node.outputs) results += elements(g, y);
  return 2 * dim(g, n.a, n.trans_a ? 1 : 0) * results;
}

double of_lora(const Graph& g, const NodeInfo& node) {
  const auto n = decode<op::lora_matmul>(node);
  const double k = dim(g, n.x, 0), r = dim(g, n.a, 0), cols = dim(g, n.w, 0);
  return 2 * elements(g, n.x) / std::max(k, 1.0) * (k * cols + k * r + r * cols);
}

template <class Op>
double of_grouped(const Graph& g, const NodeInfo& node, Value rows, double products) {
  const auto n = decode<Op>(node);
  const double experts = dim(g, n.w, 2);
  return products * 2 * dim(g, rows, 1) * elements(g, n.w) / std::max(experts, 1.0);
}

// Sum of min(j, most) for j = 1 .. upto.
double ramp(double upto, double most) {
  if (upto <= 0) return 0;
  const double rising = std::min(upto, most);
  return rising * (rising + 1) / 2 + (upto - rising) * most;
}

// products: how often each pair of a query and a key is multiplied out along D.
template <class Op>
double of_attention(const Graph& g, const NodeInfo& node, double products) {
  const Op n = decode<Op>(node);
  const bool bshd = n.layout == "bshd";
  const Shape &q = g.type(n.q).shape, &k = g.type(n.k).shape;
  const double q_len = static_cast<double>(q[bshd ? 1 : 2]);
  const double k_len = static_cast<double>(k[bshd ? 1 : 2]);
  const double offset = static_cast<double>(n.offset);
  const double pairs = n.causal ? ramp(q_len + offset, k_len) - ramp(offset, k_len) : q_len * k_len;
  return products * 2 * pairs * elements(g, n.q) / std::max(q_len, 1.0);
}

}  // namespace

double product_flops(const Graph& graph, const NodeInfo& node) {
  const std::string_view name = node.op->name();
  if (name == "matmul") return of_product<op::matmul>(graph, node);
  if (name == "linear") return of_product<op::linear>(graph, node);
  if (name == "batch_linear") return of_batch_linear(graph, node);
  if (name == "lora_matmul") return of_lora(graph, node);
  if (name == "grouped_matmul")
    return of_grouped<op::grouped_matmul>(graph, node, node.operands[0], 1);
  if (name == "grouped_matmul_backward") {
    double products = 0;
    for (Value out : node.outputs) products += out ? 1 : 0;
    return of_grouped<op::grouped_matmul_backward>(graph, node, node.operands[0], products);
  }
  if (name == "attention") return of_attention<op::attention>(graph, node, 2);
  if (name == "attention_backward") return of_attention<op::attention_backward>(graph, node, 5);
  return 0;
}

}  // namespace tenon::core
