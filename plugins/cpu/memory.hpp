// SPDX-License-Identifier: Apache-2.0
// Host memory of the device.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// Bytes aligned to 64, or to a huge page when there is one to fill; throws sdk::Failure when memory is out.
void* allocate_memory(uint64_t bytes);
void free_memory(void* memory) noexcept;

}  // namespace tenon::cpu
