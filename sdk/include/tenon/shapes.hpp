// SPDX-License-Identifier: Apache-2.0
//
// What every backend computes from shapes: broadcast operands, walks over elements, axes joined,
// and the forms of matmul, reduce, pad and narrow. The host has checked the node (backend.h,
// Trust), so nothing here fails, except pad_mode(). Strides are in elements, with the strides of
// the operands.
#pragma once

#include <algorithm>
#include <array>

#include "axis.hpp"

namespace tenon::sdk {

// ---- Elementwise

// Strides that read x as if it had y's shape: 0 along the axes that x lacks or has a length of 1
// in.
inline Dims broadcast_strides(const Type& x, const Type& y) {
  Dims strides{};
  for (int i = 0; i < x.rank; ++i) strides[i + y.rank - x.rank] = x.dims[i] == 1 ? 0 : x.strides[i];
  return strides;
}

// On the host: calls body(k, offsets) for each element of the shape, in row-major order. offsets[n]
// is the offset of the element in elements, for strides[n].
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

// The fewest axes that visit the elements of a shape in the same order. Axes of length 1 are gone;
// adjacent axes are joined if every tensor has one even stride across both. A dense tensor has one
// axis of stride 1.
template <size_t N>
struct JoinedAxes {
  int rank = 0;       // 0: one element
  int64_t count = 1;  // elements
  Dims dims{};
  std::array<Dims, N> strides{};
};
template <size_t N>
JoinedAxes<N> joined_axes(const Type& shape, const std::array<Dims, N>& strides) {
  JoinedAxes<N> a;
  a.count = shape.elements();
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i] == 1) continue;
    const int last = a.rank - 1;
    bool joins = last >= 0;
    for (size_t n = 0; n < N && joins; ++n)
      joins = a.strides[n][last] == strides[n][i] * shape.dims[i];
    if (!joins) ++a.rank;
    int64_t& length = a.dims[a.rank - 1];
    length = joins ? length * shape.dims[i] : shape.dims[i];
    for (size_t n = 0; n < N; ++n) a.strides[n][a.rank - 1] = strides[n][i];
  }
  return a;
}

// ---- matmul

// y[batch, i, j] = sum over l of a[i, l] * b[l, j]. y is dense: element (batch, i, j) is at
// (batch * m + i) * n + j.
struct MatmulShape {
  int64_t m = 1, n = 1, k = 1;
  int64_t a_m = 0, a_k = 0, b_k = 0, b_n = 0;  // strides of a step along m, k and n
  Type batch{};                                // the batch dims of y
  Dims a_batch{}, b_batch{};                   // strides along them
};
inline MatmulShape matmul_shape(const op::matmul& op, const Type& y) {
  const Type &a = op.a.type(), &b = op.b.type();
  const auto batch_strides = [](Type x, int own, const Type& batch) {
    x.rank -= own;  // the last dims are those of a row and a column
    return broadcast_strides(x, batch);
  };
  MatmulShape s;
  if (a.rank == 1) {
    s.k = a.dims[0], s.a_k = a.strides[0];
  } else {
    const int row = op.trans_a ? a.rank - 1 : a.rank - 2,
              column = op.trans_a ? a.rank - 2 : a.rank - 1;
    s.m = a.dims[row], s.a_m = a.strides[row], s.k = a.dims[column], s.a_k = a.strides[column];
  }
  if (b.rank == 1) {
    s.b_k = b.strides[0];
  } else {
    const int row = op.trans_b ? b.rank - 1 : b.rank - 2,
              column = op.trans_b ? b.rank - 2 : b.rank - 1;
    s.b_k = b.strides[row], s.n = b.dims[column], s.b_n = b.strides[column];
  }
  s.batch = y;
  s.batch.rank -= (a.rank > 1) + (b.rank > 1);
  s.a_batch = batch_strides(a, a.rank > 1 ? 2 : 1, s.batch);
  s.b_batch = batch_strides(b, b.rank > 1 ? 2 : 1, s.batch);
  return s;
}

// ---- reduce

// The kept and the reduced axes of x, with its strides. y has an element for each of `kept`, in
// row-major order, whatever keepdims says.
struct ReduceShape {
  Type kept{}, reduced{};
};
inline ReduceShape reduce_shape(const op::reduce& op, const Type& x) {
  const std::array<bool, kMaxRank> reduce = reduced_axes(op, x.rank);
  ReduceShape s;
  s.kept.dtype = s.reduced.dtype = x.dtype;
  for (int i = 0; i < x.rank; ++i) {
    Type& t = reduce[static_cast<size_t>(i)] ? s.reduced : s.kept;
    t.dims[t.rank] = x.dims[i];
    t.strides[t.rank++] = x.strides[i];
  }
  return s;
}

// ---- pad and narrow

enum class PadMode { constant, edge, reflect, symmetric };
// Refuses a mode that this header does not know.
inline PadMode pad_mode(const std::string& mode) {
  constexpr std::string_view kNames[] = {"constant", "edge", "reflect", "symmetric"};
  const auto at = std::find(std::begin(kNames), std::end(kNames), mode);
  if (at == std::end(kNames)) throw Refusal::attribute("mode", mode);
  return static_cast<PadMode>(at - std::begin(kNames));
}
// The index on an axis of length d that position i takes its element from; position 0 is the first
// one that is not padding. -1: the element is the constant.
inline int64_t pad_source(PadMode mode, int64_t i, int64_t d) {
  if (mode == PadMode::constant) return i >= 0 && i < d ? i : -1;
  if (mode == PadMode::edge) return std::clamp<int64_t>(i, 0, d - 1);
  const int64_t mirror = mode == PadMode::reflect ? 0 : 1;  // the ends appear once or twice
  return i < 0 ? -mirror - i : i >= d ? 2 * d - 2 + mirror - i : i;
}
// Positions of padding in front of each axis of x.
inline Dims pad_before(const op::pad& op, const Type& x) {
  Dims before{};
  for (int i = 0; i < x.rank; ++i) before[i] = entry_of(op.before, i, 0);
  return before;
}

// Where narrow begins in x, and the strides of its output over x.
inline View narrow_view(const op::narrow& op, const Type& x, const Type& y) {
  View view;
  for (int i = 0; i < x.rank; ++i) {
    const int64_t start = entry_of(op.start, i, 0), step = entry_of(op.step, i, 1);
    view.strides[i] = y.dims[i] > 1 ? x.strides[i] * step : 0;
    view.offset += y.dims[i] > 0 ? start * x.strides[i] : 0;
  }
  if (y.elements() == 0) view.offset = 0;
  return view;
}

}  // namespace tenon::sdk
