// SPDX-License-Identifier: Apache-2.0
// What rules for padded operands share: lengths, masks and fillings.
#include "ops/padded.hpp"

#include <algorithm>
#include <limits>

namespace tenon::core {

bool any(const Lengths& lengths) {
  return std::ranges::any_of(lengths, [](const Length& l) { return bool(l); });
}

Value LengthValues::of(const Length& length) {
  Value& value = lengths_[{length.number, length.times, length.plus}];
  if (!value) {
    value = numbers_[length.number];
    if (length.times != 1) value = b_.times(value, b_.scalar_int(kI64, length.times));
    if (length.plus != 0) value = b_.plus(value, b_.scalar_int(kI64, length.plus));
  }
  return value;
}

Value LengthValues::mask(const Length& length, int64_t padded, int rank, int axis) {
  Value& mask = masks_[{length.number, length.times, length.plus, padded, rank, axis}];
  if (!mask) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push(i == axis ? padded : 1);
    mask = b_.compare("lt", b_.iota(shape, axis, kI64), of(length));
  }
  return mask;
}

Length Padded::length(Value operand, int64_t axis) const {
  if (!operand) return {};
  const Operand& o = operands_[operand.id];
  const int64_t at = axis < 0 ? axis + o.type.shape.rank() : axis;
  return at < 0 || at >= o.type.shape.rank() ? Length{} : o.lengths[static_cast<size_t>(at)];
}

bool Padded::any_from(Value operand, int first) const {
  for (int i = first; operand && i < rank(operand); ++i)
    if (along(operand, i)) return true;
  return false;
}

bool Padded::any_before(Value operand, int end) const {
  for (int i = 0; operand && i < end; ++i)
    if (along(operand, i)) return true;
  return false;
}

bool Padded::same_multiple(Value a, Value b, int axis) const {
  const Length la = length(a, axis), lb = length(b, axis);
  if (la.number != lb.number) return false;
  const int64_t of_a = type(a).shape[axis], of_b = type(b).shape[axis];
  return la.times * of_b == lb.times * of_a && la.plus * of_b == lb.plus * of_a;
}

Length Padded::result_length(size_t k, int64_t axis) const {
  const int rank = types_[k].shape.rank();
  const int64_t at = axis < 0 ? axis + rank : axis;
  return at < 0 || at >= rank ? Length{} : results_[k][static_cast<size_t>(at)];
}

void Padded::fill(Value operand, int64_t axis, Fill with) {
  if (along(operand, axis)) fill(operand, axis, number(type(operand).dtype, with));
}

void Padded::fill(Value operand, int64_t axis, Value scalar) {
  const Length l = length(operand, axis);
  if (!l) return;
  const int at = static_cast<int>(axis < 0 ? axis + rank(operand) : axis);
  put(operand, filled(value(operand), l, at, scalar));
}

Value Padded::filled(Value x, const Length& length, int axis, Value scalar) {
  const Shape shape = b.shape(x);
  return b.where(values_.mask(length, shape[axis], shape.rank(), axis), x, scalar);
}

void Padded::fill_all(Value operand, Fill with, int first) {
  for (int i = first; operand && i < rank(operand); ++i) fill(operand, i, with);
}

void Padded::clamp_indices(Value indices, int64_t length) {
  if (!any(indices) || length == 0) return;
  const DType type = this->type(indices).dtype;
  const Value clamped =
      b.min(b.max(value(indices), b.scalar_int(type, 0)), b.scalar_int(type, length - 1));
  for (int i = 0; i < rank(indices); ++i) {
    if (!along(indices, i)) continue;
    const Shape shape = b.shape(clamped);
    const Value counts = values_.mask(this->length(indices, i), shape[i], shape.rank(), i);
    put(indices, b.where(counts, value(indices), clamped));
  }
}

void Padded::index_counted(Value indices, const Length& of, int64_t padded, bool clamp) {
  if (!of) return;
  const DType type = b.dtype(value(indices));
  const Value at = b.cast(value(indices), kI64), zero = b.scalar_int(kI64, 0);
  const Value length = values_.of(of);
  const Value from_front = b.where(b.compare("lt", at, zero), b.plus(at, length), at);
  if (clamp) {
    const Value last = b.minus(length, b.scalar_int(kI64, 1));
    return put(indices, b.cast(b.min(b.max(from_front, zero), last), type));
  }
  const Value beyond = b.minus(b.scalar_int(kI64, padded), length);
  const Value below = b.where(b.compare("lt", from_front, zero), b.minus(at, beyond), from_front);
  put(indices, b.cast(b.where(b.compare("ge", at, length), b.plus(at, beyond), below), type));
}

void Padded::finish() {
  for (const Refill& r : refills_) {
    const Length l = result_length(r.result, r.axis);
    if (!l || r.result >= given_.size() || !given_[r.result]) continue;
    const Type& type = types_[r.result];
    const int axis = static_cast<int>(r.axis < 0 ? r.axis + type.shape.rank() : r.axis);
    given_[r.result] = filled(given_[r.result], l, axis, number(type.dtype, r.with));
  }
}

Value Padded::number(DType dtype, Fill with) {
  if (with == Fill::zero || with == Fill::one) {
    const int number = with == Fill::one;
    return is_float(dtype) ? b.scalar(dtype, number) : b.scalar_int(dtype, number);
  }
  const bool high = with == Fill::highest;
  if (is_float(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return b.scalar(dtype, high ? kInfinity : -kInfinity);
  }
  if (dtype == kBool) return b.scalar_int(dtype, high);
  const bool is_unsigned = dtype == kU8 || dtype == kU16 || dtype == kU32 || dtype == kU64;
  const int bits = static_cast<int>(tenon_dtype_bits(dtype)) - (is_unsigned ? 0 : 1);
  const uint64_t most = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t least = is_unsigned ? 0 : ~most;
  return b.scalar_int(dtype, static_cast<int64_t>(high ? most : least));
}

}  // namespace tenon::core
