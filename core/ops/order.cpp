// SPDX-License-Identifier: Apache-2.0
// Records of the order family: argmax argmin topk sort. Order of values: NaN is the largest, -0
// equals +0, false comes before true, equal values keep their order.
#include <limits>

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// Bools are ordered as bytes; those among the results are bools again.
template <class Op>
bool by_bytes(Lower& l, const Op& n) {
  Builder& b = l.b;
  if (b.dtype(n.x) != kBool) return false;
  Op m = n;
  m.x = b.cast(n.x, kU8);
  const Results y = b.add(m);
  for (size_t k = 0; k < y.outputs.size(); ++k)
    if (l.wanted(k)) l.out(k, b.dtype(y[k]) == kU8 ? b.cast(y[k], kBool) : y[k]);
  return true;
}

// ---- argmax, argmin

template <class Op>
void arg_shape(Infer& i, const Op& n) {
  want_number_or_bool(i, n.x, "x");
  const Shape& from = i.shape(n.x);
  const int axis = i.axis(n.axis, from.rank());
  if (from[axis] == 0)
    i.fail(Code::shape_mismatch, "operand x: expected elements along axis ", axis, ", got ",
           i.type(n.x).text());
  Shape to;
  for (int k = 0; k < from.rank(); ++k) {
    if (k != axis)
      to.push(from[k]);
    else if (n.keepdims)
      to.push(1);
  }
  i.out(0, {kI64, to});
}

template <class Op>
bool arg_lower(Lower& l, const Op& n) {
  if (by_bytes(l, n)) return true;
  Builder& b = l.b;
  const Shape shape = b.shape(n.x);
  const int axis = normalize_axis(n.axis, shape.rank(), Op::kName);
  const int64_t dim = shape[axis];
  Shape line;
  for (int k = 0; k < shape.rank(); ++k) line.push(k == axis ? dim : 1);
  const Value position = b.iota(line, axis, kI64);
  const Value none = b.scalar_int(kI64, dim);
  const auto first = [&](Value hit) {
    return b.reduce("min", b.where(hit, position, none), {axis}, n.keepdims);
  };
  const auto last = [&](Value hit) {
    return b.reduce("max", b.where(hit, position, b.scalar_int(kI64, -1)), {axis}, n.keepdims);
  };
  const Value extreme = b.reduce(std::is_same_v<Op, op::argmax> ? "max" : "min", n.x, {axis}, true);
  const Value hit = b.compare("eq", n.x, extreme);
  Value y = n.select_last ? last(hit) : first(hit);
  if (is_float(b.dtype(n.x))) {
    // The first NaN wins, also with select_last. The maximum of a line with NaN is NaN, which
    // equals no element.
    const Value nan = first(b.unary("is_nan", n.x));
    y = b.where(b.compare("lt", nan, none), nan, y);
  }
  l.out(0, y);
  return true;
}

// Equal values keep their order, so padding is never the first of them.
template <class Op>
bool arg_padded(Padded& p, const Op& n) {
  if (!p.along(n.x, n.axis)) return true;
  if (n.select_last) return p.refuse("the last of equal values along a padded axis");
  p.fill(n.x, n.axis, std::is_same_v<Op, op::argmax> ? Fill::lowest : Fill::highest);
  return true;
}

constexpr Record<op::argmax> kArgmax{.shape = arg_shape<op::argmax>,
                                     .lower = arg_lower<op::argmax>,
                                     .batch = batch_along_axis<op::argmax>,
                                     .padded = arg_padded<op::argmax>,
                                     .flops = no_products,
                                     .bytes = each_once};
constexpr Record<op::argmin> kArgmin{.shape = arg_shape<op::argmin>,
                                     .lower = arg_lower<op::argmin>,
                                     .batch = batch_along_axis<op::argmin>,
                                     .padded = arg_padded<op::argmin>,
                                     .flops = no_products,
                                     .bytes = each_once};

// ---- topk

void topk_shape(Infer& i, const op::topk& n) {
  want_number_or_bool(i, n.x, "x");
  Shape shape = i.shape(n.x);
  const int axis = i.axis(n.axis, shape.rank());
  if (n.k < 0 || n.k > shape[axis])
    i.fail(Code::invalid_argument, "attribute k: expected one in [0, ", shape[axis], "], given ",
           n.k);
  shape[axis] = n.k;
  i.out(0, {i.dtype(n.x), shape});
  i.out(1, {kI64, shape});
}

// Values were selected by distinct indices along an axis, so dy is written back to these positions.
template <class Op>
void picked_grad(Grad& g, const Op& n) {
  if (!g.wants(n.x) || !g.dy(0)) return;
  const Shape& shape = g.b.shape(n.x);
  const int axis = normalize_axis(n.axis, shape.rank(), Op::kName);
  const int64_t dim = shape[axis];
  g.give(n.x, put_along(g.b, g.dy(0), g.y(1), axis, dim));
}

bool topk_lower(Lower& l, const op::topk& n) {
  if (by_bytes(l, n)) return true;
  Builder& b = l.b;
  const int axis = normalize_axis(n.axis, b.shape(n.x).rank(), "topk");
  const auto sorted = b.add(op::sort{.axis = axis, .descending = n.largest, .x = n.x});
  for (size_t k = 0; k < 2; ++k)
    if (l.wanted(k)) l.out(k, b.narrow(sorted[k], axis, 0, n.k));
  return true;
}

// Padding comes behind all values that equal it. NaN is the largest value.
template <class Op>
bool sorted_padded(Padded& p, const Op& n, bool largest_first) {
  if (!p.along(n.x, n.axis)) return true;
  if (largest_first)
    p.fill(n.x, n.axis, Fill::lowest);
  else if (const DType t = p.type(n.x).dtype; is_float(t))
    p.fill(n.x, n.axis, p.b.scalar(t, std::numeric_limits<double>::quiet_NaN()));
  else
    p.fill(n.x, n.axis, Fill::highest);
  p.refill(0, n.axis, Fill::one);
  return true;
}
bool topk_padded(Padded& p, const op::topk& n) {
  if (p.by_extent(n.x, n.axis)) return p.refuse("rows that may not be there");
  return sorted_padded(p, n, n.largest);
}
bool sort_padded(Padded& p, const op::sort& n) { return sorted_padded(p, n, n.descending); }

constexpr Record<op::topk> kTopk{.shape = topk_shape,
                                 .grad = picked_grad<op::topk>,
                                 .lower = topk_lower,
                                 .batch = batch_along_axis<op::topk>,
                                 .padded = topk_padded,
                                 .flops = no_products,
                                 .bytes = each_once};

// ---- sort

void sort_shape(Infer& i, const op::sort& n) {
  want_number_or_bool(i, n.x, "x");
  i.axis(n.axis, i.shape(n.x).rank());
  i.out(0, i.type(n.x));
  i.out(1, {kI64, i.shape(n.x)});
}

constexpr Record<op::sort> kSort{.shape = sort_shape,
                                 .grad = picked_grad<op::sort>,
                                 .lower = by_bytes<op::sort>,
                                 .batch = batch_along_axis<op::sort>,
                                 .padded = sort_padded,
                                 .flops = no_products,
                                 .bytes = each_once};

}  // namespace

const OpRecord argmax_def = record<op::argmax, kArgmax>();
const OpRecord argmin_def = record<op::argmin, kArgmin>();
const OpRecord topk_def = record<op::topk, kTopk>();
const OpRecord sort_def = record<op::sort, kSort>();

}  // namespace tenon::core
