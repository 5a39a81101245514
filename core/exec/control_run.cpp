// SPDX-License-Identifier: Apache-2.0
// Binds the functions of a hosted region, and runs them. Slices are copied in and out in the order
// of the stream. The carry has two places, which change roles after each trip.
#include "exec/control_run.hpp"

#include <cstring>

#include "plan/control.hpp"

namespace tenon::core {
namespace {

Slot moved(Slot slot, uint64_t by) {
  slot.offset += by;
  return slot;
}

void copy_bytes(const Slot& to, const Slot& from, uint64_t size, Stream* stream) {
  if (!size || !to.buffer) return;
  void* target = to.buffer->address();
  const void* source = from.buffer->address();
  if (!stream && target && source)
    std::memcpy(static_cast<std::byte*>(target) + to.offset,
                static_cast<const std::byte*>(source) + from.offset, size);
  else
    copy(*to.buffer, to.offset, *from.buffer, from.offset, size, stream);
}

}  // namespace

// A function bound to addresses.
class FunctionRun {
 public:
  // inputs, outputs: by position; an output without a buffer is not wanted.
  FunctionRun(const BoundPlan& bound, const PlannedFunction& function, std::vector<Slot> inputs,
              std::vector<Slot> derived, const std::vector<Slot>& outputs, const Slot& scratch,
              const std::string& who, std::vector<ControlLeaf>& leaves)
      : bound_(bound),
        inputs_(std::move(inputs)),
        derived_(std::move(derived)),
        scratch_(scratch),
        function_(function) {
    const Plan& plan = bound.plan;
    slots_.resize(plan.output_slots.size());
    for (const NamedOutput& o : plan.outputs) {
      const Slot& wanted = outputs[std::stoul(o.name)];
      Slot& slot = slots_[o.slot];
      if (slot.buffer)
        twins_.push_back({slot, wanted, type_bytes(plan.output_slots[o.slot].type)});
      else
        slot = wanted;
    }
    for (uint32_t r = 0; r < plan.regions.size(); ++r) {
      const PlannedRegion& region = plan.regions[r];
      std::vector<Slot> values;
      for (const Place& p : region.values) values.push_back(slot_at(p));
      Part& part = parts_.emplace_back();
      if (region.control.plan) {
        part.control =
            std::make_unique<ControlRun>(plan, region, bound.functions[r], std::move(values),
                                         derived_, slot_at(region.scratch[0]), leaves);
        continue;
      }
      Binding binding;
      binding.values = std::move(values);
      for (const Place& p : region.scratch) binding.scratch.push_back(slot_at(p));
      binding.lanes = &region.lanes;
      part.instance = plan.devices[0]->instantiate(region.program, binding);
      part.leaf = leaves.size();
      leaves.push_back({&plan, r, cat(who, ", function ", function.name)});
    }
  }

  void run(uint64_t first_id, Stream* stream, const CancelWord& cancel) {
    throw_if_cancelled(cancel);
    for (const Part& part : parts_) {
      if (part.control)
        part.control->run(first_id, stream, cancel);
      else
        part.instance->run(first_id + part.leaf, stream, nullptr, &cancel);
    }
    for (const Twin& t : twins_) copy_bytes(t.to, t.from, t.size, stream);
  }

 private:
  struct Part {
    std::shared_ptr<Instance> instance{};
    std::unique_ptr<ControlRun> control{};
    size_t leaf = 0;
  };
  struct Twin {  // a value that is two outputs
    Slot from, to;
    uint64_t size;
  };

  Slot slot_at(const Place& p) const {
    switch (p.home) {
      case Home::arena:
        return moved(scratch_, function_.chunk_at[p.index] + p.offset);
      case Home::input:
        return moved(inputs_[std::stoul(bound_.plan.inputs[p.index].name)], p.offset);
      case Home::output:
        return moved(slots_[p.index], p.offset);
      case Home::constant:
        return {bound_.constants[0][p.index], p.offset};
      case Home::entry:
        return moved(inputs_[std::stoul(bound_.plan.entries[p.index].name)], p.offset);
      case Home::derived:
        return moved(derived_[p.index], p.offset);
      case Home::none:
        break;
    }
    return {};
  }

  const BoundPlan& bound_;
  const std::vector<Slot> inputs_, derived_;
  const Slot scratch_;
  const PlannedFunction& function_;
  std::vector<Slot> slots_;  // of the plan's outputs
  std::vector<Part> parts_;
  std::vector<Twin> twins_;
};

ControlRun::ControlRun(const Plan& plan, const PlannedRegion& region, const Functions& functions,
                       std::vector<Slot> values, const std::vector<Slot>& derived, Slot scratch,
                       std::vector<ControlLeaf>& leaves)
    : plan_(plan),
      region_(region),
      control_(*region.control.plan),
      values_(std::move(values)),
      derived_(derived),
      scratch_(std::move(scratch)) {
  const uint32_t report = region.report_of_step[0];
  const NodeReport& node = plan.reports[report];
  const std::string who =
      node.provenance.empty() ? node.op : cat(node.op, " '", node.provenance, "'");
  if (control_.kind == Control::Kind::branch)
    make_branch(functions, who, leaves);
  else
    make_trips(functions, who, leaves);
}

ControlRun::~ControlRun() = default;

Slot ControlRun::room(const PlannedRoom& room) const {
  return room.size ? moved(scratch_, room.at) : Slot{};
}
Slot ControlRun::operand(size_t k) const {
  const uint32_t value = region_.control.operands[k];
  return value == kNone ? Slot{} : values_[value];
}
Slot ControlRun::output(size_t k) const {
  const auto& outputs = region_.control.outputs;
  return k < outputs.size() && outputs[k] != kNone ? values_[outputs[k]] : Slot{};
}

std::vector<Slot> ControlRun::derived_of(size_t function) const {
  std::vector<Slot> out;
  for (const uint32_t place : region_.control.derived[function]) out.push_back(derived_[place]);
  return out;
}

void ControlRun::make_branch(const Functions& functions, const std::string& who,
                             std::vector<ControlLeaf>& leaves) {
  condition_ = operand(0);
  std::vector<Slot> inputs, outputs;
  for (size_t k = 1; k < region_.control.operands.size(); ++k) inputs.push_back(operand(k));
  for (size_t k = 0; k < region_.control.outputs.size(); ++k) outputs.push_back(output(k));
  for (size_t f = 0; f < functions.size(); ++f)
    functions_.push_back(std::make_unique<FunctionRun>(*functions[f], control_.functions[f], inputs,
                                                       derived_of(f), outputs, scratch_, who,
                                                       leaves));
}

void ControlRun::make_trips(const Functions& functions, const std::string& who,
                            std::vector<ControlLeaf>& leaves) {
  const size_t carry = control_.carry[0].size(), slices = control_.slices.size();
  const bool loop = control_.kind == Control::Kind::loop;
  if (loop) {
    Device& device = *plan_.devices[region_.device];
    condition_ = room(control_.condition);
    if (device.has_streams()) {
      try {
        condition_word_ = device.buffer(sizeof(uint64_t), "condition", TENON_MEMORY_HOST_VISIBLE);
        condition_ = {condition_word_, 0};
      } catch (const Error& e) {
        if (e.code() != Code::unsupported) throw;
        // The device has no such memory: each trip copies the condition from the device's own.
      }
    }
  }
  const auto make = [&](size_t f, size_t side, const std::vector<Slot>& outputs) {
    std::vector<Slot> inputs;
    for (const PlannedRoom& r : control_.carry[side]) inputs.push_back(room(r));
    for (const PlannedRoom& r : control_.slices) inputs.push_back(room(r));
    for (size_t k = carry + slices; k < region_.control.operands.size(); ++k)
      inputs.push_back(operand(k));
    functions_.push_back(std::make_unique<FunctionRun>(*functions[f], control_.functions[f],
                                                       std::move(inputs), derived_of(f), outputs,
                                                       scratch_, who, leaves));
  };
  for (size_t side = 0; side < 2; ++side) {
    std::vector<Slot> outputs;
    for (const PlannedRoom& r : control_.carry[1 - side]) outputs.push_back(room(r));
    for (const PlannedRoom& r : control_.results) outputs.push_back(room(r));
    make(loop ? 1 : 0, side, outputs);
    if (loop) make(0, side, {condition_});
  }
}

void ControlRun::run(uint64_t first_id, Stream* stream, const CancelWord& cancel) {
  trips_begun_ = 0;
  switch (control_.kind) {
    case Control::Kind::branch:
      return run_branch(first_id, stream, cancel);
    case Control::Kind::loop:
      return run_loop(first_id, stream, cancel);
    case Control::Kind::trips:
      return run_trips(first_id, stream, cancel);
  }
}

void ControlRun::run_branch(uint64_t first_id, Stream* stream, const CancelWord& cancel) {
  functions_[read_condition(condition_, stream) ? 0 : 1]->run(first_id, stream, cancel);
}

void ControlRun::run_loop(uint64_t first_id, Stream* stream, const CancelWord& cancel) {
  begin_carry(stream);
  size_t side = 0;
  while (trips_begun_ != control_.trips) {
    ++trips_begun_;  // a trip begins with its condition
    functions_[2 * side + 1]->run(first_id, stream, cancel);
    if (!read_condition(condition_, stream)) break;
    functions_[2 * side]->run(first_id, stream, cancel);
    side = 1 - side;
  }
  give_carry(side, stream);
}

void ControlRun::run_trips(uint64_t first_id, Stream* stream, const CancelWord& cancel) {
  const size_t carry = control_.carry[0].size();
  begin_carry(stream);
  while (trips_begun_ < control_.trips) {
    const int64_t trip = trips_begun_++;
    const size_t side = trip % 2;
    const auto index = static_cast<uint64_t>(control_.reverse ? control_.trips - 1 - trip : trip);
    for (size_t k = 0; k < control_.slices.size(); ++k) {
      const PlannedRoom& slice = control_.slices[k];
      copy_bytes(room(slice), moved(operand(carry + k), index * slice.size), slice.size, stream);
    }
    functions_[side]->run(first_id, stream, cancel);
    for (size_t k = 0; k < control_.results.size(); ++k) {
      const PlannedRoom& result = control_.results[k];
      copy_bytes(moved(output(carry + k), index * result.size), room(result), result.size, stream);
    }
  }
  give_carry(static_cast<size_t>(control_.trips % 2), stream);
}

void ControlRun::begin_carry(Stream* stream) const {
  for (size_t k = 0; k < control_.carry[0].size(); ++k)
    copy_bytes(room(control_.carry[0][k]), operand(k), control_.carry[0][k].size, stream);
}

void ControlRun::give_carry(size_t side, Stream* stream) const {
  for (size_t k = 0; k < control_.carry[side].size(); ++k)
    copy_bytes(output(k), room(control_.carry[side][k]), control_.carry[side][k].size, stream);
}

bool ControlRun::read_condition(const Slot& slot, Stream* stream) const {
  uint8_t value = 0;
  const auto* address = static_cast<const uint8_t*>(slot.buffer->address());
  if (!address) slot.buffer->read(slot.offset, &value, sizeof value, stream);
  if (stream) stream->synchronize();
  if (address) value = address[slot.offset];
  return value != 0;
}

}  // namespace tenon::core
