// SPDX-License-Identifier: Apache-2.0
// A tensor seen along one axis, [outer, length, inner], and the checks that ops with an axis share.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

struct AxisView {
  int axis = 0;
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
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

// Bytes of one element; dtypes that share a byte are not moved element by element.
inline int64_t element_bytes(std::string_view operand, tenon_dtype dtype) {
  if (dtype == TENON_DTYPE_I4 || dtype == TENON_DTYPE_U4) throw sdk::Refusal::dtype(operand, dtype);
  return static_cast<int64_t>(tenon_dense_bytes(dtype, 1));
}

inline bool is_float(tenon_dtype t) {
  return t == TENON_DTYPE_F32 || t == TENON_DTYPE_F16 || t == TENON_DTYPE_BF16 ||
         t == TENON_DTYPE_F64;
}

}  // namespace tenon::cpu
