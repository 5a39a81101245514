// SPDX-License-Identifier: Apache-2.0
// Numbers in memory: writes a double as one element of any dtype, and reads one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tenon/half.hpp"
#include "tenon/types.h"

namespace tenon::core {

namespace detail {
template <class T>
void store_as(void* at, double value) {
  T v;
  if constexpr (std::numeric_limits<T>::is_integer) {
    // Like the op cast: truncates toward zero, saturates; NaN gives 0.
    constexpr double lowest = static_cast<double>(std::numeric_limits<T>::lowest());
    constexpr double highest = static_cast<double>(std::numeric_limits<T>::max());
    if (std::isnan(value))
      v = 0;
    else if (value <= lowest)
      v = std::numeric_limits<T>::lowest();
    else if (value >= highest)
      v = std::numeric_limits<T>::max();
    else
      v = static_cast<T>(value);
  } else {
    v = static_cast<T>(value);
  }
  std::memcpy(at, &v, sizeof v);
}
template <class T>
double load_as(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return static_cast<double>(v);
}
}  // namespace detail

// Writes one element of a dtype of whole bytes. Returns false for an unknown dtype.
inline bool store_number(tenon_dtype t, void* at, double value) {
  switch (t) {
    case TENON_DTYPE_F32:
      detail::store_as<float>(at, value);
      return true;
    case TENON_DTYPE_F64:
      detail::store_as<double>(at, value);
      return true;
    case TENON_DTYPE_F16:
      detail::store_as<F16>(at, value);
      return true;
    case TENON_DTYPE_BF16:
      detail::store_as<BF16>(at, value);
      return true;
    case TENON_DTYPE_I8:
      detail::store_as<int8_t>(at, value);
      return true;
    case TENON_DTYPE_I16:
      detail::store_as<int16_t>(at, value);
      return true;
    case TENON_DTYPE_I32:
      detail::store_as<int32_t>(at, value);
      return true;
    case TENON_DTYPE_I64:
      detail::store_as<int64_t>(at, value);
      return true;
    case TENON_DTYPE_U8:
      detail::store_as<uint8_t>(at, value);
      return true;
    case TENON_DTYPE_U16:
      detail::store_as<uint16_t>(at, value);
      return true;
    case TENON_DTYPE_U32:
      detail::store_as<uint32_t>(at, value);
      return true;
    case TENON_DTYPE_U64:
      detail::store_as<uint64_t>(at, value);
      return true;
    case TENON_DTYPE_BOOL:
      *static_cast<uint8_t*>(at) = value != 0;
      return true;
    case TENON_DTYPE_C64:  // a real number
      detail::store_as<float>(at, value);
      detail::store_as<float>(static_cast<char*>(at) + sizeof(float), 0);
      return true;
    case TENON_DTYPE_C128:
      detail::store_as<double>(at, value);
      detail::store_as<double>(static_cast<char*>(at) + sizeof(double), 0);
      return true;
    default:
      return false;
  }
}
// Returns false for complex numbers.
inline bool load_number(tenon_dtype t, const void* at, double* out) {
  switch (t) {
    case TENON_DTYPE_F32:
      *out = detail::load_as<float>(at);
      return true;
    case TENON_DTYPE_F64:
      *out = detail::load_as<double>(at);
      return true;
    case TENON_DTYPE_F16:
      *out = detail::load_as<F16>(at);
      return true;
    case TENON_DTYPE_BF16:
      *out = detail::load_as<BF16>(at);
      return true;
    case TENON_DTYPE_I8:
      *out = detail::load_as<int8_t>(at);
      return true;
    case TENON_DTYPE_I16:
      *out = detail::load_as<int16_t>(at);
      return true;
    case TENON_DTYPE_I32:
      *out = detail::load_as<int32_t>(at);
      return true;
    case TENON_DTYPE_I64:
      *out = detail::load_as<int64_t>(at);
      return true;
    case TENON_DTYPE_U8:
      *out = detail::load_as<uint8_t>(at);
      return true;
    case TENON_DTYPE_U16:
      *out = detail::load_as<uint16_t>(at);
      return true;
    case TENON_DTYPE_U32:
      *out = detail::load_as<uint32_t>(at);
      return true;
    case TENON_DTYPE_U64:
      *out = detail::load_as<uint64_t>(at);
      return true;
    case TENON_DTYPE_BOOL:
      *out = detail::load_as<uint8_t>(at);
      return true;
    default:
      return false;
  }
}

}  // namespace tenon::core
