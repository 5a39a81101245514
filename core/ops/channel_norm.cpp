// SPDX-License-Identifier: Apache-2.0
// Norms of images: group_norm (statistics over groups of channels), layer_norm2d (statistics over
// the channels at each pixel), and their backward ops. Specification 4.7 to 4.9.
#include "ops/norm.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// x reshaped so that the norm is a plain reduction: group_norm [N, G, C/G, spatial] over the last
// two axes, layer_norm2d [N, C, H·W] over the channels.
struct View {
  Shape shape;       // of the view
  Ints axes;         // normalized axes of the view
  Shape parameters;  // gamma's shape in the view: broadcasts to it
  Shape stats;       // mean and inv_std in the op's outputs
  Shape kept;        // the same in the view
  int64_t channels;
  double count;  // normalized elements
};

template <class Op>
constexpr bool kGroups = requires(const Op& n) {
  n.groups;
};

template <class Op>
View view_of(const Op& n, const Shape& x) {
  const int64_t channels = x[1];
  int64_t pixels = 1;
  for (int k = 2; k < x.rank(); ++k) pixels *= x[k];
  if constexpr (kGroups<Op>) {
    const int64_t groups = n.groups, each = channels / groups;
    return {.shape = {x[0], groups, each, pixels},
            .axes = {2, 3},
            .parameters = {groups, each, 1},
            .stats = {x[0], groups},
            .kept = {x[0], groups, 1, 1},
            .channels = channels,
            .count = static_cast<double>(each * pixels)};
  } else {
    return {.shape = {x[0], channels, pixels},
            .axes = {1},
            .parameters = {channels, 1},
            .stats = {x[0], 1, x[2], x[3]},
            .kept = {x[0], 1, pixels},
            .channels = channels,
            .count = static_cast<double>(channels)};
  }
}

// ---- shape

template <class Op>
View want_image(const Infer& i, const Op& n) {
  i.want_float(n.x, "x");
  want_eps(i, n.eps);
  const Shape& x = i.shape(n.x);
  if constexpr (kGroups<Op>) {
    if (x.rank() < 2)
      i.fail(Code::shape_mismatch, "operand x: expected rank 2 or more, got ", i.type(n.x).text());
    if (n.groups < 1 || x[1] % n.groups != 0)
      i.fail(Code::invalid_argument, "attribute groups: expected a divisor of the ", x[1],
             " channels of operand x, given ", n.groups);
  } else {
    i.want_rank(n.x, "x", 4);
  }
  const View v = view_of(n, x);
  want_norm_parameter(i, n.gamma, "gamma", i.dtype(n.x), {v.channels});
  return v;
}

template <class Op>
void norm_shape(Infer& i, const Op& n) {
  const View v = want_image(i, n);
  const Type x = i.type(n.x);
  want_norm_parameter(i, n.beta, "beta", x.dtype, {v.channels});
  const Type stats{acc_dtype(x.dtype), v.stats};
  i.out(0, x);
  i.out(1, stats);
  i.out(2, stats);
}

// dgamma and dbeta have gamma's dtype; without gamma, x's.
template <class Op>
void backward_shape(Infer& i, const Op& n) {
  const View v = want_image(i, n);
  const Type x = i.type(n.x), stats{acc_dtype(x.dtype), v.stats};
  want_like(i, n.dy, "dy", x);
  want_like(i, n.mean, "mean", stats);
  want_like(i, n.inv_std, "inv_std", stats);
  const Type parameter{n.gamma ? i.dtype(n.gamma) : x.dtype, {v.channels}};
  i.out(0, x);
  i.out(1, parameter);
  i.out(2, parameter);
}

// ---- decomposition

Value parameter_in(Builder& b, const View& v, Value p, DType wide) {
  return b.cast(b.reshape(p, v.parameters), wide);
}

// Statistics are of groups of channels of an image, or of the channels of a pixel.
template <class Op>
bool norm_padded(Padded& p, const Op& n) {
  bool whole;
  if constexpr (requires { n.groups; })
    whole = !p.any_from(n.x, 1);
  else
    whole = !p.along(n.x, 1);
  return whole ? true : p.refuse("the axes that it normalizes are padded");
}
// The gradients of gamma and beta are sums: padding adds nothing.
template <class Op>
bool norm_backward_padded(Padded& p, const Op& n) {
  if (!norm_padded(p, n)) return false;
  for (Value v : {n.dy, n.x, n.mean, n.inv_std}) p.fill_all(v, Fill::zero);
  return true;
}

template <class Op>
bool norm_lower(Lower& l, const Op& n) {
  Builder& b = l.b;
  const Type t = l.type(n.x);
  const View v = view_of(n, t.shape);
  const Centred c = centre(b, b.widen(b.reshape(n.x, v.shape)), v.axes);
  const Value r = inverse_root(b, c.values, v.axes, n.eps);
  const DType wide = b.dtype(r);
  Value y = b.times(c.values, r);
  if (n.gamma) y = b.times(y, parameter_in(b, v, n.gamma, wide));
  if (n.beta) y = b.plus(y, parameter_in(b, v, n.beta, wide));
  l.out(0, b.reshape(b.cast(y, t.dtype), t.shape));
  out_if_wanted(l, 1, b.reshape(c.mean, v.stats));
  out_if_wanted(l, 2, b.reshape(r, v.stats));
  return true;
}

template <class Op>
bool backward_lower(Lower& l, const Op& n) {
  Builder& b = l.b;
  const Type t = l.type(n.x);
  const View v = view_of(n, t.shape);
  const auto seen = [&](Value x) { return b.widen(b.reshape(x, v.shape)); };
  const Value mean = n.mean ? b.reshape(n.mean, v.kept) : Value{};
  const Value centred = centre(b, seen(n.x), v.axes, mean).values;
  const Value r =
      n.inv_std ? b.reshape(n.inv_std, v.kept) : inverse_root(b, centred, v.axes, n.eps);
  const Value x_hat = b.times(centred, r), dy = seen(n.dy);
  const DType parameter = n.gamma ? l.type(n.gamma).dtype : t.dtype;
  const auto out_parameter = [&](size_t k, Value terms) {
    l.out(k, b.cast(b.reshape(b.sum_to(terms, v.parameters), {v.channels}), parameter));
  };
  if (l.wanted(1)) out_parameter(1, b.times(dy, x_hat));
  if (l.wanted(2)) out_parameter(2, dy);
  if (!l.wanted(0)) return true;
  const Value g = n.gamma ? b.times(dy, parameter_in(b, v, n.gamma, b.dtype(dy))) : dy;
  const Value along = b.times(x_hat, b.mean(b.times(g, x_hat), v.axes));
  const Value dx = b.times(r, b.minus(b.minus(g, b.mean(g, v.axes)), along));
  l.out(0, b.reshape(b.cast(dx, t.dtype), t.shape));
  return true;
}

// ---- gradient

template <class Op, class Backward>
void norm_grad(Grad& g, const Op& n) {
  Builder& b = g.b;
  const Type t = b.type(n.x);
  const View v = view_of(n, t.shape);
  StatsUpstream up{.dmean = g.dy(1), .dinverse = g.dy(2), .mean = {}, .inverse = {}};
  const auto kept = [&](Value stats) { return stats ? b.reshape(stats, v.kept) : stats; };
  Backward back{};
  if (up.dinverse || g.dy(0)) back.mean = g.y(1), back.inv_std = g.y(2);
  Value dx;
  if (g.wants(n.x)) {
    up = {kept(up.dmean), kept(up.dinverse), kept(back.mean), kept(back.inv_std)};
    dx = stats_gradient(b, v.axes, v.count, b.reshape(n.x, v.shape), up);
    if (dx) dx = b.reshape(dx, t.shape);
  }
  if (g.dy(0)) {
    if constexpr (kGroups<Op>) back.groups = n.groups;
    back.eps = n.eps, back.dy = g.dy(0), back.x = n.x, back.gamma = n.gamma;
    back.want_dx = g.wants(n.x);
    back.want_dgamma = g.wants(n.gamma);
    back.want_dbeta = g.wants(n.beta) && gives_dbeta(b, n);
    if (g.wants(n.beta) && !back.want_dbeta) {
      const Value dbeta = wide_dbeta(b, b.reshape(g.dy(0), v.shape), v.parameters);
      g.give(n.beta, b.reshape(dbeta, {v.channels}));
    }
    Results r;
    if (back.want_dx || back.want_dgamma || back.want_dbeta) r = b.add(back);
    if (back.want_dx) dx = dx ? b.plus(dx, r[0]) : r[0];
    if (back.want_dgamma) g.give(n.gamma, r[1]);
    if (back.want_dbeta) g.give(n.beta, b.cast(r[2], b.dtype(n.beta)));
  }
  if (dx) g.give(n.x, dx);
}

// The batch joins N. Parameters are those of all examples; their gradients would be sums over one
// example.
template <class Op>
bool norm_batch(Batch& v, const Op& n) {
  if constexpr (requires { n.want_dgamma; })
    if (n.want_dgamma || n.want_dbeta) return false;
  Value beta;
  if constexpr (requires { n.beta; }) beta = n.beta;
  if (v.batched(n.gamma) || v.batched(beta)) return false;
  return v.add_folded(n, [&](Value x) { return x == n.gamma || x == beta ? v.given(x) : Value{}; });
}

template <class Op, class Backward>
constexpr Record<Op> kForward{.shape = norm_shape<Op>,
                              .grad = norm_grad<Op, Backward>,
                              .lower = norm_lower<Op>,
                              .batch = norm_batch<Op>,
                              .padded = norm_padded<Op>,
                              .flops = no_products,
                              .bytes = each_once};
template <class Op>
constexpr Record<Op> kBackward{.shape = backward_shape<Op>,
                               .lower = backward_lower<Op>,
                               .batch = norm_batch<Op>,
                               .padded = norm_backward_padded<Op>,
                               .flops = no_products,
                               .bytes = each_once};

}  // namespace

const OpRecord group_norm_def =
    record<op::group_norm, kForward<op::group_norm, op::group_norm_backward>>();
const OpRecord group_norm_backward_def =
    record<op::group_norm_backward, kBackward<op::group_norm_backward>>();
const OpRecord layer_norm2d_def =
    record<op::layer_norm2d, kForward<op::layer_norm2d, op::layer_norm2d_backward>>();
const OpRecord layer_norm2d_backward_def =
    record<op::layer_norm2d_backward, kBackward<op::layer_norm2d_backward>>();

}  // namespace tenon::core
