// SPDX-License-Identifier: Apache-2.0
// Finds the nodes that depend on one fixed weight alone, and makes a derived weight of them.
#include "plan/rewrite/hoist.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ir/text.hpp"
#include "ops/control.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/key.hpp"

namespace tenon::core {
namespace {

constexpr uint32_t kMostNodes = 32;            // that make one value
constexpr uint64_t kMostConstants = 64 << 10;  // bytes of all constants that it depends on
constexpr uint64_t kMostGrowth = 4;            // times the weight's bytes, all values of one weight
constexpr uint32_t kMostValues = 16;           // of one weight

class Hoister {
 public:
  Hoister(const Graph& graph, const Query& query)
      : g_(graph),
        query_(query),
        weight_of_(graph.value_count()),
        makers_(graph.value_count()),
        leaves_(graph.value_count()) {
    for (uint32_t v = 0; v < g_.value_count(); ++v) same_.push_back(Value{v});
    for (const Output& o : g_.outputs()) leaves_[o.value.id] = true;
    for (const Update& u : g_.updates()) leaves_[u.value.id] = true;
    // A value that crosses to another device stays: the reader's device might refuse to compute it.
    for (NodeId n = 0; n < g_.node_count(); ++n)
      for (Value v : g_[n].operands)
        if (v && g_[v].node != kNone && g_[g_[v].node].device != g_[n].device) leaves_[v.id] = true;
  }

  void run(LegalGraph& legal) {
    for (NodeId n = 0; n < g_.node_count(); ++n) find_weight(n);
    find_wanted();
    if (wanted_.empty()) return;
    Rewriter rw(g_);
    std::map<Value, Value> weights;  // what is wanted -> a weight of the new graph
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      const Value made = g_[n].outputs.empty() ? Value{} : g_[n].outputs[0];
      const auto wanted = made ? wanted_.find(same_[made.id]) : wanted_.end();
      if (wanted != wanted_.end()) {
        Value& weight = weights[wanted->first];
        if (!weight) {
          const std::string name = name_of(rw.to, wanted->second.source, g_.type(made));
          weight = rw.to.weight(name, g_.type(made), false);
          legal.hoisted.emplace(name, std::move(wanted->second));
        }
        rw.replace(made, weight);
      } else if (!made || !weight_of_[made.id] || needed_[n]) {
        rw.copy(n);  // the others are computed with what is wanted
      }
    }
    legal.graph = rw.finish();
  }

 private:
  bool is_view(NodeId n) const { return g_[n].op->traits & kView; }

  // The weight that decides what n makes, if that is one.
  void find_weight(NodeId n) {
    const NodeInfo& node = g_[n];
    if (node.op->traits & kOrdered || is_random(*node.op) || is_control(node) ||
        node.group != kNone || node.outputs.size() != 1 || !node.outputs[0] ||
        leaves_[node.outputs[0].id])
      return;
    Value weight;
    uint32_t makers = 1;
    for (Value v : node.operands) {
      if (!v || g_[v].space == Space::constant) continue;
      makers = std::min(makers + makers_[v.id], kMostNodes + 1);
      const Value from = g_[v].space == Space::weight && !g_.update_of(v) ? v : weight_of_[v.id];
      if (!from || (weight && weight != from)) return;
      if (g_[v].node != kNone && g_[g_[v].node].device != node.device) return;
      weight = from;
    }
    if (!weight || makers > kMostNodes) return;
    const Value made = node.outputs[0];
    weight_of_[made.id] = weight;
    makers_[made.id] = makers;
    same_[made.id] = forms_.try_emplace(form_of(node), made).first->second;
  }

  std::string form_of(const NodeInfo& node) const {
    std::string key;
    append_key(key, node.op);
    append_key(key, node.device);
    append_key(key, node.attrs.size());
    for (const Attr& attr : node.attrs) append_key(key, attr);
    for (Value v : node.operands) append_key(key, v ? same_[v.id].id : kNone);
    for (const uint32_t size : node.lists) append_key(key, size);
    return key;
  }

  // Values that the run needs, and the views of them or of weights that it keeps.
  void find_wanted() {
    needed_.assign(g_.node_count(), false);
    for (NodeId n = g_.node_count(); n-- > 0;) {
      const Value made = g_[n].outputs.empty() ? Value{} : g_[n].outputs[0];
      if (made && weight_of_[made.id] && !needed_[n]) continue;
      for (Value v : g_[n].operands) {
        if (!v || !weight_of_[v.id]) continue;
        if (is_view(g_[v].node) || !want(v)) needed_[g_[v].node] = true;
      }
    }
  }

  bool want(Value v) {
    v = same_[v.id];
    if (wanted_.contains(v)) return true;
    const Value weight = weight_of_[v.id];
    const uint64_t bytes = type_bytes(g_.type(v));
    Spent& spent = spent_[weight];
    if (bytes == 0 || spent.values == kMostValues ||
        spent.bytes + bytes > kMostGrowth * type_bytes(g_.type(weight)) || refused_.contains(v))
      return false;
    const auto maker = std::make_shared<const Graph>(maker_of(v));
    if (!is_taken(*maker, g_[g_[v].node].device)) {
      refused_.insert(v);
      return false;
    }
    spent.values += 1, spent.bytes += bytes;
    wanted_.emplace(v, Hoisted{g_[weight].name, maker, print(*maker)});
    return true;
  }

  bool is_taken(const Graph& maker, uint32_t device) const {
    uint64_t constants = 0;
    for (uint32_t c = 0; c < maker.value_count(); ++c)
      if (const ValueInfo& info = maker[Value{c}]; info.space == Space::constant)
        constants += info.data->size();
    return constants <= kMostConstants &&
           std::ranges::all_of(query_(maker, device), [](const Verdict& v) { return v.native; });
  }

  std::vector<NodeId> makers_of(Value v) const {
    std::set<NodeId, std::greater<>> next = {g_[v].node};
    std::vector<NodeId> makers;
    while (!next.empty()) {
      const NodeId n = *next.begin();
      next.erase(next.begin());
      makers.push_back(n);
      for (Value o : g_[n].operands)
        if (o && g_[o].node != kNone) next.insert(g_[o].node);
    }
    std::ranges::reverse(makers);
    return makers;
  }

  // A graph of the weight alone.
  Graph maker_of(Value v) const {
    Graph maker;
    std::map<Value, Value> now = {
        {weight_of_[v.id], maker.weight("w", g_.type(weight_of_[v.id]), false)}};
    for (NodeId n : makers_of(v)) {
      std::vector<Value> operands;
      for (Value o : g_[n].operands) {
        if (o && !now[o]) now[o] = maker.constant(g_.type(o), g_[o].data);
        operands.push_back(o ? now[o] : Value{});
      }
      const NodeId made =
          maker.add_node(*g_[n].op, {std::move(operands), g_[n].lists}, g_[n].attrs, {true});
      now[g_[n].outputs[0]] = maker[made].outputs[0];
    }
    maker.output("y", now.at(v));
    return maker;
  }

  static std::string name_of(const Graph& to, const std::string& weight, const Type& type) {
    std::string name = cat(weight, " as ", type.text());
    for (int k = 2; to.find(Space::weight, name); ++k)
      name = cat(weight, " as ", type.text(), " (", k, ")");
    return name;
  }

  const Graph& g_;
  const Query& query_;
  std::vector<Value> weight_of_;  // by value: the weight that decides it, where one does
  std::vector<uint32_t> makers_;  // by value: at most so many nodes make it of the weight
  std::vector<bool> leaves_;      // by value: its device, or the run
  std::vector<bool> needed_;      // by node: of those that a weight decides, what the run does
  std::vector<Value> same_;       // by value: the first that is computed alike
  std::unordered_map<std::string, Value> forms_;
  struct Spent {
    uint32_t values = 0;
    uint64_t bytes = 0;
  };
  std::map<Value, Spent> spent_;     // by weight: what of it is wanted
  std::map<Value, Hoisted> wanted_;  // values that become weights; of equal ones the first
  std::set<Value> refused_;          // values that the device does not make by themselves
};

}  // namespace

void hoist_weights(LegalGraph& legal, const Query& query) {
  const Graph before = legal.graph;
  Hoister(before, query).run(legal);
}

}  // namespace tenon::core
