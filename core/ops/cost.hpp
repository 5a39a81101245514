// SPDX-License-Identifier: Apache-2.0
// Costs of a node: the arguments of the cost slots of a record, forms that most records use, and
// the costs of any node.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

// A node of a bound graph, as seen by a cost slot. Absent values count nothing.
class Cost {
 public:
  Cost(const Graph& graph, const NodeInfo& node) : graph_(graph), node_(node) {}
  const Shape& shape(Value v) const { return graph_.type(v).shape; }
  DType dtype(Value v) const { return graph_.type(v).dtype; }
  // The dim of v that is `from_the_end` axes before its last one.
  double dim(Value v, int from_the_end) const;
  double elements(Value v) const;
  double bytes(Value v) const;
  size_t out_count() const { return node_.outputs.size(); }
  Value out(size_t k) const { return k < node_.outputs.size() ? node_.outputs[k] : Value{}; }
  // Bytes of all operands and all outputs.
  double operands_and_outputs() const;

 private:
  const Graph& graph_;
  const NodeInfo& node_;
};

// .flops of an op without matrix products.
struct NoProducts {};
inline constexpr NoProducts no_products;
// .bytes of an op that reads each operand once and writes each output once.
struct EachOnce {};
inline constexpr EachOnce each_once;

// Floating-point operations of the products in a node: two per multiplied pair.
double product_flops(const Graph& graph, const NodeInfo& node);
// Of a product, in the time of a byte moved: a rough guess, for devices without rates.
inline constexpr double kFlopsPerByte = 64;

// The bytes that a kernel of the node must read and write at least, if updates are in place. If the
// record has no such slot, those of operands and outputs.
double least_bytes(const Graph& graph, const NodeInfo& node);

}  // namespace tenon::core
