// SPDX-License-Identifier: Apache-2.0
// Cuts the order of the nodes into one stretch for each device, and lets what uses gradients follow
// the weights.
#include "plan/rewrite/spread.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/record.hpp"
#include "plan/report.hpp"

namespace tenon::core {
namespace {

constexpr double kSlack = 0.1;  // of a device's part: how far its end may lie from the ideal point

bool is_request(const NodeInfo& node) { return node.op->schema->level == OpLevel::meta; }
bool is_entry(const ValueInfo& v) { return v.space == Space::weight || v.space == Space::state; }

bool has_name(const Graph& graph, const NodeInfo& node) {
  return !node.provenance.empty() ||
         std::ranges::any_of(node.outputs, [&](Value v) { return v && !graph[v].name.empty(); });
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
    fix(home);
    count_costs();
  }

  std::vector<double> run() && {
    if (homed_ > 0 && homed_ >= homeless_)
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
      late_[n] = is_request(g_[n]) || std::ranges::any_of(g_[n].operands, [&](Value v) {
                   return maker(v) != kNone && late_[maker(v)];
                 });
  }

  // Nodes that have no choice: pinned ones, and readers of what has a home. Of several homes, the
  // one of the largest content counts.
  void fix(const HomeOf& home) {
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (!g_[n].pinned) continue;
      fixed_[n] = g_[n].device;
      for (Value v : g_[n].operands)
        if (v && is_entry(g_[v]) && !late_[n]) entry_device_[v.id] = g_[n].device;
    }
    for (const auto* entries : {&g_.weights(), &g_.states()})
      for (Value v : *entries)
        if (home && entry_device_[v.id] == kNone) {
          const uint32_t device = home(g_[v].space, g_[v].name);
          if (device < devices_.size()) entry_device_[v.id] = device;
          (device < devices_.size() ? homed_ : homeless_) += bytes(v);
        }
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (!late_[n] && fixed_[n] == kNone) fixed_[n] = device_of_entries(g_[n]);
  }

  uint32_t device_of_entries(const NodeInfo& node) const {
    uint32_t device = kNone;
    double most = -1;
    for (Value v : node.operands)
      if (v && is_entry(g_[v]) && entry_device_[v.id] != kNone && bytes(v) > most)
        device = entry_device_[v.id], most = bytes(v);
    return device;
  }

  // An entry costs memory where it is first read.
  void count_costs() {
    std::vector<bool> read(g_.value_count());  // by a node that is not late
    for (NodeId n = 0; n < g_.node_count(); ++n)
      for (Value v : g_[n].operands)
        if (v && !late_[n]) read[v.id] = true;
    std::vector<double> entry_cost(g_.value_count());
    bool any_entries = false, gradients = false;
    for (const auto* entries : {&g_.weights(), &g_.states()})
      for (Value v : *entries) entry_cost[v.id] = bytes(v), any_entries |= read[v.id];
    std::vector<bool> counted(g_.value_count());
    std::vector<Value> weight_of(g_.value_count());  // of what comes of gradients: whose they are
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (!late_[n]) continue;
      const NodeInfo& node = g_[n];
      if (is_request(node)) {
        gradients = true;
        for (size_t k = 1; k < node.operands.size(); ++k) {
          const Value v = node.operands[k];
          if (!is_entry(g_[v])) continue;
          entry_cost[v.id] += bytes(v);  // its gradient
          if (node.outputs[k - 1]) weight_of[node.outputs[k - 1].id] = v;
        }
        continue;
      }
      Value weight;
      for (Value v : node.operands)
        if (v && !weight) weight = is_entry(g_[v]) && read[v.id] ? v : weight_of[v.id];
      for (Value v : node.outputs)
        if (v) weight_of[v.id] = weight;
      for (Value v : node.operands) {
        if (!v || !weight || !is_entry(g_[v]) || read[v.id] || counted[v.id]) continue;
        counted[v.id] = true;  // what an optimizer keeps for the weight
        entry_cost[weight.id] += bytes(v);
      }
    }
    counted.assign(counted.size(), false);
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (late_[n]) continue;
      for (Value v : g_[n].operands)
        if (v && is_entry(g_[v]) && !counted[v.id]) {
          counted[v.id] = true;
          cost_[n] += entry_cost[v.id];
        }
      if ((any_entries && !gradients) || g_[n].op->traits & kView) continue;
      for (Value v : g_[n].outputs)
        if (v) cost_[n] += bytes(v);
    }
  }

  void place(NodeId n, uint32_t device) {
    Marks marks = g_[n];
    marks.device = device;
    g_.set_marks(n, marks);
    for (Value v : g_[n].operands)
      if (v && is_entry(g_[v]) && entry_device_[v.id] == kNone) entry_device_[v.id] = device;
  }

  // Most of the entries have a home: the others go where what they read was made.
  void follow() {
    uint32_t device = 0;
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (!late_[n] && fixed_[n] != kNone) {
        device = fixed_[n];
        break;
      }
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (late_[n]) continue;
      NodeId last = kNone;
      for (Value v : g_[n].operands)
        if (maker(v) != kNone && (last == kNone || maker(v) > last)) last = maker(v);
      if (fixed_[n] != kNone)
        device = fixed_[n];
      else if (last != kNone)
        device = g_[last].device;
      place(n, device);
    }
  }

  void cut() {
    const std::vector<double> part = parts();
    const std::vector<double> crossing = crossing_bytes();
    std::vector<double> before(g_.node_count() + 1);  // cost of the free nodes before a node
    for (NodeId n = 0; n < g_.node_count(); ++n)
      before[n + 1] = before[n] + (late_[n] || fixed_[n] != kNone ? 0 : cost_[n]);
    std::vector<NodeId> end(devices_.size(), g_.node_count());  // of each device's stretch
    double ideal = 0;
    for (size_t d = 0; d + 1 < devices_.size(); ++d) {
      ideal += part[d];
      if (ideal >= before.back()) break;
      end[d] = end_of(d ? end[d - 1] : 0, ideal, kSlack * std::min(part[d], part[d + 1]), before,
                      crossing);
    }
    uint32_t device = 0;
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      while (n >= end[device]) ++device;
      if (!late_[n]) place(n, fixed_[n] == kNone ? device : fixed_[n]);
    }
  }

  // The node that begins the next stretch: near the ideal cost, and few bytes cross before it. Of
  // equal ones the last, so that what costs nothing stays with what it reads.
  static NodeId end_of(NodeId begin, double ideal, double slack, const std::vector<double>& before,
                       const std::vector<double>& crossing) {
    NodeId best = begin;
    double fewest = std::numeric_limits<double>::infinity(), nearest = fewest;
    const auto better = [&](NodeId p, double bytes) {
      const double far = std::abs(before[p] - ideal);
      return bytes != fewest ? bytes < fewest : far <= nearest;
    };
    for (NodeId p = begin; p < before.size(); ++p) {
      const double far = std::abs(before[p] - ideal);
      if (far > slack || !better(p, crossing[p])) continue;
      best = p, fewest = crossing[p], nearest = far;
    }
    if (std::isfinite(fewest)) return best;
    for (NodeId p = begin; p < before.size(); ++p)
      if (const double far = std::abs(before[p] - ideal); far <= nearest) best = p, nearest = far;
    return best;
  }

  // How many of the free bytes each device gets.
  std::vector<double> parts() const {
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
      std::vector<double> free(devices_.size());
      for (; to < devices_.size() && devices_[to].tier == devices_[from].tier; ++to) {
        known &= devices_[to].room > 0;
        free[to] = std::max(devices_[to].room - used[to], 0.0);
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
    return is_request(node) ? device_of(node.operands[info.output + 1]) : node.device;
  }

  void place_late() {
    for (NodeId n = 0; n < g_.node_count(); ++n) {
      if (!late_[n]) continue;
      const uint32_t device = place_of_late(g_[n]);
      place(n, device == kNone ? 0 : device);
    }
  }

  // Of operands of one size the last counts: a sum over the gradients of all weights, one by one,
  // then crosses from device to device once.
  uint32_t place_of_late(const NodeInfo& node) const {
    if (node.pinned) return node.device;
    if (is_request(node)) return device_of(node.operands[0]);
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
  double homed_ = 0, homeless_ = 0;     // bytes of entries that no pin decides
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
    if (is_request(node)) continue;
    const std::string name = node_name(graph, node);
    bool is_pinned = false;
    for (size_t k = 0; k < pins.size(); ++k) {
      if (::fnmatch(pins[k].pattern.c_str(), name.c_str(), 0) != 0) continue;
      matched[k] = true;
      if (!is_pinned) pin(n, pins[k].device);
      is_pinned = true;
    }
    if (is_pinned || has_name(graph, node)) continue;
    NodeId last = kNone;
    for (Value v : node.operands)
      if (v && graph[v].node != kNone && (last == kNone || graph[v].node > last))
        last = graph[v].node;
    if (last != kNone && graph[last].pinned) pin(n, graph[last].device);
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
