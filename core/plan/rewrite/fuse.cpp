// SPDX-License-Identifier: Apache-2.0
// Walks over a graph and tries to join sums, norms, gates and their neighbours.
#include "plan/rewrite/fuse.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ops/activation.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

// A composite in place of some nodes; it stands where the last of them stood.
struct Join {
  const OpRecord* op = nullptr;
  Operands operands{};  // of the old graph
  Attrs attrs{};
  std::vector<bool> wanted{};
  std::vector<std::pair<Value, size_t>> results{};  // old value, output that takes its place
  std::vector<NodeId> nodes{};                      // ascending
};

template <class Op>
Join join_of(const Op& op, std::vector<NodeId> nodes,
             std::vector<std::pair<Value, size_t>> results) {
  Encoder e;
  visit(op, e);
  std::sort(nodes.begin(), nodes.end());
  return {&record_of(Op::kName), std::move(e.operands), std::move(e.attrs),
          std::move(e.outputs),  std::move(results),    std::move(nodes)};
}

// Who reads what, and the joins found so far.
class Finder {
 public:
  Finder(const Graph& graph, const Query& query)
      : g_(graph),
        readers_(graph),
        taken_(graph.node_count()),
        asked_for_(graph.value_count()),
        notes_(graph.node_count()),
        claims_(query) {
    for (NodeId n = 0; n < graph.node_count(); ++n)
      if (graph[n].op->meta())
        for (Value v : graph[n].operands)
          if (v) asked_for_[v.id] = true;
  }

  const Graph& graph() const { return g_; }
  bool free(NodeId n) const { return !taken_[n] && g_[n].group == kNone; }
  // A node of op Op that is free to be joined.
  template <class Op>
  std::optional<Op> as(NodeId n) const {
    if (n == kNone || !free(n) || g_[n].op != &record_of(Op::kName)) return {};
    return decode<Op>(g_[n]);
  }
  // The node that makes v, or kNone.
  NodeId maker(Value v) const { return maker_of(g_, v); }
  std::span<const NodeId> readers(Value v) const { return readers_.of(v); }
  // Does this node alone read v, once?
  bool only_reader(Value v, NodeId n) const { return readers_.one(v) && readers_.of(v)[0] == n; }
  // Can v be made at node n's place: nothing before reads it, and its gradient is not asked for by
  // name?
  bool may_wait(Value v, NodeId n) const {
    const auto readers = readers_.of(v);
    return !asked_for_[v.id] && (readers.empty() || readers.front() >= n);
  }
  // May they be one node: of one clone, on one device?
  bool alike(NodeId a, NodeId b) const {
    return g_[a].clone == g_[b].clone && g_[a].device == g_[b].device;
  }

  // Says at node n why it is not joined.
  void refuse(NodeId n, std::string_view op, std::string_view why) {
    notes_[n] = cat("not joined into ", op, ": ", why);
  }
  // Takes the nodes if the device claims the composite; else notes why not at its last node.
  bool take(Join join) {
    const NodeId last = join.nodes.back();
    const Verdict& verdict =
        claims_.of(g_, *join.op, join.operands, join.attrs, join.wanted, g_[last].device);
    if (const std::string why = claims_.why_not(verdict, g_, join.nodes); !why.empty()) {
      refuse(last, join.op->name(), why);
      return false;
    }
    for (NodeId n : join.nodes) taken_[n] = true;
    at_.emplace(last, std::move(join));
    return true;
  }

  Graph rewrite() && {
    return with_joined(g_, at_, taken_, notes_,
                       [&](Rewriter& rw, const auto& join) { emit(rw, join); });
  }

 private:
  void emit(Rewriter& rw, const Join& join) {
    const Parts parts = parts_of(g_, join.nodes);
    const NodeId made =
        rw.to.add_node(*join.op, {rw.map(join.operands.values), join.operands.lists}, join.attrs,
                       join.wanted, parts.provenance);
    rw.to.set_marks(made, marks_of(g_, join.nodes));
    for (const auto& [old, output] : join.results) rw.replace(old, rw.to[made].outputs[output]);
    rw.to.set_note(made, joined_note(g_, join.nodes, cat("joined: ", parts.names)));
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<bool> taken_;
  std::vector<bool> asked_for_;  // by value: a request names it
  std::vector<std::string> notes_;
  std::unordered_map<NodeId, Join> at_;
  Claims claims_;
};

// ---- act(gate) * up

void join_gate(Finder& f, NodeId n) {
  const auto product = f.as<op::binary>(n);
  if (!product || product->kind != "mul") return;
  const Graph& g = f.graph();
  if (!is_float(g.type(g[n].outputs[0]).dtype)) return;  // relu has integers too, the composite not
  for (const auto& [gated, up] :
       {std::pair{product->a, product->b}, std::pair{product->b, product->a}}) {
    const NodeId m = f.maker(gated);
    const auto act = f.as<op::unary>(m);
    constexpr std::string_view kGates[] = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"};
    if (!act || std::find(std::begin(kGates), std::end(kGates), act->kind) == std::end(kGates))
      continue;
    if (!is_unset(act->alpha) || !is_unset(act->beta) || act->ste || g.type(gated) != g.type(up))
      continue;
    if (!f.only_reader(gated, n) || !f.alike(m, n)) continue;
    // What elementwise nodes make is gated in their region, without a way through memory.
    const NodeId before = f.maker(act->x);
    if (before != kNone && (g[before].op->traits & kElementwise) && f.only_reader(act->x, m))
      continue;
    if (f.take(join_of(op::swiglu{.act = act->kind, .gate = act->x, .up = up}, {m, n},
                       {{g[n].outputs[0], 0}})))
      return;
  }
}

// ---- act(a·b + bias) + residual

struct Product {
  op::linear op;
  Value y;          // the last value of the chain
  Value pre_act{};  // kept for others, or absent
  std::vector<NodeId> nodes;
};

std::optional<Product> product_at(const Finder& f, NodeId n) {
  if (!f.free(n)) return {};
  const Graph& g = f.graph();
  const std::optional<op::linear> linear = product_of(g[n]);
  if (!linear || !is_float(g.type(linear->a).dtype) || g.type(linear->b).shape.rank() < 2)
    return {};
  return Product{*linear, g[n].outputs[0], {}, {n}};
}

// The other operand of a sum with p.y that changes neither shape nor dtype.
Value added_to(const Finder& f, const Product& p, NodeId n) {
  const auto sum = f.as<op::binary>(n);
  if (!sum || sum->kind != "add" || f.graph().type(f.graph()[n].outputs[0]) != f.graph().type(p.y))
    return {};
  return sum->a == p.y ? sum->b : sum->a;
}

bool add_activation(const Finder& f, Product& p) {
  if (f.readers(p.y).empty()) return false;
  const NodeId n = f.readers(p.y)[0];  // another would come after it
  const auto act = f.as<op::unary>(n);
  if (!act || act->ste || !f.alike(n, p.nodes[0]) || !f.may_wait(p.y, n)) return false;
  const UnaryKind kind = find_unary(act->kind)->kind;
  // A step has no slope to give, where the node alone has one of zero; a test gives bool.
  if (is_rounding(kind) || kind == UnaryKind::is_nan || kind == UnaryKind::is_inf) return false;
  if (!f.only_reader(p.y, n)) p.pre_act = p.y;
  p.op.act = act->kind, p.op.act_alpha = act->alpha, p.op.act_beta = act->beta;
  p.y = f.graph()[n].outputs[0];
  p.nodes.push_back(n);
  return true;
}

// What is kept for others must not be read before node n, the composite's new place.
bool kept_may_wait(const Finder& f, const Product& p, NodeId n) {
  if (!p.pre_act) return true;
  return std::ranges::all_of(f.readers(p.pre_act), [&](NodeId r) {
    return r > n || std::find(p.nodes.begin(), p.nodes.end(), r) != p.nodes.end();
  });
}

// A bias, while there is no activation, or a residual.
bool add_operand(const Finder& f, Product& p) {
  if (f.readers(p.y).empty()) return false;
  const NodeId n = f.readers(p.y)[0];
  if (!f.only_reader(p.y, n) || !f.alike(n, p.nodes[0]) || !kept_may_wait(f, p, n)) return false;
  const Value other = added_to(f, p, n);
  if (!other) return false;
  // A sum that updates what is added stays alone: an elementwise op writes over it in place.
  if (f.graph().update_of(other) == f.graph()[n].outputs[0]) return false;
  const Type &type = f.graph().type(other), &y = f.graph().type(p.y);
  const bool bias = !p.op.bias && p.op.act == "none" && type.shape.rank() == 1 &&
                    y.shape.rank() >= 1 && type.shape[0] == y.shape[y.shape.rank() - 1];
  if (!bias && type != y) return false;
  (bias ? p.op.bias : p.op.residual) = other;
  p.y = f.graph()[n].outputs[0];
  p.nodes.push_back(n);
  return true;
}

// One node more at the end of the chain, or false.
bool extend(const Finder& f, Product& p) {
  if (p.op.residual) return false;
  return add_operand(f, p) || (p.op.act == "none" && add_activation(f, p));
}

void join_product(Finder& f, NodeId n) {
  std::optional<Product> p = product_at(f, n);
  if (!p) return;
  std::vector<Product> longer;
  while (extend(f, *p)) longer.push_back(*p);
  for (; !longer.empty(); longer.pop_back()) {
    Product& q = longer.back();
    q.op.want_pre_act = bool(q.pre_act);
    std::vector<std::pair<Value, size_t>> results{{q.y, 0}};
    if (q.pre_act) results.push_back({q.pre_act, 1});
    if (f.take(join_of(q.op, q.nodes, std::move(results)))) return;
  }
}

// ---- norm(x + residual)

template <class Norm, class Joined>
void join_norm(Finder& f, NodeId n) {
  const auto norm = f.as<Norm>(n);
  if (!norm) return;
  const Graph& g = f.graph();
  const NodeId m = f.maker(norm->x);
  const auto sum = f.as<op::binary>(m);
  if (!sum || sum->kind != "add" || g.type(sum->a) != g.type(norm->x) ||
      g.type(sum->b) != g.type(norm->x))
    return;
  if (norm->gamma == norm->x || norm->beta == norm->x)
    return;  // the composite would read its own output
  if (!f.alike(m, n) || !f.may_wait(norm->x, n)) return;
  const std::vector<Value>& outputs = g[n].outputs;
  const DType dtype = g.type(norm->x).dtype;
  const auto is_there = [](Value v) { return bool(v); };
  if (acc_dtype(dtype) != dtype && std::any_of(outputs.begin() + 1, outputs.end(), is_there))
    return f.refuse(n, Joined::kName,
                    "its statistics would be those of the sum before it is rounded");
  Joined joined{.axis = norm->axis,
                .eps = norm->eps,
                .x = sum->a,
                .residual = sum->b,
                .gamma = norm->gamma,
                .beta = norm->beta,
                .want_sum = !f.only_reader(norm->x, n)};
  std::vector<std::pair<Value, size_t>> results{{g[n].outputs[0], 0}};
  if (joined.want_sum) results.push_back({norm->x, 1});
  // The statistics follow the sum.
  for (size_t k = 1; k < outputs.size(); ++k)
    if (outputs[k]) results.push_back({outputs[k], k + 1});
  Join join = join_of(joined, {m, n}, std::move(results));
  for (size_t k = 1; k < outputs.size(); ++k)
    if (outputs[k]) join.wanted[k + 1] = true;
  f.take(std::move(join));
}

}  // namespace

std::optional<op::linear> product_of(const NodeInfo& node) {
  if (node.op == &record_of(op::linear::kName)) {
    auto linear = decode<op::linear>(node);
    if (linear.residual || linear.want_pre_act) return {};
    return linear;
  }
  if (node.op != &record_of(op::matmul::kName)) return {};
  const auto m = decode<op::matmul>(node);
  return op::linear{.trans_a = m.trans_a,
                    .trans_b = m.trans_b,
                    .alpha = m.alpha,
                    .out_dtype = m.out_dtype,
                    .f32_precision = m.f32_precision,
                    .a = m.a,
                    .b = m.b};
}

Graph fuse(const Graph& graph, const Query& query) {
  Finder finder(graph, query);
  // A gate before the product that makes it, which would take the activation; a product before the
  // norm that reads its residual sum, for so the sum is written once and read once.
  constexpr void (*kForms[])(Finder&, NodeId) = {join_gate, join_product,
                                                 join_norm<op::layer_norm, op::residual_layer_norm>,
                                                 join_norm<op::rms_norm, op::residual_rms_norm>};
  static_assert(std::size(kForms) == std::size(kFuseForms));
  for (const auto form : kForms)
    for (NodeId n = 0; n < graph.node_count(); ++n) form(finder, n);
  return std::move(finder).rewrite();
}

}  // namespace tenon::core
