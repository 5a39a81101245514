// SPDX-License-Identifier: Apache-2.0
// Fused nodes: elementwise_region and batch_elementwise_region. Limits of a body, and helpers for
// passes that write bodies.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

inline constexpr size_t kFusedInputs = 16, kFusedOutputs = 4, kFusedSteps = 64;

// The op elementwise_region and its attributes.
const OpRecord& fused_record();
Attrs fused_attrs(FunctionAttr body);

// The op batch_elementwise_region and its attributes.
const OpRecord& batch_fused_record();
Attrs batch_fused_attrs(FunctionAttr body, size_t sets);

// Returns v rounded to its dtype by one more step, or v if it needs no rounding. Steps see
// half-precision values in wider form; separate nodes see them rounded.
Value rounded_step(Graph& body, Value v);
// Steps that a node needs, including the rounding of its result.
size_t step_count(const OpRecord* op, const Type& result);

// Can the node be a step of a body? It is elementwise, or it is quantize or dequantize with constants
// of one number, of at least 8 bits, as scale and zero point.
bool can_be_step(const Graph& g, const NodeInfo& node);

// The shape D to which all steps broadcast. Each output has it, and so has the operand of the
// reduction.
Shape fused_shape(const Graph& body);

}  // namespace tenon::core
