// SPDX-License-Identifier: Apache-2.0
// A builder of fused bodies, and the parts of the fused family's cases.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

// A body under construction; its constants have the case's dtype.
struct BodyBuilder {
  explicit BodyBuilder(CaseBuilder& b) : b(b) {}
  CaseBuilder& b;
  Graph graph{"body"};
  int inputs = 0, outputs = 0;

  Value in(Value operand) {
    return graph.input("in" + std::to_string(inputs++), b.graph().type(operand));
  }
  Value number(double x) {
    HostTensor t({b.dtype(), {}});
    t.set_real(0, x);
    return graph.constant(t.type, t.bytes.data(), t.bytes.size());
  }
  Value binary(const char* kind, Value x, Value y) {
    return graph.add(op::binary{.kind = kind, .a = x, .b = y});
  }
  Value unary(const char* kind, Value x) { return graph.add(op::unary{.kind = kind, .x = x}); }
  Value compare(const char* kind, Value x, Value y) {
    return graph.add(op::compare{.kind = kind, .a = x, .b = y});
  }
  Value where(Value cond, Value x, Value y) {
    return graph.add(op::where{.cond = cond, .a = x, .b = y});
  }
  Value reduce(const char* kind, Value x, Dims axes, bool keepdims = false) {
    return graph.add(
        op::reduce{.kind = kind, .axes = std::move(axes), .keepdims = keepdims, .x = x});
  }
  void out(Value v) { graph.output("out" + std::to_string(outputs++), v); }
  Node fused(std::vector<Value> operands) {
    return b.add(op::elementwise_region{
        .body = graph, .xs = std::move(operands), .count_ys = static_cast<size_t>(outputs)});
  }
};

void fused_quantized_rows(Suite& s);

}  // namespace tenon::conform
