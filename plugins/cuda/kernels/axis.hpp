// SPDX-License-Identifier: Apache-2.0
// A tensor seen along one axis, [outer, length, inner].
#pragma once

#include <string>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

struct AxisView {
  int axis = 0;
  int64_t outer = 1, length = 1, inner = 1;

  int64_t count() const { return outer * inner; }  // of lines along it
};

// axis in [-rank, rank); a scalar has none.
inline AxisView along_axis(const sdk::Type& type, int64_t axis) {
  if (axis < -type.rank || axis >= type.rank)
    throw sdk::Refusal(TENON_REASON_ATTRIBUTE, "attribute axis=" + std::to_string(axis) +
                                                   " is outside rank " + std::to_string(type.rank));
  AxisView v;
  v.axis = static_cast<int>(axis < 0 ? axis + type.rank : axis);
  for (int i = 0; i < v.axis; ++i) v.outer *= type.dims[i];
  v.length = type.dims[v.axis];
  for (int i = v.axis + 1; i < type.rank; ++i) v.inner *= type.dims[i];
  return v;
}

}  // namespace tenon::cuda
