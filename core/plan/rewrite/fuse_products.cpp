// SPDX-License-Identifier: Apache-2.0
// The joined node stands where its first product stood: what the others multiply with is there from
// the start, so nobody can have read a result before.
#include "plan/rewrite/fuse_products.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/key.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

struct Group {
  std::vector<NodeId> nodes{};  // ascending
  bool joined = false;
};

class Joiner {
 public:
  Joiner(const Graph& graph, const Query& query)
      : g_(graph),
        group_of_(graph.node_count(), kNone),
        notes_(graph.node_count()),
        claims_(query) {}

  Graph run() && {
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (const std::optional<op::linear> product = product_at(n)) add(n, *product);
    for (Group& group : groups_) ask(group);
    Rewriter rw(g_);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      const uint32_t group = group_of_[n];
      if (group == kNone || !groups_[group].joined) {
        const NodeId now = rw.copy(n);
        add_note(rw.to, now, notes_[n]);
      } else if (groups_[group].nodes[0] == n) {
        emit(rw, groups_[group]);
      }
    }
    return rw.finish();
  }

 private:
  // A product that batch_linear can do, of a matrix that no node makes. Of one that a node makes
  // (another gradient, for a weight's) the others would have to wait, and their results with them.
  std::optional<op::linear> product_at(NodeId n) const {
    std::optional<op::linear> product = product_of(g_[n]);
    if (!product || product->act != "none" || g_[n].group != kNone) return {};
    const auto made = [&](Value v) { return v && g_[v].space == Space::node; };
    if (!is_float(g_.type(product->a).dtype) || g_.type(product->b).shape.rank() != 2 ||
        (product->trans_a && g_.type(product->a).shape.rank() != 2) || made(product->b) ||
        made(product->bias))
      return {};
    return product;
  }

  // Products of one key may be one node.
  void add(NodeId n, op::linear product) {
    std::string key;
    append_key(key, product.a.id);
    append_key(key, g_[n].clone);
    append_key(key, g_[n].device);
    append_key(key, bool(product.bias));
    append_key(key, g_.type(product.b).dtype);
    append_key(key, g_.type(g_[n].outputs[0]).dtype);
    product.a = product.b = product.bias = {};
    product.out_dtype = TENON_DTYPE_NONE;  // of the result, above
    Encoder e;
    visit(product, e);
    for (const Attr& attr : e.attrs) append_key(key, attr);
    const auto [at, fresh] = open_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
    if (!fresh && groups_[at->second].nodes.size() == kMost)
      at->second = static_cast<uint32_t>(groups_.size());
    if (at->second == groups_.size()) groups_.emplace_back();
    groups_[at->second].nodes.push_back(n);
    group_of_[n] = at->second;
  }

  Encoder joined(const Group& group) const {
    const op::linear first = *product_at(group.nodes[0]);
    op::batch_linear n{.trans_a = first.trans_a,
                       .trans_b = first.trans_b,
                       .alpha = first.alpha,
                       .out_dtype = first.out_dtype,
                       .f32_precision = first.f32_precision,
                       .a = first.a,
                       .count_ys = group.nodes.size()};
    for (NodeId m : group.nodes) n.bs.push_back(product_at(m)->b);
    if (first.bias)
      for (NodeId m : group.nodes) n.biases.push_back(product_at(m)->bias);
    Encoder e;
    visit(n, e);
    return e;
  }

  void ask(Group& group) {
    if (group.nodes.size() < 2) return;
    const OpRecord& op = record_of(op::batch_linear::kName);
    const Encoder e = joined(group);
    const Verdict& verdict =
        claims_.of(g_, op, e.operands, e.attrs, e.outputs, g_[group.nodes[0]].device);
    const std::string why = claims_.why_not(verdict, g_, group.nodes);
    group.joined = why.empty();
    if (!group.joined) notes_[group.nodes.back()] = cat("not joined into ", op.name(), ": ", why);
  }

  void emit(Rewriter& rw, const Group& group) const {
    const Encoder e = joined(group);
    const Parts parts = parts_of(g_, group.nodes);
    const NodeId made = rw.to.add_node(record_of(op::batch_linear::kName),
                                       {rw.map(e.operands.values), e.operands.lists}, e.attrs,
                                       e.outputs, parts.provenance);
    rw.to.set_marks(made, marks_of(g_, group.nodes));
    for (size_t t = 0; t < group.nodes.size(); ++t)
      rw.replace(g_[group.nodes[t]].outputs[0], rw.to[made].outputs[t]);
    rw.to.set_note(made, joined_note(g_, group.nodes, cat("joined: ", parts.names)));
  }

  static constexpr size_t kMost = TENON_BLOB_MAX_OPERANDS / 4;

  const Graph& g_;
  std::vector<uint32_t> group_of_;  // by node
  std::vector<std::string> notes_;
  std::vector<Group> groups_;
  std::unordered_map<std::string, uint32_t> open_;  // by what products of a group have in common
  Claims claims_;
};

}  // namespace

Graph join_products(const Graph& graph, const Query& query) { return Joiner(graph, query).run(); }

}  // namespace tenon::core
