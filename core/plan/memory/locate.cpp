// SPDX-License-Identifier: Apache-2.0
// Compiles the regions, and finds the storage and lifetime of every value.
#include "plan/memory/locate.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "ops/record.hpp"
#include "plan/control.hpp"

namespace tenon::core {
namespace {

class Locator {
 public:
  Locator(const LegalGraph& legal, const PlanOptions& options, Plan& plan)
      : graph_(legal.graph), hoisted_(legal.hoisted), options_(options), plan_(plan) {}

  Locations run(std::span<const CutRegion> regions) {
    is_output_.resize(graph_.value_count(), false);
    for (const Output& o : graph_.outputs()) is_output_[o.value.id] = true;
    for (uint32_t v = 0; v < graph_.value_count(); ++v)
      if (graph_[Value{v}].space != Space::node) named_bytes_ += type_bytes(graph_.type(Value{v}));
    for (const CutRegion& r : regions) add_region(r);
    plan_outputs();
    plan_updates();
    return std::move(out_);
  }

 private:
  // ---- regions: programs, storages, lifetimes

  void add_region(const CutRegion& cut) {
    const Region& region = cut.region;
    const RegionBlob& written = cut.blob;
    const uint32_t transfer_time = time_++;
    transfer_times_.push_back(transfer_time);
    const auto number = static_cast<uint32_t>(plan_.regions.size());
    for (Value v : region.outputs) made_in_[v] = number;
    const std::shared_ptr<Device>& device = plan_.devices[region.device];
    PlannedRegion planned{.device = region.device};
    if (cut.control)
      planned = control_region(graph_, cut, device);
    else
      planned.program = device->compile(written.blob.data(), written.blob.size(),
                                        {.aot = options_.aot,
                                         .scratch_limit = scratch_limit(region.device),
                                         .exec_mode = options_.exec_mode});
    if (cut.control) take_derived(cut, planned.control);
    bring_over(region, transfer_time, planned);
    out_.first_time.push_back(time_);

    std::vector<Located> located = locate_program(region, written, *planned.program);
    std::vector<uint32_t>& contents = out_.values.emplace_back();
    for (const ProgramValue& v : planned.program->values())
      contents.push_back(v.source == TENON_NONE ? kNone : written.values[v.source].id);
    for (const Step& step : planned.program->steps()) {
      add_step(region, step, located, cut.control ? cut.control->alignment : 1);
      const NodeId node = step.node == TENON_NONE ? kNone : written.nodes[step.node];
      planned.report_of_step.push_back(node == kNone ? kNone : graph_[node].source);
      out_.ordered.push_back(node != kNone && graph_[node].op->traits & kOrdered);
    }
    const bool ordered = std::ranges::any_of(
        region.nodes, [&](NodeId n) { return graph_[n].op->traits & kOrdered; });
    if (ordered) planned.ordered_after = std::exchange(last_ordered_, number);
    out_.located.push_back(std::move(located));
    plan_.regions.push_back(std::move(planned));
  }

  // Derived weights of functions become those of this plan.
  void take_derived(const CutRegion& cut, PlannedControl& control) {
    const NodeInfo& node = graph_[cut.region.nodes[0]];
    for (const PlannedFunction& f : control.plan->functions) {
      auto& places = control.derived.emplace_back();
      for (const PlannedDerived& inner : f.plan->derived) {
        const Value weight = node.operands[control.plan->operand_of(f.plan->entries[inner.entry])];
        PlannedDerived derived = derived_from(weight, cut.region.device);
        derived.makers.insert(derived.makers.end(), inner.makers.begin(), inner.makers.end());
        derived.function = inner.region == kNone || inner.function ? inner.function : f.plan;
        derived.region = inner.region, derived.value = inner.value;
        derived.layout += (derived.layout.empty() ? "" : " in ") + inner.layout;
        derived.size = inner.size;
        places.push_back(index_of(std::move(derived), {}));
      }
    }
  }

  // Half of the memory that the device has left, so that tuning prefers algorithms that fit. What
  // the graph names may be on the device already.
  uint64_t scratch_limit(uint32_t d) const {
    const Device& device = *plan_.devices[d];
    const uint64_t whole = device.info().memory_size;
    if (whole == 0) return 0;
    const uint64_t used = std::max(device.allocated(), named_bytes_);
    return std::max<uint64_t>(whole > used ? (whole - used) / 2 : 0, 1);
  }

  void bring_over(const Region& region, uint32_t time, PlannedRegion& planned) {
    for (Value v : region.inputs) {
      if (graph_[v].space != Space::node || out_.at.contains({v, region.device})) continue;
      const uint32_t from_device = graph_[graph_[v].node].device;
      const uint32_t from = out_.at.at({v, from_device});
      const uint32_t to =
          out_.storages.add(region.device, {.home = Home::arena}, type_bytes(graph_.type(v)));
      const uint32_t made_in = made_in_.at(v);
      out_.storages.touch(from, time);
      // The transfer may begin as soon as the value is made.
      out_.storages.touch(to, transfer_times_[made_in + 1]);
      out_.storages.touch(to, time);
      out_.at[{v, region.device}] = to;
      out_.copies.push_back(
          {static_cast<uint32_t>(plan_.regions.size()), planned.before.size(), from, to, v});
      planned.before.push_back({.from_device = from_device,
                                .to_device = region.device,
                                .from = {},
                                .to = {},
                                .size = out_.storages[to].size,
                                .made_in = made_in});
    }
  }

  // The storage of a value that no node makes, on a device that uses it.
  uint32_t named_storage(Value v, uint32_t device) {
    const auto [at, fresh] = out_.at.try_emplace({v, device}, kNone);
    if (!fresh) return at->second;
    const ValueInfo& info = graph_[v];
    Place place;
    if (info.space == Space::weight && hoisted_.contains(info.name)) {
      PlannedDerived derived = derived_from(v, device);
      derived.size = type_bytes(info.type);
      place = {Home::derived, index_of(std::move(derived), v), 0};
    } else if (info.space == Space::input) {
      place = {Home::input, index_of(v, plan_.inputs, PlannedInput{info.name, info.type, {}}), 0};
      plan_.inputs[place.index].devices.push_back(device);
    } else if (info.space == Space::constant) {
      place = {Home::constant, index_of(v, plan_.constants, PlannedConstant{info.data, {}}), 0};
      plan_.constants[place.index].devices.push_back(device);
    } else {
      place = {Home::entry, entry_of(v), 0};
      plan_.entries[place.index].devices.push_back(device);
    }
    const uint32_t s = out_.storages.add(device, place, type_bytes(info.type));
    out_.at[{v, device}] = s;
    return s;
  }

  uint32_t entry_of(Value v) {
    return index_of(
        v, plan_.entries,
        PlannedEntry{graph_[v].space, graph_[v].name, graph_[v].type, {}, false, 0, false});
  }

  template <class Item>
  uint32_t index_of(Value v, std::vector<Item>& items, Item item) {
    const auto [at, fresh] = out_.index.try_emplace(v, static_cast<uint32_t>(items.size()));
    if (fresh) items.push_back(std::move(item));
    return at->second;
  }

  // What a derived weight of v is made from.
  PlannedDerived derived_from(Value v, uint32_t device) {
    const std::string& name = graph_[v].name;
    const auto hoisted = hoisted_.find(name);
    PlannedDerived derived{.device = device};
    if (hoisted == hoisted_.end()) {
      derived.entry = entry_of(v);
    } else {
      derived.entry = entry_of(graph_.find(Space::weight, hoisted->second.source));
      derived.layout = hoisted->second.layout;
      auto& maker = makers_[{derived.layout, device}];
      if (!maker) maker = planned(*hoisted->second.maker, device);
      derived.makers = {maker};
    }
    plan_.entries[derived.entry].derived = true;
    return derived;
  }

  std::shared_ptr<const Plan> planned(const Graph& maker, uint32_t device) const {
    LegalGraph legal{.graph = maker};
    settle_reports(legal);
    auto plan = std::make_shared<Plan>();
    plan->devices = {plan_.devices[device]};
    place_values(legal, cut(legal.graph), {.aot = options_.aot}, *plan);
    return plan;
  }

  // Index of a derived weight; equal ones are one. value: what it is, absent in a layout.
  uint32_t index_of(PlannedDerived derived, Value value) {
    const auto [same, fresh] =
        derived_.try_emplace({derived.entry, derived.device, derived.layout, derived.size},
                             static_cast<uint32_t>(plan_.derived.size()));
    if (fresh) {
      plan_.derived.push_back(std::move(derived));
      out_.derived.push_back(value.id);
    } else if (value) {  // a function was the first to need it
      out_.derived[same->second] = value.id;
    }
    return same->second;
  }

  // A weight in a layout of the program's own; programs of a device share it.
  uint32_t derived_storage(Value v, uint32_t device, uint32_t program_value,
                           const ProgramValue& value) {
    PlannedDerived derived = derived_from(v, device);
    derived.region = static_cast<uint32_t>(plan_.regions.size());
    derived.value = program_value;
    derived.layout += (derived.layout.empty() ? "" : " in ") + value.layout;
    derived.size = value.size;
    return out_.storages.add(device, {Home::derived, index_of(std::move(derived), {}), 0},
                             value.size);
  }

  // Program values of weights that only their derived layouts are read of: the dense content need
  // not be on the device.
  static std::vector<bool> spared_weights(const Program& program) {
    std::set<uint32_t> sources;
    for (const ProgramValue& value : program.values())
      if (!value.layout.empty()) sources.insert(value.source);
    std::vector<bool> spared(program.values().size());
    if (sources.empty()) return spared;
    for (uint32_t p = 0; p < spared.size(); ++p)
      spared[p] =
          program.values()[p].layout.empty() && sources.contains(program.values()[p].source);
    for (const Step& step : program.steps()) {
      for (uint32_t p : step.reads) spared[p] = false;
      for (uint32_t p : step.writes) spared[p] = false;
      for (const Alias& a : step.aliases) spared[a.from] = spared[a.to] = false;
    }
    return spared;
  }

  // Storages of a program's values, but for views, which their step resolves.
  std::vector<Located> locate_program(const Region& region, const RegionBlob& written,
                                      const Program& program) {
    std::vector<bool> made(program.values().size(), false);
    for (const Step& step : program.steps()) {
      for (uint32_t w : step.writes) made[w] = true;
      for (const Alias& a : step.aliases)
        if (a.view) made[a.to] = true;
    }
    std::vector<bool> view(program.values().size(), false);
    for (const Step& step : program.steps())
      for (const Alias& a : step.aliases)
        if (a.view) view[a.to] = true;

    std::vector<Located> located(program.values().size());
    const std::vector<bool> spared = spared_weights(program);
    for (uint32_t p = 0; p < located.size(); ++p) {
      const ProgramValue& value = program.values()[p];
      const Value v = value.source == TENON_NONE ? Value{} : written.values[value.source];
      if (view[p] || spared[p]) continue;
      if (!value.layout.empty()) {
        located[p].storage = derived_storage(v, region.device, p, value);
        continue;
      }
      if (!made[p]) {
        if (v)
          located[p].storage = graph_[v].space == Space::node ? out_.at.at({v, region.device})
                                                              : named_storage(v, region.device);
        continue;
      }
      Place place{.home = Home::arena};
      if (v && is_output_[v.id]) {
        place = {Home::output, static_cast<uint32_t>(plan_.output_slots.size()), 0};
        plan_.output_slots.push_back({graph_.type(v), region.device});
      }
      located[p].storage = out_.storages.add(region.device, place, value.size, value.alignment);
      if (v) out_.at[{v, region.device}] = located[p].storage;
    }
    return located;
  }

  void add_step(const Region& region, const Step& step, std::vector<Located>& located,
                uint64_t scratch_alignment) {
    const uint32_t now = time_++;
    for (const Alias& a : step.aliases)
      if (a.view) located[a.to] = {located[a.from].storage, located[a.from].offset + a.offset};
    for (uint32_t p : step.reads) out_.storages.touch(located[p].storage, now);
    for (uint32_t p : step.writes) out_.storages.touch(located[p].storage, now);
    uint32_t scratch = kNone;
    if (step.scratch) {
      scratch =
          out_.storages.add(region.device, {.home = Home::arena}, step.scratch, scratch_alignment);
      out_.storages.touch(scratch, now);
    }
    out_.scratch.push_back(scratch);
    Touches touches;
    for (uint32_t p : step.reads) touches.reads.push_back(located[p].storage);
    for (uint32_t p : step.writes) touches.writes.push_back(located[p].storage);
    if (step.scratch) touches.writes.push_back(scratch);
    out_.touches.push_back(std::move(touches));
    for (const Alias& a : step.aliases)
      if (!a.view) offer_in_place(step, a, located, now);
  }

  // Sharing is safe where the operand is all of its storage and the step reads that storage through
  // it alone.
  void offer_in_place(const Step& step, const Alias& alias, const std::vector<Located>& located,
                      uint32_t now) {
    const Located from = located[alias.from], to = located[alias.to];
    if (from.storage == kNone || to.storage == kNone || from.offset != 0) return;
    const auto reads = std::count_if(step.reads.begin(), step.reads.end(), [&](uint32_t p) {
      return located[p].storage == from.storage;
    });
    if (reads == 1) out_.storages.offer_in_place(now, from.storage, to.storage);
  }

  // ---- what leaves

  void plan_outputs() {
    for (const Output& o : graph_.outputs()) {
      const uint32_t s = out_.at.at({o.value, graph_[graph_[o.value].node].device});
      plan_.outputs.push_back({o.name, out_.storages[s].place.index});
    }
    for (Value v : graph_.inputs())  // an input that nothing reads is still an input
      index_of(v, plan_.inputs, PlannedInput{graph_[v].name, graph_[v].type, {}});
  }

  void plan_updates() {
    const uint32_t end = time_;
    for (const Update& u : graph_.updates()) {
      const uint32_t device = graph_[graph_[u.value].node].device;
      const uint32_t s = out_.at.at({u.value, device});
      const uint32_t e = entry_of(u.target);
      plan_.entries[e].updated = true;
      plan_.entries[e].update_device = device;
      const auto old = out_.at.find({u.target, device});
      const uint32_t target = old == out_.at.end() ? kNone : old->second;
      if (out_.storages.overwrite(s, target, {Home::entry, e, 0})) continue;
      out_.storages.touch(s, end);
      if (type_bytes(graph_.type(u.value)) == 0) continue;
      out_.copies.push_back({kNone, plan_.after.size(), s, kNone, u.value});
      plan_.after.push_back({.from_device = device,
                             .to_device = device,
                             .from = {},
                             .to = {Home::entry, e, 0},
                             .size = type_bytes(graph_.type(u.value))});
    }
  }

  const Graph& graph_;
  const std::map<std::string, Hoisted>& hoisted_;
  const PlanOptions& options_;
  Plan& plan_;
  Locations out_;
  uint32_t time_ = 0;
  std::vector<uint32_t> transfer_times_;  // per region
  std::map<Value, uint32_t> made_in_;     // values that leave their region -> region
  uint32_t last_ordered_ = kNone;         // region with ordered nodes
  uint64_t named_bytes_ = 0;              // of inputs, weights, constants and state
  std::vector<bool> is_output_;
  // Entry, device, layout and size of a derived weight -> index in the plan.
  std::map<std::tuple<uint32_t, uint32_t, std::string, uint64_t>, uint32_t> derived_;
  // What makes hoisted weights, by its layout and device.
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<const Plan>> makers_;
};

}  // namespace

Locations locate_values(const LegalGraph& legal, std::span<const CutRegion> regions,
                        const PlanOptions& options, Plan& plan) {
  return Locator(legal, options, plan).run(regions);
}

}  // namespace tenon::core
