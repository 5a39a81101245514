// SPDX-License-Identifier: Apache-2.0
// A stream of a device: work that is done in order.
#pragma once

#include <memory>

#include "tenon/backend.h"

namespace tenon::core {

class Device;
class Event;

class Stream {
 public:
  Stream(std::shared_ptr<Device> device, tenon_stream* handle);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void synchronize();  // throws the first failure since the last synchronization
  void wait(Event& event);
  void record(Event& event);
  // Of the driver; fail with unsupported if the plugin shares none with apps.
  void* native_handle() const;
  void wait_native(void* event);
  void record_native(void* event);
  tenon_stream* handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  tenon_stream* handle_;
};

}  // namespace tenon::core
