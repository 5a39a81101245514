// SPDX-License-Identifier: Apache-2.0
// What the host hands to kernel texts: names of dtypes, defines; structs are in device/arguments.cuh.
#pragma once

#include <cstdint>
#include <string>

#include "device/arguments.cuh"
#include "tenon/axis.hpp"

namespace tenon::cuda {

using sdk::acc_dtype;
using sdk::along_axis;
using sdk::AxisView;
using sdk::element_bytes;
using sdk::is_float;
using sdk::is_half;
using sdk::is_integer;
using sdk::is_nibble;

// The type's name in device text; refuses those of less than a byte, as operand `name`.
inline std::string type_name(std::string_view name, tenon_dtype t) {
  if (is_nibble(t) || t == TENON_DTYPE_NONE || t == TENON_DTYPE_C128)
    throw sdk::Refusal::dtype(name, t);
  return t == TENON_DTYPE_BOOL ? "b8" : std::string(sdk::dtype_name(t));
}

// For kernels that only move elements: refuses types of less than a byte, as operand `name`.
inline void want_bytes(std::string_view name, tenon_dtype t) {
  if (is_nibble(t) || t == TENON_DTYPE_NONE) throw sdk::Refusal::dtype(name, t);
}

// How kernels that only move elements see `elements` elements of a dtype: as units of another one, if
// they are blocks.
struct Units {
  int64_t count;
  tenon_dtype dtype;
};
inline Units units_of(std::string_view name, tenon_dtype t, int64_t elements) {
  want_bytes(name, t);
  if (!sdk::is_blocks(t)) return {elements, t};
  const tenon_dtype unit = tenon_dtype_block(t).bytes % 2 == 0 ? TENON_DTYPE_U16 : TENON_DTYPE_U8;
  return {static_cast<int64_t>(tenon_dense_bytes(t, elements)) / element_bytes(unit), unit};
}

// A define of device text.
inline std::string define(const char* name, int64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

// Index math of 32 bits is right below this many elements.
inline constexpr int64_t kNarrowIndex = int64_t{1} << 31;

// Blocks of a launch; refuses more than one can have.
inline int64_t launchable(int64_t blocks) {
  if (blocks >= kNarrowIndex) throw sdk::Refusal::shape("more than 2^31 blocks for one kernel");
  return blocks;
}

using args::Divisor;

}  // namespace tenon::cuda
