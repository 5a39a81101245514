// SPDX-License-Identifier: Apache-2.0
// Reading and writing at indices, as nodes of ONNX.
#include <algorithm>

#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

// What a policy for indices out of range does to them, for an axis whose length is a tensor [1].
struct Indices {
  Ref at{};     // i64; in range for clamp and skip
  Ref valid{};  // of skip: bool
};

Indices indices_of(Call& c, Value indices, const std::string& oob, const Ref& length) {
  Emitter& e = c.e;
  Ref at = e.cast(c.in(indices), kI64);
  if (oob == "error") return {at, {}};
  const Ref zero = e.integer(0), one = e.integer(1);
  const Ref d = e.reshape(length, {}), last = e.add("Sub", {d, one});
  const Ref from_front = e.where(e.add("Less", {at, zero}), e.add("Add", {at, d}), at);
  Indices out;
  if (oob == "skip")
    out.valid =
        e.add("And", {e.add("GreaterOrEqual", {from_front, zero}), e.add("Less", {from_front, d})});
  out.at = e.add("Max", {e.add("Min", {from_front, last}), zero});
  return out;
}

Ref zeros(Call& c, DType dtype, const Ref& shape) {
  return c.e.add("Expand", {c.e.cast(c.e.scalar(kF32, 0), dtype), shape});
}

void write_gather(Call& c) {
  const auto n = decode<op::gather>(c.node);
  Emitter& e = c.e;
  const int rank = c.rank(n.data), axis = static_cast<int>(from_front(n.axis, rank));
  if (n.oob == "skip" && c.dim(n.data, axis) == 0) {
    std::vector<Ref> shape;
    if (axis > 0) shape.push_back(c.lengths(n.data, 0, axis));
    if (c.rank(n.indices) > 0) shape.push_back(c.lengths(n.indices, 0, c.rank(n.indices)));
    if (axis + 1 < rank) shape.push_back(c.lengths(n.data, axis + 1, rank));
    return c.out(zeros(c, c.dtype(n.data), shape.empty() ? e.ints({}) : e.concat(shape, 0)));
  }
  const Indices i = indices_of(c, n.indices, n.oob, c.length(n.data, axis));
  const Ref data = c.in(n.data);
  Ref y = e.add("Gather", {data, i.at}, {attribute("axis", axis)});
  if (i.valid) {
    const Ref valid = e.unsqueeze(i.valid, count_up(rank - 1 - axis, c.rank(n.indices)));
    y = e.where(valid, y, e.cast(e.scalar(kF32, 0), data.dtype));
  }
  c.out(y);
}

void write_gather_elements(Call& c) {
  const auto n = decode<op::gather_elements>(c.node);
  Emitter& e = c.e;
  const int axis = static_cast<int>(from_front(n.axis, c.rank(n.data)));
  if (n.oob == "skip" && c.dim(n.data, axis) == 0)
    return c.out(zeros(c, c.dtype(n.data), c.lengths(n.indices, 0, c.rank(n.indices))));
  const Indices i = indices_of(c, n.indices, n.oob, c.length(n.data, axis));
  const Ref data = c.in(n.data);
  Ref y = e.add("GatherElements", {data, i.at}, {attribute("axis", axis)});
  if (i.valid) y = e.where(i.valid, y, e.cast(e.scalar(kF32, 0), data.dtype));
  c.out(y);
}

// Writes into `base` with one more slice along the axis, for updates that are skipped.
struct Target {
  Ref base{}, at{};
  bool longer = false;
};
Target target_of(Call& c, const Ref& base, int axis, Value indices, const std::string& oob,
                 const Ref& length, const Ref& slice_shape) {
  Emitter& e = c.e;
  const Indices i = indices_of(c, indices, oob, length);
  if (!i.valid) return {base, i.at, false};
  const Ref one_more = e.add("Expand", {e.cast(e.scalar(kF32, 0), base.dtype), slice_shape});
  return {e.concat({base, one_more}, axis), e.where(i.valid, i.at, e.reshape(length, {})), true};
}
Ref cut(Emitter& e, const Ref& y, int axis, const Ref& length) {
  return e.add("Slice", {y, e.ints({0}), length, e.ints({axis})});
}

// scatter, scatter_add and scatter_reduce: slices of the axis, which goes to the front. reduction:
// of ONNX.
Ref write_slices(Call& c, Ref base, const Ref& length, const Ref& slice_shape, int rank, int axis,
                 Value indices, Value updates, const std::string& oob,
                 const std::string& reduction) {
  Emitter& e = c.e;
  const int more = c.rank(indices);
  const Target t = target_of(c, base, axis, indices, oob, length, slice_shape);
  // The axis first, then the others.
  Ints perm = {axis}, back;
  for (int64_t k = 0; k < rank; ++k)
    if (k != axis) perm.push_back(k);
  for (int64_t k = 0; k < rank; ++k) back.push_back(std::ranges::find(perm, k) - perm.begin());
  Ints update_perm = count_up(more, axis);
  for (int64_t k = 0; k < c.rank(updates); ++k)
    if (k < axis || k >= axis + more) update_perm.push_back(k);
  const Ref data = e.transpose(t.base, perm),
            now = e.cast(e.transpose(c.in(updates), update_perm), base.dtype);
  std::vector<Attribute> attributes;
  if (reduction != "none") attributes.push_back(attribute("reduction", reduction));
  Ref y = e.add("ScatterND", {data, e.unsqueeze(t.at, {more}), now}, std::move(attributes));
  y = e.transpose(y, back);
  return t.longer ? cut(e, y, axis, length) : y;
}

// The dims of `v` with axes [first, last) replaced.
Ref shape_with(Call& c, Value v, int first, int last, const Ref& dim) {
  std::vector<Ref> parts;
  if (first > 0) parts.push_back(c.lengths(v, 0, first));
  parts.push_back(dim);
  if (last < c.rank(v)) parts.push_back(c.lengths(v, last, c.rank(v)));
  return c.e.concat(parts, 0);
}

void write_scatter(Call& c) {
  const auto n = decode<op::scatter>(c.node);
  const int rank = c.rank(n.base), axis = static_cast<int>(from_front(n.axis, rank));
  const Ref one = c.e.ints({1});
  c.out(write_slices(c, c.in(n.base), c.length(n.base, axis),
                     shape_with(c, n.base, axis, axis + 1, one), rank, axis, n.indices, n.updates,
                     n.oob, "none"));
}

void write_scatter_add(Call& c) {
  const auto n = decode<op::scatter_add>(c.node);
  Emitter& e = c.e;
  const int more = c.rank(n.indices), rank = c.rank(n.updates) - more + 1,
            axis = static_cast<int>(from_front(n.axis, rank));
  const DType t = c.dtype(n.updates), wide = acc_dtype(t);
  const Ref length = n.base ? c.length(n.base, axis) : e.ints({n.dim});
  const Ref base = n.base ? e.cast(c.in(n.base), wide)
                          : e.add("Expand", {e.scalar(wide, 0),
                                             shape_with(c, n.updates, axis, axis + more, length)});
  const Ref y =
      write_slices(c, base, length, shape_with(c, n.updates, axis, axis + more, e.ints({1})), rank,
                   axis, n.indices, n.updates, n.oob, "add");
  c.out(e.cast(y, t));
}

void write_scatter_elements_add(Call& c) {
  const auto n = decode<op::scatter_elements_add>(c.node);
  Emitter& e = c.e;
  const DType t = c.dtype(n.updates), wide = acc_dtype(t);
  const int rank = c.rank(n.updates), axis = static_cast<int>(from_front(n.axis, rank));
  const Ref shape = n.base ? c.lengths(n.base, 0, rank) : e.ints(n.shape);
  const Ref base =
      n.base ? e.cast(c.in(n.base), wide) : e.add("Expand", {e.scalar(wide, 0), shape});
  const Ref length = n.base ? c.length(n.base, axis) : e.ints({n.shape[static_cast<size_t>(axis)]});
  Ref slice_shape;
  if (n.base) {
    slice_shape = shape_with(c, n.base, axis, axis + 1, e.ints({1}));
  } else {
    Ints dims = n.shape;
    dims[static_cast<size_t>(axis)] = 1;
    slice_shape = e.ints(dims);
  }
  const Target target = target_of(c, base, axis, n.indices, n.oob, length, slice_shape);
  Ref y = e.add("ScatterElements", {target.base, target.at, e.cast(c.in(n.updates), wide)},
                {attribute("axis", axis), attribute("reduction", "add")});
  if (target.longer) y = cut(e, y, axis, length);
  c.out(e.cast(y, t));
}

// What a reduction is computed in; bools are compared as numbers.
DType reduced_in(DType t) { return t == kBool ? kI32 : acc_dtype(t); }

void write_scatter_reduce(Call& c) {
  const auto n = decode<op::scatter_reduce>(c.node);
  Emitter& e = c.e;
  const int rank = c.rank(n.base), axis = static_cast<int>(from_front(n.axis, rank));
  const DType t = c.dtype(n.base);
  const Ref y = write_slices(c, e.cast(c.in(n.base), reduced_in(t)), c.length(n.base, axis),
                             shape_with(c, n.base, axis, axis + 1, e.ints({1})), rank, axis,
                             n.indices, n.updates, n.oob, n.kind);
  c.out(e.cast(y, t));
}

void write_scatter_elements_reduce(Call& c) {
  const auto n = decode<op::scatter_elements_reduce>(c.node);
  Emitter& e = c.e;
  const int rank = c.rank(n.base), axis = static_cast<int>(from_front(n.axis, rank));
  const DType t = c.dtype(n.base), wide = reduced_in(t);
  const Ref length = c.length(n.base, axis);
  const Target target = target_of(c, e.cast(c.in(n.base), wide), axis, n.indices, n.oob, length,
                                  shape_with(c, n.base, axis, axis + 1, e.ints({1})));
  Ref y = e.add("ScatterElements", {target.base, target.at, e.cast(c.in(n.updates), wide)},
                {attribute("axis", axis), attribute("reduction", n.kind)});
  if (target.longer) y = cut(e, y, axis, length);
  c.out(e.cast(y, t));
}

// start[k] as a scalar: in range with oob clamp; else too large instead of negative, because Gather
// counts negative numbers from the end.
Ref start_of(Call& c, const Ref& starts, int64_t k, const std::string& oob, int64_t most) {
  Emitter& e = c.e;
  const Ref at = e.reshape(e.slice(starts, 0, k, k + 1), {});
  if (oob == "clamp") return e.add("Max", {e.add("Min", {at, e.integer(most)}), e.integer(0)});
  return e.where(e.add("Less", {at, e.integer(0)}), e.integer(most + 1), at);
}

void write_dynamic_slice(Call& c) {
  const auto n = decode<op::dynamic_slice>(c.node);
  Emitter& e = c.e;
  const Ints dims = c.dims(n.x, "x");
  const Ref starts = e.cast(c.in(n.start), kI64);
  Ref y = c.in(n.x);
  bool moved = false;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (n.size[k] == dims[k] && (n.oob == "clamp" || dims.size() > 1)) continue;
    const auto axis = static_cast<int64_t>(k);
    const Ref at = start_of(c, starts, axis, n.oob, dims[k] - n.size[k]);
    const Ref index = e.add("Add", {e.range(e.integer(n.size[k])), at});
    y = e.add("Gather", {y, index}, {attribute("axis", axis)});
    moved = true;
  }
  c.out(moved ? y : e.add("Identity", {y}));
}

void write_dynamic_update_slice(Call& c) {
  const auto n = decode<op::dynamic_update_slice>(c.node);
  Emitter& e = c.e;
  const Ints dims = c.dims(n.base, "base"), size = c.dims(n.update, "update");
  if (dims.empty()) return c.out(e.add("Identity", {c.in(n.update)}));
  if (std::ranges::find(size, 0) != size.end()) return c.out(e.add("Identity", {c.in(n.base)}));
  const Ref starts = e.cast(c.in(n.start), kI64);
  // Rows of indices for the axes up to the last one that is not whole.
  size_t last = 0;
  for (size_t k = 0; k < dims.size(); ++k)
    if (size[k] != dims[k]) last = k;
  const auto axes = static_cast<int64_t>(last) + 1;
  const Ints rows(size.begin(), size.begin() + axes);
  std::vector<Ref> parts;
  for (int64_t k = 0; k < axes; ++k) {
    const auto i = static_cast<size_t>(k);
    const Ref at = start_of(c, starts, k, n.oob, dims[i] - size[i]);
    Ints along(static_cast<size_t>(axes), 1);
    along[i] = size[i];
    Ref index = e.add("Add", {e.range(e.integer(size[i])), at});
    index = e.add("Reshape", {index, e.ints(along)}, {attribute("allowzero", 1)});
    parts.push_back(e.unsqueeze(e.add("Expand", {index, e.ints(rows)}), {axes}));
  }
  c.out(e.add("ScatterND", {c.in(n.base), e.concat(parts, axes), c.in(n.update)}));
}

// The model's rows are as many as there are: those that tenon leaves out are not there.
void write_non_zero(Call& c) {
  const auto n = decode<op::non_zero>(c.node);
  Emitter& e = c.e;
  Ref x = c.in(n.x);
  Ref found = x;
  if (x.dtype != kBool)
    found = e.add("Not", {e.add("Equal", {x, e.cast(e.scalar(kF32, 0), x.dtype)})});
  if (n.bound >= 0) {
    // Those beyond the bound are not looked for. A slice of the rows would say the same, but tenon
    // cannot read it: it plans for all rows, and knows only in the run which ones are there.
    const Ref flat = e.reshape(found, {-1});
    const Ref number = e.add("CumSum", {e.cast(flat, kI64), e.integer(0)});
    const Ref kept = e.add("And", {flat, e.add("LessOrEqual", {number, e.integer(n.bound)})});
    found = x =
        e.add("Reshape", {kept, c.lengths(n.x, 0, c.rank(n.x))}, {attribute("allowzero", 1)});
  }
  const bool is_scalar = c.rank(n.x) == 0;  // its rows have no columns
  Ref at = e.add("NonZero", {is_scalar ? e.unsqueeze(x, {0}) : x});
  at = e.transpose(at, {1, 0});
  if (is_scalar) at = e.add("Gather", {at, e.ints({})}, {attribute("axis", 1)});
  c.out(0, at);
  // By counting: the reader of ONNX models in tenon takes shapes as known before the run.
  c.out(1, e.add("ReduceSum", {e.cast(found, kI64)}, {attribute("keepdims", 0)}));
}

constexpr ExportRule kRules[] = {
    {"gather", write_gather},
    {"gather_elements", write_gather_elements},
    {"scatter", write_scatter},
    {"scatter_add", write_scatter_add},
    {"scatter_elements_add", write_scatter_elements_add},
    {"scatter_reduce", write_scatter_reduce},
    {"scatter_elements_reduce", write_scatter_elements_reduce},
    {"dynamic_slice", write_dynamic_slice},
    {"dynamic_update_slice", write_dynamic_update_slice},
    {"non_zero", write_non_zero},
};

}  // namespace

std::span<const ExportRule> index_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
