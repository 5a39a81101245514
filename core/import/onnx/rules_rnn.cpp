// SPDX-License-Identifier: Apache-2.0
// Rules: RNN, GRU and LSTM, one scan for each direction. Products of the inputs with their weights
// are made for all steps at once, in front of the scan.
#include "import/onnx/helpers.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {
namespace {

struct Activation {
  std::string name;
  double alpha, beta;

  Value operator()(Builder& b, Value x) const {
    const auto unary = [&](const char* kind, double p = TENON_UNSET, double q = TENON_UNSET) {
      return Value(b.add(op::unary{.kind = kind, .alpha = p, .beta = q, .x = x}));
    };
    if (name == "sigmoid") return unary("sigmoid");
    if (name == "tanh") return unary("tanh");
    if (name == "relu") return unary("relu");
    if (name == "affine") return b.plus(b.times(x, alpha), beta);
    if (name == "leakyrelu") return unary("leaky_relu", alpha);
    if (name == "thresholdedrelu")
      return b.where(b.compare("ge", x, alpha), x, b.scalar(b.dtype(x), 0));
    if (name == "scaledtanh") return b.times(b.unary("tanh", b.times(x, beta)), alpha);
    if (name == "hardsigmoid") return unary("hard_sigmoid", alpha, beta);
    if (name == "elu") return unary("elu", alpha);
    if (name == "softsign") return unary("softsign");
    return unary("softplus");
  }
};

struct Defaults {
  std::string_view name;
  double alpha, beta;
  bool has_alpha, has_beta;
};
constexpr Defaults kActivations[] = {
    {"sigmoid", 0, 0, false, false},     {"tanh", 0, 0, false, false},
    {"relu", 0, 0, false, false},        {"affine", 1, 0, true, true},
    {"leakyrelu", 0.01, 0, true, false}, {"thresholdedrelu", 1, 0, true, false},
    {"scaledtanh", 1, 1, true, true},    {"hardsigmoid", 0.2, 0.5, true, true},
    {"elu", 1, 0, true, false},          {"softsign", 0, 0, false, false},
    {"softplus", 0, 0, false, false},
};

// All activations of a node, `each` for a direction.
std::vector<Activation> activations_of(const Call& c, size_t directions,
                                       std::initializer_list<const char*> standard) {
  std::vector<std::string> names = c.strings("activations");
  if (names.empty())
    for (size_t d = 0; d < directions; ++d)
      names.insert(names.end(), standard.begin(), standard.end());
  if (names.size() != directions * standard.size())
    c.wrong("attribute activations: expected ", directions * standard.size(), " names, got ",
            names.size());
  const std::vector<double> alphas = c.fs("activation_alpha"), betas = c.fs("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> out;
  for (std::string& name : names) {
    for (char& ch : name) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    const Defaults* found = nullptr;
    for (const Defaults& d : kActivations)
      if (d.name == name) found = &d;
    if (!found) c.refuse("attribute activations: '", name, "'");
    Activation a{name, found->alpha, found->beta};
    if (found->has_alpha && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
    if (found->has_beta && next_beta < betas.size()) a.beta = betas[next_beta++];
    out.push_back(std::move(a));
  }
  return out;
}

// A node, with time as axis 0.
class Recurrent {
 public:
  enum class Cell : uint8_t { rnn, gru, lstm };

  Recurrent(Call& c, Cell cell)
      : c_(c),
        b_(c.b),
        cell_(cell),
        gates_(cell == Cell::rnn   ? 1
               : cell == Cell::gru ? 3
                                   : 4) {}

  void run() {
    const Shape w = c_.shape(1);
    batch_first_ = c_.i("layout", 0) == 1;
    const Shape given = c_.shape(0);
    if (given.rank() != 3 || w.rank() != 3) c_.wrong("expected X and W of rank 3");
    x_ = batch_first_ ? swap_axes(b_, c_.value(0), 0, 1) : c_.value(0);
    steps_ = b_.shape(x_)[0], batch_ = b_.shape(x_)[1];
    hidden_ = w[1] / gates_;
    if (w[1] % gates_ || c_.shape(2) != Shape{w[0], w[1], hidden_})
      c_.wrong("R: expected [", w[0], ",", w[1], ",", hidden_, "], got ", c_.shape(2).text());
    const std::string direction = c_.s("direction", "forward");
    const size_t directions = direction == "bidirectional" ? 2 : 1;
    if (direction != "forward" && direction != "reverse" && directions == 1)
      c_.wrong("attribute direction: expected forward, reverse or bidirectional, got '", direction,
               "'");
    if (w[0] != static_cast<int64_t>(directions))
      c_.wrong("W: expected ", directions, " directions, got ", w[0]);
    clip_ = c_.f("clip", 0);
    lengths_ = c_.has(4) ? b_.reshape(b_.cast(c_.value(4), kI64), {batch_, 1}) : Value{};
    acts_ = cell_ == Cell::rnn   ? activations_of(c_, directions, {"Tanh"})
            : cell_ == Cell::gru ? activations_of(c_, directions, {"Sigmoid", "Tanh"})
                                 : activations_of(c_, directions, {"Sigmoid", "Tanh", "Tanh"});
    std::vector<Value> all, last, cells;
    for (size_t d = 0; d < directions; ++d) {
      const Results y = one(static_cast<int64_t>(d), direction == "reverse" || d == 1);
      size_t k = 0;
      last.push_back(b_.unsqueeze(y[k++], 0));
      if (cell_ == Cell::lstm) cells.push_back(b_.unsqueeze(y[k++], 0));
      all.push_back(b_.unsqueeze(y[k], 1));
    }
    Value y = b_.concat(all, 1);  // [T, D, B, H]
    if (batch_first_) y = b_.transpose(y, {2, 0, 1, 3});
    c_.out(0, y);
    const auto states = [&](size_t k, const std::vector<Value>& parts) {
      if (parts.empty()) return;
      const Value v = b_.concat(parts, 0);
      c_.out(k, batch_first_ ? swap_axes(b_, v, 0, 1) : v);
    };
    states(1, last);
    states(2, cells);
  }

 private:
  // Part d of an input whose axis 0 has the directions.
  Value part(size_t k, int64_t d) {
    const Value v = c_.value(k);
    Shape s = b_.shape(v), out;
    for (int i = 1; i < s.rank(); ++i) out.push(s[i]);
    return b_.reshape(b_.narrow(v, 0, d, 1), out);
  }
  Value initial(size_t k, int64_t d) {
    if (!c_.has(k)) return b_.zeros({b_.dtype(x_), {batch_, hidden_}});
    const Value v = batch_first_ ? swap_axes(b_, c_.value(k), 0, 1) : c_.value(k);
    return b_.reshape(b_.narrow(v, 0, d, 1), {batch_, hidden_});
  }
  Value gate(Builder& b, Value x, int64_t k) const {
    return b.narrow(x, b.shape(x).rank() - 1, k * hidden_, hidden_);
  }
  Value clipped(Builder& b, Value x) const {
    if (clip_ <= 0) return x;
    const DType t = b.dtype(x);
    return b.min(b.max(x, b.scalar(t, -clip_)), b.scalar(t, clip_));
  }

  Results one(int64_t d, bool reverse) {
    const int64_t width = gates_ * hidden_;
    Value w = part(1, d), r = part(2, d);
    // [T, B, gates·H]
    Value in = b_.matmul(b_.reshape(x_, {steps_ * batch_, b_.shape(x_)[2]}), w, false, true);
    const bool apart = cell_ == Cell::gru && c_.i("linear_before_reset", 0) != 0;
    Value inner{};  // the bias of the last product of a GRU
    if (c_.has(3)) {
      const Value bias = part(3, d), of_w = b_.narrow(bias, 0, 0, width),
                  of_r = b_.narrow(bias, 0, width, width);
      in = b_.plus(in, of_w);
      if (apart) {
        in = b_.plus(
            in, b_.concat({b_.narrow(of_r, 0, 0, 2 * hidden_), b_.zeros({b_.dtype(x_), {hidden_}})},
                          0));
        inner = gate(b_, of_r, 2);
      } else {
        in = b_.plus(in, of_r);
      }
    }
    in = b_.reshape(in, {steps_, batch_, width});

    Control scan{.kind = Control::Kind::trips, .trips = steps_, .reverse = reverse};
    scan.carry = {initial(5, d)};
    if (cell_ == Cell::lstm) scan.carry.push_back(initial(6, d));
    scan.xs = {in};
    if (lengths_) scan.xs.push_back(b_.iota({steps_}, 0, kI64));
    scan.captured = {r};
    if (inner) scan.captured.push_back(inner);
    const bool peeps = cell_ == Cell::lstm && c_.has(7);
    if (peeps) scan.captured.push_back(part(7, d));
    if (lengths_) scan.captured.push_back(lengths_);

    core::Graph body;
    std::vector<Value> state, xs, captured;
    const auto input = [&](const Type& t) { return body.input(cat(body.inputs().size()), t); };
    for (Value v : scan.carry) state.push_back(input(b_.type(v)));
    for (Value v : scan.xs) xs.push_back(input(slice_type(b_.type(v))));
    for (Value v : scan.captured) captured.push_back(input(b_.type(v)));
    Builder b(body, b_.provenance);
    const auto* acts =
        &acts_[static_cast<size_t>(d) * (acts_.size() / (c_.shape(1)[0] == 2 ? 2 : 1))];
    std::vector<Value> next;
    switch (cell_) {
      case Cell::rnn:
        next = {
            acts[0](b, clipped(b, b.plus(xs[0], b.matmul(state[0], captured[0], false, true))))};
        break;
      case Cell::gru:
        next = {gru(b, acts, xs[0], state[0], captured[0], inner ? captured[1] : Value{}, apart)};
        break;
      case Cell::lstm:
        next = lstm(b, acts, xs[0], state[0], state[1], captured[0], peeps ? captured[1] : Value{});
        break;
    }
    Value y = next[0];
    if (lengths_) {
      // Behind its end, a sequence keeps its state and gives 0.
      const Value valid = b.compare("lt", xs[1], captured.back());
      for (size_t k = 0; k < next.size(); ++k) next[k] = b.where(valid, next[k], state[k]);
      y = b.where(valid, y, b.scalar(b.dtype(y), 0));
    }
    for (size_t k = 0; k < next.size(); ++k) body.output(cat(k), next[k]);
    body.output("y", y);
    scan.functions = {std::make_shared<const core::Graph>(std::move(body))};
    return add_control(b_, scan, next.size() + 1);
  }

  Value gru(Builder& b, const Activation* acts, Value x, Value h, Value r, Value inner,
            bool apart) {
    const Value first = b.matmul(h, b.narrow(r, 0, 0, 2 * hidden_), false, true);
    const Value last = b.narrow(r, 0, 2 * hidden_, hidden_);
    const Value z = acts[0](b, clipped(b, b.plus(gate(b, x, 0), gate(b, first, 0))));
    const Value reset = acts[0](b, clipped(b, b.plus(gate(b, x, 1), gate(b, first, 1))));
    Value own;
    if (apart) {
      own = b.matmul(h, last, false, true);
      if (inner) own = b.plus(own, inner);
      own = b.times(reset, own);
    } else {
      own = b.matmul(b.times(reset, h), last, false, true);
    }
    const Value fresh = acts[1](b, clipped(b, b.plus(gate(b, x, 2), own)));
    return b.plus(fresh, b.times(z, b.minus(h, fresh)));
  }

  // Gates in the order i o f c; peepholes i o f.
  std::vector<Value> lstm(Builder& b, const Activation* acts, Value x, Value h, Value cell, Value r,
                          Value peeps) {
    const Value all = b.plus(x, b.matmul(h, r, false, true));
    const auto peeping = [&](int64_t k, Value state) {
      const Value g = gate(b, all, k);
      return clipped(b, peeps ? b.plus(g, b.times(gate(b, peeps, k), state)) : g);
    };
    const Value i = acts[0](b, peeping(0, cell));
    const Value f = c_.i("input_forget", 0) ? b.minus(b.scalar(b.dtype(i), 1), i)
                                            : acts[0](b, peeping(2, cell));
    const Value fresh = acts[1](b, clipped(b, gate(b, all, 3)));
    const Value next = b.plus(b.times(f, cell), b.times(i, fresh));
    const Value o = acts[0](b, peeping(1, next));
    return {b.times(o, acts[2](b, next)), next};
  }

  Call& c_;
  Builder& b_;
  const Cell cell_;
  const int64_t gates_;
  bool batch_first_ = false;
  int64_t steps_ = 0, batch_ = 0, hidden_ = 0;
  double clip_ = 0;
  Value x_{}, lengths_{};
  std::vector<Activation> acts_;
};

template <Recurrent::Cell cell>
void recurrent(Call& c) {
  Recurrent(c, cell).run();
}

constexpr Rule kRules[] = {
    {"RNN", 7, recurrent<Recurrent::Cell::rnn>},
    {"GRU", 7, recurrent<Recurrent::Cell::gru>},
    {"LSTM", 7, recurrent<Recurrent::Cell::lstm>},
};

}  // namespace

std::span<const Rule> rnn_rules() { return kRules; }

}  // namespace tenon::core::onnx
