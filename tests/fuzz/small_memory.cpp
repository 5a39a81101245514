// SPDX-License-Identifier: Apache-2.0
// Host memory that runs out at 1 GiB an allocation, on every machine and under every sanitizer, so
// that huge sizes which a call may legally ask for fail and do not swap.
#include <cstdlib>
#include <new>

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  constexpr size_t kMost = size_t{1} << 30;
  return size > kMost ? nullptr : std::malloc(size);
}
void* operator new(size_t size) {
  if (void* memory = ::operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
