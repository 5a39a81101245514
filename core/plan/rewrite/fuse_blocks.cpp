// SPDX-License-Identifier: Apache-2.0
// Norms, products with blocks that read them, and gates of both halves of a product.
#include "plan/rewrite/fuse_blocks.hpp"

#include <ranges>

#include "plan/rewrite/finder.hpp"

namespace tenon::core {
namespace {

// The swiglu that alone reads both halves of y, if it may join the product.
std::optional<op::swiglu> gate_of(const Finder& f, NodeId product, Value y) {
  if (f.readers(y).empty()) return {};
  const NodeId n = f.readers(y)[0];
  const auto gate = f.as<op::swiglu>(n);
  if (!gate || gate->up || !gate->gate_first || !f.only_reader(y, n) || !f.alike(product, n))
    return {};
  return gate;
}

struct BlockProduct {
  op::dequant_matmul op;
  std::vector<NodeId> nodes;
  Value y;
};
std::optional<BlockProduct> block_product_at(const Finder& f, NodeId n) {
  auto op = f.as<op::dequant_matmul>(n);
  if (!op || op->gamma || op->gate != "none") return {};
  const Value y = f.graph()[n].outputs[0];
  return BlockProduct{std::move(*op), {n}, y};
}
// With its gate, if it has one.
BlockProduct with_gate(const Finder& f, BlockProduct p) {
  if (const auto gate = gate_of(f, p.nodes[0], p.y)) {
    p.op.gate = gate->act;
    p.nodes.push_back(f.readers(p.y)[0]);
    p.y = f.graph()[p.nodes.back()].outputs[0];
  }
  return p;
}

// rms_norm of x or of x + residual.
struct NormOfRows {
  Value x, residual, gamma, sum;  // sum: if others read it
  double eps;
};
std::optional<NormOfRows> norm_at(const Finder& f, NodeId n) {
  const auto last_axis = [&](int64_t axis, Value x) {
    return axis == -1 || axis == f.graph().type(x).shape.rank() - 1;
  };
  if (const auto norm = f.as<op::rms_norm>(n)) {
    if (norm->beta || norm->want_inv_rms || !last_axis(norm->axis, norm->x)) return {};
    return NormOfRows{norm->x, {}, norm->gamma, {}, norm->eps};
  }
  const auto norm = f.as<op::residual_rms_norm>(n);
  if (!norm || norm->bias || norm->beta || norm->want_inv_rms || !last_axis(norm->axis, norm->x))
    return {};
  return NormOfRows{norm->x, norm->residual, norm->gamma,
                    norm->want_sum ? f.graph()[n].outputs[1] : Value{}, norm->eps};
}

// The norm goes into all products that read it: the first one gives the sum, too.
void join_norm_of_blocks(Finder& f, NodeId n) {
  const auto norm = norm_at(f, n);
  if (!norm) return;
  const Value normed = f.graph()[n].outputs[0];
  if (f.leaves(normed)) return;
  const auto joins_of = [&](bool gates) -> std::optional<std::vector<Join>> {
    std::vector<Join> joins;
    for (const NodeId r : f.readers(normed)) {
      auto p = block_product_at(f, r);
      if (!p || p->op.x != normed || p->op.bias == normed || !f.alike(n, r)) return {};
      if (gates) p = with_gate(f, std::move(*p));
      p->op.x = norm->x, p->op.gamma = norm->gamma, p->op.residual = norm->residual;
      p->op.eps = norm->eps;
      std::vector<std::pair<Value, size_t>> results{{p->y, 0}};
      if (joins.empty()) {
        if (norm->sum) {
          // A bias that is the sum would be made by the node that reads it.
          if (!f.may_wait(norm->sum, p->nodes.back()) || p->op.bias == norm->sum) return {};
          p->op.want_sum = true;
          results.push_back({norm->sum, 1});
        }
        p->nodes.push_back(n);
      }
      joins.push_back(join_of(p->op, p->nodes, std::move(results)));
    }
    return joins;
  };
  for (const bool gates : {true, false})
    if (auto joins = joins_of(gates); joins && !joins->empty() && f.take_all(std::move(*joins)))
      return;
}

void join_gate_of_blocks(Finder& f, NodeId n) {
  const auto product = block_product_at(f, n);
  if (!product) return;
  const BlockProduct p = with_gate(f, *product);
  if (p.nodes.size() > 1) f.take(join_of(p.op, p.nodes, {{p.y, 0}}));
}

}  // namespace

Graph join_block_products(Graph graph, const Query& query) {
  const OpRecord* const product = &record_of(op::dequant_matmul::kName);
  const auto is_product = [&](NodeId n) { return graph[n].op == product; };
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.node_count()), is_product))
    return graph;
  Finder finder(graph, query);
  for (const auto form : {join_norm_of_blocks, join_gate_of_blocks})
    for (NodeId n = 0; n < graph.node_count(); ++n) form(finder, n);
  return std::move(finder).rewrite();
}

}  // namespace tenon::core
