// SPDX-License-Identifier: Apache-2.0
// The plans of the functions that a node runs (if, while, scan). A plan is a tree: each function is
// planned once, for the device of its node, and all of its memory is scratch of the node's step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/control.hpp"
#include "plan/memory/partition.hpp"
#include "plan/plan.hpp"

namespace tenon::core {

// One function. Its inputs and outputs have their positions as names. An input that is a constant in
// the graph around it, or a weight that no run changes, is one in the function too, and then no input.
struct PlannedFunction {
  std::string name;  // "body"
  std::shared_ptr<const Plan> plan;
  std::vector<uint64_t> chunk_at;  // where its arena's chunks lie in the scratch
};

// A value of a function that has a place in the scratch.
struct PlannedRoom {
  uint64_t size = 0;  // bytes
  uint64_t at = 0;    // in the scratch
};

struct ControlPlan {
  Control::Kind kind{};
  int64_t trips = Control::kNoBound;
  bool reverse = false;
  // branch: then, else. loop: condition, body. trips: body.
  std::vector<PlannedFunction> functions;
  std::vector<PlannedRoom> carry[2];  // read in one trip and written in the next, by turns
  std::vector<PlannedRoom> slices;    // of xs
  std::vector<PlannedRoom> results;   // slices of what is stacked
  PlannedRoom condition{};            // loop
  uint64_t scratch = 0;               // bytes of all of these
  uint64_t alignment = 1;             // of the scratch, in bytes

  // The operand of the node that is this weight of a function.
  size_t operand_of(const PlannedEntry& weight) const {
    return std::stoul(weight.name) + (kind == Control::Kind::branch ? 1 : 0);
  }
};

// Throws unsupported, and names the function and its nodes, if the device does not take one of them.
std::shared_ptr<const ControlPlan> plan_control(const Graph& graph, const NodeInfo& node,
                                                const std::shared_ptr<Device>& device,
                                                const PlanOptions& options,
                                                const Evaluate& evaluate);

// A region of one node that the host runs: what it reads and writes, as a program of one step.
PlannedRegion control_region(const Graph& graph, const CutRegion& cut,
                             std::shared_ptr<Device> device);

}  // namespace tenon::core
