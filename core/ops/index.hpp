// SPDX-License-Identifier: Apache-2.0
// What the families index, index_elements and scatter_reduce share.
#pragma once

#include <string>
#include <string_view>

#include "ops/record.hpp"

namespace tenon::core {

// ---- slices along an axis (index.cpp)

// The shape of data with the axis replaced by the axes of indices.
Shape picked(const Infer& i, const Shape& data, int axis, const Shape& indices);
// The shape rule of writing slices `updates` into `base` along an axis.
template <class Op>
void want_slices(Infer& i, const Op& n) {
  const Shape& base = i.shape(n.base);
  const int axis = i.axis(n.axis, base.rank());
  want_reachable(i, base[axis], n.indices, n.oob);
  i.want_shape(n.updates, "updates", picked(i, base, axis, i.shape(n.indices)));
  i.out(0, i.type(n.base));
}
// One list of indices for a batch of examples, or one for each of them, as those of gather_elements:
// of the rank of `data`, and as long as `data` except at the axis.
Value spread_indices(Batch& v, Value indices, const Shape& data, int axis);
// A node whose indices are the same for all examples; false if they are not.
template <class Op>
bool indexed_batch(Batch& v, const Op& one) {
  if (v.batched(one.indices)) return false;
  Op n = one;
  n.axis = Batch::axis(n.axis);
  return v.add(n, [&](Value x) { return x == one.indices ? v.given(x) : v.all(x); });
}

// ---- one index per element (index_elements.cpp)

// indices have the rank of `whole` and, off the axis, at most its length. Returns the axis.
int want_element_indices(const Infer& i, const Shape& whole, std::string_view operand,
                         Value indices, int64_t axis, const std::string& oob);
// Positions of the indexed elements in the flattened `whole`, as i64. Indices out of range give
// positions out of range; with clamp they are clamped first.
Value flat_positions(Builder& b, const Shape& whole, Value indices, int axis,
                     const std::string& oob);
// The policy that remains after clamping.
inline std::string flat_policy(const std::string& oob) { return oob == "skip" ? oob : "error"; }

}  // namespace tenon::core
