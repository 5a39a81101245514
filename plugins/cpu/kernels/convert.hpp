// SPDX-License-Identifier: Apache-2.0
// Storage types of half-precision floats, and conversion to and from float, one by one and in bulk.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tenon/dtype.hpp"

namespace tenon::cpu {

using sdk::acc_dtype;
using sdk::element_bytes;
using sdk::F16;
using sdk::is_float;
using sdk::is_half;
using Bf16 = sdk::BF16;

inline float to_float(Bf16 h) { return std::bit_cast<float>(uint32_t{h.bits} << 16); }
inline float to_float(F16 h) {
  const uint32_t magnitude = h.bits & 0x7FFFu, sign = uint32_t{h.bits} >> 15 << 31;
  if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | magnitude << 13);
  // An exact product changes the exponent's bias, for subnormals too.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
inline float to_float(float x) { return x; }

// Rounds to nearest, ties to even. NaN stays NaN.
inline Bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7FFFu + (u >> 16 & 1)) >> 16)};
}
inline F16 to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 16 & 0x8000u,
                 magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return {static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu))};
  if (magnitude >= 0x477FF000u)
    return {static_cast<uint16_t>(sign | 0x7C00u)};  // 2^16 and above rounds to infinity
  if (magnitude <
      0x38800000u) {  // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u))};
  }
  return {static_cast<uint16_t>(
      sign | ((magnitude + 0xFFFu + (magnitude >> 13 & 1) - 0x38000000u) >> 13))};
}
inline void from_float(float x, float* to) { *to = x; }
inline void from_float(float x, Bf16* to) { *to = to_bf16(x); }
inline void from_float(float x, F16* to) { *to = to_f16(x); }

// Calls f(T{}) with the storage type of f32, f16 or bf16.
template <class F>
void with_f32_or_half(tenon_dtype t, const F& f) {
  if (t == TENON_DTYPE_F32) return f(float{});
  if (t == TENON_DTYPE_F16) return f(F16{});
  f(Bf16{});
}

// Rounds to odd: the float that rounds to the same f16 or bf16 as x.
inline float round_to_odd(double x) {
  const float f = static_cast<float>(x);
  if (std::isnan(f) || static_cast<double>(f) == x) return f;
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if (u & 1) return f;
  // f is even and differs from x, so the neighbour towards x is odd. For infinity, that is the
  // largest finite float.
  return std::bit_cast<float>(std::fabs(static_cast<double>(f)) > std::fabs(x) ? u - 1 : u + 1);
}

// Rounds x once to a float type.
template <class T>
T round_once(double x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(x);
  } else {
    T y;
    from_float(round_to_odd(x), &y);
    return y;
  }
}

// Converts n elements of dtype f32, f16 or bf16.
void widen(tenon_dtype from, const void* x, float* y, int64_t n);
void narrow(tenon_dtype to, const float* x, void* y, int64_t n);

}  // namespace tenon::cpu
