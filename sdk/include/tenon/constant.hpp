// SPDX-License-Identifier: Apache-2.0
//
// Converts the number of an attribute to an element of any dtype, for kernels that write it (for
// example the border of pad). Floats round to nearest even; integers truncate and saturate; NaN
// becomes 0.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "half.hpp"
#include "kernel.hpp"

namespace tenon::sdk {

namespace layer {
template <class T>
T element_from(double x) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_same_v<T, F16>) return {tenon::F16(x).bits};
  if constexpr (std::is_same_v<T, BF16>) return {tenon::BF16(x).bits};
  if constexpr (std::is_same_v<T, Bool>) return {static_cast<uint8_t>(x != 0)};
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(x)) return 0;
    if (x <= static_cast<double>(Limits::lowest())) return Limits::lowest();
    return x >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(x);
  }
}
}  // namespace layer

// Returns the bytes of one element; surplus bytes are 0. Dtypes without arithmetic accept only 0;
// other numbers are refused as operand `operand`.
inline std::array<uint8_t, 8> constant_bytes(std::string_view operand, tenon_dtype t, double x) {
  std::array<uint8_t, 8> bytes{};
  if (x == 0 && !is_float(t)) return bytes;
  with_type(kFloatTypes + kIntegerTypes + Types<Bool>{}, operand, t, [&]<class T>(T) {
    const T element = layer::element_from<T>(x);
    std::memcpy(bytes.data(), &element, sizeof element);
  });
  return bytes;
}

}  // namespace tenon::sdk
