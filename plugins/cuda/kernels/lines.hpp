// SPDX-License-Identifier: Apache-2.0
// A tensor seen along one axis as lines, and how many lanes walk one (device/rows.cuh).
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "../code.hpp"
#include "args.hpp"

namespace tenon::cuda {

// Refuses lines that 32 bits cannot count.
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

// Lanes that hold a row of `vectors` in their registers, `most` each: a part of a block, or all of it
// from `shortest` vectors on. None: the row is too long.
struct RowLanes {
  int64_t lanes, chunks;  // vectors of a lane
};
inline std::optional<RowLanes> row_lanes(int64_t vectors, int64_t most, int64_t shortest) {
  constexpr int64_t kMostLanes = 1024;
  int64_t lanes = 32;
  while (lanes * most < vectors) {
    if (lanes == kMostLanes) return {};
    lanes = lanes == 32 && vectors > shortest ? 256 : lanes * 2;
  }
  return RowLanes{lanes, std::max<int64_t>(blocks_for(vectors, lanes), 1)};
}
// Of a norm of halves: elements that a lane holds at most, and `shortest`. Other kernels that make the
// norm keep its order of sums.
inline constexpr int64_t kMostOfNorm = 32, kShortestOfNorm = 512;

// How a kernel walks lines and what it keeps of them in shared memory, at most `room` bytes. slots:
// lines of a group that are kept, of elements of `bytes`.
struct Walk {
  int64_t lanes = 1;
  bool keep = false;
  uint32_t slice = 0;   // bytes of a kept line
  uint32_t shared = 0;  // of a block
};
inline Walk walk_of(const AxisView& l, int64_t bytes, int slots, uint32_t room,
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
  if (slots == 0 || shared > static_cast<int64_t>(room)) return w;
  w.keep = true;
  w.slice = static_cast<uint32_t>(slice);
  w.shared = static_cast<uint32_t>(shared);
  return w;
}

// Lines of 16 bits that are too long for a part of a block: device/long_line.cuh, with `threads` of
// a block for each line and its bytes of shared memory, at most `room`. None where the kernels for
// any lines must do.
struct LongWalk {
  uint32_t threads = 512, shared = 0;
  Grid grid(int64_t lines) const {
    return {.blocks = launchable(lines), .threads = threads, .shared = shared};
  }
};
inline std::optional<LongWalk> long_walk_of(const AxisView& l, tenon_dtype dtype,
                                            const Properties& properties, uint32_t room) {
  constexpr int64_t kShortest = 1 << 14, kVector = 16;
  // A line may begin anywhere in its first vector.
  const int64_t shared = (l.length * element_bytes(dtype) + 2 * kVector - 2) / kVector * kVector;
  if (!is_half(dtype) || l.inner > 1 || l.length <= kShortest || properties.major < 8 ||
      shared > static_cast<int64_t>(room))
    return std::nullopt;
  return LongWalk{.shared = static_cast<uint32_t>(shared)};
}
inline bool on_vectors(const sdk::Value& v) { return v.alignment() > 0 && v.alignment() % 16 == 0; }

// An area of scratch, aligned for vectors; gives its offset.
inline uint64_t take_scratch(uint64_t& scratch, uint64_t bytes) {
  const uint64_t at = scratch;
  scratch += (bytes + 255) / 256 * 256;
  return at;
}
template <class T = void>
T* scratch_at(const sdk::Call& c, uint64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(c.scratch) + offset);
}

}  // namespace tenon::cuda
