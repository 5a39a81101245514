// SPDX-License-Identifier: Apache-2.0
// Checks a layout: no two objects that are alive at the same step overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/memory/layout.hpp"

namespace tenon::core {

// Returns an empty text if no two objects that are alive at the same step overlap, and each is
// aligned and inside its chunk; else what is wrong. Near-linear.
std::string check_layout(std::span<const ArenaObject> objects, uint64_t chunk_limit);

}  // namespace tenon::core
