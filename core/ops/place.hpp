// SPDX-License-Identifier: Apache-2.0
// Adjoints that write values back to their positions, shared by several families.
#pragma once

#include "ops/build.hpp"

namespace tenon::core {

// Zeros before and after x along one axis.
inline Value pad_axis(Builder& b, Value x, int axis, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  const auto rank = static_cast<size_t>(b.shape(x).rank());
  Ints befores(rank, 0), afters(rank, 0);
  befores[static_cast<size_t>(axis)] = before;
  afters[static_cast<size_t>(axis)] = after;
  return b.add(op::pad{.before = std::move(befores), .after = std::move(afters), .x = x});
}

// Zeros of length `dim` along `axis`, with values[.., j, ..] at indices[.., j, ..]: the adjoint of
// selecting elements by indices that are distinct within a line. Works on the flattened tensor.
inline Value put_along(Builder& b, Value values, Value indices, int axis, int64_t dim) {
  const Shape from = b.shape(values);
  Shape to = from;
  to[axis] = dim;
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < axis; ++k) outer *= from[k];
  for (int k = axis + 1; k < from.rank(); ++k) inner *= from[k];
  const Value line = b.reshape(b.cast(indices, kI64), {outer, from[axis], inner});
  const Value row = b.iota({outer, 1, 1}, 0, kI64, 0, static_cast<double>(dim * inner));
  Value at = b.plus(b.times(line, b.scalar_int(kI64, inner)), row);
  if (inner != 1) at = b.plus(at, b.iota({1, 1, inner}, 2, kI64));
  const int64_t count = from.elements();
  const Value flat = b.add(op::scatter_add{.dim = to.elements(),
                                           .updates = b.reshape(values, {count}),
                                           .indices = b.reshape(at, {count})});
  return b.reshape(flat, to);
}

}  // namespace tenon::core
