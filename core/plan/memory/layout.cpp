// SPDX-License-Identifier: Apache-2.0
// Placements are tried until one meets the bound of aligned sizes, and the lowest is kept: in order of
// time with best fit among the gaps (near-linear), and, for arenas of a moderate number of objects, at
// the lowest free offset in three orders: by size, by length of life, by their product (quadratic).
// Where these miss the bound, the best order is mended: what lies highest is placed sooner.
#include "plan/memory/layout.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"

namespace tenon::core {
namespace {

constexpr int kGapTries = 32;
constexpr size_t kSmallArena = 4000;  // objects up to which the quadratic placement is affordable
constexpr uint64_t kMendCost = 20'000'000;  // what all tries to mend one may cost, by that square

uint64_t align_up(uint64_t v, uint64_t alignment) { return (v + alignment - 1) & ~(alignment - 1); }

// Lowest offset >= from where the object fits without crossing a chunk border.
uint64_t fit(uint64_t from, const ArenaObject& o, uint64_t chunk_limit) {
  uint64_t at = align_up(from, o.alignment);
  if (chunk_limit && at / chunk_limit != (at + o.size - 1) / chunk_limit)
    at = align_up((at / chunk_limit + 1) * chunk_limit, o.alignment);
  return at;
}

// Free gaps [begin, end) below a high-water mark.
class Gaps {
 public:
  explicit Gaps(uint64_t chunk_limit) : chunk_limit_(chunk_limit) {}
  uint64_t take(const ArenaObject& o) {
    // Smallest gap that holds the object; equal sizes: the lowest. Alignment and chunk borders make
    // some too small that are long enough: few are tried, then those that alignment cannot spoil.
    for (const uint64_t least : {o.size, o.size + o.alignment - 1}) {
      int tries = kGapTries;
      for (auto i = by_size_.lower_bound({least, 0}); i != by_size_.end() && tries > 0;
           ++i, --tries) {
        const auto [size, begin] = *i;
        const uint64_t at = fit(begin, o, chunk_limit_);
        if (at + o.size > begin + size) continue;
        erase(begin, begin + size);
        if (at > begin) insert(begin, at);
        if (at + o.size < begin + size) insert(at + o.size, begin + size);
        return at;
      }
    }
    uint64_t from = top_;
    if (!by_begin_.empty() &&
        std::prev(by_begin_.end())->second == top_) {  // grow the gap at the top
      from = std::prev(by_begin_.end())->first;
      erase(from, top_);
    }
    const uint64_t at = fit(from, o, chunk_limit_);
    if (at > from) insert(from, at);
    top_ = at + o.size;
    return at;
  }
  void give(uint64_t begin, uint64_t end) {
    const auto next = by_begin_.lower_bound(begin);
    if (next != by_begin_.begin() && std::prev(next)->second == begin) {
      const auto [b, e] = *std::prev(next);
      erase(b, e);
      begin = b;
    }
    const auto after = by_begin_.find(end);
    if (after != by_begin_.end()) {
      const uint64_t e = after->second;
      erase(end, e);
      end = e;
    }
    insert(begin, end);
  }

 private:
  void insert(uint64_t b, uint64_t e) {
    by_begin_.emplace(b, e);
    by_size_.insert({e - b, b});
  }
  void erase(uint64_t b, uint64_t e) {
    by_begin_.erase(b);
    by_size_.erase({e - b, b});
  }
  uint64_t chunk_limit_;
  uint64_t top_ = 0;
  std::map<uint64_t, uint64_t> by_begin_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

std::vector<uint32_t> order_by(std::span<const ArenaObject> objects, auto less) {
  std::vector<uint32_t> order(objects.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return less(objects[a], objects[b]); });
  return order;
}

void place_by_time(std::span<ArenaObject> objects, uint64_t chunk_limit) {
  const auto starts = order_by(objects, [](const ArenaObject& a, const ArenaObject& b) {
    return a.first != b.first ? a.first < b.first : a.size > b.size;
  });
  const auto ends =
      order_by(objects, [](const ArenaObject& a, const ArenaObject& b) { return a.last < b.last; });
  Gaps gaps(chunk_limit);
  size_t next_end = 0;
  for (uint32_t i : starts) {
    ArenaObject& o = objects[i];
    for (; next_end < ends.size() && objects[ends[next_end]].last < o.first; ++next_end) {
      const ArenaObject& dead = objects[ends[next_end]];
      if (dead.size) gaps.give(dead.offset, dead.offset + dead.size);
    }
    o.offset = o.size ? gaps.take(o) : 0;
  }
}

// Each at the lowest offset that is free for its whole life.
void place_in_order(std::span<ArenaObject> objects, uint64_t chunk_limit,
                    const std::vector<uint32_t>& order) {
  std::vector<uint32_t> placed;  // by offset
  for (uint32_t i : order) {
    ArenaObject& o = objects[i];
    if (o.size == 0) continue;
    uint64_t at = fit(0, o, chunk_limit);
    for (uint32_t p : placed) {
      const ArenaObject& q = objects[p];
      if (q.last < o.first || o.last < q.first) continue;
      if (at + o.size <= q.offset) break;
      at = std::max(at, fit(q.offset + q.size, o, chunk_limit));
    }
    o.offset = at;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](uint32_t a, uint32_t b) {
                                     return objects[a].offset < objects[b].offset;
                                   }),
                  i);
  }
}

uint64_t peak_of(std::span<const ArenaObject> objects) {
  uint64_t peak = 0;
  for (const ArenaObject& o : objects) peak = std::max(peak, o.size ? o.offset + o.size : 0);
  return peak;
}

struct Placement {
  std::vector<uint32_t> order{};  // in which the objects were given their offsets
  std::vector<ArenaObject> objects{};
  uint64_t peak = 0;
};

Placement placement(std::span<const ArenaObject> objects, uint64_t chunk_limit,
                    std::vector<uint32_t> order) {
  Placement out{std::move(order), {objects.begin(), objects.end()}};
  place_in_order(out.objects, chunk_limit, out.order);
  out.peak = peak_of(out.objects);
  return out;
}

// The object that ends highest comes sooner: half-way to the front. False when it is there already.
bool promote_highest(Placement& p) {
  const auto highest =
      std::max_element(p.order.begin(), p.order.end(), [&](uint32_t a, uint32_t b) {
        return p.objects[a].offset + p.objects[a].size < p.objects[b].offset + p.objects[b].size;
      });
  if (highest == p.order.begin()) return false;
  std::rotate(p.order.begin() + (highest - p.order.begin()) / 2, highest, highest + 1);
  return true;
}

// The lowest of the quadratic placements; they end with the first that meets the bound.
Placement place_low(std::span<const ArenaObject> objects, uint64_t chunk_limit, uint64_t bound) {
  const auto life = [](const ArenaObject& o) { return uint64_t{o.last} - o.first + 1; };
  const std::vector<uint32_t> orders[] = {
      order_by(objects, [](const auto& a, const auto& b) { return a.size > b.size; }),
      order_by(objects, [&](const auto& a, const auto& b) { return life(a) > life(b); }),
      order_by(objects,
               [&](const auto& a, const auto& b) { return a.size * life(a) > b.size * life(b); })};
  Placement best{.peak = UINT64_MAX};
  for (const auto& order : orders) {
    Placement p = placement(objects, chunk_limit, order);
    if (p.peak < best.peak) best = std::move(p);
    if (best.peak <= bound) return best;
  }
  // Each try starts from the last one, not from the best: so it gets out of what leads nowhere.
  Placement now = best;
  const uint64_t cost = uint64_t{objects.size()} * objects.size();
  for (uint64_t tries = std::min<uint64_t>(200, kMendCost / cost); tries > 0; --tries) {
    if (best.peak <= bound || !promote_highest(now)) break;
    now = placement(objects, chunk_limit, std::move(now.order));
    if (now.peak < best.peak) best = now;
  }
  return best;
}

// The bound where each object takes whole units of the least alignment, as offsets are multiples of it.
uint64_t aligned_bound(std::span<const ArenaObject> objects) {
  uint64_t unit = UINT64_MAX;
  for (const ArenaObject& o : objects) unit = std::min<uint64_t>(unit, o.alignment);
  std::vector<ArenaObject> rounded(objects.begin(), objects.end());
  for (ArenaObject& o : rounded) o.size = align_up(o.size, unit);
  return arena_bound(rounded);
}

}  // namespace

uint64_t arena_bound(std::span<const ArenaObject> objects) {
  // Sorted events; at one step what begins there is alive together with what ends there.
  std::vector<std::pair<uint64_t, int64_t>> events;
  events.reserve(2 * objects.size());
  for (const ArenaObject& o : objects) {
    events.emplace_back(2 * uint64_t{o.first}, static_cast<int64_t>(o.size));
    events.emplace_back(2 * uint64_t{o.last} + 1, -static_cast<int64_t>(o.size));
  }
  std::sort(events.begin(), events.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t alive = 0, most = 0;
  for (const auto& [time, bytes] : events) most = std::max(most, alive += bytes);
  return static_cast<uint64_t>(most);
}

ArenaLayout lay_out(std::span<ArenaObject> objects, uint64_t chunk_limit) {
  for (const ArenaObject& o : objects)
    if (chunk_limit && o.size > chunk_limit)
      fail(Code::out_of_memory, "memory plan: one value of ", o.size,
           " bytes exceeds the device's largest allocation of ", chunk_limit, " bytes");
  // What follows adds sizes up, once with each object in a chunk that it fills by half.
  constexpr uint64_t kMost = uint64_t{1} << 60;
  uint64_t sum = 0;
  for (const ArenaObject& o : objects) {
    sum += std::min(o.size, kMost) + std::min(o.alignment, kMost);
    if (sum >= kMost)
      fail(Code::out_of_memory, "memory plan: the values of one device take 2^60 bytes or more");
  }
  ArenaLayout out;
  out.bound = arena_bound(objects);
  place_by_time(objects, chunk_limit);
  out.peak = peak_of(objects);
  if (const uint64_t bound = aligned_bound(objects);
      out.peak > bound && objects.size() <= kSmallArena) {
    const Placement low = place_low(objects, chunk_limit, bound);
    if (low.peak < out.peak) {
      std::copy(low.objects.begin(), low.objects.end(), objects.begin());
      out.peak = low.peak;
    }
  }
  if (!chunk_limit) {
    if (out.peak) out.chunks.push_back(out.peak);
  } else {
    out.chunks.resize((out.peak + chunk_limit - 1) / chunk_limit, 0);
    for (const ArenaObject& o : objects)
      if (o.size) {
        uint64_t& chunk = out.chunks[o.offset / chunk_limit];
        chunk = std::max(chunk, o.offset % chunk_limit + o.size);
      }
  }
  return out;
}

}  // namespace tenon::core
