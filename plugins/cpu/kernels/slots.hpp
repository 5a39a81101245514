// SPDX-License-Identifier: Apache-2.0
// Scratch for kernels whose rows need a work area. The number of slots is fixed: each has its own
// area and its own range of rows. So the size of the scratch does not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../parallel.hpp"

namespace tenon::cpu {

struct Slots {
  int64_t rows = 0;
  int64_t count = 0;
  int64_t bytes = 0;  // per area, a multiple of 64

  uint64_t scratch() const { return static_cast<uint64_t>(count * bytes); }

  // Calls body(first row, end row, area). The result of a row must not depend on the previous
  // content of its area.
  template <class Body>
  void run(void* scratch, Body&& body) const {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        body(rows * s / count, rows * (s + 1) / count, static_cast<char*>(scratch) + s * bytes);
    });
  }
};

// Slots for rows that need `bytes` of scratch and cost about `cost` each (see grain_for). Many
// slots balance the load; large areas limit their number.
inline Slots make_slots(int64_t rows, int64_t bytes, int64_t cost) {
  constexpr int64_t kMin = 8, kMax = 64, kBudget = 64 << 20;
  Slots s{.rows = rows, .count = 0, .bytes = (bytes + 63) / 64 * 64};
  const int64_t affordable = std::clamp(kBudget / std::max<int64_t>(s.bytes, 1), kMin, kMax);
  const int64_t grain = grain_for(cost);
  s.count = std::min((rows + grain - 1) / grain, affordable);
  return s;
}

}  // namespace tenon::cpu
