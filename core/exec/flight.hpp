// SPDX-License-Identifier: Apache-2.0
// One run, and what a context keeps for the runs of one plan. Private to exec.
#pragma once

#include <atomic>
#include <exception>

#include "exec/context.hpp"

namespace tenon::core {

struct Lease {
  std::shared_ptr<const BoundPlan> bound;
  std::vector<std::vector<std::shared_ptr<Buffer>>> inputs;  // [input][device]
  std::vector<uint64_t> input_versions;                      // what the buffers hold
  std::vector<std::shared_ptr<Buffer>> outputs;              // [slot]
  std::vector<std::shared_ptr<Entry>> entries;               // [entry]
  std::vector<uint64_t> generations;                         // [entry]: bound below, 0 = none
  std::vector<std::vector<std::shared_ptr<Buffer>>>
      entry_buffers;                             // [entry][device]: what the instances are bound to
  std::vector<std::shared_ptr<Buffer>> derived;  // [derived weight]: likewise
  std::vector<std::vector<std::shared_ptr<Buffer>>> arenas;  // [device][chunk]: likewise
  std::vector<std::shared_ptr<Instance>> instances;          // [region]
  std::vector<std::shared_ptr<Entry>> reads, updates;        // for the store's order
  uint64_t store_version = 0;
  bool ready = false;  // the instances are bound to the buffers above

  std::shared_ptr<Buffer> buffer_at(const Place& place, uint32_t device) const;
};

class Flight : public std::enable_shared_from_this<Flight> {
 public:
  Flight(Context& context, Lease& lease);
  void run_blocking();
  void run_async();
  bool done() const { return end_->done(); }
  // A run that no worker has come to yet is done here: no hand-over and back.
  void wait();
  uint64_t id() const { return id_; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Goes on until the end or, when not blocking, until there is something to wait for: then false,
  // and a worker goes on when it is there.
  bool advance();
  bool take() { return !taken_.exchange(true, std::memory_order_acq_rel); }
  void drive();  // advance to the end, errors kept
  bool wait_in_line();
  void begin();
  bool do_region();
  void run_region(Instance& instance, Stream* stream, Event* done);
  void region_is_done(uint32_t region);
  bool settle(uint32_t device);
  bool settle_all();
  void do_copy(const PlannedCopy& copy);
  // The trace's slice of what this thread does for the run. It ends before others may go on.
  void begin_part();
  void end_part();
  void hand_in_trace() noexcept;
  void end_well();
  void end_badly(std::exception_ptr error);
  [[noreturn]] void explain(const DeviceError& error, uint32_t region) const;

  // The context outlives the run and keeps the lease: a worker that drops the last reference to
  // this object must not take devices and plugins with it.
  Context& context_;
  Executable& executable_;
  Lease& lease_;
  std::shared_ptr<Completion> end_ = std::make_shared<Completion>();
  std::vector<std::shared_ptr<Completion>> waits_;
  std::exception_ptr error_;
  uint64_t id_;
  std::shared_ptr<Trace> into_;      // null: no trace
  std::unique_ptr<RunTrace> trace_;  // likewise, until it is handed in
  int64_t part_begin_ns_ = 0;
  std::atomic<bool> taken_{false};  // somebody drives it, or has
  bool blocking_ = true;
  bool began_ = false;      // something may have been written
  bool signalled_ = false;  // the event that is waited for has called back: it is not asked again
  size_t next_wait_ = 0, next_region_ = 0, next_copy_ = 0;
  std::vector<uint32_t> pending_;  // [device]: region under way on its stream, kNone = none
};

}  // namespace tenon::core
