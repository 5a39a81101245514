// SPDX-License-Identifier: Apache-2.0
// A device with streams that does everything at once, in host memory with addresses.
#pragma once

#include <tenon/stream_plugin.hpp>

#include <cstring>

namespace tenon::test {

class AtOnce : public sdk::StreamDevice {
 public:
  bool has_addresses() const override { return true; }
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(64));
  }
  // The address of a place.
  virtual unsigned char* at(sdk::Place place) const {
    return static_cast<unsigned char*>(place.address());
  }
  void* stream_create() override { return this; }
  void stream_destroy(void*) noexcept override {}
  void stream_synchronize(void*) override {}
  void stream_wait(void*, void*) override {}
  void* event_create() override { return this; }
  void event_destroy(void*) noexcept override {}
  void event_record(void*, void*) override {}
  bool event_done(void*) override { return true; }
  void event_synchronize(void*) override {}
  void event_on_done(void*, void (*callback)(void*), void* user) override { callback(user); }
  void write(sdk::Place target, const void* source, uint64_t size, void*) override {
    std::memcpy(at(target), source, size);
  }
  void read(void* target, sdk::Place source, uint64_t size, void*) override {
    std::memcpy(target, at(source), size);
  }
  void copy(sdk::Place target, StreamDevice&, sdk::Place source, uint64_t size, void*) override {
    std::memcpy(at(target), at(source), size);
  }
};

}  // namespace tenon::test
