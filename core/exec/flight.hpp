// SPDX-License-Identifier: Apache-2.0
// One run of a context. Private to exec.
#pragma once

#include <atomic>
#include <exception>

#include "exec/context.hpp"
#include "exec/lease.hpp"
#include "exec/task_run.hpp"

namespace tenon::core {

class Flight : public std::enable_shared_from_this<Flight> {
 public:
  Flight(Context& context, Lease& lease, AppEvents events);
  void run_blocking();
  void run_async();
  // Returns when all of it is enqueued, from this thread, on the streams of the context. A run of
  // several regions is done then.
  void enqueue();
  bool done() const { return end_->done(); }
  // A run that no worker has come to yet is done here: no hand-over and back.
  void wait();
  uint64_t id() const { return id_; }
  bool has_events() const { return !events_.waits.empty() || !events_.records.empty(); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Goes on until the end or, if it does not block, until there is something to wait for: then it
  // returns false, and a worker goes on later.
  bool advance();
  bool take() { return !taken_.exchange(true, std::memory_order_acq_rel); }
  void drive();  // advance to the end, errors kept
  bool wait_in_line();
  void begin();
  bool run_one_region();
  bool run_tasks();
  // What follows a failure that freeing idle memory may mend. False: it is final.
  bool may_try_again(const std::exception_ptr& error);
  void synchronize() noexcept;
  RegionRunner region_runner();
  bool only_enqueues() const;
  void tell_app() noexcept;  // that an asynchronous run ends
  // The trace's slice of what this thread does for the run. It ends before others may go on.
  void begin_part();
  void end_part();
  void hand_in_trace() noexcept;
  void end_well();
  void end_badly(std::exception_ptr error);

  // The context outlives the run and keeps the lease: a worker that drops the last reference to
  // this object must not take devices and plugins with it.
  Context& context_;
  Executable& executable_;
  Lease& lease_;
  const AppEvents events_;
  std::shared_ptr<Completion> end_ = std::make_shared<Completion>();
  std::vector<std::shared_ptr<Completion>> waits_;
  std::exception_ptr error_;
  uint64_t id_;
  std::shared_ptr<Trace> into_;      // null: no trace
  std::unique_ptr<RunTrace> trace_;  // likewise, until it is handed in
  int64_t part_begin_ns_ = 0;
  std::atomic<bool> taken_{false};  // somebody drives it, or has
  bool blocking_ = true;
  bool async_ = false;  // the caller did not ask to wait
  bool enqueues_ = false;
  bool recorded_ = false;  // the app's events
  size_t next_wait_ = 0;
  bool began_ = false;      // something may have been written
  bool enqueued_ = false;   // the one region of the plan
  bool signalled_ = false;  // its event has called back
  bool tried_again_ = false;
  std::shared_ptr<TaskRun> tasks_;  // of several regions, once they have begun
};

}  // namespace tenon::core
