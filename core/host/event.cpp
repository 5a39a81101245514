// SPDX-License-Identifier: Apache-2.0
// Events, and the callbacks that wait for them.
#include "host/event.hpp"

#include <functional>
#include <utility>

#include "host/call.hpp"
#include "host/callbacks.hpp"

namespace tenon::core {
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
  void* ticket = Callbacks::the().add(std::move(callback));
  try {
    call(*device_, kFaultStream, "event_on_done",
         [&] { return table_of(*device_).event_on_done(handle_, Callbacks::signal, ticket); });
  } catch (...) {
    if (!Callbacks::the().take(ticket)) return;  // it failed, but called back: once is enough
    throw;
  }
}

}  // namespace tenon::core
