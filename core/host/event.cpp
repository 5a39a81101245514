// SPDX-License-Identifier: Apache-2.0
// Events, and the callbacks that wait for them.
#include "host/event.hpp"

#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "host/call.hpp"

namespace tenon::core {
namespace {

// What events call back, by ticket: a plugin that calls twice, or late, finds nothing.
class Callbacks {
 public:
  static Callbacks& the() {
    static Callbacks& the = *new Callbacks;  // plugins may call while the process ends
    return the;
  }
  uintptr_t add(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++last_, std::move(callback));
    return last_;
  }
  std::function<void()> take(uintptr_t ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(ticket);
    if (found == waiting_.end()) return {};
    std::function<void()> callback = std::move(found->second);
    waiting_.erase(found);
    return callback;
  }
  static void signal(void* user) noexcept {
    if (const auto callback = the().take(reinterpret_cast<uintptr_t>(user))) callback();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::function<void()>> waiting_;
  uintptr_t last_ = 0;
};

}  // namespace

Event::Event(std::shared_ptr<Device> device, tenon_event* handle)
    : device_(std::move(device)), handle_(handle) {}
Event::~Event() {
  give_back(device_->plugin(), "event_destroy", [&] { table_of(*device_).event_destroy(handle_); });
}

bool Event::done() {
  uint32_t done = 0;
  checked(device_->plugin(), "event_query",
          [&] { return table_of(*device_).event_query(handle_, &done); });
  if (done != 0)
    device_->faults().meet(device_->info(), device_->plugin(), kFaultWait, "event_query");
  return done != 0;
}
void Event::wait() {
  call_wait(*device_, "event_wait", [&] { return table_of(*device_).event_wait(handle_); });
}
void Event::on_done(std::function<void()> callback) {
  const uintptr_t ticket = Callbacks::the().add(std::move(callback));
  try {
    call(*device_, kFaultStream, "event_on_done", [&] {
      return table_of(*device_).event_on_done(handle_, Callbacks::signal,
                                              reinterpret_cast<void*>(ticket));
    });
  } catch (...) {
    if (!Callbacks::the().take(ticket)) return;  // it failed, but called back: once is enough
    throw;
  }
}

}  // namespace tenon::core
