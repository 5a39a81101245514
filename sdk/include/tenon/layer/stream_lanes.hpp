// SPDX-License-Identifier: Apache-2.0
// The lanes of an instance on a device with streams. Lane 0 uses the run's stream. Other lanes have
// their own streams, which begin after the start of the run and end before its end. Waits between
// lanes become events.
#pragma once

#include "../stream_plugin.hpp"

namespace tenon::sdk::layer {

class StreamLanes {
 public:
  explicit StreamLanes(StreamDevice& device) : device_(device) {}
  StreamLanes(const StreamLanes&) = delete;
  StreamLanes& operator=(const StreamLanes&) = delete;
  ~StreamLanes() {
    for (void* s : streams_) device_.stream_destroy(s);
    for (void* e : events_) device_.event_destroy(e);
  }

  // Must not be called during a run. Throws if the binding violates backend.h.
  void bind(const tenon_binding& b, size_t step_count) {
    lane_.clear();
    if (b.lane_count < 2 || !b.lanes) return;
    check(b.lane_count <= TENON_MAX_LANES,
          "a binding of " + std::to_string(b.lane_count) + " lanes");
    std::vector<uint32_t> lane(b.lanes, b.lanes + step_count);
    for (uint32_t l : lane)
      check(l < b.lane_count, "lane " + std::to_string(l) + " of " + std::to_string(b.lane_count));
    event_of_.assign(step_count, TENON_NONE);
    after_.assign(step_count, {});
    uint32_t events = b.lane_count;  // start of the run, and end of each lane
    for (uint32_t i = 0; i < b.wait_count; ++i) {
      const auto& w = *reinterpret_cast<const tenon_lane_wait*>(
          reinterpret_cast<const char*>(b.waits) + i * b.wait_stride);
      check(w.step < step_count && w.after < w.step,
            "step " + std::to_string(w.step) + " waits for step " + std::to_string(w.after));
      if (event_of_[w.after] == TENON_NONE) event_of_[w.after] = events++;
      after_[w.step].push_back(event_of_[w.after]);
    }
    while (streams_.size() + 1 < b.lane_count) streams_.push_back(device_.stream_create());
    while (events_.size() < events) events_.push_back(device_.event_create());
    count_ = b.lane_count;
    lane_ = std::move(lane);
  }

  bool several() const { return !lane_.empty(); }
  uint32_t lane(uint32_t step) const { return several() ? lane_[step] : 0; }
  void* stream(uint32_t step, void* of_run) const {
    const uint32_t l = lane(step);
    return l == 0 ? of_run : streams_[l - 1];
  }

  // Order of calls: begin(); for each step of the program wait(), its work, done(); then end().
  void begin(void* of_run) {
    device_.event_record(events_[0], of_run);
    for (uint32_t l = 1; l < count_; ++l) device_.stream_wait(streams_[l - 1], events_[0]);
  }
  void wait(uint32_t step, void* of_run) {
    for (uint32_t e : after_[step]) device_.stream_wait(stream(step, of_run), events_[e]);
  }
  void done(uint32_t step, void* of_run) {
    if (event_of_[step] != TENON_NONE)
      device_.event_record(events_[event_of_[step]], stream(step, of_run));
  }
  void end(void* of_run) {
    for (uint32_t l = 1; l < count_; ++l) {
      device_.event_record(events_[l], streams_[l - 1]);
      device_.stream_wait(of_run, events_[l]);
    }
  }
  // Cleans up after a run that could not be enqueued completely.
  void abandon() noexcept {
    for (void* s : streams_) try {
        device_.stream_synchronize(s);
      } catch (...) {  // only the first failure is reported
      }
  }

 private:
  StreamDevice& device_;
  uint32_t count_ = 1;
  std::vector<uint32_t> lane_;      // per step; empty: one lane
  std::vector<uint32_t> event_of_;  // per step: the event that others wait for, or TENON_NONE
  std::vector<std::vector<uint32_t>> after_;  // per step: events to wait for
  std::vector<void*> streams_;                // of all lanes but the first
  std::vector<void*> events_;                 // start of the run, ends of lanes, ends of steps
};

}  // namespace tenon::sdk::layer
