// SPDX-License-Identifier: Apache-2.0
// Orders nodes so that few bytes are alive at once.
#include "plan/memory/schedule.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>

#include "ops/record.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {
namespace {

constexpr uint64_t kLight = 256;  // bytes that are not worth a thought

using Queue = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

// The value whose bytes a value is: its own, or those of what it is a view of.
std::vector<uint32_t> find_roots(const Graph& g) {
  std::vector<uint32_t> root(g.value_count());
  std::iota(root.begin(), root.end(), 0u);
  for (NodeId n = 0; n < g.node_count(); ++n) {
    const NodeInfo& node = g[n];
    if (node.op->traits & kView && node.outputs.size() == 1 && !node.operands.empty())
      root[node.outputs[0].id] = root[node.operands[0].id];
  }
  return root;
}

// What intermediates take, and who reads them.
struct Memory {
  const Graph& g;
  std::vector<uint32_t> root;   // by value
  std::vector<uint64_t> bytes;  // by root; 0 for what does not lie among the intermediates
  NodeLists readers;            // by root, each once
  NodeLists after;              // by node: what must not come before it

  explicit Memory(const Graph& graph)
      : g(graph),
        root(find_roots(graph)),
        bytes(sizes()),
        readers(graph.value_count(), reads()),
        after(graph.node_count(), edges()) {}

  std::vector<uint32_t> roots_of(const std::vector<Value>& values) const {
    std::vector<uint32_t> out;
    for (Value v : values)
      if (v) out.push_back(root[v.id]);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }
  uint64_t made_by(NodeId n) const {
    uint64_t sum = 0;
    for (Value v : g[n].outputs)
      if (v && root[v.id] == v.id) sum += bytes[v.id];
    return sum;
  }

 private:
  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> out(g.value_count());
    for (uint32_t v = 0; v < g.value_count(); ++v)
      if (g[Value{v}].space == Space::node && root[v] == v) out[v] = type_bytes(g.type({v}));
    // What leaves has a place of its own.
    for (const Output& o : g.outputs()) out[o.value.id] = 0;
    for (const Update& u : g.updates()) out[u.value.id] = 0;
    return out;
  }
  std::vector<std::pair<uint32_t, NodeId>> reads() const {
    std::vector<std::pair<uint32_t, NodeId>> out;
    for (NodeId n = 0; n < g.node_count(); ++n)
      for (uint32_t r : roots_of(g[n].operands)) out.emplace_back(r, n);
    return out;
  }
  std::vector<std::pair<uint32_t, NodeId>> edges() const {
    std::vector<std::pair<uint32_t, NodeId>> out;
    for (NodeId n = 0; n < g.node_count(); ++n)
      for (Value v : g[n].operands)
        if (v && g[v].space == Space::node) out.emplace_back(g[v].node, n);
    for (const auto& [before, next] : order_constraints(g)) out.emplace_back(before, next);
    return out;
  }
};

// What lives while nodes run one after another.
class Run {
 public:
  explicit Run(const Memory& memory)
      : m_(memory), waiting_(memory.g.value_count()), sum_(memory.g.value_count()) {
    for (uint32_t r = 0; r < waiting_.size(); ++r)
      for (NodeId n : m_.readers[r]) ++waiting_[r], sum_[r] += n;
  }
  // Bytes that come and go with a node, would it run now.
  std::pair<uint64_t, uint64_t> change(NodeId n) const {
    uint64_t dies = 0;
    for (uint32_t r : m_.roots_of(m_.g[n].operands))
      if (waiting_[r] == 1) dies += m_.bytes[r];
    return {m_.made_by(n), dies};
  }
  // Roots with one reader left, which is now known.
  template <class Last>
  void run(NodeId n, Last&& last_reader) {
    const std::vector<uint32_t> reads = m_.roots_of(m_.g[n].operands);
    const uint64_t made = m_.made_by(n);
    bool in_place = false;
    uint64_t dies = 0;
    for (uint32_t r : reads) {
      if (waiting_[r] == 1) {
        dies += m_.bytes[r];
        in_place |= m_.g[n].op->traits & kElementwise && m_.bytes[r] == made;
      }
      sum_[r] -= n;
      if (--waiting_[r] == 1) last_reader(static_cast<NodeId>(sum_[r]));
    }
    peak_ = std::max(peak_, alive_ + (in_place ? 0 : made));
    alive_ += made - dies;
    for (Value v : m_.g[n].outputs)
      if (v && m_.root[v.id] == v.id && waiting_[v.id] == 0) alive_ -= m_.bytes[v.id];
  }
  uint64_t peak() const { return peak_; }

 private:
  const Memory& m_;
  std::vector<uint32_t> waiting_;  // by root: readers to come
  std::vector<uint64_t> sum_;      // of their numbers: with one left, its number
  uint64_t alive_ = 0, peak_ = 0;
};

uint64_t peak_of(const Memory& m, std::span<const NodeId> order) {
  Run run(m);
  for (NodeId n : order) run.run(n, [](NodeId) {});
  return run.peak();
}

// Nodes wait for their first reader where that keeps less alive. They stand before it, among others
// that do in the graph's order, so by (anchor, number).
std::vector<NodeId> wait_for_readers(const Memory& m) {
  const Graph& g = m.g;
  const NodeId count = g.node_count();
  std::vector<NodeId> anchor(count);
  std::vector<NodeId> alive_until(g.value_count(), 0);  // by root: anchor of its last known reader
  for (NodeId n = count; n-- > 0;) {
    const std::vector<uint32_t> reads = m.roots_of(g[n].operands);
    NodeId first = kNone;
    for (NodeId r : m.after[n]) first = std::min(first, anchor[r]);
    anchor[n] = n;
    if (first != kNone && !(g[n].op->traits & kOrdered)) {
      uint64_t longer = 0;
      for (uint32_t r : reads)
        if (alive_until[r] < first) longer += m.bytes[r];
      if (g[n].clone || longer < m.made_by(n)) anchor[n] = first;
    }
    for (uint32_t r : reads) alive_until[r] = std::max(alive_until[r], anchor[n]);
  }
  std::vector<NodeId> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeId a, NodeId b) { return anchor[a] < anchor[b]; });
  return order;
}

// As the order says, but a node that frees as much as it takes runs as soon as it may.
std::vector<NodeId> free_early(const Memory& m, std::span<const NodeId> order) {
  const NodeId count = m.g.node_count();
  std::vector<uint32_t> rank(count), waits(count, 0);
  std::vector<bool> ready(count), done(count);
  for (uint32_t i = 0; i < count; ++i) rank[order[i]] = i;
  for (NodeId n = 0; n < count; ++n)
    for (NodeId r : m.after[n]) ++waits[r];

  Run run(m);
  Queue all, light;  // ranks of nodes that may run
  const auto consider = [&](NodeId n) {
    if (m.g[n].op->traits & kView) return;  // frees nothing, and may turn out to be a copy
    const auto [made, dies] = run.change(n);
    if (made <= std::max(dies, kLight)) light.push(rank[n]);
  };
  const auto may_run = [&](NodeId n) {
    ready[n] = true;
    all.push(rank[n]);
    consider(n);
  };
  for (NodeId n = 0; n < count; ++n)
    if (waits[n] == 0) may_run(n);

  std::vector<NodeId> out;
  while (out.size() < count) {
    Queue& from = light.empty() ? all : light;
    const NodeId n = order[from.top()];
    from.pop();
    if (done[n]) continue;
    done[n] = true;
    out.push_back(n);
    run.run(n, [&](NodeId last) {
      if (ready[last] && !done[last]) consider(last);
    });
    for (NodeId r : m.after[n])
      if (--waits[r] == 0) may_run(r);
  }
  return out;
}

}  // namespace

std::vector<std::pair<NodeId, NodeId>> order_constraints(const Graph& g) {
  std::vector<std::pair<NodeId, NodeId>> out;
  NodeId last = kNone;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    if (!(g[n].op->traits & kOrdered)) continue;
    if (last != kNone) out.emplace_back(last, n);
    last = n;
  }
  if (g.updates().empty()) return out;
  const std::vector<uint32_t> root = find_roots(g);
  std::map<uint32_t, NodeId> writer;  // of the value that is updated
  for (const Update& u : g.updates())
    if (g[u.value].space == Space::node) writer[u.target.id] = g[u.value].node;
  for (NodeId n = 0; n < g.node_count(); ++n)
    for (Value v : g[n].operands) {
      if (!v) continue;
      const auto at = writer.find(root[v.id]);
      if (at != writer.end() && n < at->second) out.emplace_back(n, at->second);
    }
  return out;
}

std::vector<NodeId> schedule(const Graph& graph) {
  const Memory memory(graph);
  std::vector<NodeId> own(graph.node_count());
  std::iota(own.begin(), own.end(), 0u);
  const std::vector<NodeId> late = wait_for_readers(memory);
  std::vector<NodeId> best;
  uint64_t least = 0;
  for (std::vector<NodeId> order : {free_early(memory, late), free_early(memory, own), late, own}) {
    const uint64_t peak = peak_of(memory, order);
    if (!best.empty() && peak >= least) continue;
    least = peak;
    best = std::move(order);
  }
  return best;
}

uint64_t order_peak(const Graph& graph, std::span<const NodeId> order) {
  return peak_of(Memory(graph), order);
}

}  // namespace tenon::core
