// SPDX-License-Identifier: Apache-2.0
// What the host hands to kernel texts: names of dtypes, defines; structs are in device/arguments.cuh.
#pragma once

#include <cstdint>
#include <string>

#include "device/arguments.cuh"
#include "tenon/kernel.hpp"

namespace tenon::cuda {

// Two of these share a byte.
inline bool is_nibble(tenon_dtype t) { return t == TENON_DTYPE_I4 || t == TENON_DTYPE_U4; }

// The type's name in device text; refuses those of less than a byte, as operand `name`.
inline std::string type_name(std::string_view name, tenon_dtype t) {
  if (is_nibble(t) || t == TENON_DTYPE_NONE) throw sdk::Refusal::dtype(name, t);
  return t == TENON_DTYPE_BOOL ? "b8" : std::string(sdk::dtype_name(t));
}
inline int64_t type_bytes(tenon_dtype t) { return tenon_dtype_bits(t) / 8; }

inline bool is_half(tenon_dtype t) { return t == TENON_DTYPE_F16 || t == TENON_DTYPE_BF16; }
inline bool is_float(tenon_dtype t) {
  return t == TENON_DTYPE_F32 || t == TENON_DTYPE_F64 || is_half(t);
}
inline bool is_integer(tenon_dtype t) { return t >= TENON_DTYPE_I8 && t <= TENON_DTYPE_U64; }
// The dtype that sums are in.
inline tenon_dtype acc_dtype(tenon_dtype t) {
  return is_half(t) ? tenon_dtype{TENON_DTYPE_F32} : t;
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
