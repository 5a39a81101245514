// SPDX-License-Identifier: Apache-2.0
// Compiles the regions and gives every value of their programs a place: what is named lies with its
// name, what two values may share they share (views, in place, updates written where the old
// content was), the rest goes to the arenas. What shares is decided as for one lane; then the steps
// get their lanes, with the waits that sharing needs, and what no wait orders lives at once.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/blob.hpp"
#include "ops/record.hpp"
#include "plan/contents.hpp"
#include "plan/lanes.hpp"
#include "plan/partition.hpp"
#include "plan/plan.hpp"
#include "plan/race.hpp"
#include "plan/schedule.hpp"

namespace tenon::core {
namespace {

constexpr double kFlopsPerByte = 64;  // of a product, in the time of a byte moved; a rough guess

// Bytes with a lifetime on one device; time counts steps over all regions.
struct Storage {
  uint32_t device = 0;
  Place place;  // final for all homes but arena
  uint64_t size = 0;
  uint64_t alignment = 1;
  uint32_t first = kNone;
  uint32_t last = 0;
  uint32_t merged_into = kNone;
};

// A program value: a storage, some bytes in.
struct Located {
  uint32_t storage = kNone;
  uint64_t offset = 0;
};

// What a step touches, for the time that it has.
struct Touches {
  std::vector<uint32_t> reads{}, writes{};  // storages; scratch is written
};

struct InPlaceOffer {
  uint32_t time;
  uint32_t from, to;  // storages
};

class Placer {
 public:
  Placer(const LegalGraph& legal, const PlanOptions& options, Plan& plan)
      : legal_(legal), graph_(legal.graph), options_(options), plan_(plan) {}

  void run() {
    const std::vector<Region> regions = partition(graph_, legal_.device, schedule(graph_));
    is_output_.resize(graph_.value_count(), false);
    for (const Output& o : graph_.outputs()) is_output_[o.value.id] = true;
    for (const Region& r : regions) add_region(r);
    plan_outputs();
    plan_updates();
    merge_in_place();
    give_lanes();
    lay_out_arenas();
    write_places();
    const std::string race = check_races(plan_);
    check(race.empty(), "lanes: ", race);
    const std::string lost = check_contents(plan_, contents());
    check(lost.empty(), "memory plan: ", lost);
  }

 private:
  // ---- regions: programs, storages, lifetimes

  void add_region(const Region& region) {
    const uint32_t transfer_time = time_++;
    PlannedRegion planned{.device = region.device};
    bring_over(region, transfer_time, planned);

    const RegionBlob written = write_region(graph_, region.nodes, region.inputs, region.outputs);
    Device& device = *plan_.devices[region.device];
    check_claims(device, written.blob, written.nodes);
    planned.program =
        device.compile(written.blob.data(), written.blob.size(),
                       {.aot = options_.aot, .scratch_limit = 0, .exec_mode = options_.exec_mode});
    first_time_.push_back(time_);

    std::vector<Located> located = locate_values(region, written, *planned.program);
    std::vector<uint32_t>& contents = values_.emplace_back();
    for (const ProgramValue& v : planned.program->values())
      contents.push_back(v.source == TENON_NONE ? kNone : written.values[v.source].id);
    for (const Step& step : planned.program->steps()) {
      add_step(region, step, located);
      const NodeId node = step.node == TENON_NONE ? kNone : written.nodes[step.node];
      planned.report_of_step.push_back(node == kNone ? kNone : legal_.report_of[node]);
      ordered_.push_back(node != kNone && graph_[node].op->traits & kOrdered);
    }
    located_.push_back(std::move(located));
    plan_.regions.push_back(std::move(planned));
  }

  // What is claimed for the whole region must be so; a plugin that takes a claim back is told by
  // name.
  void check_claims(Device& device, const Blob& blob, std::span<const NodeId> nodes) const {
    const std::vector<Verdict> verdicts = device.query(blob.data(), blob.size());
    for (size_t i = 0; i < verdicts.size(); ++i)
      if (!verdicts[i].native)
        fail(Code::internal, "plugin ", device.info().plugin, ": refuses ",
             graph_[nodes[i]].op->name(), " '", graph_[nodes[i]].provenance,
             "' in a region after claiming it: ", verdicts[i].text);
  }

  void bring_over(const Region& region, uint32_t time, PlannedRegion& planned) {
    for (Value v : region.inputs) {
      if (graph_[v].space != Space::node || at_.contains({v, region.device})) continue;
      const uint32_t from_device = legal_.device[graph_[v].node];
      const uint32_t from = at_.at({v, from_device});
      const uint32_t to =
          new_storage(region.device, {.home = Home::arena}, type_bytes(graph_.type(v)));
      touch(from, time);
      touch(to, time);
      at_[{v, region.device}] = to;
      pending_copies_.push_back(
          {static_cast<uint32_t>(plan_.regions.size()), planned.before.size(), from, to, v});
      planned.before.push_back({.from_device = from_device,
                                .to_device = region.device,
                                .from = {},
                                .to = {},
                                .size = storages_[to].size});
    }
  }

  // The storage of a value that no node makes, on a device that uses it.
  uint32_t named_storage(Value v, uint32_t device) {
    const auto [at, fresh] = at_.try_emplace({v, device}, kNone);
    if (!fresh) return at->second;
    const ValueInfo& info = graph_[v];
    Place place;
    if (info.space == Space::input) {
      place = {Home::input, index_of(v, plan_.inputs, PlannedInput{info.name, info.type, {}}), 0};
      plan_.inputs[place.index].devices.push_back(device);
    } else if (info.space == Space::constant) {
      place = {Home::constant, index_of(v, plan_.constants, PlannedConstant{info.data, {}}), 0};
      plan_.constants[place.index].devices.push_back(device);
    } else {
      place = {Home::entry, entry_of(v), 0};
      plan_.entries[place.index].devices.push_back(device);
    }
    const uint32_t s = new_storage(device, place, type_bytes(info.type));
    at_[{v, device}] = s;
    return s;
  }

  uint32_t entry_of(Value v) {
    return index_of(
        v, plan_.entries,
        PlannedEntry{graph_[v].space, graph_[v].name, graph_[v].type, {}, false, 0, false});
  }

  template <class Item>
  uint32_t index_of(Value v, std::vector<Item>& items, Item item) {
    const auto [at, fresh] = index_.try_emplace(v, static_cast<uint32_t>(items.size()));
    if (fresh) items.push_back(std::move(item));
    return at->second;
  }

  // A weight in a layout of the program's own; programs of a device share it.
  uint32_t derived_storage(Value v, uint32_t device, uint32_t program_value,
                           const ProgramValue& value) {
    const uint32_t entry = entry_of(v);
    plan_.entries[entry].derived = true;
    const auto same =
        std::find_if(plan_.derived.begin(), plan_.derived.end(), [&](const PlannedDerived& d) {
          return d.entry == entry && d.device == device && d.layout == value.layout &&
                 d.size == value.size;
        });
    const auto index = static_cast<uint32_t>(same - plan_.derived.begin());
    if (same == plan_.derived.end())
      plan_.derived.push_back({entry, device, static_cast<uint32_t>(plan_.regions.size()),
                               program_value, value.layout, value.size});
    return new_storage(device, {Home::derived, index, 0}, value.size);
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
  std::vector<Located> locate_values(const Region& region, const RegionBlob& written,
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
          located[p].storage = graph_[v].space == Space::node ? at_.at({v, region.device})
                                                              : named_storage(v, region.device);
        continue;
      }
      Place place{.home = Home::arena};
      if (v && is_output_[v.id]) {
        place = {Home::output, static_cast<uint32_t>(plan_.output_slots.size()), 0};
        plan_.output_slots.push_back({graph_.type(v), region.device});
      }
      located[p].storage = new_storage(region.device, place, value.size);
      storages_[located[p].storage].alignment = value.alignment;
      if (v) at_[{v, region.device}] = located[p].storage;
    }
    return located;
  }

  void add_step(const Region& region, const Step& step, std::vector<Located>& located) {
    const uint32_t now = time_++;
    for (const Alias& a : step.aliases)
      if (a.view) located[a.to] = {located[a.from].storage, located[a.from].offset + a.offset};
    for (uint32_t p : step.reads) touch(located[p].storage, now);
    for (uint32_t p : step.writes) touch(located[p].storage, now);
    uint32_t scratch = kNone;
    if (step.scratch) {
      scratch = new_storage(region.device, {.home = Home::arena}, step.scratch);
      touch(scratch, now);
    }
    scratch_.push_back(scratch);
    Touches touches;
    for (uint32_t p : step.reads) touches.reads.push_back(located[p].storage);
    for (uint32_t p : step.writes) touches.writes.push_back(located[p].storage);
    if (step.scratch) touches.writes.push_back(scratch);
    touches_.push_back(std::move(touches));
    for (const Alias& a : step.aliases)
      if (!a.view) offer_in_place(step, a, located, now);
  }

  // Sharing is safe where the operand is all of its storage and the step reads that storage through
  // it alone.
  void offer_in_place(const Step& step, const Alias& alias, const std::vector<Located>& located,
                      uint32_t now) {
    const Located from = located[alias.from], to = located[alias.to];
    if (from.storage == kNone || to.storage == kNone || from.offset != 0) return;
    if (storages_[from.storage].size != storages_[to.storage].size) return;
    const auto reads = std::count_if(step.reads.begin(), step.reads.end(), [&](uint32_t p) {
      return located[p].storage == from.storage;
    });
    if (reads == 1) offers_.push_back({now, from.storage, to.storage});
  }

  uint32_t new_storage(uint32_t device, Place place, uint64_t size) {
    if (size == 0 && place.home == Home::arena) place.home = Home::none;
    storages_.push_back({.device = device, .place = place, .size = size});
    return static_cast<uint32_t>(storages_.size() - 1);
  }
  void touch(uint32_t s, uint32_t now) {
    if (s == kNone) return;
    storages_[s].first = std::min(storages_[s].first, now);
    storages_[s].last = std::max(storages_[s].last, now);
  }

  // ---- what leaves

  void plan_outputs() {
    for (const Output& o : graph_.outputs()) {
      const uint32_t s = at_.at({o.value, legal_.device[graph_[o.value].node]});
      plan_.outputs.push_back({o.name, storages_[s].place.index});
    }
    for (Value v : graph_.inputs())  // an input that nothing reads is still an input
      index_of(v, plan_.inputs, PlannedInput{graph_[v].name, graph_[v].type, {}});
  }

  void plan_updates() {
    const uint32_t end = time_;
    for (const Update& u : graph_.updates()) {
      const uint32_t device = legal_.device[graph_[u.value].node];
      const uint32_t s = at_.at({u.value, device});
      const uint32_t e = entry_of(u.target);
      plan_.entries[e].updated = true;
      plan_.entries[e].update_device = device;
      const auto old = at_.find({u.target, device});
      const uint32_t target = old == at_.end() ? kNone : old->second;
      if (storages_[s].place.home == Home::arena && may_overwrite(s, target)) {
        storages_[s].place = {Home::entry, e, 0};
        if (target != kNone) overwrites_[s] = target;
        continue;
      }
      touch(s, end);
      if (type_bytes(graph_.type(u.value)) == 0) continue;
      pending_copies_.push_back({kNone, plan_.after.size(), s, kNone, u.value});
      plan_.after.push_back({.from_device = device,
                             .to_device = device,
                             .from = {},
                             .to = {Home::entry, e, 0},
                             .size = type_bytes(graph_.type(u.value))});
    }
  }

  // May the new content be written where the old is? Only when its last reader is past, or is the
  // step that writes it and offers to do so in place.
  bool may_overwrite(uint32_t fresh, uint32_t old) const {
    if (old == kNone) return true;
    const uint32_t write = storages_[fresh].first;
    if (storages_[old].first == kNone || storages_[old].last < write) return true;
    if (storages_[old].last > write) return false;
    return std::any_of(offers_.begin(), offers_.end(), [&](const InPlaceOffer& o) {
      return o.time == write && o.from == old && o.to == fresh;
    });
  }

  // ---- lanes

  uint32_t root(uint32_t s) const {
    while (storages_[s].merged_into != kNone) s = storages_[s].merged_into;
    return s;
  }

  // One number for what lies at one address.
  uint32_t bytes_of(uint32_t s) const {
    s = root(s);
    const auto old = overwrites_.find(s);
    return old == overwrites_.end() ? s : old->second;
  }

  void give_lanes() {
    size_t first_step = 0;
    for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
      PlannedRegion& region = plan_.regions[r];
      const size_t count = region.program->steps().size();
      if (options_.lanes > 1) {
        const DeviceInfo& info = plan_.devices[region.device]->info();
        if (info.lanes)
          region.lanes = lanes_of(region, first_step);
        else
          region.lanes_note = cat("plugin ", info.plugin, " runs its steps in one lane");
      }
      if (region.lanes.count > 1) prolong_lives(region.lanes, first_step, first_time_[r]);
      first_step += count;
    }
  }

  Lanes lanes_of(const PlannedRegion& region, size_t first_step) const {
    std::vector<LaneStep> steps(region.program->steps().size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const Touches& touches = touches_[first_step + i];
      LaneStep& step = steps[i];
      const auto add = [&](const std::vector<uint32_t>& storages, std::vector<uint32_t>& ids) {
        for (uint32_t s : storages) {
          if (s == kNone) continue;
          ids.push_back(bytes_of(s));
          step.cost += storages_[s].size;
        }
      };
      add(touches.reads, step.reads);
      add(touches.writes, step.writes);
      const uint32_t report = region.report_of_step[i];
      if (report != kNone)
        step.cost += static_cast<uint64_t>(legal_.reports[report].flops / kFlopsPerByte);
      step.work = !region.program->steps()[i].writes.empty();
      step.ordered = ordered_[first_step + i];
    }
    return assign_lanes(steps, options_.lanes);
  }

  // A storage lives until no step can begin any more while one that touches it runs.
  void prolong_lives(const Lanes& lanes, size_t first_step, uint32_t first_time) {
    const size_t count = lanes.lane.size();
    const LaneOrder order(lanes, count);
    for (uint32_t i = 0; i < count; ++i) {
      const Touches& touches = touches_[first_step + i];
      const uint32_t until = first_time + order.latest_beside(i);
      for (const auto* list : {&touches.reads, &touches.writes})
        for (uint32_t s : *list)
          if (s != kNone) storages_[root(s)].last = std::max(storages_[root(s)].last, until);
    }
  }

  // ---- arenas

  void merge_in_place() {
    std::map<uint32_t, uint32_t>
        taken;  // storage -> step that took it last: one output only may have its bytes
    for (const InPlaceOffer& offer : offers_) {
      const uint32_t from = root(offer.from);
      if (const auto t = taken.find(from); t != taken.end() && t->second == offer.time) continue;
      Storage& f = storages_[from];
      Storage& t = storages_[offer.to];
      if (from == offer.to || t.merged_into != kNone || t.first != offer.time) continue;
      if (f.place.home != Home::arena || t.place.home != Home::arena || f.last != offer.time)
        continue;
      t.merged_into = from;
      taken[from] = offer.time;
      f.last = t.last;
      f.alignment = std::max(f.alignment, t.alignment);
    }
  }

  void lay_out_arenas() {
    plan_.arenas.resize(plan_.devices.size());
    for (uint32_t d = 0; d < plan_.devices.size(); ++d) {
      const DeviceInfo& info = plan_.devices[d]->info();
      std::vector<ArenaObject> objects;
      std::vector<uint32_t> owners;
      for (uint32_t s = 0; s < storages_.size(); ++s) {
        const Storage& storage = storages_[s];
        if (storage.device != d || storage.place.home != Home::arena ||
            storage.merged_into != kNone)
          continue;
        if (storage.first == kNone) continue;  // declared, never touched
        objects.push_back({.size = storage.size,
                           .alignment = std::max(storage.alignment, info.alignment),
                           .first = storage.first,
                           .last = storage.last});
        owners.push_back(s);
      }
      uint64_t alignment = info.alignment;  // of a buffer's begin and of all that lies in it
      for (const ArenaObject& o : objects) alignment = std::max(alignment, o.alignment);
      const uint64_t limit = std::max(info.max_allocation / alignment, uint64_t{1}) * alignment;
      for (uint32_t s : owners)
        if (storages_[s].size > limit)
          fail(Code::out_of_memory, "memory plan: ", content_of(s), " takes ", storages_[s].size,
               " bytes, the largest buffer of ", info.id, " has ", info.max_allocation);
      ArenaLayout layout = lay_out(objects, limit);
      const std::string wrong = check_layout(objects, limit);
      check(wrong.empty(), "memory plan: ", wrong);
      for (size_t i = 0; i < objects.size(); ++i)
        storages_[owners[i]].place = {Home::arena, static_cast<uint32_t>(objects[i].offset / limit),
                                      objects[i].offset % limit};
      plan_.arenas[d] = {std::move(layout.chunks), layout.peak, layout.bound};
    }
  }

  // What lies in a storage, for messages.
  std::string content_of(uint32_t s) const {
    for (const auto& [value, storage] : at_) {
      const NodeId node = graph_[value.first].node;
      if (storage == s && node != kNone) return value_text(value.first);
    }
    return "scratch or a value within a program";
  }

  // ---- results

  Place place_of(uint32_t s, uint64_t offset = 0) const {
    if (s == kNone) return {};
    const Storage& storage = storages_[root(s)];
    if (storage.place.home == Home::arena && storage.first == kNone) return {};
    Place place = storage.place;
    place.offset += offset;
    return place;
  }

  void write_places() {
    size_t step = 0;
    for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
      PlannedRegion& region = plan_.regions[r];
      for (const Located& l : located_[r]) region.values.push_back(place_of(l.storage, l.offset));
      for (size_t k = 0; k < region.program->steps().size(); ++k)
        region.scratch.push_back(place_of(scratch_[step++]));
    }
    for (const PendingCopy& c : pending_copies_) {
      PlannedCopy& copy =
          c.region == kNone ? plan_.after[c.index] : plan_.regions[c.region].before[c.index];
      copy.from = place_of(c.from);
      if (c.to != kNone) copy.to = place_of(c.to);
    }
  }

  struct PendingCopy {
    uint32_t region;  // kNone: after the run
    size_t index;
    uint32_t from, to;  // storages
    Value value;
  };

  // What places are to hold, as the graph says.
  PlanContents contents() const {
    PlanContents out{.values = values_,
                     .before = std::vector<std::vector<uint32_t>>(plan_.regions.size()),
                     .inputs = std::vector<uint32_t>(plan_.inputs.size()),
                     .constants = std::vector<uint32_t>(plan_.constants.size()),
                     .entries = std::vector<uint32_t>(plan_.entries.size()),
                     .entries_after = std::vector<uint32_t>(plan_.entries.size(), kNone),
                     .outputs = std::vector<uint32_t>(plan_.output_slots.size()),
                     .count = graph_.value_count()};
    // Kept in the order in which they were planned, region by region.
    for (const PendingCopy& c : pending_copies_)
      (c.region == kNone ? out.after : out.before[c.region]).push_back(c.value.id);
    for (const auto& [v, index] : index_) {
      const Space space = graph_[v].space;
      (space == Space::input      ? out.inputs
       : space == Space::constant ? out.constants
                                  : out.entries)[index] = v.id;
    }
    for (const Update& u : graph_.updates()) out.entries_after[index_.at(u.target)] = u.value.id;
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
    const NodeReport& report = legal_.reports[legal_.report_of[info.node]];
    return cat("a value of type ", info.type.text(), " of ", report.op, " '", report.name, "'");
  }

  const LegalGraph& legal_;
  const Graph& graph_;
  const PlanOptions& options_;
  Plan& plan_;
  uint32_t time_ = 0;
  std::vector<Storage> storages_;
  std::map<std::pair<Value, uint32_t>, uint32_t> at_;  // value on a device -> storage
  std::map<Value, uint32_t> index_;  // named value -> index in its list of the plan
  std::vector<bool> is_output_;
  std::vector<std::vector<Located>> located_;  // per region, per program value
  std::vector<std::vector<uint32_t>> values_;  // likewise: the graph's value, or kNone
  std::vector<uint32_t> scratch_;              // per step over all regions
  std::vector<Touches> touches_;               // likewise
  std::vector<bool> ordered_;                  // likewise
  std::vector<uint32_t> first_time_;           // per region: of its first step
  std::map<uint32_t, uint32_t> overwrites_;    // storage -> the one whose bytes it takes, of a name
  std::vector<InPlaceOffer> offers_;
  std::vector<PendingCopy> pending_copies_;
};

}  // namespace

void place_values(const LegalGraph& legal, const PlanOptions& options, Plan& plan) {
  Placer(legal, options, plan).run();
}

}  // namespace tenon::core
