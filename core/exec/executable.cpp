// SPDX-License-Identifier: Apache-2.0
// Plans a graph once per binding of its symbols, and keeps the plans.
#include "exec/executable.hpp"

#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "exec/context.hpp"
#include "plan/control.hpp"
#include "plan/rewrite/bind.hpp"

namespace tenon::core {
namespace {

// Devices for a choice of the user's: that one, and the cpu for what it refuses.
std::vector<std::shared_ptr<Device>> open_devices(Host& host, const std::string& id,
                                                  bool fallback) {
  std::vector<std::shared_ptr<Device>> devices{host.open(id.empty() ? "auto" : id)};
  if (!fallback || devices[0]->info().kind == "cpu") return devices;
  for (const DeviceInfo& info : host.devices())
    if (info.kind == "cpu" && info.reason.empty()) {
      devices.push_back(host.open(info.id));
      break;
    }
  return devices;
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
      store_(std::move(store)),
      options_(std::move(options)),
      devices_(open_devices(runtime_->host, options_.device, options_.plan.allow_fallback)) {
  const DeviceInfo& wanted = devices_[0]->info();
  if (options_.plan.lanes > 1 && !wanted.lanes)
    log(LogLevel::warning,
        cat("graph '", graph_.name, "': ", options_.plan.lanes, " lanes were asked for, ",
            wanted.id, " runs one: plugin ", wanted.plugin, " takes no lanes"));
  for (const auto& device : devices_) pools_.push_back(runtime_->arenas->of(device));
  if (graph_.symbols().empty()) plan_for({});
}

// One call at a time, although several plans may be made at once.
CompileProgress Executable::progress() const {
  if (!options_.progress) return {};
  return [this](uint32_t done, uint32_t total) {
    const std::lock_guard lock(progress_mutex_);
    return options_.progress(done, total);
  };
}

std::shared_ptr<const BoundPlan> Executable::plan_for(const SymbolNumbers& numbers) {
  const auto is_wanted = [&](const auto& known) { return known.first == numbers; };
  std::promise<std::shared_ptr<const BoundPlan>> made;
  {
    std::unique_lock lock(mutex_);
    if (const auto i = std::ranges::find_if(plans_, is_wanted); i != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, i);
      const PlanFuture plan = i->second;
      lock.unlock();
      return plan.get();
    }
    plans_.emplace_front(numbers, made.get_future());
    if (plans_.size() > kMostPlans) plans_.pop_back();
  }
  try {
    auto plan = make(numbers);
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

std::shared_ptr<const BoundPlan> Executable::make(const SymbolNumbers& numbers) const {
  const Graph bound = bind(graph_, numbers);
  // Constants are folded on the device that takes everything, so that folding never changes where
  // the rest may run.
  const Evaluate evaluate = [&](const Graph& constants) {
    ExecutableOptions options{.device = devices_.back()->info().id, .plan = {.simplify = false}};
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
  // Contexts know devices by their place in the list, so all plans must have the same; and what
  // keeps state stays where the app's other executables look for it.
  how.choose_device = (options_.device.empty() || options_.device == "auto") &&
                      graph_.symbols().empty() && graph_.updates().empty();
  auto out = bound_plan(make_plan(bound, devices_, how, evaluate));
  if (how.aot) prepare_programs(out->plan, runtime_->host.threads(), progress());
  for (const auto& device : out->plan.devices) out->pools.push_back(runtime_->arenas->of(device));
  return out;
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
