// SPDX-License-Identifier: Apache-2.0
// Scratch for kernels whose rows need a work area each: a fixed number of slots, each with its own
// area and its own range of rows, so that what a kernel asks for does not depend on how many
// threads will run it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../parallel.hpp"

namespace tenon::cpu {

struct Slots {
  int64_t rows = 0;
  int64_t count = 0;
  int64_t bytes = 0;  // of one area, a multiple of 64

  uint64_t scratch() const { return static_cast<uint64_t>(count * bytes); }

  // Calls body(first row, end row, area); a row's result must not depend on what its area held.
  template <class Body>
  void run(void* scratch, Body&& body) const {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        body(rows * s / count, rows * (s + 1) / count, static_cast<char*>(scratch) + s * bytes);
    });
  }
};

// Rows that need `bytes` of scratch and cost about `cost` each (see grain_for). Many slots even out
// the load; areas that are large are few.
inline Slots make_slots(int64_t rows, int64_t bytes, int64_t cost) {
  constexpr int64_t kFewest = 8, kMost = 64, kBudget = 64 << 20;
  Slots s{.rows = rows, .count = 0, .bytes = (bytes + 63) / 64 * 64};
  const int64_t affordable = std::clamp(kBudget / std::max<int64_t>(s.bytes, 1), kFewest, kMost);
  const int64_t grain = grain_for(cost);
  s.count = std::min((rows + grain - 1) / grain, affordable);
  return s;
}

}  // namespace tenon::cpu
