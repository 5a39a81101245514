// SPDX-License-Identifier: Apache-2.0
// A plan: a graph cut into regions, compiled, with every value given a place. Made once per binding
// of symbols, immutable, shared by all contexts that run it. exec/ gives it buffers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/device.hpp"
#include "host/rates.hpp"
#include "ir/graph.hpp"
#include "plan/memory/layout.hpp"
#include "plan/memory/need.hpp"
#include "plan/memory/partition.hpp"
#include "plan/memory/tasks.hpp"
#include "plan/report.hpp"
#include "plan/rewrite/fold.hpp"
#include "plan/rewrite/spread.hpp"

namespace tenon::core {

// Where a value lies on its device.
enum class Home : uint8_t {
  none,      // no bytes
  arena,     // index: chunk of the device's arena
  input,     // index into Plan::inputs
  output,    // index into Plan::output_slots
  entry,     // index into Plan::entries: a weight or state of the store
  constant,  // index into Plan::constants
  derived,   // index into Plan::derived
};
struct Place {
  Home home = Home::none;
  uint32_t index = 0;
  uint64_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct PlannedCopy {
  uint32_t from_device = 0, to_device = 0;
  Place from, to;
  uint64_t size = 0;
  uint32_t made_in = kNone;  // the region that makes the value; kNone: a copy after the run
};

struct ControlPlan;  // plan/control.hpp
// A node that runs functions. Its operands and outputs are values of the region's program.
struct PlannedControl {
  std::shared_ptr<const ControlPlan> plan{};
  std::vector<uint32_t> operands{}, outputs{};  // by position; kNone = absent
  // By function: the place of each of its derived weights in Plan::derived of the plan around it.
  std::vector<std::vector<uint32_t>> derived{};
};

struct PlannedRegion {
  uint32_t device = 0;
  std::shared_ptr<Program> program{};
  PlannedControl control{};                // where the host runs the region's one node
  std::vector<Place> values{};             // per program value
  std::vector<Place> scratch{};            // per step
  std::vector<PlannedCopy> before{};       // what comes over from other devices
  uint32_t ordered_after = kNone;          // an earlier region that ordered nodes make it wait for
  std::vector<uint32_t> report_of_step{};  // into Plan::reports, kNone = several nodes
  Lanes lanes{};
  std::string lanes_note{};  // why it has one lane where several were asked for
};

struct PlannedInput {
  std::string name;
  Type type;
  std::vector<uint32_t> devices;  // that read it
};
struct PlannedEntry {
  Space space = Space::weight;
  std::string name;
  Type type;
  std::vector<uint32_t> devices;  // that read its dense content
  bool updated = false;
  uint32_t update_device = 0;  // whose copy holds the new content after the run
  bool derived = false;        // a device reads a layout of its own
  bool read() const { return derived || !devices.empty(); }
};
struct Plan;
// A derived weight: what a maker makes of the dense weight, or a program of its device, or the
// program of what the maker makes.
struct PlannedDerived {
  uint32_t entry = 0;
  uint32_t device = 0;
  // Each of one entry and one output. The first takes the dense weight, the others what the one
  // before them makes.
  std::vector<std::shared_ptr<const Plan>> makers{};
  std::shared_ptr<const Plan> function{};  // whose region it is; null: the plan's own
  uint32_t region = kNone;  // the region whose program defines the layout of the result, or kNone
  uint32_t value = 0;       // the value of that region
  std::string layout{};
  uint64_t size = 0;
};
struct PlannedConstant {
  std::shared_ptr<const Bytes> data;
  std::vector<uint32_t> devices;
};
struct OutputSlot {
  Type type;
  uint32_t device = 0;
};
struct NamedOutput {
  std::string name;
  uint32_t slot = 0;
};
struct DeviceArena {
  std::vector<uint64_t> chunks;  // sizes of the buffers to make
  uint64_t peak = 0, bound = 0;
};

struct Plan {
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<PlannedRegion> regions;
  std::vector<PlannedTask> tasks;   // of several regions; empty for one
  std::vector<PlannedCopy> after;   // updates that could not be written in place
  std::vector<DeviceArena> arenas;  // per device
  std::vector<PlannedInput> inputs;
  std::vector<PlannedEntry> entries;
  std::vector<PlannedDerived> derived;
  std::vector<PlannedConstant> constants;
  std::vector<OutputSlot> output_slots;
  std::vector<NamedOutput> outputs;
  std::vector<NodeReport> reports;   // per node of the simplified graph
  std::vector<std::string> remarks;  // about rates, the choice of devices, pins and memory
};

struct PlanOptions {
  bool simplify = true;
  bool fuse = true;  // and raise; only with simplify, and not with decompose_all
  bool decompose_all = false;
  bool batch_invariant = false;  // devices get TENON_HINT_BATCH_INVARIANT
  uint32_t exec_mode = TENON_EXEC_DEFAULT;
  uint32_t lanes = 1;  // at most so many; 1 unless exec_mode is MULTI_STREAM
  bool aot = false;    // CompileOptions::aot
  // Of the devices, in their order, where they are known: nodes go to another device if a run costs
  // less then. May be shorter than the devices.
  std::vector<KnownRates> rates{};
  bool choose_device = false;  // nobody wanted the first device in particular: the cheaper one
  // Of several devices that the app names: the first `named` ones. Nodes are spread over them.
  uint32_t named = 1;
  std::vector<Pin> pins{};
  std::vector<uint64_t> memory_limits{};  // of the named devices, in bytes; 0 or missing = none
  HomeOf home{};                          // empty: nothing has a home
};

// The passes in their order: pins, raise, fuse, spread, gradients, simplify, fuse, products,
// legalize; then, for what legalize decomposed too, simplify, regions, batches; partition, compile,
// memory. graph: bound (numbers only). devices: the named ones, then, where fallback is allowed,
// those that take what these refuse. A plan that exceeds a memory limit is made again with less on
// that device; throws out_of_memory if none keeps the limits.
Plan make_plan(const Graph& graph, std::vector<std::shared_ptr<Device>> devices,
               const PlanOptions& options, const Evaluate& evaluate = {});

// The last pass: regions are compiled, their steps get lanes and their values places.
void place_values(const LegalGraph& legal, std::span<const CutRegion> regions,
                  const PlanOptions& options, Plan& plan);

}  // namespace tenon::core
