// SPDX-License-Identifier: Apache-2.0
// Records of the recurrent family: lstm gru.
#include "ops/recurrent.hpp"

#include <algorithm>

#include "ops/control.hpp"
#include "ops/record.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Results add_recurrence(Builder& b, const Recurrence& layer) {
  const int64_t steps = b.shape(layer.x)[0];
  Control scan{.kind = Control::Kind::trips, .trips = steps, .reverse = layer.reverse};
  scan.carry = layer.state;
  scan.xs = {layer.x};
  scan.captured = layer.captured;
  if (layer.lengths) {
    scan.xs.push_back(b.iota({steps}, 0, kI64));
    scan.captured.push_back(layer.lengths);
  }
  const size_t own = layer.captured.size();
  return add_scan(b, scan,
                  [&](Builder& inner, std::span<const Value> state, std::span<const Value> xs,
                      std::span<const Value> captured) {
                    Value x = xs[0], valid{};
                    if (layer.lengths) {
                      valid = inner.compare("lt", xs[1], captured.back());
                      // Nothing behind an end may reach a gradient: 0·NaN is NaN.
                      x = inner.where(valid, x, inner.scalar(inner.dtype(x), 0));
                    }
                    std::vector<Value> next = layer.step(inner, x, state, captured.first(own));
                    Value y = inner.cast(next[0], layer.dtype);
                    if (layer.lengths) {
                      for (size_t k = 0; k < next.size(); ++k)
                        next[k] = inner.where(valid, next[k], state[k]);
                      y = inner.where(valid, y, inner.scalar(inner.dtype(y), 0));
                    }
                    next.push_back(y);
                    return next;
                  });
}

namespace {

constexpr std::string_view kDirections = "forward reverse bidirectional";

// What lstm and gru share: x [T, B, D·G·H], r [D, G·H, H], y [T, B, D·H].
struct Sizes {
  int64_t steps, batch, directions, gates, hidden;

  Shape state() const { return {directions, batch, hidden}; }
};
template <class Op>
constexpr std::string_view kGates = "";
template <>
constexpr std::string_view kGates<op::lstm> = "ifgo";
template <>
constexpr std::string_view kGates<op::gru> = "rzn";

template <class Op>
Sizes sizes_of(const Op& n, const Shape& x, const Shape& r) {
  return {x[0], x[1], n.direction == "bidirectional" ? 2 : 1,
          static_cast<int64_t>(kGates<Op>.size()), r[2]};
}

// Checks what lstm and gru share, and gives the types of y and h.
template <class Op>
Sizes recurrent_shape(Infer& i, const Op& n) {
  std::string sorted = n.gates, names(kGates<Op>);
  std::ranges::sort(sorted), std::ranges::sort(names);
  if (sorted != names)
    i.fail(Code::invalid_argument, "attribute gates: expected the letters of ", kGates<Op>,
           " in any order, got '", n.gates, "'");
  i.want_float(n.x, "x");
  i.want_rank(n.x, "x", 3);
  i.want_rank(n.r, "r", 3);
  i.want_same_dtype(n.r, "r", n.x, "x");
  const Sizes s = sizes_of(n, i.shape(n.x), i.shape(n.r));
  i.want_shape(n.r, "r", {s.directions, s.gates * s.hidden, s.hidden});
  i.want_shape(n.x, "x", {s.steps, s.batch, s.directions * s.gates * s.hidden});
  const DType t = i.dtype(n.x);
  if (n.h0) i.want_same_dtype(n.h0, "h0", n.x, "x"), i.want_shape(n.h0, "h0", s.state());
  if (n.lengths) i.want_index(n.lengths, "lengths"), i.want_shape(n.lengths, "lengths", {s.batch});
  i.out(0, {t, {s.steps, s.batch, s.directions * s.hidden}});
  i.out(1, {t, s.state()});
  return s;
}

void lstm_shape(Infer& i, const op::lstm& n) {
  const Sizes s = recurrent_shape(i, n);
  if (n.c0) i.want_same_dtype(n.c0, "c0", n.x, "x"), i.want_shape(n.c0, "c0", s.state());
  i.out(2, {i.dtype(n.x), s.state()});
}

void gru_shape(Infer& i, const op::gru& n) {
  const Sizes s = recurrent_shape(i, n);
  if (!n.n_bias) return;
  if (!n.reset_after)
    i.fail(Code::invalid_argument,
           "operand n_bias: expected none without reset_after, where x may include it");
  i.want_same_dtype(n.n_bias, "n_bias", n.x, "x");
  i.want_shape(n.n_bias, "n_bias", {s.directions, s.hidden});
}

// Writes a layer as one scan for each direction.
template <class Op>
class Layer {
 public:
  Layer(Lower& l, const Op& n)
      : l_(l), b_(l.b), n_(n), s_(sizes_of(n, b_.shape(n.x), b_.shape(n.r))) {}

  bool write(size_t states) {
    const DType t = b_.dtype(n_.x);
    const Value lengths =
        n_.lengths ? b_.reshape(b_.cast(n_.lengths, kI64), {s_.batch, 1}) : Value{};
    std::vector<std::vector<Value>> parts(states + 1);
    for (int64_t d = 0; d < s_.directions; ++d) {
      const int64_t width = s_.gates * s_.hidden;
      Recurrence one{.x = b_.widen(b_.narrow(n_.x, 2, d * width, width)),
                     .captured = {part(n_.r, d)},
                     .lengths = lengths,
                     .dtype = t,
                     .reverse = n_.direction == "reverse" || d == 1};
      one.state = {initial(n_.h0, d)};
      if constexpr (requires { n_.c0; }) one.state.push_back(initial(n_.c0, d));
      if constexpr (requires { n_.n_bias; })
        if (n_.n_bias) one.captured.push_back(part(n_.n_bias, d));
      one.step = [this](Builder& b, Value x, std::span<const Value> state,
                        std::span<const Value> captured) {
        return step(b, n_, x, state, captured);
      };
      const Results made = add_recurrence(b_, one);
      for (size_t k = 0; k < states; ++k) parts[k].push_back(b_.unsqueeze(b_.cast(made[k], t), 0));
      parts[states].push_back(made[states]);
    }
    l_.out(0, b_.concat(parts[states], 2));
    for (size_t k = 0; k < states; ++k)
      if (l_.wanted(k + 1)) l_.out(k + 1, b_.concat(parts[k], 0));
    return true;
  }

 private:
  // Entry d of axis 0.
  Value part(Value v, int64_t d) {
    const Shape s = b_.shape(v);
    Shape out;
    for (int k = 1; k < s.rank(); ++k) out.push(s[k]);
    return b_.reshape(b_.narrow(v, 0, d, 1), out);
  }
  Value initial(Value given, int64_t d) {
    return given ? b_.widen(part(given, d))
                 : b_.zeros({acc_dtype(b_.dtype(n_.x)), {s_.batch, s_.hidden}});
  }
  // The rows or columns of a gate.
  Value gate(Builder& b, Value v, int axis, char name) const {
    const auto at = static_cast<int64_t>(n_.gates.find(name));
    return b.narrow(v, axis, at * s_.hidden, s_.hidden);
  }

  std::vector<Value> step(Builder& b, const op::lstm&, Value x, std::span<const Value> state,
                          std::span<const Value> captured) const {
    const Value sums = b.plus(x, b.matmul(state[0], captured[0], false, true));
    const auto act = [&](const char* kind, char name) {
      return b.unary(kind, gate(b, sums, 1, name));
    };
    const Value c = b.plus(b.times(act("sigmoid", 'f'), state[1]),
                           b.times(act("sigmoid", 'i'), act("tanh", 'g')));
    return {b.times(act("sigmoid", 'o'), b.unary("tanh", c)), c};
  }

  std::vector<Value> step(Builder& b, const op::gru&, Value x, std::span<const Value> state,
                          std::span<const Value> captured) const {
    const Value h = state[0], r = captured[0];
    const auto product = [&](Value left, Value rows) { return b.matmul(left, rows, false, true); };
    const auto sigmoid = [&](char name, Value sums) {
      return b.unary("sigmoid", b.plus(gate(b, x, 1, name), sums));
    };
    Value reset, update, inner;
    if (n_.reset_after) {
      const Value sums = product(h, r);
      reset = sigmoid('r', gate(b, sums, 1, 'r')), update = sigmoid('z', gate(b, sums, 1, 'z'));
      inner = gate(b, sums, 1, 'n');
      if (captured.size() > 1) inner = b.plus(inner, b.widen(captured[1]));
      inner = b.times(reset, inner);
    } else {
      reset = sigmoid('r', product(h, gate(b, r, 0, 'r')));
      update = sigmoid('z', product(h, gate(b, r, 0, 'z')));
      inner = product(b.times(reset, h), gate(b, r, 0, 'n'));
    }
    const Value fresh = b.unary("tanh", b.plus(gate(b, x, 1, 'n'), inner));
    return {b.plus(fresh, b.times(update, b.minus(h, fresh)))};
  }

  Lower& l_;
  Builder& b_;
  const Op& n_;
  const Sizes s_;
};

bool lstm_lower(Lower& l, const op::lstm& n) { return Layer(l, n).write(2); }
bool gru_lower(Lower& l, const op::gru& n) { return Layer(l, n).write(1); }

template <class Op>
double recurrent_flops(const Cost& c, const Op& n) {
  return 2 * c.dim(n.x, 2) * c.dim(n.x, 1) * c.elements(n.r);
}

constexpr Record<op::lstm> kLstm{.shape = lstm_shape,
                                 .words = {{"direction", kDirections}, {"gates", "*"}},
                                 .lower = lstm_lower,
                                 .flops = recurrent_flops<op::lstm>,
                                 .bytes = each_once};
constexpr Record<op::gru> kGru{.shape = gru_shape,
                               .words = {{"direction", kDirections}, {"gates", "*"}},
                               .lower = gru_lower,
                               .flops = recurrent_flops<op::gru>,
                               .bytes = each_once};

}  // namespace

const OpRecord lstm_def = record<op::lstm, kLstm>();
const OpRecord gru_def = record<op::gru, kGru>();

}  // namespace tenon::core
