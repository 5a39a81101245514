// SPDX-License-Identifier: Apache-2.0
// Names of dtypes, text of types, sizes in elements and bytes, broadcasting.
#include "ir/type.hpp"

#include <algorithm>

namespace tenon::core {

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType t = 1; t < TENON_DTYPE_COUNT; ++t)
    if (dtype_name(t) == name) return t;
  return std::nullopt;
}

int64_t Shape::elements() const {
  int64_t n = 1;
  bool zero = false;
  for (Dim d : *this) {
    check(d >= 0, "elements of a shape with symbols");
    if (d == 0) {
      zero = true;
    } else if (n > (INT64_MAX >> 7) / d) {
      fail(Code::invalid_argument, "shape ", text(), ": its size overflows");
    } else {
      n *= d;
    }
  }
  return zero ? 0 : n;
}

std::string Shape::text() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i) s += ',';
    s += is_symbol(dims_[i]) ? std::string("?") : std::to_string(dims_[i]);
  }
  return s + "]";
}

std::string Type::text() const { return cat(dtype_name(dtype), shape.text()); }

uint64_t type_bytes(const Type& type) {
  return tenon_dense_bytes(type.dtype, type.shape.elements());
}

int normalize_axis(int64_t axis, int rank, std::string_view who) {
  if (axis < -rank || axis >= rank)
    fail(Code::invalid_argument, who, ": axis ", axis, " is outside [", -rank, ", ", rank, ")");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape broadcast(const Shape& a, const Shape& b, std::string_view who) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const Dim da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1)
      fail(Code::shape_mismatch, who, ": shapes ", a.text(), " and ", b.text(),
           " do not broadcast");
    out.push(da == 1 ? db : da);
  }
  return out;
}

}  // namespace tenon::core
