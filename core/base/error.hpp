// SPDX-License-Identifier: Apache-2.0
// The exception of the host, and functions to word it: fail(Code::shape_mismatch, "rms_norm:
// operand gamma: ", ...).
#pragma once

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "tenon/types.h"

namespace tenon::core {

enum class Code : tenon_code {
  ok = TENON_OK,
  invalid_argument = TENON_INVALID_ARGUMENT,
  shape_mismatch = TENON_SHAPE_MISMATCH,
  dtype_mismatch = TENON_DTYPE_MISMATCH,
  unsupported = TENON_UNSUPPORTED,
  index_out_of_range = TENON_INDEX_OUT_OF_RANGE,
  numeric_error = TENON_NUMERIC_ERROR,
  out_of_memory = TENON_OUT_OF_MEMORY,
  not_found = TENON_NOT_FOUND,
  io_error = TENON_IO_ERROR,
  corrupt = TENON_CORRUPT,
  incompatible = TENON_INCOMPATIBLE,
  undefined_state = TENON_UNDEFINED_STATE,
  device_lost = TENON_DEVICE_LOST,
  cancelled = TENON_CANCELLED,
  internal = TENON_INTERNAL,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

namespace detail {
inline void append(std::string& to, std::string_view part) { to += part; }
template <class Scalar>
requires std::is_arithmetic_v<Scalar>
void append(std::string& to, Scalar part) {
  if constexpr (std::is_same_v<Scalar, bool>) {
    to += part ? "true" : "false";
  } else if constexpr (std::is_same_v<Scalar, char>) {
    to += part;
  } else {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, part).ptr;
    to.append(text, end);
  }
}
}  // namespace detail

// Concatenates strings, characters and numbers.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

template <class... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  throw Error(code, cat(parts...));
}

// For conditions that only a bug of tenon can violate.
template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) throw Error(Code::internal, cat(parts...));
}

}  // namespace tenon::core
