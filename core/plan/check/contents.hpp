// SPDX-License-Identifier: Apache-2.0
// Looks for bytes that no longer hold what is read of them. Follows what a run does, in its order,
// and believes no lifetime: a value holds its place from the write on until others are written
// there. So it judges all that lifetimes and sharing are made of.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

// Of what a plan's places are to hold: numbers of the graph's values. kNone: known within its
// program only, or of no value.
struct PlanContents {
  std::vector<std::vector<uint32_t>> values{};       // per region, per program value
  std::vector<std::vector<uint32_t>> before{};       // per region, per copy
  std::vector<uint32_t> after{};                     // per copy
  std::vector<uint32_t> inputs{}, constants{};       // each
  std::vector<uint32_t> entries{}, entries_after{};  // each: before the run, and what it becomes
  std::vector<uint32_t> derived{};                   // each; kNone: in a layout of its device
  std::vector<uint32_t> outputs{};                   // per slot
  uint32_t count = 0;                                // of the graph's values
  // For messages: of one of them, of a node by its report.
  std::function<std::string(uint32_t)> value_text{}, node_text{};
};

// A place and the value that it holds at some time.
struct Held {
  uint32_t device = 0;
  Place place;
  uint64_t size = 0;  // bytes
  uint32_t value = kNone;
};

// A run as this check sees it.
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
  uint32_t count = 0;        // values are below it
  std::function<std::string(uint32_t)> value_text{}, node_text{};
};

// Empty when all of a run's reads, copies and ends find their bytes held by their value, views lie
// in their base where they are said to, and within a step only a write that is offered so takes the
// bytes of what is read; else names the step, the value and what holds its bytes. Near-linear.
std::string find_lost(const HeldRun& run);

// Of a plan whose places are set.
std::string check_contents(const Plan& plan, PlanContents contents);

}  // namespace tenon::core
