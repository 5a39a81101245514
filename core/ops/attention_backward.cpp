// SPDX-License-Identifier: Apache-2.0
// The record of attention_backward.
#include "ops/attention.hpp"
#include "ops/check.hpp"

namespace tenon::core {
namespace {

using namespace attending;

void attention_backward_shape(Infer& i, const op::attention_backward& n) {
  const Sizes s = check_all(i, n);
  const DType dtype = i.dtype(n.q);
  const Shape out = laid_out(n.layout, s.batch, s.q_heads, s.q_len, s.v_dim);
  i.want_dtype(n.dout, "dout", dtype);
  i.want_shape(n.dout, "dout", out);
  i.want_dtype(n.o, "o", dtype);
  i.want_shape(n.o, "o", out);
  i.want_dtype(n.lse, "lse", acc_dtype(dtype));
  i.want_shape(n.lse, "lse", {s.batch, s.q_heads, s.q_len});
  const bool float_mask = n.mask && i.dtype(n.mask) != kBool;
  if (n.want_dmask && !float_mask)
    i.fail(Code::invalid_argument, "output dmask: expected a float operand mask, got ",
           n.mask ? i.type(n.mask).text() : "none");
  i.out(0, i.type(n.q));
  i.out(1, i.type(n.k));
  i.out(2, i.type(n.v));
  if (float_mask) i.out(3, i.type(n.mask));
}

bool attention_backward_lower(Lower& l, const op::attention_backward& n) {
  Builder& b = l.b;
  const DType dtype = b.dtype(n.q);
  Scores r = scores_of(b, n);
  const Sizes& s = r.sizes;
  const Value zero = b.scalar(b.dtype(r.q), 0);
  weigh(b, r);
  // Selects, because 0 times a NaN is NaN. Bool masks and limits are in r.allowed; a float mask can
  // make all scores of a row -inf, so its rows are checked. Those that infinite q or k make -inf are
  // not: v may not be NaN there.
  const auto dead = [&](const Shape& shape) { return has_no_key(b, b.expand(r.sum, shape)); };
  const auto keep = [&](Value x) {
    if (r.allowed) x = b.where(r.allowed, x, zero);
    if (n.mask && b.dtype(n.mask) != kBool) x = b.where(dead(s.scores()), zero, x);
    return x;
  };
  // The weights are divided by their own sum, not taken from lse: a large lse has lost the
  // logarithm of the sum. A row without keys has sum 0, and 0 / 0.5 is 0.
  const Value sums = b.max(b.expand(r.sum, s.scores()), b.scalar(b.dtype(r.sum), 0.5));
  const Value p = keep(b.over(r.e, sums));
  // Whatever k, v and the upstream gradient hold, a row without keys gives and gets nothing.
  const auto heads = [&](Value x) { return b.widen(swap_layout(b, n.layout, x)); };
  const Shape out{s.batch, s.q_heads, s.q_len, s.v_dim};
  const Value dout = b.where(dead(out), zero, heads(n.dout));
  const Value delta = b.sum(b.times(dout, heads(n.o)), {3});
  const Value rows = b.reshape(dout, s.folded(s.v_dim));
  const Value dp = b.reshape(b.matmul(rows, r.v, false, true), s.scores());
  const Value ds = keep(b.times(p, b.minus(dp, delta)));
  Value dz = ds;
  if (n.softcap > 0) {
    const Value t = b.over(r.capped, n.softcap);
    const Value slope = b.minus(b.scalar(b.dtype(t), 1), b.times(t, t));
    dz = keep(b.times(ds, slope));
  }
  dz = b.reshape(dz, s.folded(s.k_len));
  const auto give = [&](size_t k, Value x) {
    l.out(k, swap_layout(b, n.layout, b.cast(x, dtype)));
  };
  if (l.wanted(0)) {
    const Shape shape{s.batch, s.q_heads, s.q_len, s.dim};
    const Value dq = b.reshape(b.matmul(dz, r.k, false, false, r.scale), shape);
    give(0, b.where(dead(shape), zero, dq));
  }
  // The product over the folded rows includes the sum over the queries of a key head.
  if (l.wanted(1)) give(1, b.matmul(dz, r.q, true, false, r.scale));
  if (l.wanted(2)) give(2, b.matmul(b.reshape(p, s.folded(s.k_len)), rows, true, false));
  if (l.wanted(3)) l.out(3, b.cast(b.sum_to(ds, b.shape(n.mask)), b.dtype(n.mask)));
  return true;
}

// Scores, dq and dk use D; the gradient of the weights and dv use the dim of v.
double attention_backward_flops(const Cost& c, const op::attention_backward& n) {
  return pair_flops(c, n) * (3 * c.dim(n.q, 0) + 2 * c.dim(n.v, 0));
}
// Queries that are padding have no gradient: their scores are 0, and so is dout.
bool attention_backward_padded(Padded& p, const op::attention_backward& n) {
  for (Value v : {n.dout, n.q, n.k, n.v, n.o, n.lse}) p.fill_all(v, Fill::zero);
  return attend_to_counted(p, n);
}

constexpr Record<op::attention_backward> kAttentionBackward{
    .shape = attention_backward_shape,
    .words = {{"layout", "bhsd bshd"}},
    .lower = attention_backward_lower,
    .batch = attention_batch<op::attention_backward>,
    .padded = attention_backward_padded,
    .flops = attention_backward_flops,
    .bytes = each_once};

}  // namespace

const OpRecord attention_backward_def = record<op::attention_backward, kAttentionBackward>();

}  // namespace tenon::core
