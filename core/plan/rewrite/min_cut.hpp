// SPDX-License-Identifier: Apache-2.0
// The cheapest way to part nodes into two sides, where pairs of nodes cost something if they part.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon::core {

// Minimum cut as a maximum preflow: push-relabel in FIFO order, heights computed anew at intervals,
// gaps in the heights found at once (Cherkassky, Goldberg: On implementing the push-relabel method,
// 1997). Worst cases are superlinear, so the work is limited: past the limit, run() returns the cut
// that the preflow has reached. It obeys never(), but it need not be the cheapest.
class MinCut {
 public:
  explicit MinCut(uint32_t nodes) : terminal_(nodes) {}
  uint32_t add_node() {
    terminal_.emplace_back();
    return static_cast<uint32_t>(terminal_.size() - 1);
  }

  // Costs are not negative. What n costs on either side.
  void add_sides(uint32_t n, double on_first, double on_second) {
    terminal_[n].first += on_first;
    terminal_[n].second += on_second;
  }
  // Costs so much if `first` is on the first side and `second` is on the second.
  void add_pair(uint32_t first, uint32_t second, double cost) {
    if (cost > 0) pairs_.push_back({first, second, cost});
  }
  // Forbids `first` on the first side with `second` on the second.
  void never(uint32_t first, uint32_t second) { pairs_.push_back({first, second, -1}); }

  // By node: on the second side. most_work: arcs looked at, for each node and arc.
  std::vector<bool> run(uint64_t most_work = 256) const;

 private:
  struct Terminal {
    double first = 0, second = 0;
  };
  struct Pair {
    uint32_t first, second;
    double cost;  // -1: forbidden
  };
  std::vector<Terminal> terminal_;
  std::vector<Pair> pairs_;
};

}  // namespace tenon::core
