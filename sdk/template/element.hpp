// SPDX-License-Identifier: Apache-2.0
// Dtypes as C++ types, and the choice of one at make time. Floats are computed in double and
// rounded once; integers in their own type, where they wrap.
#pragma once

#include <tenon/kernel.hpp>

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

namespace tenon::sample {

using namespace tenon::sdk;

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};
// Only cast and moved: the 8-bit floats and, two in a byte, the 4-bit integers.
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};
struct I4 {};
struct U4 {};
template <class T>
inline constexpr bool kIsNibble = std::same_as<T, I4> || std::same_as<T, U4>;

template <class T>
inline constexpr bool kIsFloat =
    std::floating_point<T> || std::same_as<T, F16> || std::same_as<T, BF16>;
template <class T>
inline constexpr bool kIsInt = std::integral<T>;

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
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
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
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
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
                           ? std::ldexp(mantissa, 1 - kBias - kMantissa)
                           : std::ldexp(mantissa + (1 << kMantissa), exponent - kBias - kMantissa);
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
    const auto steps =
        static_cast<int>(std::nearbyint(std::ldexp(magnitude, kMantissa - exponent)));
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

template <class T>
constexpr tenon_dtype dtype_of() {
  if constexpr (std::same_as<T, F16>) return TENON_DTYPE_F16;
  if constexpr (std::same_as<T, BF16>) return TENON_DTYPE_BF16;
  if constexpr (std::same_as<T, float>) return TENON_DTYPE_F32;
  if constexpr (std::same_as<T, double>) return TENON_DTYPE_F64;
  if constexpr (std::same_as<T, int8_t>) return TENON_DTYPE_I8;
  if constexpr (std::same_as<T, int16_t>) return TENON_DTYPE_I16;
  if constexpr (std::same_as<T, int32_t>) return TENON_DTYPE_I32;
  if constexpr (std::same_as<T, int64_t>) return TENON_DTYPE_I64;
  if constexpr (std::same_as<T, uint8_t>) return TENON_DTYPE_U8;
  if constexpr (std::same_as<T, uint16_t>) return TENON_DTYPE_U16;
  if constexpr (std::same_as<T, uint32_t>) return TENON_DTYPE_U32;
  if constexpr (std::same_as<T, uint64_t>) return TENON_DTYPE_U64;
  if constexpr (std::same_as<T, Bool>) return TENON_DTYPE_BOOL;
  if constexpr (std::same_as<T, F8E4M3>) return TENON_DTYPE_F8E4M3;
  if constexpr (std::same_as<T, F8E5M2>) return TENON_DTYPE_F8E5M2;
  if constexpr (std::same_as<T, I4>) return TENON_DTYPE_I4;
  if constexpr (std::same_as<T, U4>) return TENON_DTYPE_U4;
}

// make(T{}) for the T among Ts that is dtype d; none is a refusal.
template <class... Ts, class Make>
Kernel choose(const char* operand, tenon_dtype d, const Make& make) {
  Kernel kernel;
  if (!((d == dtype_of<Ts>() && (kernel = make(Ts{}), true)) || ...))
    throw Refusal::dtype(operand, d);
  return kernel;
}
template <class Make>
Kernel choose_float(const char* operand, tenon_dtype d, const Make& make) {
  return choose<F16, BF16, float, double>(operand, d, make);
}
template <class Make>
Kernel choose_int(const char* operand, tenon_dtype d, const Make& make) {
  return choose<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>(operand,
                                                                                          d, make);
}
template <class Make>
Kernel choose_any(const char* operand, tenon_dtype d, const Make& make) {
  return choose<F16, BF16, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                uint32_t, uint64_t, Bool>(operand, d, make);
}
template <class Make>
Kernel choose_cast(const char* operand, tenon_dtype d, const Make& make) {
  return choose<F16, BF16, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                uint32_t, uint64_t, Bool, F8E4M3, F8E5M2, I4, U4>(operand, d, make);
}
inline bool is_float(tenon_dtype d) {
  return d == TENON_DTYPE_F16 || d == TENON_DTYPE_BF16 || d == TENON_DTYPE_F32 ||
         d == TENON_DTYPE_F64;
}

// make(uint8_t{}), uint16_t, uint32_t or uint64_t by size: for ops that only move elements.
template <class Make>
Kernel choose_bits(const char* operand, tenon_dtype d, const Make& make) {
  switch (tenon_dtype_bits(d)) {
    case 8:
      return make(uint8_t{});
    case 16:
      return make(uint16_t{});
    case 32:
      return make(uint32_t{});
    case 64:
      return make(uint64_t{});
    default:
      throw Refusal::dtype(operand, d);
  }
}

}  // namespace tenon::sample
