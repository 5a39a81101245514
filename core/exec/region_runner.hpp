// SPDX-License-Identifier: Apache-2.0
// The pieces of a run: regions and transfers, with their trace and their errors in the words of the
// graph. Private to exec.
#pragma once

#include <atomic>
#include <span>

#include "exec/lease.hpp"
#include "exec/trace.hpp"

namespace tenon::core {

// Logs that a thread waits for a region, because its event cannot call back.
void tell_no_callback(const std::exception& why) noexcept;

class RegionRunner {
 public:
  using Streams = std::span<const std::shared_ptr<Stream>>;  // [device], null without streams

  // trace: may be null. All must outlive the run.
  // ids: numbers of runs that are still free.
  RegionRunner(Lease& lease, Streams streams, uint64_t run_id, std::atomic<uint64_t>& ids,
               const CancelWord& cancel, RunTrace* trace)
      : lease_(lease),
        streams_(streams),
        run_id_(run_id),
        ids_(ids),
        cancel_(cancel),
        trace_(trace) {}

  const Plan& plan() const { return lease_.bound->plan; }
  // A hosted region has ended when run() returns.
  bool is_enqueued(uint32_t region) const {
    return stream_of(region) && !plan().regions[region].control.plan;
  }
  Event& event_of(uint32_t region) const { return *lease_.events[region]; }

  // Enqueues a region and records its event; without a stream, returns when it is done.
  void run(uint32_t region) const;
  // Waits for an enqueued region. Regions of a device are waited for in their order, so that a
  // failure is reported by the region that has it.
  void wait(uint32_t region) const;
  // Returns when it is done.
  void copy(const PlannedCopy& copy) const;

 private:
  Stream* stream_of(uint32_t region) const { return streams_[plan().regions[region].device].get(); }
  void run_hosted(uint32_t region) const;
  void run_traced(Instance& instance, uint32_t region) const;
  void note_end(uint32_t region) const;
  [[noreturn]] void explain(const DeviceError& error, uint32_t region) const;

  Lease& lease_;
  Streams streams_;
  uint64_t run_id_;
  std::atomic<uint64_t>& ids_;
  const CancelWord& cancel_;
  RunTrace* trace_;
};

}  // namespace tenon::core
