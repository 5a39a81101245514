// SPDX-License-Identifier: Apache-2.0
// Lanes are given in the order of the program, by an estimate of when each could begin the step.
// What a step has to wait for beyond what its lane knows already is found by counting, per lane,
// the steps that are done before it.
#include "plan/memory/lanes.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.hpp"

namespace tenon::core {
namespace {

constexpr uint32_t kNoStep = UINT32_MAX;
// Of a launch and of a wait between lanes, in bytes that a device moves in that time.
constexpr uint64_t kStepCost = 4 << 20, kWaitCost = 2 << 20;

// Who touched a piece of memory last, as far as a later step must know.
struct Touched {
  uint32_t writer = kNoStep;
  std::vector<uint32_t> readers{};  // since then, the latest of each lane
};

class Assigner {
 public:
  Assigner(std::span<const LaneStep> steps, uint32_t most)
      : steps_(steps), most_(most), free_(most), tail_(most, kNoStep), of_lane_(most) {
    uint32_t ids = 0;
    for (const LaneStep& s : steps)
      for (const auto* list : {&s.reads, &s.writes})
        for (uint32_t id : *list) ids = std::max(ids, id + 1);
    memory_.resize(ids);
    lane_.resize(steps.size(), 0);
    position_.resize(steps.size(), 0);
    finish_.resize(steps.size(), 0);
    known_.resize(steps.size() * most);
  }

  Lanes run() {
    uint32_t worked = 0;
    std::vector<uint32_t> begun, before;  // steps per lane where this block began, and the last one
    for (uint32_t s = 0; s < steps_.size(); ++s) {
      if (!steps_[s].work) continue;
      if (worked++ % kLaneBlock == 0) {
        before = std::exchange(begun, counts());
        if (before.empty()) before.assign(most_, 0);
      }
      const std::vector<uint32_t> needed = needs(s);
      lane_[s] = best_lane(s, needed);
      wait(s, needed, before);
      append(s);
      touch(s);
    }
    Lanes out;
    while (out.count < most_ && !of_lane_[out.count].empty()) ++out.count;
    if (out.count == 1) return out;
    out.lane = std::move(lane_);
    out.waits = std::move(waits_);
    return out;
  }

 private:
  std::vector<uint32_t> counts() const {
    std::vector<uint32_t> out;
    for (const auto& steps : of_lane_) out.push_back(static_cast<uint32_t>(steps.size()));
    return out;
  }

  // The steps that must be done before, the latest first.
  std::vector<uint32_t> needs(uint32_t s) const {
    std::vector<uint32_t> out;
    const auto need = [&](uint32_t earlier) {
      if (earlier != kNoStep) out.push_back(earlier);
    };
    for (uint32_t id : steps_[s].reads) need(memory_[id].writer);
    for (uint32_t id : steps_[s].writes) {
      need(memory_[id].writer);
      out.insert(out.end(), memory_[id].readers.begin(), memory_[id].readers.end());
    }
    if (steps_[s].ordered) need(last_ordered_);
    std::sort(out.begin(), out.end(), std::greater<>());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  uint32_t best_lane(uint32_t s, std::span<const uint32_t> needed) {
    uint32_t best = 0;
    std::pair<uint64_t, bool> best_start{UINT64_MAX, true};  // when; no lane of what it needs
    for (uint32_t l = 0; l < most_; ++l) {
      uint64_t start = free_[l];
      bool apart = true;
      for (uint32_t n : needed) {
        start = std::max(start, finish_[n] + (lane_[n] == l ? 0 : kWaitCost));
        if (tail_[l] == n) apart = false;
      }
      if (std::pair(start, apart) < best_start) best = l, best_start = {start, apart};
      if (of_lane_[l].empty()) break;  // the lanes behind it are as empty
    }
    finish_[s] = best_start.first + kStepCost + steps_[s].cost;
    free_[best] = finish_[s];
    return best;
  }

  uint32_t* known(uint32_t s) { return known_.data() + size_t{s} * most_; }

  void wait(uint32_t s, std::span<const uint32_t> needed, std::span<const uint32_t> before) {
    const uint32_t lane = lane_[s];
    uint32_t* mine = known(s);
    const auto learn = [&](uint32_t from) {
      const uint32_t* theirs = known(from);
      for (uint32_t l = 0; l < most_; ++l) mine[l] = std::max(mine[l], theirs[l]);
      mine[lane_[from]] = std::max(mine[lane_[from]], position_[from] + 1);
    };
    if (tail_[lane] != kNoStep) learn(tail_[lane]);
    const auto wait_for = [&](uint32_t after) {
      if (mine[lane_[after]] > position_[after]) return;
      waits_.push_back({s, after});
      learn(after);
    };
    // The latest first: what it waited for need not be waited for again.
    std::vector<uint32_t> all(needed.begin(), needed.end());
    for (uint32_t l = 0; l < most_; ++l)
      if (before[l] != 0) all.push_back(of_lane_[l][before[l] - 1]);
    std::sort(all.begin(), all.end(), std::greater<>());
    for (uint32_t n : all) wait_for(n);
  }

  void append(uint32_t s) {
    const uint32_t lane = lane_[s];
    position_[s] = static_cast<uint32_t>(of_lane_[lane].size());
    of_lane_[lane].push_back(s);
    tail_[lane] = s;
  }

  void touch(uint32_t s) {
    if (steps_[s].ordered) last_ordered_ = s;
    for (uint32_t id : steps_[s].reads) {
      auto& readers = memory_[id].readers;
      const auto same = std::find_if(readers.begin(), readers.end(),
                                     [&](uint32_t r) { return lane_[r] == lane_[s]; });
      if (same == readers.end())
        readers.push_back(s);
      else
        *same = s;
    }
    for (uint32_t id : steps_[s].writes) memory_[id] = {.writer = s};
  }

  std::span<const LaneStep> steps_;
  const uint32_t most_;
  std::vector<uint64_t> free_;                  // per lane: when its last step ends
  std::vector<uint32_t> tail_;                  // per lane: its last step
  std::vector<std::vector<uint32_t>> of_lane_;  // per lane: its steps
  std::vector<Touched> memory_;                 // per id
  std::vector<uint32_t> lane_, position_;       // per step
  std::vector<uint64_t> finish_;                // per step
  std::vector<uint32_t> known_;                 // per step and lane: steps done before it begins
  std::vector<LaneWait> waits_;
  uint32_t last_ordered_ = kNoStep;
};

}  // namespace

Lanes assign_lanes(std::span<const LaneStep> steps, uint32_t most) {
  check(most >= 1 && most <= TENON_MAX_LANES, "lanes: ", most, " of at most ", TENON_MAX_LANES);
  if (most == 1 || steps.size() < 2) return {};
  return Assigner(steps, most).run();
}

LaneOrder::LaneOrder(const Lanes& lanes, size_t step_count)
    : lanes_(lanes.count), lane_(lanes.lane), at_(step_count), steps_(lanes.count) {
  lane_.resize(step_count, 0);
  known_.resize(step_count * lanes_);
  size_t next_wait = 0;
  for (uint32_t s = 0; s < step_count; ++s) {
    auto& own = steps_[lane_[s]];
    at_[s] = static_cast<uint32_t>(own.size());
    const auto learn = [&](uint32_t from) {
      for (uint32_t l = 0; l < lanes_; ++l) known(s, l) = std::max(known(s, l), known(from, l));
      known(s, lane_[from]) = std::max(known(s, lane_[from]), at_[from] + 1);
    };
    if (!own.empty()) learn(own.back());
    for (; next_wait < lanes.waits.size() && lanes.waits[next_wait].step == s; ++next_wait) {
      check(lanes.waits[next_wait].after < s, "lanes: step ", s, " waits for step ",
            lanes.waits[next_wait].after);
      learn(lanes.waits[next_wait].after);
    }
    own.push_back(s);
  }
  check(next_wait == lanes.waits.size(), "lanes: waits are not in the order of their steps");
}

bool LaneOrder::before(uint32_t first, uint32_t second) const {
  return known(second, lane_[first]) > at_[first];
}

uint32_t LaneOrder::latest_beside(uint32_t step) const {
  uint32_t latest = step;
  for (const auto& steps : steps_) {
    // What a lane knows only grows along it.
    const auto after = std::partition_point(steps.begin(), steps.end(),
                                            [&](uint32_t s) { return !before(step, s); });
    if (after != steps.begin()) latest = std::max(latest, *std::prev(after));
  }
  return latest;
}

}  // namespace tenon::core
