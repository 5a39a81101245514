// SPDX-License-Identifier: Apache-2.0
// Joins storages that share an address, and lays the rest into an arena by best fit.
#include "plan/memory/storage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/check/overlap.hpp"

namespace tenon::core {

uint32_t Storages::add(uint32_t device, Place place, uint64_t size, uint64_t alignment) {
  if (size == 0 && place.home == Home::arena) place.home = Home::none;
  storages_.push_back({.device = device, .place = place, .size = size, .alignment = alignment});
  return static_cast<uint32_t>(storages_.size() - 1);
}

void Storages::touch(uint32_t s, uint32_t time) {
  if (s == kNone) return;
  storages_[s].first = std::min(storages_[s].first, time);
  storages_[s].last = std::max(storages_[s].last, time);
}

void Storages::offer_in_place(uint32_t time, uint32_t from, uint32_t to) {
  if (storages_[from].size == storages_[to].size) offers_.push_back({time, from, to});
}

bool Storages::overwrite(uint32_t fresh, uint32_t old, Place name) {
  if (storages_[fresh].place.home != Home::arena || !may_overwrite(fresh, old)) return false;
  storages_[fresh].place = name;
  if (old != kNone) overwrites_[fresh] = old;
  return true;
}

// Only when the old content's last reader is past, or is the step that writes the new and offers to
// do so in place.
bool Storages::may_overwrite(uint32_t fresh, uint32_t old) const {
  if (old == kNone) return true;
  const uint32_t write = storages_[fresh].first;
  if (storages_[old].first == kNone || storages_[old].last < write) return true;
  if (storages_[old].last > write) return false;
  return std::any_of(offers_.begin(), offers_.end(), [&](const InPlaceOffer& o) {
    return o.time == write && o.from == old && o.to == fresh;
  });
}

uint32_t Storages::root(uint32_t s) const {
  while (storages_[s].merged_into != kNone) s = storages_[s].merged_into;
  return s;
}

uint32_t Storages::bytes_of(uint32_t s) const {
  s = root(s);
  const auto old = overwrites_.find(s);
  return old == overwrites_.end() ? s : old->second;
}

void Storages::merge_in_place() {
  // storage -> step that took it last: one output only may have its bytes
  std::map<uint32_t, uint32_t> taken;
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

void Storages::prolong(const Touches& touches, uint32_t until) {
  for (const auto* list : {&touches.reads, &touches.writes})
    for (uint32_t s : *list)
      if (s != kNone) storages_[root(s)].last = std::max(storages_[root(s)].last, until);
}

DeviceArena Storages::lay_out_arena(uint32_t device, const DeviceInfo& info,
                                    const std::function<std::string(uint32_t)>& content_of) {
  std::vector<ArenaObject> objects;
  std::vector<uint32_t> owners;
  for (uint32_t s = 0; s < storages_.size(); ++s) {
    const Storage& storage = storages_[s];
    if (storage.device != device || storage.place.home != Home::arena ||
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
  return {std::move(layout.chunks), layout.peak, layout.bound};
}

Place Storages::place_of(uint32_t s, uint64_t offset) const {
  if (s == kNone) return {};
  const Storage& storage = storages_[root(s)];
  if (storage.place.home == Home::arena && storage.first == kNone) return {};
  Place place = storage.place;
  place.offset += offset;
  return place;
}

}  // namespace tenon::core
