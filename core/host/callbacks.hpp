// SPDX-License-Identifier: Apache-2.0
// Callbacks that the host gives to plugins, found by ticket. A second or late call finds nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tenon::core {

class Callbacks {
 public:
  // Plugins may call while the process ends.
  static Callbacks& the() {
    static Callbacks& the = *new Callbacks;
    return the;
  }
  // callback does not throw. Returns what signal() gets as its argument.
  void* add(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++last_, std::move(callback));
    return reinterpret_cast<void*>(last_);
  }
  // Removes a callback and returns it; empty if it was called already.
  std::function<void()> take(void* ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(reinterpret_cast<uintptr_t>(ticket));
    if (found == waiting_.end()) return {};
    std::function<void()> callback = std::move(found->second);
    waiting_.erase(found);
    return callback;
  }
  static void signal(void* ticket) noexcept {
    if (const auto callback = the().take(ticket)) callback();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::function<void()>> waiting_;
  uintptr_t last_ = 0;
};

}  // namespace tenon::core
