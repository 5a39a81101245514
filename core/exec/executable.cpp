// SPDX-License-Identifier: Apache-2.0
// Plans a graph once per binding of its symbols, and keeps the plans.
#include "exec/executable.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/log.hpp"
#include "exec/context.hpp"
#include "exec/context_text.hpp"
#include "ir/rewrite.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "plan/control.hpp"
#include "plan/rewrite/bind.hpp"

namespace tenon::core {
namespace {

// The devices that a list names: "cuda:0,cuda:1". "auto", or nothing, is a list of its own.
std::vector<std::shared_ptr<Device>> open_named(Host& host, const std::string& list) {
  std::vector<std::shared_ptr<Device>> devices;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    const std::string id = list.substr(from, to - from);
    from = to + 1;
    const bool alone = id.size() == list.size();
    if (!alone && (id.empty() || id == "auto"))
      fail(Code::invalid_argument, "device '", list, "': expected ids such as cuda:0, got ",
           id.empty() ? "an empty one" : "'auto', which stands alone");
    devices.push_back(host.open(id.empty() ? "auto" : id));
    for (size_t d = 0; d + 1 < devices.size(); ++d)
      if (devices[d] == devices.back())
        fail(Code::invalid_argument, "device '", list, "': ", devices[d]->info().id,
             " is named twice");
  }
  return devices;
}

std::vector<bool> needed_values(const Graph& graph) {
  std::vector<Value> leave;
  for (const Output& o : graph.outputs()) leave.push_back(o.value);
  for (const Update& u : graph.updates()) leave.push_back(u.value);
  return needed_for(graph, leave);
}

bool is_cpu(const std::shared_ptr<Device>& device) { return device->info().kind == "cpu"; }

// The cpu, for what the named devices refuse; null if it is one of them, or there is none.
std::shared_ptr<Device> open_fallback(Host& host,
                                      const std::vector<std::shared_ptr<Device>>& named) {
  if (std::ranges::any_of(named, is_cpu)) return nullptr;
  for (const DeviceInfo& info : host.devices())
    if (info.kind == "cpu" && info.reason.empty()) return host.open(info.id);
  return nullptr;
}

// A plan with its constants on their devices.
std::shared_ptr<BoundPlan> bound_plan(Plan plan) {
  auto out = std::make_shared<BoundPlan>();
  out->plan = std::move(plan);
  const auto& devices = out->plan.devices;
  out->constants.resize(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) out->constants[d].resize(out->plan.constants.size());
  for (size_t c = 0; c < out->plan.constants.size(); ++c) {
    const PlannedConstant& constant = out->plan.constants[c];
    if (constant.data->empty()) continue;
    for (uint32_t d : constant.devices) {
      auto buffer = devices[d]->buffer(constant.data->size(), "constant");
      buffer->write(0, constant.data->data(), constant.data->size());
      out->constants[d][c] = std::move(buffer);
    }
  }
  for (const PlannedRegion& region : out->plan.regions) {
    auto& functions = out->functions.emplace_back();
    if (region.control.plan)
      for (const PlannedFunction& f : region.control.plan->functions)
        functions.push_back(bound_plan(*f.plan));
  }
  return out;
}

}  // namespace

Executable::Executable(std::shared_ptr<Runtime> runtime, Graph graph, std::shared_ptr<Store> store,
                       ExecutableOptions options)
    : runtime_(std::move(runtime)),
      graph_(std::move(graph)),
      needed_(needed_values(graph_)),
      store_(std::move(store)),
      options_(std::move(options)),
      devices_(open_named(runtime_->host, options_.device)) {
  options_.plan.named = static_cast<uint32_t>(devices_.size());
  for (const auto& device : devices_)
    if (const DeviceInfo& info = device->info(); options_.plan.lanes > 1 && !info.lanes)
      log(LogLevel::warning,
          cat("graph '", graph_.name, "': ", options_.plan.lanes, " lanes were asked for, ",
              info.id, " runs one: plugin ", info.plugin, " takes no lanes"));
  check_buckets();
  take_pins();
  take_limits();
  if (options_.allow_fallback)
    if (auto cpu = open_fallback(runtime_->host, devices_)) devices_.push_back(std::move(cpu));
  // What keeps state is where the app's other executables look for it.
  if (chooses() && devices_[1]->info().id == store_->chosen_device())
    std::swap(devices_[0], devices_[1]);
  for (const auto& device : devices_) pools_.push_back(runtime_->arenas->of(device));
  if (graph_.symbols().empty()) plan_for({});
}

// Nobody named a device. Pins and limits do, by their place.
bool Executable::chooses() const {
  return devices_.size() == 2 && (options_.device.empty() || options_.device == "auto") &&
         options_.pins.empty() && options_.plan.memory_limits.empty();
}

void Executable::take_pins() {
  for (const auto& [pattern, name] : options_.pins) {
    const auto is_meant = [&, &id = name](const std::shared_ptr<Device>& d) {
      return d->info().id == id || d->info().kind == id;
    };
    const auto found = std::ranges::find_if(devices_, is_meant);
    if (found == devices_.end())
      fail(Code::invalid_argument, "pin '", pattern,
           "': expected one of the executable's devices (", ids_of(devices_), "), got '", name,
           "'");
    options_.plan.pins.push_back(
        {pattern, static_cast<uint32_t>(std::distance(devices_.begin(), found))});
  }
}

void Executable::take_limits() {
  std::vector<uint64_t>& limits = options_.plan.memory_limits;
  const bool any = std::ranges::any_of(limits, [](uint64_t limit) { return limit != 0; });
  if (limits.size() == 1) limits.resize(devices_.size(), limits[0]);
  if (!limits.empty() && limits.size() != devices_.size())
    fail(Code::invalid_argument, "memory limits: expected one, or one for each of ",
         devices_.size(), " devices, got ", limits.size());
  if (!any) limits.clear();
}

// One call at a time, although several plans may be made at once.
CompileProgress Executable::progress() const {
  if (!options_.progress) return {};
  return [this](uint32_t done, uint32_t total) {
    const std::lock_guard lock(progress_mutex_);
    return options_.progress(done, total);
  };
}

void Executable::check_buckets() const {
  const auto& buckets = options_.buckets;
  for (auto b = buckets.begin(); b != buckets.end(); ++b) {
    const auto& [symbol, sizes] = *b;
    const auto& known = graph_.symbols();
    if (std::ranges::find(known, symbol) == known.end())
      fail(Code::invalid_argument, "bucket of symbol '", symbol,
           "': expected a symbol of the graph (",
           known.empty() ? std::string("it has none") : list_of("", known, std::identity()), ")");
    if (std::any_of(buckets.begin(), b, [&](const auto& other) { return other.first == symbol; }))
      fail(Code::invalid_argument, "bucket of symbol '", symbol, "': given twice");
  }
}

Executable::Sizes Executable::sizes_for(const SymbolNumbers& numbers, bool exact) const {
  Sizes out{numbers, {}};
  for (const auto& [symbol, buckets] : options_.buckets) {
    const auto number = numbers.find(symbol);
    if (number == numbers.end()) continue;  // bind names it
    const int64_t size = buckets.size_for(number->second);
    // Where nothing is padded, the plan is that of a whole bucket, unless a number itself is one.
    if (size < 2 || (exact && size != number->second)) continue;
    if (buckets.size_for(size - 1) == size) out.padded.push_back(symbol);
    out.sizes[symbol] = size;
  }
  return out;
}

std::shared_ptr<const BoundPlan> Executable::plan_for(const SymbolNumbers& numbers, bool exact) {
  const Sizes sizes = sizes_for(numbers, exact);
  const auto is_wanted = [&](const auto& known) { return known.first == sizes; };
  std::promise<std::shared_ptr<const BoundPlan>> made;
  {
    std::unique_lock lock(mutex_);
    if (const auto i = std::ranges::find_if(plans_, is_wanted); i != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, i);
      const PlanFuture plan = i->second;
      lock.unlock();
      return plan.get();
    }
    plans_.emplace_front(sizes, made.get_future());
    if (plans_.size() > kMostPlans) plans_.pop_back();
  }
  try {
    auto plan = make(sizes);
    made.set_value(plan);
    return plan;
  } catch (...) {
    // Whoever waits gets this failure; whoever comes later tries again.
    made.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    plans_.remove_if([&](const auto& known) {
      return is_wanted(known) &&
             known.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    throw;
  }
}

// The lengths that two sizes have told must hold for these numbers too.
void Executable::check_lengths(const BoundPlan& bound, const SymbolNumbers& numbers,
                               const OutputTypes& types) const {
  const Plan& plan = bound.plan;
  for (size_t k = 0; k < graph_.outputs().size(); ++k) {
    const std::string& name = graph_.outputs()[k].name;
    const auto planned = std::ranges::find(plan.outputs, name, &NamedOutput::name);
    Type expected = plan.output_slots[planned->slot].type;
    const Type& type = types.find(name)->second;
    for (int i = 0; i < std::min(expected.shape.rank(), type.shape.rank()); ++i)
      if (const Length& l = bound.lengths[k][static_cast<size_t>(i)])
        expected.shape[i] = l.number < bound.numbers.size()
                                ? l.times * numbers.at(bound.numbers[l.number].symbol) + l.plus
                                : type.shape[i];  // the run tells
    if (type != expected)
      fail(Code::unsupported, "output '", name, "': ", type.text(), ", expected ", expected.text(),
           " from sizes in buckets; use exact sizes");
  }
}

std::shared_ptr<const OutputTypes> Executable::output_types(const BoundPlan& bound_plan,
                                                            const SymbolNumbers& numbers) {
  {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find(output_types_, numbers, [](const auto& k) { return k.first; });
    if (known != output_types_.end()) {
      output_types_.splice(output_types_.begin(), output_types_, known);
      return known->second;
    }
  }
  const Graph bound = core::bind(graph_, numbers);
  auto types = std::make_shared<OutputTypes>();
  for (const Output& o : bound.outputs()) types->emplace(o.name, bound.type(o.value));
  check_lengths(bound_plan, numbers, *types);
  const std::lock_guard lock(mutex_);
  output_types_.emplace_front(numbers, types);
  if (output_types_.size() > kMostPlans) output_types_.pop_back();
  return types;
}

PaddedGraph Executable::bound_graph(const Sizes& sizes) const {
  if (sizes.padded.empty()) {
    Graph bound = core::bind(graph_, sizes.sizes);
    // A model with symbols has nodes only once they are numbers.
    if (!options_.keep_extents ||
        !(has_extents(graph_) ||
          (!graph_.symbols().empty() && has_extents(lower_meta(bind_functions(bound))))))
      return {std::move(bound)};
  }
  return pad_to_buckets(graph_, sizes.sizes, sizes.padded);
}

std::shared_ptr<const BoundPlan> Executable::make(const Sizes& sizes) const {
  PaddedGraph padded = bound_graph(sizes);
  const Graph& bound = padded.graph;
  // Constants are folded on the device that takes everything, so that folding never changes where
  // the rest may run.
  const auto cpu = std::ranges::find_if(devices_, is_cpu);
  const DeviceInfo& folding = (cpu == devices_.end() ? devices_.back() : *cpu)->info();
  const Evaluate evaluate = [&](const Graph& constants) {
    ExecutableOptions options{
        .device = folding.id, .plan = {.simplify = false}, .keep_extents = false};
    const auto executable =
        std::make_shared<Executable>(runtime_, constants, std::make_shared<Store>(), options);
    Context context(executable);
    context.run();
    std::vector<Bytes> results;
    for (const Output& o : constants.outputs()) {
      Bytes bytes(type_bytes(context.output_type(o.name)));
      context.get(o.name, bytes.data(), bytes.size());
      results.push_back(std::move(bytes));
    }
    return results;
  };
  PlanOptions how = options_.plan;
  for (const auto& device : devices_) how.rates.push_back(runtime_->host.rates(device->info().id));
  // Contexts know devices by their place in the list, so all plans must have the same.
  how.choose_device = chooses() && graph_.symbols().empty() && store_->chosen_device().empty();
  how.home = homes();
  std::vector<std::shared_ptr<Device>> devices = devices_;
  Plan plan = make_plan(bound, devices, how, evaluate);
  const bool was_choice =
      how.choose_device && std::ranges::all_of(how.rates, &KnownRates::measured);
  if (was_choice && !graph_.updates().empty()) {
    const std::string taken = plan.devices[0]->info().id;
    if (store_->keep_chosen_device(taken) != taken) {  // another executable was faster
      how.choose_device = false;
      if (taken == devices[0]->info().id) std::swap(devices[0], devices[1]);
      plan = make_plan(bound, devices, how, evaluate);
    }
  }
  auto out = bound_plan(std::move(plan));
  out->numbers = std::move(padded.numbers);
  out->lengths = std::move(padded.outputs);
  for (const std::string& extent : padded.extents) {
    const auto at = std::ranges::find(out->plan.outputs, extent, &NamedOutput::name);
    out->extents.push_back(at == out->plan.outputs.end()
                               ? kNone
                               : static_cast<uint32_t>(at - out->plan.outputs.begin()));
  }
  for (const PaddedGraph::Number& n : out->numbers)
    out->plan.remarks.push_back(
        cat("symbol '", n.symbol, "' is rounded up to ", sizes.sizes.at(n.symbol)));
  if (how.named > 1) keep_homes(out->plan);
  if (how.aot) prepare_programs(out->plan, runtime_->host.threads(), progress());
  for (const auto& device : out->plan.devices) out->pools.push_back(runtime_->arenas->of(device));
  return out;
}

// Where executables of several devices keep the weights and state of this graph.
HomeOf Executable::homes() const {
  std::map<std::pair<Space, std::string>, uint32_t> known;
  for (const auto* entries : {&graph_.weights(), &graph_.states()})
    for (Value v : *entries) {
      const std::pair entry(graph_[v].space, graph_[v].name);
      const std::string home = store_->home(entry.first, entry.second);
      for (uint32_t d = 0; d < options_.plan.named; ++d)
        if (devices_[d]->info().id == home) known.emplace(entry, d);
    }
  if (known.empty()) return {};
  return [known = std::move(known)](Space space, std::string_view name) {
    const auto found = known.find({space, std::string(name)});
    return found == known.end() ? kNone : found->second;
  };
}

// Later executables of the store place readers there. What several devices read has no home.
void Executable::keep_homes(const Plan& plan) const {
  constexpr uint32_t kSeveral = kNone - 1;
  std::vector<uint32_t> only(plan.entries.size(), kNone);
  const auto use = [&](size_t entry, uint32_t device) {
    only[entry] = only[entry] == kNone || only[entry] == device ? device : kSeveral;
  };
  for (const PlannedDerived& d : plan.derived) use(d.entry, d.device);
  for (size_t e = 0; e < plan.entries.size(); ++e) {
    const PlannedEntry& entry = plan.entries[e];
    for (uint32_t d : entry.devices) use(e, d);
    if (entry.updated) use(e, entry.update_device);
    if (only[e] < options_.plan.named)
      store_->keep_home(entry.space, entry.name, plan.devices[only[e]]->info().id);
  }
}

SymbolNumbers Executable::bind_inputs(const std::map<std::string, Type, std::less<>>& types) const {
  SymbolNumbers numbers;
  for (Value v : graph_.inputs()) {
    const ValueInfo& info = graph_[v];
    const auto given = types.find(info.name);
    if (given == types.end()) continue;  // missing inputs are named by the caller
    for (int i = 0; i < info.type.shape.rank(); ++i) {
      const Dim dim = info.type.shape[i];
      if (!is_symbol(dim)) continue;
      const std::string name(graph_.symbol_name(dim));
      const auto [at, fresh] = numbers.emplace(name, given->second.shape[i]);
      if (at->second != given->second.shape[i])
        fail(Code::shape_mismatch, "input '", info.name, "': dim ", i, " (", name, ") is ",
             given->second.shape[i], ", another input says ", at->second);
    }
  }
  return numbers;
}

}  // namespace tenon::core
