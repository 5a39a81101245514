// SPDX-License-Identifier: Apache-2.0
// Records of the loss family: mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
// binary_cross_entropy_with_logits kl_div. PyTorch defines them.
#include "ops/loss.hpp"

#include <cmath>

#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Type loss_type(std::string_view reduction, const Type& items) {
  return reduction == "none" ? items : Type{items.dtype, {}};
}

Value reduce_loss(Builder& b, std::string_view reduction, Value each) {
  if (reduction == "none") return each;
  Ints axes;
  for (int i = 0; i < b.shape(each).rank(); ++i) axes.push_back(i);
  return b.reduce(reduction, each, axes, false);
}

namespace {

constexpr std::string_view kReductions = "none sum mean";

// ---- shape: x and target have one type

template <class Op>
void pair_shape(Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  i.want_same_dtype(n.target, "target", n.x, "x");
  const Type x = i.type(n.x);
  i.want_shape(n.target, "target", x.shape);
  i.out(0, loss_type(n.reduction, {acc_dtype(x.dtype), x.shape}));
}

void want_positive(const Infer& i, std::string_view attr, double given, bool or_zero) {
  if (std::isfinite(given) && (or_zero ? given >= 0 : given > 0)) return;
  i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number ",
         or_zero ? ">= 0" : "> 0", ", given ", given);
}

void smooth_l1_loss_shape(Infer& i, const op::smooth_l1_loss& n) {
  want_positive(i, "beta", n.beta, true);
  pair_shape(i, n);
}

void huber_loss_shape(Infer& i, const op::huber_loss& n) {
  want_positive(i, "delta", n.delta, false);
  pair_shape(i, n);
}

// A weight of each item; it broadcasts to x.
void want_weight(const Infer& i, Value weight, std::string_view name, Value x) {
  if (!weight) return;
  i.want_same_dtype(weight, name, x, "x");
  const Shape whole = i.shape(x), own = i.shape(weight);
  bool fits = own.rank() <= whole.rank();
  for (int k = 1; fits && k <= own.rank(); ++k)
    fits = own[own.rank() - k] == 1 || own[own.rank() - k] == whole[whole.rank() - k];
  if (!fits)
    i.fail(Code::shape_mismatch, "operand ", name, ": expected a shape that broadcasts to ",
           whole.text(), ", got ", i.type(weight).text());
}

template <class Op>
void binary_shape(Infer& i, const Op& n) {
  pair_shape(i, n);
  want_weight(i, n.weight, "weight", n.x);
  if constexpr (requires { n.pos_weight; }) want_weight(i, n.pos_weight, "pos_weight", n.x);
}

// ---- decomposition

struct Pair {
  Value x, target;  // widened
};
template <class Op>
Pair widened(Builder& b, const Op& n) {
  return {b.widen(n.x), b.widen(n.target)};
}
template <class Op>
Value distance(Builder& b, const Op& n) {
  const Pair p = widened(b, n);
  return b.minus(p.x, p.target);
}

bool mse_loss_lower(Lower& l, const op::mse_loss& n) {
  l.out(0, reduce_loss(l.b, n.reduction, l.b.unary("square", distance(l.b, n))));
  return true;
}

bool l1_loss_lower(Lower& l, const op::l1_loss& n) {
  l.out(0, reduce_loss(l.b, n.reduction, l.b.unary("abs", distance(l.b, n))));
  return true;
}

// d²/2 below the knee, and a line that continues it: knee·(|d| - knee/2).
Value bent(Builder& b, Value d, double knee) {
  const Value size = b.unary("abs", d);
  const Value line = b.times(b.minus(size, knee / 2), knee), near = b.compare("lt", size, knee);
  const Value square = b.unary("square", b.where(near, d, b.scalar(b.dtype(d), 0)));
  return b.where(near, b.times(square, 0.5), line);
}

bool smooth_l1_loss_lower(Lower& l, const op::smooth_l1_loss& n) {
  Builder& b = l.b;
  const Value d = distance(b, n);
  const Value each = n.beta == 0 ? b.unary("abs", d) : b.over(bent(b, d, n.beta), n.beta);
  l.out(0, reduce_loss(b, n.reduction, each));
  return true;
}

bool huber_loss_lower(Lower& l, const op::huber_loss& n) {
  l.out(0, reduce_loss(l.b, n.reduction, bent(l.b, distance(l.b, n), n.delta)));
  return true;
}

Value weighted(Builder& b, Value each, Value weight) {
  return weight ? b.times(each, b.widen(weight)) : each;
}

// Logarithms are at least this one, so that a probability of 0 costs 100.
constexpr double kLeastLog = -100;

// ln x and ln(1 - x), clamped.
struct Logs {
  Value of_x, of_rest;
};
Logs clamped_logs(Builder& b, Value x) {
  const Value least = b.scalar(b.dtype(x), kLeastLog);
  return {b.max(b.log(x), least), b.max(b.unary("log1p", b.neg(x)), least)};
}
// -(target·ln x + (1 - target)·ln(1 - x))
Value cross_entropies(Builder& b, const Pair& p) {
  const Logs log = clamped_logs(b, p.x);
  return b.minus(b.times(b.minus(p.target, 1), log.of_rest), b.times(p.target, log.of_x));
}

bool binary_cross_entropy_lower(Lower& l, const op::binary_cross_entropy& n) {
  Builder& b = l.b;
  const Value each = weighted(b, cross_entropies(b, widened(b, n)), n.weight);
  l.out(0, reduce_loss(b, n.reduction, each));
  return true;
}

// The gradient for x ignores the clamp, but for the divisor's: a probability that is wrongly 0 or 1
// must be able to leave.
void binary_cross_entropy_grad(Grad& g, const op::binary_cross_entropy& n) {
  Builder& b = g.b;
  const Pair p = widened(b, n);
  const DType own = b.dtype(n.x), wide = b.dtype(p.x);
  Value dy = g.dy();
  if (n.reduction == "mean") dy = b.over(dy, static_cast<double>(b.shape(n.x).elements()));
  const auto give = [&](Value operand, Value slope) {
    g.give(operand, b.cast(b.sum_to(b.times(slope, dy), b.shape(operand)), own));
  };
  if (g.wants(n.x)) {
    const Value variance = b.times(p.x, b.minus(b.scalar(wide, 1), p.x));
    const Value divisor = b.max(variance, b.scalar(wide, 1e-12));
    give(n.x, weighted(b, b.over(b.minus(p.x, p.target), divisor), n.weight));
  }
  if (g.wants(n.target)) {
    const Logs log = clamped_logs(b, p.x);
    give(n.target, weighted(b, b.minus(log.of_rest, log.of_x), n.weight));
  }
  if (g.wants(n.weight)) give(n.weight, cross_entropies(b, p));
}

bool with_logits_lower(Lower& l, const op::binary_cross_entropy_with_logits& n) {
  Builder& b = l.b;
  const auto [x, target] = widened(b, n);
  // (1 - t)·x + (1 + (w - 1)·t)·softplus(-x), where w weighs the positive items.
  Value tail = b.unary("softplus", b.neg(x));
  if (n.pos_weight) {
    const Value more = b.times(b.minus(b.widen(n.pos_weight), 1), target);
    tail = b.times(b.plus(more, 1), tail);
  }
  const Value each = b.minus(tail, b.times(b.minus(target, 1), x));
  l.out(0, reduce_loss(b, n.reduction, weighted(b, each, n.weight)));
  return true;
}

bool kl_div_lower(Lower& l, const op::kl_div& n) {
  Builder& b = l.b;
  const auto [x, target] = widened(b, n);
  Value each;
  if (n.log_target) {
    each = b.times(b.exp(target), b.minus(target, x));
  } else {  // 0·ln 0 = 0
    const Value none = b.compare("eq", target, 0);
    const Value log = b.log(b.where(none, b.scalar(b.dtype(target), 1), target));
    each = b.minus(b.times(target, log), b.times(target, x));
  }
  const bool batch = n.reduction == "batchmean";
  Value loss = reduce_loss(b, batch ? "sum" : n.reduction, each);
  const Shape s = b.shape(x);
  if (batch && s.rank() > 0) loss = b.over(loss, static_cast<double>(s[0]));
  l.out(0, loss);
  return true;
}

constexpr Record<op::mse_loss> kMseLoss{.shape = pair_shape<op::mse_loss>,
                                        .words = {{"reduction", kReductions}},
                                        .lower = mse_loss_lower,
                                        .flops = no_products,
                                        .bytes = each_once};
constexpr Record<op::l1_loss> kL1Loss{.shape = pair_shape<op::l1_loss>,
                                      .words = {{"reduction", kReductions}},
                                      .lower = l1_loss_lower,
                                      .flops = no_products,
                                      .bytes = each_once};
constexpr Record<op::smooth_l1_loss> kSmoothL1Loss{.shape = smooth_l1_loss_shape,
                                                   .words = {{"reduction", kReductions}},
                                                   .lower = smooth_l1_loss_lower,
                                                   .flops = no_products,
                                                   .bytes = each_once};
constexpr Record<op::huber_loss> kHuberLoss{.shape = huber_loss_shape,
                                            .words = {{"reduction", kReductions}},
                                            .lower = huber_loss_lower,
                                            .flops = no_products,
                                            .bytes = each_once};
constexpr Record<op::binary_cross_entropy> kBinaryCrossEntropy{
    .shape = binary_shape<op::binary_cross_entropy>,
    .words = {{"reduction", kReductions}},
    .grad = binary_cross_entropy_grad,
    .lower = binary_cross_entropy_lower,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::binary_cross_entropy_with_logits> kWithLogits{
    .shape = binary_shape<op::binary_cross_entropy_with_logits>,
    .words = {{"reduction", kReductions}},
    .lower = with_logits_lower,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::kl_div> kKlDiv{.shape = pair_shape<op::kl_div>,
                                    .words = {{"reduction", "none sum mean batchmean"}},
                                    .lower = kl_div_lower,
                                    .flops = no_products,
                                    .bytes = each_once};

}  // namespace

const OpRecord mse_loss_def = record<op::mse_loss, kMseLoss>();
const OpRecord l1_loss_def = record<op::l1_loss, kL1Loss>();
const OpRecord smooth_l1_loss_def = record<op::smooth_l1_loss, kSmoothL1Loss>();
const OpRecord huber_loss_def = record<op::huber_loss, kHuberLoss>();
const OpRecord binary_cross_entropy_def = record<op::binary_cross_entropy, kBinaryCrossEntropy>();
const OpRecord binary_cross_entropy_with_logits_def =
    record<op::binary_cross_entropy_with_logits, kWithLogits>();
const OpRecord kl_div_def = record<op::kl_div, kKlDiv>();

}  // namespace tenon::core
