// SPDX-License-Identifier: Apache-2.0
// Work along one axis of a tensor, spread over threads.
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
  if (sdk::is_nibble(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  return element_bytes(dtype);
}

// Returns f(T{}) for what adds up numbers: T stores a float dtype, or is the unsigned integer of the
// size of an integer dtype, because sums wrap alike with and without a sign. Refuses other dtypes.
template <class F>
auto with_number(std::string_view operand, tenon_dtype dtype, F&& f) {
  if (is_float(dtype)) return with_type(sdk::kFloatTypes, dtype, f);
  if (!sdk::is_integer(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  return sdk::with_size(element_bytes(dtype), f);
}

}  // namespace tenon::cpu
