// SPDX-License-Identifier: Apache-2.0
// Rules: RNN, GRU and LSTM. The input is multiplied by its weights before, all steps and directions
// at once. Cells that gru and lstm do not have become a scan for each direction.
#include "import/onnx/helpers.hpp"
#include "ops/recurrent.hpp"

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
std::vector<Activation> activations_of(const Call& c, int64_t directions,
                                       std::initializer_list<const char*> standard) {
  std::vector<std::string> names = c.strings("activations");
  if (names.empty())
    for (int64_t d = 0; d < directions; ++d)
      names.insert(names.end(), standard.begin(), standard.end());
  const size_t wanted = static_cast<size_t>(directions) * standard.size();
  if (names.size() != wanted)
    c.wrong("attribute activations: expected ", wanted, " names, got ", names.size());
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
    directions_ = direction == "bidirectional" ? 2 : 1;
    if (direction != "forward" && direction != "reverse" && directions_ == 1)
      c_.wrong("attribute direction: expected forward, reverse or bidirectional, got '", direction,
               "'");
    if (w[0] != directions_) c_.wrong("W: expected ", directions_, " directions, got ", w[0]);
    clip_ = c_.f("clip", 0);
    reset_after_ = cell_ == Cell::gru && c_.i("linear_before_reset", 0) != 0;
    acts_ = cell_ == Cell::rnn   ? activations_of(c_, directions_, {"Tanh"})
            : cell_ == Cell::gru ? activations_of(c_, directions_, {"Sigmoid", "Tanh"})
                                 : activations_of(c_, directions_, {"Sigmoid", "Tanh", "Tanh"});
    project();
    if (cell_ == Cell::lstm && is_plain())
      add_layer(b_.add(op::lstm{.direction = direction,
                                .gates = "iofg",
                                .x = in_,
                                .r = c_.value(2),
                                .h0 = initial(5),
                                .c0 = initial(6),
                                .lengths = c_.value_or_none(4),
                                .want_h = true,
                                .want_c = true}));
    else if (cell_ == Cell::gru && is_plain())
      add_layer(b_.add(op::gru{.direction = direction,
                               .gates = "zrn",
                               .reset_after = reset_after_,
                               .x = in_,
                               .r = c_.value(2),
                               .n_bias = inner_,
                               .h0 = initial(5),
                               .lengths = c_.value_or_none(4),
                               .want_h = true}));
    else
      add_scans(direction == "reverse");
  }

 private:
  // No more than the ops have.
  bool is_plain() const {
    for (size_t k = 0; k < acts_.size(); ++k) {
      const bool gate = k % (acts_.size() / static_cast<size_t>(directions_)) == 0;
      if (acts_[k].name != (gate ? "sigmoid" : "tanh")) return false;
    }
    return clip_ <= 0 && !c_.has(7) && !c_.i("input_forget", 0);
  }
  // [T, B, D·gates·H], with all biases but that of a GRU's last product.
  void project() {
    const int64_t width = gates_ * hidden_, all = directions_ * width, inputs = b_.shape(x_)[2];
    in_ = b_.matmul(b_.reshape(x_, {steps_ * batch_, inputs}),
                    b_.reshape(c_.value(1), {all, inputs}), false, true);
    if (c_.has(3)) {
      const Value of_w = b_.narrow(c_.value(3), 1, 0, width);
      Value of_r = b_.narrow(c_.value(3), 1, width, width);
      if (reset_after_) {
        inner_ = b_.narrow(of_r, 1, 2 * hidden_, hidden_);
        of_r = b_.concat(
            {b_.narrow(of_r, 1, 0, 2 * hidden_), b_.zeros({b_.dtype(x_), {directions_, hidden_}})},
            1);
      }
      in_ = b_.plus(in_, b_.reshape(b_.plus(of_w, of_r), {all}));
    }
    in_ = b_.reshape(in_, {steps_, batch_, all});
  }
  // y: [T, B, D·H]. states: [D, B, H].
  void give(Value y, std::span<const Value> states) {
    y = b_.reshape(y, {steps_, batch_, directions_, hidden_});
    c_.out(0, b_.transpose(y, batch_first_ ? Ints{1, 0, 2, 3} : Ints{0, 2, 1, 3}));
    for (size_t k = 0; k < states.size(); ++k)
      c_.out(k + 1, batch_first_ ? swap_axes(b_, states[k], 0, 1) : states[k]);
  }
  void add_layer(const Results& y) { give(y[0], std::span(y.outputs).subspan(1)); }
  void add_scans(bool reverse) {
    std::vector<std::vector<Value>> parts;
    for (int64_t d = 0; d < directions_; ++d) {
      const Results y = one(d, reverse || d == 1);
      parts.resize(y.outputs.size());
      for (size_t k = 0; k + 1 < parts.size(); ++k) parts[k].push_back(b_.unsqueeze(y[k], 0));
      parts.back().push_back(y[parts.size() - 1]);
    }
    std::vector<Value> states;
    for (size_t k = 0; k + 1 < parts.size(); ++k) states.push_back(b_.concat(parts[k], 0));
    give(b_.concat(parts.back(), 2), states);
  }

  // Entry d of axis 0.
  Value part(Value v, int64_t d) {
    Shape s = b_.shape(v), out;
    for (int i = 1; i < s.rank(); ++i) out.push(s[i]);
    return b_.reshape(b_.narrow(v, 0, d, 1), out);
  }
  Value initial(size_t k) {
    if (!c_.has(k)) return {};
    return batch_first_ ? swap_axes(b_, c_.value(k), 0, 1) : c_.value(k);
  }
  Value initial(size_t k, int64_t d) {
    const Value v = initial(k);
    return v ? part(v, d) : b_.zeros({b_.dtype(x_), {batch_, hidden_}});
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
    Recurrence layer{.x = b_.narrow(in_, 2, d * width, width),
                     .state = {initial(5, d)},
                     .captured = {part(c_.value(2), d)},
                     .dtype = b_.dtype(x_),
                     .reverse = reverse};
    if (cell_ == Cell::lstm) layer.state.push_back(initial(6, d));
    if (inner_) layer.captured.push_back(part(inner_, d));
    const bool peeps = cell_ == Cell::lstm && c_.has(7);
    if (peeps) layer.captured.push_back(part(c_.value(7), d));
    if (c_.has(4)) layer.lengths = b_.reshape(b_.cast(c_.value(4), kI64), {batch_, 1});
    const auto* acts =
        &acts_[acts_.size() / static_cast<size_t>(directions_) * static_cast<size_t>(d)];
    layer.step = [this, acts](Builder& b, Value x, std::span<const Value> state,
                              std::span<const Value> captured) -> std::vector<Value> {
      const Value r = captured[0], more = captured.size() > 1 ? captured[1] : Value{};
      switch (cell_) {
        case Cell::rnn:
          return {acts[0](b, clipped(b, b.plus(x, b.matmul(state[0], r, false, true))))};
        case Cell::gru:
          return {gru(b, acts, x, state[0], r, more)};
        case Cell::lstm:
          break;
      }
      return lstm(b, acts, x, state[0], state[1], r, more);
    };
    return add_recurrence(b_, layer);
  }

  Value gru(Builder& b, const Activation* acts, Value x, Value h, Value r, Value inner) {
    const Value first = b.matmul(h, b.narrow(r, 0, 0, 2 * hidden_), false, true);
    const Value last = b.narrow(r, 0, 2 * hidden_, hidden_);
    const Value z = acts[0](b, clipped(b, b.plus(gate(b, x, 0), gate(b, first, 0))));
    const Value reset = acts[0](b, clipped(b, b.plus(gate(b, x, 1), gate(b, first, 1))));
    Value own;
    if (reset_after_) {
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
  bool reset_after_ = false;
  int64_t steps_ = 0, batch_ = 0, hidden_ = 0, directions_ = 1;
  double clip_ = 0;
  Value x_{}, in_{}, inner_{};
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
