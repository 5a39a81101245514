// SPDX-License-Identifier: Apache-2.0
// What the files of the family quantized share. The translation of ONNX models uses the products.
#pragma once

#include <optional>
#include <string_view>

#include "ops/check.hpp"

namespace tenon::core {

struct QuantizedRange {
  double low, high;
};
// Of i8 u8 i16 u16 i4 u4; of other dtypes nothing.
std::optional<QuantizedRange> quantized_range(DType dtype);

inline bool is_one_number(const Shape& s) { return s.rank() <= 1 && s.elements() == 1; }

// So many products of differences of 8-bit integers have a sum within i32.
inline constexpr int64_t kMostTerms = 33025;
inline constexpr int64_t kMostParts = 256;  // of longer sums, in a decomposition

// Numbers of i8 or u8 as i8, and what was subtracted from them for that.
struct Signed {
  Value value;
  int64_t shift;
};
Signed as_signed(Builder& b, Value x);

// Σ_k (p - zero_p)·(q - zero_q) over p [..,M,K] and q [..,K,N], both i8 or u8. sum: i64, which is
// exact, or i32, which wraps. The zero points broadcast to [..,M,1] and [..,1,N]; absent ones are 0.
Value integer_products(Builder& b, Value p, Value zero_p, Value q, Value zero_q, DType sum);

// The dtype of the sums of products of so many terms, in a node with the result dtype `to`.
inline DType sum_dtype(DType to, int64_t terms) {
  return to != kI32 && terms > kMostTerms ? DType{kI64} : DType{kI32};
}

// What follows the sums. The operands broadcast to them; all may be absent. Without a multiplier the
// result is i32.
struct Requantize {
  Value bias, multiplier, zero;
  DType to;
  bool relu;
  Value operator()(Builder& b, Value sums) const;
};

}  // namespace tenon::core
