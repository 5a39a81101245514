// SPDX-License-Identifier: Apache-2.0
// layer_norm rms_norm, their residual forms and backward ops: specification 4.1 to 4.6.
#include "ops/norm.hpp"

#include <algorithm>

#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

// The axes of a norm: [0, first) are rows, the others are normalized.
struct Split {
  int first;
  Ints axes;     // normalized axes
  Shape dims;    // their lengths: the shape of gamma, beta and bias
  Shape stats;   // x's shape with 1 at the axes
  double count;  // elements of a row
};

Split split_of(int64_t axis, const Shape& x, std::string_view who) {
  Split s{
      .first = normalize_axis(axis, x.rank(), who), .axes = {}, .dims = {}, .stats = x, .count = 1};
  for (int i = s.first; i < x.rank(); ++i) {
    s.axes.push_back(i);
    s.dims.push(x[i]);
    s.stats[i] = 1;
    s.count *= static_cast<double>(x[i]);
  }
  return s;
}

// Checks x and the attributes of a norm, and splits its axes.
template <class Op>
Split want_norm(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  want_eps(i, n.eps);
  return split_of(n.axis, i.shape(n.x), i.who());
}

Type stats_type(const Type& x, const Split& s) { return {acc_dtype(x.dtype), s.stats}; }

template <class Op>
void want_affine(const Infer& i, const Op& n, const Split& s) {
  const DType t = i.dtype(n.x);
  if constexpr (requires { n.residual; }) {
    want_like(i, n.residual, "residual", i.type(n.x));
    want_norm_parameter(i, n.bias, "bias", t, s.dims);
  }
  want_norm_parameter(i, n.gamma, "gamma", t, s.dims);
  want_norm_parameter(i, n.beta, "beta", t, s.dims);
}

void layer_norm_shape(Infer& i, const op::layer_norm& n) {
  const Split s = want_norm(i, n);
  want_affine(i, n, s);
  const Type x = i.type(n.x);
  i.out(0, x);
  i.out(1, stats_type(x, s));
  i.out(2, stats_type(x, s));
}

void residual_layer_norm_shape(Infer& i, const op::residual_layer_norm& n) {
  const Split s = want_norm(i, n);
  want_affine(i, n, s);
  const Type x = i.type(n.x);
  i.out(0, x);
  i.out(1, x);
  i.out(2, stats_type(x, s));
  i.out(3, stats_type(x, s));
}

void rms_norm_shape(Infer& i, const op::rms_norm& n) {
  const Split s = want_norm(i, n);
  want_affine(i, n, s);
  i.out(0, i.type(n.x));
  i.out(1, stats_type(i.type(n.x), s));
}

void residual_rms_norm_shape(Infer& i, const op::residual_rms_norm& n) {
  const Split s = want_norm(i, n);
  want_affine(i, n, s);
  i.out(0, i.type(n.x));
  i.out(1, i.type(n.x));
  i.out(2, stats_type(i.type(n.x), s));
}

// dgamma and dbeta have gamma's dtype; without gamma, x's.
template <class Op>
Split want_backward(Infer& i, const Op& n) {
  const Split s = want_norm(i, n);
  const Type x = i.type(n.x);
  want_like(i, n.dy, "dy", x);
  want_like(i, n.dsum, "dsum", x);
  want_norm_parameter(i, n.gamma, "gamma", x.dtype, s.dims);
  const Type parameter{n.gamma ? i.dtype(n.gamma) : x.dtype, s.dims};
  i.out(0, x);
  i.out(1, parameter);
  i.out(2, parameter);
  return s;
}

void layer_norm_backward_shape(Infer& i, const op::layer_norm_backward& n) {
  const Split s = want_backward(i, n);
  want_like(i, n.mean, "mean", stats_type(i.type(n.x), s));
  want_like(i, n.inv_std, "inv_std", stats_type(i.type(n.x), s));
}

void rms_norm_backward_shape(Infer& i, const op::rms_norm_backward& n) {
  const Split s = want_backward(i, n);
  want_like(i, n.inv_rms, "inv_rms", stats_type(i.type(n.x), s));
}

// ---- decomposition

// x̂·γ + β in the wide type.
Value affine(Builder& b, Value x_hat, Value gamma, Value beta) {
  const DType wide = b.dtype(x_hat);
  if (gamma) x_hat = b.times(x_hat, b.cast(gamma, wide));
  if (beta) x_hat = b.plus(x_hat, b.cast(beta, wide));
  return x_hat;
}

// x + residual + bias in the wide type.
template <class Op>
Value residual_sum(Builder& b, const Op& n) {
  const Value sum = b.plus(b.widen(n.x), b.widen(n.residual));
  return n.bias ? b.plus(sum, b.cast(n.bias, b.dtype(sum))) : sum;
}

// Outputs: y, then mean and inv_std from position `stats`.
template <class Op>
void layer_norm_of(Lower& l, const Op& n, Value x, size_t stats) {
  Builder& b = l.b;
  const Type t = l.type(n.x);
  const Split s = split_of(n.axis, t.shape, Op::kName);
  const Centred c = centre(b, x, s.axes);
  const Value r = inverse_root(b, c.values, s.axes, n.eps);
  l.out(0, b.cast(affine(b, b.times(c.values, r), n.gamma, n.beta), t.dtype));
  out_if_wanted(l, stats, c.mean);
  out_if_wanted(l, stats + 1, r);
}

// Outputs: y, then inv_rms at position `stats`.
template <class Op>
void rms_norm_of(Lower& l, const Op& n, Value x, size_t stats) {
  Builder& b = l.b;
  const Type t = l.type(n.x);
  const Split s = split_of(n.axis, t.shape, Op::kName);
  const Value r = inverse_root(b, x, s.axes, n.eps);
  l.out(0, b.cast(affine(b, b.times(x, r), n.gamma, n.beta), t.dtype));
  out_if_wanted(l, stats, r);
}

bool layer_norm_lower(Lower& l, const op::layer_norm& n) {
  layer_norm_of(l, n, l.b.widen(n.x), 1);
  return true;
}
bool rms_norm_lower(Lower& l, const op::rms_norm& n) {
  rms_norm_of(l, n, l.b.widen(n.x), 1);
  return true;
}
bool residual_layer_norm_lower(Lower& l, const op::residual_layer_norm& n) {
  const Value sum = residual_sum(l.b, n);
  out_if_wanted(l, 1, l.b.cast(sum, l.type(n.x).dtype));
  layer_norm_of(l, n, sum, 2);
  return true;
}
bool residual_rms_norm_lower(Lower& l, const op::residual_rms_norm& n) {
  const Value sum = residual_sum(l.b, n);
  out_if_wanted(l, 1, l.b.cast(sum, l.type(n.x).dtype));
  rms_norm_of(l, n, sum, 2);
  return true;
}

// dgamma = Σ dy·x̂ and dbeta = Σ dy, if wanted. Returns dy·γ.
template <class Op>
Value parameter_gradients(Lower& l, const Op& n, const Split& s, Value x_hat) {
  Builder& b = l.b;
  const Value dy = b.widen(n.dy);
  const DType t = n.gamma ? l.type(n.gamma).dtype : l.type(n.x).dtype;
  if (l.wanted(1)) l.out(1, b.cast(b.sum_to(b.times(dy, x_hat), s.dims), t));
  if (l.wanted(2)) l.out(2, b.cast(b.sum_to(dy, s.dims), t));
  return n.gamma ? b.times(dy, b.cast(n.gamma, b.dtype(dy))) : dy;
}

// dx in the accumulation dtype; dsum is added before rounding.
template <class Op>
void out_dx(Lower& l, const Op& n, Value dx) {
  Builder& b = l.b;
  if (n.dsum) dx = b.plus(dx, b.widen(n.dsum));
  l.out(0, b.cast(dx, l.type(n.x).dtype));
}

bool layer_norm_backward_lower(Lower& l, const op::layer_norm_backward& n) {
  Builder& b = l.b;
  const Split s = split_of(n.axis, l.type(n.x).shape, "layer_norm_backward");
  const Value centred = centre(b, b.widen(n.x), s.axes, n.mean).values;
  const Value r = n.inv_std ? n.inv_std : inverse_root(b, centred, s.axes, n.eps);
  const Value x_hat = b.times(centred, r);
  const Value g = parameter_gradients(l, n, s, x_hat);
  if (!l.wanted(0)) return true;
  const Value along = b.times(x_hat, b.mean(b.times(g, x_hat), s.axes));
  out_dx(l, n, b.times(r, b.minus(b.minus(g, b.mean(g, s.axes)), along)));
  return true;
}

bool rms_norm_backward_lower(Lower& l, const op::rms_norm_backward& n) {
  Builder& b = l.b;
  const Split s = split_of(n.axis, l.type(n.x).shape, "rms_norm_backward");
  const Value x = b.widen(n.x);
  const Value r = n.inv_rms ? n.inv_rms : inverse_root(b, x, s.axes, n.eps);
  const Value x_hat = b.times(x, r);
  const Value g = parameter_gradients(l, n, s, x_hat);
  if (!l.wanted(0)) return true;
  const Value along = b.times(x_hat, b.mean(b.times(g, x_hat), s.axes));
  out_dx(l, n, b.times(r, b.minus(g, along)));
  return true;
}

// ---- gradient

Value sum_given(Builder& b, Value a, Value c) { return a && c ? b.plus(a, c) : a ? a : c; }

// True if the gradient of the normalized values is wanted.
template <class Op>
bool wants_dx(Grad& g, const Op& n) {
  if constexpr (requires { n.residual; })
    if (g.wants(n.residual) || g.wants(n.bias)) return true;
  return g.wants(n.x);
}

// The gradients of the normalized values x from a backward op; `extra` is added to dx.
struct NormGradients {
  Value dx, dgamma, dbeta;
};

// True if the saved statistics belong to x. Those of a residual norm belong to the sum before
// rounding; combined with the rounded sum, they would give a wrong gradient.
template <class Op>
bool statistics_fit(const Builder& b, Value x) {
  if constexpr (requires(Op n) { n.residual; }) return acc_dtype(b.dtype(x)) == b.dtype(x);
  return true;
}

// Shared end of both: combines the backward op with the upstream gradients of the statistics.
template <class Backward, class Op>
NormGradients joined_gradients(Grad& g, const Op& n, Value x, const Split& s,
                               const StatsUpstream& up, Value extra) {
  Builder& b = g.b;
  extra = sum_given(b, extra, stats_gradient(b, s.axes, s.count, x, up));
  if (!g.dy(0)) return {extra, {}, {}};
  const bool dx = wants_dx(g, n), gamma = g.wants(n.gamma);
  const bool beta = g.wants(n.beta) && gives_dbeta(b, n);
  const Value wide = g.wants(n.beta) && !beta ? wide_dbeta(b, g.dy(0), b.shape(n.beta)) : Value{};
  if (!dx && !gamma && !beta) return {extra, {}, wide};
  Backward back{.axis = n.axis, .eps = n.eps, .dy = g.dy(0), .x = x, .gamma = n.gamma};
  if constexpr (requires { back.mean; })
    back.mean = up.mean, back.inv_std = up.inverse;
  else
    back.inv_rms = up.inverse;
  if (dx) back.dsum = extra;
  back.want_dx = dx, back.want_dgamma = gamma, back.want_dbeta = beta;
  const Results r = b.add(back);
  return {dx ? r[0] : Value{}, gamma ? r[1] : Value{}, beta ? r[2] : wide};
}

template <class Op>
NormGradients layer_norm_gradients(Grad& g, const Op& n, Value x, size_t stats, Value extra) {
  Builder& b = g.b;
  const Split s = split_of(n.axis, b.shape(x), Op::kName);
  const bool saved = statistics_fit<Op>(b, x);
  StatsUpstream up{.dmean = g.dy(stats), .dinverse = g.dy(stats + 1), .mean = {}, .inverse = {}};
  if (saved && (up.dinverse || g.dy(0))) up.mean = g.y(stats), up.inverse = g.y(stats + 1);
  if (!saved && up.dinverse) {
    const Centred c = centre(b, b.widen(x), s.axes);
    up.mean = c.mean, up.inverse = inverse_root(b, c.values, s.axes, n.eps);
  }
  return joined_gradients<op::layer_norm_backward>(g, n, x, s, up, extra);
}

template <class Op>
NormGradients rms_norm_gradients(Grad& g, const Op& n, Value x, size_t stats, Value extra) {
  Builder& b = g.b;
  const Split s = split_of(n.axis, b.shape(x), Op::kName);
  StatsUpstream up{.dmean = {}, .dinverse = g.dy(stats), .mean = {}, .inverse = {}};
  if (statistics_fit<Op>(b, x))
    up.inverse = g.y(stats);
  else if (up.dinverse)
    up.inverse = inverse_root(b, b.widen(x), s.axes, n.eps);
  return joined_gradients<op::rms_norm_backward>(g, n, x, s, up, extra);
}

template <class Op>
void give_norm(Grad& g, const Op& n, const NormGradients& d) {
  Builder& b = g.b;
  const auto give = [&](Value operand, Value gradient) {
    if (operand && gradient && g.wants(operand))
      g.give(operand, b.cast(gradient, b.dtype(operand)));
  };
  give(n.x, d.dx);
  give(n.gamma, d.dgamma);
  give(n.beta, d.dbeta);
  if constexpr (requires { n.residual; }) {
    give(n.residual, d.dx);
    if (!g.wants(n.bias) || !d.dx) return;
    const Type bias = b.type(n.bias);
    const Value rows = bias.dtype == b.dtype(d.dx) ? d.dx : b.widen(d.dx);
    give(n.bias, b.sum_to(rows, bias.shape));
  }
}

void layer_norm_grad(Grad& g, const op::layer_norm& n) {
  give_norm(g, n, layer_norm_gradients(g, n, n.x, 1, {}));
}
void rms_norm_grad(Grad& g, const op::rms_norm& n) {
  give_norm(g, n, rms_norm_gradients(g, n, n.x, 1, {}));
}
void residual_layer_norm_grad(Grad& g, const op::residual_layer_norm& n) {
  give_norm(g, n, layer_norm_gradients(g, n, g.y(1), 2, g.dy(1)));
}
void residual_rms_norm_grad(Grad& g, const op::residual_rms_norm& n) {
  give_norm(g, n, rms_norm_gradients(g, n, g.y(1), 2, g.dy(1)));
}

// Parameters are those of all examples. Their gradients would be sums over one example.
template <class Op>
bool norm_batch(Batch& v, const Op& one) {
  std::vector<Value> parameters = {one.gamma};
  if constexpr (requires { one.beta; }) parameters.push_back(one.beta);
  if constexpr (requires { one.bias; }) parameters.push_back(one.bias);
  if constexpr (requires { one.want_dgamma; })
    if (one.want_dgamma || one.want_dbeta) return false;
  for (Value p : parameters)
    if (v.batched(p)) return false;
  Op n = one;
  n.axis = Batch::axis(n.axis);
  return v.add(n, [&](Value x) {
    return std::ranges::find(parameters, x) != parameters.end() ? v.given(x) : v.all(x);
  });
}

// Rows are normalized by themselves.
template <class Op>
bool norm_padded(Padded& p, const Op& n) {
  const int first = normalize_axis(n.axis, p.rank(n.x), Op::kName);
  return p.any_from(n.x, first) ? p.refuse("the axes that it normalizes are padded") : true;
}

// The gradients of gamma and beta are sums over rows: padded ones add nothing.
template <class Op>
bool norm_backward_padded(Padded& p, const Op& n) {
  if (!norm_padded(p, n)) return false;
  for (Value v : {n.dy, n.x}) p.fill_all(v, Fill::zero);
  if constexpr (requires { n.mean; }) {
    for (Value v : {n.mean, n.inv_std}) p.fill_all(v, Fill::zero);
  } else {
    p.fill_all(n.inv_rms, Fill::zero);
  }
  return true;
}

constexpr Record<op::layer_norm> kLayerNorm{.shape = layer_norm_shape,
                                            .grad = layer_norm_grad,
                                            .lower = layer_norm_lower,
                                            .batch = norm_batch<op::layer_norm>,
                                            .padded = norm_padded<op::layer_norm>,
                                            .flops = no_products,
                                            .bytes = each_once};
constexpr Record<op::layer_norm_backward> kLayerNormBackward{
    .shape = layer_norm_backward_shape,
    .lower = layer_norm_backward_lower,
    .batch = norm_batch<op::layer_norm_backward>,
    .padded = norm_backward_padded<op::layer_norm_backward>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::residual_layer_norm> kResidualLayerNorm{
    .shape = residual_layer_norm_shape,
    .grad = residual_layer_norm_grad,
    .lower = residual_layer_norm_lower,
    .batch = norm_batch<op::residual_layer_norm>,
    .padded = norm_padded<op::residual_layer_norm>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::rms_norm> kRmsNorm{.shape = rms_norm_shape,
                                        .grad = rms_norm_grad,
                                        .lower = rms_norm_lower,
                                        .batch = norm_batch<op::rms_norm>,
                                        .padded = norm_padded<op::rms_norm>,
                                        .flops = no_products,
                                        .bytes = each_once};
constexpr Record<op::rms_norm_backward> kRmsNormBackward{
    .shape = rms_norm_backward_shape,
    .lower = rms_norm_backward_lower,
    .batch = norm_batch<op::rms_norm_backward>,
    .padded = norm_backward_padded<op::rms_norm_backward>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::residual_rms_norm> kResidualRmsNorm{
    .shape = residual_rms_norm_shape,
    .grad = residual_rms_norm_grad,
    .lower = residual_rms_norm_lower,
    .batch = norm_batch<op::residual_rms_norm>,
    .padded = norm_padded<op::residual_rms_norm>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

constinit const OpRecord layer_norm_def = record<op::layer_norm, kLayerNorm>();
constinit const OpRecord layer_norm_backward_def =
    record<op::layer_norm_backward, kLayerNormBackward>();
constinit const OpRecord residual_layer_norm_def =
    record<op::residual_layer_norm, kResidualLayerNorm>();
constinit const OpRecord rms_norm_def = record<op::rms_norm, kRmsNorm>();
constinit const OpRecord rms_norm_backward_def = record<op::rms_norm_backward, kRmsNormBackward>();
constinit const OpRecord residual_rms_norm_def = record<op::residual_rms_norm, kResidualRmsNorm>();

}  // namespace tenon::core
