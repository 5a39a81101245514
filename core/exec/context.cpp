// SPDX-License-Identifier: Apache-2.0
// Binds inputs and outputs of a context, runs it, waits for it, and reads its results.
#include "exec/context.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "exec/context_text.hpp"
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
  if (flight_ && !flight_->done())
    fail(Code::invalid_argument, "context: ", what, " while a run is under way; wait for it first");
  take_next_inputs();
}

void Context::take_next_inputs() {
  for (auto& [name, next] : std::exchange(next_inputs_, {})) {
    Input& input = inputs_[name];
    input.content = std::move(next.content);
    note_set(input, next.type);
  }
}

// Its content is the app's latest.
void Context::note_set(Input& input, const Type& type) {
  input.type = type;
  input.version = ++versions_;
  if (const auto old = std::exchange(input.bound, nullptr)) forget(old, true);
}

void Context::set(std::string_view name, const Type& type, std::span<const std::byte> content) {
  const Graph& graph = executable_->graph();
  const Value v = graph.find(Space::input, name);
  if (!v)
    fail(Code::not_found, "input '", name, "': the graph has no such input",
         inputs_of("; it has ", graph));
  check_type(cat("input '", name, "'"), graph.type(v), type);
  if (const uint64_t size = type_bytes(type); content.size() != size)
    fail(Code::invalid_argument, "input '", name, "': ", type.text(), " has ", size, " bytes, got ",
         content.size());
  if (flight_ && !flight_->done()) {  // the run may still read the content, also when it is retried
    next_inputs_.insert_or_assign(std::string(name),
                                  NextInput{type, {content.begin(), content.end()}});
    return;
  }
  take_next_inputs();
  auto known = inputs_.find(name);
  if (known == inputs_.end()) known = inputs_.emplace(name, Input{}).first;
  known->second.content.assign(content.begin(), content.end());
  note_set(known->second, type);
}

void Context::refuse_missing(std::span<const std::string_view> inputs) const {
  if (inputs.empty()) return;
  fail(Code::invalid_argument, "run of graph '", executable_->graph().name, "': input ",
       list_of("", inputs, std::identity()), " is not set");
}

bool Context::uses_app_memory() const {
  return !bound_outputs_.empty() ||
         std::ranges::any_of(inputs_, [](const auto& i) { return bool(i.second.bound); });
}

Lease& Context::prepare() {
  const Graph& graph = executable_->graph();
  std::map<std::string, Type, std::less<>> types;
  std::vector<std::string_view> missing;
  bool all_set = true;
  for (Value v : graph.inputs()) {
    const auto found = inputs_.find(graph[v].name);
    if (found == inputs_.end()) {
      all_set = false;
      if (executable_->needs(v)) missing.push_back(graph[v].name);
    } else if (!graph.symbols().empty()) {
      types.emplace(graph[v].name, found->second.type);
    }
  }
  refuse_missing(missing);

  std::shared_ptr<const BoundPlan> bound;
  SymbolNumbers numbers;
  std::shared_ptr<const OutputTypes> output_types;
  if (graph.symbols().empty() && !leases_.empty())
    bound = leases_.front()->bound;
  else {
    numbers = executable_->bind_inputs(types);
    bound = executable_->plan_for(numbers, uses_app_memory());
    if (!bound->numbers.empty()) output_types = executable_->output_types(*bound, numbers);
  }
  const Plan& plan = bound->plan;
  if (!all_set) {
    // Ordered nodes, and a plan that is not simplified, read what no output needs.
    for (const PlannedInput& in : plan.inputs)
      if (!in.devices.empty() && !inputs_.contains(in.name) &&
          std::ranges::find(bound->numbers, in.name, &PaddedGraph::Number::input) ==
              bound->numbers.end())
        missing.push_back(in.name);
    refuse_missing(missing);
  }
  make_streams(plan);
  auto found = std::find_if(leases_.begin(), leases_.end(),
                            [&](const auto& l) { return l->bound == bound; });
  if (found == leases_.end()) {
    auto lease = std::make_shared<Lease>(bound);
    lease->numbers = std::move(numbers);
    lease->output_types = std::move(output_types);
    place(*lease);
    for (const PlannedRegion& region : plan.regions) {
      Device& device = *plan.devices[region.device];
      lease->events.push_back(device.has_streams() ? device.event() : nullptr);
    }
    leases_.insert(leases_.begin(), std::move(lease));
    if (leases_.size() > kMostLeases) leases_.pop_back();
  } else {
    std::rotate(leases_.begin(), found, found + 1);
    leases_.front()->numbers = std::move(numbers);
    leases_.front()->output_types = std::move(output_types);
    place(*leases_.front());
  }
  // Memory that other leases were bound to is given up now.
  for (size_t i = 1; i < leases_.size(); ++i)
    if (std::exchange(leases_[i]->moved, false)) leases_[i]->free_instances();
  find_entries(*leases_.front());
  return *leases_.front();
}

void Context::find_entries(Lease& lease) {
  const Plan& plan = lease.bound->plan;
  const Graph& graph = executable_->graph();
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
      use(bound[d], lease.entries[e]->current(device, lease.shared_from_this()));
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
  if (lease.moved) lease.ready = false;
  write_inputs(lease, trace);
  bind_entries(lease, trace);
  if (!lease.ready) bind_instances(lease);
}

// Writes inputs that have changed, and those that a device cannot read in memory of the app.
void Context::write_inputs(Lease& lease, RunTrace* trace) {
  const Plan& plan = lease.bound->plan;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const auto found = inputs_.find(plan.inputs[i].name);
    if (found == inputs_.end()) continue;  // nothing reads it
    const Input& input = found->second;
    if (input.bound || lease.input_versions[i] == input.version) continue;
    const Stretch write(trace, Slice::Kind::write, i);
    Bytes padded;
    if (input.type != plan.inputs[i].type)
      padded = pad_edges(input.type, input.content, plan.inputs[i].type);
    const Bytes& content = padded.empty() ? input.content : padded;
    for (const auto& buffer : lease.inputs[i])
      if (buffer) buffer->write(0, content.data(), content.size());
    lease.input_versions[i] = input.version;
  }
  write_numbers(lease);
  for (const size_t i : lease.copied_inputs) {
    const Stretch write(trace, Slice::Kind::write, i);
    for (const auto& buffer : lease.own_inputs[i])
      if (buffer) inputs_.find(plan.inputs[i].name)->second.bound->copy_to(*buffer);
  }
}

// The numbers of symbols in buckets.
void Context::write_numbers(Lease& lease) {
  const Plan& plan = lease.bound->plan;
  for (size_t i = 0; !lease.bound->numbers.empty() && i < plan.inputs.size(); ++i) {
    const int64_t* number = lease.number_of(plan.inputs[i].name);
    if (!number) continue;
    const auto version = static_cast<uint64_t>(*number);  // at least 1
    if (lease.input_versions[i] == version) continue;
    for (const auto& buffer : lease.inputs[i])
      if (buffer) buffer->write(0, number, sizeof *number);
    lease.input_versions[i] = version;
  }
}

void Context::bind_instances(Lease& lease) {
  const Plan& plan = lease.bound->plan;
  lease.instances.resize(plan.regions.size());
  lease.hosted.resize(plan.regions.size());
  std::vector<Slot> derived;
  for (const auto& buffer : lease.derived) derived.push_back({buffer, 0});
  for (size_t r = 0; r < plan.regions.size(); ++r) {
    const PlannedRegion& region = plan.regions[r];
    Binding binding;
    for (const Place& p : region.values) binding.values.push_back(slot_at(lease, p, region.device));
    for (const Place& p : region.scratch)
      binding.scratch.push_back(slot_at(lease, p, region.device));
    if (region.control.plan) {
      auto hosted = std::make_shared<HostedRegion>();
      hosted->run = std::make_unique<ControlRun>(plan, region, lease.bound->functions[r],
                                                 std::move(binding.values), derived,
                                                 binding.scratch[0], hosted->leaves);
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
  lease.moved = false;
}

std::shared_ptr<Flight> Context::launch() {
  forbid_in_flight("a run is started");
  AppEvents events = std::exchange(events_, {});
  wait();  // the failure of a run that nobody waited for is told now
  has_results_ = false;
  cancel_.store(0, std::memory_order_relaxed);
  Lease& lease = prepare();
  lease.cut_types.clear();
  last_ = leases_.front();
  flight_ = std::make_shared<Flight>(*this, lease, std::move(events));
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
  if (!app_streams_.empty() || flight->has_events())
    flight->enqueue();
  else
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

// Is this output of the plan one that the app did not ask for?
bool Context::is_extent(uint32_t output) const {
  const auto& extents = last_->bound->extents;
  return std::ranges::find(extents, output) != extents.end();
}

uint32_t Context::number_of(std::string_view output) {
  forbid_in_flight("an output is read");
  if (flight_) wait();
  if (!has_results_)
    fail(Code::invalid_argument, "output '", output,
         "': no run of this context has ended well yet");
  const auto& outputs = last_->bound->plan.outputs;
  for (uint32_t k = 0; k < outputs.size(); ++k)
    if (outputs[k].name == output && !is_extent(k)) return k;
  fail(Code::not_found, "output '", output, "': the graph has no such output");
}

const Device& Context::output_device(std::string_view output) {
  const uint32_t number = number_of(output);  // there is no last run before this returns
  const Plan& plan = last_->bound->plan;
  return *plan.devices[plan.output_slots[plan.outputs[number].slot].device];
}

const Type& Context::output_type(std::string_view output) { return type_of(number_of(output)); }

// Of the last run, without padding.
const Type& Context::type_of(uint32_t output) {
  const BoundPlan& bound = *last_->bound;
  const std::string& name = bound.plan.outputs[output].name;
  const Type& type = last_->output_types
                         ? last_->output_types->find(name)->second
                         : bound.plan.output_slots[bound.plan.outputs[output].slot].type;
  if (bound.extents.empty()) return type;
  const auto known = last_->cut_types.find(output);
  if (known != last_->cut_types.end()) return known->second;
  Type cut = type;
  const auto& outputs = executable_->graph().outputs();
  const auto at = std::ranges::find(outputs, name, &Output::name) - outputs.begin();
  for (int i = 0; i < cut.shape.rank(); ++i) {
    const Length& l = bound.lengths[static_cast<size_t>(at)][static_cast<size_t>(i)];
    if (!l || l.number < bound.numbers.size()) continue;
    int64_t extent = 0;
    buffer_of(bound.extents[l.number - bound.numbers.size()])->read(0, &extent, sizeof extent);
    cut.shape[i] = std::clamp<int64_t>(l.times * extent + l.plus, 0, cut.shape[i]);
  }
  return last_->cut_types.emplace(output, cut).first->second;
}

const std::shared_ptr<Buffer>& Context::buffer_of(uint32_t output) {
  const NamedOutput& named = last_->bound->plan.outputs[output];
  const auto& buffer = last_->outputs[named.slot];
  if (!buffer && type_bytes(last_->bound->plan.output_slots[named.slot].type))
    fail(Code::invalid_argument, "output '", named.name,
         "': the memory that the last run wrote is no longer bound");
  return buffer;
}

void Context::get(std::string_view output, void* data, uint64_t size) {
  const uint32_t number = number_of(output);
  const uint32_t slot = last_->bound->plan.outputs[number].slot;
  const Type &type = type_of(number), &whole = last_->bound->plan.output_slots[slot].type;
  if (size != type_bytes(type))
    fail(Code::invalid_argument, "output '", output, "': ", type.text(), " has ", type_bytes(type),
         " bytes, got room for ", size);
  if (!size) return;
  const auto& buffer = buffer_of(number);
  const auto into = executable_->runtime().tracing.current();
  RunTrace trace;
  trace.bound = last_->bound, trace.graph = executable_->graph().name, trace.id = last_run_;
  {
    const Stretch read(into ? &trace : nullptr, Slice::Kind::read, number);
    if (front_is_dense(whole.shape, type.shape)) {
      buffer->read(0, data, size);
    } else {
      Bytes all(type_bytes(whole));
      buffer->read(0, all.data(), all.size());
      cut_front(whole, all, type, {static_cast<std::byte*>(data), size});
    }
  }
  if (into) into->add(std::move(trace));
}

}  // namespace tenon::core
