// SPDX-License-Identifier: Apache-2.0
// Binds inputs and outputs of a context, runs it, waits for it, and reads its results.
#include "exec/context.hpp"

#include <algorithm>

#include "exec/derive.hpp"
#include "exec/flight.hpp"

namespace tenon::core {
namespace {

constexpr size_t kMostLeases = 16;

Slot slot_at(const Lease& lease, const Place& place, uint32_t device) {
  return {lease.buffer_at(place, device), place.offset};
}

}  // namespace

Context::Context(std::shared_ptr<Executable> executable) : executable_(std::move(executable)) {}

Context::~Context() {
  if (flight_) flight_->wait();
}

void Context::forbid_in_flight(const char* what) {
  if (!flight_) return;
  if (!flight_->done())
    fail(Code::invalid_argument, "context: ", what, " while a run is under way; wait for it first");
}

void Context::set(std::string_view name, const Type& type, std::span<const std::byte> content) {
  forbid_in_flight("an input is set");
  const Graph& graph = executable_->graph();
  const Value v = graph.find(Space::input, name);
  if (!v) {
    std::string known;
    for (Value i : graph.inputs()) known += cat(known.empty() ? "" : ", ", "'", graph[i].name, "'");
    fail(Code::not_found, "input '", name, "': the graph has no such input",
         known.empty() ? "" : "; it has ", known);
  }
  const Type& wanted = graph.type(v);
  if (type.dtype != wanted.dtype)
    fail(Code::dtype_mismatch, "input '", name, "': expected ", wanted.text(), ", got ",
         type.text());
  bool fits = type.shape.rank() == wanted.shape.rank();
  for (int i = 0; fits && i < type.shape.rank(); ++i)
    fits = is_symbol(wanted.shape[i]) || wanted.shape[i] == type.shape[i];
  if (!fits)
    fail(Code::shape_mismatch, "input '", name, "': expected ", wanted.text(), ", got ",
         type.text());
  if (const uint64_t size = type_bytes(type); content.size() != size)
    fail(Code::invalid_argument, "input '", name, "': ", type.text(), " has ", size, " bytes, got ",
         content.size());
  Input& input = inputs_[std::string(name)];
  input.type = type;
  input.content.assign(content.begin(), content.end());
  ++input.version;
}

Lease& Context::prepare() {
  const Graph& graph = executable_->graph();
  std::map<std::string, Type, std::less<>> types;
  std::string missing;
  for (Value v : graph.inputs()) {
    const auto found = inputs_.find(graph[v].name);
    if (found == inputs_.end())
      missing += cat(missing.empty() ? "'" : ", '", graph[v].name, "'");
    else if (!graph.symbols().empty())
      types.emplace(graph[v].name, found->second.type);
  }
  if (!missing.empty())
    fail(Code::invalid_argument, "run of graph '", graph.name, "': input ", missing, " is not set");

  std::shared_ptr<const BoundPlan> bound;
  if (graph.symbols().empty() && !leases_.empty())
    bound = leases_.front()->bound;
  else
    bound = executable_->plan_for(executable_->bind_inputs(types));
  const Plan& plan = bound->plan;
  auto found = std::find_if(leases_.begin(), leases_.end(),
                            [&](const auto& l) { return l->bound == bound; });
  if (found == leases_.end()) {
    auto lease = std::make_shared<Lease>(bound);
    const size_t devices = plan.devices.size();
    for (const PlannedInput& in : plan.inputs) {
      auto& buffers = lease->inputs.emplace_back(devices);
      for (uint32_t d : in.devices)
        if (const uint64_t size = type_bytes(in.type))
          buffers[d] = plan.devices[d]->buffer(size, "input");
    }
    lease->input_versions.assign(plan.inputs.size(), 0);
    for (const OutputSlot& out : plan.output_slots) {
      const uint64_t size = type_bytes(out.type);
      lease->outputs.push_back(size ? plan.devices[out.device]->buffer(size, "output") : nullptr);
    }
    for (const PlannedRegion& region : plan.regions) {
      Device& device = *plan.devices[region.device];
      lease->events.push_back(device.has_streams() ? device.event() : nullptr);
    }
    if (streams_.empty()) {
      std::vector<std::shared_ptr<Stream>> streams;
      for (const auto& device : plan.devices)
        streams.push_back(device->has_streams() ? device->stream() : nullptr);
      streams_ = std::move(streams);
    }
    leases_.insert(leases_.begin(), std::move(lease));
    if (leases_.size() > kMostLeases) leases_.pop_back();
  } else {
    std::rotate(leases_.begin(), found, found + 1);
  }
  Lease& lease = *leases_.front();

  const Store& store = *executable_->store();
  if (const uint64_t version = store.version(); lease.store_version != version) {
    lease.entries.clear();
    lease.reads.clear();
    lease.updates.clear();
    for (const PlannedEntry& e : plan.entries) {
      auto entry = store.find(e.space, e.name);
      if (!entry)
        fail(Code::not_found, "run of graph '", graph.name, "': ", space_name(e.space), " '",
             e.name, "' is not in the store");
      if (entry->type() != e.type)
        fail(entry->type().dtype != e.type.dtype ? Code::dtype_mismatch : Code::shape_mismatch,
             "run of graph '", graph.name, "': ", space_name(e.space), " '", e.name, "': expected ",
             e.type.text(), ", the store has ", entry->type().text());
      if (e.read()) lease.reads.push_back(entry);
      if (e.updated) lease.updates.push_back(entry);
      lease.entries.push_back(std::move(entry));
    }
    lease.generations.assign(plan.entries.size(), 0);
    lease.store_version = version;
  }
  return lease;
}

// Weights and state. Only what changed since the lease was bound to it is looked at: a model has
// hundreds of weights, and between two tokens all are the same.
void Context::bind_entries(Lease& lease, RunTrace* trace) {
  const Plan& plan = lease.bound->plan;
  const auto changed = [&](size_t e) {
    return lease.generations[e] != lease.entries[e]->generation();
  };
  const auto use = [&](std::shared_ptr<Buffer>& bound, std::shared_ptr<Buffer> now) {
    if (bound != now) bound = std::move(now), lease.ready = false;
  };
  lease.entry_buffers.resize(plan.entries.size());
  for (size_t e = 0; e < plan.entries.size(); ++e) {
    if (!changed(e)) continue;
    const PlannedEntry& planned = plan.entries[e];
    auto& bound = lease.entry_buffers[e];
    bound.resize(plan.devices.size());
    for (uint32_t d : planned.devices) {
      Device& device = *plan.devices[d];
      const Stretch fill(trace && !lease.entries[e]->is_on(device) ? trace : nullptr,
                         Slice::Kind::fill, e);
      use(bound[d], lease.entries[e]->current(device));
    }
    if (const uint32_t d = planned.update_device; planned.updated)
      use(bound[d], lease.entries[e]->target(*plan.devices[d]));
  }
  lease.derived.resize(plan.derived.size());
  for (size_t i = 0; i < plan.derived.size(); ++i) {
    const PlannedDerived& d = plan.derived[i];
    if (!changed(d.entry)) continue;
    use(lease.derived[i], lease.entries[d.entry]->derived(*plan.devices[d.device], d.layout, d.size,
                                                          [&](Buffer& dense, Buffer& derived) {
                                                            derive(plan, d, dense, derived);
                                                          }));
  }
  for (size_t e = 0; e < plan.entries.size(); ++e)
    lease.generations[e] = lease.entries[e]->generation();
}

// Called by the run when its turn has come: contents current, addresses fixed.
void Context::bind(Lease& lease, RunTrace* trace) {
  lease.borrow();
  const Plan& plan = lease.bound->plan;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Input& input = inputs_.find(plan.inputs[i].name)->second;
    if (lease.input_versions[i] == input.version) continue;
    const Stretch write(trace, Slice::Kind::write, i);
    for (const auto& buffer : lease.inputs[i])
      if (buffer) buffer->write(0, input.content.data(), input.content.size());
    lease.input_versions[i] = input.version;
  }
  bind_entries(lease, trace);
  if (lease.ready) return;

  lease.instances.resize(plan.regions.size());
  lease.hosted.resize(plan.regions.size());
  for (size_t r = 0; r < plan.regions.size(); ++r) {
    const PlannedRegion& region = plan.regions[r];
    Binding binding;
    for (const Place& p : region.values) binding.values.push_back(slot_at(lease, p, region.device));
    for (const Place& p : region.scratch)
      binding.scratch.push_back(slot_at(lease, p, region.device));
    if (region.control.plan) {
      auto hosted = std::make_shared<HostedRegion>();
      hosted->run = std::make_unique<ControlRun>(plan, region, lease.bound->functions[r],
                                                 std::move(binding.values), binding.scratch[0],
                                                 hosted->leaves);
      lease.hosted[r] = std::move(hosted);
      continue;
    }
    binding.lanes = &region.lanes;
    if (lease.instances[r])
      lease.instances[r]->rebind(binding);
    else
      lease.instances[r] = plan.devices[region.device]->instantiate(region.program, binding);
  }
  lease.ready = true;
}

std::shared_ptr<Flight> Context::launch() {
  forbid_in_flight("a run is started");
  wait();  // the failure of a run that nobody waited for is told now
  has_results_ = false;
  Lease& lease = prepare();
  last_ = leases_.front();
  flight_ = std::make_shared<Flight>(*this, lease);
  last_run_ = flight_->id();
  return flight_;
}

void Context::run() {
  const auto flight = launch();
  flight_ = nullptr;
  flight->run_blocking();
  has_results_ = true;
}

void Context::run_async() {
  const auto flight = launch();
  flight_ = nullptr;  // none is under way when it does not start
  flight->run_async();
  flight_ = flight;
}

bool Context::done() { return !flight_ || flight_->done(); }

void Context::wait() {
  if (!flight_) return;
  const auto flight = std::move(flight_);
  flight_ = nullptr;
  flight->wait();
  flight->rethrow();
  has_results_ = true;
}

uint32_t Context::number_of(std::string_view output) {
  forbid_in_flight("an output is read");
  if (flight_) wait();
  if (!has_results_)
    fail(Code::invalid_argument, "output '", output,
         "': no run of this context has ended well yet");
  const auto& outputs = last_->bound->plan.outputs;
  for (uint32_t k = 0; k < outputs.size(); ++k)
    if (outputs[k].name == output) return k;
  fail(Code::not_found, "output '", output, "': the graph has no such output");
}

Type Context::output_type(std::string_view output) {
  const uint32_t number = number_of(output);  // there is no last run before this returns
  const Plan& plan = last_->bound->plan;
  return plan.output_slots[plan.outputs[number].slot].type;
}

void Context::get(std::string_view output, void* data, uint64_t size) {
  const uint32_t number = number_of(output);
  const uint32_t slot = last_->bound->plan.outputs[number].slot;
  const Type& type = last_->bound->plan.output_slots[slot].type;
  if (size != type_bytes(type))
    fail(Code::invalid_argument, "output '", output, "': ", type.text(), " has ", type_bytes(type),
         " bytes, got room for ", size);
  if (!size) return;
  const auto into = executable_->runtime().tracing.current();
  RunTrace trace;
  trace.bound = last_->bound, trace.graph = executable_->graph().name, trace.id = last_run_;
  {
    const Stretch read(into ? &trace : nullptr, Slice::Kind::read, number);
    last_->outputs[slot]->read(0, data, size);
  }
  if (into) into->add(std::move(trace));
}

}  // namespace tenon::core
