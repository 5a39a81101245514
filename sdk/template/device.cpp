// SPDX-License-Identifier: Apache-2.0
// Host memory from the aligned operator new. Runs happen in the caller's thread, so there is
// nothing to open.
#include "device.hpp"

#include <new>

namespace tenon::sample {

namespace {
class HostMemory final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(sdk::DeviceSpec{}.alignment));
  }
};
}  // namespace

std::unique_ptr<sdk::Device> open_device(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<HostMemory>();
}

}  // namespace tenon::sample
