// SPDX-License-Identifier: Apache-2.0
//
// For devices whose driver does not name an object by one pointer: a table that gives each object a
// handle, as allocate(), stream_create(), event_create() and record_end() of a StreamDevice return.
//
//   struct Memory { VkBuffer buffer; VkDeviceMemory memory; };
//   sdk::HandleMap<Memory> memory_;
//   void* allocate(uint64_t bytes, uint64_t) override { return memory_.add(make(bytes)); }
//   void deallocate(void* handle, uint64_t) noexcept override { destroy(*memory_.take(handle)); }
//   ... memory_.at(c.input(0).handle).buffer, c.input(0).offset ...
//
// A handle is no address, and never null. It is not used again: a handle that was taken is refused,
// and so is a handle plus an offset that is no multiple of 4096.
//
// All functions may be called by any thread. An object stays in its place until it is taken.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "kernel.hpp"

namespace tenon::sdk {

template <class T>
class HandleMap {
 public:
  HandleMap() = default;
  HandleMap(const HandleMap&) = delete;
  HandleMap& operator=(const HandleMap&) = delete;

  // Takes over the object. Throws std::bad_alloc.
  void* add(T object) {
    auto owned = std::make_unique<T>(std::move(object));
    const std::unique_lock lock(mutex_);
    const uint64_t id = next_ + 1;
    objects_.emplace(id, std::move(owned));
    next_ = id;
    return reinterpret_cast<void*>(static_cast<uintptr_t>(id * kApart + kOdd));
  }

  // Throws Failure (INVALID_ARGUMENT) for what is no handle of this table. The reference is valid
  // until the object is taken.
  T& at(const void* handle) const {
    if (T* found = find(handle)) return *found;
    throw Failure(TENON_INVALID_ARGUMENT,
                  "a handle of this device: expected one that is in use, got " +
                      std::to_string(reinterpret_cast<uintptr_t>(handle)));
  }
  // nullptr for what is no handle of this table.
  T* find(const void* handle) const noexcept {
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(id_of(handle));
    return at == objects_.end() ? nullptr : at->second.get();
  }

  // Removes the object and returns it; nullptr for what is no handle of this table. No other thread
  // uses the object.
  std::unique_ptr<T> take(const void* handle) noexcept {
    const std::unique_lock lock(mutex_);
    const auto at = objects_.find(id_of(handle));
    if (at == objects_.end()) return nullptr;
    std::unique_ptr<T> object = std::move(at->second);
    objects_.erase(at);
    return object;
  }

  size_t size() const {
    const std::shared_lock lock(mutex_);
    return objects_.size();
  }

 private:
  // Handles are odd and far apart, so that a handle plus an offset is refused.
  static constexpr uint64_t kApart = 4096, kOdd = 41;

  // 0 for what cannot be a handle.
  static uint64_t id_of(const void* handle) {
    const auto number = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
    return number % kApart == kOdd ? number / kApart : 0;
  }

  mutable std::shared_mutex mutex_{};
  std::unordered_map<uint64_t, std::unique_ptr<T>> objects_{};
  uint64_t next_ = 0;
};

}  // namespace tenon::sdk
