// SPDX-License-Identifier: Apache-2.0
// The lanes of an instance on a device with streams: lane 0 runs on the run's stream, the others on
// streams of their own that begin behind it and end before it; what core says of waits becomes
// events.
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

  // Not while it runs. Throws when the binding is not what backend.h says.
  void bind(const tenon_binding& b, size_t step_count) {
    lane_.clear();
    if (!TENON_HAS(tenon_binding, &b, wait_count) || b.lane_count < 2 || !b.lanes) return;
    check(b.lane_count <= TENON_MAX_LANES,
          "a binding of " + std::to_string(b.lane_count) + " lanes");
    std::vector<uint32_t> lane(b.lanes, b.lanes + step_count);
    for (uint32_t l : lane)
      check(l < b.lane_count, "lane " + std::to_string(l) + " of " + std::to_string(b.lane_count));
    event_of_.assign(step_count, TENON_NONE);
    after_.assign(step_count, {});
    uint32_t events = b.lane_count;  // where the run begins, and where lanes end
    for (uint32_t i = 0; i < b.wait_count; ++i) {
      const tenon_lane_wait& w = b.waits[i];
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

  // A run: begin, then for each step of the program in order wait, its work, done; then end.
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
  // After a run that could not be enqueued to its end: nothing of it is left behind.
  void abandon() noexcept {
    for (void* s : streams_) try {
        device_.stream_synchronize(s);
      } catch (...) {  // the first failure is the one to tell
      }
  }

 private:
  StreamDevice& device_;
  uint32_t count_ = 1;
  std::vector<uint32_t> lane_;                // per step; empty: one lane
  std::vector<uint32_t> event_of_;            // per step: what others wait for, TENON_NONE = nobody
  std::vector<std::vector<uint32_t>> after_;  // per step: events
  std::vector<void*> streams_;                // of the lanes but the first
  std::vector<void*> events_;                 // the run's begin, the lanes' ends, the steps'
};

}  // namespace tenon::sdk::layer
