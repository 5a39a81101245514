// SPDX-License-Identifier: Apache-2.0
// Order keys: integers that compare like the values, with NaN above all and -0 equal to +0. Scalars
// here, vectors in order_key-inl.h.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "convert.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// How T is stored: as an integer of its size. For floats, kInfinity holds the bits of +inf.
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

// Returns f(T{}) with the storage type of a dtype that has an order; bool as u8.
template <class F>
auto with_ordered(std::string_view operand, tenon_dtype dtype, F&& f) {
  if (dtype == TENON_DTYPE_BOOL) return f(uint8_t{});
  return with_type(sdk::kFloatTypes + sdk::kIntegerTypes, operand, dtype, f);
}

}  // namespace tenon::cpu
