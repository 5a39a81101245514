// SPDX-License-Identifier: Apache-2.0
// Parallel loops along one axis of a tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "../parallel.hpp"
#include "convert.hpp"
#include "tenon/axis.hpp"

namespace tenon::cpu {

using sdk::along_axis;
using sdk::AxisView;

// Calls body(outer, begin, end) for ranges of columns in [0, inner) of each outer index, in
// parallel. Ranges are multiples of a cache line (`line` elements). A column costs about `cost`
// (see grain_for). If inner is 1, a column is a row.
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

// Bytes per element. Refuses dtypes with several elements per byte.
inline int64_t element_bytes(std::string_view operand, tenon_dtype dtype) {
  if (sdk::is_nibble(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  return element_bytes(dtype);
}

// Bytes of `elements` that are moved together. Of a dtype of blocks, they are whole blocks.
inline int64_t row_bytes(std::string_view operand, tenon_dtype dtype, int64_t elements) {
  if (sdk::is_nibble(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  return static_cast<int64_t>(tenon_dense_bytes(dtype, elements));
}

// Returns f(T{}) for sums: T is the storage type of a float dtype, or the unsigned type of the size
// of an integer dtype, because signed and unsigned sums wrap alike. Refuses other dtypes.
template <class F>
auto with_number(std::string_view operand, tenon_dtype dtype, F&& f) {
  if (is_float(dtype)) return with_type(sdk::kFloatTypes, dtype, f);
  if (!sdk::is_integer(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  return sdk::with_size(element_bytes(dtype), f);
}

}  // namespace tenon::cpu
