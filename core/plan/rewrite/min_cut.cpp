// SPDX-License-Identifier: Apache-2.0
// Push-relabel. The source is the first side, the sink the second; neither is a node.
#include "plan/rewrite/min_cut.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::core {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr int64_t kUnits = int64_t{1} << 50;  // that all flow together is at most
constexpr int64_t kNever = int64_t{1} << 60;  // more than any flow saturates
constexpr uint64_t kWorkBetweenHeights = 6;   // arcs looked at, for each node and arc

class Preflow {
 public:
  struct Arc {
    uint32_t to, back;  // back: the arc in the other direction
    int64_t room;
  };

  Preflow(uint32_t nodes, size_t pairs)
      : first_arc_(nodes + 1),
        arcs_(2 * pairs),
        excess_(nodes),
        to_sink_(nodes),
        height_(nodes),
        next_arc_(nodes),
        next_(nodes),
        previous_(nodes),
        active_(nodes),
        top_(nodes + 1, kNobody) {}

  // Arcs are added in two passes: how many each node has, then the arcs.
  void count(uint32_t a, uint32_t b) { ++first_arc_[a + 1], ++first_arc_[b + 1]; }
  void counted() {
    std::partial_sum(first_arc_.begin(), first_arc_.end(), first_arc_.begin());
    std::copy(first_arc_.begin(), first_arc_.end() - 1, next_arc_.begin());
  }
  void add(uint32_t from, uint32_t to, int64_t room) {
    const uint32_t there = next_arc_[from]++, back = next_arc_[to]++;
    arcs_[there] = {to, back, room};
    arcs_[back] = {from, there, 0};
  }
  void add_terminal(uint32_t n, int64_t from_source, int64_t to_sink) {
    const int64_t through = std::min(from_source, to_sink);
    excess_[n] = from_source - through;
    to_sink_[n] = to_sink - through;
  }

  std::vector<bool> run(uint64_t most_work) {
    const uint64_t size = nodes() + arcs_.size();
    set_heights();
    uint64_t since = 0;
    for (uint64_t work = 0; !queue_.empty() && work < most_work * size;) {
      const uint64_t done = discharge(take());
      work += done, since += done;
      if (since < kWorkBetweenHeights * size) continue;
      set_heights();
      work += size, since = 0;
    }
    set_heights();  // whoever reaches the sink is on its side
    std::vector<bool> second(nodes());
    for (uint32_t n = 0; n < nodes(); ++n) second[n] = height_[n] < nodes() + 1;
    return second;
  }

 private:
  uint32_t nodes() const { return static_cast<uint32_t>(excess_.size()); }
  uint32_t dead() const { return nodes() + 1; }  // the height of nodes that do not reach the sink

  uint32_t take() {
    const uint32_t n = queue_[begin_++];
    if (begin_ == queue_.size()) queue_.clear(), begin_ = 0;
    active_[n] = false;
    return n;
  }
  void activate(uint32_t n) {
    if (active_[n] || excess_[n] == 0 || height_[n] == dead()) return;
    active_[n] = true;
    queue_.push_back(n);
  }

  // Nodes by height, in lists.
  void enter(uint32_t n) {
    const uint32_t h = height_[n];
    previous_[n] = kNobody, next_[n] = top_[h];
    if (top_[h] != kNobody) previous_[top_[h]] = n;
    top_[h] = n;
    highest_ = std::max(highest_, h);
  }
  void leave(uint32_t n) {
    if (previous_[n] != kNobody)
      next_[previous_[n]] = next_[n];
    else
      top_[height_[n]] = next_[n];
    if (next_[n] != kNobody) previous_[next_[n]] = previous_[n];
  }

  // The number of arcs to the sink, in a search from there.
  void set_heights() {
    std::ranges::fill(height_, dead());
    std::ranges::fill(top_, kNobody);
    active_.assign(nodes(), false);
    highest_ = 0;
    std::vector<uint32_t> found;
    found.reserve(nodes());
    for (uint32_t n = 0; n < nodes(); ++n)
      if (to_sink_[n] > 0) height_[n] = 1, found.push_back(n);
    for (size_t k = 0; k < found.size(); ++k) {
      const uint32_t n = found[k];
      for (uint32_t a = first_arc_[n]; a < first_arc_[n + 1]; ++a) {
        const uint32_t before = arcs_[a].to;
        if (height_[before] != dead() || arcs_[arcs_[a].back].room == 0) continue;
        height_[before] = height_[n] + 1;
        found.push_back(before);
      }
    }
    queue_.clear(), begin_ = 0;
    for (uint32_t n : found) {
      next_arc_[n] = first_arc_[n];
      enter(n);
    }
    for (uint32_t n : found) activate(n);
  }

  // Returns the work.
  uint64_t discharge(uint32_t n) {
    uint64_t work = 1;
    while (excess_[n] > 0 && height_[n] != dead()) {
      if (height_[n] == 1 && to_sink_[n] > 0) {
        const int64_t flow = std::min(excess_[n], to_sink_[n]);
        excess_[n] -= flow, to_sink_[n] -= flow;
        continue;
      }
      for (; next_arc_[n] < first_arc_[n + 1] && excess_[n] > 0; ++next_arc_[n], ++work) {
        Arc& arc = arcs_[next_arc_[n]];
        if (arc.room == 0 || height_[n] != height_[arc.to] + 1) continue;
        const int64_t flow = std::min(excess_[n], arc.room);
        arc.room -= flow, arcs_[arc.back].room += flow;
        excess_[n] -= flow, excess_[arc.to] += flow;
        activate(arc.to);
        if (arc.room > 0) break;  // the excess is gone, and the arc is not full
      }
      if (excess_[n] > 0) work += relabel(n);
    }
    return work;
  }

  uint64_t relabel(uint32_t n) {
    const uint32_t before = height_[n];
    uint32_t lowest = to_sink_[n] > 0 ? 0 : dead();
    for (uint32_t a = first_arc_[n]; a < first_arc_[n + 1]; ++a)
      if (arcs_[a].room > 0) lowest = std::min(lowest, height_[arcs_[a].to]);
    leave(n);
    height_[n] = std::min(lowest + 1, dead());
    next_arc_[n] = first_arc_[n];
    uint64_t work = 1 + first_arc_[n + 1] - first_arc_[n];
    if (height_[n] != dead()) enter(n);
    if (top_[before] == kNobody) work += close_gap(before);
    return work;
  }

  // No node has this height: those above it do not reach the sink.
  uint64_t close_gap(uint32_t height) {
    uint64_t work = 1;
    for (uint32_t h = height + 1; h <= highest_; ++h, ++work)
      for (uint32_t& n = top_[h]; n != kNobody; ++work) {
        const uint32_t above = n;
        n = next_[above];
        height_[above] = dead();
      }
    highest_ = height;
    return work;
  }

  std::vector<uint32_t> first_arc_;  // by node, and the end
  std::vector<Arc> arcs_;
  std::vector<int64_t> excess_, to_sink_;  // by node
  std::vector<uint32_t> height_, next_arc_, next_, previous_;
  std::vector<bool> active_;
  std::vector<uint32_t> top_;  // by height: the first node of its list
  uint32_t highest_ = 0;
  std::vector<uint32_t> queue_;  // of active nodes, from begin_ on
  size_t begin_ = 0;
};

}  // namespace

std::vector<bool> MinCut::run(uint64_t most_work) const {
  double sum = 0;
  for (const Terminal& t : terminal_) sum += t.first + t.second;
  const double scale = sum > 0 ? static_cast<double>(kUnits) / sum : 0;
  const auto units = [&](double cost) {
    return std::llround(std::min(cost * scale, static_cast<double>(kNever)));
  };
  Preflow flow(static_cast<uint32_t>(terminal_.size()), pairs_.size());
  for (const Pair& p : pairs_) flow.count(p.first, p.second);
  flow.counted();
  for (const Pair& p : pairs_) flow.add(p.first, p.second, p.cost < 0 ? kNever : units(p.cost));
  for (uint32_t n = 0; n < terminal_.size(); ++n)
    flow.add_terminal(n, units(terminal_[n].second), units(terminal_[n].first));
  return flow.run(most_work);
}

}  // namespace tenon::core
