// SPDX-License-Identifier: Apache-2.0
// A program with all addresses fixed, on a device with streams. Enqueues it step by step, or
// records and replays it. Keeps the outcome of each run for those who wait for it.
#pragma once

#include <mutex>
#include <optional>

#include "../stream_plugin.hpp"
#include "stream_errors.hpp"
#include "stream_lanes.hpp"
#include "stream_timers.hpp"

namespace tenon::sdk::layer {

// The outcome of a run whose data may be bad. Streams and events after the run share it. The
// instance settles it before another run reuses the word or records.
class Outcome {
 public:
  struct Trouble {
    tenon_code code;
    uint32_t step;
    int64_t index;
    std::string text;
  };
  Outcome(const CompiledProgram* program, const StreamErrors* errors, uint64_t run_id)
      : program_(program), errors_(errors), run_id_(run_id) {}

  uint64_t run_id() const { return run_id_; }
  // Call it only after the run. nullptr means success.
  const Trouble* settle() {
    const std::lock_guard lock(mutex_);
    if (errors_) {
      if (const auto report = errors_->first()) trouble_ = trouble_of(*report);
      errors_ = nullptr;
      program_ = nullptr;
    }
    return trouble_ ? &*trouble_ : nullptr;
  }
  bool went_well() {
    const std::lock_guard lock(mutex_);
    return !errors_ && !trouble_;
  }

 private:
  Trouble trouble_of(const StreamErrors::Report& report) const {
    const BadData& bad = report.bad;
    Trouble t{bad.code, report.step, bad.position, {}};
    const auto& bodies = program_->program.bodies;
    const StepBody* body = t.step < bodies.size() ? &bodies[t.step] : nullptr;
    if (body) t.text = body->label + ": ";
    if (body && body->kernel.describe)
      t.text += body->kernel.describe(bad);
    else
      t.text += std::string(bad.code == TENON_INDEX_OUT_OF_RANGE ? "an index is out of range"
                                                                 : "the data has no valid result") +
                ", first at element " + std::to_string(bad.position);
    return t;
  }

  std::mutex mutex_;
  const CompiledProgram* program_;
  const StreamErrors* errors_;
  uint64_t run_id_;
  std::optional<Trouble> trouble_;
};
using Outcomes = std::vector<std::shared_ptr<Outcome>>;

class StreamInstance : public Instance {
 public:
  explicit StreamInstance(const CompiledProgram* p)
      : Instance(p),
        device_(stream_device(*p->device)),
        lanes_(device_),
        timers_(device_),
        errors_(device_, *p) {}
  StreamInstance(const StreamInstance&) = delete;
  StreamInstance& operator=(const StreamInstance&) = delete;
  ~StreamInstance() {
    settle();
    forget_recording();
    if (own_) device_.stream_destroy(own_);
  }

  // Must not be called during a run.
  void rebind(const tenon_binding& binding, Where& where) {
    forget_recording();
    runs_ = 0;
    failed_recordings_ = 0;
    bind(binding, where, [&](Call& call, uint32_t step) {
      call.error_place = errors_.place(step);
      call.error = device_.has_addresses() ? call.error_place.address() : call.error_place.handle;
      call.step = step;
    });
    all_bound_ = std::ranges::all_of(steps(), [](const Prepared& s) { return bool{s.launch}; });
    lanes_.bind(binding, program().program.steps.size());
  }

  // The stream for synchronous runs.
  void* own_stream() {
    if (!own_) own_ = device_.stream_create();
    return own_;
  }

  // Enqueues one run. Returns its outcome if the data can make it fail. `measured`: times each
  // step; the steps then run one by one. cancel: may be nullptr; see tenon_run_args. On failure,
  // `step` is the step that could not be enqueued, or TENON_NONE.
  std::shared_ptr<Outcome> enqueue(uint64_t run_id, void* stream, bool measured,
                                   const uint32_t* cancel, uint32_t& step) {
    settle();
    std::shared_ptr<Outcome> outcome;
    if (errors_.any()) {
      // A successful run reports nothing.
      if (!clean_) errors_.reset(stream);
      clean_ = false;
      errors_.forget();
      outcome = std::make_shared<Outcome>(&program(), &errors_, run_id);
    }
    measured_ = measured;
    cancel_ = nullptr;  // a capture is for later runs too
    if (measured) timers_.begin(program().program.steps.size(), stream);
    if (!measured && !recording_ && wants_recording()) record();
    cancel_ = cancel;
    if (recording_ && !measured) {
      throw_if_cancelled(cancel);
      device_.replay(recording_, stream);
    } else {
      run_all(stream, step);
    }
    if (errors_.any()) errors_.fetch(stream);
    cancel_ = nullptr;
    ++runs_;
    last_ = outcome;
    return outcome;
  }

  // Times of the last measured run. Call it after the run.
  void step_times(std::span<tenon_step_time> out) const {
    check(out.size() == timers_.step_count(), "times of " + std::to_string(out.size()) +
                                                  " steps, measured are " +
                                                  std::to_string(timers_.step_count()));
    for (uint32_t i = 0; i < out.size(); ++i) out[i] = timers_.time(i, lanes_.lane(i));
  }

 private:
  bool wants_recording() const {
    if (failed_recordings_ == kMostRecordings) return false;
    if (!device_.records() && !(device_.builds_recordings() && all_bound_)) return false;
    // A single run is faster without capture, and a single step gains nothing.
    const uint32_t mode = program().exec_mode;
    if (mode == TENON_EXEC_STREAM || mode == TENON_EXEC_EAGER) return false;
    if (mode == TENON_EXEC_GRAPH) return !steps().empty();
    return runs_ > 0 && steps().size() > 1;
  }

  void* capture(void* stream) {
    uint32_t step = TENON_NONE;
    device_.record_begin(stream);
    try {
      all_steps(stream, step);
    } catch (...) {
      try {
        if (void* broken = device_.record_end(stream)) device_.recording_destroy(broken);
      } catch (...) {  // only the first failure is reported
      }
      throw;
    }
    return device_.record_end(stream);
  }

  // The order of the program is one that its lanes allow.
  void* build_recording() {
    void* recording = device_.recording_begin();
    try {
      for (const Prepared& prepared : steps()) prepared.launch({nullptr, recording});
      device_.recording_end(recording);
    } catch (...) {
      device_.recording_destroy(recording);
      throw;
    }
    return recording;
  }

  void record() {
    // Without a stream the run fails: that is no matter of recordings.
    void* stream = device_.records() ? own_stream() : nullptr;
    try {
      recording_ = device_.records() ? capture(stream) : build_recording();
    } catch (const std::exception& e) {
      // another user of the device may be the cause
      if (++failed_recordings_ < kMostRecordings) return;
      const std::string text =
          std::string(program().device->plugin->spec->name) +
          ": a program runs step by step, because it could not be recorded: " + e.what();
      program().device->plugin->host->log(2, str(text));
    }
  }

  // Leaves no work on streams that the host does not know.
  void run_all(void* stream, uint32_t& step) {
    if (!lanes_.several()) return all_steps(stream, step);
    try {
      all_steps(stream, step);
    } catch (...) {
      lanes_.abandon();
      throw;
    }
  }

  void all_steps(void* stream, uint32_t& step) {
    if (program().exec_mode == TENON_EXEC_EAGER) {
      if (!each_by_itself(stream, step)) return;
    } else if (lanes_.several()) {
      in_lanes(stream, step);
    } else {
      for (const Prepared& prepared : steps()) one_step(prepared, stream, step);
    }
    step = TENON_NONE;
  }

  void one_step(const Prepared& prepared, void* stream, uint32_t& step) {
    step = prepared.index;
    throw_if_cancelled(cancel_);
    if (measured_) timers_.step_begins(step, stream);
    if (prepared.launch) {
      prepared.launch({stream, nullptr});
    } else {
      Call call = prepared.call;
      call.stream = stream;
      (*prepared.run)(call);
    }
    if (measured_) timers_.step_ended(step, stream);
  }

  // Waits after each step. Returns false, and skips the remaining steps, if the data made a step
  // fail.
  bool each_by_itself(void* stream, uint32_t& step) {
    for (const Prepared& prepared : steps()) {
      one_step(prepared, stream, step);
      const bool may_fail = program().program.bodies[prepared.index].kernel.can_fail;
      if (may_fail) errors_.fetch(stream);
      device_.stream_synchronize(stream);
      if (may_fail && errors_.first()) return false;
    }
    return true;
  }

  // Steps without work take part in waits like all others.
  void in_lanes(void* stream, uint32_t& step) {
    lanes_.begin(stream);
    auto next = steps().begin();
    for (uint32_t i = 0; i < program().program.steps.size(); ++i) {
      lanes_.wait(i, stream);
      if (next != steps().end() && next->index == i)
        one_step(*next++, lanes_.stream(i, stream), step);
      lanes_.done(i, stream);
    }
    step = TENON_NONE;
    lanes_.end(stream);
  }

  void settle() {
    if (last_) clean_ = !last_->settle();
    last_ = nullptr;
  }
  void forget_recording() {
    if (recording_) device_.recording_destroy(recording_);
    recording_ = nullptr;
  }

  StreamDevice& device_;
  StreamLanes lanes_;
  StreamTimers timers_;
  StreamErrors errors_;
  // Attempts at a recording before the instance gives up. A run whose recording failed runs step by
  // step.
  static constexpr int kMostRecordings = 3;
  int failed_recordings_ = 0;
  bool measured_ = false;
  bool all_bound_ = false;            // all steps have launchers
  const uint32_t* cancel_ = nullptr;  // of the run that is being enqueued
  bool clean_ = false;                // the word or records on the device are in their first state
  void* own_ = nullptr;
  void* recording_ = nullptr;
  uint64_t runs_ = 0;
  std::shared_ptr<Outcome> last_;
};

}  // namespace tenon::sdk::layer
