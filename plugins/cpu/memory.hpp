// SPDX-License-Identifier: Apache-2.0
// Host memory of the device.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// Allocates `bytes` bytes, aligned to at least `alignment` (a power of two). Buffers of at least a
// huge page are aligned to huge pages. Throws std::bad_alloc.
void* allocate_memory(uint64_t bytes, uint64_t alignment);
void free_memory(void* memory) noexcept;

}  // namespace tenon::cpu
