// SPDX-License-Identifier: Apache-2.0
// Follows each convolution along the only readers of its result, as far as `conv` can do what they
// do. The joined node stands where the last of them stood.
#include "plan/rewrite/fuse_convolutions.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ops/activation.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

constexpr int kChannelAxis = 1;

// What is done to each channel, in order.
struct Step {
  enum class Kind : uint8_t { times, plus, minus } kind;
  Value operand;  // one number, or one per channel
};

struct Chain {
  op::conv n;  // operands of the old graph
  Value y;     // the last value
  std::vector<Step> steps{};
  std::vector<NodeId> nodes;
};

template <class T>
bool all_finite(const Bytes& bytes) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T x;
    std::memcpy(&x, bytes.data() + at, sizeof x);
    if (!std::isfinite(x)) return false;
  }
  return true;
}

class Joiner {
 public:
  Joiner(const Graph& graph, const Query& query)
      : g_(graph),
        readers_(graph),
        taken_(graph.node_count()),
        notes_(graph.node_count()),
        claims_(query) {}

  Graph run() && {
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (std::optional<Chain> chain = chain_at(n)) take_longest(std::move(*chain));
    return with_joined(g_, at_, taken_, notes_,
                       [&](Rewriter& rw, const auto& join) { emit(rw, join); });
  }

 private:
  std::optional<Chain> chain_at(NodeId n) const {
    const NodeInfo& node = g_[n];
    if (taken_[n] || node.group != kNone || node.op != &record_of(op::conv::kName)) return {};
    auto conv = decode<op::conv>(node);
    if (conv.act != "none" || conv.residual || conv.want_pre_act) return {};
    return Chain{.n = conv, .y = node.outputs[0], .nodes = {n}};
  }

  // The only reader of the chain's last value, if it is one of op Op.
  template <class Op>
  std::optional<std::pair<NodeId, Op>> reader(const Chain& c) const {
    if (!readers_.one(c.y)) return {};
    const NodeId n = readers_.of(c.y)[0];
    const NodeInfo &node = g_[n], &first = g_[c.nodes[0]];
    if (taken_[n] || node.group != kNone || node.op != &record_of(Op::kName) ||
        node.clone != first.clone || node.device != first.device || !node.outputs[0] ||
        g_.type(node.outputs[0]) != g_.type(c.y))
      return {};
    return std::pair{n, decode<Op>(node)};
  }

  // One number, or one per channel of y: [C, 1..] and the like.
  bool is_per_channel(Value v, const Type& y) const {
    const Shape& s = g_.type(v).shape;
    const int64_t elements = s.elements();
    if (elements == 1) return true;
    const int axis = s.rank() - (y.shape.rank() - kChannelAxis);
    return axis >= 0 && s[axis] == elements && elements == y.shape[kChannelAxis];
  }

  bool is_finite_constant(Value v) const {
    if (g_[v].space != Space::constant) return false;
    const DType t = g_.type(v).dtype;
    return t == kF32 ? all_finite<float>(*g_[v].data)
                     : t == kF64 && all_finite<double>(*g_[v].data);
  }
  bool is_fixed(Value v) const {
    return g_[v].space == Space::constant || (g_[v].space == Space::weight && !g_.update_of(v));
  }

  bool add_step(Chain& c) const {
    if (c.n.residual || c.n.act != "none") return false;
    const auto next = reader<op::binary>(c);
    if (!next) return false;
    const auto& [n, sum] = *next;
    const bool first = sum.a == c.y;
    const Value other = first ? sum.b : sum.a;
    if (other == c.y || !is_per_channel(other, g_.type(c.y))) return false;
    if (sum.kind == "mul") {
      // A bias that changes is scaled in each run, which costs less than scaling y.
      if (!is_finite_constant(other) || !is_fixed(c.n.w)) return false;
      c.steps.push_back({Step::Kind::times, other});
    } else if (sum.kind == "add" || (sum.kind == "sub" && first)) {
      c.steps.push_back({sum.kind == "add" ? Step::Kind::plus : Step::Kind::minus, other});
    } else {
      return false;
    }
    advance(c, n);
    return true;
  }

  bool add_residual(Chain& c) const {
    if (c.n.residual || c.n.act != "none") return false;
    const auto next = reader<op::binary>(c);
    if (!next || next->second.kind != "add") return false;
    const Value other = next->second.a == c.y ? next->second.b : next->second.a;
    if (other == c.y || g_.type(other) != g_.type(c.y)) return false;
    // A sum that updates what is added stays alone: an elementwise op writes over it in place.
    if (g_.update_of(other) == g_[next->first].outputs[0]) return false;
    c.n.residual = other;
    advance(c, next->first);
    return true;
  }

  bool add_activation(Chain& c) const {
    if (c.n.act != "none") return false;
    const auto next = reader<op::unary>(c);
    if (!next || next->second.ste) return false;
    const UnaryKind kind = find_unary(next->second.kind)->kind;
    // A step has no slope to give, where the node alone has one of zero; a test gives bool.
    if (is_rounding(kind) || kind == UnaryKind::is_nan || kind == UnaryKind::is_inf) return false;
    c.n.act = next->second.kind;
    c.n.act_alpha = next->second.alpha, c.n.act_beta = next->second.beta;
    advance(c, next->first);
    return true;
  }

  void advance(Chain& c, NodeId n) const {
    c.y = g_[n].outputs[0];
    c.nodes.push_back(n);
  }

  void take_longest(Chain chain) {
    std::vector<Chain> longer;
    while (add_step(chain) || add_residual(chain) || add_activation(chain)) longer.push_back(chain);
    for (; !longer.empty(); longer.pop_back()) {
      Chain& c = longer.back();
      const std::string why = refusal(c);
      const NodeId last = c.nodes.back();
      if (why.empty()) {
        for (const NodeId n : c.nodes) taken_[n] = true;
        at_.emplace(last, std::move(c));
        return;
      }
      notes_[last] = cat("not joined into ", op::conv::kName, ": ", why);
    }
  }

  // Terms are added up in the accumulation dtype: halves would round, or overflow, in between.
  DType bias_dtype(const Chain& c) const {
    const auto terms = std::count_if(c.steps.begin(), c.steps.end(),
                                     [](const Step& s) { return s.kind != Step::Kind::times; });
    if (c.n.bias && c.steps.empty()) return g_.type(c.n.bias).dtype;
    if (!c.n.bias && terms == 0) return TENON_DTYPE_NONE;
    const DType y = g_.type(c.y).dtype;
    return !c.n.bias && terms == 1 ? y : acc_dtype(y);
  }

  // Asks about the joined form over values of the same kinds.
  std::string refusal(const Chain& c) {
    Graph trial;
    op::conv n = c.n;
    n.x = trial.input("x", g_.type(c.n.x));
    const Type w = g_.type(c.n.w), y = g_.type(c.y);
    n.w = is_fixed(c.n.w) ? trial.weight("w", w, false) : trial.input("w", w);
    if (const DType bias = bias_dtype(c); bias != TENON_DTYPE_NONE)
      n.bias = trial.input("bias", {bias, {y.shape[kChannelAxis]}});
    if (c.n.residual) n.residual = trial.input("residual", y);
    const NodeId node = trial.add(n);
    trial.output("y", trial[node].outputs[0]);
    Marks marks;
    marks.device = g_[c.nodes[0]].device;
    trial.set_marks(node, marks);
    return claims_.why_not(claims_.of(trial, trial[node]), g_, c.nodes);
  }

  void emit(Rewriter& rw, const Chain& c) const {
    const Parts parts = parts_of(g_, c.nodes);
    Builder b(rw.to, parts.provenance);
    b.marks = marks_of(g_, c.nodes);
    const int64_t channels = g_.type(c.y).shape[kChannelAxis];
    const DType sum = bias_dtype(c);
    const auto vector = [&](Value old) {
      const Value v = rw.map(old);
      if (b.shape(v).elements() == channels) return b.reshape(v, {channels});
      return b.expand(b.reshape(v, {1}), {channels});
    };
    op::conv n = c.n;
    n.x = rw.map(c.n.x), n.w = rw.map(c.n.w);
    if (n.bias) n.bias = rw.map(c.n.bias);
    if (n.residual) n.residual = rw.map(c.n.residual);
    for (const Step& step : c.steps) {
      const Value by = vector(step.operand);
      if (step.kind == Step::Kind::times) {
        Shape per_filter{channels};
        for (int k = 1; k < b.shape(n.w).rank(); ++k) per_filter.push(1);
        n.w = b.times(n.w, b.reshape(by, per_filter));
        if (n.bias) n.bias = b.times(b.cast(n.bias, sum), b.cast(by, sum));
      } else if (n.bias) {
        const Value bias = b.cast(n.bias, sum), term = b.cast(by, sum);
        n.bias = step.kind == Step::Kind::plus ? b.plus(bias, term) : b.minus(bias, term);
      } else {
        n.bias = b.cast(step.kind == Step::Kind::plus ? by : b.neg(by), sum);
      }
    }
    const NodeId made = rw.to.add(n, parts.provenance);
    rw.to.set_marks(made, b.marks);
    rw.replace(c.y, rw.to[made].outputs[0]);
    rw.to.set_note(made, joined_note(g_, c.nodes, cat("joined: ", parts.names)));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> taken_;
  std::unordered_map<NodeId, Chain> at_;  // by the last node
  std::vector<std::string> notes_;        // by node
  Claims claims_;
};

}  // namespace

Graph join_convolutions(const Graph& graph, const Query& query) {
  return Joiner(graph, query).run();
}

}  // namespace tenon::core
