// SPDX-License-Identifier: Apache-2.0
// Allocates from the stream-ordered pool and from pinned staging buffers.
#include "memory.hpp"

#include <algorithm>
#include <cstring>

#include "tenon/kernel.hpp"

namespace tenon::cuda {
namespace {

Address address(const void* p) { return reinterpret_cast<Address>(p); }

Pool make_pool(DeviceId device) {
  PoolProperties properties;
  properties.location.id = device;
  Pool pool = nullptr;
  TENON_CUDA(pool_create, &pool, &properties);
  uint64_t keep = ~uint64_t{0};
  driver().pool_set_attribute(pool, attribute::pool_release_threshold, &keep);
  return pool;
}

}  // namespace

Memory::Memory(DeviceId device, bool pools, uint64_t limit) : limit_(limit) {
  if (!pools) return;
  TENON_CUDA(stream_create, &stream_, kStreamNonBlocking);
  try {
    pool_ = make_pool(device);
  } catch (...) {
    driver().stream_destroy(stream_);
    throw;
  }
}

Memory::~Memory() {
  if (!pool_) return;
  driver().stream_synchronize(stream_);
  driver().pool_destroy(pool_);
  driver().stream_destroy(stream_);
}

Result Memory::take(Address* out, uint64_t bytes) {
  if (!pool_) return driver().plain_allocate(out, bytes);
  const Result r = driver().memory_allocate(out, bytes, pool_, stream_);
  if (r != result::out_of_memory) return r;
  // What was freed comes back in this stream's order. Other streams are not waited for: they may
  // be the app's own.
  driver().stream_synchronize(stream_);
  driver().pool_trim(pool_, 0);
  return driver().memory_allocate(out, bytes, pool_, stream_);
}

void* Memory::allocate(uint64_t bytes) {
  const uint64_t before = used_.fetch_add(bytes);
  try {
    if (limit_ != 0 && before + bytes > limit_)
      throw sdk::Failure(TENON_OUT_OF_MEMORY, "a buffer of " + std::to_string(bytes) + " bytes: " +
                                                  std::to_string(before) + " of the limit of " +
                                                  std::to_string(limit_) + " bytes are in use");
    Address memory = 0;
    Result r = take(&memory, bytes);
    if (r == result::out_of_memory) {
      size_t available = 0, total = 0;
      driver().memory_info(&available, &total);
      throw sdk::Failure(TENON_OUT_OF_MEMORY, "no memory for a buffer of " + std::to_string(bytes) +
                                                  " bytes; " + std::to_string(available) + " of " +
                                                  std::to_string(total) + " are free");
    }
    driver().check(pool_ ? "memory_allocate" : "plain_allocate", r);
    if (!pool_) return reinterpret_cast<void*>(memory);
    // Any stream may use it from here on.
    if (r = driver().stream_synchronize(stream_); r != result::success) {
      driver().memory_free(memory, stream_);
      driver().check("stream_synchronize", r);
    }
    return reinterpret_cast<void*>(memory);
  } catch (...) {
    used_ -= bytes;
    throw;
  }
}

void Memory::free(void* memory, uint64_t bytes) noexcept {
  if (pool_)
    driver().memory_free(address(memory), stream_);
  else
    driver().plain_free(address(memory));
  used_ -= bytes;
}

Result Memory::let_in(DeviceId device) {
  if (!pool_) return result::success;  // the driver takes copies through the host
  PoolAccess access;
  access.location.id = device;
  return driver().pool_set_access(pool_, &access, 1);
}

Staging::Staging() {
  try {
    TENON_CUDA(stream_create, &stream_, kStreamNonBlocking);
    for (int i = 0; i < 2; ++i) {
      TENON_CUDA(event_create, &passed_[i], kEventNoTiming);
      void* piece = nullptr;
      TENON_CUDA(host_allocate, &piece, kPiece, kHostPortable);
      pieces_[i] = static_cast<char*>(piece);
    }
  } catch (...) {
    release();
    throw;
  }
}

void Staging::release() noexcept {
  if (stream_) driver().stream_synchronize(stream_);
  for (int i = 0; i < 2; ++i) {
    if (pieces_[i]) driver().host_free(pieces_[i]);
    if (passed_[i]) driver().event_destroy(passed_[i]);
  }
  if (stream_) driver().stream_destroy(stream_);
}

Staging::~Staging() { release(); }

namespace {
// Waits before a failure is told: no copy may be under way when the caller gives the memory back.
template <class Body>
void settled(Stream stream, Body&& body) {
  try {
    body();
  } catch (...) {
    driver().stream_synchronize(stream);
    throw;
  }
}
}  // namespace

void Staging::write(Address target, const void* source, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const char* from = static_cast<const char*>(source);
  settled(stream_, [&] {
    for (uint64_t at = 0, i = 0; at < bytes; at += kPiece, ++i) {
      const uint64_t n = std::min(kPiece, bytes - at);
      if (i >= 2) TENON_CUDA(event_synchronize, passed_[i % 2]);
      std::memcpy(pieces_[i % 2], from + at, n);
      TENON_CUDA(copy_to_device, target + at, pieces_[i % 2], n, stream_);
      TENON_CUDA(event_record, passed_[i % 2], stream_);
    }
    TENON_CUDA(stream_synchronize, stream_);
  });
}

void Staging::read(void* target, Address source, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  char* to = static_cast<char*>(target);
  const uint64_t count = (bytes + kPiece - 1) / kPiece;
  const auto size = [&](uint64_t i) { return std::min(kPiece, bytes - i * kPiece); };
  settled(stream_, [&] {
    for (uint64_t i = 0; i <= count; ++i) {
      if (i < count) {
        TENON_CUDA(copy_to_host, pieces_[i % 2], source + i * kPiece, size(i), stream_);
        TENON_CUDA(event_record, passed_[i % 2], stream_);
      }
      if (i == 0) continue;
      TENON_CUDA(event_synchronize, passed_[(i - 1) % 2]);
      std::memcpy(to + (i - 1) * kPiece, pieces_[(i - 1) % 2], size(i - 1));
    }
  });
}

}  // namespace tenon::cuda
