// SPDX-License-Identifier: Apache-2.0
// Host memory of the device.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// Bytes aligned to at least `alignment`, a power of two, and to a huge page when there is one to
// fill. Throws std::bad_alloc.
void* allocate_memory(uint64_t bytes, uint64_t alignment);
void free_memory(void* memory) noexcept;

}  // namespace tenon::cpu
