// SPDX-License-Identifier: Apache-2.0
// A tensor seen along one axis as lines, and how many lanes walk one (device/rows.cuh).
#pragma once

#include <algorithm>
#include <bit>
#include <string>

#include "../code.hpp"
#include "args.hpp"
#include "axis.hpp"

namespace tenon::cuda {

// Refuses what along_axis refuses, and lines that 32 bits cannot count.
inline AxisView lines_along(const sdk::Type& type, int64_t axis) {
  const AxisView lines = along_axis(type, axis);
  if (lines.length >= kNarrowIndex)
    throw sdk::Refusal::shape("the axis is too long for one kernel");
  return lines;
}

// Threads of a block whose groups have `lanes` lanes, and how many groups that is.
inline uint32_t group_threads(int64_t lanes) {
  return static_cast<uint32_t>(std::max<int64_t>(lanes, 256));
}
inline int64_t groups_per_block(int64_t lanes) { return group_threads(lanes) / lanes; }

// The grid for a kernel with one group per line.
inline Grid line_grid(int64_t lines, int64_t lanes, uint64_t shared = 0) {
  return {.blocks = launchable(blocks_for(lines, groups_per_block(lanes))),
          .threads = group_threads(lanes),
          .shared = static_cast<uint32_t>(shared)};
}

// How a kernel walks lines and what it keeps of them in shared memory. slots: lines of a group that
// are kept, of elements of `bytes`.
struct Walk {
  int64_t lanes = 1;
  bool keep = false;
  uint32_t slice = 0;   // bytes of a kept line
  uint32_t shared = 0;  // of a block
};
inline Walk walk_of(const AxisView& l, int64_t bytes, int slots, uint32_t most_shared,
                    int multiprocessors) {
  Walk w;
  if (l.inner > 1) return w;
  constexpr int64_t kWarpBytes = 4096, kBlockBytes = 32 << 10;
  const int64_t size = l.length * bytes;
  w.lanes = size <= kWarpBytes           ? 32
            : size <= kBlockBytes        ? 256
            : l.outer <= multiprocessors ? 1024
                                         : 512;
  const int64_t slice = (size + 16 + 15) / 16 * 16;
  const int64_t shared = slice * slots * groups_per_block(w.lanes);
  if (slots == 0 || shared > static_cast<int64_t>(most_shared)) return w;
  w.keep = true;
  w.slice = static_cast<uint32_t>(slice);
  w.shared = static_cast<uint32_t>(shared);
  return w;
}

// An area of scratch, aligned for vectors; gives its offset.
inline uint64_t take_scratch(uint64_t& scratch, uint64_t bytes) {
  const uint64_t at = scratch;
  scratch += (bytes + 255) / 256 * 256;
  return at;
}
inline void* scratch_at(const sdk::Call& c, uint64_t offset) {
  return static_cast<char*>(c.scratch) + offset;
}

}  // namespace tenon::cuda
