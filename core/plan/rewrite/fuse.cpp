// SPDX-License-Identifier: Apache-2.0
// Walks over a graph and tries to join sums, norms, gates, products and their neighbours.
#include "plan/rewrite/fuse.hpp"

#include <algorithm>
#include <optional>

#include "ops/activation.hpp"
#include "plan/rewrite/finder.hpp"
#include "plan/rewrite/fuse_blocks.hpp"

namespace tenon::core {
namespace {

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
  return join_block_products(std::move(finder).rewrite(), query);
}

}  // namespace tenon::core
