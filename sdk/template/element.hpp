// SPDX-License-Identifier: Apache-2.0
// Elements of each dtype, rounded. Floats are computed in double and rounded once; integers in their
// own type, where they wrap.
#pragma once

#include <tenon/shapes.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

namespace tenon::sample {

using namespace tenon::sdk;

template <class T>
inline constexpr bool kIsNibble = std::same_as<T, I4> || std::same_as<T, U4>;

template <class T>
inline constexpr bool kIsFloat =
    std::floating_point<T> || std::same_as<T, F16> || std::same_as<T, BF16>;
template <class T>
inline constexpr bool kIsInt = std::integral<T>;

// 2^exponent for the exponents of normal doubles; std::ldexp() would be a call per element.
constexpr double two_to(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// A float of 1 + exponent + mantissa bits. long double holds every double and every integer of 64
// bits exactly, so that there is one rounding whatever x was made from.
template <int exponent_bits, int mantissa_bits>
uint16_t encode(long double x) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint16_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  if (std::isnan(x)) return sign | infinity | 1 << (mantissa_bits - 1);
  const long double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  if (std::isinf(x) || std::ilogb(magnitude) > bias) return sign | infinity;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const auto steps = static_cast<int>(std::nearbyint(magnitude * two_to(mantissa_bits - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + bias - 1) << mantissa_bits) + steps));
}

template <int exponent_bits, int mantissa_bits>
double decode(uint16_t bits) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits,
            mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude;
  if (exponent == top) {
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = mantissa * two_to(1 - bias - mantissa_bits);
  } else {
    magnitude = (mantissa + (1 << mantissa_bits)) * two_to(exponent - bias - mantissa_bits);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The 8-bit floats. e4m3 has no infinity and one NaN, its topmost code. What is too large becomes
// the largest number with `saturate`, else infinity, or NaN where there is none.
template <int exponent_bits, bool has_infinity>
struct F8 {
  static constexpr int kMantissa = 7 - exponent_bits, kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr uint8_t kNan = 0x7F, kInfinity = has_infinity ? 0x7C : kNan,
                           kLargest = has_infinity ? 0x7B : 0x7E;

  static double decode(uint8_t bits) {
    const int code = bits & 0x7F, exponent = code >> kMantissa;
    const int mantissa = code & ((1 << kMantissa) - 1);
    double magnitude = exponent == 0
                           ? mantissa * two_to(1 - kBias - kMantissa)
                           : (mantissa + (1 << kMantissa)) * two_to(exponent - kBias - kMantissa);
    if (code > kLargest)
      magnitude = has_infinity && code == kInfinity ? std::numeric_limits<double>::infinity()
                                                    : std::numeric_limits<double>::quiet_NaN();
    return bits & 0x80 ? -magnitude : magnitude;
  }
  static uint8_t encode(long double x, bool saturate) {
    const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
    if (std::isnan(x)) return sign | kNan;
    const long double magnitude = std::fabs(x);
    if (magnitude == 0) return sign;
    const uint8_t over = sign | (saturate ? kLargest : kInfinity);
    if (std::isinf(x)) return over;
    const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
    if (exponent > kBias + 1) return over;
    const auto steps = static_cast<int>(std::nearbyint(magnitude * two_to(kMantissa - exponent)));
    const int code = ((exponent + kBias - 1) << kMantissa) + steps;
    return code > kLargest ? over : static_cast<uint8_t>(sign | code);
  }
};

inline double widen(F8E4M3 x) { return F8<4, false>::decode(x.bits); }
inline double widen(F8E5M2 x) { return F8<5, true>::decode(x.bits); }
inline double widen(F16 x) { return decode<5, 10>(x.bits); }
inline double widen(BF16 x) { return decode<8, 7>(x.bits); }
inline double widen(float x) { return x; }
inline double widen(double x) { return x; }
inline bool widen(Bool x) { return x.byte != 0; }
template <std::integral T>
T widen(T x) {
  return x;
}

// From double, long double, an integer or bool, as `cast` means it.
template <class T, class From>
T narrow(From x) {
  if constexpr (std::same_as<T, F16>) {
    return {encode<5, 10>(x)};
  } else if constexpr (std::same_as<T, BF16>) {
    return {encode<8, 7>(x)};
  } else if constexpr (std::same_as<T, Bool>) {
    return {static_cast<uint8_t>(x != From{})};
  } else if constexpr (kIsInt<T> &&
                       std::floating_point<From>) {  // towards zero, saturating, NaN is 0
    const From low = std::numeric_limits<T>::min(),
               past = std::ldexp(From{1}, std::numeric_limits<T>::digits);
    if (std::isnan(x)) return 0;
    if (x <= low) return std::numeric_limits<T>::min();
    return x >= past ? std::numeric_limits<T>::max() : static_cast<T>(x);
  } else {
    return static_cast<T>(x);  // integers wrap, to f32 and f64 one rounding
  }
}

// The types that kernels are chosen by (tenon/dtype.hpp): those that are computed with, those that
// have a bool besides, and all that are cast.
inline constexpr auto kNumberTypes = kFloatTypes + kIntegerTypes;
inline constexpr auto kPlainTypes = kNumberTypes + Types<Bool>{};
inline constexpr auto kCastTypes = kPlainTypes + Types<F8E4M3, F8E5M2, I4, U4>{};

}  // namespace tenon::sample
