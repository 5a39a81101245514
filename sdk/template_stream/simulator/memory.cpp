// SPDX-License-Identifier: Apache-2.0
// Memory behind handles, and the code that works on it.
#include <atomic>
#include <cstring>
#include <new>

#include "driver.hpp"

namespace simulator {

namespace {
constexpr std::align_val_t kAlignment{128};
// On x86-64 and arm64 no address of a program has these bits: reading through a handle crashes.
constexpr uint64_t kNoAddress = uint64_t{0x5A5A} << 48;
// Handles are odd and far apart, so that a handle plus an offset is unknown.
constexpr uint64_t kApart = 4096, kOdd = 41;

// The device that runs a function on this thread.
thread_local const Device* running = nullptr;

void free_bytes(unsigned char* bytes) { ::operator delete(bytes, kAlignment); }
}  // namespace

Memory Device::allocate(uint64_t bytes) {
  Block block{{static_cast<unsigned char*>(::operator new(bytes, kAlignment)), free_bytes}, bytes};
  std::memset(block.bytes.get(), 0xFF, bytes);  // NaN in every float
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<Memory>(kNoAddress | (++made_ * kApart + kOdd));
  blocks_.emplace(handle, std::move(block));
  return handle;
}

void Device::release(Memory memory) noexcept {
  const std::lock_guard lock(mutex_);
  blocks_.erase(memory);
}

unsigned char* Device::map(const Part& part, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(part.memory);
  if (block == blocks_.end()) throw Lost("a command uses memory that does not exist");
  const uint64_t size = block->second.size;
  if (part.offset > size || bytes > size - part.offset)
    throw Lost("a command uses " + std::to_string(bytes) + " bytes at " +
               std::to_string(part.offset) + " of memory of " + std::to_string(size));
  return block->second.bytes.get() + part.offset;
}

void Device::lose(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (why_lost_.empty()) why_lost_ = why.empty() ? "the device is lost" : why;
}
bool Device::lost() const {
  const std::lock_guard lock(mutex_);
  return !why_lost_.empty();
}
void Device::check() const {
  const std::lock_guard lock(mutex_);
  if (!why_lost_.empty()) throw Lost(why_lost_);
}

CodePtr compile(Function function) { return std::make_shared<const Code>(std::move(function)); }

void Code::run(const Device& device, const Arguments& arguments) const {
  std::vector<void*> pointers;
  for (const Part& p : arguments.memory) pointers.push_back(p.memory ? device.map(p, 0) : nullptr);
  running = &device;
  function_(pointers.data(), arguments.numbers.data());
}

uint32_t atomic_min(uint32_t* word, uint32_t value) {
  if (!running->properties().atomics) throw Lost("code uses atomics, which the device lacks");
  std::atomic_ref<uint32_t> shared(*word);
  uint32_t seen = shared.load();
  while (value < seen && !shared.compare_exchange_weak(seen, value)) {
  }
  return seen;
}

}  // namespace simulator
