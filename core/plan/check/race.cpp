// SPDX-License-Identifier: Apache-2.0
// Finds pairs of unordered steps that touch the same bytes.
#include "plan/check/race.hpp"

#include <map>
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

class Races {
 public:
  Races(const Lanes& lanes, const std::vector<std::vector<Access>>& accesses)
      : order_(lanes, accesses.size()) {
    for (uint32_t s = 0; s < accesses.size() && wrong_.empty(); ++s)
      for (const Access& a : accesses[s]) touch(a.place, a.size, s, a.writes);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  using Pieces = std::map<uint64_t, Piece>;

  void touch(const Place& place, uint64_t size, uint32_t step, bool writes) {
    if (place.home == Home::none || size == 0) return;
    Pieces& pieces = memory_[{place.home, place.index}];
    const uint64_t begin = place.offset, end = begin + size;
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
    wrong_ = cat("steps ", earlier, " and ", later, " touch the same bytes, and neither waits");
  }

  const LaneOrder order_;
  std::map<std::pair<Home, uint32_t>, Pieces> memory_;
  std::string wrong_;
};

}  // namespace

std::string find_race(const Lanes& lanes, const std::vector<std::vector<Access>>& accesses) {
  return Races(lanes, accesses).wrong();
}

std::string check_races(const Plan& plan) {
  for (const PlannedRegion& region : plan.regions) {
    if (region.lanes.count == 1) continue;
    const auto& steps = region.program->steps();
    const auto& values = region.program->values();
    std::vector<std::vector<Access>> accesses(steps.size());
    for (uint32_t s = 0; s < steps.size(); ++s) {
      if (steps[s].writes.empty()) continue;  // nothing runs
      for (uint32_t v : steps[s].reads)
        accesses[s].push_back({region.values[v], values[v].size, false});
      for (uint32_t v : steps[s].writes)
        accesses[s].push_back({region.values[v], values[v].size, true});
      accesses[s].push_back({region.scratch[s], steps[s].scratch, true});
    }
    if (std::string wrong = find_race(region.lanes, accesses); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace tenon::core
