// SPDX-License-Identifier: Apache-2.0
//
// Dtypes: names, the groups that op rules refer to, the C++ storage type of each, and dispatch by
// storage type.
//
//   const auto run = with_type(kFloatTypes, "x", x.dtype, []<class T>(T) { return relu<T>; });
//
// Depends only on types.h and blob.h. kernel.hpp adds forms that refuse a dtype and take the name
// of the operand.
#pragma once

#include <cstdint>
#include <string_view>

#include "blob.h"

namespace tenon::sdk {

// Returns the name of a dtype of blocks; "?" for any other number.
constexpr std::string_view blocks_name(tenon_dtype t) {
  switch (t) {
    case TENON_DTYPE_Q4_0:
      return "q4_0";
    case TENON_DTYPE_Q4_1:
      return "q4_1";
    case TENON_DTYPE_Q5_0:
      return "q5_0";
    case TENON_DTYPE_Q5_1:
      return "q5_1";
    case TENON_DTYPE_Q8_0:
      return "q8_0";
    case TENON_DTYPE_Q8_1:
      return "q8_1";
    case TENON_DTYPE_Q2_K:
      return "q2_k";
    case TENON_DTYPE_Q3_K:
      return "q3_k";
    case TENON_DTYPE_Q4_K:
      return "q4_k";
    case TENON_DTYPE_Q5_K:
      return "q5_k";
    case TENON_DTYPE_Q6_K:
      return "q6_k";
    case TENON_DTYPE_Q8_K:
      return "q8_k";
    case TENON_DTYPE_IQ2_XXS:
      return "iq2_xxs";
    case TENON_DTYPE_IQ2_XS:
      return "iq2_xs";
    case TENON_DTYPE_IQ3_XXS:
      return "iq3_xxs";
    case TENON_DTYPE_IQ1_S:
      return "iq1_s";
    case TENON_DTYPE_IQ4_NL:
      return "iq4_nl";
    case TENON_DTYPE_IQ3_S:
      return "iq3_s";
    case TENON_DTYPE_IQ2_S:
      return "iq2_s";
    case TENON_DTYPE_IQ4_XS:
      return "iq4_xs";
    case TENON_DTYPE_IQ1_M:
      return "iq1_m";
    case TENON_DTYPE_TQ1_0:
      return "tq1_0";
    case TENON_DTYPE_TQ2_0:
      return "tq2_0";
    case TENON_DTYPE_MXFP4:
      return "mxfp4";
    case TENON_DTYPE_NVFP4:
      return "nvfp4";
    case TENON_DTYPE_Q1_0:
      return "q1_0";
    case TENON_DTYPE_Q2_0:
      return "q2_0";
    case TENON_DTYPE_F8E4M3_128:
      return "f8e4m3_128";
    default:
      return "?";
  }
}

// Returns "f32"; "?" for an unknown number.
constexpr std::string_view dtype_name(tenon_dtype t) {
  constexpr std::string_view names[TENON_DTYPE_COUNT] = {
      "none", "f32", "f16", "bf16", "f64", "i8",   "i16", "i32",    "i64",    "u8",
      "u16",  "u32", "u64", "i4",   "u4",  "bool", "c64", "f8e4m3", "f8e5m2", "c128"};
  return t < TENON_DTYPE_COUNT ? names[t] : blocks_name(t);
}

// Returns the dtype of a name, NONE if there is none.
constexpr tenon_dtype dtype_named(std::string_view name) {
  for (tenon_dtype t = 1; t < TENON_DTYPE_COUNT; ++t)
    if (dtype_name(t) == name) return t;
  for (tenon_dtype t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS_END && name != "?"; ++t)
    if (blocks_name(t) == name) return t;
  return TENON_DTYPE_NONE;
}

// ---- Groups. bool belongs to none of them.

constexpr bool is_half(tenon_dtype t) { return t == TENON_DTYPE_F16 || t == TENON_DTYPE_BF16; }
// f16, bf16, f32, f64
constexpr bool is_float(tenon_dtype t) {
  return t == TENON_DTYPE_F32 || t == TENON_DTYPE_F64 || is_half(t);
}
// Integers of whole bytes: i8 to i64, u8 to u64
constexpr bool is_integer(tenon_dtype t) { return t >= TENON_DTYPE_I8 && t <= TENON_DTYPE_U64; }
// i32, i64: positions of elements
constexpr bool is_index(tenon_dtype t) { return t == TENON_DTYPE_I32 || t == TENON_DTYPE_I64; }
// i4, u4: two per byte, the first in the low half. They can be cast and moved; there is no
// arithmetic.
constexpr bool is_nibble(tenon_dtype t) { return t == TENON_DTYPE_I4 || t == TENON_DTYPE_U4; }
// f8e4m3, f8e5m2: can be cast and moved; there is no arithmetic.
constexpr bool is_f8(tenon_dtype t) { return t == TENON_DTYPE_F8E4M3 || t == TENON_DTYPE_F8E5M2; }
// c64, c128: a real part, then an imaginary part.
constexpr bool is_complex(tenon_dtype t) { return t == TENON_DTYPE_C64 || t == TENON_DTYPE_C128; }
// The dtype of each part of a complex number.
constexpr tenon_dtype part_dtype(tenon_dtype t) {
  return t == TENON_DTYPE_C128 ? tenon_dtype{TENON_DTYPE_F64} : tenon_dtype{TENON_DTYPE_F32};
}
// The complex dtype whose parts are of a float dtype: c128 for f64, else c64.
constexpr tenon_dtype complex_dtype(tenon_dtype t) {
  return t == TENON_DTYPE_F64 ? tenon_dtype{TENON_DTYPE_C128} : tenon_dtype{TENON_DTYPE_C64};
}

// Blocks of elements, as files store quantized weights. They belong to no other group.
constexpr bool is_blocks(tenon_dtype t) {
  return t >= TENON_DTYPE_BLOCKS && t < TENON_DTYPE_BLOCKS_END && blocks_name(t) != "?";
}
// Blocks whose elements the ops of family dequant compute. The others look up groups of elements in
// long tables.
constexpr bool is_decodable(tenon_dtype t) {
  switch (t) {
    case TENON_DTYPE_IQ2_XXS:
    case TENON_DTYPE_IQ2_XS:
    case TENON_DTYPE_IQ2_S:
    case TENON_DTYPE_IQ3_XXS:
    case TENON_DTYPE_IQ3_S:
    case TENON_DTYPE_IQ1_S:
    case TENON_DTYPE_IQ1_M:
      return false;
    default:
      return is_blocks(t);
  }
}

// The accumulation dtype: f32 for halves, else t.
constexpr tenon_dtype acc_dtype(tenon_dtype t) {
  return is_half(t) ? tenon_dtype{TENON_DTYPE_F32} : t;
}
// Bytes of an element; 0 for i4, u4 and blocks.
inline int64_t element_bytes(tenon_dtype t) { return tenon_dtype_bits(t) / 8; }

// ---- Storage types: the bits of dtypes that C++ has no type for

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};
struct Bool {
  uint8_t byte;
};
// An element of 16 bytes, for kernels that only move bits.
struct Bits128 {
  uint64_t parts[2];
};
struct I4 {};  // stand for their dtype; no address points to one
struct U4 {};

// The dtype that a storage type stores.
template <class T>
inline constexpr tenon_dtype kDtypeOf = TENON_DTYPE_NONE;
// clang-format off
template <> inline constexpr tenon_dtype kDtypeOf<float> = TENON_DTYPE_F32;
template <> inline constexpr tenon_dtype kDtypeOf<F16> = TENON_DTYPE_F16;
template <> inline constexpr tenon_dtype kDtypeOf<BF16> = TENON_DTYPE_BF16;
template <> inline constexpr tenon_dtype kDtypeOf<double> = TENON_DTYPE_F64;
template <> inline constexpr tenon_dtype kDtypeOf<int8_t> = TENON_DTYPE_I8;
template <> inline constexpr tenon_dtype kDtypeOf<int16_t> = TENON_DTYPE_I16;
template <> inline constexpr tenon_dtype kDtypeOf<int32_t> = TENON_DTYPE_I32;
template <> inline constexpr tenon_dtype kDtypeOf<int64_t> = TENON_DTYPE_I64;
template <> inline constexpr tenon_dtype kDtypeOf<uint8_t> = TENON_DTYPE_U8;
template <> inline constexpr tenon_dtype kDtypeOf<uint16_t> = TENON_DTYPE_U16;
template <> inline constexpr tenon_dtype kDtypeOf<uint32_t> = TENON_DTYPE_U32;
template <> inline constexpr tenon_dtype kDtypeOf<uint64_t> = TENON_DTYPE_U64;
template <> inline constexpr tenon_dtype kDtypeOf<Bool> = TENON_DTYPE_BOOL;
template <> inline constexpr tenon_dtype kDtypeOf<F8E4M3> = TENON_DTYPE_F8E4M3;
template <> inline constexpr tenon_dtype kDtypeOf<F8E5M2> = TENON_DTYPE_F8E5M2;
template <> inline constexpr tenon_dtype kDtypeOf<I4> = TENON_DTYPE_I4;
template <> inline constexpr tenon_dtype kDtypeOf<U4> = TENON_DTYPE_U4;
// clang-format on

// ---- Choosing a type

// A list of storage types; lists are joined by +.
template <class... Ts>
struct Types {};
template <class... A, class... B>
constexpr Types<A..., B...> operator+(Types<A...>, Types<B...>) {
  return {};
}
inline constexpr Types<float, F16, BF16, double> kFloatTypes{};
inline constexpr Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>
    kIntegerTypes{};

// Returns f(T{}) with the type T of the list that stores t. t must be in the list: all other dtypes
// get the last type.
template <class T, class... Rest, class F>
auto with_type(Types<T, Rest...>, tenon_dtype t, F&& f) {
  if constexpr (sizeof...(Rest) > 0)
    if (t != kDtypeOf<T>) return with_type(Types<Rest...>{}, t, f);
  return f(T{});
}

// Returns f(T{}) with the unsigned integer T of 1, 2, 4 or 8 bytes. For kernels that only move
// bits, and for sums of integers, because signed and unsigned sums wrap alike.
template <class F>
auto with_size(int64_t bytes, F&& f) {
  return bytes == 1   ? f(uint8_t{})
         : bytes == 2 ? f(uint16_t{})
         : bytes == 4 ? f(uint32_t{})
                      : f(uint64_t{});
}

}  // namespace tenon::sdk
