// SPDX-License-Identifier: Apache-2.0
// softmax softmax_backward cross_entropy cross_entropy_backward: specification 3.2 and 3.3.
#include "ops/loss.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- softmax

void softmax_shape(Infer& i, const op::softmax& n) {
  i.want_float(n.x, "x");
  i.axis(n.axis, i.shape(n.x).rank());
  i.out(0, i.type(n.x));
}

void softmax_grad(Grad& g, const op::softmax& n) {
  if (!g.wants(n.x)) return;
  g.give(n.x,
         g.b.add(op::softmax_backward{.axis = n.axis, .log = n.log, .dy = g.dy(), .y = g.y()}));
}

bool softmax_lower(Lower& l, const op::softmax& n) {
  Builder& b = l.b;
  const Type t = l.type(n.x);
  const Ints axis{normalize_axis(n.axis, t.shape.rank(), "softmax")};
  const Value x = b.widen(n.x);
  // Rows of -inf, and rows with +inf or NaN, become NaN, as specified.
  const Value shifted = b.minus(x, b.reduce("max", x, axis, true));
  const Value e = b.exp(shifted);
  const Value total = b.sum(e, axis);
  l.out(0, b.cast(n.log ? b.minus(shifted, b.log(total)) : b.over(e, total), t.dtype));
  return true;
}

bool softmax_padded(Padded& p, const op::softmax& n) {
  p.fill(n.x, n.axis, Fill::lowest);
  p.refill(0, n.axis, Fill::one);
  return true;
}

constexpr Record<op::softmax> kSoftmax{.shape = softmax_shape,
                                       .grad = softmax_grad,
                                       .lower = softmax_lower,
                                       .batch = batch_along_axis<op::softmax>,
                                       .padded = softmax_padded,
                                       .flops = no_products,
                                       .bytes = each_once};

void softmax_backward_shape(Infer& i, const op::softmax_backward& n) {
  i.want_float(n.dy, "dy");
  i.want_same_dtype(n.dy, "dy", n.y, "y");
  i.want_shape(n.y, "y", i.shape(n.dy));
  i.axis(n.axis, i.shape(n.dy).rank());
  i.out(0, i.type(n.y));
}

bool softmax_backward_lower(Lower& l, const op::softmax_backward& n) {
  Builder& b = l.b;
  const Type t = l.type(n.y);
  const Ints axis{normalize_axis(n.axis, t.shape.rank(), "softmax_backward")};
  const Value y = b.widen(n.y), dy = b.widen(n.dy);
  const Value dx = n.log ? b.minus(dy, b.times(b.exp(y), b.sum(dy, axis)))
                         : b.times(y, b.minus(dy, b.sum(b.times(dy, y), axis)));
  l.out(0, b.cast(dx, t.dtype));
  return true;
}

bool softmax_backward_padded(Padded& p, const op::softmax_backward& n) {
  p.fill(n.dy, n.axis, Fill::zero);
  p.fill(n.y, n.axis, Fill::zero);
  return true;
}

constexpr Record<op::softmax_backward> kSoftmaxBackward{
    .shape = softmax_backward_shape,
    .lower = softmax_backward_lower,
    .batch = batch_along_axis<op::softmax_backward>,
    .padded = softmax_backward_padded,
    .flops = no_products,
    .bytes = each_once};

// ---- cross_entropy

template <class Op>
LabelOperands operands_of(const Op& n) {
  return {n.axis, n.ignore_index, n.logits, "logits", n.labels, n.weight};
}

// Checks shared by forward and backward. Returns the type of one loss per item.
template <class Op>
Type want_cross_entropy(const Infer& i, const Op& n) {
  if (!(n.label_smoothing >= 0 && n.label_smoothing < 1))
    i.fail(Code::invalid_argument, "attribute label_smoothing: expected a number in [0, 1), given ",
           n.label_smoothing);
  return want_labels(i, operands_of(n));
}

void cross_entropy_shape(Infer& i, const op::cross_entropy& n) {
  const Type items = want_cross_entropy(i, n);
  i.out(0, loss_type(n.reduction, items));
  i.out(1, items);
}

bool cross_entropy_lower(Lower& l, const op::cross_entropy& n) {
  Builder& b = l.b;
  const Items it = items_of(b, operands_of(n));
  const DType wide = b.dtype(it.x);
  // Subtracts the row maximum first: for large logits, logsumexp(x) has lost the digits of the
  // sum's logarithm. An infinite maximum equals the logsumexp.
  const Value max = b.reduce("max", it.x, {it.axis}, true);
  const Value sum_exp = b.sum(b.exp(b.minus(it.x, max)), {it.axis});
  const Value log_sum = b.where(b.unary("is_inf", max), b.scalar(wide, 0), b.log(sum_exp));
  const auto per_item = [&](Value v) { return b.reshape(v, b.shape(it.label)); };
  if (l.wanted(1)) l.out(1, per_item(b.plus(max, log_sum)));

  const double smoothing = n.label_smoothing;
  Value loss = b.plus(per_item(log_sum), b.minus(per_item(max), at_label(b, it)));
  if (it.own) loss = b.times(loss, it.own);
  if (smoothing > 0) {
    Value spread = b.plus(b.minus(max, it.x), log_sum);
    if (it.weight) spread = b.times(spread, along_axis(b, it, it.weight));
    const Value sum = b.sum(spread, {it.axis}, false);
    loss = b.plus(b.times(loss, 1 - smoothing),
                  b.times(sum, smoothing / static_cast<double>(it.classes)));
  }
  loss = b.where(it.ignored, b.scalar(wide, 0), loss);
  l.out(0, reduce_loss(b, n.reduction, loss, it));
  return true;
}

void cross_entropy_grad(Grad& g, const op::cross_entropy& n) {
  Builder& b = g.b;
  if (g.wants(n.weight)) g.refuse("weight", "class weights are constants of the loss");
  if (!g.wants(n.logits)) return;
  const Type x = b.type(n.logits);
  Value dx;
  if (const Value dy = g.dy(0))
    dx = b.add(op::cross_entropy_backward{.axis = n.axis,
                                          .ignore_index = n.ignore_index,
                                          .label_smoothing = n.label_smoothing,
                                          .reduction = n.reduction,
                                          .dy = dy,
                                          .logits = n.logits,
                                          .labels = n.labels,
                                          .weight = n.weight,
                                          .lse = g.y(1)});
  if (const Value dlse = g.dy(1)) {
    const int axis = normalize_axis(n.axis, x.shape.rank(), "cross_entropy");
    const Value p = b.shares(b.widen(n.logits), {axis});
    const Value part = b.cast(b.times(p, b.unsqueeze(dlse, axis)), x.dtype);
    dx = dx ? b.plus(dx, part) : part;
  }
  g.give(n.logits, dx);
}

// The losses of all rows; sums and means are those of one example.
bool cross_entropy_batch(Batch& v, const op::cross_entropy& one) {
  if (one.reduction != "none" || v.batched(one.weight)) return false;
  op::cross_entropy n = one;
  n.axis = Batch::axis(n.axis);
  return v.add(n, [&](Value x) { return x == one.weight ? v.given(x) : v.all(x); });
}

// Padded items are ignored.
template <class Op>
bool cross_entropy_padded(Padded& p, const Op& n) {
  if (p.along(n.logits, n.axis)) return p.refuse("its classes are padded");
  const Value ignored = p.b.scalar_int(p.type(n.labels).dtype, n.ignore_index);
  for (int i = 0; i < p.rank(n.labels); ++i) p.fill(n.labels, i, ignored);
  return true;
}

constexpr Record<op::cross_entropy> kCrossEntropy{.shape = cross_entropy_shape,
                                                  .words = {{"reduction", "none sum mean"}},
                                                  .grad = cross_entropy_grad,
                                                  .lower = cross_entropy_lower,
                                                  .batch = cross_entropy_batch,
                                                  .padded = cross_entropy_padded<op::cross_entropy>,
                                                  .flops = no_products,
                                                  .bytes = each_once};

void cross_entropy_backward_shape(Infer& i, const op::cross_entropy_backward& n) {
  const Type items = want_cross_entropy(i, n);
  const Type loss = loss_type(n.reduction, items);
  i.want_dtype(n.dy, "dy", loss.dtype);
  i.want_shape(n.dy, "dy", loss.shape);
  i.want_dtype(n.lse, "lse", items.dtype);
  i.want_shape(n.lse, "lse", items.shape);
  i.out(0, i.type(n.logits));
}

// (1-ε)·w_y·(p - onehot) + ε/C·(Σw·p - w)
Value item_gradient(Builder& b, const Items& it, Value p, double smoothing) {
  const DType wide = b.dtype(p), index = b.dtype(it.label);
  const Value classes = along_axis(b, it, b.iota({it.classes}, 0, index));
  const Value hit = b.compare("eq", classes, b.unsqueeze(it.label, it.axis));
  Value dx = b.minus(p, b.where(hit, b.scalar(wide, 1), b.scalar(wide, 0)));
  if (it.own) dx = b.times(dx, b.unsqueeze(it.own, it.axis));
  if (smoothing == 0) return dx;
  Value spread;
  if (it.weight) {
    const Value total = b.sum(it.weight, {0}, false);
    spread = b.minus(b.times(p, total), along_axis(b, it, it.weight));
  } else {
    spread = b.minus(b.times(p, static_cast<double>(it.classes)), 1);
  }
  return b.plus(b.times(dx, 1 - smoothing),
                b.times(spread, smoothing / static_cast<double>(it.classes)));
}

bool cross_entropy_backward_lower(Lower& l, const op::cross_entropy_backward& n) {
  Builder& b = l.b;
  const Type x = l.type(n.logits);
  const Items it = items_of(b, operands_of(n));
  const Value p = b.shares(it.x, {it.axis});
  Value upstream = n.dy;
  if (n.reduction == "mean") upstream = b.over(upstream, total_weight(b, it));
  if (n.reduction == "none") upstream = b.unsqueeze(upstream, it.axis);
  const Value dx = b.times(item_gradient(b, it, p, n.label_smoothing), upstream);
  const Value none = b.unsqueeze(it.ignored, it.axis);
  l.out(0, b.cast(b.where(none, b.scalar(b.dtype(dx), 0), dx), x.dtype));
  return true;
}

constexpr Record<op::cross_entropy_backward> kCrossEntropyBackward{
    .shape = cross_entropy_backward_shape,
    .words = {{"reduction", "none sum mean"}},
    .lower = cross_entropy_backward_lower,
    .padded = cross_entropy_padded<op::cross_entropy_backward>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord softmax_def = record<op::softmax, kSoftmax>();
constinit const OpRecord softmax_backward_def = record<op::softmax_backward, kSoftmaxBackward>();
constinit const OpRecord cross_entropy_def = record<op::cross_entropy, kCrossEntropy>();
constinit const OpRecord cross_entropy_backward_def =
    record<op::cross_entropy_backward, kCrossEntropyBackward>();

}  // namespace tenon::core
