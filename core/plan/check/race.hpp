// SPDX-License-Identifier: Apache-2.0
// Looks for steps that touch the same bytes in an order that no wait fixes. Knows addresses and
// lanes only, not why a value lies where it lies: so it judges all that lanes and places are made
// of.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

struct Access {
  Place place;
  uint64_t size = 0;  // bytes
  bool writes = false;
};

// Empty when any two steps that touch the same bytes, one of them writing, run in the program's
// order whatever the speed of the lanes; else names two. accesses: per step. Near-linear.
std::string find_race(const Lanes& lanes, const std::vector<std::vector<Access>>& accesses);

// Of each region of a plan whose places are set.
std::string check_races(const Plan& plan);

}  // namespace tenon::core
