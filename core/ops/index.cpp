// SPDX-License-Identifier: Apache-2.0
// Records of the index family: gather gather_backward scatter scatter_add dynamic_slice
// dynamic_update_slice non_zero.
#include "ops/index.hpp"

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Shape picked(const Infer& i, const Shape& data, int axis, const Shape& indices) {
  const int rank = data.rank() - 1 + indices.rank();
  if (rank > TENON_MAX_RANK)
    i.fail(Code::unsupported, "rank ", rank, " of data ", data.text(), " picked by indices ",
           indices.text(), " is over the limit of 8");
  Shape out;
  for (int k = 0; k < data.rank(); ++k) {
    if (k != axis)
      out.push(data[k]);
    else
      for (const Dim d : indices) out.push(d);
  }
  return sized(i, out);
}

Value spread_indices(Batch& v, Value indices, const Shape& data, int axis) {
  Builder& b = v.b;
  const Dim count = v.type(indices).shape.elements();
  Shape thin = {v.size()}, wide = {v.size()};
  for (int i = 0; i < data.rank(); ++i) {
    thin.push(i == axis ? count : 1);
    wide.push(i == axis ? count : data[i]);
  }
  return b.expand(b.reshape(v.all(indices), thin), wide);
}

namespace {

// The reverse of picked(): replaces the axes of indices, starting at `axis`, by one axis of length
// `dim`.
Shape unpicked(const Infer& i, Value updates, std::string_view operand, int axis, Value indices,
               int64_t dim) {
  const Shape &from = i.shape(updates), &index = i.shape(indices);
  Shape to;
  for (int k = 0; k < axis; ++k) to.push(from[k]);
  to.push(dim);
  for (int k = axis + index.rank(); k < from.rank(); ++k) to.push(from[k]);
  for (int k = 0; k < index.rank(); ++k)
    if (from[axis + k] != index[k])
      i.fail(Code::shape_mismatch, "operand ", operand, ": expected the shape of indices ",
             index.text(), " from axis ", axis, ", got ", i.type(updates).text());
  return sized(i, to);
}

// The rank of the tensor that receives updates with those indices.
int target_rank(const Infer& i, Value updates, std::string_view operand, Value indices) {
  const int rank = i.shape(updates).rank() - i.shape(indices).rank() + 1;
  if (rank < 1)
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected at least the rank of indices ",
           i.type(indices).text(), ", got ", i.type(updates).text());
  return rank;
}

// Reshapes a condition per index so that it broadcasts over rows with `trailing` more axes.
Value per_row(Builder& b, Value cond, int trailing) {
  Shape to = b.shape(cond);
  for (int k = 0; k < trailing; ++k) to.push(1);
  return b.reshape(cond, to);
}

// Rows of a tensor of blocks consist of whole blocks.
void want_axis_of_rows(const Infer& i, Value v, std::string_view operand, int axis) {
  if (is_blocks(i.dtype(v)) && axis == i.shape(v).rank() - 1)
    i.fail(Code::unsupported, "operand ", operand, ": ", i.type(v).text(),
           " has blocks along its last axis; expected another axis, given ", axis);
}

// ---- gather

void gather_shape(Infer& i, const op::gather& n) {
  i.want_index(n.indices, "indices");
  want_ranked(i, n.data, "data");
  const Shape& data = i.shape(n.data);
  const int axis = i.axis(n.axis, data.rank());
  want_axis_of_rows(i, n.data, "data", axis);
  want_reachable(i, data[axis], n.indices, n.oob);
  i.out(0, {i.dtype(n.data), picked(i, data, axis, i.shape(n.indices))});
}

void gather_grad(Grad& g, const op::gather& n) {
  if (!g.wants(n.data)) return;
  const Shape& data = g.b.shape(n.data);
  const int axis = normalize_axis(n.axis, data.rank(), "gather");
  const int64_t dim = data[axis];
  g.give(n.data, g.b.add(op::gather_backward{
                     .axis = axis, .dim = dim, .oob = n.oob, .dy = g.dy(), .indices = n.indices}));
}

// Only rows with an index are read.
double gather_bytes(const Cost& c, const op::gather& n) {
  return 2 * c.bytes(c.out(0)) + c.bytes(n.indices);
}
// ---- batch

// Rows of blocks are moved where they are: they are neither transposed nor repeated.
void want_same_rows(const Batch& v, std::string_view op, Value indices, bool all) {
  if (v.batched(indices) || !all)
    fail(Code::unsupported, op, ": expected blocks of each example and the same indices for all");
}

bool gather_batch(Batch& v, const op::gather& one) {
  Builder& b = v.b;
  if (is_blocks(v.type(one.data).dtype)) want_same_rows(v, "gather", one.indices, true);
  const Shape& data = v.type(one.data).shape;
  const int axis = normalize_axis(one.axis, data.rank(), "gather");
  op::gather n = one;
  n.data = v.given(one.data), n.indices = v.given(one.indices);
  if (!v.batched(one.indices)) {
    n.axis = axis + 1;
    v.out(0, b.add(n));
  } else if (!v.batched(one.data)) {
    // The batch axis of the indices ends up at the axis; it is moved to the front.
    const Value y = b.add(n);
    Ints perm = {axis};
    for (int i = 0; i < b.shape(y).rank(); ++i)
      if (i != axis) perm.push_back(i);
    v.out(0, b.transpose(y, perm));
  } else {
    const Value picked =
        b.add(op::gather_elements{.axis = axis + 1,
                                  .oob = n.oob,
                                  .data = n.data,
                                  .indices = spread_indices(v, one.indices, data, axis)});
    v.out(0, b.reshape(picked, v.result(0)));
  }
  return true;
}

// ---- padding

bool gather_padded(Padded& p, const op::gather& n) {
  const int axis = normalize_axis(n.axis, p.rank(n.data), "gather");
  p.index_counted(n.indices, p.length(n.data, axis), p.type(n.data).shape[axis], n.oob == "clamp");
  p.clamp_indices(n.indices, p.type(n.data).shape[axis]);
  return true;
}

constexpr Record<op::gather> kGather{.shape = gather_shape,
                                     .words = {{"oob", "error clamp skip"}},
                                     .grad = gather_grad,
                                     .batch = gather_batch,
                                     .padded = gather_padded,
                                     .flops = no_products,
                                     .bytes = gather_bytes,
                                     .traits = kReadsBlocks};

// ---- gather_backward

void gather_backward_shape(Infer& i, const op::gather_backward& n) {
  i.want_float(n.dy, "dy");
  i.want_index(n.indices, "indices");
  const int axis = i.axis(n.axis, target_rank(i, n.dy, "dy", n.indices));
  if (n.dim < 0) i.fail(Code::invalid_argument, "attribute dim: expected a length, given ", n.dim);
  want_reachable(i, n.dim, n.indices, n.oob);
  if (n.padding_idx != INT64_MIN && (n.padding_idx < -n.dim || n.padding_idx >= n.dim))
    i.fail(Code::invalid_argument, "attribute padding_idx: expected one in [", -n.dim, ", ", n.dim,
           "), given ", n.padding_idx);
  i.out(0, {i.dtype(n.dy), unpicked(i, n.dy, "dy", axis, n.indices, n.dim)});
}

bool gather_backward_lower(Lower& l, const op::gather_backward& n) {
  Builder& b = l.b;
  const int rank = b.shape(n.dy).rank() - b.shape(n.indices).rank() + 1;
  const int axis = normalize_axis(n.axis, rank, "gather_backward");
  Value indices = n.indices, dy = n.dy;
  std::string oob = n.oob;
  // i64, so that the length of the axis is representable.
  if (oob == "clamp" || n.padding_idx != INT64_MIN) indices = b.cast(indices, kI64);
  if (oob == "clamp") {
    // scatter_add has no clamp: clamp the indices to the first and last row.
    indices = b.max(indices, b.scalar_int(kI64, -n.dim));
    indices = b.min(indices, b.scalar_int(kI64, n.dim - 1));
    oob = "error";
  }
  if (n.padding_idx != INT64_MIN) {
    const int64_t row = n.padding_idx < 0 ? n.padding_idx + n.dim : n.padding_idx;
    const Value padding = b.logical("or", b.compare("eq", indices, b.scalar_int(kI64, row)),
                                    b.compare("eq", indices, b.scalar_int(kI64, row - n.dim)));
    // A select, so that NaN in the gradient of a padding row has no effect.
    dy = b.where(per_row(b, padding, rank - 1 - axis), b.scalar(b.dtype(dy), 0), dy);
  }
  l.out(0, b.add(op::scatter_add{
               .axis = axis, .dim = n.dim, .oob = oob, .updates = dy, .indices = indices}));
  return true;
}

// Rows of updates, of the indices' axes from `axis` on, are added: padded ones add zero.
void add_counted(Padded& p, Value updates, Value indices, int axis, const std::string& oob) {
  p.index_counted(indices, p.result_length(0, axis), p.result(0).shape[axis], oob == "clamp");
  p.clamp_indices(indices, p.result(0).shape[axis]);
  for (int i = 0; i < p.rank(indices); ++i) p.fill(updates, axis + i, Fill::zero);
}

bool gather_backward_padded(Padded& p, const op::gather_backward& n) {
  const int axis = normalize_axis(n.axis, p.result(0).shape.rank(), "gather_backward");
  if (n.padding_idx != INT64_MIN && p.result_length(0, axis))
    return p.refuse("a padding_idx along a padded axis");
  add_counted(p, n.dy, n.indices, axis, n.oob);
  return true;
}

constexpr Record<op::gather_backward> kGatherBackward{.shape = gather_backward_shape,
                                                      .words = {{"oob", "error clamp skip"}},
                                                      .lower = gather_backward_lower,
                                                      .batch = indexed_batch<op::gather_backward>,
                                                      .padded = gather_backward_padded,
                                                      .flops = no_products,
                                                      .bytes = each_once};

// ---- scatter

void scatter_shape(Infer& i, const op::scatter& n) {
  i.want_index(n.indices, "indices");
  i.want_same_dtype(n.base, "base", n.updates, "updates");
  want_ranked(i, n.base, "base");
  want_axis_of_rows(i, n.base, "base", i.axis(n.axis, i.shape(n.base).rank()));
  want_slices(i, n);
}

void scatter_grad(Grad& g, const op::scatter& n) {
  if (!g.wants(n.base) && !g.wants(n.updates)) return;
  Builder& b = g.b;
  const Shape base = b.shape(n.base), index = b.shape(n.indices);
  const int axis = normalize_axis(n.axis, base.rank(), "scatter");
  const int trailing = base.rank() - 1 - axis;
  const Value dy = g.dy(), zero = b.scalar(b.dtype(dy), 0);
  // Per row of base: the position in indices of the last update, or -1.
  const int64_t count = index.elements();
  const Value position = b.iota({count}, 0, kI64);
  const Value winner = b.add(
      op::scatter{.oob = n.oob,
                  .base = b.add(op::expand{.shape = {base[axis]}, .x = b.scalar_int(kI64, -1)}),
                  .indices = b.reshape(n.indices, {count}),
                  .updates = position});
  if (g.wants(n.base)) {
    const Value written = b.compare("ge", winner, b.scalar_int(kI64, 0));
    g.give(n.base, b.where(per_row(b, written, trailing), zero, dy));
  }
  if (g.wants(n.updates)) {
    const Value won =
        b.compare("eq", b.add(op::gather{.oob = n.oob, .data = winner, .indices = n.indices}),
                  b.reshape(position, index));
    const Value rows =
        b.add(op::gather{.axis = axis, .oob = n.oob, .data = dy, .indices = n.indices});
    g.give(n.updates, b.where(per_row(b, won, trailing), rows, zero));
  }
}

double scatter_bytes(const Cost& c, const op::scatter& n) {
  return 2 * c.bytes(n.updates) + c.bytes(n.indices);
}
bool scatter_batch(Batch& v, const op::scatter& n) {
  if (is_blocks(v.type(n.base).dtype))
    want_same_rows(v, "scatter", n.indices, v.batched(n.base) && v.batched(n.updates));
  return indexed_batch(v, n);
}
bool scatter_padded(Padded& p, const op::scatter& n) {
  if (p.any(n.indices)) return p.refuse("the rows that it writes are padded");
  const int axis = normalize_axis(n.axis, p.rank(n.base), "scatter");
  p.index_counted(n.indices, p.length(n.base, axis), p.type(n.base).shape[axis], n.oob == "clamp");
  return true;
}

constexpr Record<op::scatter> kScatter{.shape = scatter_shape,
                                       .words = {{"oob", "error clamp skip"}},
                                       .grad = scatter_grad,
                                       .batch = scatter_batch,
                                       .padded = scatter_padded,
                                       .flops = no_products,
                                       .bytes = scatter_bytes,
                                       .traits = kReadsBlocks};

// ---- scatter_add

void scatter_add_shape(Infer& i, const op::scatter_add& n) {
  i.want_index(n.indices, "indices");
  want_number(i, n.updates, "updates");
  i.want_same_dtype(n.updates, "updates", n.base, "base");
  if (!n.base) {
    const int axis = i.axis(n.axis, target_rank(i, n.updates, "updates", n.indices));
    if (n.dim < 0)
      i.fail(Code::invalid_argument, "attribute dim: expected a length, given ", n.dim);
    want_reachable(i, n.dim, n.indices, n.oob);
    i.out(0, {i.dtype(n.updates), unpicked(i, n.updates, "updates", axis, n.indices, n.dim)});
    return;
  }
  want_ranked(i, n.base, "base");
  const Shape& base = i.shape(n.base);
  const int axis = i.axis(n.axis, base.rank());
  if (n.dim != 0 && n.dim != base[axis])
    i.fail(Code::invalid_argument, "attribute dim: expected 0 or ", base[axis],
           " as operand base, given ", n.dim);
  want_reachable(i, base[axis], n.indices, n.oob);
  i.want_shape(n.updates, "updates", picked(i, base, axis, i.shape(n.indices)));
  i.out(0, i.type(n.base));
}

void scatter_add_grad(Grad& g, const op::scatter_add& n) {
  const Value dy = g.dy();
  if (g.wants(n.updates))
    g.give(n.updates,
           g.b.add(op::gather{.axis = normalize_axis(n.axis, g.b.shape(dy).rank(), "scatter_add"),
                              .oob = n.oob,
                              .data = dy,
                              .indices = n.indices}));
  if (g.wants(n.base)) g.give(n.base, dy);
}

// With a base, only rows with updates are read and written. Without a base, all rows are written.
double scatter_add_bytes(const Cost& c, const op::scatter_add& n) {
  const double updates = c.bytes(n.updates);
  return updates + c.bytes(n.indices) + (n.base ? 2 * updates : c.bytes(c.out(0)));
}
bool scatter_add_batch(Batch& v, const op::scatter_add& one) {
  if (!v.batched(one.indices)) return indexed_batch(v, one);
  const Shape y = v.result(0);
  const Shape target(y.dims().subspan(1));
  const int axis = normalize_axis(one.axis, target.rank(), "scatter_add");
  const Value indices = spread_indices(v, one.indices, target, axis);
  v.out(0, v.b.add(op::scatter_elements_add{
               .axis = axis + 1,
               .shape = one.base ? Ints{} : Ints(y.begin(), y.end()),
               .oob = one.oob,
               .updates = v.b.reshape(v.all(one.updates), v.b.shape(indices)),
               .indices = indices,
               .base = v.all(one.base)}));
  return true;
}

bool scatter_add_padded(Padded& p, const op::scatter_add& n) {
  add_counted(p, n.updates, n.indices,
              normalize_axis(n.axis, p.result(0).shape.rank(), "scatter_add"), n.oob);
  return true;
}

constexpr Record<op::scatter_add> kScatterAdd{.shape = scatter_add_shape,
                                              .words = {{"oob", "error skip"}},
                                              .grad = scatter_add_grad,
                                              .batch = scatter_add_batch,
                                              .padded = scatter_add_padded,
                                              .flops = no_products,
                                              .bytes = scatter_add_bytes};

// ---- dynamic_slice, dynamic_update_slice

void want_start(const Infer& i, Value start, int rank) {
  i.want_index(start, "start");
  i.want_shape(start, "start", {rank});
}

void dynamic_slice_shape(Infer& i, const op::dynamic_slice& n) {
  const Shape& from = i.shape(n.x);
  want_start(i, n.start, from.rank());
  if (n.size.size() != static_cast<size_t>(from.rank()))
    i.fail(Code::invalid_argument, "attribute size: expected one entry per axis, ", from.rank(),
           ", given ", n.size.size());
  for (int k = 0; k < from.rank(); ++k) {
    const int64_t size = n.size[static_cast<size_t>(k)];
    if (size < 0)
      i.fail(Code::invalid_argument, "attribute size: axis ", k, ": expected a length, given ",
             size);
    if (size > from[k])
      i.fail(Code::shape_mismatch, "operand x: expected at least ", size, " elements on axis ", k,
             ", got ", i.type(n.x).text());
  }
  i.out(0, {i.dtype(n.x), Shape(std::span<const Dim>(n.size))});
}

void dynamic_slice_grad(Grad& g, const op::dynamic_slice& n) {
  if (!g.wants(n.x)) return;
  const Value zeros = g.b.zeros(g.b.type(n.x));
  g.give(n.x, g.b.add(op::dynamic_update_slice{
                  .oob = n.oob, .base = zeros, .update = g.dy(), .start = n.start}));
}

double dynamic_slice_bytes(const Cost& c, const op::dynamic_slice& n) {
  return 2 * c.bytes(c.out(0)) + c.bytes(n.start);
}
// One start for all examples.
template <class Op>
bool slice_batch(Batch& v, const Op& one) {
  if (v.batched(one.start)) return false;
  Builder& b = v.b;
  const Value start = v.given(one.start);
  const Value from = b.concat({b.zeros({b.dtype(start), {1}}), start}, 0);
  Op n = one;
  if constexpr (requires { n.size; }) n.size.insert(n.size.begin(), v.size());
  return v.add(n, [&](Value x) { return x == one.start ? from : v.all(x); });
}

// One entry of a start, as i64 [], and the start with another entry.
Value entry_of(Builder& b, Value start, int axis) {
  return b.cast(b.reshape(b.narrow(start, 0, axis, 1), {}), kI64);
}
Value with_entry(Builder& b, Value start, int axis, Value entry) {
  const Value is_it = b.compare("eq", b.iota(b.shape(start), 0, kI64), b.scalar_int(kI64, axis));
  return b.where(is_it, b.cast(entry, b.dtype(start)), start);
}

// A block of `size` elements that starts here lies in an axis whose first `length` elements count:
// the same start, clamped if `clamp`, else one beyond the padding where it does not.
Value start_within(Builder& b, Value start, Value length, Value size, int64_t padded, bool clamp) {
  const Value last = b.minus(length, size), zero = b.scalar_int(kI64, 0);
  if (clamp) return b.min(b.max(start, zero), last);
  return b.where(b.compare("gt", start, last), b.scalar_int(kI64, padded), start);
}

// A block of `padded` elements of which `length` count begins at `start` in an axis of `whole`. Near
// the end of the axis there may be no room behind what counts: then the block that is accessed begins
// earlier. A start that is out of range stays so.
struct Block {
  Value first;  // where the block that is accessed begins, i64 []
  Value place;  // for each of its elements, the one that it is of what counts, i64 [padded]
};
Block block_of(Builder& b, Value start, Value length, int64_t padded, int64_t whole, bool clamp) {
  const Value size = b.scalar_int(kI64, whole);
  const Value at = start_within(b, start, size, length, whole + 1, clamp);
  const Value early = b.min(at, b.scalar_int(kI64, whole - padded));
  const Value first = b.where(b.compare("le", at, size), early, at);
  return {first, b.minus(b.iota({padded}, 0, kI64), b.minus(at, early))};
}
// The elements of x at these places along an axis, those outside of it being anything.
Value placed(Builder& b, Value x, int axis, Value places) {
  const Value last = b.scalar_int(kI64, b.shape(x)[axis] - 1), zero = b.scalar_int(kI64, 0);
  return b.add(op::gather{.axis = axis, .data = x, .indices = b.min(b.max(places, zero), last)});
}

bool dynamic_slice_padded(Padded& p, const op::dynamic_slice& n) {
  Builder& b = p.b;
  const bool clamp = n.oob == "clamp";
  Value start = p.value(n.start);
  int moved = -1;  // the axis whose block may begin earlier
  Block block;
  for (int i = 0; i < p.rank(n.x); ++i) {
    const Length length = p.result_length(0, i);
    const int64_t whole = p.type(n.x).shape[i], size = p.result(0).shape[i];
    if (length && length == p.length(n.x, i) && size == whole) continue;
    if (length && (p.along(n.x, i) || moved >= 0)) return p.refuse("its size is padded");
    if (length) {
      moved = i;
      block = block_of(b, entry_of(b, start, i), p.length_value(length), size, whole, clamp);
      start = with_entry(b, start, i, block.first);
    } else if (p.along(n.x, i)) {
      const Value count = b.scalar_int(kI64, size);
      start = with_entry(
          b, start, i,
          start_within(b, entry_of(b, start, i), p.length_of(n.x, i), count, whole + 1, clamp));
    }
  }
  p.put(n.start, start);
  if (moved < 0) return true;
  op::dynamic_slice now = n;
  now.x = p.value(n.x), now.start = start;
  const int64_t size = p.result(0).shape[moved];
  // Element j is at j + (at - first).
  const Value places =
      b.minus(b.times(b.iota({size}, 0, kI64), b.scalar_int(kI64, 2)), block.place);
  p.out(0, placed(b, b.add(now), moved, places));
  return true;
}

constexpr Record<op::dynamic_slice> kDynamicSlice{.shape = dynamic_slice_shape,
                                                  .words = {{"oob", "error clamp"}},
                                                  .grad = dynamic_slice_grad,
                                                  .batch = slice_batch<op::dynamic_slice>,
                                                  .padded = dynamic_slice_padded,
                                                  .flops = no_products,
                                                  .bytes = dynamic_slice_bytes};

void dynamic_update_slice_shape(Infer& i, const op::dynamic_update_slice& n) {
  i.want_same_dtype(n.base, "base", n.update, "update");
  const Shape& base = i.shape(n.base);
  i.want_rank(n.update, "update", base.rank());
  want_start(i, n.start, base.rank());
  for (int k = 0; k < base.rank(); ++k)
    if (i.shape(n.update)[k] > base[k])
      i.fail(Code::shape_mismatch, "operand update: expected at most ", base[k],
             " elements on axis ", k, " as operand base, got ", i.type(n.update).text());
  i.out(0, i.type(n.base));
}

void dynamic_update_slice_grad(Grad& g, const op::dynamic_update_slice& n) {
  Builder& b = g.b;
  const Value dy = g.dy();
  const Type block = b.type(n.update);
  if (g.wants(n.base))
    g.give(n.base, b.add(op::dynamic_update_slice{
                       .oob = n.oob, .base = dy, .update = b.zeros(block), .start = n.start}));
  if (g.wants(n.update))
    g.give(n.update, b.add(op::dynamic_slice{.size = Ints(block.shape.begin(), block.shape.end()),
                                             .oob = n.oob,
                                             .x = dy,
                                             .start = n.start}));
}

double dynamic_update_slice_bytes(const Cost& c, const op::dynamic_update_slice& n) {
  return 2 * c.bytes(n.update) + c.bytes(n.start);
}
// Of an update with one padded axis, the whole is written, but with the old elements in the place of
// padding, and in front of it where the block begins earlier.
bool dynamic_update_slice_padded(Padded& p, const op::dynamic_update_slice& n) {
  Builder& b = p.b;
  const bool clamp = n.oob == "clamp";
  Value start = p.value(n.start);
  int axis = -1;
  for (int i = 0; i < p.rank(n.base); ++i) {
    const Length update = p.length(n.update, i), base = p.length(n.base, i);
    const int64_t size = p.type(n.update).shape[i], whole = p.type(n.base).shape[i];
    if (update == base && size == whole) continue;
    if (update && (base || axis >= 0)) return p.refuse("axes of its update are padded");
    if (update) {
      axis = i;
    } else if (base) {
      const Value count = b.scalar_int(kI64, size);
      start = with_entry(
          b, start, i,
          start_within(b, entry_of(b, start, i), p.length_of(n.base, i), count, whole + 1, clamp));
    }
  }
  p.put(n.start, start);
  if (axis < 0) return true;
  const Shape shape = p.type(n.update).shape;
  const Value length = p.length_of(n.update, axis);
  const Block block =
      block_of(b, entry_of(b, start, axis), length, shape[axis], p.type(n.base).shape[axis], clamp);
  start = with_entry(b, start, axis, block.first);
  const Value old = b.add(op::dynamic_slice{.size = Ints(shape.begin(), shape.end()),
                                            .oob = n.oob,
                                            .x = p.value(n.base),
                                            .start = start});
  Shape line;
  for (int i = 0; i < shape.rank(); ++i) line.push(i == axis ? shape[i] : 1);
  const Value is_new = b.logical("and", b.compare("ge", block.place, b.scalar_int(kI64, 0)),
                                 b.compare("lt", block.place, length));
  p.put(n.update,
        b.where(b.reshape(is_new, line), placed(b, p.value(n.update), axis, block.place), old));
  p.put(n.start, start);
  return true;
}

constexpr Record<op::dynamic_update_slice> kDynamicUpdateSlice{
    .shape = dynamic_update_slice_shape,
    .words = {{"oob", "error clamp"}},
    .grad = dynamic_update_slice_grad,
    .batch = slice_batch<op::dynamic_update_slice>,
    .padded = dynamic_update_slice_padded,
    .flops = no_products,
    .bytes = dynamic_update_slice_bytes};

// ---- non_zero

int64_t rows_of(int64_t bound, const Shape& x) { return bound < 0 ? x.elements() : bound; }

void non_zero_shape(Infer& i, const op::non_zero& n) {
  const Type x = i.type(n.x);
  if (!is_float(x.dtype) && !is_integer(x.dtype) && x.dtype != kBool)
    i.fail(Code::dtype_mismatch, "operand x: expected numbers or bool, got ", x.text());
  if (n.bound < -1)
    i.fail(Code::invalid_argument, "attribute bound: expected -1, or one of at least 0, given ",
           n.bound);
  i.out(0, {kI64, sized(i, {rows_of(n.bound, x.shape), x.shape.rank()})});
  i.out(1, {kI64, {}});
}

// Each element that is not 0 gets the next row; the others, and those above the bound, get one behind
// all rows, which scatter leaves out.
bool non_zero_lower(Lower& l, const op::non_zero& n) {
  Builder& b = l.b;
  const Type x = l.type(n.x);
  const int64_t elements = x.shape.elements(), rows = rows_of(n.bound, x.shape);
  const Value line = b.reshape(n.x, {elements});
  const Value taken = x.dtype == kBool ? line : b.compare("ne", line, b.scalar_int(x.dtype, 0));
  const Value ones = b.cast(taken, kI64), behind = b.scalar_int(kI64, rows);
  const Value before = b.add(op::cumsum{.axis = 0, .exclusive = true, .x = ones});
  const Value row = b.where(taken, b.min(before, behind), behind);
  const Value each_place = b.iota({elements}, 0, kI64);
  // Rows behind the extent are the last one again, because it is one that is wanted.
  const Value last =
      elements ? b.reduce("max", b.where(taken, each_place, b.scalar_int(kI64, 0)), {0}, true)
               : b.zeros({kI64, {1}});
  const Value place = b.add(op::scatter{.axis = 0,
                                        .oob = "skip",
                                        .base = b.expand(last, {rows}),
                                        .indices = row,
                                        .updates = each_place});
  std::vector<Value> columns;
  int64_t each = elements;
  for (int i = 0; i < x.shape.rank(); ++i) {
    each /= std::max<int64_t>(x.shape[i], 1);
    const Value block = b.over(place, b.scalar_int(kI64, std::max<int64_t>(each, 1)));
    const Value index =
        i == 0 ? block
               : b.binary("mod", block, b.scalar_int(kI64, std::max<int64_t>(x.shape[i], 1)));
    columns.push_back(b.unsqueeze(index, 1));
  }
  l.out(0, columns.empty() ? b.zeros({kI64, {rows, 0}}) : b.concat(std::move(columns), 1));
  l.out(1, b.min(b.sum(ones, {0}, false), behind));
  return true;
}

bool non_zero_padded(Padded& p, const op::non_zero& n) {
  for (int i = 0; i < p.rank(n.x); ++i) p.fill(n.x, i, Fill::zero);
  return true;
}

constexpr Record<op::non_zero> kNonZero{.shape = non_zero_shape,
                                        .lower = non_zero_lower,
                                        .padded = non_zero_padded,
                                        .flops = no_products,
                                        .bytes = each_once,
                                        .traits = kNotDifferentiable | kExtent};

}  // namespace

const OpRecord gather_def = record<op::gather, kGather>();
const OpRecord gather_backward_def = record<op::gather_backward, kGatherBackward>();
const OpRecord scatter_def = record<op::scatter, kScatter>();
const OpRecord scatter_add_def = record<op::scatter_add, kScatterAdd>();
const OpRecord dynamic_slice_def = record<op::dynamic_slice, kDynamicSlice>();
const OpRecord dynamic_update_slice_def = record<op::dynamic_update_slice, kDynamicUpdateSlice>();
const OpRecord non_zero_def = record<op::non_zero, kNonZero>();

}  // namespace tenon::core
