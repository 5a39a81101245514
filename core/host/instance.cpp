// SPDX-License-Identifier: Apache-2.0
// Instances over the plugin's table. Measured runs: profile.cpp.
#include "host/instance.hpp"

#include <algorithm>
#include <utility>

#include "host/call.hpp"

namespace tenon::core {
namespace {

// A binding as the plugin sees it. That it fits the program is core's own duty.
struct RawBinding {
  std::vector<tenon_slot> values, scratch;
  std::vector<tenon_lane_wait> waits;
  tenon_binding binding{};

  RawBinding(const Program& program, const Binding& from) {
    check(from.values.size() == program.values().size() &&
              from.scratch.size() == program.steps().size(),
          "a binding of ", from.values.size(), " values and ", from.scratch.size(),
          " scratches for a program of ", program.values().size(), " and ", program.steps().size());
    for (size_t i = 0; i < from.values.size(); ++i) {
      values.push_back(slot(program, from.values[i], program.values()[i].size, "value", i));
    }
    for (size_t i = 0; i < from.scratch.size(); ++i) {
      scratch.push_back(slot(program, from.scratch[i], program.steps()[i].scratch, "scratch", i));
    }
    binding.struct_size = sizeof binding;
    binding.values = values.data();
    binding.scratch = scratch.data();
    binding.slot_stride = sizeof(tenon_slot);
    binding.wait_stride = sizeof(tenon_lane_wait);
    binding.value_count = static_cast<uint32_t>(values.size());
    binding.step_count = static_cast<uint32_t>(scratch.size());
    binding.lane_count = 1;
    if (from.lanes && from.lanes->count > 1) add_lanes(program, *from.lanes);
  }

  void add_lanes(const Program& program, const Lanes& lanes) {
    check(program.device().info().lanes && lanes.lane.size() == program.steps().size(),
          "a binding of ", lanes.count, " lanes for ", program.steps().size(), " steps on ",
          program.device().info().id);
    for (const LaneWait& w : lanes.waits) waits.push_back({w.step, w.after});
    binding.lanes = lanes.lane.data();
    binding.waits = waits.data();
    binding.lane_count = lanes.count;
    binding.wait_count = static_cast<uint32_t>(waits.size());
  }

  static tenon_slot slot(const Program& program, const Slot& from, uint64_t size, const char* what,
                         size_t index) {
    if (!from.buffer) return {nullptr, 0};
    check(&from.buffer->device() == &program.device(), what, " ", index, ": its buffer is on ",
          from.buffer->device().info().id, ", its program on ", program.device().info().id);
    check(from.offset <= from.buffer->size() && size <= from.buffer->size() - from.offset, what,
          " ", index, ": ", size, " bytes at ", from.offset, " in a buffer of ",
          from.buffer->size());
    return {from.buffer->handle(), from.offset};
  }
};

// Each buffer once: bindings name the same few buffers again and again.
std::vector<std::shared_ptr<Buffer>> buffers_of(const Binding& binding) {
  std::vector<std::shared_ptr<Buffer>> all;
  for (const std::vector<Slot>* slots : {&binding.values, &binding.scratch}) {
    for (const Slot& slot : *slots) {
      if (slot.buffer && (all.empty() || all.back() != slot.buffer)) all.push_back(slot.buffer);
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

tenon_instance* make_instance(const Program& program, const RawBinding& raw) {
  const Device& device = program.device();
  return made<tenon_instance>(device, kFaultInstantiate, "instantiate", [&](tenon_instance** out) {
    return table_of(device).instantiate(program.handle(), &raw.binding, out);
  });
}

}  // namespace

Instance::Instance(std::shared_ptr<Program> program, const Binding& binding)
    : program_(std::move(program)), buffers_(buffers_of(binding)) {
  handle_ = make_instance(*program_, RawBinding(*program_, binding));
}
Instance::~Instance() { destroy(handle_); }

void Instance::destroy(tenon_instance* handle) noexcept {
  const Device& device = program_->device();
  give_back(device.plugin(), "instance_destroy",
            [&] { table_of(device).instance_destroy(handle); });
}

void Instance::run(uint64_t run_id, Stream* stream, Event* done, const CancelWord* cancel) {
  const tenon_run_args args = run_args(run_id, stream, done, cancel);
  const Device& device = program_->device();
  call(device, kFaultRun, "run", [&] { return table_of(device).run(handle_, &args); });
}

void Instance::rebind(const Binding& binding) {
  const Device& device = program_->device();
  const RawBinding raw(*program_, binding);
  std::vector<std::shared_ptr<Buffer>> buffers = buffers_of(binding);
  if (table_of(device).rebind) {
    // Should it fail half-way, the instance may still look at the old ones.
    buffers_.insert(buffers_.end(), buffers.begin(), buffers.end());
    call_again(device, kFaultInstantiate, "rebind",
               [&] { return table_of(device).rebind(handle_, &raw.binding); });
  } else {
    tenon_instance* fresh = make_instance(*program_, raw);
    destroy(std::exchange(handle_, fresh));
  }
  buffers_ = std::move(buffers);
}

}  // namespace tenon::core
