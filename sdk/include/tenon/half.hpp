// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 as C++ types, for the memory of an app: std::vector<tenon::F16>. They convert from
// and to float, and round once, to nearest even: overflow gives infinity, subnormals are kept, NaN
// stays NaN. They have the size and the bits of the dtypes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tenon {

namespace detail {
// The nearest float, but a result that was rounded has an odd last bit. So a second rounding to
// fewer bits gives what one rounding of the number gives.
inline float round_to_odd(double d) {
  const auto f = static_cast<float>(d);
  const auto back = static_cast<double>(f);
  if (back == d || std::isnan(d)) return f;
  auto bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(back) > std::fabs(d)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <class T>
requires std::is_integral_v<T>
float round_to_odd(T number) {
  const bool negative = std::is_signed_v<T> && number < 0;
  uint64_t bits = negative ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  // A double holds 53 bits. Bit 11 tells whether there was a bit below it.
  if (bits >> 53) bits = (bits | (bits & 0x7ff ? 0x800 : 0)) & ~uint64_t{0x7ff};
  const auto magnitude = static_cast<double>(bits);
  return round_to_odd(negative ? -magnitude : magnitude);
}

inline uint16_t f16_bits(float f) {
  const auto all = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(all >> 16 & 0x8000);
  uint32_t bits = all & 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;   // NaN
  if (bits >= 0x477ff000) return sign | 0x7c00;  // from 65520 on, halfway to the next: infinity
  if (bits < 0x38800000) {
    // Below the least normal number. The sum with .5 has units of 2^-24, as the result has.
    const auto sum = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | (bits - 0x38000000) >> 13);
}
inline float f16_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 0) {
    const auto magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
    return std::bit_cast<float>(sign | magnitude);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline uint16_t bf16_bits(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
}  // namespace detail

struct F16 {
  uint16_t bits = 0;
  F16() = default;
  F16(float value) : bits(detail::f16_bits(value)) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::is_arithmetic_v<T> F16(T value)  // NOLINT: likewise
      : F16(detail::round_to_odd(value)) {}
  operator float() const { return detail::f16_value(bits); }  // NOLINT: likewise
  F16& operator+=(float x) { return *this = F16(*this + x); }
  F16& operator-=(float x) { return *this = F16(*this - x); }
  F16& operator*=(float x) { return *this = F16(*this * x); }
  F16& operator/=(float x) { return *this = F16(*this / x); }
  static F16 from_bits(uint16_t bits) {
    F16 x;
    x.bits = bits;
    return x;
  }
};

struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  BF16(float value) : bits(detail::bf16_bits(value)) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::is_arithmetic_v<T> BF16(T value)  // NOLINT: likewise
      : BF16(detail::round_to_odd(value)) {}
  operator float() const { return detail::bf16_value(bits); }  // NOLINT: likewise
  BF16& operator+=(float x) { return *this = BF16(*this + x); }
  BF16& operator-=(float x) { return *this = BF16(*this - x); }
  BF16& operator*=(float x) { return *this = BF16(*this * x); }
  BF16& operator/=(float x) { return *this = BF16(*this / x); }
  static BF16 from_bits(uint16_t bits) {
    BF16 x;
    x.bits = bits;
    return x;
  }
};

static_assert(sizeof(F16) == 2 && std::is_trivially_copyable_v<F16>);
static_assert(sizeof(BF16) == 2 && std::is_trivially_copyable_v<BF16>);

}  // namespace tenon

// The limits of both: constants of the format, and numbers by their bits.
#define TENON_HALF_LIMITS(T, stored_bits, most_exponent, infinity_bits)                     \
  template <>                                                                               \
  struct std::numeric_limits<T> {                                                           \
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false,      \
                          is_exact = false, has_infinity = true, has_quiet_NaN = true,      \
                          is_iec559 = true, is_bounded = true, is_modulo = false;           \
    static constexpr int digits = stored_bits + 1, radix = 2, max_exponent = most_exponent, \
                         min_exponent = 3 - most_exponent;                                  \
    static T min() { return T::from_bits(1 << stored_bits); }                               \
    static T max() { return T::from_bits(infinity_bits - 1); }                              \
    static T lowest() { return T::from_bits(0x8000 | (infinity_bits - 1)); }                \
    static T epsilon() { return T(std::ldexp(1.0f, -stored_bits)); }                        \
    static T denorm_min() { return T::from_bits(1); }                                       \
    static T infinity() { return T::from_bits(infinity_bits); }                             \
    static T quiet_NaN() { return T::from_bits(infinity_bits | 1 << (stored_bits - 1)); }   \
  };
TENON_HALF_LIMITS(tenon::F16, 10, 16, 0x7c00)
TENON_HALF_LIMITS(tenon::BF16, 7, 128, 0x7f80)
#undef TENON_HALF_LIMITS
