// SPDX-License-Identifier: Apache-2.0
// Names of dtypes, text of types, sizes in elements and bytes, broadcasting.
#include "ir/type.hpp"

#include <algorithm>

namespace tenon::core {

std::optional<DType> dtype_from_name(std::string_view name) {
  const DType t = sdk::dtype_named(name);
  return t == TENON_DTYPE_NONE ? std::nullopt : std::optional(t);
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

void want_whole_blocks(const Type& type, std::string_view who) {
  const tenon_block block = tenon_dtype_block(type.dtype);
  if (block.elements == 0) return;
  const int rank = type.shape.rank();
  if (!type.shape.numeric())
    fail(Code::shape_mismatch, who, ": ", type.text(),
         " has blocks; expected dims without symbols");
  if (rank == 0 || type.shape[rank - 1] % block.elements != 0)
    fail(Code::shape_mismatch, who, ": ", type.text(),
         ": expected a last dim that is a multiple of ", block.elements, ", a block of ",
         dtype_name(type.dtype), ", got ",
         rank == 0 ? std::string("no dim") : std::to_string(type.shape[rank - 1]));
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
