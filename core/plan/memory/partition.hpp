// SPDX-License-Identifier: Apache-2.0
// Cuts a placed graph into regions: parts that one device runs in one go, in an order in which they
// may run.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/blob.hpp"

namespace tenon::core {

struct ControlPlan;

struct Region {
  uint32_t device = 0;
  std::vector<NodeId> nodes;  // in an order in which they may run
  std::vector<Value> inputs;  // what they read and do not make, each once
  std::vector<Value>
      outputs;  // what leaves: read by another region, an output or an update of the graph
};

// Stays on a device as long as it has a node that may run, so that regions are few. What other
// devices wait for becomes a region of its own, ahead of the rest, so that transfers overlap with
// the rest. A node that waits for another device does not delay nodes that need not wait: it starts
// the next region. If those nodes are little work, it joins their region. short_work: by device,
// bytes to move in the time that a region of its own costs; missing = 0. A hosted node is a region
// of its own. Within a region nodes keep the given order (schedule.hpp). Regions are convex: all
// that a region reads was made before it begins.
std::vector<Region> partition(const Graph& graph, std::span<const uint32_t> device_of_node,
                              std::span<const NodeId> order,
                              std::span<const double> short_work = {});

// A region as its device gets it.
struct CutRegion {
  Region region;
  RegionBlob blob;
  std::shared_ptr<const ControlPlan> control{};  // where the host runs its one node
};
// The regions of a graph whose nodes' marks name their devices, in the order of schedule.hpp. hints:
// TENON_HINT_*.
std::vector<CutRegion> cut(const Graph& placed, std::span<const double> short_work = {},
                           uint32_t hints = 0);

}  // namespace tenon::core
