// SPDX-License-Identifier: Apache-2.0
// Tensors whose content is known while a model is translated: shapes, axes, small constants and
// what is computed from them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "import/onnx/model.hpp"
#include "ops/build.hpp"

namespace tenon::core::onnx {

// Of a float, an integer or bool. Each element is a value of `dtype`.
struct Known {
  DType dtype = TENON_DTYPE_NONE;
  Ints dims{};
  std::vector<int64_t> ints{};  // integers and bool; u64 as its bits
  std::vector<double> reals{};  // floats

  bool real() const { return is_float(dtype); }
  int64_t size() const { return static_cast<int64_t>(real() ? reals.size() : ints.size()); }
  int rank() const { return static_cast<int>(dims.size()); }
  // Element i as a double, whatever the dtype is.
  double number(size_t i) const;
  Type type() const { return {dtype, Shape(std::span<const Dim>(dims))}; }
};
using KnownPtr = std::shared_ptr<const Known>;

// Larger tensors are not computed while a model is translated.
inline constexpr int64_t kMostKnown = 1 << 16;
// Initializers above this size are weights; others are constants whose content rules may read.
inline constexpr int64_t kMostSmall = 4096;

inline bool can_be_known(DType t) { return is_float(t) || is_integer(t) || t == kBool; }
// The product of dims; fails if it does not fit in 63 bits.
int64_t count_of(std::span<const int64_t> dims);

// An integer in the range of its dtype, by wrapping; bool: is it not 0?
int64_t wrapped(DType dtype, int64_t value);
// A number rounded to a float dtype.
double rounded(DType dtype, double value);

Known known_ints(DType dtype, Ints dims, std::vector<int64_t> values);
Known known_reals(DType dtype, Ints dims, std::vector<double> values);
inline Known known_vector(std::vector<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  return known_ints(kI64, {size}, std::move(values));
}
inline Known known_scalar(int64_t value) { return known_ints(kI64, {}, {value}); }
// All elements equal, of a dtype that can be known.
Known known_full(DType dtype, Ints dims, double value);
// Converts as the op cast does.
Known known_cast(const Known& from, DType to);

// Reads dense content.
Known known_from(DType dtype, Ints dims, const Bytes& content);
Bytes content_of(const Known& known);

}  // namespace tenon::core::onnx
