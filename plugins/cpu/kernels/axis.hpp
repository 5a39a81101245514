// SPDX-License-Identifier: Apache-2.0
// A tensor seen along one axis, [outer, length, inner], and the checks that ops with an axis share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "../parallel.hpp"
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

// Calls body(outer, begin, end) for stretches of columns in [0, inner) of every outer index, on all
// threads. Columns of one cache line (`line` elements) stay together; one costs about `cost` (see
// grain_for). With inner 1 a column is a row.
template <class Body>
void for_columns(const AxisView& v, int64_t line, int64_t cost, Body&& body) {
  if (v.inner == 1) line = 1;
  const int64_t groups = (v.inner + line - 1) / line;
  parallel_for(v.outer * groups, grain_for(cost * line), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t outer = begin / groups, from = begin - outer * groups;
      const int64_t to = std::min(from + end - begin, groups);
      body(outer, from * line, std::min(to * line, v.inner));
      begin += to - from;
    }
  });
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
