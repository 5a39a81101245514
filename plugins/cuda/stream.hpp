// SPDX-License-Identifier: Apache-2.0
// Calling back when an event is done: helper streams wait for the event and call, so that nothing
// is put behind the work of the caller's own stream. The driver calls also when the device is lost.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "driver.hpp"

namespace tenon::cuda {

class Callbacks {
 public:
  Callbacks();
  ~Callbacks();  // waits
  void call_when_done(Event event, void (*callback)(void*), void* user);

 private:
  struct Helper;
  struct Call;
  Helper& idle_helper();
  std::mutex mutex_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace tenon::cuda
