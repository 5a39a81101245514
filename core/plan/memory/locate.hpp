// SPDX-License-Identifier: Apache-2.0
// Compiles the regions and says in which storage every value of their programs is, some bytes in,
// and when which steps touch it: what is named in the storage of its name, a view in what it is of.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/memory/partition.hpp"
#include "plan/memory/storage.hpp"

namespace tenon::core {

// A program value: a storage, some bytes in.
struct Located {
  uint32_t storage = kNone;
  uint64_t offset = 0;
};

// One of the plan's copies, whose places follow from the storages'.
struct PendingCopy {
  uint32_t region;  // kNone: after the run
  size_t index;
  uint32_t from, to;  // storages; to is kNone where the copy knows its place
  Value value;
};

struct Locations {
  Storages storages;
  std::map<std::pair<Value, uint32_t>, uint32_t> at;  // value on a device -> storage
  std::map<Value, uint32_t> index;  // named value -> index in its list of the plan
  std::vector<uint32_t> derived;    // per derived weight: the value it is, kNone: in a layout
  std::vector<std::vector<Located>> located;  // per region, per program value
  std::vector<std::vector<uint32_t>> values;  // likewise: the graph's value, or kNone
  std::vector<uint32_t> scratch;              // per step over all regions: storage, or kNone
  std::vector<Touches> touches;               // likewise
  std::vector<bool> ordered;                  // likewise: keeps its place among such
  std::vector<uint32_t> first_time;           // per region: of its first step
  std::vector<PendingCopy> copies;            // in the order in which they were planned
};

// Compiles the regions of a placed graph. Fills the plan's lists and regions, but for places and
// lanes. Updates are written where the old
// content was where that is safe, else copied after the run.
Locations locate_values(const LegalGraph& legal, std::span<const CutRegion> regions,
                        const PlanOptions& options, Plan& plan);

}  // namespace tenon::core
