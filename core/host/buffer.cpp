// SPDX-License-Identifier: Apache-2.0
// Buffers over the plugin's table; copies within a plugin, or through the host.
#include "host/buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "host/call.hpp"

namespace tenon::core {
namespace {

void check_range(const Buffer& buffer, const char* what, uint64_t offset, uint64_t size) {
  if (offset <= buffer.size() && size <= buffer.size() - offset) return;
  fail(Code::invalid_argument, what, ": ", size, " bytes at ", offset, " in a buffer of ",
       buffer.size(), " on ", buffer.device().info().id);
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Device> device, tenon_buffer* handle, uint64_t size,
               uint64_t counted, std::shared_ptr<void> owner)
    : owner_(std::move(owner)),
      device_(std::move(device)),
      handle_(handle),
      size_(size),
      counted_(counted) {
  device_->allocated_ += counted_;
}
Buffer::~Buffer() {
  device_->allocated_ -= counted_;
  give_back(device_->plugin(), "buffer_destroy",
            [&] { table_of(*device_).buffer_destroy(handle_); });
}

void Buffer::write(uint64_t offset, const void* source, uint64_t size, Stream* stream) {
  check_range(*this, "a write", offset, size);
  if (size == 0) return;
  call(*device_, kFaultWrite, "buffer_write", [&] {
    return table_of(*device_).buffer_write(handle_, offset, source, size, handle_of(stream));
  });
}
void Buffer::read(uint64_t offset, void* target, uint64_t size, Stream* stream) {
  check_range(*this, "a read", offset, size);
  if (size == 0) return;
  call(*device_, kFaultRead, "buffer_read", [&] {
    return table_of(*device_).buffer_read(handle_, offset, target, size, handle_of(stream));
  });
}

void copy(Buffer& to, uint64_t to_offset, Buffer& from, uint64_t from_offset, uint64_t size,
          Stream* stream) {
  check_range(to, "a copy's target", to_offset, size);
  check_range(from, "a copy's source", from_offset, size);
  if (size == 0) return;
  if (&to == &from && to_offset < from_offset + size && from_offset < to_offset + size) {
    fail(Code::invalid_argument, "a copy of ", size, " bytes from ", from_offset, " to ", to_offset,
         " of one buffer overlaps itself");
  }
  const Plugin& plugin = to.device().plugin();
  if (&plugin == &from.device().plugin() && plugin.table().buffer_copy) {
    call(to.device(), kFaultCopy, "buffer_copy", [&] {
      return plugin.table().buffer_copy(to.handle(), to_offset, from.handle(), from_offset, size,
                                        handle_of(stream));
    });
    return;
  }
  if (stream) stream->synchronize();
  if (void* source = from.address()) {
    to.write(to_offset, static_cast<const std::byte*>(source) + from_offset, size);
  } else if (void* target = to.address()) {
    from.read(from_offset, static_cast<std::byte*>(target) + to_offset, size);
  } else {
    std::vector<std::byte> staging(std::min<uint64_t>(size, 4 << 20));
    for (uint64_t at = 0; at < size; at += staging.size()) {
      const uint64_t part = std::min<uint64_t>(staging.size(), size - at);
      from.read(from_offset + at, staging.data(), part);
      to.write(to_offset + at, staging.data(), part);
    }
  }
}

}  // namespace tenon::core
