// SPDX-License-Identifier: Apache-2.0
// Buffers: aligned for the widest vectors; large ones ask the kernel for huge pages, which spares page faults and
// translation misses in kernels that stream.
#include "memory.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "tenon/kernel.hpp"

namespace tenon::cpu {
namespace {
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kHugePage = 2 << 20;
}  // namespace

void* allocate_memory(uint64_t bytes) {
  const bool large = bytes >= 2 * kHugePage;
  const uint64_t alignment = large ? kHugePage : kAlignment;
  const uint64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = padded < bytes ? nullptr : std::aligned_alloc(alignment, padded);
  if (memory == nullptr)
    throw sdk::Failure(TENON_OUT_OF_MEMORY, "no host memory for a buffer of " + std::to_string(bytes) + " bytes");
  // Advice only: a kernel without huge pages refuses, and the memory is as good.
  if (large) madvise(memory, padded, MADV_HUGEPAGE);
  return memory;
}

void free_memory(void* memory) noexcept { std::free(memory); }

}  // namespace tenon::cpu
