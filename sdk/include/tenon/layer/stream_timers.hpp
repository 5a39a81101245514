// SPDX-License-Identifier: Apache-2.0
// Begin and end times of the steps of a measured run, converted from the device's clock to the
// host's.
#pragma once

#include <chrono>

#include "../profiler.h"
#include "../stream_plugin.hpp"

namespace tenon::sdk::layer {

class StreamTimers {
 public:
  explicit StreamTimers(StreamDevice& device) : device_(device) {}
  StreamTimers(const StreamTimers&) = delete;
  StreamTimers& operator=(const StreamTimers&) = delete;
  ~StreamTimers() {
    for (void* t : timers_) device_.timer_destroy(t);
  }

  // Starts to measure a run. The stream is idle here, so the device passes the first timer now, up
  // to the latency of a launch.
  void begin(size_t step_count, void* stream) {
    measured_.assign(step_count, false);
    if (!device_.has_timers()) return;
    while (timers_.size() < 2 * step_count + 1) timers_.push_back(device_.timer_create());
    device_.stream_synchronize(stream);
    begin_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count();
    device_.timer_record(timers_[0], stream);
  }
  void step_begins(uint32_t step, void* stream) {
    if (device_.has_timers()) device_.timer_record(timers_[2 * step + 1], stream);
  }
  void step_ended(uint32_t step, void* stream) {
    if (!device_.has_timers()) return;
    device_.timer_record(timers_[2 * step + 2], stream);
    measured_[step] = true;
  }

  // Results of the last run. Call it after the run.
  size_t step_count() const { return measured_.size(); }
  tenon_step_time time(uint32_t step, uint32_t lane) const {
    tenon_step_time t{};
    t.lane = lane;
    if (!measured_[step]) return t;
    t.begin_ns = at(timers_[2 * step + 1]);
    t.end_ns = std::max(t.begin_ns, at(timers_[2 * step + 2]));
    return t;
  }

 private:
  int64_t at(void* timer) const {
    return begin_ns_ + static_cast<int64_t>(1e9 * device_.timer_elapsed(timers_[0], timer));
  }
  StreamDevice& device_;
  std::vector<void*> timers_;  // one for the run, then two per step
  std::vector<bool> measured_;
  int64_t begin_ns_ = 0;
};

}  // namespace tenon::sdk::layer
