// SPDX-License-Identifier: Apache-2.0
// Memory of inputs and outputs that a context shares with the app, and streams and events.
#include <algorithm>
#include <utility>

#include "exec/context.hpp"
#include "exec/context_text.hpp"
#include "exec/lease.hpp"

namespace tenon::core {

// ---- Memory

// Leases stop using the memory. release: at once, also in instances, which otherwise give it up when
// they are bound to something else.
void Context::forget(const std::shared_ptr<AppTensor>& memory, bool release) {
  for (const auto& lease : leases_) {
    bool used = false;
    const auto drop = [&](std::shared_ptr<Buffer>& buffer) {
      if (!buffer || !memory->has(*buffer)) return;
      buffer = nullptr;
      used = lease->moved = true;
    };
    for (auto& buffers : lease->inputs)
      for (auto& buffer : buffers) drop(buffer);
    for (auto& buffer : lease->outputs) drop(buffer);
    if (release && (used || lease->moved)) lease->free_instances();
  }
  ++bindings_;
}

void Context::bind(std::string_view name, std::shared_ptr<AppTensor> memory) {
  forbid_in_flight("memory is bound");
  const Graph& graph = executable_->graph();
  const Value v = graph.find(Space::input, name);
  const auto output = std::ranges::find(graph.outputs(), name, &Output::name);
  const bool is_output = output != graph.outputs().end();
  if (!v && !is_output)
    fail(Code::not_found, "bind '", name, "': the graph has no such input or output",
         inputs_of("; inputs: ", graph), outputs_of("; outputs: ", graph));
  if (v && is_output)
    fail(Code::invalid_argument, "bind '", name,
         "': the graph has an input and an output of this name; expected one of them");
  // The same memory again: what is bound to it, and captured graphs, stay.
  if (AppTensor* before = bound_to(name); before && before->take_over(*memory)) return;
  const std::string who = cat(v ? "input '" : "output '", name, "'");
  const Type& wanted = graph.type(v ? v : output->value);
  if (wanted.dtype != TENON_DTYPE_NONE) check_type(who, wanted, memory->type());
  if (is_output && memory->read_only())
    fail(Code::invalid_argument, who, ": the memory is read-only; expected memory to write to");
  check_apart(who, *memory, is_output);
  try {
    memory->check_home();
    for (const auto& device : executable_->devices()) memory->on(device);
  } catch (const Error& e) {
    fail(e.code(), who, ": ", e.what());
  }

  std::shared_ptr<AppTensor> old;
  if (v) {
    Input& bound = inputs_[std::string(name)];
    bound.type = memory->type();
    bound.content = {};
    bound.version = ++versions_;
    old = std::exchange(bound.bound, std::move(memory));
  } else {
    old = std::exchange(bound_outputs_[std::string(name)], std::move(memory));
  }
  if (old)
    forget(old, false);
  else
    ++bindings_;
}

// The memory that an input or output of this name is bound to, or null.
AppTensor* Context::bound_to(std::string_view name) const {
  if (const auto input = inputs_.find(name); input != inputs_.end() && input->second.bound)
    return input->second.bound.get();
  const auto output = bound_outputs_.find(name);
  return output == bound_outputs_.end() ? nullptr : output->second.get();
}

// A run writes its outputs while it still reads its inputs.
void Context::check_apart(std::string_view who, const AppTensor& memory, bool is_output) const {
  const auto check_one = [&](std::string_view what, std::string_view name, const AppTensor* other) {
    if (!other || !memory.overlaps(*other)) return;
    const std::string whose = cat(what, " '", name, "'");
    if (whose != who)
      fail(Code::invalid_argument, who, ": its memory overlaps that of ", whose,
           "; expected memory of its own");
  };
  for (const auto& [name, other] : bound_outputs_) check_one("output", name, other.get());
  if (!is_output) return;
  for (const auto& [name, input] : inputs_) check_one("input", name, input.bound.get());
}

void Context::unbind(std::string_view name) {
  forbid_in_flight("memory is unbound");
  std::shared_ptr<AppTensor> old;
  if (const auto input = inputs_.find(name); input != inputs_.end() && input->second.bound) {
    old = input->second.bound;
    inputs_.erase(input);
  } else if (const auto output = bound_outputs_.find(name); output != bound_outputs_.end()) {
    old = output->second;
    bound_outputs_.erase(output);
  } else {
    fail(Code::not_found, "unbind '", name, "': no input or output of this name is bound");
  }
  forget(old, true);
}

void Context::place(Lease& lease) {
  if (lease.bindings == bindings_ && !lease.shared) return;
  place_inputs(lease);
  place_outputs(lease);
  lease.bindings = bindings_;
}

void Context::place_inputs(Lease& lease) {
  const Plan& plan = lease.bound->plan;
  lease.copied_inputs.clear();
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const auto input = inputs_.find(plan.inputs[i].name);
    if (input == inputs_.end()) {
      if (lease.number_of(plan.inputs[i].name))
        for (uint32_t d : plan.inputs[i].devices) lease.use_input(i, d, nullptr);
      continue;  // nothing reads the others
    }
    const auto& bound = input->second.bound;
    bool copied = false;
    for (uint32_t d : plan.inputs[i].devices) {
      auto buffer = bound ? bound->on(plan.devices[d]) : nullptr;
      copied |= bound && bound->size() && !buffer;
      lease.use_input(i, d, std::move(buffer));
    }
    if (copied) lease.copied_inputs.push_back(i);
  }
}

void Context::place_outputs(Lease& lease) {
  const Plan& plan = lease.bound->plan;
  // A value may be several outputs. The run writes it in memory of the app only if all are bound;
  // the others get copies.
  std::vector<std::shared_ptr<Buffer>> chosen(plan.output_slots.size());
  std::vector<bool> own(plan.output_slots.size());
  lease.bound_outputs.clear();
  for (size_t k = 0; k < plan.outputs.size(); ++k) {
    const NamedOutput& output = plan.outputs[k];
    const auto bound = bound_outputs_.find(output.name);
    if (bound == bound_outputs_.end()) {
      own[output.slot] = true;
      continue;
    }
    const OutputSlot& slot = plan.output_slots[output.slot];
    check_type(cat("output '", output.name, "'"), slot.type, bound->second->type());
    lease.bound_outputs.push_back({k, bound->second.get(), false});
    if (auto& buffer = chosen[output.slot]; !buffer)
      buffer = bound->second->on(plan.devices[slot.device]);
  }
  for (size_t s = 0; s < chosen.size(); ++s)
    lease.use_output(s, own[s] ? nullptr : std::move(chosen[s]));
  for (BoundOutput& o : lease.bound_outputs) {
    const auto& buffer = lease.outputs[plan.outputs[o.output].slot];
    o.copied = buffer && !o.memory->has(*buffer);
  }
  const auto has_readers = [](const OwnOutput& o) { return !o.is_free(); };
  lease.shared = std::ranges::any_of(
      lease.own_outputs, [&](const auto& own) { return std::ranges::any_of(own, has_readers); });
}

void Context::make_streams(const Plan& plan) {
  if (!streams_.empty()) return;
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& device : plan.devices)
    streams.push_back(device->has_streams() ? stream_on(device) : nullptr);
  streams_ = std::move(streams);
}

std::shared_ptr<Stream> Context::stream_on(const std::shared_ptr<Device>& device) {
  const auto app = app_streams_.find(device.get());
  if (app != app_streams_.end()) return app->second;
  auto& own = own_streams_[device.get()];
  if (!own) own = device->stream();
  return own;
}

// Copies outputs to memory of the app that the run could not write in place.
void Context::finish_outputs(Lease& lease, uint64_t run, RunTrace* trace) {
  for (const BoundOutput& o : lease.bound_outputs) {
    if (o.copied) {
      const Stretch read(trace, Slice::Kind::read, o.output);
      o.memory->copy_from(*lease.outputs[lease.bound->plan.outputs[o.output].slot]);
    }
    o.memory->note_written(run);
  }
}

// Makes the streams wait for the app's events. This thread waits too where the run is not one region
// that is enqueued on that stream.
void Context::wait_for_app(const Lease& lease, const AppEvents& events) {
  const Plan& plan = lease.bound->plan;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    const Device* device = plan.devices[d].get();
    bool waits = app_streams_.contains(device);
    for (const AppEvents::Event& e : events.waits) {
      if (e.device != device) continue;
      streams_[d]->wait_native(e.native);
      waits = true;
    }
    const bool in_order =
        plan.regions.size() == 1 && plan.regions[0].device == d && !lease.copies_app_memory();
    if (waits && !in_order) streams_[d]->synchronize();
  }
}

void Context::record_for_app(const Lease& lease, const AppEvents& events) {
  const Plan& plan = lease.bound->plan;
  for (const AppEvents::Event& e : events.records)
    for (size_t d = 0; d < plan.devices.size(); ++d)
      if (plan.devices[d].get() == e.device) streams_[d]->record_native(e.native);
}

const AppTensor* Context::written_by_last(std::string_view output) const {
  const auto bound = bound_outputs_.find(output);
  if (bound == bound_outputs_.end()) return nullptr;
  return bound->second->written_by() == last_run_ ? bound->second.get() : nullptr;
}

// The address of an output is of use only if what counts lies in one piece.
void Context::refuse_padded(uint32_t output) {
  const NamedOutput& named = last_->bound->plan.outputs[output];
  const Type &whole = last_->bound->plan.output_slots[named.slot].type, &type = type_of(output);
  if (!front_is_dense(whole.shape, type.shape))
    fail(Code::unsupported, "output '", named.name, "': ", type.text(), " lies in a bucket of ",
         whole.text(), " and not in one piece; expected a copy of it, or exact sizes");
}

OutputPlace Context::output_place(std::string_view output) {
  const uint32_t number = number_of(output);
  refuse_padded(number);
  const std::shared_ptr<Buffer> buffer = buffer_of(number);
  if (!buffer) return {};
  if (const AppTensor* memory = written_by_last(output))
    return {memory->address(), memory->other_memory()};
  const Device& device = buffer->device();
  if (device.info().host_addressable) return {buffer->address(), nullptr};
  return {buffer->native_address(), &device};
}

SharedOutput Context::share_output(std::string_view output) {
  const uint32_t number = number_of(output);
  refuse_padded(number);
  const std::shared_ptr<Buffer> buffer = buffer_of(number);
  auto& all = last_->own_outputs[last_->bound->plan.outputs[number].slot];
  const auto own = std::ranges::find(all, buffer, &OwnOutput::buffer);
  if (written_by_last(output) || (buffer && own == all.end()))
    fail(Code::invalid_argument, "output '", output,
         "': it is in memory of the app; expected an output that is not bound");
  if (!buffer) return {};
  last_->shared = true;
  return {buffer, own->readers};
}

// ---- Streams and events

std::shared_ptr<Device> Context::device_named(std::string_view id) const {
  const std::shared_ptr<Device> device = executable_->runtime().host.open(id);
  const auto& devices = executable_->devices();
  if (std::ranges::find(devices, device) != devices.end()) return device;
  fail(Code::invalid_argument, "device ", device->info().id,
       ": the executable does not use it; expected one of ", ids_of(devices));
}

void Context::use_stream(std::string_view id, void* native) {
  forbid_in_flight("a stream is set");
  const auto device = device_named(id);
  device->native_streams();  // fails if there are none
  const auto known = app_streams_.find(device.get());
  if (!native) {
    if (known == app_streams_.end()) return;
    app_streams_.erase(known);
  } else if (known != app_streams_.end() && known->second->native_handle() == native) {
    return;
  } else {
    app_streams_[device.get()] = device->stream(native);
  }
  streams_.clear();
}

void* Context::native_stream(std::string_view id) {
  forbid_in_flight("a stream is asked for");
  const auto device = device_named(id);
  device->native_streams();
  return stream_on(device)->native_handle();
}

void Context::add_event(std::vector<AppEvents::Event>& list, std::string_view id, void* native) {
  forbid_in_flight("an event is set");
  const auto device = device_named(id);
  if (!native) fail(Code::invalid_argument, "device ", device->info().id, ": the event is NULL");
  device->native_streams();
  list.push_back({device.get(), native});
}

void Context::wait_event(std::string_view id, void* native) {
  add_event(events_.waits, id, native);
}
void Context::record_event(std::string_view id, void* native) {
  add_event(events_.records, id, native);
}

void Context::on_end(std::function<void(Code)> callback) {
  forbid_in_flight("a callback is set");
  on_end_ = std::move(callback);
}

}  // namespace tenon::core
