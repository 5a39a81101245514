// SPDX-License-Identifier: Apache-2.0
// Reads the affinity mask and the control group's quota.
#include "host/threads.hpp"

#include <sched.h>

#include <algorithm>

#include "host/control_group.hpp"

namespace tenon::core {
namespace {

uint32_t affinity_threads() {
  // On large machines, the mask may be larger than cpu_set_t.
  for (int processors = 1024; processors <= (1 << 20); processors *= 4) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(processors);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return static_cast<uint32_t>(std::max(count, 1));
  }
  return 1;
}

}  // namespace

uint32_t available_threads() {
  static const uint32_t threads = std::min(affinity_threads(), control_group_threads());
  return threads;
}

}  // namespace tenon::core
