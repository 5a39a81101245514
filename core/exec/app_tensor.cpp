// SPDX-License-Identifier: Apache-2.0
// Imports the app's memory on the devices that can use it, and copies for the others.
#include "exec/app_tensor.hpp"

#include <algorithm>

namespace tenon::core {

std::shared_ptr<Buffer> AppTensor::import(const std::shared_ptr<Device>& device) {
  for (const auto& buffer : imported_)
    if (&buffer->device() == device.get()) return buffer;
  imported_.push_back(device->import_buffer(address_, size(), "memory of the app", owner_));
  return imported_.back();
}

std::shared_ptr<Buffer> AppTensor::on(const std::shared_ptr<Device>& device) {
  const bool reaches = in_host_memory() ? device->info().host_addressable : device == home_;
  return size() && reaches && device->import_info().alignment ? import(device) : nullptr;
}

void AppTensor::check_home() {
  if (size() && !in_host_memory()) import(home_);
}

bool AppTensor::has(const Buffer& buffer) const {
  return std::ranges::any_of(imported_, [&](const auto& own) { return own.get() == &buffer; });
}

bool AppTensor::take_over(AppTensor& newer) {
  if (type_ != newer.type_ || address_ != newer.address_ || home_ != newer.home_ ||
      read_only_ != newer.read_only_)
    return false;
  owner_->swap(*newer.owner_);
  newer.owner_->reset();
  return true;
}

bool AppTensor::overlaps(const AppTensor& other) const {
  if (in_host_memory() != other.in_host_memory() || (!in_host_memory() && home_ != other.home_))
    return false;
  if (!size() || !other.size()) return false;
  const auto a = reinterpret_cast<uintptr_t>(address_);
  const auto b = reinterpret_cast<uintptr_t>(other.address_);
  return a < b + other.size() && b < a + size();
}

void AppTensor::copy_to(Buffer& buffer) {
  if (in_host_memory())
    buffer.write(0, address_, size());
  else
    copy(buffer, 0, *import(home_), 0, size());
}

void AppTensor::copy_from(Buffer& buffer) {
  if (in_host_memory())
    buffer.read(0, address_, size());
  else
    copy(*import(home_), 0, buffer, 0, size());
}

}  // namespace tenon::core
