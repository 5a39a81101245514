// SPDX-License-Identifier: Apache-2.0
// What batch rules share: operands with the batch as an axis.
#include "ops/record.hpp"

namespace tenon::core {
namespace {

Shape with_batch(int64_t size, const Shape& one, int ones = 0) {
  Shape shape;
  shape.push(size);
  for (int i = 0; i < ones; ++i) shape.push(1);
  for (Dim d : one) shape.push(d);
  return shape;
}

}  // namespace

Value Batch::all(Value operand) {
  if (!operand || batched(operand)) return given(operand);
  return b.expand(b.unsqueeze(given(operand), 0), with_batch(size_, type(operand).shape));
}

Value Batch::aligned(Value operand, int axes) {
  if (!batched(operand) || rank(operand) == axes) return given(operand);
  return b.reshape(given(operand), with_batch(size_, type(operand).shape, axes - rank(operand)));
}

Value Batch::folded(Value operand) {
  if (!operand) return {};
  const Shape& one = type(operand).shape;
  Shape shape;
  shape.push(size_ * one[0]);
  for (int i = 1; i < one.rank(); ++i) shape.push(one[i]);
  return b.reshape(all(operand), shape);
}

Shape Batch::result(size_t k) const { return with_batch(size_, types_[k].shape); }

Ints Batch::axes(Ints axes) {
  for (int64_t& a : axes) a = axis(a);
  return axes;
}

}  // namespace tenon::core
