// SPDX-License-Identifier: Apache-2.0
// The parts of a run that has several regions, and which of them must end before others begin. All
// else may overlap: regions of different devices, and transfers with regions that do not need them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::core {

struct PlannedRegion;

// A region, or a transfer between devices that a region needs.
struct PlannedTask {
  uint32_t region = 0;
  uint32_t copy = UINT32_MAX;     // index into PlannedRegion::before; kNone: the region itself
  std::vector<uint32_t> after{};  // earlier tasks that must have ended
  uint32_t behind = UINT32_MAX;   // the region before it on its device: this one is enqueued behind
                                  // it on a device with streams, and waits for it on another one
};

// Tasks in the order of the regions, each region after its transfers. `after` covers values, and
// memory that is used again: a transfer may begin when the region that makes its value has ended.
std::vector<PlannedTask> plan_tasks(const std::vector<PlannedRegion>& regions);

}  // namespace tenon::core
