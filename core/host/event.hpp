// SPDX-License-Identifier: Apache-2.0
// An event of a device: done when the work before it is.
#pragma once

#include <functional>
#include <memory>

#include "tenon/backend.h"

namespace tenon::core {

class Device;

class Event {
 public:
  Event(std::shared_ptr<Device> device, tenon_event* handle);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool done();  // throws the work's failure once it is done
  void wait();  // likewise
  // Calls back at most once, on any thread, perhaps this one, when the work is done. The callback
  // may only signal, and does not throw.
  void on_done(std::function<void()> callback);
  tenon_event* handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  tenon_event* handle_;
};

}  // namespace tenon::core
