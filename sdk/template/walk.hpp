// SPDX-License-Identifier: Apache-2.0
// Walking over shapes: every element in row-major order, with the offsets of strided operands.
#pragma once

#include <tenon/kernel.hpp>

namespace tenon::sample {

using namespace tenon::sdk;

// body(k, offsets): element k of the shape, and its offset in elements for each set of strides.
template <size_t N, class Body>
void walk(const Type& shape, const std::array<Dims, N>& strides, const Body& body) {
  const int64_t count = shape.elements();
  Dims at{};
  std::array<int64_t, N> offset{};
  for (int64_t k = 0; k < count; ++k) {
    body(k, offset);
    for (int i = shape.rank - 1; i >= 0; --i) {
      for (size_t n = 0; n < N; ++n) offset[n] += strides[n][i];
      if (++at[i] < shape.dims[i]) break;
      for (size_t n = 0; n < N; ++n) offset[n] -= strides[n][i] * shape.dims[i];
      at[i] = 0;
    }
  }
}

template <class Body>
void walk(const Type& shape, const Dims& strides, const Body& body) {
  walk(shape, std::array<Dims, 1>{strides}, body);
}

// Strides that read x as if it had y's shape: 0 along broadcast axes.
inline Dims broadcast(const char* operand, const Type& x, const Type& y) {
  Dims strides{};
  const int extra = y.rank - x.rank;
  for (int i = 0; i < x.rank; ++i) {
    if (extra < 0 || (x.dims[i] != 1 && x.dims[i] != y.dims[i + extra])) {
      throw Refusal::shape("operand " + std::string(operand) +
                           " does not broadcast to the output's shape");
    }
    strides[i + extra] = x.dims[i] == 1 ? 0 : x.strides[i];
  }
  return strides;
}

inline int axis_of(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    throw Refusal(TENON_REASON_ATTRIBUTE,
                  "axis " + std::to_string(axis) + " of rank " + std::to_string(rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// A dense shape around one axis: element (o, a, i) lies at (o * length + a) * inner + i.
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;
};
inline Lines lines_of(const Type& t, int axis) {
  Lines l{.length = t.dims[axis]};
  for (int i = 0; i < axis; ++i) l.outer *= t.dims[i];
  for (int i = axis + 1; i < t.rank; ++i) l.inner *= t.dims[i];
  return l;
}

}  // namespace tenon::sample
