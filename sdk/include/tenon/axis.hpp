// SPDX-License-Identifier: Apache-2.0
//
// Axes of a node: a dense tensor as lines along one axis, and lists with one entry per axis. The
// host has checked every axis and every list (backend.h, Trust), so nothing here fails.
#pragma once

#include "kernel.hpp"

namespace tenon::sdk {

// The index of an axis of a tensor, in [0, rank). axis: in [-rank, rank), negative from the end.
inline int axis_of(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// A tensor as [outer, length, inner] around one axis. Element (o, k, i) of a dense tensor is at
// (o * length + k) * inner + i.
struct AxisView {
  int axis = 0;
  int64_t outer = 1, length = 1, inner = 1;

  int64_t count() const { return outer * inner; }  // of lines along the axis
};
// axis: in [-rank, rank); rank >= 1.
inline AxisView along_axis(const Type& type, int64_t axis) {
  AxisView v;
  v.axis = axis_of(axis, type.rank);
  v.length = type.dims[v.axis];
  for (int i = 0; i < v.axis; ++i) v.outer *= type.dims[i];
  for (int i = v.axis + 1; i < type.rank; ++i) v.inner *= type.dims[i];
  return v;
}

// The entry for one axis of a list attribute. An empty list stands for `otherwise` on every axis:
// pad with `before` alone has no `after`, narrow without `step` takes every element.
inline int64_t entry_of(const std::vector<int64_t>& list, int axis, int64_t otherwise) {
  return list.empty() ? otherwise : list[static_cast<size_t>(axis)];
}

// Which axes a reduction goes over. An empty list means all of them, or none with
// noop_with_empty_axes.
inline std::array<bool, kMaxRank> reduced_axes(const op::reduce& n, int rank) {
  std::array<bool, kMaxRank> reduced{};
  if (n.axes.empty() && !n.noop_with_empty_axes) reduced.fill(true);
  for (const int64_t axis : n.axes) reduced[static_cast<size_t>(axis_of(axis, rank))] = true;
  return reduced;
}

}  // namespace tenon::sdk
