// SPDX-License-Identifier: Apache-2.0
// grouped_matmul and its backward op: each row of x times the matrix of its expert (specification
// 2.3). The decompositions multiply every row with every expert and select: correct, but slow.
#include "ops/grouped.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// M rows, E experts, w [E, K, N] (trans_w: [E, N, K]).
struct Sizes {
  int64_t rows, experts, in, out;
};

template <class Op>
Sizes sizes_of(const Op& n, const Shape& x, const Shape& w) {
  return {x[0], w[0], w[n.trans_w ? 2 : 1], w[n.trans_w ? 1 : 2]};
}

// ---- shape

template <class Op>
Sizes want_groups(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  i.want_same_dtype(n.x, "x", n.w, "w");
  i.want_rank(n.x, "x", 2);
  i.want_rank(n.w, "w", 3);
  const Sizes s = sizes_of(n, i.shape(n.x), i.shape(n.w));
  if (i.shape(n.x)[1] != s.in)
    i.fail(Code::shape_mismatch, "operand w: expected a contracted length of ", i.shape(n.x)[1],
           " as in x ", i.type(n.x).text(), ", got ", s.in, " in ", i.type(n.w).text());
  want_experts(i, n, s.rows, s.experts);
  return s;
}

void grouped_matmul_shape(Infer& i, const op::grouped_matmul& n) {
  const Sizes s = want_groups(i, n);
  i.out(0, {i.dtype(n.x), {s.rows, s.out}});
}

// dp has p's dtype; without p, x's.
void grouped_matmul_backward_shape(Infer& i, const op::grouped_matmul_backward& n) {
  const Sizes s = want_groups(i, n);
  i.want_same_dtype(n.x, "x", n.dy, "dy");
  i.want_shape(n.dy, "dy", {s.rows, s.out});
  i.out(0, i.type(n.x));
  i.out(1, i.type(n.w));
  i.out(2, {i.dtype(n.p ? n.p : n.x), {s.rows}});
}

// ---- decomposition

Value number(Builder& b, int64_t v) { return b.scalar_int(kI64, v); }

// The expert of each row as i64 [M], computed from offsets. Invalid offsets give an expert that
// does not exist.
Value experts_from(Builder& b, Value offsets, const Sizes& s) {
  const Value at = b.cast(offsets, kI64);
  const Value begins = b.narrow(at, 0, 0, s.experts), ends = b.narrow(at, 0, 1, s.experts);
  const Value past = b.compare("ge", b.iota({s.rows, 1}, 0, kI64), b.reshape(ends, {1, s.experts}));
  const Value expert = b.sum(b.cast(past, kI64), {1}, false);
  const auto all = [&](Value cond) { return b.reduce("all", cond, {0}, true); };
  Value fine = all(b.compare("le", begins, ends));
  fine = b.logical("and", fine, b.compare("eq", b.narrow(at, 0, 0, 1), number(b, 0)));
  fine = b.logical("and", fine, b.compare("eq", b.narrow(at, 0, s.experts, 1), number(b, s.rows)));
  return b.where(fine, expert, number(b, s.experts));
}

template <class Op>
Value experts_of(Builder& b, const Op& n, const Sizes& s) {
  return n.ids ? b.cast(n.ids, kI64) : experts_from(b, n.offsets, s);
}

// [M, 1]: the row has no expert.
Value dropped(Builder& b, Value expert, const Sizes& s) {
  return b.reshape(b.compare("eq", expert, number(b, -1)), {s.rows, 1});
}

// Selects from [E, M, C] the slice of each row's expert: [M, C], 0 for dropped rows. Checks ids.
Value pick(Builder& b, Value all, Value expert, const Sizes& s) {
  const int64_t width = b.shape(all)[2], flat = s.experts * s.rows;
  const Value inside = b.logical("and", b.compare("ge", expert, number(b, 0)),
                                 b.compare("lt", expert, number(b, s.experts)));
  const Value row = b.plus(b.times(expert, number(b, s.rows)), b.iota({s.rows}, 0, kI64));
  const Value none = b.reshape(dropped(b, expert, s), {s.rows});
  const Value at = b.where(none, number(b, 0), b.where(inside, row, number(b, flat)));
  const Value rows = b.add(op::gather{.data = b.reshape(all, {flat, width}), .indices = at});
  return b.where(dropped(b, expert, s), b.scalar(b.dtype(rows), 0), rows);
}

// a [M, C] times the matrix of each row's expert, in the accumulation dtype.
Value product(Builder& b, Value a, Value w, bool trans_w, Value expert, const Sizes& s) {
  const Shape shape = b.shape(a);
  const Value rows = b.reshape(a, {1, shape[0], shape[1]});
  const DType out = is_half(b.dtype(a)) ? kF32 : TENON_DTYPE_NONE;
  return pick(b, b.matmul(rows, w, false, trans_w, 1.0, out), expert, s);
}

bool grouped_matmul_lower(Lower& l, const op::grouped_matmul& n) {
  Builder& b = l.b;
  const Type x = l.type(n.x);
  const Sizes s = sizes_of(n, x.shape, b.shape(n.w));
  if (s.rows == 0) {
    l.out(0, b.zeros({x.dtype, {0, s.out}}));
    return true;
  }
  const Value expert = experts_of(b, n, s);
  Value y = product(b, n.x, n.w, n.trans_w, expert, s);
  if (n.p) {
    // A select, so that a dropped row is 0 regardless of p.
    const Value scaled = b.times(y, b.cast(b.reshape(n.p, {s.rows, 1}), b.dtype(y)));
    y = b.where(dropped(b, expert, s), b.scalar(b.dtype(y), 0), scaled);
  }
  l.out(0, b.cast(y, x.dtype));
  return true;
}

// dw: multiplies the rows of each expert, with zeros in place of all other rows.
Value weight_gradient(Builder& b, Value x, Value dy, Value expert, bool trans_w, const Sizes& s) {
  const Value mine = b.compare("eq", b.reshape(b.iota({s.experts}, 0, kI64), {s.experts, 1, 1}),
                               b.reshape(expert, {1, s.rows, 1}));
  const auto own = [&](Value rows) {
    const Shape shape = b.shape(rows);
    const Value zero = b.scalar(b.dtype(rows), 0);
    return b.where(mine, b.reshape(rows, {1, shape[0], shape[1]}), zero);
  };
  const Value left = own(x), right = own(dy);
  return trans_w ? b.matmul(right, left, true) : b.matmul(left, right, true);
}

bool grouped_matmul_backward_lower(Lower& l, const op::grouped_matmul_backward& n) {
  Builder& b = l.b;
  const Type x = l.type(n.x), w = l.type(n.w);
  const Sizes s = sizes_of(n, x.shape, w.shape);
  const DType dp = l.type(n.p ? n.p : n.x).dtype;
  if (s.rows == 0) {
    if (l.wanted(0)) l.out(0, b.zeros(x));
    if (l.wanted(1)) l.out(1, b.zeros(w));
    if (l.wanted(2)) l.out(2, b.zeros({dp, {0}}));
    return true;
  }
  const Value expert = experts_of(b, n, s);
  // u = dy·wᵀ serves both: dx = p·u and dp = u·x.
  const bool back = l.wanted(0) || l.wanted(2);
  const Value u = back ? product(b, n.dy, n.w, !n.trans_w, expert, s) : Value{};
  const DType wide = acc_dtype(x.dtype);
  const Value zero = b.scalar(wide, 0);
  const Value none = dropped(b, expert, s);
  const Value p = n.p ? b.cast(b.reshape(n.p, {s.rows, 1}), wide) : Value{};
  if (l.wanted(0)) {
    const Value dx = p ? b.where(none, zero, b.times(u, p)) : u;
    l.out(0, b.cast(dx, x.dtype));
  }
  if (l.wanted(1)) {
    const Value dy = b.widen(n.dy);
    const Value dw =
        weight_gradient(b, b.widen(n.x), p ? b.times(dy, p) : dy, expert, n.trans_w, s);
    l.out(1, b.cast(dw, w.dtype));
  }
  if (l.wanted(2)) {
    const Value terms = b.where(none, zero, b.times(u, b.widen(n.x)));
    l.out(2, b.cast(b.sum(terms, {1}, false), dp));
  }
  return true;
}

// ---- gradient

void grouped_matmul_grad(Grad& g, const op::grouped_matmul& n) {
  const bool dx = g.wants(n.x), dw = g.wants(n.w), dp = g.wants(n.p);
  if (!dx && !dw && !dp) return;
  const Results r = g.b.add(op::grouped_matmul_backward{.trans_w = n.trans_w,
                                                        .dy = g.dy(),
                                                        .x = n.x,
                                                        .w = n.w,
                                                        .ids = n.ids,
                                                        .offsets = n.offsets,
                                                        .p = n.p,
                                                        .want_dx = dx,
                                                        .want_dw = dw,
                                                        .want_dp = dp});
  if (dx) g.give(n.x, r[0]);
  if (dw) g.give(n.w, r[1]);
  if (dp) g.give(n.p, r[2]);
}

// Each row is multiplied by the matrix of one expert.
double expert_flops(const Cost& c, Value rows, Value w) {
  return 2 * c.dim(rows, 1) * c.elements(w) / std::max(c.dim(w, 2), 1.0);
}
double grouped_matmul_flops(const Cost& c, const op::grouped_matmul& n) {
  return expert_flops(c, n.x, n.w);
}
double grouped_matmul_backward_flops(const Cost& c, const op::grouped_matmul_backward& n) {
  double products = 0;
  for (size_t k = 0; k < c.out_count(); ++k) products += c.out(k) ? 1 : 0;
  return products * expert_flops(c, n.dy, n.w);
}

constexpr Record<op::grouped_matmul> kGroupedMatmul{.shape = grouped_matmul_shape,
                                                    .grad = grouped_matmul_grad,
                                                    .lower = grouped_matmul_lower,
                                                    .padded = grouped_padded<op::grouped_matmul>,
                                                    .flops = grouped_matmul_flops,
                                                    .bytes = each_once};
constexpr Record<op::grouped_matmul_backward> kGroupedMatmulBackward{
    .shape = grouped_matmul_backward_shape,
    .lower = grouped_matmul_backward_lower,
    .padded = grouped_padded<op::grouped_matmul_backward>,
    .flops = grouped_matmul_backward_flops,
    .bytes = each_once};

}  // namespace

constinit const OpRecord grouped_matmul_def = record<op::grouped_matmul, kGroupedMatmul>();
constinit const OpRecord grouped_matmul_backward_def =
    record<op::grouped_matmul_backward, kGroupedMatmulBackward>();

}  // namespace tenon::core
