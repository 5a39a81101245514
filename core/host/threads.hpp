// SPDX-License-Identifier: Apache-2.0
// How many threads this process may use at once: the smaller of its affinity mask and the quota of
// its control group.
#pragma once

#include <cstdint>

namespace tenon::core {

// At least 1; asked of the system once.
uint32_t available_threads();

}  // namespace tenon::core
