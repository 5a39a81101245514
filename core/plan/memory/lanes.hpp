// SPDX-License-Identifier: Apache-2.0
// Which steps of a program may run beside each other: every step gets a lane, and waits for steps
// of other lanes. Pure arithmetic over what steps touch; knows neither graphs nor devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/device.hpp"

namespace tenon::core {

struct LaneStep {
  std::vector<uint32_t> reads{}, writes{};  // ids of memory: equal ids lie at one address
  uint64_t cost = 0;                        // time, in bytes that would be moved meanwhile
  bool work = true;                         // false: nothing runs (a view)
  bool ordered = false;                     // keeps its place among the ordered ones
};

// At most `most` lanes (1 to TENON_MAX_LANES) for steps in the order of a program. Of two steps
// that touch the same memory, one of them writing, the later waits for the earlier, directly or by
// way of others. A step begins on the lane where it may begin first; what is gained by that must be
// worth a wait. No lane runs far ahead of another, so that memory comes free soon: any step begins
// after those that lie twice kLaneBlock and more before it. Deterministic, near-linear.
Lanes assign_lanes(std::span<const LaneStep> steps, uint32_t most);
inline constexpr uint32_t kLaneBlock = 8;

// What lanes and waits say of any two steps.
class LaneOrder {
 public:
  LaneOrder(const Lanes& lanes, size_t step_count);
  // Is `first` done before `second` begins, whatever the lanes' speeds? Not for a step and itself.
  bool before(uint32_t first, uint32_t second) const;
  // The latest step of the program that may begin before `step` is done; `step` itself at least.
  uint32_t latest_beside(uint32_t step) const;

 private:
  uint32_t& known(uint32_t step, uint32_t lane) { return known_[size_t{step} * lanes_ + lane]; }
  uint32_t known(uint32_t step, uint32_t lane) const {
    return known_[size_t{step} * lanes_ + lane];
  }
  uint32_t lanes_;
  std::vector<uint32_t> lane_, at_;           // per step: its lane, its position there
  std::vector<std::vector<uint32_t>> steps_;  // per lane
  std::vector<uint32_t> known_;               // per step and lane: how many are done before it
};

}  // namespace tenon::core
