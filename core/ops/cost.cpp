// SPDX-License-Identifier: Apache-2.0
// Computes the costs of a node from its record.
#include "ops/cost.hpp"

#include "ops/record.hpp"

namespace tenon::core {

double Cost::dim(Value v, int from_the_end) const {
  const Shape& s = shape(v);
  return static_cast<double>(s[s.rank() - 1 - from_the_end]);
}

double Cost::elements(Value v) const {
  if (!v) return 0;
  double n = 1;
  for (const Dim d : shape(v).dims()) n *= static_cast<double>(d);
  return n;
}

double Cost::bytes(Value v) const {
  return v ? static_cast<double>(type_bytes(graph_.type(v))) : 0;
}

double Cost::operands_and_outputs() const {
  double sum = 0;
  for (const Value v : node_.operands) sum += bytes(v);
  for (const Value v : node_.outputs) sum += bytes(v);
  return sum;
}

double product_flops(const Graph& graph, const NodeInfo& node) {
  return node.op->flops ? node.op->flops(graph, node) : 0;
}

double least_bytes(const Graph& graph, const NodeInfo& node) {
  return node.op->bytes ? node.op->bytes(graph, node) : Cost(graph, node).operands_and_outputs();
}

}  // namespace tenon::core
