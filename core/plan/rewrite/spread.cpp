// SPDX-License-Identifier: Apache-2.0
// Cuts the order of the nodes into one stretch for each device, and lets what uses gradients follow
// the weights.
#include "plan/rewrite/spread.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "ops/record.hpp"
#include "plan/report.hpp"

namespace tenon::core {
namespace {

constexpr double kSlack = 0.1;  // of a device's part: how far its end may lie from the ideal point

bool is_entry(const ValueInfo& v) { return v.space == Space::weight || v.space == Space::state; }

bool has_name(const Graph& graph, const NodeInfo& node) {
  return !node.provenance.empty() ||
         std::ranges::any_of(node.outputs, [&](Value v) { return v && !graph[v].name.empty(); });
}

// The last of the nodes whose results a node reads; kNone: it reads none.
NodeId last_maker(const Graph& graph, const NodeInfo& node) {
  NodeId last = kNone;
  for (Value v : node.operands)
    if (v && graph[v].node != kNone && (last == kNone || graph[v].node > last))
      last = graph[v].node;
  return last;
}

class Spreading {
 public:
  Spreading(Graph& graph, std::span<const SpreadDevice> devices, const HomeOf& home)
      : g_(graph),
        devices_(devices),
        late_(graph.node_count()),
        fixed_(graph.node_count(), kNone),
        cost_(graph.node_count()),
        entry_device_(graph.value_count(), kNone),
        estimate_(devices.size()) {
    find_late();
    find_fixed(home);
    count_costs();
  }

  std::vector<double> run() && {
    if (has_homes_ && fixed_bytes_ >= free_bytes_)
      follow();
    else
      cut();
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (!late_[n]) estimate_[g_[n].device] += cost_[n];
    place_late();
    return std::move(estimate_);
  }

 private:
  double bytes(Value v) const { return static_cast<double>(type_bytes(g_.type(v))); }
  NodeId maker(Value v) const { return v ? g_[v].node : kNone; }

  // Requests for gradients, and what depends on one.
  void find_late() {
    for (NodeId n = 0; n < g_.node_count(); ++n)
      late_[n] = g_[n].op->meta() || std::ranges::any_of(g_[n].operands, [&](Value v) {
                   return maker(v) != kNone && late_[maker(v)];
                 });
  }

  // Nodes that have no choice: pinned ones, and readers of what has a home.
  void find_fixed(const HomeOf& home) {
    if (home)
      for (const auto* entries : {&g_.weights(), &g_.states()})
        for (Value v : *entries)
          if (const uint32_t device = home(g_[v].space, g_[v].name); device < devices_.size())
            entry_device_[v.id] = device, has_homes_ = true;
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (g_[n].pinned)
        fixed_[n] = g_[n].device;
      else if (!late_[n])
        fixed_[n] = device_of_entries(g_[n]);
  }

  // The device of the largest entry that a node reads. One that is small beside the node's other
  // operands is rather copied.
  uint32_t device_of_entries(const NodeInfo& node) const {
    constexpr double kSmall = 1.0 / 16;
    double largest_entry = 0, largest_other = 0;
    for (Value v : node.operands) {
      if (!v) continue;
      double& largest = is_entry(g_[v]) ? largest_entry : largest_other;
      largest = std::max(largest, bytes(v));
    }
    const double least = std::max(largest_entry, largest_other * kSmall);
    for (Value v : node.operands)
      if (v && is_entry(g_[v]) && entry_device_[v.id] != kNone && bytes(v) >= least)
        return entry_device_[v.id];
    return kNone;
  }

  // An entry costs memory where it is first read; with it what gradients and an optimizer keep.
  void count_costs() {
    const std::vector<bool> early = read_early();
    std::vector<double> entry_cost(g_.value_count());
    bool any_entries = false;
    for (const auto* entries : {&g_.weights(), &g_.states()})
      for (Value v : *entries) entry_cost[v.id] = bytes(v), any_entries |= early[v.id];
    const bool gradients = charge_gradients(early, entry_cost);
    std::vector<bool> counted(g_.value_count());
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      const NodeInfo& node = g_[n];
      if (late_[n]) continue;
      for (Value v : node.operands) {
        if (!v || !is_entry(g_[v]) || counted[v.id]) continue;
        counted[v.id] = true;
        cost_[n] += entry_cost[v.id];
        if (g_[v].space == Space::weight && !node.pinned)
          (fixed_[n] == kNone ? free_bytes_ : fixed_bytes_) += bytes(v);
      }
      // Gradients need the intermediates again; without entries nothing else tells nodes apart.
      if ((any_entries && !gradients) || node.op->traits & kView || node.recompute) continue;
      for (Value v : node.outputs)
        if (v) cost_[n] += bytes(v);
    }
  }

  // By value: nodes read it that do not use gradients.
  std::vector<bool> read_early() const {
    std::vector<bool> read(g_.value_count());
    for (NodeId n = 0; n < g_.node_count(); ++n)
      for (Value v : g_[n].operands)
        if (v && !late_[n]) read[v.id] = true;
    return read;
  }

  // Adds the gradients of entries to their costs, and state that is read together with a gradient:
  // what an optimizer keeps. Returns whether there are requests for gradients.
  bool charge_gradients(const std::vector<bool>& early, std::vector<double>& entry_cost) const {
    bool any = false;
    std::vector<bool> counted(g_.value_count());
    std::vector<Value> weight_of(g_.value_count());  // of what comes of gradients: whose they are
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (!late_[n]) continue;
      const NodeInfo& node = g_[n];
      if (node.op->meta()) {
        any = true;
        for (size_t k = 1; k < node.operands.size(); ++k) {
          const Value v = node.operands[k];
          if (!is_entry(g_[v])) continue;
          entry_cost[v.id] += bytes(v);
          if (node.outputs[k - 1]) weight_of[node.outputs[k - 1].id] = v;
        }
        continue;
      }
      Value weight;
      for (Value v : node.operands)
        if (v && !weight) weight = is_entry(g_[v]) && early[v.id] ? v : weight_of[v.id];
      for (Value v : node.outputs)
        if (v) weight_of[v.id] = weight;
      for (Value v : node.operands) {
        if (!v || !weight || !is_entry(g_[v]) || early[v.id] || counted[v.id]) continue;
        counted[v.id] = true;
        entry_cost[weight.id] += bytes(v);
      }
    }
    return any;
  }

  // The first node that reads an entry decides where that is.
  void put_on(NodeId n, uint32_t device) {
    Marks marks = g_[n];
    marks.device = device;
    g_.set_marks(n, marks);
    for (Value v : g_[n].operands)
      if (v && is_entry(g_[v]) && entry_device_[v.id] == kNone) entry_device_[v.id] = device;
  }

  // Weights have homes already: nodes without one go where what they read was made.
  void follow() {
    const auto first = std::ranges::find_if(fixed_, [](uint32_t d) { return d != kNone; });
    uint32_t device = first == fixed_.end() ? 0 : *first;
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (late_[n]) continue;
      const NodeId last = last_maker(g_, g_[n]);
      if (fixed_[n] != kNone)
        device = fixed_[n];
      else if (last != kNone)
        device = g_[last].device;
      put_on(n, device);
    }
  }

  void cut() {
    std::vector<double> free;
    const std::vector<double> part = parts(free);
    const std::vector<double> crossing = crossing_bytes();
    std::vector<double> before(g_.node_count() + 1);  // cost of the free nodes before a node
    for (NodeId n = 0; n < g_.node_count(); ++n)
      before[n + 1] = before[n] + (late_[n] || fixed_[n] != kNone ? 0 : cost_[n]);
    std::vector<NodeId> end(devices_.size(), g_.node_count());  // of each device's stretch
    double ideal = 0;
    for (size_t d = 0; d + 1 < devices_.size(); ++d) {
      ideal += part[d];
      if (ideal >= before.back()) break;
      const NodeId begin = d ? end[d - 1] : 0;
      end[d] = end_of(begin, ideal, kSlack * std::min(part[d], part[d + 1]),
                      before[begin] + free[d], before, crossing);
    }
    uint32_t device = 0;
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      while (n >= end[device]) ++device;
      if (!late_[n]) put_on(n, fixed_[n] == kNone ? device : fixed_[n]);
    }
  }

  // The node that begins the next stretch: near the ideal cost, not behind the most that there is
  // room for, and few bytes cross before it. Of equal ones the last, so that what costs nothing
  // stays with what it reads.
  static NodeId end_of(NodeId begin, double ideal, double slack, double most,
                       const std::vector<double>& before, const std::vector<double>& crossing) {
    NodeId best = begin;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    auto least = std::tuple(true, true, kInfinity, kInfinity);
    for (NodeId p = begin; p < before.size(); ++p) {
      const double far = std::abs(before[p] - ideal);
      const bool near = far <= slack;
      const auto key = std::tuple(before[p] > most, !near, near ? crossing[p] : far, far);
      if (key <= least) best = p, least = key;
    }
    return best;
  }

  // How many bytes of the free nodes each device gets. free: gets the room that each has for them.
  std::vector<double> parts(std::vector<double>& free) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    free.assign(devices_.size(), kInfinity);
    std::vector<double> used(devices_.size());
    double left = 0;
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (late_[n]) continue;
      (fixed_[n] == kNone ? left : used[fixed_[n]]) += cost_[n];
    }
    std::vector<double> part(devices_.size());
    for (size_t from = 0; from < devices_.size();) {
      size_t to = from;
      double room = 0;
      bool known = true;
      for (; to < devices_.size() && devices_[to].tier == devices_[from].tier; ++to) {
        known &= devices_[to].room > 0;
        if (devices_[to].room > 0) free[to] = std::max(devices_[to].room - used[to], 0.0);
        room += free[to];
      }
      const bool last = to == devices_.size();
      const double taken = last || !known ? left : std::min(left, room);
      for (size_t d = from; d < to; ++d)
        part[d] =
            known && room > 0 ? taken * free[d] / room : taken / static_cast<double>(to - from);
      left -= taken;
      from = to;
    }
    return part;
  }

  // By node: what is made before it and read by it or later.
  std::vector<double> crossing_bytes() const {
    std::vector<NodeId> last(g_.value_count(), kNone);
    for (NodeId n = 0; n < g_.node_count(); ++n)
      for (Value v : g_[n].operands)
        if (maker(v) != kNone && !late_[n]) last[v.id] = n;
    std::vector<double> crossing(g_.node_count() + 1);
    for (uint32_t v = 0; v < last.size(); ++v) {
      if (last[v] == kNone) continue;
      crossing[g_[Value{v}].node + 1] += bytes(Value{v});
      crossing[last[v] + 1] -= bytes(Value{v});
    }
    std::partial_sum(crossing.begin(), crossing.end(), crossing.begin());
    return crossing;
  }

  // Where the gradient that a request gives is wanted: with the value that it is for.
  uint32_t device_of(Value v) const {
    const ValueInfo& info = g_[v];
    if (is_entry(info)) return entry_device_[v.id];
    if (info.space != Space::node) return kNone;
    const NodeInfo& node = g_[info.node];
    return node.op->meta() ? device_of(node.operands[info.output + 1]) : node.device;
  }

  void place_late() {
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (!late_[n]) continue;
      const uint32_t device = place_of_late(g_[n]);
      put_on(n, device == kNone ? 0 : device);
    }
  }

  // Of operands of one size the last counts: a sum over the gradients of all weights, one by one,
  // then crosses from device to device once.
  uint32_t place_of_late(const NodeInfo& node) const {
    if (node.pinned) return node.device;
    if (node.op->meta()) return device_of(node.operands[0]);
    uint32_t device = device_of_entries(node);
    if (device != kNone) return device;
    double most = -1;
    for (Value v : node.operands) {
      const uint32_t d = v ? device_of(v) : kNone;
      if (d != kNone && bytes(v) >= most) device = d, most = bytes(v);
    }
    return device;
  }

  Graph& g_;
  std::span<const SpreadDevice> devices_;
  std::vector<bool> late_;              // by node: it is or uses a request for gradients
  std::vector<uint32_t> fixed_;         // by node: the device that it has to be on
  std::vector<double> cost_;            // by node, of those that are not late
  std::vector<uint32_t> entry_device_;  // by value
  std::vector<double> estimate_;        // by device
  bool has_homes_ = false;
  double fixed_bytes_ = 0, free_bytes_ = 0;  // of entries, by the nodes that first read them
};

}  // namespace

std::vector<std::string> pin_nodes(Graph& graph, std::span<const Pin> pins) {
  std::vector<bool> matched(pins.size());
  const auto pin = [&](NodeId n, uint32_t device) {
    Marks marks = graph[n];
    marks.device = device, marks.pinned = true;
    graph.set_marks(n, marks);
  };
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (node.op->meta()) continue;
    const std::string name = node_name(graph, node);
    bool is_pinned = false;
    for (size_t k = 0; k < pins.size(); ++k) {
      if (::fnmatch(pins[k].pattern.c_str(), name.c_str(), 0) != 0) continue;
      matched[k] = true;
      if (!is_pinned) pin(n, pins[k].device);
      is_pinned = true;
    }
    if (is_pinned || has_name(graph, node)) continue;
    const auto reads_entry = [&](Value v) { return v && is_entry(graph[v]); };
    if (std::ranges::any_of(node.operands, reads_entry)) continue;
    if (const NodeId last = last_maker(graph, node); last != kNone && graph[last].pinned)
      pin(n, graph[last].device);
  }
  std::vector<std::string> idle;
  for (size_t k = 0; k < pins.size(); ++k)
    if (!matched[k]) idle.push_back(pins[k].pattern);
  return idle;
}

std::vector<double> spread(Graph& graph, std::span<const SpreadDevice> devices,
                           const HomeOf& home) {
  return Spreading(graph, devices, home).run();
}

}  // namespace tenon::core
