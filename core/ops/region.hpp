// SPDX-License-Identifier: Apache-2.0
// What a body of a region may be, for who makes one: at most so many inputs, outputs and steps.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

inline constexpr size_t kRegionInputs = 16, kRegionOutputs = 4, kRegionSteps = 64;

// The op elementwise_region and its attributes.
const OpRecord& region_record();
Attrs region_attrs(FunctionAttr body);

// The op batch_elementwise_region and its attributes.
const OpRecord& batch_region_record();
Attrs batch_region_attrs(FunctionAttr body, size_t sets);

// A step of a body sees halves wider than they are; through this one it sees them rounded, as the
// nodes one by one do. v itself where it has no more digits than its dtype.
Value rounded_step(Graph& body, Value v);
// Steps that a node and its rounding may take.
size_t step_count(const OpRecord* op, const Type& result);

// The shape D that all steps broadcast to; outputs and what is reduced have it.
Shape region_shape(const Graph& body);

}  // namespace tenon::core
