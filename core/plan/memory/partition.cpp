// SPDX-License-Identifier: Apache-2.0
// Cuts a placed graph into regions.
#include "plan/memory/partition.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

#include "ops/cost.hpp"
#include "ops/record.hpp"
#include "plan/memory/schedule.hpp"

namespace tenon::core {
namespace {

using Ready = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;  // ranks

// By node: a node of another device depends on it.
std::vector<bool> find_urgent(const Graph& graph, std::span<const uint32_t> device_of_node,
                              std::span<const NodeId> order) {
  std::vector<bool> urgent(graph.node_count());
  for (size_t i = order.size(); i-- > 0;) {
    const NodeId reader = order[i];
    for (Value v : graph[reader].operands)
      if (v && graph[v].node != kNone)
        if (const NodeId n = graph[v].node;
            urgent[reader] || device_of_node[n] != device_of_node[reader])
          urgent[n] = true;
  }
  return urgent;
}

// By device: the number of the last region (counted from 1) that must end before a region may begin;
// 0 = none. Only operands count.
using Waits = std::vector<uint32_t>;

// Nodes by region, devices by turns.
class Cutting {
 public:
  Cutting(const Graph& graph, std::span<const uint32_t> device_of_node,
          std::span<const NodeId> order, std::span<const double> short_work)
      : graph_(graph),
        short_work_(short_work),
        device_of_(device_of_node),
        order_(order),
        rank_(graph.node_count()),
        waits_(graph.node_count(), 0),
        readers_(graph.node_count()),
        region_of_(graph.node_count(), kNone) {
    for (uint32_t i = 0; i < order.size(); ++i) rank_[order[i]] = i;
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (Value v : graph[n].operands)
        if (v && graph[v].node != kNone) precede(graph[v].node, n);
    for (const auto& [before, next] : order_constraints(graph)) precede(before, next);
    for (uint32_t d : device_of_node) devices_ = std::max(devices_, d + 1);
    urgent_ = find_urgent(graph, device_of_node, order);
    ready_.resize(devices_);
    on_device_.assign(devices_, Waits(devices_, 0));
  }

  std::vector<Region> run() && {
    for (NodeId n = 0; n < graph_.node_count(); ++n)
      if (waits_[n] == 0) make_ready(n);
    for (uint32_t device = 0; done_ < graph_.node_count();) {
      while (ready_[device][0].empty() && ready_[device][1].empty())
        device = (device + 1) % devices_;
      for (Ready& queue : ready_[device])
        if (!queue.empty()) add_region(device, queue);
    }
    return std::move(regions_);
  }

 private:
  void precede(NodeId before, NodeId next) {
    readers_[before].push_back(next);
    ++waits_[next];
  }
  void make_ready(NodeId n) { ready_[device_of_[n]][urgent_[n] ? 0 : 1].push(rank_[n]); }

  // A node that would make this region wait for more is left for the next region, unless this one
  // is too short to stand alone.
  void add_region(uint32_t device, Ready& queue) {
    const double short_work = device < short_work_.size() ? short_work_[device] : 0;
    Region region{.device = device, .nodes = {}, .inputs = {}, .outputs = {}};
    Waits before = on_device_[device];
    std::vector<uint32_t> later;  // ranks
    double work = 0;
    const auto take = [&](NodeId n) {
      region_of_[n] = static_cast<uint32_t>(regions_.size());
      region.nodes.push_back(n);
      work += work_of(n);
      ++done_;
      for (NodeId r : readers_[n])
        if (--waits_[r] == 0) make_ready(r);
    };
    while (!queue.empty() || !later.empty()) {
      if (queue.empty()) {
        if (work >= short_work) break;
        // Only such nodes are left, and the region is too short to stand alone.
        for (uint32_t rank : later) wait_for(order_[rank], device, before);
        for (uint32_t rank : later) queue.push(rank);
        later.clear();
      }
      const NodeId n = order_[queue.top()];
      if (graph_[n].hosted && !region.nodes.empty()) break;
      queue.pop();
      Waits with = before;
      if (wait_for(n, device, with) && !region.nodes.empty()) {
        later.push_back(rank_[n]);
        continue;
      }
      before = std::move(with);
      take(n);
      if (graph_[n].hosted) break;
    }
    for (uint32_t rank : later) queue.push(rank);
    std::ranges::sort(region.nodes, {}, [&](NodeId n) { return rank_[n]; });
    waited_for_.push_back(before);
    before[device] = static_cast<uint32_t>(regions_.size()) + 1;
    on_device_[device] = std::move(before);
    regions_.push_back(std::move(region));
  }

  // Adds what a node waits for on other devices. Returns whether anything is new.
  bool wait_for(NodeId n, uint32_t device, Waits& waits) const {
    bool any = false;
    for (Value v : graph_[n].operands) {
      if (!v || graph_[v].node == kNone) continue;
      const uint32_t from = device_of_[graph_[v].node], region = region_of_[graph_[v].node];
      if (from == device || region < waits[from]) continue;
      any = true;
      waits[from] = region + 1;
      const Waits& theirs = waited_for_[region];
      for (uint32_t d = 0; d < devices_; ++d) waits[d] = std::max(waits[d], theirs[d]);
    }
    return any;
  }

  double work_of(NodeId n) const {
    if (graph_[n].op->traits & kView) return 0;
    return least_bytes(graph_, graph_[n]) + product_flops(graph_, graph_[n]) / kFlopsPerByte;
  }

  const Graph& graph_;
  std::span<const double> short_work_;
  std::span<const uint32_t> device_of_;
  std::span<const NodeId> order_;
  std::vector<uint32_t> rank_, waits_;        // by node
  std::vector<std::vector<NodeId>> readers_;  // by node: what comes after it
  std::vector<uint32_t> region_of_;           // by node
  std::vector<bool> urgent_;                  // by node
  uint32_t devices_ = 1;
  // Two queues for each device: what other devices wait for, and the rest.
  std::vector<std::array<Ready, 2>> ready_;
  std::vector<Waits> on_device_;   // what the device's next region comes after in any case
  std::vector<Waits> waited_for_;  // by region
  std::vector<Region> regions_;
  NodeId done_ = 0;
};

}  // namespace

std::vector<Region> partition(const Graph& graph, std::span<const uint32_t> device_of_node,
                              std::span<const NodeId> order, std::span<const double> short_work) {
  std::vector<Region> regions = Cutting(graph, device_of_node, order, short_work).run();
  constexpr uint32_t kNowhere = kNone;
  std::vector<uint32_t> made_in(graph.value_count(), kNowhere);
  std::vector<uint32_t> seen_in(graph.value_count(), kNowhere);
  std::vector<bool> leaves(graph.value_count(), false);
  for (uint32_t r = 0; r < regions.size(); ++r)
    for (NodeId n : regions[r].nodes)
      for (Value v : graph[n].outputs)
        if (v) made_in[v.id] = r;
  for (uint32_t r = 0; r < regions.size(); ++r)
    for (NodeId n : regions[r].nodes)
      for (Value v : graph[n].operands) {
        if (!v || made_in[v.id] == r || seen_in[v.id] == r) continue;
        seen_in[v.id] = r;
        regions[r].inputs.push_back(v);
        leaves[v.id] = true;
      }
  for (const Output& o : graph.outputs()) leaves[o.value.id] = true;
  for (const Update& u : graph.updates()) leaves[u.value.id] = true;
  for (Region& region : regions)
    for (NodeId n : region.nodes)
      for (Value v : graph[n].outputs)
        if (v && leaves[v.id]) region.outputs.push_back(v);
  return regions;
}

std::vector<CutRegion> cut(const Graph& placed, std::span<const double> short_work,
                           uint32_t hints) {
  std::vector<uint32_t> device;
  for (NodeId n = 0; n < placed.node_count(); ++n) device.push_back(placed[n].device);
  std::vector<CutRegion> out;
  for (Region& region : partition(placed, device, schedule(placed), short_work)) {
    RegionBlob blob = write_region(placed, region.nodes, region.inputs, region.outputs, hints);
    out.push_back({std::move(region), std::move(blob)});
  }
  return out;
}

}  // namespace tenon::core
