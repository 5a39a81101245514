// SPDX-License-Identifier: Apache-2.0
// The number of threads that this process may use: the smaller of its affinity mask and its control
// group's quota.
#pragma once

#include <cstdint>

namespace tenon::core {

// At least 1; read once.
uint32_t available_threads();

}  // namespace tenon::core
