// SPDX-License-Identifier: Apache-2.0
// The working memory of a device. All contexts of all executables borrow from one pool for the time
// of a run, so contexts that run one after another share their memory.
//
// A context that runs again gets the memory it had before, if that is idle, and its instances stay
// bound to it. Only when memory is short does the pool free idle memory, and the instances with it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "host/device.hpp"

namespace tenon::core {

struct Lease;

// One buffer of working memory. Guarded by the mutex of its pool.
struct ArenaChunk {
  std::shared_ptr<Buffer> buffer;  // null: freed
  const Lease* borrower = nullptr;
  std::vector<Lease*> bound;  // leases whose instances use the buffer
  uint64_t last_use = 0;      // larger = later
};

class ArenaPool {
 public:
  using Chunks = std::vector<std::shared_ptr<ArenaChunk>>;

  // The pools of a runtime share a mutex: a lease may hold memory of several devices.
  ArenaPool(std::shared_ptr<Device> device, std::shared_ptr<std::mutex> mutex);
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // Borrows a buffer of at least each size. held: what this lease is bound to; becomes what it
  // borrows. Prefers what is held, then the smallest idle buffer that is large enough; else it
  // allocates, and frees the largest idle buffer before. Returns true if all buffers are those that
  // were held. [any-thread]
  bool borrow(Lease& lease, std::span<const uint64_t> sizes, Chunks& held);

  // Ends the loan, and frees idle buffers beyond the pool's limit: a quarter of the device's memory
  // apart from what is given back now, least recently used first. [any-thread]
  void give_back(const Lease& lease, const Chunks& held) noexcept;

  // Forgets a lease that is about to be destroyed. [any-thread]
  void forget(Lease& lease, Chunks& held) noexcept;

  // Frees the instances of a lease that does not run. [any-thread]
  void free_instances(Lease& lease) noexcept;

  // Frees all idle buffers, and the instances that are bound to them. [any-thread]
  void flush();

 private:
  struct Trash;

  std::shared_ptr<ArenaChunk> find_idle(uint64_t size) const;
  std::shared_ptr<ArenaChunk> find_largest_idle() const;
  void bind(Lease& lease, const std::shared_ptr<ArenaChunk>& chunk,
            std::shared_ptr<ArenaChunk>& held);
  void evict(const std::shared_ptr<ArenaChunk>& chunk, Trash& trash);
  void keep_limit(Trash& trash);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<std::mutex> mutex_;  // guards what follows, and the chunks
  Chunks chunks_;
  uint64_t clock_ = 0;
};

// The pools of a runtime. A pool lives as long as an executable of its device. [any-thread]
class ArenaPools {
 public:
  std::shared_ptr<ArenaPool> of(const std::shared_ptr<Device>& device);
  // Frees the idle working memory of a device.
  void flush(const Device& device);

 private:
  const std::shared_ptr<std::mutex> chunks_mutex_ = std::make_shared<std::mutex>();
  std::mutex mutex_;  // guards pools_
  std::map<const Device*, std::weak_ptr<ArenaPool>> pools_;
};

}  // namespace tenon::core
