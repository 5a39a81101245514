// SPDX-License-Identifier: Apache-2.0
// Lends working memory, and frees idle memory when it is short.
#include "exec/arena_pool.hpp"

#include <algorithm>

#include "exec/lease.hpp"

namespace tenon::core {

// Destroyed outside of the lock: freeing calls the plugin.
struct ArenaPool::Trash {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::vector<std::shared_ptr<Instance>>> instances;
  std::vector<std::vector<std::shared_ptr<HostedRegion>>> hosted;
};

ArenaPool::ArenaPool(std::shared_ptr<Device> device, std::shared_ptr<std::mutex> mutex)
    : device_(std::move(device)), mutex_(std::move(mutex)) {}

bool ArenaPool::borrow(Lease& lease, std::span<const uint64_t> sizes, Chunks& held) {
  bool same = true;
  for (size_t c = 0; c < sizes.size(); ++c) {
    Trash trash;
    std::unique_lock lock(*mutex_);
    held.resize(sizes.size());
    ArenaChunk* last = held[c].get();
    if (last && last->buffer && !last->borrower && last->buffer->size() >= sizes[c]) {
      last->borrower = &lease;
      continue;
    }
    same = false;
    std::shared_ptr<ArenaChunk> chunk = find_idle(sizes[c]);
    if (!chunk) {
      // One that is too small goes before the larger one is made: its leases can use that one.
      if (const auto small = find_largest_idle()) evict(small, trash);
      lock.unlock();
      trash = {};
      chunk = std::make_shared<ArenaChunk>();
      chunk->buffer = device_->buffer(sizes[c], "intermediates");
      lock.lock();
      chunks_.push_back(chunk);
    }
    chunk->borrower = &lease;
    bind(lease, chunk, held[c]);
  }
  return same;
}

std::shared_ptr<ArenaChunk> ArenaPool::find_idle(uint64_t size) const {
  std::shared_ptr<ArenaChunk> best;
  for (const auto& chunk : chunks_)
    if (!chunk->borrower && chunk->buffer->size() >= size &&
        (!best || chunk->buffer->size() < best->buffer->size()))
      best = chunk;
  return best;
}

std::shared_ptr<ArenaChunk> ArenaPool::find_largest_idle() const {
  std::shared_ptr<ArenaChunk> best;
  for (const auto& chunk : chunks_)
    if (!chunk->borrower && (!best || chunk->buffer->size() > best->buffer->size())) best = chunk;
  return best;
}

void ArenaPool::bind(Lease& lease, const std::shared_ptr<ArenaChunk>& chunk,
                     std::shared_ptr<ArenaChunk>& held) {
  if (held) std::erase(held->bound, &lease);
  chunk->bound.push_back(&lease);
  held = chunk;
}

// chunk: idle, so none of the leases bound to it is running.
void ArenaPool::evict(const std::shared_ptr<ArenaChunk>& chunk, Trash& trash) {
  trash.buffers.reserve(trash.buffers.size() + 1);
  trash.instances.reserve(trash.instances.size() + chunk->bound.size());
  trash.hosted.reserve(trash.hosted.size() + chunk->bound.size());
  for (Lease* lease : chunk->bound) {
    trash.instances.push_back(std::move(lease->instances));
    lease->instances.clear();
    trash.hosted.push_back(std::move(lease->hosted));
    lease->hosted.clear();
    lease->ready = false;
  }
  chunk->bound.clear();
  trash.buffers.push_back(std::move(chunk->buffer));
  std::erase(chunks_, chunk);
}

void ArenaPool::give_back(const Lease& lease, const Chunks& held) noexcept {
  Trash trash;
  const std::lock_guard lock(*mutex_);
  ++clock_;
  for (const auto& chunk : held)
    if (chunk && chunk->borrower == &lease) chunk->borrower = nullptr, chunk->last_use = clock_;
  try {
    keep_limit(trash);
  } catch (const std::bad_alloc&) {  // the next run tries again
  }
}

void ArenaPool::keep_limit(Trash& trash) {
  const uint64_t limit = device_->info().memory_size / 4;
  if (limit == 0) return;
  uint64_t idle = 0;
  for (const auto& chunk : chunks_)
    if (!chunk->borrower && chunk->last_use != clock_) idle += chunk->buffer->size();
  while (idle > limit) {
    std::shared_ptr<ArenaChunk> oldest;
    for (const auto& chunk : chunks_)
      if (!chunk->borrower && (!oldest || chunk->last_use < oldest->last_use)) oldest = chunk;
    idle -= oldest->buffer->size();
    evict(oldest, trash);
  }
}

void ArenaPool::forget(Lease& lease, Chunks& held) noexcept {
  const std::lock_guard lock(*mutex_);
  for (auto& chunk : held)
    if (chunk) std::erase(chunk->bound, &lease);
  held.clear();
}

void ArenaPool::free_instances(Lease& lease) noexcept {
  std::vector<std::shared_ptr<Instance>> instances;
  std::vector<std::shared_ptr<HostedRegion>> hosted;
  const std::lock_guard lock(*mutex_);
  instances.swap(lease.instances);
  hosted.swap(lease.hosted);
  lease.ready = false;
}

void ArenaPool::flush() {
  Trash trash;
  const std::lock_guard lock(*mutex_);
  for (const auto& chunk : Chunks(chunks_))
    if (!chunk->borrower) evict(chunk, trash);
}

// ---- The pools of a runtime

std::shared_ptr<ArenaPool> ArenaPools::of(const std::shared_ptr<Device>& device) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<ArenaPool>& known = pools_[device.get()];
  std::shared_ptr<ArenaPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<ArenaPool>(device, chunks_mutex_);
  return pool;
}

void ArenaPools::flush(const Device& device) {
  std::shared_ptr<ArenaPool> pool;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = pools_.find(&device); found != pools_.end()) pool = found->second.lock();
  }
  if (pool) pool->flush();
}

}  // namespace tenon::core
