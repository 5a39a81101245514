// SPDX-License-Identifier: Apache-2.0
// Records of the rope family: rope. With `inverse`, it is its own backward op.
#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// x as four axes, in the order of its layout.
struct Axes {
  int64_t batch, steps, heads, dim;
  int head_axis;
  Shape shape;  // of x, rank 4
};

Axes axes_of(const Shape& x, const op::rope& n) {
  if (n.layout == "bhsd") return {x[0], x[2], x[1], x[3], 1, x};
  if (n.layout == "bshd") return {x[0], x[1], x[2], x[3], 2, x};
  const int64_t dim = x[2] / n.num_heads;
  return {x[0], x[1], n.num_heads, dim, 2, {x[0], x[1], n.num_heads, dim}};
}

int64_t rotated(const op::rope& n, const Axes& axes) { return n.n_rot == 0 ? axes.dim : n.n_rot; }

Axes check_x(const Infer& i, const op::rope& n) {
  i.want_float(n.x, "x");
  const bool flat = n.layout == "bsh";
  i.want_rank(n.x, "x", flat ? 3 : 4);
  if (flat && (n.num_heads < 1 || i.shape(n.x)[2] % n.num_heads != 0))
    i.fail(Code::shape_mismatch, "attribute num_heads: expected a divisor of the last axis of ",
           i.type(n.x).text(), ", given ", n.num_heads);
  const Axes axes = axes_of(i.shape(n.x), n);
  if (!flat && n.num_heads != 0 && n.num_heads != axes.heads)
    i.fail(Code::shape_mismatch, "attribute num_heads: expected 0 or ", axes.heads, ", given ",
           n.num_heads);
  const int64_t n_rot = rotated(n, axes);
  if (n_rot < 0 || n_rot > axes.dim || n_rot % 2 != 0)
    i.fail(Code::shape_mismatch, "attribute n_rot: expected an even number up to ", axes.dim,
           ", given ", n_rot);
  return axes;
}

void check_tables(const Infer& i, const op::rope& n, const Axes& axes) {
  const DType dtype = acc_dtype(i.dtype(n.x));
  const int64_t half = rotated(n, axes) / 2;
  const Shape& table = i.shape(n.cos);
  for (const auto& [operand, v] : {std::pair("cos", n.cos), std::pair("sin", n.sin)}) {
    i.want_dtype(v, operand, dtype);
    i.want_shape(v, operand, table);
    if (table.rank() < 2 || table.rank() > 3 || table[table.rank() - 1] != half)
      i.fail(Code::shape_mismatch, "operand ", operand, ": expected [P,", half, "] or [B,S,", half,
             "] (width n_rot/2), got ", i.type(v).text());
  }
  const bool per_token = table.rank() == 3;
  if (per_token) i.want_shape(n.cos, "cos", {axes.batch, axes.steps, half});
  if (n.offset < 0 || (n.offset != 0 && (per_token || n.position_ids)))
    i.fail(Code::invalid_argument, "attribute offset: expected ",
           n.offset < 0 ? ">= 0" : "0 beside position_ids or tables per token", ", given ",
           n.offset);
  if (n.position_ids) {
    if (per_token)
      i.fail(Code::invalid_argument, "operand position_ids: expected none beside tables per token");
    i.want_index(n.position_ids, "position_ids");
    i.want_shape(n.position_ids, "position_ids", {axes.batch, axes.steps});
    if (table[0] == 0 && i.shape(n.position_ids).elements() != 0)
      i.fail(Code::index_out_of_range, "operand position_ids: expected none for empty tables");
  } else if (!per_token && n.offset > table[0] - axes.steps) {
    i.fail(Code::shape_mismatch, "operand cos: expected at least ", n.offset, " + ", axes.steps,
           " positions (offset + S), got ", i.type(n.cos).text());
  }
}

void rope_shape(Infer& i, const op::rope& n) {
  check_tables(i, n, check_x(i, n));
  i.out(0, i.type(n.x));
}

// The table rows of the tokens, broadcastable to x: [B or 1, S, 1, half], or with the heads before
// S.
Value rows_of(Builder& b, const op::rope& n, const Axes& axes, Value table) {
  const int64_t half = b.shape(table)[b.shape(table).rank() - 1];
  int64_t batch = axes.batch;
  if (n.position_ids) {
    // Negative ids do not wrap: they go beyond the end, where gather reports them.
    const Value ids = b.cast(n.position_ids, kI64);
    const Value past = b.scalar_int(kI64, b.shape(table)[0]);
    const Value checked = b.where(b.compare("lt", ids, b.scalar_int(kI64, 0)), past, ids);
    table = b.add(op::gather{.data = table, .indices = checked});
  } else if (b.shape(table).rank() == 2) {
    table = b.narrow(table, 0, n.offset, axes.steps);
    batch = 1;
  }
  return b.reshape(table, axes.head_axis == 1 ? Shape{batch, 1, axes.steps, half}
                                              : Shape{batch, axes.steps, 1, half});
}

struct Pair {
  Value first, second;
};

// The two members of each rotated pair, in the accumulation dtype. x has rank 4.
Pair split(Builder& b, const op::rope& n, Value x, int64_t half) {
  x = b.widen(x);
  if (half == 0) return {x, x};
  if (n.interleaved) return {b.narrow(x, 3, 0, half, 2), b.narrow(x, 3, 1, half, 2)};
  return {b.narrow(x, 3, 0, half), b.narrow(x, 3, half, half)};
}

Value join(Builder& b, const op::rope& n, const Pair& pair) {
  if (b.shape(pair.first)[3] == 0) return pair.first;
  if (!n.interleaved) return b.concat({pair.first, pair.second}, 3);
  Shape shape = b.shape(pair.first);
  shape[3] *= 2;
  const Value both = b.concat({b.unsqueeze(pair.first, 4), b.unsqueeze(pair.second, 4)}, 4);
  return b.reshape(both, shape);
}

bool rope_lower(Lower& l, const op::rope& n) {
  Builder& b = l.b;
  const Type type = b.type(n.x);
  const Axes axes = axes_of(type.shape, n);
  const int64_t n_rot = rotated(n, axes);
  const Value x = b.reshape(n.x, axes.shape);
  const Value cos = rows_of(b, n, axes, n.cos);
  Value sin = rows_of(b, n, axes, n.sin);
  if (n.inverse) sin = b.neg(sin);
  const Pair p = split(b, n, b.narrow(x, 3, 0, n_rot), n_rot / 2);
  const Pair turned{b.minus(b.times(p.first, cos), b.times(p.second, sin)),
                    b.plus(b.times(p.second, cos), b.times(p.first, sin))};
  Value y = b.cast(join(b, n, turned), type.dtype);
  if (n_rot < axes.dim) y = b.concat({y, b.narrow(x, 3, n_rot, axes.dim - n_rot)}, 3);
  l.out(0, b.reshape(y, type.shape));
  return true;
}

// Adds the terms of each token and head [B,S,H,half] to the table rows.
Value to_table(Builder& b, const op::rope& n, const Axes& axes, Value terms) {
  const Shape table = b.shape(n.cos);
  const Value tokens = b.sum(terms, {axes.head_axis}, false);
  if (table.rank() == 3) return tokens;
  if (n.position_ids)
    return b.add(op::scatter_add{.dim = table[0], .updates = tokens, .indices = n.position_ids});
  return pad_axis(b, b.sum(tokens, {0}, false), 0, n.offset, table[0] - n.offset - axes.steps);
}

void rope_grad(Grad& g, const op::rope& n) {
  Builder& b = g.b;
  if (g.wants(n.x)) {
    op::rope back = n;
    back.x = g.dy();
    back.inverse = !n.inverse;
    g.give(n.x, b.add(back));
  }
  if (!g.wants(n.cos) && !g.wants(n.sin)) return;
  const Axes axes = axes_of(b.shape(n.x), n);
  const int64_t n_rot = rotated(n, axes);
  const auto rotated_part = [&](Value v) {
    return split(b, n, b.narrow(b.reshape(v, axes.shape), 3, 0, n_rot), n_rot / 2);
  };
  const Pair x = rotated_part(n.x), dy = rotated_part(g.dy());
  if (g.wants(n.cos))
    g.give(n.cos,
           to_table(b, n, axes, b.plus(b.times(dy.first, x.first), b.times(dy.second, x.second))));
  if (g.wants(n.sin)) {
    const Value forth = b.times(dy.second, x.first), back = b.times(dy.first, x.second);
    g.give(n.sin, to_table(b, n, axes, n.inverse ? b.minus(back, forth) : b.minus(forth, back)));
  }
}

bool rope_padded(Padded& p, const op::rope& n) {
  if (p.along(n.x, -1) || p.along(n.cos, -1) || p.along(n.sin, -1))
    return p.refuse("what it rotates is padded");
  if (n.position_ids && (p.any(n.cos) || p.any(n.sin)))
    return p.refuse("the positions of its tables are padded");
  if (n.position_ids) p.clamp_indices(n.position_ids, p.type(n.cos).shape[0]);
  return true;
}

constexpr Record<op::rope> kRope{.shape = rope_shape,
                                 .words = {{"layout", "bshd bhsd bsh"}},
                                 .grad = rope_grad,
                                 .lower = rope_lower,
                                 .padded = rope_padded,
                                 .flops = no_products,
                                 .bytes = each_once};

}  // namespace

const OpRecord rope_def = record<op::rope, kRope>();

}  // namespace tenon::core
