// SPDX-License-Identifier: Apache-2.0
// Sweeps over the steps, with the live objects sorted by address.
#include "plan/check/overlap.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace tenon::core {

std::string check_layout(std::span<const ArenaObject> objects, uint64_t chunk_limit) {
  std::vector<uint32_t> starts(objects.size());
  std::iota(starts.begin(), starts.end(), 0u);
  std::stable_sort(starts.begin(), starts.end(),
                   [&](uint32_t a, uint32_t b) { return objects[a].first < objects[b].first; });
  std::multimap<uint32_t, uint32_t> ends;  // last step -> object
  std::map<uint64_t, uint32_t> alive;      // offset -> object
  for (uint32_t i : starts) {
    const ArenaObject& o = objects[i];
    if (o.size == 0) continue;
    if (o.first > o.last) return cat("object ", i, " ends before it begins");
    if (o.offset % o.alignment)
      return cat("object ", i, " at ", o.offset, " is not aligned to ", o.alignment);
    if (chunk_limit && o.offset / chunk_limit != (o.offset + o.size - 1) / chunk_limit)
      return cat("object ", i, " crosses a chunk border");
    while (!ends.empty() && ends.begin()->first < o.first) {
      alive.erase(objects[ends.begin()->second].offset);
      ends.erase(ends.begin());
    }
    const auto next = alive.lower_bound(o.offset);
    if (next != alive.end() && next->first < o.offset + o.size)
      return cat("objects ", i, " and ", next->second, " overlap");
    if (next != alive.begin()) {
      const ArenaObject& before = objects[std::prev(next)->second];
      if (before.offset + before.size > o.offset)
        return cat("objects ", i, " and ", std::prev(next)->second, " overlap");
    }
    alive.emplace(o.offset, i);
    ends.emplace(o.last, i);
  }
  return {};
}

}  // namespace tenon::core
