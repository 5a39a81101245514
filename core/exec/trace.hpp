// SPDX-License-Identifier: Apache-2.0
// What runs did when: records for a trace, kept compact until somebody asks for them. Off, a run
// looks at one flag and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/device.hpp"

namespace tenon::core {

struct BoundPlan;

int64_t now_ns();  // of the monotonic clock, as plugins give times

// One stretch of a run in one thread. Those of one thread are nested or apart.
struct Slice {
  enum class Kind : uint8_t {
    run,     // a worker that goes on with a run makes another one
    wait,    // for other runs, or for a device
    bind,    // inputs written, addresses fixed
    region,  // index: into Plan::regions; until the plugin's slot returned
    copy,    // index: bytes, from a device to another
    write,   // index: into Plan::inputs; to all devices that read it
    fill,    // index: into Plan::entries; a device gets what it has not, or no longer
    read,    // index: into Plan::outputs; after the run, or in it for bound memory
  };
  Kind kind = Kind::run;
  uint32_t thread = 0;
  uint64_t index = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

struct RegionTimes {
  int64_t begin_ns = 0, end_ns = 0;  // from its start to when it was seen to be done
  std::vector<StepTime> steps;       // empty: the plugin does not say
};

// Of a run, or of an output that was read after it. Several threads may add slices.
struct RunTrace {
  std::shared_ptr<const BoundPlan> bound;
  std::string graph;
  uint64_t id = 0;
  bool failed = false;
  std::vector<Slice> slices;         // in the order of their ends
  std::vector<RegionTimes> regions;  // as many as the plan has; begin 0: did not run

  // Memory that is short costs the record, never the run.
  void add(Slice::Kind kind, int64_t begin_ns, uint64_t index = 0) noexcept;

 private:
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards slices
};

// A slice from here to the end of the block; nothing without a trace.
class Stretch {
 public:
  Stretch(RunTrace* trace, Slice::Kind kind, uint64_t index = 0)
      : trace_(trace), kind_(kind), index_(index), begin_ns_(trace ? now_ns() : 0) {}
  ~Stretch() {
    if (trace_) trace_->add(kind_, begin_ns_, index_);
  }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

 private:
  RunTrace* trace_;
  Slice::Kind kind_;
  uint64_t index_;
  int64_t begin_ns_;
};

// The runs that ended while it was recording.
class Trace {
 public:
  explicit Trace(uint64_t most_slices) : most_slices_(most_slices), begin_ns_(now_ns()) {}
  void add(RunTrace run) noexcept;
  // What comes later is dropped.
  void close();
  int64_t begin_ns() const { return begin_ns_; }
  int64_t end_ns() const { return end_ns_; }
  const std::vector<RunTrace>& runs() const { return runs_; }  // after close
  uint64_t dropped() const { return dropped_; }                // runs beyond the limit

 private:
  const uint64_t most_slices_;
  const int64_t begin_ns_;
  int64_t end_ns_ = 0;
  std::mutex mutex_;
  bool closed_ = false;
  uint64_t slices_ = 0, dropped_ = 0;
  std::vector<RunTrace> runs_;
};

// The trace of a runtime, if there is one. [any thread]
class Tracing {
 public:
  void start(uint64_t most_slices);     // fails when one is recording
  std::shared_ptr<const Trace> stop();  // fails when none is
  std::shared_ptr<Trace> current() {
    if (!on_.load(std::memory_order_relaxed)) return nullptr;
    const std::lock_guard lock(mutex_);
    return trace_;
  }

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::shared_ptr<Trace> trace_;
};

}  // namespace tenon::core
