// SPDX-License-Identifier: Apache-2.0
// Makers for ops that are views of their operand: only strides change, and nothing runs. Their rows
// need kStrided: row<op::transpose, view_transpose>(kStrided).
#pragma once

#include <vector>

#include "../kernel.hpp"
#include "../shapes.hpp"

namespace tenon::sdk {

namespace layer {
// Elements of less than a byte have no address, so their views must be dense and start at 0.
inline Kernel view_of(const Type& x, const Type& y, const View& view) {
  Type seen = y;
  seen.strides = view.strides;
  if (tenon_dtype_bits(x.dtype) % 8 != 0 && (view.offset != 0 || !seen.dense())) {
    throw Refusal(TENON_REASON_DTYPE,
                  "a strided view of " + std::string(dtype_name(x.dtype)) + " is not possible");
  }
  return {.view = {view}};
}

// Computes the strides of y over the bytes of x, if they exist: each group of axes that reshape
// splits or merges must be evenly spaced in x.
inline bool reshape_strides(const Type& x, const Type& y, Dims& strides) {
  int i = 0, j = 0;
  while (i < x.rank && j < y.rank) {
    int64_t in = x.dims[i], out = y.dims[j];
    int i_end = i + 1, j_end = j + 1;
    while (in != out) {
      if (in < out) {
        if (i_end == x.rank) return false;
        in *= x.dims[i_end++];
      } else {
        if (j_end == y.rank) return false;
        out *= y.dims[j_end++];
      }
    }
    int64_t stride = 0, expected = 0;
    for (int k = i_end - 1, last = -1; k >= i; --k) {
      if (x.dims[k] == 1) continue;
      if (last < 0) {
        stride = x.strides[k];
      } else if (x.strides[k] != expected) {
        return false;
      }
      expected = x.strides[k] * x.dims[k];
      last = k;
    }
    for (int k = j_end - 1; k >= j; --k) strides[k] = stride, stride *= y.dims[k];
    i = i_end, j = j_end;
  }
  for (; j < y.rank; ++j) strides[j] = 0;  // remaining axes have length 1
  return true;
}
}  // namespace layer

// If a strided operand has no such view, refuses it; then the layer passes a dense copy.
inline Kernel view_reshape(const op::reshape& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  Type dense = y;
  dense.set_dense_strides();
  if (x.dense()) return layer::view_of(x, y, {.strides = dense.strides});
  View view;
  if (!layer::reshape_strides(x, y, view.strides))
    throw Refusal::shape("reshape of these strides needs a copy");
  return layer::view_of(x, y, view);
}

inline Kernel view_transpose(const op::transpose& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  View view;
  for (int i = 0; i < y.rank; ++i) {
    view.strides[i] = x.strides[entry_of(n.perm, i, x.rank - 1 - i)];
  }
  return layer::view_of(x, y, view);
}

inline Kernel view_expand(const op::expand& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  const int extra = y.rank - x.rank;
  View view;
  for (int i = 0; i < x.rank; ++i)
    view.strides[i + extra] = x.dims[i] == y.dims[i + extra] ? x.strides[i] : 0;
  return layer::view_of(x, y, view);
}

inline Kernel view_narrow(const op::narrow& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  return layer::view_of(x, y, narrow_view(n, x, y));
}

inline Kernel view_as_real(const op::view_as_real& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  View view;
  for (int i = 0; i < x.rank; ++i) view.strides[i] = 2 * x.strides[i];
  view.strides[x.rank] = 1;
  return layer::view_of(x, y, view);
}

// Pairs that are apart, or not where a complex number may begin, are copied by `copy`, the maker of
// the plugin's copy kernel.
template <Kernel (*copy)(const op::copy&, const Node&)>
Kernel view_as_complex(const op::view_as_complex& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  const uint64_t alignment = n.x.alignment();
  bool paired = alignment == 0 || alignment % static_cast<uint64_t>(element_bytes(y.dtype)) == 0;
  paired = paired && x.strides[y.rank] == 1;
  View view;
  for (int i = 0; i < y.rank; ++i) {
    paired = paired && (x.dims[i] == 1 || x.strides[i] % 2 == 0);
    view.strides[i] = x.strides[i] / 2;
  }
  return paired ? layer::view_of(x, y, view) : copy({.x = n.x}, node);
}

}  // namespace tenon::sdk
