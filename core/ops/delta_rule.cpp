// SPDX-License-Identifier: Apache-2.0
// Records of the delta_rule family: gated_delta_rule gated_delta_rule_backward. The decompositions
// are scans over the tokens, all heads and sequences at once.
#include <cmath>

#include "ops/control.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"
#include "ops/wanted.hpp"

namespace tenon::core {
namespace {

// H query/key heads, each with R value heads. Packed: one batch entry holds all sequences, one behind
// the other.
struct Sizes {
  int64_t batch, tokens, heads, each, keys, values, sequences;
  bool packed, by_key;  // by_key: a decay for each row of the state

  Shape state() const { return {sequences, heads * each, keys, values}; }
};

template <class Op, class ShapeOf>
Sizes sizes_of(const Op& n, const ShapeOf& shape) {
  const Shape q = shape(n.q), v = shape(n.v);
  return {.batch = q[0],
          .tokens = q[1],
          .heads = q[2],
          .each = q[2] ? v[2] / q[2] : 0,
          .keys = q[3],
          .values = v[3],
          .sequences = n.cu_seqlens ? shape(n.cu_seqlens)[0] - 1 : q[0],
          .packed = bool(n.cu_seqlens),
          .by_key = shape(n.g).rank() == 4};
}

// ---- shape

template <class Op>
Sizes delta_operands(const Infer& i, const Op& n) {
  i.want_float(n.q, "q");
  i.want_rank(n.q, "q", 4);
  i.want_rank(n.v, "v", 4);
  for (const auto& [operand, v] :
       {std::pair("k", n.k), std::pair("v", n.v), std::pair("beta", n.beta)})
    i.want_same_dtype(n.q, "q", v, operand);
  i.want_shape(n.k, "k", i.shape(n.q));
  const DType wide = acc_dtype(i.dtype(n.q));
  i.want_dtype(n.g, "g", wide);
  const Shape q = i.shape(n.q), v = i.shape(n.v);
  i.want_shape(n.v, "v", {q[0], q[1], v[2], v[3]});
  if (q[3] < 1)
    i.fail(Code::shape_mismatch, "operand q: expected keys of at least one element, got ",
           i.type(n.q).text());
  if (q[2] == 0 ? v[2] != 0 : v[2] % q[2] != 0)
    i.fail(Code::shape_mismatch, "operand v: expected a multiple of the ", q[2],
           " heads of q, got ", v[2], " in ", i.type(n.v).text());
  if (i.shape(n.g).rank() != 3 && i.shape(n.g).rank() != 4)
    i.fail(Code::shape_mismatch, "operand g: expected rank 3 or 4, got ", i.type(n.g).text());
  const Shape row = {q[0], q[1], v[2]};
  i.want_shape(n.g, "g", i.shape(n.g).rank() == 3 ? row : Shape{q[0], q[1], v[2], q[3]});
  i.want_shape(n.beta, "beta", row);
  if (n.cu_seqlens) {
    i.want_index(n.cu_seqlens, "cu_seqlens");
    i.want_rank(n.cu_seqlens, "cu_seqlens", 1);
    if (i.shape(n.cu_seqlens)[0] < 2)
      i.fail(Code::shape_mismatch, "operand cu_seqlens: expected at least two entries, got ",
             i.type(n.cu_seqlens).text());
    if (q[0] != 1)
      i.fail(Code::shape_mismatch, "operand q: expected a batch of 1 beside cu_seqlens, got ", q[0],
             " in ", i.type(n.q).text());
  }
  if (n.chunk < 1)
    i.fail(Code::invalid_argument, "attribute chunk: expected 1 or more, given ", n.chunk);
  const Sizes s = sizes_of(n, [&](Value x) { return i.shape(x); });
  if (n.state) i.want_dtype(n.state, "state", wide), i.want_shape(n.state, "state", s.state());
  return s;
}

void delta_shape(Infer& i, const op::gated_delta_rule& n) {
  const Sizes s = delta_operands(i, n);
  i.out(0, i.type(n.v));
  i.out(1, {acc_dtype(i.dtype(n.q)), s.state()});
}

void delta_backward_shape(Infer& i, const op::gated_delta_rule_backward& n) {
  const Sizes s = delta_operands(i, n);
  const Type state = {acc_dtype(i.dtype(n.q)), s.state()};
  i.want_same_dtype(n.q, "q", n.dout, "dout");
  i.want_shape(n.dout, "dout", i.shape(n.v));
  if (n.dstate_out) {
    i.want_dtype(n.dstate_out, "dstate_out", state.dtype);
    i.want_shape(n.dstate_out, "dstate_out", state.shape);
  }
  const Type types[] = {i.type(n.q), i.type(n.k), i.type(n.v), i.type(n.g), i.type(n.beta), state};
  for (size_t k = 0; k < std::size(types); ++k) i.out(k, types[k]);
}

// ---- decomposition: tokens in front, [T, B, H, R, K, V] with 1 in place of some dims. A state is
// [sequences, H, R, K, V]; in packed form a step reads and writes one of them.

constexpr int kKeyAxis = 3, kValueAxis = 4;  // of a step's slices

template <class Op>
class Tokens {
 public:
  Tokens(Lower& l, const Op& n)
      : b_(l.b),
        n_(n),
        s_(sizes_of(n, [&](Value x) { return l.b.shape(x); })),
        scale_(is_unset(n.scale) ? 1 / std::sqrt(static_cast<double>(s_.keys)) : n.scale),
        keys(rows(unit(n.k), s_.heads, 1, s_.keys, 1)),
        queries(b_.times(rows(unit(n.q), s_.heads, 1, s_.keys, 1), scale_)),
        values(rows(b_.widen(n.v), s_.heads, s_.each, 1, s_.values)),
        decay(b_.exp(rows(n.g, s_.heads, s_.each, s_.by_key ? s_.keys : 1, 1))),
        beta(rows(b_.widen(n.beta), s_.heads, s_.each, 1, 1)) {
    if (s_.packed) find_sequences();
  }

  // [T, B, H, R, K, V] with these dims, of [B, T, ...].
  Value rows(Value x, int64_t h, int64_t r, int64_t k, int64_t v) {
    const Value split = b_.reshape(x, {s_.batch, s_.tokens, h, r, k, v});
    return b_.transpose(split, {1, 0, 2, 3, 4, 5});
  }
  // Back, with the type of an operand.
  Value as_operand(Value x, Value like) {
    return b_.cast(b_.reshape(b_.transpose(x, {1, 0, 2, 3, 4, 5}), b_.shape(like)), b_.dtype(like));
  }
  // The first states, or the gradients of the last ones. Invalid cu_seqlens fail here.
  Value state(Value x) {
    const Shape shape = {s_.sequences, s_.heads, s_.each, s_.keys, s_.values};
    const Value all = x ? b_.reshape(x, shape) : b_.zeros({b_.dtype(keys), shape});
    if (!s_.packed) return all;
    return b_.add(op::gather{.data = all, .indices = checked_});
  }
  Value as_state(Value x) { return b_.reshape(x, s_.state()); }

  // For a step's state in the body of a scan: `place` is the slice of places() in packed form.
  std::vector<Value> with_places(std::vector<Value> xs) const {
    if (s_.packed) xs.push_back(places_);
    return xs;
  }
  Value own(Builder& in, Value all, Value place) const {
    return s_.packed ? Value(in.add(op::gather{.data = all, .indices = place})) : all;
  }
  Value put(Builder& in, Value all, Value now, Value place) const {
    if (!s_.packed) return now;
    const Value at = in.reshape(in.iota({s_.sequences}, 0, kI64), {s_.sequences, 1, 1, 1, 1});
    return in.where(in.compare("eq", at, in.reshape(place, {1, 1, 1, 1, 1})), now, all);
  }

  // x / sqrt(Σx² + 1e-6) if wanted, and the gradient of x from that of the result.
  Value unit(Value x) {
    const Value wide = b_.widen(x);
    return n_.qk_l2norm ? b_.times(wide, inverse_length(wide)) : wide;
  }
  Value through_unit(Value x, Value dy) {
    if (!n_.qk_l2norm) return dy;
    const Value wide = b_.widen(x), length = inverse_length(wide), y = b_.times(wide, length);
    return b_.times(length, b_.minus(dy, b_.times(y, b_.sum(b_.times(dy, y), {3}))));
  }

  const Sizes& sizes() const { return s_; }
  double scale() const { return scale_; }

 private:
  Value inverse_length(Value wide) {
    return b_.unary("rsqrt", b_.plus(b_.sum(b_.times(wide, wide), {3}), 1e-6));
  }
  // places_: i64 [T, 1], the sequence of each token. checked_: i64 [sequences], all positions, or
  // positions that do not exist if cu_seqlens is invalid.
  void find_sequences() {
    const int64_t count = s_.sequences;
    const Value ends = b_.cast(n_.cu_seqlens, kI64);
    const auto number = [&](int64_t x) { return b_.scalar_int(kI64, x); };
    const auto all = [&](Value cond) { return b_.reduce("all", cond, {0}, true); };
    Value fine = b_.logical("and", b_.compare("eq", b_.narrow(ends, 0, 0, 1), number(0)),
                            b_.compare("eq", b_.narrow(ends, 0, count, 1), number(s_.tokens)));
    const Value starts = b_.narrow(ends, 0, 0, count), next = b_.narrow(ends, 0, 1, count);
    fine = b_.logical("and", fine, all(b_.compare("le", starts, next)));
    checked_ = b_.where(fine, b_.iota({count}, 0, kI64), number(count));
    const Value past =
        b_.compare("ge", b_.iota({s_.tokens, 1}, 0, kI64), b_.reshape(next, {1, count}));
    const Value place = b_.sum(b_.cast(past, kI64), {1});
    places_ = b_.min(place, number(count - 1));
  }

  Builder& b_;
  const Op& n_;
  const Sizes s_;
  const double scale_;
  Value places_{}, checked_{};

 public:
  // queries: with the scale. decay: e^g.
  const Value keys, queries, values, decay, beta;
};

// What a step computes from the state before it: kept = e^g·S, r = v - keptᵀk.
struct Step {
  Value kept, rest, next;
};
Step step_of(Builder& in, Value state, Value k, Value v, Value decay, Value beta) {
  const Value kept = in.times(decay, state);
  const Value rest = in.minus(v, in.sum(in.times(kept, k), {kKeyAxis}));
  return {kept, rest, in.plus(kept, in.times(k, in.times(beta, rest)))};
}
Value last_of(std::span<const Value> xs, bool packed) { return packed ? xs.back() : Value{}; }

bool delta_lower(Lower& l, const op::gated_delta_rule& n) {
  Tokens w(l, n);
  const bool packed = w.sizes().packed;
  const Control scan{.kind = Control::Kind::trips,
                     .carry = {w.state(n.state)},
                     .xs = w.with_places({w.keys, w.values, w.decay, w.beta, w.queries}),
                     .trips = w.sizes().tokens};
  const Results made = add_scan(l.b, scan, [&](Builder& in, auto carry, auto x, auto) {
    const Value place = last_of(x, packed);
    const Step s = step_of(in, w.own(in, carry[0], place), x[0], x[1], x[2], x[3]);
    return std::vector<Value>{w.put(in, carry[0], s.next, place),
                              in.sum(in.times(s.next, x[4]), {kKeyAxis})};
  });
  l.out(0, w.as_operand(made[1], n.v));
  if (l.wanted(1)) l.out(1, w.as_state(made[0]));
  return true;
}

// The outputs of gated_delta_rule_backward, in their order.
enum Output : size_t { kDq, kDk, kDv, kDg, kDbeta, kDstate };

bool delta_backward_lower(Lower& l, const op::gated_delta_rule_backward& n) {
  Builder& b = l.b;
  Tokens w(l, n);
  const Sizes& s = w.sizes();
  const Value dout = w.rows(b.widen(n.dout), s.heads, s.each, 1, s.values);
  // The state before each token.
  const Control forward{.kind = Control::Kind::trips,
                        .carry = {w.state(n.state)},
                        .xs = w.with_places({w.keys, w.values, w.decay, w.beta}),
                        .trips = s.tokens};
  const Value before = add_scan(b, forward, [&](Builder& in, auto carry, auto x, auto) {
    const Value place = last_of(x, s.packed), own = w.own(in, carry[0], place);
    const Value next = step_of(in, own, x[0], x[1], x[2], x[3]).next;
    return std::vector<Value>{w.put(in, carry[0], next, place), own};
  })[1];
  const Control backward{
      .kind = Control::Kind::trips,
      .carry = {w.state(n.dstate_out)},
      .xs = w.with_places({w.keys, w.values, w.decay, w.beta, w.queries, dout, before}),
      .trips = s.tokens,
      .reverse = true};
  const Results made = add_scan(b, backward, [&](Builder& in, auto carry, auto x, auto) {
    const Value place = last_of(x, s.packed), k = x[0], decay = x[2], beta = x[3], dy = x[5];
    const Step step = step_of(in, x[6], k, x[1], decay, beta);
    const auto over_values = [&](Value v) { return in.sum(v, {kValueAxis}); };
    const Value g = in.plus(w.own(in, carry[0], place), in.times(x[4], dy));
    const Value dq = over_values(in.times(step.next, dy));
    const Value de = in.sum(in.times(g, k), {kKeyAxis});
    const Value dr = in.times(beta, de);
    const Value dk =
        over_values(in.minus(in.times(g, in.times(beta, step.rest)), in.times(step.kept, dr)));
    const Value kept = in.minus(g, in.times(k, dr));
    Value dg = over_values(in.times(kept, step.kept));
    if (!s.by_key) dg = in.sum(dg, {kKeyAxis});
    return std::vector<Value>{w.put(in, carry[0], in.times(decay, kept), place),
                              in.sum(dq, {2}),
                              in.sum(dk, {2}),
                              dr,
                              dg,
                              over_values(in.times(de, step.rest))};
  });
  const auto through = [&](Value x, Value dx) {
    const Value rows = b.reshape(b.transpose(dx, {1, 0, 2, 3, 4, 5}), b.shape(x));
    return b.cast(w.through_unit(x, rows), b.dtype(x));
  };
  if (l.wanted(kDq)) l.out(kDq, through(n.q, b.times(made[1], w.scale())));
  if (l.wanted(kDk)) l.out(kDk, through(n.k, made[2]));
  if (l.wanted(kDv)) l.out(kDv, w.as_operand(made[3], n.v));
  if (l.wanted(kDg)) l.out(kDg, w.as_operand(made[4], n.g));
  if (l.wanted(kDbeta)) l.out(kDbeta, w.as_operand(made[5], n.beta));
  if (l.wanted(kDstate)) l.out(kDstate, w.as_state(made[0]));
  return true;
}

// ---- gradient

void delta_grad(Grad& g, const op::gated_delta_rule& n) {
  using Backward = op::gated_delta_rule_backward;
  const Value dout = g.dy(0), dstate_out = g.dy(1);
  if (!dout && !dstate_out) return;
  const std::pair<Value, bool Backward::*> parts[] = {
      {n.q, &Backward::want_dq},       {n.k, &Backward::want_dk},
      {n.v, &Backward::want_dv},       {n.g, &Backward::want_dg},
      {n.beta, &Backward::want_dbeta}, {n.state, &Backward::want_dstate}};
  const Backward back{.scale = n.scale,
                      .qk_l2norm = n.qk_l2norm,
                      .chunk = n.chunk,
                      .dout = dout ? dout : g.b.zeros(g.b.type(n.v)),
                      .q = n.q,
                      .k = n.k,
                      .v = n.v,
                      .g = n.g,
                      .beta = n.beta,
                      .state = n.state,
                      .cu_seqlens = n.cu_seqlens,
                      .dstate_out = dstate_out};
  give_wanted(g, back, parts);
}

// ---- batch: the sequences of all examples side by side

template <class Op>
bool delta_batch(Batch& v, const Op& n) {
  if (n.cu_seqlens) return false;
  return v.add_folded(n, [](Value) { return Value{}; });
}

// ---- cost: three products with the state, and its decay

template <class Op>
double delta_flops(const Cost& c, const Op& n) {
  constexpr bool kBackward = requires { n.dout; };
  return (kBackward ? 26 : 7) * c.elements(n.v) * c.dim(n.q, 0);
}

// ---- padding: tokens of zeros leave the state as it is, and so do keys of zeros

template <class Op>
bool delta_padded(Padded& p, const Op& n) {
  constexpr int kTokens = 1, kHeads = 2, kLast = 3;
  if (!p.same_multiple(n.v, n.q, kHeads))
    return p.refuse("value heads of a key head depend on a padded axis");
  if (p.along(n.q, kLast) && is_unset(n.scale))
    return p.refuse("its scale depends on a padded axis");
  if (n.cu_seqlens) {
    if (p.along(n.q, kTokens)) return p.refuse("packed sequences end with a padded axis");
    // Sequences that are not there are empty ones at the end.
    p.fill(n.cu_seqlens, 0, p.b.scalar_int(p.type(n.cu_seqlens).dtype, p.type(n.q).shape[kTokens]));
  }
  for (const Value v : {n.q, n.k, n.v, n.g, n.beta}) p.fill(v, kTokens, Fill::zero);
  for (const Value v : {n.q, n.k}) p.fill(v, kLast, Fill::zero);
  if (p.rank(n.g) == 4) p.fill(n.g, kLast, Fill::zero);
  p.fill(n.state, 2, Fill::zero);
  return true;
}

// Sums over the columns of the state.
bool delta_backward_padded(Padded& p, const op::gated_delta_rule_backward& n) {
  if (!delta_padded(p, n)) return false;
  p.fill(n.dout, 1, Fill::zero);
  p.fill(n.dstate_out, 2, Fill::zero);
  for (const Value v : {n.v, n.dout, n.state, n.dstate_out}) p.fill(v, 3, Fill::zero);
  return true;
}

constexpr Record<op::gated_delta_rule> kDelta{.shape = delta_shape,
                                              .grad = delta_grad,
                                              .lower = delta_lower,
                                              .batch = delta_batch<op::gated_delta_rule>,
                                              .padded = delta_padded<op::gated_delta_rule>,
                                              .flops = delta_flops<op::gated_delta_rule>,
                                              .bytes = each_once};
constexpr Record<op::gated_delta_rule_backward> kDeltaBackward{
    .shape = delta_backward_shape,
    .lower = delta_backward_lower,
    .batch = delta_batch<op::gated_delta_rule_backward>,
    .padded = delta_backward_padded,
    .flops = delta_flops<op::gated_delta_rule_backward>,
    .bytes = each_once};

}  // namespace

const OpRecord gated_delta_rule_def = record<op::gated_delta_rule, kDelta>();
const OpRecord gated_delta_rule_backward_def =
    record<op::gated_delta_rule_backward, kDeltaBackward>();

}  // namespace tenon::core
