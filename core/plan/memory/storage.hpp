// SPDX-License-Identifier: Apache-2.0
// Bytes with a lifetime on a device: which of them share an address (in place, updates written
// where the old content was) and where in an arena the rest lies. Knows times and sizes; what lies
// in them and which steps touch them, locate says.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

// Time counts steps over all regions.
struct Storage {
  uint32_t device = 0;
  Place place;  // final for all homes but arena
  uint64_t size = 0;
  uint64_t alignment = 1;
  uint32_t first = kNone;
  uint32_t last = 0;
  uint32_t merged_into = kNone;
};

// What a step touches, for the time that it has.
struct Touches {
  std::vector<uint32_t> reads{}, writes{};  // storages, kNone among them; scratch is written
};

// All storages of a plan, by number. kNone, for no bytes at all, is touched without effect.
class Storages {
 public:
  uint32_t add(uint32_t device, Place place, uint64_t size, uint64_t alignment = 1);
  const Storage& operator[](uint32_t s) const { return storages_[s]; }
  void touch(uint32_t s, uint32_t time);
  // A step may write `to` into the bytes of `from`, which it reads.
  void offer_in_place(uint32_t time, uint32_t from, uint32_t to);
  // `fresh` takes the place of a name, whose old content is in `old` (kNone: on no device). False
  // where it may not: then `fresh` is as it was.
  bool overwrite(uint32_t fresh, uint32_t old, Place name);

  // Takes up the offers, in their order. All is touched.
  void merge_in_place();
  // What a step touches lives until then.
  void prolong(const Touches& touches, uint32_t until);
  // One number for what lies at one address.
  uint32_t bytes_of(uint32_t s) const;

  // Gives all of a device that is still to have one a place in its arena. What a storage holds is
  // asked for a refusal.
  DeviceArena lay_out_arena(uint32_t device, const DeviceInfo& info,
                            const std::function<std::string(uint32_t)>& content_of);
  // That much behind its begin; none for what was never touched.
  Place place_of(uint32_t s, uint64_t offset = 0) const;

 private:
  struct InPlaceOffer {
    uint32_t time;
    uint32_t from, to;
  };

  uint32_t root(uint32_t s) const;
  bool may_overwrite(uint32_t fresh, uint32_t old) const;

  std::vector<Storage> storages_;
  std::vector<InPlaceOffer> offers_;
  std::map<uint32_t, uint32_t> overwrites_;  // storage -> the one whose bytes it takes, of a name
};

}  // namespace tenon::core
