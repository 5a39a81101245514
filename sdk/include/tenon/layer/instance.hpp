// SPDX-License-Identifier: Apache-2.0
// A program with all addresses or handles fixed. Running it is a loop over prepared calls.
#pragma once

#include <chrono>

#include "../profiler.h"
#include "objects.hpp"

namespace tenon::sdk::layer {

// Returns the place of a slot, an empty one if size is 0. Throws if the slot does not hold `size`
// bytes.
inline Place resolve(const DeviceState& device, const tenon_slot& slot, uint64_t size, bool view,
                     const std::string& what) {
  if (size == 0) return {};
  check(slot.buffer != nullptr, what + " has no buffer");
  const Buffer& buffer = *behind<Buffer>(slot.buffer);
  check(slot.offset <= buffer.size && size <= buffer.size - slot.offset,
        what + " needs " + std::to_string(size) + " bytes from " + std::to_string(slot.offset) +
            " of a buffer of " + std::to_string(buffer.size));
  const uint64_t alignment = device.spec.alignment;
  check(view || slot.offset % alignment == 0, what + ": expected an offset that is a multiple of " +
                                                  std::to_string(alignment) + ", got " +
                                                  std::to_string(slot.offset));
  return {buffer.memory, slot.offset};
}

// On a device with host memory, tensors without elements have an address, which nobody reads.
inline void* address_of(const Place& place) {
  alignas(64) static unsigned char nothing[64];
  return place ? place.address() : nothing;
}

inline void throw_if_cancelled(const uint32_t* cancel) {
  if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0)
    throw Failure(TENON_CANCELLED, "the run was cancelled");
}

class Instance {
 public:
  explicit Instance(const CompiledProgram* program) : program_(program) {}
  const CompiledProgram& program() const { return *program_; }

  // Throws Failure, and changes nothing, if a slot is smaller than declared. If a kernel cannot be
  // prepared or bound, `where` names its step. complete(call, step) adds the rest to a call.
  template <class Complete>
  void bind(const tenon_binding& binding, Where& where, Complete complete) {
    const Program& p = program_->program;
    check(binding.value_count == p.values.size() && binding.step_count == p.steps.size(),
          "binding of " + std::to_string(binding.value_count) + " values and " +
              std::to_string(binding.step_count) + " steps to a program of " +
              std::to_string(p.values.size()) + " and " + std::to_string(p.steps.size()));
    std::vector<std::unique_ptr<void*[]>> tables;
    std::vector<std::unique_ptr<Place[]>> place_tables;
    std::vector<Prepared> steps;  // last: launchers do not outlive their tables
    const std::vector<bool> views = view_values(p);
    const bool streams = program_->device->plugin->spec->streams;
    const bool addresses = program_->device->device->has_addresses();
    for (uint32_t i = 0; i < p.steps.size(); ++i) {
      const StepBody& body = p.bodies[i];
      if (!body.kernel.run) continue;
      if (body.kernel.prepare) within(where, i, [&] { body.kernel.prepare(); });
      const size_t in = body.inputs.size(), out = body.outputs.size();
      Place* places = nullptr;
      void** table = nullptr;
      if (addresses)
        table = tables.emplace_back(std::make_unique<void*[]>(in + out)).get();
      else
        places = place_tables.emplace_back(std::make_unique<Place[]>(in + out)).get();
      for (size_t k = 0; k < in + out; ++k) {
        const Location& at = k < in ? body.inputs[k] : body.outputs[k - in];
        if (at.value == TENON_NONE) continue;
        const std::string what =
            "value " + std::to_string(at.value) + " of step " + std::to_string(i);
        Place place = resolve(*program_->device, *tenon_binding_value(&binding, at.value),
                              p.values[at.value].size, views[at.value], what);
        if (place) place.offset += static_cast<uint64_t>(at.displacement);
        if (places)
          places[k] = place;
        else
          table[k] = streams ? place.address() : address_of(place);
      }
      Prepared step{.run = &body.kernel.run, .launch = {}, .call = {}, .index = i};
      if (addresses) step.call.inputs = table, step.call.outputs = table + in;
      if (places) step.call.input_places = places, step.call.output_places = places + in;
      if (body.kernel.scratch != 0) {
        const Place scratch =
            resolve(*program_->device, *tenon_binding_scratch(&binding, i), body.kernel.scratch,
                    false, "scratch of step " + std::to_string(i));
        if (addresses)
          step.call.scratch = scratch.address();
        else
          step.call.scratch_place = scratch;
      }
      complete(step.call, i);
      if (body.kernel.bind)
        within(where, i, [&] {
          step.launch = body.kernel.bind(step.call);
          if (!step.launch) throw Failure(TENON_INTERNAL, "Kernel::bind returned no launcher");
        });
      steps.push_back(std::move(step));
    }
    steps_.swap(steps);
    tables_.swap(tables);
    place_tables_.swap(place_tables);
    times_.clear();
  }
  void bind(const tenon_binding& binding, Where& where) {
    bind(binding, where, [](Call&, uint32_t) {});
  }

  // Never throws, because Device::run() calls it. Stores the failure, if any, in `failure`.
  // cancel: may be nullptr; see tenon_run_args.
  void run(uint64_t run_id, const uint32_t* cancel, tenon_status*& failure) const noexcept {
    each_step(run_id, cancel, failure, [](const Prepared& step) { step.compute(); });
  }
  // The same, with times.
  void run_measured(uint64_t run_id, const uint32_t* cancel, tenon_status*& failure) noexcept {
    each_step(run_id, cancel, failure, [this](const Prepared& step) {
      tenon_step_time& time = times_[step.index];
      time.begin_ns = now();
      step.compute();
      time.end_ns = now();
    });
  }
  // Allocates the times of a measured run; none is known yet.
  void clear_times() { times_.assign(program_->program.steps.size(), {}); }
  const std::vector<tenon_step_time>& times() const { return times_; }

 protected:
  struct Prepared {
    const std::function<void(const Call&)>* run;
    Launcher launch;  // of Kernel::bind, which replaces run; empty = none
    Call call;        // without a stream
    uint32_t index;

    void compute() const {
      if (launch) return launch({});
      (*run)(call);
    }
  };
  const std::vector<Prepared>& steps() const { return steps_; }

 private:
  // On a failure of `work`, `where` names the step.
  template <class Work>
  void within(Where& where, uint32_t step, Work work) const {
    where.step = step;
    where.label = &program_->program.bodies[step].label;
    work();
    where.step = TENON_NONE;
    where.label = nullptr;
  }

  template <class Do>
  void each_step(uint64_t run_id, const uint32_t* cancel, tenon_status*& failure,
                 Do&& run) const noexcept {
    for (const Prepared& step : steps_) {
      try {
        throw_if_cancelled(cancel);
        run(step);
      } catch (...) {
        failure = status_of_exception({program_->device->plugin, "run", run_id, step.index,
                                       &program_->program.bodies[step.index].label});
        return;
      }
    }
  }

  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  static std::vector<bool> view_values(const Program& p) {
    std::vector<bool> views(p.values.size());
    for (const StepBody& body : p.bodies)
      for (const tenon_alias& a : body.aliases)
        if (a.kind == TENON_ALIAS_VIEW) views[a.to] = true;
    return views;
  }

  const CompiledProgram* program_;
  std::vector<std::unique_ptr<void*[]>> tables_;
  std::vector<std::unique_ptr<Place[]>>
      place_tables_;                    // instead of tables_, on devices without addresses
  std::vector<Prepared> steps_;         // behind the tables of their launchers
  std::vector<tenon_step_time> times_;  // per step of the program, of the last measured run
};

}  // namespace tenon::sdk::layer
