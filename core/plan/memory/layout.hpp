// SPDX-License-Identifier: Apache-2.0
// Where things lie in an arena: objects with a lifetime get offsets so that no two that live at
// once overlap. Pure arithmetic; knows neither graphs nor devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::core {

// Lives from step `first` to step `last`, both included.
struct ArenaObject {
  uint64_t size = 0;        // bytes
  uint64_t alignment = 64;  // a power of two
  uint32_t first = 0;
  uint32_t last = 0;
  uint64_t offset = 0;  // result
};

struct ArenaLayout {
  uint64_t peak = 0;   // bytes up to the end of the highest object
  uint64_t bound = 0;  // most bytes alive at one step: no layout can do with less
  // Sizes of the buffers to allocate; object o belongs to chunk offset / chunk_limit.
  std::vector<uint64_t> chunks;
};

// Sets every object's offset. An object never crosses a multiple of chunk_limit (0 = no limit), so
// that the arena may be made of buffers of at most that size; an object larger than that is an
// out_of_memory error. Near-linear.
ArenaLayout lay_out(std::span<ArenaObject> objects, uint64_t chunk_limit);

// The lower bound alone.
uint64_t arena_bound(std::span<const ArenaObject> objects);

}  // namespace tenon::core
