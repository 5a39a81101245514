// SPDX-License-Identifier: Apache-2.0
// Rounds a number of an attribute to the bytes of one element.
#include "convert.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tenon/kernel.hpp"

namespace tenon::cuda {
namespace {

template <class T>
std::array<uint8_t, 8> bytes_of(T v) {
  std::array<uint8_t, 8> b{};
  std::memcpy(b.data(), &v, sizeof v);
  return b;
}

template <class T>
std::array<uint8_t, 8> saturated(double x) {
  using Limits = std::numeric_limits<T>;
  if (!(x > static_cast<double>(Limits::lowest())))
    return bytes_of(x != x ? T{0} : Limits::lowest());
  return bytes_of(x >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(x));
}

// The nearest float with `mantissa` bits and exponents from `least`, ties to even, as its bits.
uint16_t half_bits(double x, int mantissa, int least, int bias) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const int infinity = (2 * bias + 1) << mantissa;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | infinity | 1 << (mantissa - 1));
  const double a = std::fabs(x);
  if (std::isinf(a)) return static_cast<uint16_t>(sign | infinity);
  if (a == 0) return sign;
  const int exponent = std::max(std::ilogb(a), least);
  // In units of the last place; a carry into the next power of two is right in the bits as well.
  const double units = std::nearbyint(std::ldexp(a, mantissa - exponent));
  const int bits = ((exponent - least) << mantissa) + static_cast<int>(units);
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

}  // namespace

std::array<uint8_t, 8> constant_bytes(std::string_view operand, tenon_dtype dtype, double v) {
  switch (dtype) {
    case TENON_DTYPE_F32:
      return bytes_of(static_cast<float>(v));
    case TENON_DTYPE_F64:
      return bytes_of(v);
    case TENON_DTYPE_F16:
      return bytes_of(half_bits(v, 10, -14, 15));
    case TENON_DTYPE_BF16:
      return bytes_of(half_bits(v, 7, -126, 127));
    case TENON_DTYPE_I8:
      return saturated<int8_t>(v);
    case TENON_DTYPE_I16:
      return saturated<int16_t>(v);
    case TENON_DTYPE_I32:
      return saturated<int32_t>(v);
    case TENON_DTYPE_I64:
      return saturated<int64_t>(v);
    case TENON_DTYPE_U8:
      return saturated<uint8_t>(v);
    case TENON_DTYPE_U16:
      return saturated<uint16_t>(v);
    case TENON_DTYPE_U32:
      return saturated<uint32_t>(v);
    case TENON_DTYPE_U64:
      return saturated<uint64_t>(v);
    case TENON_DTYPE_BOOL:
      return bytes_of(static_cast<uint8_t>(v != 0));
    default:
      if (v != 0) throw sdk::Refusal::dtype(operand, dtype);
      return {};
  }
}

}  // namespace tenon::cuda
