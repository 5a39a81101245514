// SPDX-License-Identifier: Apache-2.0
// Cuts a placed graph into regions.
#include "plan/memory/partition.hpp"

#include <array>
#include <functional>
#include <queue>

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

// Nodes by region, devices by turns.
std::vector<Region> order_nodes(const Graph& graph, std::span<const uint32_t> device_of_node,
                                std::span<const NodeId> order) {
  const NodeId count = graph.node_count();
  std::vector<uint32_t> waits(count, 0), rank(count);
  for (uint32_t i = 0; i < count; ++i) rank[order[i]] = i;
  std::vector<std::vector<NodeId>> readers(count);
  for (NodeId n = 0; n < count; ++n)
    for (Value v : graph[n].operands)
      if (v && graph[v].node != kNone) {
        readers[graph[v].node].push_back(n);
        ++waits[n];
      }
  for (const auto& [before, next] : order_constraints(graph)) {
    readers[before].push_back(next);
    ++waits[next];
  }
  uint32_t devices = 1;
  for (uint32_t d : device_of_node) devices = std::max(devices, d + 1);
  // Two queues for each device: what other devices wait for, and the rest.
  const std::vector<bool> urgent = find_urgent(graph, device_of_node, order);
  std::vector<std::array<Ready, 2>> ready(devices);
  const auto make_ready = [&](NodeId n) {
    ready[device_of_node[n]][urgent[n] ? 0 : 1].push(rank[n]);
  };
  for (NodeId n = 0; n < count; ++n)
    if (waits[n] == 0) make_ready(n);

  std::vector<Region> regions;
  uint32_t device = 0;
  for (NodeId done = 0; done < count;) {
    while (ready[device][0].empty() && ready[device][1].empty()) device = (device + 1) % devices;
    for (Ready& queue : ready[device]) {
      if (queue.empty()) continue;
      Region region{.device = device, .nodes = {}, .inputs = {}, .outputs = {}};
      while (!queue.empty()) {
        const NodeId n = order[queue.top()];
        if (graph[n].hosted && !region.nodes.empty()) break;
        queue.pop();
        region.nodes.push_back(n);
        ++done;
        for (NodeId r : readers[n])
          if (--waits[r] == 0) make_ready(r);
        if (graph[n].hosted) break;
      }
      regions.push_back(std::move(region));
    }
  }
  return regions;
}

}  // namespace

std::vector<Region> partition(const Graph& graph, std::span<const uint32_t> device_of_node,
                              std::span<const NodeId> order) {
  std::vector<Region> regions = order_nodes(graph, device_of_node, order);
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

std::vector<CutRegion> cut(const Graph& placed) {
  std::vector<uint32_t> device;
  for (NodeId n = 0; n < placed.node_count(); ++n) device.push_back(placed[n].device);
  std::vector<CutRegion> out;
  for (Region& region : partition(placed, device, schedule(placed))) {
    RegionBlob blob = write_region(placed, region.nodes, region.inputs, region.outputs);
    out.push_back({std::move(region), std::move(blob)});
  }
  return out;
}

}  // namespace tenon::core
