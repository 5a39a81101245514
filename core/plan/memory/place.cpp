// SPDX-License-Identifier: Apache-2.0
// Gives every value of the regions' programs a place. What shares is decided as for one lane; then
// the steps get their lanes, with the waits that sharing needs, and what no wait orders lives at
// once; what has no name is laid out in the arenas.
#include "base/error.hpp"
#include "ops/cost.hpp"
#include "plan/check/contents.hpp"
#include "plan/check/race.hpp"
#include "plan/memory/lanes.hpp"
#include "plan/memory/locate.hpp"
#include "plan/plan.hpp"

namespace tenon::core {
namespace {

class Placer {
 public:
  Placer(const LegalGraph& legal, std::span<const CutRegion> regions, const PlanOptions& options,
         Plan& plan)
      : legal_(legal),
        graph_(legal.graph),
        options_(options),
        plan_(plan),
        where_(locate_values(legal, regions, options, plan)) {}

  void run() {
    where_.storages.merge_in_place();
    give_lanes();
    lay_out_arenas();
    write_places();
    if (plan_.regions.size() > 1) plan_.tasks = plan_tasks(plan_.regions);
    const std::string race = check_races(plan_);
    check(race.empty(), "memory plan: ", race);
    const std::string lost = check_contents(plan_, contents());
    check(lost.empty(), "memory plan: ", lost);
  }

 private:
  // ---- lanes

  void give_lanes() {
    size_t first_step = 0;
    for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
      PlannedRegion& region = plan_.regions[r];
      const size_t count = region.program->steps().size();
      if (options_.lanes > 1 && !region.control.plan) {
        const DeviceInfo& info = plan_.devices[region.device]->info();
        if (info.lanes)
          region.lanes = lanes_of(region, first_step);
        else
          region.lanes_note = cat("plugin ", info.plugin, " runs its steps in one lane");
      }
      if (region.lanes.count > 1) prolong_lives(region.lanes, first_step, where_.first_time[r]);
      first_step += count;
    }
  }

  Lanes lanes_of(const PlannedRegion& region, size_t first_step) const {
    std::vector<LaneStep> steps(region.program->steps().size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const Touches& touches = where_.touches[first_step + i];
      LaneStep& step = steps[i];
      const auto add = [&](const std::vector<uint32_t>& storages, std::vector<uint32_t>& ids) {
        for (uint32_t s : storages) {
          if (s == kNone) continue;
          ids.push_back(where_.storages.bytes_of(s));
          step.cost += where_.storages[s].size;
        }
      };
      add(touches.reads, step.reads);
      add(touches.writes, step.writes);
      const uint32_t report = region.report_of_step[i];
      if (report != kNone)
        step.cost += static_cast<uint64_t>(legal_.reports[report].flops / kFlopsPerByte);
      step.work = !region.program->steps()[i].writes.empty();
      step.ordered = where_.ordered[first_step + i];
    }
    return assign_lanes(steps, options_.lanes);
  }

  // A storage lives until no step can begin any more while one that touches it runs.
  void prolong_lives(const Lanes& lanes, size_t first_step, uint32_t first_time) {
    const size_t count = lanes.lane.size();
    const LaneOrder order(lanes, count);
    for (uint32_t i = 0; i < count; ++i)
      where_.storages.prolong(where_.touches[first_step + i], first_time + order.latest_beside(i));
  }

  // ---- arenas

  void lay_out_arenas() {
    for (uint32_t d = 0; d < plan_.devices.size(); ++d)
      plan_.arenas.push_back(where_.storages.lay_out_arena(
          d, plan_.devices[d]->info(), [this](uint32_t s) { return content_of(s); }));
  }

  // What lies in a storage, for messages.
  std::string content_of(uint32_t s) const {
    for (const auto& [value, storage] : where_.at) {
      const NodeId node = graph_[value.first].node;
      if (storage == s && node != kNone) return value_text(value.first);
    }
    return "scratch or a value within a program";
  }

  // ---- results

  void write_places() {
    size_t step = 0;
    for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
      PlannedRegion& region = plan_.regions[r];
      for (const Located& l : where_.located[r])
        region.values.push_back(where_.storages.place_of(l.storage, l.offset));
      for (size_t k = 0; k < region.program->steps().size(); ++k)
        region.scratch.push_back(where_.storages.place_of(where_.scratch[step++]));
    }
    for (const PendingCopy& c : where_.copies) {
      PlannedCopy& copy =
          c.region == kNone ? plan_.after[c.index] : plan_.regions[c.region].before[c.index];
      copy.from = where_.storages.place_of(c.from);
      if (c.to != kNone) copy.to = where_.storages.place_of(c.to);
    }
  }

  // What places are to hold, as the graph says.
  PlanContents contents() const {
    PlanContents out{.values = where_.values,
                     .before = std::vector<std::vector<uint32_t>>(plan_.regions.size()),
                     .inputs = std::vector<uint32_t>(plan_.inputs.size()),
                     .constants = std::vector<uint32_t>(plan_.constants.size()),
                     .entries = std::vector<uint32_t>(plan_.entries.size()),
                     .entries_after = std::vector<uint32_t>(plan_.entries.size(), kNone),
                     .derived = where_.derived,
                     .outputs = std::vector<uint32_t>(plan_.output_slots.size()),
                     .count = graph_.value_count()};
    // Kept in the order in which they were planned, region by region.
    for (const PendingCopy& c : where_.copies)
      (c.region == kNone ? out.after : out.before[c.region]).push_back(c.value.id);
    for (const auto& [v, index] : where_.index) {
      const Space space = graph_[v].space;
      (space == Space::input      ? out.inputs
       : space == Space::constant ? out.constants
                                  : out.entries)[index] = v.id;
    }
    for (const Update& u : graph_.updates())
      out.entries_after[where_.index.at(u.target)] = u.value.id;
    for (size_t i = 0; i < plan_.outputs.size(); ++i)
      out.outputs[plan_.outputs[i].slot] = graph_.outputs()[i].value.id;
    out.value_text = [this](uint32_t id) { return value_text(Value{id}); };
    out.node_text = [this](uint32_t report) {
      return cat(legal_.reports[report].op, " '", legal_.reports[report].name, "'");
    };
    return out;
  }

  std::string value_text(Value v) const {
    const ValueInfo& info = graph_[v];
    if (info.space == Space::input) return cat("input '", info.name, "'");
    if (info.space == Space::constant) return cat("a constant of type ", info.type.text());
    if (info.space != Space::node) return cat("weight or state '", info.name, "'");
    const NodeReport& report = legal_.reports[graph_[info.node].source];
    return cat("a value of type ", info.type.text(), " of ", report.op, " '", report.name, "'");
  }

  const LegalGraph& legal_;
  const Graph& graph_;
  const PlanOptions& options_;
  Plan& plan_;
  Locations where_;
};

}  // namespace

void place_values(const LegalGraph& legal, std::span<const CutRegion> regions,
                  const PlanOptions& options, Plan& plan) {
  Placer(legal, regions, options, plan).run();
}

}  // namespace tenon::core
