// SPDX-License-Identifier: Apache-2.0
// Buffers, aligned for the widest vectors. Large buffers request huge pages, which reduces page
// faults and TLB misses.
#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tenon::cpu {
namespace {
constexpr uint64_t kHugePage = 2 << 20;
}  // namespace

void* allocate_memory(uint64_t bytes, uint64_t alignment) {
  const bool large = bytes >= 2 * kHugePage;
  alignment = std::max(alignment, large ? kHugePage : 64);
  const uint64_t padded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = padded < bytes ? nullptr : std::aligned_alloc(alignment, padded);
  if (memory == nullptr) throw std::bad_alloc();
  // Only advice: without huge pages, the kernel ignores it, and the memory is usable as well.
  if (large) madvise(memory, padded, MADV_HUGEPAGE);
  return memory;
}

void free_memory(void* memory) noexcept { std::free(memory); }

}  // namespace tenon::cpu
