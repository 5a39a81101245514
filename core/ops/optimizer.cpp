// SPDX-License-Identifier: Apache-2.0
// sgd adamw lion: specification 9. They have no gradients: updates are not differentiated.
#include <cmath>

#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

void want_between(const Infer& i, std::string_view attr, double v, double below) {
  if (!(v >= 0 && v < below))
    i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number in [0, ", below,
           "), given ", v);
}
void want_not_negative(const Infer& i, std::string_view attr, double v) {
  if (!(v >= 0) || std::isinf(v))
    i.fail(Code::invalid_argument, "attribute ", attr, ": expected a finite number >= 0, given ",
           v);
}

// Moments have the accumulation dtype of w.
Type moment_type(const Type& w) { return {acc_dtype(w.dtype), w.shape}; }

void want_moment(const Infer& i, Value v, std::string_view operand, const Type& w) {
  i.want_dtype(v, operand, moment_type(w).dtype);
  i.want_shape(v, operand, w.shape);
}

// A scalar: f32, or f64 with f64 weights.
void want_scalar(const Infer& i, Value v, std::string_view operand, DType w) {
  if (!v) return;
  if (i.dtype(v) != kF32 && i.dtype(v) != acc_dtype(w))
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected ", dtype_name(acc_dtype(w)),
           ", got ", i.type(v).text());
  i.want_rank(v, operand, 0);
}

// Checks shared by the three ops. A gradient may have a half dtype if the weight is an f32 master.
template <class Op>
Type want_step(const Infer& i, const Op& n) {
  i.want_float(n.w, "w");
  const Type w = i.type(n.w);
  i.want_float(n.g, "g");
  if (acc_dtype(i.dtype(n.g)) != acc_dtype(w.dtype))
    i.fail(Code::dtype_mismatch, "operand g: expected ", dtype_name(w.dtype), ", got ",
           i.type(n.g).text());
  i.want_shape(n.g, "g", w.shape);
  want_scalar(i, n.lr, "lr", w.dtype);
  want_scalar(i, n.grad_scale, "grad_scale", w.dtype);
  i.want_dtype(n.apply, "apply", kBool);
  i.want_rank(n.apply, "apply", 0);
  if constexpr (requires { n.step; }) {
    i.want_dtype(n.step, "step", kI64);
    i.want_rank(n.step, "step", 0);
  }
  want_not_negative(i, "weight_decay", n.weight_decay);
  return w;
}

void sgd_shape(Infer& i, const op::sgd& n) {
  const Type w = want_step(i, n);
  want_not_negative(i, "momentum", n.momentum);
  if (!std::isfinite(n.dampening))
    i.fail(Code::invalid_argument, "attribute dampening: expected a finite number, given ",
           n.dampening);
  if (n.nesterov && (n.momentum == 0 || n.dampening != 0))
    i.fail(Code::invalid_argument,
           "attribute nesterov: needs momentum and no dampening, given momentum ", n.momentum,
           " and dampening ", n.dampening);
  if (n.momentum != 0 && !n.momentum_buf)
    i.fail(Code::invalid_argument, "operand momentum_buf: is needed with momentum ", n.momentum);
  if (n.momentum == 0 && (n.momentum_buf || n.want_momentum_buf_out))
    i.fail(Code::invalid_argument, "operand momentum_buf: is of no use without momentum");
  if (n.momentum != 0 && n.dampening != 0 && !n.step)
    i.fail(Code::invalid_argument,
           "operand step: is needed with dampening, which spares the first step");
  want_moment(i, n.momentum_buf, "momentum_buf", w);
  i.out(0, w);
  i.out(1, moment_type(w));
}

void adamw_shape(Infer& i, const op::adamw& n) {
  const Type w = want_step(i, n);
  want_between(i, "beta1", n.beta1, 1);
  want_between(i, "beta2", n.beta2, 1);
  want_not_negative(i, "eps", n.eps);
  want_moment(i, n.m, "m", w);
  want_moment(i, n.v, "v", w);
  i.out(0, w);
  i.out(1, moment_type(w));
  i.out(2, moment_type(w));
}

void lion_shape(Infer& i, const op::lion& n) {
  const Type w = want_step(i, n);
  want_between(i, "beta1", n.beta1, 1);
  want_between(i, "beta2", n.beta2, 1);
  want_moment(i, n.m, "m", w);
  i.out(0, w);
  i.out(1, moment_type(w));
}

// ---- decomposition

// The operands of a step in the accumulation dtype.
struct Step {
  DType wide;
  Value w, g, lr;
};

template <class Op>
Step step_of(Builder& b, const Op& n) {
  const DType wide = acc_dtype(b.dtype(n.w));
  Step s{.wide = wide, .w = b.widen(n.w), .g = b.cast(n.g, wide), .lr = b.cast(n.lr, wide)};
  if (n.grad_scale) s.g = b.times(s.g, b.cast(n.grad_scale, wide));
  return s;
}

// a·x + (1-a)·y; 1-a is rounded once.
Value blend(Builder& b, double a, Value x, Value y) {
  return b.plus(b.times(x, a), b.times(y, 1 - a));
}

// w·(1 - lr·decay)
Value decayed(Builder& b, const Step& s, double decay) {
  if (decay == 0) return s.w;
  return b.times(s.w, b.minus(b.scalar(s.wide, 1), b.times(s.lr, decay)));
}

// 1 - beta^t without cancellation.
Value bias_correction(Builder& b, double beta, Value t) {
  return b.neg(b.unary("expm1", b.times(t, std::log(beta))));
}

// Output k is `next`, or `old` if the step is not applied.
void out_step(Lower& l, size_t k, Value apply, Value next, Value old) {
  Builder& b = l.b;
  next = b.cast(next, b.dtype(old));
  l.out(k, apply ? b.where(apply, next, old) : next);
}

bool sgd_lower(Lower& l, const op::sgd& n) {
  Builder& b = l.b;
  const Step s = step_of(b, n);
  Value g = n.weight_decay == 0 ? s.g : b.plus(s.g, b.times(s.w, n.weight_decay));
  if (n.momentum != 0) {
    Value buf = b.plus(b.times(n.momentum_buf, n.momentum), b.times(g, 1 - n.dampening));
    if (n.step) buf = b.where(b.compare("le", n.step, b.scalar_int(kI64, 1)), g, buf);
    if (l.wanted(1)) out_step(l, 1, n.apply, buf, n.momentum_buf);
    g = n.nesterov ? b.plus(g, b.times(buf, n.momentum)) : buf;
  }
  out_step(l, 0, n.apply, b.minus(s.w, b.times(g, s.lr)), n.w);
  return true;
}

bool adamw_lower(Lower& l, const op::adamw& n) {
  Builder& b = l.b;
  const Step s = step_of(b, n);
  const Value t = b.cast(n.step, s.wide);
  const Value m = blend(b, n.beta1, n.m, s.g), v = blend(b, n.beta2, n.v, b.times(s.g, s.g));
  const Value mean = b.over(m, bias_correction(b, n.beta1, t));
  const Value root = b.unary("sqrt", b.over(v, bias_correction(b, n.beta2, t)));
  const Value update = b.over(b.times(mean, s.lr), b.plus(root, n.eps));
  out_step(l, 0, n.apply, b.minus(decayed(b, s, n.weight_decay), update), n.w);
  out_step(l, 1, n.apply, m, n.m);
  out_step(l, 2, n.apply, v, n.v);
  return true;
}

bool lion_lower(Lower& l, const op::lion& n) {
  Builder& b = l.b;
  const Step s = step_of(b, n);
  const Value u = b.unary("sign", blend(b, n.beta1, n.m, s.g));
  out_step(l, 0, n.apply, b.minus(decayed(b, s, n.weight_decay), b.times(u, s.lr)), n.w);
  out_step(l, 1, n.apply, blend(b, n.beta2, n.m, s.g), n.m);
  return true;
}

constexpr Record<op::sgd> kSgd{
    .shape = sgd_shape, .lower = sgd_lower, .flops = no_products, .bytes = each_once};
constexpr Record<op::adamw> kAdamw{
    .shape = adamw_shape, .lower = adamw_lower, .flops = no_products, .bytes = each_once};
constexpr Record<op::lion> kLion{
    .shape = lion_shape, .lower = lion_lower, .flops = no_products, .bytes = each_once};

}  // namespace

constinit const OpRecord sgd_def = record<op::sgd, kSgd>();
constinit const OpRecord adamw_def = record<op::adamw, kAdamw>();
constinit const OpRecord lion_def = record<op::lion, kLion>();

}  // namespace tenon::core
