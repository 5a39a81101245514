// SPDX-License-Identifier: Apache-2.0
// The record of reduce: specification 3.1.
#include <algorithm>

#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

struct Extent {
  Ints axes;      // normalized and ascending; empty if `each`, or if x has rank 0
  Shape keep;     // x's shape with 1 at the axes
  int64_t count;  // elements per result
  bool each;      // noop_with_empty_axes applies: each element is reduced alone
};

Extent extent(const op::reduce& n, const Shape& x, std::string_view who) {
  const bool all = n.axes.empty() && !n.noop_with_empty_axes;
  bool reduced[TENON_MAX_RANK] = {};
  for (int64_t axis : n.axes) {
    bool& seen = reduced[normalize_axis(axis, x.rank(), who)];
    if (seen) fail(Code::invalid_argument, who, ": attribute axes: axis ", axis, " is repeated");
    seen = true;
  }
  Extent e{.axes = {}, .keep = x, .count = 1, .each = n.axes.empty() && n.noop_with_empty_axes};
  for (int i = 0; i < x.rank(); ++i) {
    if (!all && !reduced[i]) continue;
    e.axes.push_back(i);
    e.count *= x[i];
    e.keep[i] = 1;
  }
  return e;
}

// Sums and products of bools count in i64. The other kinds keep the dtype.
DType result_dtype(const op::reduce& n, DType x) {
  return x == kBool && (n.kind == "sum" || n.kind == "prod") ? kI64 : x;
}

void reduce_shape(Infer& i, const op::reduce& n) {
  const Type x = i.type(n.x);
  const bool logical = n.kind == "any" || n.kind == "all";
  const bool roots = n.kind == "l2" || n.kind == "logsumexp";
  const bool of_bools =
      logical || n.kind == "sum" || n.kind == "prod" || n.kind == "max" || n.kind == "min";
  const bool fits = x.dtype == kBool
                        ? of_bools
                        : !logical && (is_float(x.dtype) || (!roots && is_integer(x.dtype)));
  if (!fits) i.fail(Code::dtype_mismatch, "operand x: kind ", n.kind, " does not take ", x.text());
  const Extent e = extent(n, x.shape, i.who());
  const DType dtype = result_dtype(n, x.dtype);
  if (n.keepdims || e.each) return i.out(0, {dtype, e.keep});
  Shape y;
  for (int a = 0, k = 0; a < x.shape.rank(); ++a) {
    if (k < static_cast<int>(e.axes.size()) && e.axes[k] == a)
      ++k;
    else
      y.push(x.shape[a]);
  }
  i.out(0, {dtype, y});
}

// Only for bools.
bool reduce_lower(Lower& l, const op::reduce& n) {
  if (l.type(n.x).dtype != kBool || n.kind == "any" || n.kind == "all") return false;
  op::reduce m = n;
  if (n.kind == "max" || n.kind == "min")
    m.kind = n.kind == "max" ? "any" : "all";
  else
    m.x = l.b.cast(n.x, kI64);
  l.out(0, l.b.add(m));
  return true;
}

// ---- gradient

// The product of all other elements, by halves: products of pairs upwards, then each half times its
// sibling downwards. Needs no division, so zeros need no special case.
Value exclusive_products(Builder& b, Value rows) {
  const Dim m = b.shape(rows)[0], n = b.shape(rows)[1];
  Dim width = 1;
  while (width < n) width *= 2;
  const Type type = b.type(rows);
  if (width > n) rows = b.concat({rows, b.full({type.dtype, {m, width - n}}, 1)}, 1);
  std::vector<Value> low, high;
  for (Dim half = width / 2; half >= 1; half /= 2) {
    low.push_back(b.narrow(rows, 1, 0, half));
    high.push_back(b.narrow(rows, 1, half, half));
    rows = b.times(low.back(), high.back());
  }
  Value others = b.full({type.dtype, {m, 1}}, 1);
  for (size_t level = low.size(); level-- > 0;) {
    const Value below = b.times(others, high[level]);
    others = b.concat({below, b.times(others, low[level])}, 1);
  }
  return b.narrow(others, 1, 0, n);
}

// The gradient of prod: moves the reduced axes to the end, as a matrix, and back.
Value prod_slope(Builder& b, Value x, const Extent& e) {
  const Shape shape = b.shape(x);
  if (shape.elements() == 0) return x;
  Ints perm;
  for (int i = 0; i < shape.rank(); ++i)
    if (std::find(e.axes.begin(), e.axes.end(), i) == e.axes.end()) perm.push_back(i);
  perm.insert(perm.end(), e.axes.begin(), e.axes.end());
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const Value moved = b.transpose(x, perm);
  const Shape moved_shape = b.shape(moved);
  const Value rows = b.reshape(moved, {shape.elements() / e.count, e.count});
  return b.transpose(b.reshape(exclusive_products(b, rows), moved_shape), inverse);
}

// Distributes dy among the elements that equal the result. If the result is NaN, among the NaNs.
Value extreme_gradient(Builder& b, Value x, Value y, Value dy, const Extent& e) {
  const Value hit = b.logical("or", b.compare("eq", x, y), b.unary("is_nan", x));
  const Value count = b.sum(b.cast(hit, b.dtype(dy)), e.axes);
  return b.where(hit, b.over(dy, count), b.scalar(b.dtype(dy), 0));
}

// x·dy/y; 0 if the norm is 0.
Value l2_gradient(Builder& b, Value x, Value y, Value dy) {
  const Value none = b.compare("eq", y, 0);
  const Value safe = b.where(none, b.scalar(b.dtype(y), 1), y);
  return b.times(x, b.where(none, b.scalar(b.dtype(y), 0), b.over(dy, safe)));
}

// x, y and dy have the accumulation dtype; y and dy keep the reduced axes. The result broadcasts to
// x.
Value reduce_dx(Builder& b, const op::reduce& n, const Extent& e, Value x, Value y, Value dy) {
  if (n.kind == "sum") return dy;
  if (n.kind == "mean") return b.over(dy, static_cast<double>(e.count));
  if (n.kind == "max" || n.kind == "min") return extreme_gradient(b, x, y, dy, e);
  if (n.kind == "prod") return b.times(dy, prod_slope(b, x, e));
  if (n.kind == "sum_square") return b.times(b.times(x, 2), dy);
  if (n.kind == "l1") return b.times(b.unary("sign", x), dy);
  if (n.kind == "l2") return l2_gradient(b, x, y, dy);
  return b.times(dy, b.shares(x, e.axes));  // logsumexp
}

// If each element is reduced alone, only the operations around the sum have a slope.
Value each_dx(Builder& b, const op::reduce& n, Value dy) {
  if (n.kind == "sum_square") return b.times(b.times(n.x, 2), dy);
  if (n.kind == "l1" || n.kind == "l2") return b.times(b.unary("sign", n.x), dy);
  return dy;
}

void reduce_grad(Grad& g, const op::reduce& n) {
  if (!g.wants(n.x)) return;
  Builder& b = g.b;
  const Type x = b.type(n.x);
  const Extent e = extent(n, x.shape, "reduce");
  if (e.each) return g.give(n.x, each_dx(b, n, g.dy()));
  const Value dy = b.reshape(g.dy(), e.keep);
  if (n.kind == "sum") return g.give(n.x, b.expand(dy, x.shape));
  const Value wide = b.widen(n.x);
  Value y;
  if (n.kind == "max" || n.kind == "min" || n.kind == "l2") y = b.widen(b.reshape(g.y(), e.keep));
  const Value dx = b.cast(reduce_dx(b, n, e, wide, y, b.widen(dy)), x.dtype);
  g.give(n.x, b.expand(dx, x.shape));
}

bool reduce_batch(Batch& v, const op::reduce& one) {
  op::reduce n = one;
  const int rank = v.rank(n.x);
  if (n.axes.empty() && !n.noop_with_empty_axes) {
    // All axes of an example; of a scalar, one that is added.
    for (int i = 0; i < std::max(rank, 1); ++i) n.axes.push_back(i);
  }
  if (rank == 0 && !n.axes.empty()) {
    n.keepdims = false;
    n.axes = {1};
    n.x = v.b.unsqueeze(v.given(n.x), 1);
    v.out(0, v.b.add(n));
    return true;
  }
  n.axes = Batch::axes(std::move(n.axes));
  return v.add_all(n);
}

bool is_lowest(std::string_view kind) {
  return kind == "max" || kind == "logsumexp" || kind == "any";
}

bool reduce_padded(Padded& p, const op::reduce& n) {
  Builder& b = p.b;
  const Extent e = extent(n, p.type(n.x).shape, "reduce");
  if (e.each) return true;
  Fill fill = Fill::zero;
  if (n.kind == "prod") fill = Fill::one;
  if (n.kind == "min" || n.kind == "all") fill = Fill::highest;
  if (is_lowest(n.kind)) fill = Fill::lowest;
  bool along = false;
  for (int64_t axis : e.axes) {
    along |= p.along(n.x, axis);
    p.fill(n.x, axis, fill);
  }
  if (!along || n.kind != "mean") return true;
  if (!is_float(p.type(n.x).dtype)) return p.refuse("a mean of integers along a padded axis");
  // The mean counts the padding: times the padded count, over the true one.
  const Value wide = b.widen(p.value(n.x));
  op::reduce mean = n;
  mean.x = wide;
  Value scale = b.scalar(b.dtype(wide), 1);
  for (int64_t axis : e.axes) {
    if (!p.along(n.x, axis)) continue;
    const auto padded = static_cast<double>(p.type(n.x).shape[static_cast<int>(axis)]);
    scale = b.times(scale, b.over(b.scalar(b.dtype(wide), padded),
                                  b.cast(p.length_of(n.x, axis), b.dtype(wide))));
  }
  p.out(0, b.cast(b.times(b.add(mean), scale), p.type(n.x).dtype));
  return true;
}

constexpr Record<op::reduce> kReduce{
    .shape = reduce_shape,
    .words = {{"kind", "sum mean max min prod sum_square l1 l2 logsumexp any all"}},
    .grad = reduce_grad,
    .lower = reduce_lower,
    .batch = reduce_batch,
    .padded = reduce_padded,
    .flops = no_products,
    .bytes = each_once,
    .traits = kReduction};

}  // namespace

constinit const OpRecord reduce_def = record<op::reduce, kReduce>();

}  // namespace tenon::core
