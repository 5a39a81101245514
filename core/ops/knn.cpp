// SPDX-License-Identifier: Apache-2.0
// The record of knn: the nearest neighbours of points by their distances.
#include <limits>

#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

void knn_shape(Infer& i, const op::knn& n) {
  if (bool(n.x) == bool(n.dist))
    i.fail(Code::invalid_argument, "expected one of the operands x and dist, got ",
           n.x ? "both" : "neither");
  if (n.y && !n.x) i.fail(Code::invalid_argument, "operand y: expected none beside dist, got one");
  const Value rows = n.x ? n.x : n.dist;
  const std::string_view name = n.x ? "x" : "dist";
  i.want_float(rows, name);
  Shape shape = i.shape(rows);
  const int rank = shape.rank();
  if (rank < 2)
    i.fail(Code::shape_mismatch, "operand ", name, ": expected rank >= 2, got ",
           i.type(rows).text());
  if (n.y) {
    i.want_same_dtype(n.y, "y", n.x, "x");
    i.want_rank(n.y, "y", rank);
    Shape wanted = shape;
    wanted[rank - 2] = i.shape(n.y)[rank - 2];
    i.want_shape(n.y, "y", wanted);
  }
  const bool excluded = n.exclude_self && !n.y;
  if (n.dist && excluded && shape[rank - 1] != shape[rank - 2])
    i.fail(Code::shape_mismatch,
           "operand dist: expected square matrices [..,n,n] with exclude_self, got ",
           i.type(n.dist).text());
  if (n.x && shape[rank - 1] == 0)
    i.fail(Code::invalid_argument, "operand x: expected at least one coordinate, got ",
           i.type(n.x).text());
  const int64_t there = n.dist ? shape[rank - 1] : i.shape(n.y ? n.y : n.x)[rank - 2];
  const int64_t candidates = there - (excluded ? 1 : 0);
  if (there > std::numeric_limits<int32_t>::max())
    i.fail(Code::invalid_argument, "expected at most 2^31 - 1 candidates, got ", there);
  if (n.k < 1 || n.k > candidates)
    i.fail(Code::invalid_argument, "attribute k: expected at least 1 and at most the number of ",
           "candidates, ", candidates, ", given ", n.k);
  shape[rank - 1] = n.k;
  i.out(0, {kI32, shape});
  i.out(1, {acc_dtype(i.dtype(rows)), shape});
}

// ---- decomposition: all distances, then the smallest ones

// Vectors of length 1, and 1 / length. A vector of zeros stays as it is, with 0. Divided by its
// largest element first, a vector neither overflows nor vanishes.
struct Units {
  Value vectors, inverse_norm, is_zero;
};
Units units_of(Builder& b, Value x) {
  const int last = b.shape(x).rank() - 1;
  const Value zero = b.scalar(b.dtype(x), 0), one = b.scalar(b.dtype(x), 1);
  const Value largest =
      b.add(op::stop_gradient{.x = b.reduce("max", b.unary("abs", x), {last}, true)});
  const Value none = b.compare("eq", largest, zero);
  const Value unit = b.where(none, one, largest);
  const Value part = b.over(x, unit);
  const Value squares = b.reduce("sum_square", part, {last}, true);
  const Value length = b.unary("sqrt", b.where(none, one, squares));
  return {b.over(part, length), b.where(none, zero, b.over(b.over(one, unit), length)), none};
}

// bool [n, n]: the element of each row at the row's own index.
Value diagonal(Builder& b, int64_t n) {
  return b.compare("eq", b.iota({n, 1}, 0, kI64), b.iota({1, n}, 1, kI64));
}

// Σ(x - y)² of all pairs. The form with a product would cancel.
Value squares_of(Builder& b, Value x, Value y) {
  const int rank = b.shape(x).rank();
  const Value difference = b.minus(b.unsqueeze(x, rank - 1), b.unsqueeze(y, rank - 2));
  return b.reduce("sum_square", difference, {rank}, false);
}

// Distances of all pairs, without the root: [.., N, M].
Value distances_of(Builder& b, const op::knn& n) {
  const Value x = b.widen(n.x), y = n.y ? b.widen(n.y) : x;
  if (n.metric == "inner") return b.neg(b.matmul(x, y, false, true));
  if (n.metric != "cosine") return squares_of(b, x, y);
  const Units of_x = units_of(b, x), of_y = n.y ? units_of(b, y) : of_x;
  const Value zero = b.scalar(b.dtype(x), 0);
  const Value half = b.times(squares_of(b, of_x.vectors, of_y.vectors), 0.5);
  const Value none = b.logical("or", of_x.is_zero, b.swap_last(of_y.is_zero));
  const Value distance = b.where(none, b.scalar(b.dtype(x), 1), half);
  if (n.y) return distance;
  return b.where(b.logical("and", none, diagonal(b, b.shape(x)[b.shape(x).rank() - 2])), zero,
                 distance);
}

// [.., n, n] without the diagonal: [.., n, n - 1]. Behind each element of the diagonal, n others
// follow until the next one.
Value without_diagonal(Builder& b, Value x) {
  Shape shape = b.shape(x);
  const int rank = shape.rank();
  const Dim n = shape[rank - 1];
  Shape flat, rows;
  for (int i = 0; i < rank - 2; ++i) flat.push(shape[i]), rows.push(shape[i]);
  flat.push(n * n);
  rows.push(n - 1);
  rows.push(n + 1);
  const Value behind = b.narrow(b.reshape(x, flat), rank - 2, 1, n * n - 1);
  shape[rank - 1] = n - 1;
  return b.reshape(b.narrow(b.reshape(behind, rows), rank - 1, 0, n), shape);
}

bool knn_lower(Lower& l, const op::knn& n) {
  Builder& b = l.b;
  Value distances = n.dist ? b.widen(n.dist) : distances_of(b, n);
  const bool excluded = n.exclude_self && !n.y;
  if (excluded) distances = without_diagonal(b, distances);
  const Results best = b.add(op::topk{.k = n.k, .largest = false, .x = distances});
  Value at = best[1];
  if (excluded) {
    const int rank = b.shape(at).rank();
    const Value own = b.iota({b.shape(at)[rank - 2], 1}, 0, kI64);
    at = b.plus(at, b.cast(b.compare("ge", at, own), kI64));
  }
  l.out(0, b.cast(at, kI32));
  l.out(1, n.x && n.metric == "euclidean" ? b.unary("sqrt", best[0]) : best[0]);
  return true;
}

// ---- gradient: the choice of neighbours is constant

Shape flat_rows(const Shape& s) {
  const Dim last = s[s.rank() - 1];
  int64_t rows = 1;
  for (int i = 0; i < s.rank() - 1; ++i) rows *= s[i];
  return {rows, last};
}

// Rows of y [.., M, D], flattened, for each entry of index [.., N, k]: i64 [entries].
Value flat_index(Builder& b, Value index, const Shape& y) {
  const Shape s = b.shape(index);
  int64_t batch = 1;
  for (int i = 0; i < s.rank() - 2; ++i) batch *= s[i];
  const int64_t each = s[s.rank() - 2] * s[s.rank() - 1];
  const auto rows = static_cast<double>(y[y.rank() - 2]);
  const Value first = b.iota({batch, 1}, 0, kI64, 0, rows);
  return b.reshape(b.plus(b.reshape(b.cast(index, kI64), {batch, each}), first), {batch * each});
}

// From the gradient of units to that of the vectors.
Value units_slope(Builder& b, const Units& u, Value dy) {
  const int last = b.shape(dy).rank() - 1;
  const Value along = b.sum(b.times(u.vectors, dy), {last});
  return b.times(b.minus(dy, b.times(u.vectors, along)), u.inverse_norm);
}

void points_grad(Grad& g, const op::knn& n, Value dy) {
  Builder& b = g.b;
  const bool cosine = n.metric == "cosine", inner = n.metric == "inner";
  const Value right = n.y ? n.y : n.x;
  const auto vectors = [&](Value v) {
    const Value wide = b.widen(v);
    return cosine ? units_of(b, wide) : Units{wide, {}, {}};
  };
  const Units x = vectors(n.x), y = n.y ? vectors(n.y) : x;
  const Shape shape = b.shape(right);
  const int rank = shape.rank();
  const Value at = flat_index(b, g.y(0), shape);
  Shape pairs = b.shape(g.y(0));
  pairs.push(shape[rank - 1]);
  const Value near = b.reshape(
      b.add(op::gather{.data = b.reshape(y.vectors, flat_rows(shape)), .indices = at}), pairs);
  const Value own = b.unsqueeze(x.vectors, rank - 1);

  // The slope of a distance along x - y, or along x and y by themselves. NaN has none: padded points
  // are NaN.
  const Value distance = g.y(1);
  const Value zero = b.scalar(b.dtype(distance), 0), one = b.scalar(b.dtype(distance), 1);
  const Value nan = b.unary("is_nan", distance);
  Value flat = nan, slope = dy;
  if (n.metric == "euclidean") {
    flat = b.logical("or", nan, b.compare("eq", distance, zero));
    slope = b.over(dy, b.where(flat, one, distance));
  } else if (n.metric == "sqeuclidean") {
    slope = b.times(dy, 2.0);
  } else if (inner) {
    slope = b.neg(dy);
  }
  slope = b.unsqueeze(b.where(flat, zero, slope), rank);
  const Value undefined = b.unsqueeze(nan, rank);
  const auto moved = [&](Value along) { return b.times(slope, b.where(undefined, zero, along)); };
  const auto given = [&](const Units& u, Value slope_of) {
    return cosine ? units_slope(b, u, slope_of) : slope_of;
  };
  const Value step = inner ? Value{} : moved(b.minus(own, near));
  Value dx, dright;
  if (g.wants(n.x)) dx = given(x, b.sum(inner ? moved(near) : step, {rank - 1}, false));
  if (g.wants(right)) {
    const Value rows =
        b.reshape(inner ? moved(b.expand(own, pairs)) : b.neg(step), flat_rows(pairs));
    const Value summed =
        b.add(op::scatter_add{.dim = flat_rows(shape)[0], .updates = rows, .indices = at});
    dright = given(y, b.reshape(summed, shape));
  }
  if (!n.y) {
    g.give(n.x, b.cast(b.plus(dx, dright), b.dtype(n.x)));
    return;
  }
  if (dx) g.give(n.x, b.cast(dx, b.dtype(n.x)));
  if (dright) g.give(n.y, b.cast(dright, b.dtype(n.y)));
}

void knn_grad(Grad& g, const op::knn& n) {
  const Value dy = g.dy(1);
  if (!dy || (!g.wants(n.x) && !g.wants(n.y) && !g.wants(n.dist))) return;
  if (n.x) return points_grad(g, n, dy);
  const Type dist = g.b.type(n.dist);
  const int last = dist.shape.rank() - 1;
  g.give(n.dist, g.b.cast(put_along(g.b, dy, g.y(0), last, dist.shape[last]), dist.dtype));
}

// ---- padding: candidates of NaN come last

bool knn_padded(Padded& p, const op::knn& n) {
  const auto last = [&](Value v, int64_t axis) {
    if (!p.along(v, axis)) return;
    p.fill(v, axis, p.b.scalar(p.type(v).dtype, std::numeric_limits<double>::quiet_NaN()));
  };
  const Value right = n.y ? n.y : n.x;
  if (n.dist ? p.by_extent(n.dist, -1) : p.by_extent(right, -2))
    return p.refuse("candidates that may not be there");
  if (n.dist) {
    last(n.dist, -1);
  } else {
    p.fill(n.x, -1, Fill::zero);
    if (n.y) p.fill(n.y, -1, Fill::zero);
    last(right, -2);
  }
  p.refill(1, -2, Fill::one);
  return true;
}

double knn_flops(const Cost& c, const op::knn& n) {
  if (n.dist) return 0;
  return 2 * c.elements(n.x) * c.dim(n.y ? n.y : n.x, 1);
}

constexpr Record<op::knn> kKnn{.shape = knn_shape,
                               .words = {{"metric", "euclidean sqeuclidean cosine inner"}},
                               .grad = knn_grad,
                               .lower = knn_lower,
                               .batch = batch_all<op::knn>,
                               .padded = knn_padded,
                               .flops = knn_flops,
                               .bytes = each_once};

}  // namespace

const OpRecord knn_def = record<op::knn, kKnn>();

}  // namespace tenon::core
