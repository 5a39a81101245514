// SPDX-License-Identifier: Apache-2.0
// Records of the selective_scan family: selective_scan selective_scan_backward. The decompositions
// are scans over the steps; each step computes all states at once.
#include <algorithm>

#include "ops/control.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"
#include "ops/wanted.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kLayouts = "bdl bld";

// Channel d = g·R + r belongs to group g.
struct Sizes {
  int64_t batch, channels, steps, states, groups;

  int64_t each() const { return groups ? channels / groups : 0; }  // R, channels of a group
  Shape state() const { return {batch, channels, states}; }
};

template <class Op>
Sizes sizes_of(const Op& n, const Shape& u, const Shape& a, const Shape& b) {
  const bool bdl = n.layout == "bdl";
  const int64_t groups = b.rank() == 3 ? 1 : b[bdl ? 1 : 2];
  return {u[0], u[bdl ? 1 : 2], u[bdl ? 2 : 1], a[1], groups};
}

// ---- shape

// Checks the operands that both ops have.
template <class Op>
Sizes scan_operands(const Infer& i, const Op& n) {
  i.want_float(n.u, "u");
  i.want_rank(n.u, "u", 3);
  const DType wide = acc_dtype(i.dtype(n.u));
  if (is_complex(i.dtype(n.a)))
    i.fail(Code::unsupported, "operand a: expected real numbers, got ", i.type(n.a).text());
  i.want_dtype(n.a, "a", wide);
  i.want_rank(n.a, "a", 2);
  i.want_same_dtype(n.u, "u", n.b, "b");
  const int rank = i.shape(n.b).rank();
  if (rank != 3 && rank != 4)
    i.fail(Code::shape_mismatch, "operand b: expected rank 3 or 4, got ", i.type(n.b).text());
  const Sizes s = sizes_of(n, i.shape(n.u), i.shape(n.a), i.shape(n.b));
  i.want_shape(n.a, "a", {s.channels, s.states});
  if (s.states < 1)
    i.fail(Code::shape_mismatch, "operand a: expected at least one state of each channel, got ",
           i.type(n.a).text());
  if (s.groups < 1 || s.channels % s.groups != 0)
    i.fail(Code::shape_mismatch, "operand b: expected a number of groups that divides the ",
           s.channels, " channels of u, got ", s.groups, " in ", i.type(n.b).text());
  Shape shared = {s.batch};
  const bool bdl = n.layout == "bdl";
  if (!bdl) shared.push(s.steps);
  if (rank == 4) shared.push(s.groups);
  shared.push(s.states);
  if (bdl) shared.push(s.steps);
  for (const auto& [operand, v] : {std::pair("b", n.b), std::pair("c", n.c)}) {
    i.want_same_dtype(n.u, "u", v, operand);
    i.want_shape(v, operand, shared);
  }
  for (const auto& [operand, v] : {std::pair("dt", n.dt), std::pair("z", n.z)}) {
    i.want_same_dtype(n.u, "u", v, operand);
    i.want_shape(v, operand, i.shape(n.u));
  }
  const auto parameter = [&](Value v, std::string_view operand, const Shape& shape) {
    if (v) i.want_dtype(v, operand, wide), i.want_shape(v, operand, shape);
  };
  parameter(n.d, "d", {s.channels});
  parameter(n.dt_bias, "dt_bias", {s.channels});
  parameter(n.h0, "h0", s.state());
  if constexpr (requires { n.dh_last; }) parameter(n.dh_last, "dh_last", s.state());
  return s;
}

void selective_scan_shape(Infer& i, const op::selective_scan& n) {
  const Sizes s = scan_operands(i, n);
  i.out(0, i.type(n.u));
  i.out(1, {acc_dtype(i.dtype(n.u)), s.state()});
}

void selective_scan_backward_shape(Infer& i, const op::selective_scan_backward& n) {
  const Sizes s = scan_operands(i, n);
  i.want_same_dtype(n.u, "u", n.dy, "dy");
  i.want_shape(n.dy, "dy", i.shape(n.u));
  const auto absent = [&](bool wanted, Value v, std::string_view output, std::string_view operand) {
    if (wanted && !v)
      i.fail(Code::invalid_argument, "output ", output, ": expected operand ", operand,
             ", got none");
  };
  absent(n.want_dd, n.d, "dd", "d");
  absent(n.want_dz, n.z, "dz", "z");
  absent(n.want_ddt_bias, n.dt_bias, "ddt_bias", "dt_bias");
  const DType wide = acc_dtype(i.dtype(n.u));
  const Type channel = {wide, {s.channels}};
  const Type types[] = {i.type(n.u), i.type(n.dt), i.type(n.a), i.type(n.b),      i.type(n.c),
                        channel,     i.type(n.u),  channel,     {wide, s.state()}};
  for (size_t k = 0; k < std::size(types); ++k) i.out(k, types[k]);
}

// ---- decomposition: all values with the steps in front, [L, B, G, R, N] or 1 in place of some dims

template <class Op>
class Steps {
 public:
  Steps(Lower& l, const Op& n)
      : b_(l.b),
        n_(n),
        s_(sizes_of(n, b_.shape(n.u), b_.shape(n.a), b_.shape(n.b))),
        bdl_(n.layout == "bdl"),
        u(rows(n.u)),
        raw(n.dt_bias ? b_.plus(rows(n.dt), channels(n.dt_bias)) : rows(n.dt)),
        delta(n.dt_softplus ? b_.unary("softplus", raw) : raw),
        input(b_.times(delta, u)),
        b(shared(n.b)),
        c(shared(n.c)),
        a(b_.reshape(n.a, {1, s_.groups, s_.each(), s_.states})) {}

  // [L, B, G, R, 1] of an operand with the shape of u.
  Value rows(Value v) {
    const Value front = b_.transpose(b_.widen(v), bdl_ ? Ints{2, 0, 1} : Ints{1, 0, 2});
    return b_.reshape(front, {s_.steps, s_.batch, s_.groups, s_.each(), 1});
  }
  Value channels(Value v) { return b_.reshape(v, {s_.groups, s_.each(), 1}); }
  // Back from rows().
  Value as_operand(Value v) {
    const Value front = b_.reshape(v, {s_.steps, s_.batch, s_.channels});
    return b_.cast(b_.transpose(front, bdl_ ? Ints{1, 2, 0} : Ints{1, 0, 2}), b_.dtype(n_.u));
  }
  // [L, B, G, 1, N] of b or c, and back.
  Value shared(Value v) {
    const Value full =
        b_.reshape(b_.widen(v), bdl_ ? Shape{s_.batch, s_.groups, s_.states, s_.steps}
                                     : Shape{s_.batch, s_.steps, s_.groups, s_.states});
    const Value front = b_.transpose(full, bdl_ ? Ints{3, 0, 1, 2} : Ints{1, 0, 2, 3});
    return b_.reshape(front, {s_.steps, s_.batch, s_.groups, 1, s_.states});
  }
  Value as_shared(Value v) {
    const Value front = b_.reshape(v, {s_.steps, s_.batch, s_.groups, s_.states});
    const Value full = b_.transpose(front, bdl_ ? Ints{1, 2, 3, 0} : Ints{1, 0, 2, 3});
    return b_.cast(b_.reshape(full, b_.shape(n_.b)), b_.dtype(n_.b));
  }
  // A state [B, D, N] as [B, G, R, N]; zeros if absent.
  Value state(Value v) {
    const Shape shape = {s_.batch, s_.groups, s_.each(), s_.states};
    return v ? b_.reshape(v, shape) : b_.zeros({b_.dtype(a), shape});
  }
  Value as_state(Value v) { return b_.reshape(v, s_.state()); }
  Value times_d(Value v) { return n_.d ? b_.times(channels(n_.d), v) : Value{}; }

  const Sizes& sizes() const { return s_; }

 private:
  Builder& b_;
  const Op& n_;
  const Sizes s_;
  const bool bdl_;

 public:
  // raw: dt with its bias. input: δ·u.
  const Value u, raw, delta, input, b, c, a;
};

bool selective_scan_lower(Lower& l, const op::selective_scan& n) {
  Builder& b = l.b;
  Steps w(l, n);
  const Control scan{.kind = Control::Kind::trips,
                     .carry = {w.state(n.h0)},
                     .xs = {w.delta, w.input, w.b, w.c},
                     .captured = {w.a},
                     .trips = w.sizes().steps};
  const Results made = add_scan(b, scan, [](Builder& in, auto h, auto x, auto captured) {
    const Value kept = in.times(in.exp(in.times(x[0], captured[0])), h[0]);
    const Value next = in.plus(kept, in.times(x[1], x[2]));
    return std::vector<Value>{next, in.sum(in.times(x[3], next), {3})};
  });
  Value y = made[1];
  if (n.d) y = b.plus(y, w.times_d(w.u));
  if (n.z) y = b.times(y, b.unary("silu", w.rows(n.z)));
  l.out(0, w.as_operand(y));
  if (l.wanted(1)) l.out(1, w.as_state(made[0]));
  return true;
}

// The outputs of selective_scan_backward, in their order.
enum Output : size_t { kDu, kDdt, kDa, kDb, kDc, kDd, kDz, kDdtBias, kDh0 };

bool selective_scan_backward_lower(Lower& l, const op::selective_scan_backward& n) {
  Builder& b = l.b;
  Steps w(l, n);
  const Sizes& s = w.sizes();
  // kept: a_t·h_{t-1}.
  const Control forward{.kind = Control::Kind::trips,
                        .carry = {w.state(n.h0)},
                        .xs = {w.delta, w.input, w.b},
                        .captured = {w.a},
                        .trips = s.steps};
  const Value kept = add_scan(b, forward, [](Builder& in, auto h, auto x, auto captured) {
    const Value product = in.times(in.exp(in.times(x[0], captured[0])), h[0]);
    return std::vector<Value>{in.plus(product, in.times(x[1], x[2])), product};
  })[1];
  const Value h = b.plus(kept, b.times(w.input, w.b));
  Value dy = w.rows(n.dy);
  if (n.z) {
    const Value z = w.rows(n.z), dout = dy;
    dy = b.times(dout, b.unary("silu", z));
    if (l.wanted(kDz)) {
      Value sum = b.sum(b.times(w.c, h), {4});
      if (n.d) sum = b.plus(sum, w.times_d(w.u));
      l.out(kDz, w.as_operand(b.add(
                     op::activation_backward{.kind = "silu", .x = z, .dy = b.times(dout, sum)})));
    }
  }
  // g: the gradient of h. carry: a_{t+1}·g_{t+1}.
  const Control backward{.kind = Control::Kind::trips,
                         .carry = {w.state(n.dh_last)},
                         .xs = {w.delta, dy, w.c},
                         .captured = {w.a},
                         .trips = s.steps,
                         .reverse = true};
  const Results made = add_scan(b, backward, [](Builder& in, auto later, auto x, auto captured) {
    const Value g = in.plus(in.times(x[1], x[2]), later[0]);
    return std::vector<Value>{in.times(in.exp(in.times(x[0], captured[0])), g), g};
  });
  const Value g = made[1], change = b.times(g, kept), through = b.sum(b.times(g, w.b), {4});
  if (l.wanted(kDu)) {
    const Value du = b.times(w.delta, through);
    l.out(kDu, w.as_operand(n.d ? b.plus(w.times_d(dy), du) : du));
  }
  if (l.wanted(kDdt) || l.wanted(kDdtBias)) {
    Value ddt = b.plus(b.sum(b.times(w.a, change), {4}), b.times(w.u, through));
    if (n.dt_softplus) ddt = b.times(ddt, b.unary("sigmoid", w.raw));
    if (l.wanted(kDdt)) l.out(kDdt, w.as_operand(ddt));
    if (l.wanted(kDdtBias)) l.out(kDdtBias, b.reshape(b.sum(ddt, {0, 1}), {s.channels}));
  }
  if (l.wanted(kDa))
    l.out(kDa, b.reshape(b.sum(b.times(w.delta, change), {0, 1}), {s.channels, s.states}));
  if (l.wanted(kDb)) l.out(kDb, w.as_shared(b.sum(b.times(g, w.input), {3})));
  if (l.wanted(kDc)) l.out(kDc, w.as_shared(b.sum(b.times(dy, h), {3})));
  if (l.wanted(kDd)) l.out(kDd, b.reshape(b.sum(b.times(dy, w.u), {0, 1}), {s.channels}));
  if (l.wanted(kDh0)) l.out(kDh0, w.as_state(made[0]));
  return true;
}

// ---- gradient

void selective_scan_grad(Grad& g, const op::selective_scan& n) {
  const Value dy = g.dy(0), dh_last = g.dy(1);
  if (!dy && !dh_last) return;
  const std::pair<Value, bool op::selective_scan_backward::*> parts[] = {
      {n.u, &op::selective_scan_backward::want_du},
      {n.dt, &op::selective_scan_backward::want_ddt},
      {n.a, &op::selective_scan_backward::want_da},
      {n.b, &op::selective_scan_backward::want_db},
      {n.c, &op::selective_scan_backward::want_dc},
      {n.d, &op::selective_scan_backward::want_dd},
      {n.z, &op::selective_scan_backward::want_dz},
      {n.dt_bias, &op::selective_scan_backward::want_ddt_bias},
      {n.h0, &op::selective_scan_backward::want_dh0}};
  const op::selective_scan_backward back{.dt_softplus = n.dt_softplus,
                                         .layout = n.layout,
                                         .dy = dy ? dy : g.b.zeros(g.b.type(n.u)),
                                         .u = n.u,
                                         .dt = n.dt,
                                         .a = n.a,
                                         .b = n.b,
                                         .c = n.c,
                                         .d = n.d,
                                         .z = n.z,
                                         .dt_bias = n.dt_bias,
                                         .h0 = n.h0,
                                         .dh_last = dh_last};
  give_wanted(g, back, parts);
}

// ---- batch: the sequences of all examples side by side, if these share the parameters

template <class Op>
bool scan_batch(Batch& v, const Op& n) {
  const Value parameters[] = {n.a, n.d, n.dt_bias};
  for (Value p : parameters)
    if (v.batched(p)) return false;
  if constexpr (requires { n.want_da; })
    if (n.want_da || n.want_dd || n.want_ddt_bias) return false;  // sums over the sequences
  return v.add_folded(n, [&](Value operand) {
    return std::ranges::find(parameters, operand) != std::end(parameters) ? v.given(operand)
                                                                          : Value{};
  });
}

// ---- cost: an exponential and six operations for each step of a state

constexpr double kForwardFlops = 7, kBackwardFlops = 30;

template <class Op>
double scan_flops(const Cost& c, const Op& n) {
  constexpr bool kBackward = requires { n.dy; };
  return (kBackward ? kBackwardFlops : kForwardFlops) * c.elements(n.u) * c.dim(n.a, 0);
}

// ---- padding: steps without a width leave the state as it is

// Fills what both directions read. `last`: the state behind the last step counts.
template <class Op>
bool scan_padded(Padded& p, const Op& n, bool last) {
  const bool bdl = n.layout == "bdl", groups = p.rank(n.b) == 4;
  const int channel = bdl ? 1 : 2, step = bdl ? 2 : 1;
  if (groups && !p.same_multiple(n.u, n.b, channel))
    return p.refuse("channels of a group depend on a padded axis");
  const int state_axis = bdl ? p.rank(n.b) - 2 : p.rank(n.b) - 1;
  for (const Value v : {n.b, n.c}) p.fill(v, state_axis, Fill::zero);
  p.fill(n.a, 1, Fill::zero);
  p.fill(n.h0, 2, Fill::zero);
  if (!p.along(n.u, step)) return true;
  p.fill(n.u, step, Fill::zero);
  if (n.dt_softplus) {
    p.fill(n.dt, step, Fill::lowest);
  } else if (n.dt_bias) {
    // The sum with the bias is 0, but for rounding to a narrower dtype.
    constexpr bool kBackward = requires { n.dy; };
    if (last && (kBackward || p.type(n.dt).dtype != p.type(n.dt_bias).dtype))
      return p.refuse("the last state follows padded steps, whose widths get a bias");
    const Value bias = p.b.cast(p.b.neg(p.value(n.dt_bias)), p.type(n.dt).dtype);
    p.fill(n.dt, step, bdl ? p.b.unsqueeze(bias, 1) : bias);
  } else {
    p.fill(n.dt, step, Fill::zero);
  }
  for (const Value v : {n.b, n.c}) p.fill(v, bdl ? p.rank(v) - 1 : 1, Fill::zero);
  return true;
}

bool selective_scan_padded(Padded& p, const op::selective_scan& n) {
  return scan_padded(p, n, n.want_h_last);
}

// Sums over sequences, channels and steps: all that is padded is 0, but widths of steps.
bool selective_scan_backward_padded(Padded& p, const op::selective_scan_backward& n) {
  const int step = n.layout == "bdl" ? 2 : 1;
  if (!scan_padded(p, n, bool(n.dh_last))) return false;
  for (const Value v : {n.dy, n.u, n.a, n.b, n.c, n.d, n.z, n.dt_bias, n.h0, n.dh_last})
    p.fill_all(v, Fill::zero);
  for (int axis = 0; axis < p.rank(n.dt); ++axis)
    if (axis != step) p.fill(n.dt, axis, Fill::zero);
  return true;
}

constexpr Record<op::selective_scan> kScan{.shape = selective_scan_shape,
                                           .words = {{"layout", kLayouts}},
                                           .grad = selective_scan_grad,
                                           .lower = selective_scan_lower,
                                           .batch = scan_batch<op::selective_scan>,
                                           .padded = selective_scan_padded,
                                           .flops = scan_flops<op::selective_scan>,
                                           .bytes = each_once};
constexpr Record<op::selective_scan_backward> kScanBackward{
    .shape = selective_scan_backward_shape,
    .words = {{"layout", kLayouts}},
    .lower = selective_scan_backward_lower,
    .batch = scan_batch<op::selective_scan_backward>,
    .padded = selective_scan_backward_padded,
    .flops = scan_flops<op::selective_scan_backward>,
    .bytes = each_once};

}  // namespace

const OpRecord selective_scan_def = record<op::selective_scan, kScan>();
const OpRecord selective_scan_backward_def = record<op::selective_scan_backward, kScanBackward>();

}  // namespace tenon::core
