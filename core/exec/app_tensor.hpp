// SPDX-License-Identifier: Apache-2.0
// Memory of the app that an input or output of a context is bound to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/device.hpp"
#include "ir/type.hpp"

namespace tenon::core {

class AppTensor {
 public:
  // A dense tensor. device: where its memory is, null = host memory. owner: keeps the memory in
  // place, may be null.
  AppTensor(Type type, void* address, std::shared_ptr<Device> device, bool read_only,
            std::shared_ptr<void> owner)
      : type_(std::move(type)),
        address_(address),
        home_(std::move(device)),
        read_only_(read_only),
        owner_(std::make_shared<std::shared_ptr<void>>(std::move(owner))) {}

  const Type& type() const { return type_; }
  uint64_t size() const { return type_bytes(type_); }
  // The memory as a buffer of the device; null if that cannot use it in place. Fails if the memory
  // is not aligned as the device needs it.
  std::shared_ptr<Buffer> on(const std::shared_ptr<Device>& device);
  bool has(const Buffer& buffer) const;  // is it one of the buffers that on() made?
  // Imports the memory where it is, so that what cannot be imported fails now.
  void check_home();
  void* address() const { return address_; }
  // The last run that wrote it, in place or by a copy.
  uint64_t written_by() const { return written_by_; }
  void note_written(uint64_t run) { written_by_ = run; }
  const Device* other_memory() const { return in_host_memory() ? nullptr : home_.get(); }
  // If both are the same memory: takes over the owner, gives up its own, and returns true.
  bool take_over(AppTensor& newer);
  bool read_only() const { return read_only_; }
  bool overlaps(const AppTensor& other) const;
  // For devices that cannot use it in place. Copy all bytes; done on return.
  void copy_to(Buffer& buffer);
  void copy_from(Buffer& buffer);

 private:
  bool in_host_memory() const { return !home_ || home_->info().host_addressable; }
  std::shared_ptr<Buffer> import(const std::shared_ptr<Device>& device);

  Type type_;
  void* address_;
  std::shared_ptr<Device> home_;
  bool read_only_;
  uint64_t written_by_ = 0;
  std::shared_ptr<std::shared_ptr<void>> owner_;  // imported buffers share it
  std::vector<std::shared_ptr<Buffer>> imported_;
};

}  // namespace tenon::core
