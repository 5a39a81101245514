// SPDX-License-Identifier: Apache-2.0
// Finds pairs of unordered steps or tasks that touch the same bytes.
#include "plan/check/race.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "plan/memory/lanes.hpp"

namespace tenon::core {
namespace {

// Bytes that the same steps touched last, by their begin.
struct Piece {
  uint64_t end = 0;
  uint32_t writer = kNone;
  std::vector<uint32_t> readers{};  // since then, the latest of each lane
};

// Which tasks have ended before others begin.
class TaskOrder {
 public:
  explicit TaskOrder(const std::vector<PlannedTask>& tasks) {
    for (uint32_t t = 0; t < tasks.size(); ++t) {
      std::vector<bool>& mine = before_.emplace_back(t);
      const auto add = [&](uint32_t earlier) {
        mine[earlier] = true;
        for (uint32_t e = 0; e < earlier; ++e)
          if (before_[earlier][e]) mine[e] = true;
      };
      for (uint32_t earlier : tasks[t].after) add(earlier);
      // Regions of a device run in order, so what comes before the earlier comes before this one.
      if (tasks[t].behind != kNone) add(tasks[t].behind);
    }
  }
  bool before(uint32_t first, uint32_t second) const {
    return first < second && before_[second][first];
  }

 private:
  std::vector<std::vector<bool>> before_;  // [task][earlier task]
};

template <class Order>
class Races {
 public:
  Races(Order order, const char* what, const std::vector<std::vector<Access>>& accesses)
      : order_(std::move(order)), what_(what) {
    for (uint32_t s = 0; s < accesses.size() && wrong_.empty(); ++s)
      for (const Access& a : accesses[s]) touch(a, s);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  using Pieces = std::map<uint64_t, Piece>;

  void touch(const Access& a, uint32_t step) {
    if (a.place.home == Home::none || a.size == 0) return;
    Pieces& pieces = memory_[{a.device, a.place.home, a.place.index}];
    const uint64_t begin = a.place.offset, end = begin + a.size;
    const bool writes = a.writes;
    cut(pieces, begin);
    cut(pieces, end);
    for (uint64_t at = begin; at < end;) {
      const auto next = pieces.lower_bound(at);
      if (next == pieces.end() || next->first > at) {  // untouched so far
        const uint64_t until = next == pieces.end() ? end : std::min(end, next->first);
        Piece fresh{.end = until};
        use(fresh, step, writes);
        pieces.emplace_hint(next, at, std::move(fresh));
        at = until;
        continue;
      }
      use(next->second, step, writes);
      at = next->second.end;
    }
  }

  static void cut(Pieces& pieces, uint64_t at) {
    auto p = pieces.upper_bound(at);
    if (p == pieces.begin() || (--p)->first == at || p->second.end <= at) return;
    Piece behind = p->second;
    p->second.end = at;
    pieces.emplace(at, std::move(behind));
  }

  void use(Piece& piece, uint32_t step, bool writes) {
    must_come_before(piece.writer, step);
    if (writes) {
      for (uint32_t r : piece.readers) must_come_before(r, step);
      piece.writer = step;
      piece.readers.clear();
      return;
    }
    for (uint32_t& r : piece.readers)
      if (r == step || order_.before(r, step)) {
        r = step;
        return;
      }
    piece.readers.push_back(step);
  }

  void must_come_before(uint32_t earlier, uint32_t later) {
    if (earlier == kNone || earlier == later || order_.before(earlier, later) || !wrong_.empty())
      return;
    wrong_ = cat(what_, " ", earlier, " and ", later, " touch the same bytes, and neither waits");
  }

  const Order order_;
  const char* const what_;
  std::map<std::tuple<uint32_t, Home, uint32_t>, Pieces> memory_;  // by device, home, index
  std::string wrong_;
};

// What a region's steps read and write.
std::vector<std::vector<Access>> accesses_of(const PlannedRegion& region) {
  const auto& steps = region.program->steps();
  const auto& values = region.program->values();
  std::vector<std::vector<Access>> accesses(steps.size());
  for (uint32_t s = 0; s < steps.size(); ++s) {
    if (steps[s].writes.empty()) continue;  // nothing runs
    const auto add = [&](const Place& place, uint64_t size, bool writes) {
      accesses[s].push_back({place, size, writes, region.device});
    };
    for (uint32_t v : steps[s].reads) add(region.values[v], values[v].size, false);
    for (uint32_t v : steps[s].writes) add(region.values[v], values[v].size, true);
    add(region.scratch[s], steps[s].scratch, true);
  }
  return accesses;
}

std::string check_tasks(const Plan& plan) {
  if (plan.tasks.size() > kMostCheckedTasks) return {};
  std::vector<std::vector<Access>> accesses;
  for (const PlannedTask& task : plan.tasks) {
    auto& mine = accesses.emplace_back();
    if (task.copy != kNone) {
      const PlannedCopy& c = plan.regions[task.region].before[task.copy];
      mine.push_back({c.from, c.size, false, c.from_device});
      mine.push_back({c.to, c.size, true, c.to_device});
      continue;
    }
    for (const auto& step : accesses_of(plan.regions[task.region]))
      mine.insert(mine.end(), step.begin(), step.end());
  }
  return find_race(plan.tasks, accesses);
}

}  // namespace

std::string find_race(const Lanes& lanes, const std::vector<std::vector<Access>>& accesses) {
  return Races(LaneOrder(lanes, accesses.size()), "steps", accesses).wrong();
}

std::string find_race(const std::vector<PlannedTask>& tasks,
                      const std::vector<std::vector<Access>>& accesses) {
  return Races(TaskOrder(tasks), "tasks", accesses).wrong();
}

std::string check_races(const Plan& plan) {
  for (const PlannedRegion& region : plan.regions) {
    if (region.lanes.count == 1) continue;
    if (std::string wrong = find_race(region.lanes, accesses_of(region)); !wrong.empty())
      return wrong;
  }
  return check_tasks(plan);
}

}  // namespace tenon::core
