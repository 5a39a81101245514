// SPDX-License-Identifier: Apache-2.0
// Follows a planned run and reports the first read of bytes that were overwritten.
#include "plan/check/contents.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace tenon::core {
namespace {

constexpr size_t kHomes = static_cast<size_t>(Home::derived) + 1;
constexpr std::array<const char*, kHomes> kHomeTexts = {
    "no place", "chunk", "input", "output", "entry", "constant", "derived weight"};

// Numbers of holders: graph values and other inputs of the run, then, per region, the values of its
// program and the scratch of its steps.
class Follower {
 public:
  explicit Follower(const HeldRun& run) : run_(run) {
    uint32_t next = run.count;
    for (const HeldRegion& r : run.regions) {
      first_.push_back(next);
      next += static_cast<uint32_t>(r.values.size() + r.steps.size());
    }
    touched_.resize(next, 0);
    for (const Held& h : run.given) write(h);
    for (region_ = 0; region_ < run.regions.size(); ++region_) follow(run.regions[region_]);
    region_ = kNone;
    for (size_t i = 0; i < run.after.size(); ++i) follow(run.after[i], run.copied_after[i]);
    at_end_ = true;
    for (const Held& h : run.left) read(h);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  // The bytes of one holder, by start.
  struct Piece {
    uint64_t end = 0;
    uint32_t holder = kNone;
  };
  using Pieces = std::map<uint64_t, Piece>;

  // ---- events of a run

  void follow(const HeldRegion& region) {
    for (size_t i = 0; i < region.before.size(); ++i) follow(region.before[i], region.copied[i]);
    holder_.assign(region.contents.begin(), region.contents.end());
    for (uint32_t v = 0; v < holder_.size(); ++v)
      if (holder_[v] == kNone) holder_[v] = first_[region_] + v;
    taker_.assign(holder_.size(), kNone);
    for (step_ = 0; step_ < region.steps.size() && wrong_.empty(); ++step_)
      follow(region, region.steps[step_]);
    step_ = kNone;
  }

  void follow(const PlannedCopy& copy, uint32_t value) {
    read({copy.from_device, copy.from, copy.size, value});
    write({copy.to_device, copy.to, copy.size, value});
  }

  void follow(const HeldRegion& region, const Step& step) {
    ++now_;
    clash_ = false;
    if (!step.writes.empty())  // otherwise nothing runs
      for (uint32_t v : step.reads) {
        read(held(region, v));
        touched_[holder_[v]] = now_;
      }
    if (step.scratch) make(scratch_of(region));
    for (uint32_t v : step.writes) make(held(region, v));
    for (const Alias& a : step.aliases)
      if (a.view) view(region, a);
    if (clash_) settle(region, step);
  }

  void make(const Held& h) {
    write(h);
    touched_[h.value] = now_;
  }

  void view(const HeldRegion& region, const Alias& a) {
    holder_[a.to] = holder_[a.from];
    const Held base = held(region, a.from), view = held(region, a.to);
    if (view.place.home == Home::none) return;  // a read of it reports the error
    const bool inside = a.offset <= base.size && view.size <= base.size - a.offset;
    Place expected = base.place;
    expected.offset += a.offset;
    if (!inside || view.place != expected)
      say(who(), " views ", text(view), ", ", a.offset, " bytes into ", text(base));
  }

  // Finds operands whose bytes a step overwrote with its results. That is allowed for one in-place
  // write per operand, which overwrites no other operand.
  void settle(const HeldRegion& region, const Step& step) {
    for (const Alias& a : step.aliases)
      if (!a.view && region.places[a.from] == region.places[a.to]) taker_[a.from] = a.to;
    std::vector<uint32_t> takers;
    for (uint32_t v : step.reads) {
      const uint32_t taker = taker_[v] == kNone ? kNone : holder_[taker_[v]];
      taker_[v] = kNone;
      bool taken = false;
      expect(held(region, v), [&](uint32_t holder) {
        taken |= holder == taker;
        return holder == taker;
      });
      if (taken) takers.push_back(taker);
    }
    std::ranges::sort(takers);
    if (const auto twice = std::ranges::adjacent_find(takers); twice != takers.end())
      say(who(), " writes ", name(*twice), " over two of its operands");
    for (uint32_t v : step.writes) read(held(region, v));
    if (step.scratch) read(scratch_of(region));
  }

  Held held(const HeldRegion& region, uint32_t v) const {
    return {region.device, region.places[v], region.values[v].size, holder_[v]};
  }
  Held scratch_of(const HeldRegion& region) const {
    return {region.device, region.scratch[step_], region.steps[step_].scratch,
            first_[region_] + static_cast<uint32_t>(region.values.size()) + step_};
  }

  // ---- bytes

  Pieces& pieces_of(const Held& h) {
    if (memory_.size() <= h.device) memory_.resize(h.device + 1);
    auto& chunks = memory_[h.device][static_cast<size_t>(h.place.home)];
    if (chunks.size() <= h.place.index) chunks.resize(h.place.index + 1);
    return chunks[h.place.index];
  }

  void write(const Held& h) {
    if (h.size == 0) return;
    if (h.place.home == Home::none) return say(who(), " writes ", text(h));
    Pieces& pieces = pieces_of(h);
    const uint64_t begin = h.place.offset, end = begin + h.size;
    auto p = pieces.lower_bound(begin);
    if (p != pieces.begin()) {
      const auto before = std::prev(p);
      const Piece cut = before->second;
      if (cut.end > begin) {
        clash_ |= touched_[cut.holder] == now_;
        before->second.end = begin;
        if (cut.end > end) p = pieces.emplace_hint(p, end, cut);
      }
    }
    while (p != pieces.end() && p->first < end) {
      clash_ |= touched_[p->second.holder] == now_;
      if (p->first == begin && p->second.end == end) {  // the common case
        p->second.holder = h.value;
        return;
      }
      if (p->second.end > end) pieces.emplace_hint(std::next(p), end, p->second);
      p = pieces.erase(p);
    }
    pieces.emplace_hint(p, begin, Piece{end, h.value});
  }

  void read(const Held& h) {
    expect(h, [](uint32_t) { return false; });
  }

  // Checks that every byte is held by its value, or by an allowed holder.
  template <class May>
  void expect(const Held& h, May&& may) {
    if (h.size == 0 || !wrong_.empty()) return;
    if (h.place.home == Home::none) return lost(h, 0, kNone);
    const Pieces& pieces = pieces_of(h);
    const uint64_t end = h.place.offset + h.size;
    auto p = pieces.upper_bound(h.place.offset);
    if (p != pieces.begin()) --p;
    for (uint64_t at = h.place.offset; at < end; ++p) {
      const bool there = p != pieces.end() && p->first <= at && p->second.end > at;
      if (!there) return lost(h, at, kNone);
      if (p->second.holder != h.value && !may(p->second.holder))
        return lost(h, at, p->second.holder);
      at = p->second.end;
    }
  }

  // ---- messages

  void lost(const Held& h, uint64_t at, uint32_t holder) {
    const char* does = at_end_ ? " leaves " : " needs ";
    if (h.place.home == Home::none) return say(who(), does, text(h));
    say(who(), does, text(h), ", but byte ", at, " there holds ",
        holder == kNone ? "nothing" : name(holder));
  }
  template <class... Parts>
  void say(const Parts&... parts) {
    if (wrong_.empty()) wrong_ = cat(parts...);
  }

  std::string who() const {
    if (region_ == kNone) return at_end_ ? "the run" : "a copy after the run";
    if (step_ == kNone) return cat("a copy before region ", region_);
    return step_text(region_, step_);
  }
  std::string step_text(uint32_t r, uint32_t s) const {
    const HeldRegion& region = run_.regions[r];
    const std::string& label = region.steps[s].label;
    const uint32_t report = region.reports[s];
    return cat("step ", s, label.empty() ? "" : " ", label, " of region ", r,
               report == kNone ? "" : cat(" (", run_.node_text(report), ")"));
  }
  std::string name(uint32_t holder) const {
    if (holder < run_.count) return run_.value_text(holder);
    const auto r =
        static_cast<uint32_t>(std::ranges::upper_bound(first_, holder) - first_.begin() - 1);
    const uint32_t i = holder - first_[r];
    const auto values = static_cast<uint32_t>(run_.regions[r].values.size());
    return i < values ? cat("value ", i, " of the program of region ", r)
                      : cat("scratch of ", step_text(r, i - values));
  }
  std::string text(const Held& h) const {
    const std::string at = kHomeTexts[static_cast<size_t>(h.place.home)];
    if (h.place.home == Home::none) return cat(name(h.value), " of ", h.size, " bytes in no place");
    return cat(name(h.value), " at bytes ", h.place.offset, " to ", h.place.offset + h.size, " of ",
               at, " ", h.place.index, " of device ", h.device);
  }

  const HeldRun& run_;
  std::vector<std::array<std::vector<Pieces>, kHomes>> memory_;  // by device, home, index
  std::vector<uint32_t> first_;   // per region: holder of its first program value
  std::vector<uint32_t> holder_;  // per value of the region; a view has the holder of its base
  // per value of the region: the in-place write that was placed there
  std::vector<uint32_t> taker_;
  std::vector<uint32_t> touched_;  // per holder: the last step that read or wrote it
  uint32_t now_ = 0, region_ = kNone, step_ = kNone;
  bool clash_ = false;  // the step overwrote something that it uses
  bool at_end_ = false;
  std::string wrong_;
};

}  // namespace

std::string find_lost(const HeldRun& run) { return Follower(run).wrong(); }

std::string check_contents(const Plan& plan, PlanContents contents) {
  HeldRun run{.after = plan.after,
              .copied_after = contents.after,
              .count = contents.count + static_cast<uint32_t>(plan.derived.size()),
              .node_text = contents.node_text};
  run.value_text = [&](uint32_t v) {
    return v < contents.count
               ? contents.value_text(v)
               : cat(contents.value_text(contents.entries[plan.derived[v - contents.count].entry]),
                     " in a layout of its device");
  };
  const auto given = [&](Home home, size_t index, const std::vector<uint32_t>& devices,
                         uint64_t size, uint32_t value) {
    for (uint32_t d : devices)
      run.given.push_back({d, {home, static_cast<uint32_t>(index), 0}, size, value});
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    given(Home::input, i, plan.inputs[i].devices, type_bytes(plan.inputs[i].type),
          contents.inputs[i]);
  for (size_t i = 0; i < plan.constants.size(); ++i)
    given(Home::constant, i, plan.constants[i].devices, plan.constants[i].data->size(),
          contents.constants[i]);
  for (size_t i = 0; i < plan.entries.size(); ++i)
    given(Home::entry, i, plan.entries[i].devices, type_bytes(plan.entries[i].type),
          contents.entries[i]);
  for (size_t i = 0; i < plan.derived.size(); ++i)
    given(Home::derived, i, {plan.derived[i].device}, plan.derived[i].size,
          contents.derived[i] != kNone ? contents.derived[i]
                                       : contents.count + static_cast<uint32_t>(i));

  // Inputs keep their content for the next run, except updated ones.
  for (const Held& h : run.given) {
    const bool updated = h.place.home == Home::entry && plan.entries[h.place.index].updated &&
                         plan.entries[h.place.index].update_device == h.device;
    if (!updated) run.left.push_back(h);
  }
  for (size_t i = 0; i < plan.entries.size(); ++i)
    if (const PlannedEntry& e = plan.entries[i]; e.updated)
      run.left.push_back({e.update_device,
                          {Home::entry, static_cast<uint32_t>(i), 0},
                          type_bytes(e.type),
                          contents.entries_after[i]});
  for (size_t i = 0; i < plan.output_slots.size(); ++i)
    run.left.push_back({plan.output_slots[i].device,
                        {Home::output, static_cast<uint32_t>(i), 0},
                        type_bytes(plan.output_slots[i].type),
                        contents.outputs[i]});

  for (size_t r = 0; r < plan.regions.size(); ++r) {
    const PlannedRegion& region = plan.regions[r];
    const std::vector<ProgramValue>& declared = region.program->values();
    for (size_t v = 0; v < declared.size(); ++v)
      if (!declared[v].layout.empty())
        contents.values[r][v] = contents.count + region.values[v].index;
    run.regions.push_back({region.device, declared, region.program->steps(), region.values,
                           region.scratch, contents.values[r], region.before, contents.before[r],
                           region.report_of_step});
  }
  return find_lost(run);
}

}  // namespace tenon::core
