// SPDX-License-Identifier: Apache-2.0
// Streams over the plugin's table.
#include "host/stream.hpp"

#include <utility>

#include "host/call.hpp"

namespace tenon::core {

Stream::Stream(std::shared_ptr<Device> device, tenon_stream* handle)
    : device_(std::move(device)), handle_(handle) {}
Stream::~Stream() {
  give_back(device_->plugin(), "stream_destroy",
            [&] { table_of(*device_).stream_destroy(handle_); });
}

void Stream::synchronize() {
  call_wait(*device_, "stream_synchronize",
            [&] { return table_of(*device_).stream_synchronize(handle_); });
}
void Stream::wait(Event& event) {
  call(*device_, kFaultStream, "stream_wait_event",
       [&] { return table_of(*device_).stream_wait_event(handle_, event.handle()); });
}
void Stream::record(Event& event) {
  call(*device_, kFaultStream, "event_record",
       [&] { return table_of(*device_).event_record(event.handle(), handle_); });
}

}  // namespace tenon::core
