// SPDX-License-Identifier: Apache-2.0
// Starts at each quantize and follows its operand back. The joined node stands in its place; what
// dequantizes stays where others read it.
#include "plan/rewrite/fuse_quantized.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/rewrite.hpp"
#include "ops/quantized.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

bool is_byte(DType t) { return t == kI8 || t == kU8; }

// A dequantized operand: what it was, and its scale, one number or one per channel. A weight as scale,
// as large models have it, has no numbers here.
struct Quantized {
  Value q, zero, scale_value;
  std::vector<double> scale;
};

struct Found {
  bool conv = false;
  op::qconv n{};  // its fields other than those of a convolution are those of the product as well
  // Of a conv_transpose whose windows do not overlap: their pixels by axis, which the qconv makes as
  // channels.
  Shape window;
  std::vector<float> multipliers;
  Value scales;  // a weight by which all multipliers are multiplied; absent if they are known
  std::vector<NodeId> nodes;  // in the order of the graph
  Value y;
};

class Joiner {
 public:
  Joiner(const Graph& graph, const Query& query)
      : g_(graph),
        readers_(graph),
        taken_(graph.node_count()),
        notes_(graph.node_count()),
        claims_(query) {}

  Graph run() && {
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      std::optional<Found> found = found_at(n);
      if (!found) continue;
      if (const std::string why = refusal(*found); !why.empty()) {
        notes_[n] = cat("not joined into ", op_of(*found), ": ", why);
        continue;
      }
      for (const NodeId part : found->nodes) taken_[part] = true;
      at_.emplace(n, std::move(*found));
    }
    return with_joined(g_, at_, taken_, notes_,
                       [&](Rewriter& rw, const auto& join) { emit(rw, join); });
  }

 private:
  static std::string_view op_of(const Found& f) {
    return f.conv ? op::qconv::kName : op::qmatmul::kName;
  }

  template <class Op>
  std::optional<Op> node_as(NodeId n) const {
    if (n == kNone || taken_[n]) return {};
    const NodeInfo& node = g_[n];
    if (node.group != kNone || node.op != &record_of(Op::kName)) return {};
    return decode<Op>(node);
  }
  // The node that makes v, if it is one of op Op beside node `last`, and v has no other reader.
  template <class Op>
  std::optional<std::pair<NodeId, Op>> only_maker(Value v, NodeId last) const {
    const NodeId n = maker_of(g_, v);
    const std::optional<Op> op = node_as<Op>(n);
    if (!op || !readers_.one(v) || g_[n].outputs[0] != v || g_[n].clone != g_[last].clone ||
        g_[n].device != g_[last].device)
      return {};
    return std::pair{n, *op};
  }

  // The numbers of a constant scale.
  std::optional<std::vector<double>> scale_of(Value v) const {
    if (g_[v].space != Space::constant || g_.type(v).dtype != kF32) return {};
    const Bytes& bytes = *g_[v].data;
    std::vector<double> numbers;
    for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
      float x;
      std::memcpy(&x, bytes.data() + at, sizeof x);
      if (!(x > 0) || std::isinf(x)) return {};
      numbers.push_back(x);
    }
    return numbers;
  }

  // What v is dequantized from. channel_axis: the axis along which it may have several scales.
  std::optional<Quantized> quantized(Value v, int channel_axis) const {
    const std::optional<op::dequantize> n = node_as<op::dequantize>(maker_of(g_, v));
    if (!n || n->block != 0 || g_.type(v).dtype != kF32) return {};
    Quantized q{n->q, n->zero_point, n->scale, {}};
    if (std::optional<std::vector<double>> scale = scale_of(n->scale))
      q.scale = std::move(*scale);
    else if (g_[n->scale].space != Space::weight || g_.type(n->scale).dtype != kF32)
      return {};
    const int rank = g_.type(v).shape.rank();
    if (g_.type(n->scale).shape.elements() != 1 &&
        (n->axis < 0 ? n->axis + rank : n->axis) != channel_axis)
      return {};
    return q;
  }
  std::optional<Quantized> quantized_bytes(Value v, int channel_axis) const {
    std::optional<Quantized> q = quantized(v, channel_axis);
    if (!q || !is_byte(g_.type(q->q).dtype)) return {};
    return q;
  }

  bool is_zero(Value v) const {
    if (!v) return true;
    if (g_[v].space != Space::constant) return false;
    for (const auto byte : *g_[v].data)
      if (static_cast<uint8_t>(byte) != 0) return false;
    return true;
  }

  // The bias as an integer of the scale of the sums.
  std::optional<Value> whole_bias(Value bias, const std::vector<double>& sums) const {
    const std::optional<Quantized> b = quantized(bias, 0);
    if (!b || b->scale.empty() || sums.empty() || g_.type(b->q).dtype != kI32 || !is_zero(b->zero))
      return {};
    const size_t count = std::max(b->scale.size(), sums.size());
    for (size_t k = 0; k < count; ++k) {
      const double wanted = sums[sums.size() == 1 ? 0 : k];
      const double given = b->scale[b->scale.size() == 1 ? 0 : k];
      if (std::abs(given - wanted) > 1e-6 * wanted) return {};  // it was rounded to f32
    }
    return b->q;
  }

  std::optional<Found> found_at(NodeId last) const {
    const std::optional<op::quantize> q = node_as<op::quantize>(last);
    if (!q || q->block != 0 || g_.type(q->x).dtype != kF32) return {};
    Found f;
    f.y = g_[last].outputs[0];
    const DType to = g_.type(f.y).dtype;
    const std::optional<std::vector<double>> y_scale = scale_of(q->scale);
    if (!is_byte(to) || !y_scale || y_scale->size() != 1) return {};
    f.n.to = to, f.n.y_zero = q->zero_point;
    f.nodes = {last};
    Value v = q->x;
    if (const auto act = only_maker<op::unary>(v, last)) {
      if (act->second.kind != "relu") return {};
      f.n.act = "relu", v = act->second.x;
      f.nodes.insert(f.nodes.begin(), act->first);
    }
    std::vector<double> scale;
    if (!(take_conv(f, v, last, &scale) || take_transposed(f, v, last, &scale) ||
          take_product(f, v, last, &scale)))
      return {};
    for (const double s : scale) {
      const int64_t pixels = scale.size() > 1 ? f.window.elements() : 1;
      f.multipliers.insert(f.multipliers.end(), static_cast<size_t>(pixels),
                           static_cast<float>(s / y_scale->front()));
    }
    return f;
  }

  // Sets the operands, and the scales of the sums.
  bool take_operands(Found& f, Value x, Value w, int channel_axis, Value bias,
                     std::vector<double>* scale) const {
    const std::optional<Quantized> qx = quantized_bytes(x, 0);
    const std::optional<Quantized> qw = quantized_bytes(w, channel_axis);
    if (!qx || qx->scale.size() != 1 || !qw) return false;
    f.n.x = qx->q, f.n.x_zero = qx->zero, f.n.w = qw->q;
    // Kernels do without the sums of x then.
    if (!is_zero(qw->zero)) f.n.w_zero = qw->zero;
    if (qw->scale.empty()) {
      f.scales = qw->scale_value;
      scale->push_back(qx->scale.front());
      return !bias;
    }
    for (const double s : qw->scale) scale->push_back(s * qx->scale.front());
    if (!bias) return true;
    const std::optional<Value> whole = whole_bias(bias, *scale);
    if (whole) f.n.bias = *whole;
    return whole.has_value();
  }

  bool take_act(Found& f, std::string_view act) const {
    if (act != "none" && act != "relu") return false;
    if (act == "relu") f.n.act = "relu";
    return true;
  }

  bool take_conv(Found& f, Value v, NodeId last, std::vector<double>* scale) const {
    const auto made = only_maker<op::conv>(v, last);
    if (!made) return false;
    const op::conv& n = made->second;
    if (n.residual || n.want_pre_act || !take_act(f, n.act)) return false;
    if (!take_operands(f, n.x, n.w, 0, n.bias, scale)) return false;
    f.conv = true;
    f.n.stride = n.stride, f.n.pads = n.pads, f.n.dilation = n.dilation, f.n.groups = n.groups;
    f.nodes.insert(f.nodes.begin(), made->first);
    return true;
  }

  bool take_transposed(Found& f, Value v, NodeId last, std::vector<double>* scale) const {
    const auto made = only_maker<op::conv_transpose>(v, last);
    if (!made) return false;
    const op::conv_transpose& n = made->second;
    const Shape& w = g_.type(n.w).shape;
    const auto all = [](const Ints& list, int64_t value) {
      return std::ranges::all_of(list, [=](int64_t x) { return x == value; });
    };
    if (n.groups != 1 || !all(n.pads, 0) || !all(n.dilation, 1) || !all(n.output_padding, 0))
      return false;
    Shape window;
    for (int k = 2; k < w.rank(); ++k) window.push(w[k]);
    for (int k = 0; k < window.rank(); ++k)
      if (window[k] != (n.stride.empty() ? 1 : n.stride[static_cast<size_t>(k)])) return false;
    if (!take_operands(f, n.x, n.w, 1, n.bias, scale) || f.scales) return false;
    if (f.n.w_zero && !is_one_number(g_.type(f.n.w_zero).shape)) return false;
    f.conv = true, f.window = window;
    f.nodes.insert(f.nodes.begin(), made->first);
    return true;
  }

  bool take_product(Found& f, Value v, NodeId last, std::vector<double>* scale) const {
    const auto plain = [](const auto& n) {
      return !n.trans_a && !n.trans_b && n.alpha == 1 &&
             (n.out_dtype == TENON_DTYPE_NONE || n.out_dtype == kF32);
    };
    if (const auto made = only_maker<op::matmul>(v, last)) {
      const op::matmul& n = made->second;
      if (!plain(n) || !take_factors(f, n.a, n.b, {}, scale)) return false;
      f.nodes.insert(f.nodes.begin(), made->first);
      return true;
    }
    const auto made = only_maker<op::linear>(v, last);
    if (!made) return false;
    const op::linear& n = made->second;
    if (!plain(n) || n.residual || n.want_pre_act || !take_act(f, n.act)) return false;
    if (!take_factors(f, n.a, n.b, n.bias, scale)) return false;
    f.nodes.insert(f.nodes.begin(), made->first);
    return true;
  }
  bool take_factors(Found& f, Value a, Value b, Value bias, std::vector<double>* scale) const {
    const Shape& right = g_.type(b).shape;
    if (g_.type(a).shape.rank() < 2 || right.rank() < 2) return false;
    if (!take_operands(f, a, b, right.rank() - 1, bias, scale)) return false;
    const Shape columns{right[right.rank() - 1]};
    return !f.n.bias || g_.type(f.n.bias).shape == columns;
  }

  static op::qmatmul product_of(const op::qconv& n) {
    return {.to = n.to,
            .act = n.act,
            .a = n.x,
            .b = n.w,
            .a_zero = n.x_zero,
            .b_zero = n.w_zero,
            .bias = n.bias,
            .multiplier = n.multiplier,
            .y_zero = n.y_zero};
  }
  // The joined node in another graph, in which `map` finds the values of this one.
  template <class Map>
  static NodeId add(Graph& to, const Found& f, std::string_view provenance, const Marks& marks,
                    Map map) {
    op::qconv n = f.n;
    for (Value* v : {&n.x, &n.w, &n.x_zero, &n.w_zero, &n.bias, &n.y_zero})
      if (*v) *v = map(*v);
    Shape shape;
    if (f.multipliers.size() > 1) shape.push(static_cast<Dim>(f.multipliers.size()));
    Bytes bytes(f.multipliers.size() * sizeof(float));
    std::memcpy(bytes.data(), f.multipliers.data(), bytes.size());
    n.multiplier = to.constant({kF32, shape}, std::make_shared<const Bytes>(std::move(bytes)));
    if (f.scales) {
      const NodeId scaled =
          to.add(op::binary{.kind = "mul", .a = map(f.scales), .b = n.multiplier}, provenance);
      to.set_marks(scaled, marks);
      n.multiplier = to[scaled].outputs[0];
    }
    if (f.window.rank() > 0) {
      Builder b(to, provenance);
      b.marks = marks;
      const Shape w = b.shape(n.w);
      const int64_t pixels = f.window.elements();
      Ints perm;
      Shape filters{w[1] * pixels, w[0]};
      for (int k = 1; k < w.rank(); ++k) perm.push_back(k);
      for (int k = 2; k < w.rank(); ++k) filters.push(1);
      perm.push_back(0);
      n.w = b.reshape(b.transpose(n.w, perm), filters);
      if (n.bias)
        n.bias = b.reshape(b.expand(b.reshape(n.bias, {w[1], 1}), {w[1], pixels}), {filters[0]});
    }
    const NodeId made = f.conv ? to.add(n, provenance) : to.add(product_of(n), provenance);
    to.set_marks(made, marks);
    return made;
  }
  // Pixels that are channels [N,C·window..,in..] at their places [N,C,in·window..].
  static Value spread(Builder& b, Value y, const Shape& window) {
    const Shape given = b.shape(y);
    const int rank = window.rank();
    Shape apart{given[0], given[1] / window.elements()}, whole = apart;
    Ints perm{0, 1};
    for (int k = 0; k < rank; ++k) apart.push(window[k]);
    for (int k = 0; k < rank; ++k) {
      apart.push(given[2 + k]), whole.push(given[2 + k] * window[k]);
      perm.push_back(2 + rank + k), perm.push_back(2 + k);
    }
    return b.reshape(b.transpose(b.reshape(y, apart), perm), whole);
  }

  // Asks about the joined form over values of the same kinds.
  std::string refusal(const Found& f) {
    std::vector<Value> given;
    for (Value v : {f.n.x, f.n.w, f.n.x_zero, f.n.w_zero, f.n.bias, f.n.y_zero, f.scales})
      if (v) given.push_back(v);
    Trial trial = trial_of(g_, given);
    Marks marks;
    marks.device = g_[f.nodes[0]].device;
    const NodeId node = add(trial.graph, f, {}, marks, [&](Value v) {
      for (size_t k = 0; k < given.size(); ++k)
        if (given[k] == v) return trial.operands[k];
      return Value{};
    });
    trial.graph.output("y", trial.graph[node].outputs[0]);
    return claims_.why_not(claims_.of(trial.graph, trial.graph[node]), g_, f.nodes);
  }

  void emit(Rewriter& rw, const Found& f) const {
    const Parts parts = parts_of(g_, f.nodes);
    const NodeId made =
        add(rw.to, f, parts.provenance, marks_of(g_, f.nodes), [&](Value v) { return rw.map(v); });
    Value y = rw.to[made].outputs[0];
    if (f.window.rank() > 0) {
      Builder b(rw.to, parts.provenance);
      b.marks = marks_of(g_, f.nodes);
      y = spread(b, y, f.window);
    }
    rw.replace(f.y, y);
    rw.to.set_note(made, joined_note(g_, f.nodes, cat("joined: ", parts.names)));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> taken_;
  std::unordered_map<NodeId, Found> at_;  // by the quantize
  std::vector<std::string> notes_;        // by node
  Claims claims_;
};

}  // namespace

Graph join_quantized(const Graph& graph, const Query& query) { return Joiner(graph, query).run(); }

}  // namespace tenon::core
