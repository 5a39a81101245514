// SPDX-License-Identifier: Apache-2.0
// Values as integers that compare as the values do: NaN above all, -0 as +0. Scalars here, vectors
// in order_key-inl.h.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "convert.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// How T is stored: in an integer of its size. kInfinity is the bits of +inf for floats.
template <class T>
struct Ordered {
  using Int = std::make_signed_t<T>;
  static constexpr bool kFloat = false;
  static constexpr bool kUnsigned = std::is_unsigned_v<T>;
  static constexpr Int kInfinity = 0;
};
template <class Bits, Bits infinity>
struct OrderedFloat {
  using Int = Bits;
  static constexpr bool kFloat = true;
  static constexpr bool kUnsigned = false;
  static constexpr Int kInfinity = infinity;
};
template <>
struct Ordered<F16> : OrderedFloat<int16_t, 0x7C00> {};
template <>
struct Ordered<Bf16> : OrderedFloat<int16_t, 0x7F80> {};
template <>
struct Ordered<float> : OrderedFloat<int32_t, 0x7F800000> {};
template <>
struct Ordered<double> : OrderedFloat<int64_t, 0x7FF0000000000000> {};

template <class T>
using OrderInt = typename Ordered<T>::Int;

template <class T>
OrderInt<T> order_key(T value) {
  using O = Ordered<T>;
  using Int = typename O::Int;
  constexpr Int kMax = std::numeric_limits<Int>::max(), kMin = std::numeric_limits<Int>::min();
  const Int raw = std::bit_cast<Int>(value);
  if constexpr (O::kUnsigned) return static_cast<Int>(raw ^ kMin);
  if constexpr (!O::kFloat) return raw;
  if ((raw & kMax) > O::kInfinity) return kMax;
  const Int key = raw < 0 ? static_cast<Int>(raw ^ kMax) : raw;
  return key == -1 ? Int{0} : key;  // -1 is -0
}

// Calls f(T{}) with the type that stores a dtype which has an order.
template <class F>
auto with_ordered(std::string_view operand, tenon_dtype dtype, F&& f) {
  switch (dtype) {
    case TENON_DTYPE_F32:
      return f(float{});
    case TENON_DTYPE_F16:
      return f(F16{});
    case TENON_DTYPE_BF16:
      return f(Bf16{});
    case TENON_DTYPE_F64:
      return f(double{});
    case TENON_DTYPE_I8:
      return f(int8_t{});
    case TENON_DTYPE_I16:
      return f(int16_t{});
    case TENON_DTYPE_I32:
      return f(int32_t{});
    case TENON_DTYPE_I64:
      return f(int64_t{});
    case TENON_DTYPE_BOOL:
    case TENON_DTYPE_U8:
      return f(uint8_t{});
    case TENON_DTYPE_U16:
      return f(uint16_t{});
    case TENON_DTYPE_U32:
      return f(uint32_t{});
    case TENON_DTYPE_U64:
      return f(uint64_t{});
    default:
      throw sdk::Refusal::dtype(operand, dtype);
  }
}

}  // namespace tenon::cpu
