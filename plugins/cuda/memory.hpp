// SPDX-License-Identifier: Apache-2.0
// Memory of one device: a stream-ordered pool, or plain allocations where the device has no pools,
// with a byte limit; and pinned staging for copies that the caller waits for.
#pragma once

#include <atomic>
#include <mutex>

#include "driver.hpp"

namespace tenon::cuda {

// Freed memory stays in the pool; when there is none left the pool is emptied before a request
// fails. Plain memory goes back to the device at once.
class Memory {
 public:
  // The context is the thread's own, in the constructor and in every call.
  Memory(DeviceId device, bool pools, uint64_t limit);  // limit: bytes, 0 = none
  ~Memory();
  void* allocate(uint64_t bytes);  // throws Failure
  void free(void* memory, uint64_t bytes) noexcept;
  // Another device, one that can, reads and writes it too; also what is allocated already.
  Result let_in(DeviceId device);

 private:
  Result take(Address* out, uint64_t bytes);
  uint64_t limit_;
  std::atomic<uint64_t> used_{0};
  Pool pool_ = nullptr;  // nullptr: allocations are plain
  Stream stream_ = nullptr;
};

// Two pinned pieces: one is filled or emptied while the other travels.
class Staging {
 public:
  Staging();
  ~Staging();
  void write(Address target, const void* source, uint64_t bytes);
  void read(void* target, Address source, uint64_t bytes);

 private:
  void release() noexcept;
  static constexpr uint64_t kPiece = 4 << 20;
  std::mutex mutex_;
  char* pieces_[2] = {};
  Event passed_[2] = {};
  Stream stream_ = nullptr;
};

}  // namespace tenon::cuda
