// SPDX-License-Identifier: Apache-2.0
// Numbers in memory: converts f16 and bf16 from and to double, and one element of any dtype to a
// double.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tenon/types.h"

namespace tenon::core {

// Rounds a double once, to nearest even. NaN stays NaN, overflow gives infinity, subnormals are
// kept. mantissa: stored bits of the fraction, which also determine the exponent.
inline uint16_t encode_half(double value, int mantissa) {
  const int exponent_bits = 15 - mantissa;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (1 << (mantissa - 1)));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place. The product is exact; nearbyint rounds half to even.
  double units = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));
  if (units >= std::ldexp(2.0, mantissa)) units /= 2, ++exponent;
  if (exponent > bias) return sign | infinity;
  const auto bits = static_cast<uint32_t>(units);
  const uint32_t hidden = 1u << mantissa;
  if (bits < hidden) return static_cast<uint16_t>(sign | bits);  // subnormal
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent + bias) << mantissa) |
                               (bits - hidden));
}
inline double decode_half(uint16_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa) - 1);
  double v;
  if (exponent == (1 << exponent_bits) - 1)
    v = fraction ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    v = std::ldexp(fraction, 1 - bias - mantissa);
  else
    v = std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  return bits & 0x8000 ? -v : v;
}
inline uint16_t encode_f16(double v) { return encode_half(v, 10); }
inline double decode_f16(uint16_t v) { return decode_half(v, 10); }
inline uint16_t encode_bf16(double v) { return encode_half(v, 7); }
inline double decode_bf16(uint16_t v) { return decode_half(v, 7); }

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
  uint16_t half;
  switch (t) {
    case TENON_DTYPE_F32:
      detail::store_as<float>(at, value);
      return true;
    case TENON_DTYPE_F64:
      detail::store_as<double>(at, value);
      return true;
    case TENON_DTYPE_F16:
      half = encode_f16(value);
      std::memcpy(at, &half, 2);
      return true;
    case TENON_DTYPE_BF16:
      half = encode_bf16(value);
      std::memcpy(at, &half, 2);
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
    default:
      return false;
  }
}
inline bool load_number(tenon_dtype t, const void* at, double* out) {
  uint16_t half;
  switch (t) {
    case TENON_DTYPE_F32:
      *out = detail::load_as<float>(at);
      return true;
    case TENON_DTYPE_F64:
      *out = detail::load_as<double>(at);
      return true;
    case TENON_DTYPE_F16:
      std::memcpy(&half, at, 2);
      *out = decode_f16(half);
      return true;
    case TENON_DTYPE_BF16:
      std::memcpy(&half, at, 2);
      *out = decode_bf16(half);
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
