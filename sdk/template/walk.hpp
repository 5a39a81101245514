// SPDX-License-Identifier: Apache-2.0
// Walking over shapes: every element in row-major order, with the offsets of strided operands.
#pragma once

#include <tenon/axis.hpp>

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
inline Dims broadcast(const Type& x, const Type& y) {
  Dims strides{};
  for (int i = 0; i < x.rank; ++i) strides[i + y.rank - x.rank] = x.dims[i] == 1 ? 0 : x.strides[i];
  return strides;
}

}  // namespace tenon::sample
