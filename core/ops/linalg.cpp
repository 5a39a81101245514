// SPDX-License-Identifier: Apache-2.0
// Records of the linalg family: lu triangular_solve cholesky dense_solve lu_solve inverse det.
// Matrices are in the last two axes, before them batch axes.
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kOnSingular = "error nan";

Shape without_last(const Shape& s, int axes) {
  return Shape(s.dims().first(static_cast<size_t>(s.rank() - axes)));
}

// The right sides of a·x = b are vectors.
bool has_vectors(const Shape& a, const Shape& b) { return b.rank() == a.rank() - 1; }

// bool [n, n]: how the index of a row compares with that of a column. gt: below the diagonal.
Value triangle(Builder& b, const Shape& matrices, std::string_view kind) {
  const Dim n = matrices[matrices.rank() - 1];
  return b.compare(kind, b.iota({n, 1}, 0, kI64), b.iota({1, n}, 1, kI64));
}

// Row i of the result is row order[i] of x [.., n, m].
Value permuted_rows(Builder& b, Value x, Value order) {
  const Value rows = b.expand(b.unsqueeze(order, b.shape(order).rank()), b.shape(x));
  return b.add(op::gather_elements{.axis = -2, .data = x, .indices = rows});
}
Value inverse_permutation(Builder& b, Value order) { return b.add(op::sort{.x = order})[1]; }

// ---- shape

void want_solvable(const Infer& i, Value v, std::string_view operand) {
  if (i.dtype(v) != kF32 && i.dtype(v) != kF64)
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected f32 or f64, got ",
           i.type(v).text());
}

// Returns n of matrices [.., n, n].
Dim want_square(const Infer& i, Value v, std::string_view operand) {
  want_solvable(i, v, operand);
  const Shape& s = i.shape(v);
  if (s.rank() < 2 || s[s.rank() - 1] != s[s.rank() - 2])
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected square matrices [..,n,n], got ",
           i.type(v).text());
  return s[s.rank() - 1];
}

void lu_shape(Infer& i, const op::lu& n) {
  want_square(i, n.a, "a");
  i.out(0, i.type(n.a));
  i.out(1, {kI32, without_last(i.shape(n.a), 1)});
}

void triangular_solve_shape(Infer& i, const op::triangular_solve& n) {
  const Dim size = want_square(i, n.a, "a");
  i.want_same_dtype(n.b, "b", n.a, "a");
  const Shape a = i.shape(n.a), b = i.shape(n.b);
  if (b.rank() < 2 || b[b.rank() - 2] != size)
    i.fail(Code::shape_mismatch, "operand b: expected matrices [..,", size, ",m], got ",
           i.type(n.b).text());
  Shape out = broadcast(without_last(a, 2), without_last(b, 2), i.who());
  out.push(size);
  out.push(b[b.rank() - 1]);
  i.out(0, {i.dtype(n.a), out});
}

void cholesky_shape(Infer& i, const op::cholesky& n) {
  want_square(i, n.a, "a");
  i.out(0, i.type(n.a));
}

// The shape of x in a·x = b.
Shape solved_shape(const Infer& i, Value a, std::string_view name, Value right) {
  const Dim size = want_square(i, a, name);
  i.want_same_dtype(right, "b", a, name);
  const Shape s = i.shape(a), b = i.shape(right);
  const bool vectors = has_vectors(s, b);
  const int own = vectors ? 1 : 2;
  if (b.rank() < s.rank() - 1 || b[b.rank() - own] != size)
    i.fail(Code::shape_mismatch, "operand b: expected ",
           vectors || b.rank() < s.rank() ? cat("vectors [..,", size, "] of rank ", s.rank() - 1)
                                          : cat("matrices [..,", size, ",m]"),
           " for ", name, " ", i.type(a).text(), ", got ", i.type(right).text());
  Shape out = broadcast(without_last(s, 2), without_last(b, own), i.who());
  for (int k = b.rank() - own; k < b.rank(); ++k) out.push(b[k]);
  return out;
}

void dense_solve_shape(Infer& i, const op::dense_solve& n) {
  i.out(0, {i.dtype(n.a), solved_shape(i, n.a, "a", n.b)});
  i.out(1, i.type(n.a));
  i.out(2, {kI32, without_last(i.shape(n.a), 1)});
}

void lu_solve_shape(Infer& i, const op::lu_solve& n) {
  i.out(0, {i.dtype(n.lu), solved_shape(i, n.lu, "lu", n.b)});
  i.want_dtype(n.perm, "perm", kI32);
  i.want_shape(n.perm, "perm", without_last(i.shape(n.lu), 1));
}

void inverse_shape(Infer& i, const op::inverse& n) {
  want_square(i, n.a, "a");
  i.out(0, i.type(n.a));
}

void det_shape(Infer& i, const op::det& n) {
  want_square(i, n.a, "a");
  i.out(0, {i.dtype(n.a), without_last(i.shape(n.a), 2)});
}

// ---- decomposition

bool lu_solve_lower(Lower& l, const op::lu_solve& n) {
  Builder& b = l.b;
  const Shape lu = b.shape(n.lu);
  const bool vectors = has_vectors(lu, b.shape(n.b));
  Value x = vectors ? b.unsqueeze(n.b, b.shape(n.b).rank()) : n.b;
  Shape whole = broadcast(without_last(lu, 2), without_last(b.shape(x), 2), "lu_solve");
  whole.push(lu[lu.rank() - 1]);
  whole.push(b.shape(x)[b.shape(x).rank() - 1]);
  const auto factor = [&](bool upper, Value right) -> Value {
    return b.add(op::triangular_solve{
        .upper = upper, .trans_a = n.trans_a, .unit_diagonal = !upper, .a = n.lu, .b = right});
  };
  if (n.trans_a) {
    x = factor(false, factor(true, x));
    x = permuted_rows(b, x, inverse_permutation(b, n.perm));
  } else {
    x = permuted_rows(b, b.expand(x, whole), n.perm);
    x = factor(true, factor(false, x));
  }
  l.out(0, vectors ? b.reshape(x, without_last(whole, 1)) : x);
  return true;
}

bool dense_solve_lower(Lower& l, const op::dense_solve& n) {
  Builder& b = l.b;
  const Results parts = b.add(op::lu{.on_singular = n.on_singular, .a = n.a});
  l.out(0, b.add(op::lu_solve{.lu = parts[0], .perm = parts[1], .b = n.b}));
  l.out(1, parts[0]);
  l.out(2, parts[1]);
  return true;
}

bool inverse_lower(Lower& l, const op::inverse& n) {
  Builder& b = l.b;
  const Type a = b.type(n.a);
  const Value one = b.where(triangle(b, a.shape, "eq"), b.scalar(a.dtype, 1), b.scalar(a.dtype, 0));
  l.out(0, b.add(op::dense_solve{
               .on_singular = n.on_singular, .a = n.a, .b = b.expand(one, a.shape)}));
  return true;
}

// The product of the pivots, negated if the number of exchanged pairs is odd.
bool det_lower(Lower& l, const op::det& n) {
  Builder& b = l.b;
  const Type a = b.type(n.a);
  const int rank = a.shape.rank();
  const Dim size = a.shape[rank - 1];
  const Results parts = b.add(op::lu{.a = n.a});
  Shape flat = without_last(a.shape, 2);
  flat.push(size * size);
  const Value pivots = b.narrow(b.reshape(parts[0], flat), rank - 2, 0, size, size + 1);
  const Value product = b.reduce("prod", pivots, {rank - 2}, false);
  const Value earlier = b.unsqueeze(parts[1], rank - 1), later = b.unsqueeze(parts[1], rank - 2);
  const Value exchanged =
      b.logical("and", b.compare("gt", earlier, later), triangle(b, a.shape, "lt"));
  const Value count = b.sum(b.cast(exchanged, kI32), {rank - 2, rank - 1}, false);
  const Value odd =
      b.compare("eq", b.binary("mod", count, b.scalar_int(kI32, 2)), b.scalar_int(kI32, 1));
  l.out(0, b.where(odd, b.neg(product), product));
  return true;
}

// ---- gradient

// From d(lu) to that of a: Pᵀ·L⁻ᵀ·(tril(Lᵀ·dL, -1) + triu(dU·Uᵀ))·U⁻ᵀ.
Value lu_slope(Builder& b, Value lu, Value perm, Value dy) {
  const Type t = b.type(lu);
  const Value zero = b.scalar(t.dtype, 0), below = triangle(b, t.shape, "gt");
  const Value lower =
      b.where(below, lu, b.where(triangle(b, t.shape, "eq"), b.scalar(t.dtype, 1), zero));
  const Value upper = b.where(below, zero, lu);
  const Value d_lower = b.where(below, dy, zero), d_upper = b.where(below, zero, dy);
  const Value middle =
      b.where(below, b.matmul(lower, d_lower, true), b.matmul(d_upper, upper, false, true));
  const Value left =
      b.add(op::triangular_solve{.trans_a = true, .unit_diagonal = true, .a = lu, .b = middle});
  const Value right = b.add(op::triangular_solve{.upper = true, .a = lu, .b = b.swap_last(left)});
  return permuted_rows(b, b.swap_last(right), inverse_permutation(b, perm));
}

void lu_grad(Grad& g, const op::lu& n) {
  const Value dy = g.dy(0);
  if (g.wants(n.a) && dy) g.give(n.a, lu_slope(g.b, g.y(0), g.y(1), dy));
}

void triangular_solve_grad(Grad& g, const op::triangular_solve& n) {
  Builder& b = g.b;
  op::triangular_solve back = n;
  back.trans_a = !n.trans_a, back.b = g.dy();
  const Value db = b.add(back);
  if (g.wants(n.b)) g.give(n.b, b.sum_to(db, b.shape(n.b)));
  if (!g.wants(n.a)) return;
  const Value x = g.y();
  const Value outer = n.trans_a ? b.matmul(x, db, false, true) : b.matmul(db, x, false, true);
  const Value da = b.sum_to(b.neg(outer), b.shape(n.a));
  // What is read: columns from, or up to, the row.
  const char* const read =
      n.upper ? (n.unit_diagonal ? "lt" : "le") : (n.unit_diagonal ? "gt" : "ge");
  g.give(n.a, b.where(triangle(b, b.shape(da), read), da, b.scalar(b.dtype(da), 0)));
}

// As that of a symmetric matrix: L⁻ᵀ·Φ(Lᵀ·dL)·L⁻¹, made symmetric. Φ keeps the lower triangle, and
// half of the diagonal.
void cholesky_grad(Grad& g, const op::cholesky& n) {
  if (!g.wants(n.a)) return;
  Builder& b = g.b;
  const Value l = g.y();
  const Type t = b.type(l);
  const Value zero = b.scalar(t.dtype, 0);
  const Value dl = b.where(triangle(b, t.shape, "ge"), g.dy(), zero);
  const Value product = b.matmul(l, dl, true);
  const Value half = b.where(triangle(b, t.shape, "eq"), b.times(product, 0.5), zero);
  const Value middle = b.where(triangle(b, t.shape, "gt"), product, half);
  const Value left = b.add(op::triangular_solve{.trans_a = true, .a = l, .b = middle});
  const Value both = b.add(op::triangular_solve{.trans_a = true, .a = l, .b = b.swap_last(left)});
  g.give(n.a, b.times(b.plus(both, b.swap_last(both)), 0.5));
}

// db = A⁻ᵀ·dx, dA = -db·xᵀ. The factors may have a gradient too: that of the second order.
void dense_solve_grad(Grad& g, const op::dense_solve& n) {
  Builder& b = g.b;
  const Value lu = g.y(1), perm = g.y(2);
  Value da{};
  if (g.wants(n.a) && g.dy(1)) da = lu_slope(b, lu, perm, g.dy(1));
  if (g.dy(0)) {
    Value x = g.y(0);
    Value db = b.add(op::lu_solve{.trans_a = true, .lu = lu, .perm = perm, .b = g.dy(0)});
    if (g.wants(n.b)) g.give(n.b, b.sum_to(db, b.shape(n.b)));
    if (has_vectors(b.shape(n.a), b.shape(n.b)))
      db = b.unsqueeze(db, b.shape(db).rank()), x = b.unsqueeze(x, b.shape(x).rank());
    const Value part = b.sum_to(b.neg(b.matmul(db, x, false, true)), b.shape(n.a));
    da = da ? b.plus(da, part) : part;
  }
  if (g.wants(n.a)) g.give(n.a, da);
}

void det_grad(Grad& g, const op::det& n) {
  if (!g.wants(n.a)) return;
  Builder& b = g.b;
  const int rank = b.shape(n.a).rank();
  const Value scale = b.times(g.dy(), g.y());
  const Value inverse = b.add(op::inverse{.on_singular = "nan", .a = n.a});
  g.give(n.a, b.times(b.swap_last(inverse), b.unsqueeze(b.unsqueeze(scale, rank - 2), rank - 1)));
}

// ---- batches

// Batch dims align from the right: a batch before matrices of fewer axes would meet another axis.
bool dense_solve_batch(Batch& v, const op::dense_solve& n) {
  return v.rank(n.b) <= v.rank(n.a) && v.add_all(n);
}

// ---- padding: padded matrices become identities, and padded rows and columns those of one. They meet
// only zeros of what counts, so they change neither pivots nor results.

bool fill_identity(Padded& p, Value a) {
  if (p.length(a, -1) != p.length(a, -2)) return p.refuse("its matrices are padded to no square");
  if (!p.any(a)) return true;
  const Type t = p.type(a);
  const Value one =
      p.b.where(triangle(p.b, t.shape, "eq"), p.b.scalar(t.dtype, 1), p.b.scalar(t.dtype, 0));
  for (int axis = 0; axis < t.shape.rank(); ++axis) p.fill(a, axis, one);
  return true;
}

template <class Op>
bool matrix_padded(Padded& p, const Op& n) {
  return fill_identity(p, n.a);
}

bool triangular_solve_padded(Padded& p, const op::triangular_solve& n) {
  p.fill(n.b, -2, Fill::zero);
  return fill_identity(p, n.a);
}

void fill_right(Padded& p, Value a, Value right) {
  p.fill(right, p.rank(right) == p.rank(a) - 1 ? -1 : -2, Fill::zero);
}

bool dense_solve_padded(Padded& p, const op::dense_solve& n) {
  fill_right(p, n.a, n.b);
  return fill_identity(p, n.a);
}

bool lu_solve_padded(Padded& p, const op::lu_solve& n) {
  fill_right(p, n.lu, n.b);
  const Type perm = p.type(n.perm);
  const Dim size = perm.shape[perm.shape.rank() - 1];
  for (int axis = 0; axis < perm.shape.rank(); ++axis)
    if (p.along(n.perm, axis)) p.fill(n.perm, axis, p.b.iota({size}, 0, perm.dtype));
  return fill_identity(p, n.lu);
}

// ---- costs

double square_of(const Cost& c, Value a, double of_cube) {
  return of_cube * c.elements(a) * c.dim(a, 0);
}
double lu_flops(const Cost& c, const op::lu& n) { return square_of(c, n.a, 2.0 / 3); }
double cholesky_flops(const Cost& c, const op::cholesky& n) { return square_of(c, n.a, 1.0 / 3); }
double det_flops(const Cost& c, const op::det& n) { return square_of(c, n.a, 2.0 / 3); }
double inverse_flops(const Cost& c, const op::inverse& n) { return square_of(c, n.a, 8.0 / 3); }
double triangular_flops(const Cost& c, const op::triangular_solve& n) {
  return c.elements(c.out(0)) * c.dim(n.a, 0);
}
double lu_solve_flops(const Cost& c, const op::lu_solve& n) {
  return 2 * c.elements(c.out(0)) * c.dim(n.lu, 0);
}
double dense_solve_flops(const Cost& c, const op::dense_solve& n) {
  return square_of(c, n.a, 2.0 / 3) + 2 * c.elements(c.out(0)) * c.dim(n.a, 0);
}

constexpr Record<op::lu> kLu{.shape = lu_shape,
                             .words = {{"on_singular", "keep error nan"}},
                             .grad = lu_grad,
                             .batch = batch_all<op::lu>,
                             .padded = matrix_padded<op::lu>,
                             .flops = lu_flops,
                             .bytes = each_once};
constexpr Record<op::triangular_solve> kTriangularSolve{
    .shape = triangular_solve_shape,
    .grad = triangular_solve_grad,
    .batch = batch_aligned<op::triangular_solve>,
    .padded = triangular_solve_padded,
    .flops = triangular_flops,
    .bytes = each_once};
constexpr Record<op::cholesky> kCholesky{.shape = cholesky_shape,
                                         .words = {{"on_singular", kOnSingular}},
                                         .grad = cholesky_grad,
                                         .batch = batch_all<op::cholesky>,
                                         .padded = matrix_padded<op::cholesky>,
                                         .flops = cholesky_flops,
                                         .bytes = each_once};
constexpr Record<op::dense_solve> kDenseSolve{.shape = dense_solve_shape,
                                              .words = {{"on_singular", kOnSingular}},
                                              .grad = dense_solve_grad,
                                              .lower = dense_solve_lower,
                                              .batch = dense_solve_batch,
                                              .padded = dense_solve_padded,
                                              .flops = dense_solve_flops,
                                              .bytes = each_once};
constexpr Record<op::lu_solve> kLuSolve{.shape = lu_solve_shape,
                                        .lower = lu_solve_lower,
                                        .padded = lu_solve_padded,
                                        .flops = lu_solve_flops,
                                        .bytes = each_once};
constexpr Record<op::inverse> kInverse{.shape = inverse_shape,
                                       .words = {{"on_singular", kOnSingular}},
                                       .lower = inverse_lower,
                                       .batch = batch_all<op::inverse>,
                                       .padded = matrix_padded<op::inverse>,
                                       .flops = inverse_flops,
                                       .bytes = each_once};
constexpr Record<op::det> kDet{.shape = det_shape,
                               .grad = det_grad,
                               .lower = det_lower,
                               .batch = batch_all<op::det>,
                               .padded = matrix_padded<op::det>,
                               .flops = det_flops,
                               .bytes = each_once};

}  // namespace

const OpRecord lu_def = record<op::lu, kLu>();
const OpRecord triangular_solve_def = record<op::triangular_solve, kTriangularSolve>();
const OpRecord cholesky_def = record<op::cholesky, kCholesky>();
const OpRecord dense_solve_def = record<op::dense_solve, kDenseSolve>();
const OpRecord lu_solve_def = record<op::lu_solve, kLuSolve>();
const OpRecord inverse_def = record<op::inverse, kInverse>();
const OpRecord det_def = record<op::det, kDet>();

}  // namespace tenon::core
