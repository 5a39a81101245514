// SPDX-License-Identifier: Apache-2.0
// Memory of a device, and copies between devices.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/backend.h"

namespace tenon::core {

class Device;
class Stream;

class Buffer {
 public:
  // counted: bytes of the device's own memory. owner: keeps imported memory in place until the
  // plugin has given the buffer up; may be null.
  Buffer(std::shared_ptr<Device> device, tenon_buffer* handle, uint64_t size, uint64_t counted,
         std::shared_ptr<void> owner = {});
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  uint64_t size() const { return size_; }
  void write(uint64_t offset, const void* source, uint64_t size, Stream* stream = nullptr);
  void read(uint64_t offset, void* target, uint64_t size, Stream* stream = nullptr);
  void* address() const { return address_; }  // in host memory, null when the host cannot reach it
  // The address for code that runs on the device. Fails with unsupported if the plugin gives none.
  void* native_address() const;
  tenon_buffer* handle() const { return handle_; }

 private:
  friend class Device;
  std::shared_ptr<void> owner_;  // its end may destroy other buffers
  std::shared_ptr<Device> device_;
  tenon_buffer* handle_;
  uint64_t size_;
  uint64_t counted_;  // bytes of the device's own memory
  void* address_ = nullptr;
};

// Copies bytes; ranges do not overlap. Within a plugin that can, in order of the stream; else
// through the host: then stream (of either device, or null) is synchronized first and the copy is
// done on return.
void copy(Buffer& to, uint64_t to_offset, Buffer& from, uint64_t from_offset, uint64_t size,
          Stream* stream = nullptr);

}  // namespace tenon::core
