// SPDX-License-Identifier: Apache-2.0
// Calling back when an event is done: helper streams wait for the event and call, so that nothing
// is put behind the work of the caller's own stream.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "driver.hpp"

namespace tenon::cuda {

class Callbacks {
 public:
  Callbacks();
  // Waits for all calls. On a lost device it makes them itself: the driver may call late or never.
  ~Callbacks();
  // Calls exactly once, on any thread; also when the device is lost.
  void call_when_done(Event event, void (*callback)(void*), void* user);

 private:
  struct Helper;
  struct Call;
  std::shared_ptr<Helper> idle_helper();
  std::mutex mutex_;
  std::vector<std::shared_ptr<Helper>> helpers_;
};

}  // namespace tenon::cuda
