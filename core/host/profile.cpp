// SPDX-License-Identifier: Apache-2.0
// Measured runs, and the times of their steps, if the plugin has a profiler.
#include "host/call.hpp"

namespace tenon::core {

void Plugin::find_profiler() {
  find<tenon_profiler>(TENON_PROFILER_ID, TENON_PROFILER_SIZE_V1, profiler_,
                       [](const tenon_profiler& t) { return t.run && t.times; });
}

bool Instance::can_measure() const { return program_->device().plugin().profiler().run != nullptr; }

void Instance::run_measured(uint64_t run_id, Stream* stream, Event* done,
                            const CancelWord* cancel) {
  const tenon_run_args args = run_args(run_id, stream, done, cancel);
  const Device& device = program_->device();
  call(device, kFaultRun, "profiler.run",
       [&] { return device.plugin().profiler().run(handle_, &args); });
}

std::vector<StepTime> Instance::step_times(int64_t begin_ns, int64_t end_ns) {
  const Plugin& plugin = program_->device().plugin();
  std::vector<tenon_step_time> raw(program_->steps().size());
  checked(plugin, "profiler.times", [&] {
    return plugin.profiler().times(handle_, raw.data(), sizeof(tenon_step_time),
                                   static_cast<uint32_t>(raw.size()));
  });
  std::vector<StepTime> times;
  for (const tenon_step_time& t : raw) {
    const bool unknown = t.begin_ns == 0 && t.end_ns == 0;
    if (!unknown && (t.begin_ns < begin_ns || t.end_ns < t.begin_ns || t.end_ns > end_ns))
      return {};
    times.push_back({t.begin_ns, t.end_ns, t.lane});
  }
  return times;
}

}  // namespace tenon::core
