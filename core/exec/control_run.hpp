// SPDX-License-Identifier: Apache-2.0
// Runs a node of level control: its functions, trip after trip, at addresses that stay. Private to
// exec.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/executable.hpp"
#include "host/device.hpp"

namespace tenon::core {

// A region inside a function, which an error of the device may come from.
struct ControlLeaf {
  const Plan* plan = nullptr;
  uint32_t region = 0;
  std::string where;  // "scan 'decoder', function body"
};

class FunctionRun;
struct PlannedRoom;

// A hosted region bound to addresses. Nothing is compiled, allocated or bound in a trip.
class ControlRun {
 public:
  using Functions = std::vector<std::shared_ptr<const BoundPlan>>;

  // values: one slot for each value of the region's program. derived: one for each derived weight of
  // the plan. scratch: of its step. leaves: gets the regions inside; their places in it are added to
  // the id of a run.
  ControlRun(const Plan& plan, const PlannedRegion& region, const Functions& functions,
             std::vector<Slot> values, const std::vector<Slot>& derived, Slot scratch,
             std::vector<ControlLeaf>& leaves);
  ~ControlRun();
  ControlRun(const ControlRun&) = delete;
  ControlRun& operator=(const ControlRun&) = delete;

  // With a stream, the work is enqueued, and the caller waits only where a condition is read. A
  // region inside runs under first_id and its place among the leaves.
  void run(uint64_t first_id, Stream* stream, const CancelWord& cancel);
  // Trips that have begun in the run that failed.
  int64_t trips_begun() const { return trips_begun_; }

 private:
  Slot room(const PlannedRoom& room) const;
  Slot operand(size_t k) const;
  Slot output(size_t k) const;  // no buffer where it is not wanted
  std::vector<Slot> derived_of(size_t function) const;
  void make_branch(const Functions& functions, const std::string& who,
                   std::vector<ControlLeaf>& leaves);
  void make_trips(const Functions& functions, const std::string& who,
                  std::vector<ControlLeaf>& leaves);
  void run_branch(uint64_t first_id, Stream* stream, const CancelWord& cancel);
  void run_loop(uint64_t first_id, Stream* stream, const CancelWord& cancel);
  void run_trips(uint64_t first_id, Stream* stream, const CancelWord& cancel);
  void begin_carry(Stream* stream) const;
  void give_carry(size_t side, Stream* stream) const;
  bool read_condition(const Slot& slot, Stream* stream) const;

  const Plan& plan_;
  const PlannedRegion& region_;
  const ControlPlan& control_;
  const std::vector<Slot> values_, derived_;
  const Slot scratch_;
  Slot condition_{};
  std::shared_ptr<Buffer> condition_word_;  // host-visible, of a device with streams
  // branch: then, else. loop: body and condition of one side, then of the other. trips: the body by
  // side.
  std::vector<std::unique_ptr<FunctionRun>> functions_;
  int64_t trips_begun_ = 0;
};

// A hosted region of a lease, with what tells where in it a failure was.
struct HostedRegion {
  std::vector<ControlLeaf> leaves;
  std::unique_ptr<ControlRun> run;
};

}  // namespace tenon::core
