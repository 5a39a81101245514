// SPDX-License-Identifier: Apache-2.0
// A batch is open while its sets are visited, and takes the position of its last set. A node that
// reads an output of a set closes the batch: so no set depends on another, and no reader runs
// before the batch.
#include "plan/rewrite/batch.hpp"

#include <algorithm>
#include <optional>

#include "ir/rewrite.hpp"
#include "ops/fused.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/claims.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/key.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

struct Set {
  NodeId node = kNone;
  FunctionAttr body{};
  std::vector<Value> inputs{};  // in the body's order
};

struct Batch {
  std::string form{};
  std::vector<Set> sets{};
  std::unordered_map<uint32_t, uint64_t> inputs{};  // value -> bytes
  std::vector<uint64_t> made{};                     // bytes of each output
  size_t operands = 0;
  uint64_t bytes = 0;
  bool native = false;
};

class Batcher {
 public:
  Batcher(const Graph& graph, const Query& query)
      : g_(graph),
        batch_of_(graph.node_count(), kNone),
        notes_(graph.node_count()),
        claims_(query) {}

  Graph run() && {
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      for (Value v : g_[n].operands)
        if (const NodeId m = maker_of(g_, v); m != kNone && batch_of_[m] != kNone)
          close(batch_of_[m]);
      if (std::optional<Set> set = set_at(n)) add(std::move(*set));
    }
    for (Batch& batch : batches_) ask(batch);
    Rewriter rw(g_);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      const uint32_t b = batch_of_[n];
      if (b == kNone || !batches_[b].native) {
        const NodeId now = rw.copy(n);
        add_note(rw.to, now, notes_[n]);
      } else if (batches_[b].sets.back().node == n) {
        emit(rw, batches_[b]);
      }
    }
    return rw.finish();
  }

 private:
  std::optional<Set> set_at(NodeId n) const {
    const NodeInfo& node = g_[n];
    if (node.group != kNone) return {};
    const bool fused = node.op == &fused_record();
    const bool step = node.op->traits & kElementwise && can_be_step(g_, node);
    if (!fused && (!step || node.op->traits & kOrdered)) return {};
    for (Value v : node.outputs)
      if (!v || g_.type(v).shape.elements() == 0) return {};
    Set set{.node = n};
    if (fused) {
      set.body = std::get<FunctionAttr>(*node.attr("body"));
      set.inputs = node.operands;
    } else {
      if (node.outputs.size() != 1) return {};
      StepsOf steps = steps_of(g_, std::span(&n, 1), node.outputs);
      set.body = std::move(steps.body);
      set.inputs = std::move(steps.inputs);
    }
    if (set.inputs.empty() || bytes_of(set) > kBatchSetBytes) return {};
    return set;
  }

  uint64_t bytes_of(const Set& set) const {
    uint64_t sum = 0;
    for (Value v : set.inputs) sum += type_bytes(g_.type(v));
    for (Value v : g_[set.node].outputs) sum += type_bytes(g_.type(v));
    return sum;
  }

  // The sets run one after another in one step, and each may overwrite its own input. So no other
  // set may read that input later.
  bool apart(const Batch& batch, const Set& set) const {
    std::vector<uint64_t> made;
    for (Value v : g_[set.node].outputs) made.push_back(type_bytes(g_.type(v)));
    return std::none_of(set.inputs.begin(), set.inputs.end(), [&](Value v) {
      const auto shared = batch.inputs.find(v.id);
      return shared != batch.inputs.end() && (std::ranges::count(made, shared->second) ||
                                              std::ranges::count(batch.made, shared->second));
    });
  }

  void add(Set set) {
    std::string form = body_form(*set.body);
    append_key(form, g_[set.node].clone);
    append_key(form, g_[set.node].device);
    if (const auto open = open_.find(form); open != open_.end()) {
      const Batch& batch = batches_[open->second];
      if (batch.bytes + bytes_of(set) > kBatchBytes || !apart(batch, set) ||
          batch.operands + set.inputs.size() > TENON_BLOB_MAX_OPERANDS)
        close(open->second);
    }
    const auto [open, fresh] = open_.try_emplace(form, static_cast<uint32_t>(batches_.size()));
    if (fresh) batches_.push_back({.form = std::move(form)});
    Batch& batch = batches_[open->second];
    batch_of_[set.node] = open->second;
    batch.bytes += bytes_of(set);
    batch.operands += set.inputs.size();
    for (Value v : set.inputs) batch.inputs.emplace(v.id, type_bytes(g_.type(v)));
    for (Value v : g_[set.node].outputs) batch.made.push_back(type_bytes(g_.type(v)));
    batch.sets.push_back(std::move(set));
  }

  void close(uint32_t b) {
    const auto open = open_.find(batches_[b].form);
    if (open != open_.end() && open->second == b) open_.erase(open);
  }

  void ask(Batch& batch) {
    if (batch.sets.size() < 2) return;
    const Joined o = operands_of(batch);
    const std::vector<NodeId> nodes = nodes_of(batch);
    const Verdict& verdict = claims_.of(g_, batch_fused_record(), o.values, o.attrs,
                                        std::vector<bool>(o.outputs, true), g_[nodes[0]].device);
    const std::string why = claims_.why_not(verdict, g_, nodes);
    batch.native = why.empty();
    if (!batch.native)
      notes_[nodes.back()] = cat("not joined into ", batch_fused_record().name(), ": ", why);
  }
  static std::vector<NodeId> nodes_of(const Batch& batch) {
    std::vector<NodeId> nodes;
    for (const Set& set : batch.sets) nodes.push_back(set.node);
    return nodes;
  }

  struct Joined {
    std::vector<Value> values;
    Attrs attrs;
    size_t outputs;
  };
  Joined operands_of(const Batch& batch) const {
    Joined o{{}, batch_fused_attrs(batch.sets[0].body, batch.sets.size()), batch.made.size()};
    for (const Set& set : batch.sets)
      o.values.insert(o.values.end(), set.inputs.begin(), set.inputs.end());
    return o;
  }

  void emit(Rewriter& rw, const Batch& batch) const {
    const NodeId first = batch.sets[0].node;
    const Joined o = operands_of(batch);
    const NodeId made = rw.to.add_node(batch_fused_record(), rw.map(o.values), o.attrs,
                                       std::vector<bool>(o.outputs, true), g_[first].provenance);
    rw.to.set_marks(made, marks_of(g_, nodes_of(batch)));
    size_t k = 0;
    for (const Set& set : batch.sets)
      for (Value v : g_[set.node].outputs) rw.replace(v, rw.to[made].outputs[k++]);
    const Graph& body = *batch.sets[0].body;
    std::vector<NodeId> steps(body.node_count());
    std::iota(steps.begin(), steps.end(), 0u);
    rw.to.set_note(made, joined_note(g_, nodes_of(batch),
                                     cat("joined: ", batch.sets.size(), " times ",
                                         parts_of(body, steps).names)));
  }

  const Graph& g_;
  std::vector<uint32_t> batch_of_;  // by node
  std::vector<std::string> notes_;
  std::vector<Batch> batches_;
  std::unordered_map<std::string, uint32_t> open_;  // by form
  Claims claims_;
};

}  // namespace

Graph join_batches(const Graph& graph, const Query& query) { return Batcher(graph, query).run(); }

}  // namespace tenon::core
