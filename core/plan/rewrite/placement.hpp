// SPDX-License-Identifier: Apache-2.0
// Chooses a device for each node by price, where the rates of all devices are measured.
//
// What is minimized: the prices of the nodes, the transfers between devices, and the starts of
// regions. A transfer is paid once per value and device, however many nodes there read it:
//   - a value that a node makes is carried to each other device that reads it;
//   - an input of the graph comes from the host; it is carried anyway to the devices that its
//     readers are wanted on, and costs extra elsewhere;
//   - constants, and weights and state that no run changes, are carried once, not per run: free;
//   - what a run updates lies where the new content is made, and is carried to other readers.
//
// Between two devices this is a minimum cut, so a stretch of nodes leaves its neighbours only if it
// gains more than its transfers and its region cost. With more devices, each pair of them is cut
// in turn (alpha-beta swaps), until no pair gains. Each cut is near-linear (min_cut.hpp).
//
// A cut cannot count regions. It charges a start for each node on another device than the last
// of the nodes that it waits for, once per such node waited for and device; that is too much where
// one region serves many of them. So nodes are placed with this charge in full, with an eighth of
// it, and without it. Of these placements, and the one in which no node moves, the cheapest is
// taken, with regions as partition() cuts them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "host/rates.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// Seconds that each node takes on each device; kNoDevice where it cannot be.
class NodePrices {
 public:
  static constexpr double kNoDevice = std::numeric_limits<double>::infinity();
  NodePrices(NodeId nodes, uint32_t devices)
      : devices_(devices), seconds_(size_t{nodes} * devices, kNoDevice) {}
  double& at(NodeId n, uint32_t d) { return seconds_[size_t{n} * devices_ + d]; }
  double at(NodeId n, uint32_t d) const { return seconds_[size_t{n} * devices_ + d]; }
  uint32_t devices() const { return devices_; }

 private:
  uint32_t devices_;
  std::vector<double> seconds_;
};

// Per node its device; the wanted one if the node can be on none. together: by node, a number that
// nodes share which must be on one device; they are wanted on one device.
std::vector<uint32_t> place_by_price(const Graph& graph, const NodePrices& prices,
                                     std::span<const NodeId> together,
                                     std::span<const Rates> rates);

// What a run of the nodes takes on these devices: what place_by_price minimizes.
double price_of_placement(const Graph& graph, const NodePrices& prices,
                          std::span<const uint32_t> device_of_node, std::span<const Rates> rates);

}  // namespace tenon::core
