// SPDX-License-Identifier: Apache-2.0
// What rules of several families use.
#pragma once

#include <algorithm>

#include "import/onnx/known_ops.hpp"
#include "import/onnx/rules.hpp"

namespace tenon::core::onnx {

// A kind of an op as a template argument: unary<"exp">.
struct Kind {
  char text[20] = {};
  constexpr Kind(const char* given) {  // NOLINT: implicit on purpose
    for (size_t i = 0; given[i] && i + 1 < sizeof text; ++i) text[i] = given[i];
  }
  constexpr operator std::string_view() const { return text; }  // NOLINT: likewise
};

inline Ints dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
inline Shape shape_of(const Ints& dims) { return Shape(std::span<const Dim>(dims)); }
inline Ints iota_list(int64_t count, int64_t start = 0) {
  Ints out;
  for (int64_t k = 0; k < count; ++k) out.push_back(start + k);
  return out;
}
// The axes that are not in the list.
inline Ints other_axes(const Ints& axes, int rank) {
  Ints out;
  for (int64_t a = 0; a < rank; ++a)
    if (std::find(axes.begin(), axes.end(), a) == axes.end()) out.push_back(a);
  return out;
}
inline int64_t product(const Shape& s, int from, int to) {
  int64_t out = 1;
  for (int i = from; i < to; ++i) out *= s[i];
  return out;
}

// 1-d constant of integers, as a value.
inline Value index_constant(Builder& b, const Ints& values) { return b.ints(kI64, values); }
// Integers that count from the end become those that count from the front.
inline Value from_front(Builder& b, Value index, int64_t length) {
  const DType t = b.dtype(index);
  return b.where(b.compare("lt", index, b.scalar_int(t, 0)), b.plus(index, b.scalar_int(t, length)),
                 index);
}
inline Value invert(Builder& b, Value condition) { return b.logical("not", condition); }
// Swaps two axes.
Value swap_axes(Builder& b, Value x, int p, int q);
Value flip(Builder& b, Value x, int axis);
// Broadcasts to the shape of several values.
Shape common_shape(Builder& b, std::initializer_list<Value> values);
// Rows of `count` coordinates along the last axis become flat positions in row-major order of the
// first `count` dims. Negative coordinates count from the end.
Value flat_index(Builder& b, Value indices, const Shape& dims, int64_t count);
// A product of floats or integers, as the op matmul.
Value matmul_any(Builder& b, Value p, Value q, bool trans_p, bool trans_q);
// p·q/y of the scales of two factors and of their product, rounded once to f32.
Value requantizing_scale(Builder& b, Value p, Value q, Value y);

}  // namespace tenon::core::onnx
