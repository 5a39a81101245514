// SPDX-License-Identifier: Apache-2.0
// Checks that every read finds the bytes it expects. Follows a run in its order without relying on
// lifetimes: a value holds its bytes from its write until others are written there. So it verifies
// lifetimes and sharing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

// The expected contents of a plan's places, as numbers of graph values. kNone: known only within
// its program, or no value.
struct PlanContents {
  std::vector<std::vector<uint32_t>> values{};       // per region, per program value
  std::vector<std::vector<uint32_t>> before{};       // per region, per copy
  std::vector<uint32_t> after{};                     // per copy
  std::vector<uint32_t> inputs{}, constants{};       // each
  std::vector<uint32_t> entries{}, entries_after{};  // before the run, and after it
  std::vector<uint32_t> derived{};                   // each; kNone: in a layout of its device
  std::vector<uint32_t> outputs{};                   // per slot
  uint32_t count = 0;                                // number of graph values
  // Texts of a value and of a node (by report), for messages.
  std::function<std::string(uint32_t)> value_text{}, node_text{};
};

// A place, and the value that it holds at some time.
struct Held {
  uint32_t device = 0;
  Place place;
  uint64_t size = 0;  // bytes
  uint32_t value = kNone;
};

// A run, as this check sees it.
struct HeldRegion {
  uint32_t device = 0;
  std::span<const ProgramValue> values{};
  std::span<const Step> steps{};
  std::span<const Place> places{}, scratch{};  // per value, per step
  std::span<const uint32_t> contents{};        // per value, as PlanContents::values
  std::span<const PlannedCopy> before{};
  std::span<const uint32_t> copied{};   // per copy: the value
  std::span<const uint32_t> reports{};  // per step, as PlannedRegion::report_of_step
};
struct HeldRun {
  std::vector<Held> given{};  // before the run
  std::vector<HeldRegion> regions{};
  std::span<const PlannedCopy> after{};
  std::span<const uint32_t> copied_after{};
  std::vector<Held> left{};  // after the run
  uint32_t count = 0;        // values are numbered below it
  std::function<std::string(uint32_t)> value_text{}, node_text{};
};

// Returns an empty text if all reads, copies and final contents find the bytes of their value,
// views are inside their base at the declared offset, and within a step only a write declared as
// in-place overwrites the bytes of an operand. Otherwise names the step, the value, and the value
// that holds its bytes. Near-linear.
std::string find_lost(const HeldRun& run);

// Checks a plan whose places are assigned.
std::string check_contents(const Plan& plan, PlanContents contents);

}  // namespace tenon::core
