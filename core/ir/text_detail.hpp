// SPDX-License-Identifier: Apache-2.0
// Shared by the printer and the parser of the text form.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "base/number.hpp"
#include "ir/type.hpp"

namespace tenon::core::text_detail {

// Words with a meaning in the grammar; not allowed as identifiers.
inline bool is_reserved(std::string_view word) {
  constexpr std::string_view words[] = {"_",         "graph", "symbols",   "input",
                                        "weight",    "state", "const",     "output",
                                        "trainable", "clone", "recompute", "update"};
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// Dtypes whose constants may be written as lists of numbers.
inline bool lists(DType t) { return is_float(t) || is_integer(t) || t == kBool; }

// Reads one element from its text. Returns false if the text is not a number of that dtype.
inline bool read_element(DType t, std::string_view text, std::byte* at) {
  const char* end = text.data() + text.size();
  if (is_float(t)) {
    double v = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, v);
    return error == std::errc() && stop == end && store_number(t, at, v);
  }
  const uint32_t bits = t == kBool ? 1 : tenon_dtype_bits(t);
  if (is_integer(t) && t <= kI64) {
    int64_t v = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, v);
    const int64_t most = INT64_MAX >> (64 - bits);
    if (error != std::errc() || stop != end || v > most || v < -most - 1) return false;
    std::memcpy(at, &v, bits / 8);  // little-endian: the low bytes
  } else {
    uint64_t v = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, v);
    if (error != std::errc() || stop != end || v > UINT64_MAX >> (64 - bits)) return false;
    std::memcpy(at, &v, t == kBool ? 1 : bits / 8);
  }
  return true;
}

}  // namespace tenon::core::text_detail
