// SPDX-License-Identifier: Apache-2.0
// Finds work that touches the same bytes in no fixed order: steps of different lanes, and regions
// and transfers of different devices. It knows only addresses, lanes and tasks, not why a value has
// its address, so it checks everything that these are derived from.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

struct Access {
  Place place;
  uint64_t size = 0;  // bytes
  bool writes = false;
  uint32_t device = 0;
};

// Empty when any two steps that touch the same bytes, one of them writing, run in the program's
// order whatever the speed of the lanes; else names two. accesses: per step. Near-linear.
std::string find_race(const Lanes& lanes, const std::vector<std::vector<Access>>& accesses);

// The same for tasks; accesses: per task. Quadratic in the number of tasks.
std::string find_race(const std::vector<PlannedTask>& tasks,
                      const std::vector<std::vector<Access>>& accesses);

// Both, for a plan whose places are set. Plans of more than kMostCheckedTasks tasks are not checked
// for races between tasks.
inline constexpr size_t kMostCheckedTasks = 2048;
std::string check_races(const Plan& plan);

}  // namespace tenon::core
