// SPDX-License-Identifier: Apache-2.0
// Imports memory of the app, gives it native addresses, and shares streams and events with it.
#include "host/call.hpp"

namespace tenon::core {

void Plugin::find_import_memory() {
  find<tenon_import_memory>(
      TENON_IMPORT_MEMORY_ID, TENON_IMPORT_MEMORY_SIZE_V1, import_memory_,
      [](const tenon_import_memory& t) { return t.info && t.import_buffer && t.address; });
}

void Plugin::find_native_streams() {
  find<tenon_native_streams>(
      TENON_NATIVE_STREAMS_ID, TENON_NATIVE_STREAMS_SIZE_V1, native_streams_,
      [](const tenon_native_streams& t) { return t.handle && t.wait && t.record; });
  if (native_streams_.handle && !has_streams()) {
    log(LogLevel::warning, cat("plugin ", name_, ": its ", TENON_NATIVE_STREAMS_ID,
                               " is not used: the plugin has no streams"));
    native_streams_ = {};
  }
}

ImportInfo Device::read_import_info() const noexcept {
  const tenon_import_memory& table = plugin_->import_memory();
  if (!table.info) return {};
  tenon_import_info info{};
  info.struct_size = sizeof info;
  try {
    checked(*plugin_, "import_memory.info", [&] { return table.info(handle_, &info); });
    if ((info.alignment & (info.alignment - 1)) != 0 || info.alignment > (1u << 30))
      plugin_->lied("import_memory.info", "the alignment on ", info_.id, " is ", info.alignment,
                    ", expected a power of two up to 2^30, or 0");
    return {info.alignment, info.dlpack_type, info.dlpack_id};
  } catch (const std::exception& e) {
    try {
      log(LogLevel::warning, cat("device ", info_.id, " imports no memory of the app: ", e.what()));
    } catch (const std::exception&) {  // no memory for the text
    }
    return {};
  }
}

std::shared_ptr<Buffer> Device::import_buffer(void* address, uint64_t size, std::string_view name,
                                              std::shared_ptr<void> owner) {
  if (!import_info_.alignment)
    fail(Code::unsupported, "device ", info_.id, " imports no memory of the app");
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at == 0 || size == 0 || size > UINTPTR_MAX - at)
    fail(Code::invalid_argument, "memory of ", size, " bytes at ", at,
         ", expected a range of bytes that is not empty");
  if (const uint64_t wanted = import_info_.alignment; at % wanted != 0)
    fail(Code::invalid_argument, "memory of ", size, " bytes is aligned to ", at & (~at + 1),
         " bytes, expected ", wanted, " for device ", info_.id);
  const tenon_import_options options = {sizeof options, address, size, {name.data(), name.size()}};
  auto* handle = made<tenon_buffer>(
      *this, kFaultAllocate, "import_memory.import_buffer", [&](tenon_buffer** out) {
        return plugin_->import_memory().import_buffer(handle_, &options, out);
      });
  auto buffer = own(handle, size, 0, std::move(owner));
  if (info_.host_addressable) buffer->address_ = address;
  return buffer;
}

void* Buffer::native_address() const {
  const Plugin& plugin = device_->plugin();
  if (const auto address_of = plugin.import_memory().address) {
    void* address = guarded(plugin, "import_memory.address", [&] { return address_of(handle_); });
    if (!address)
      plugin.lied("import_memory.address", "gave null for a buffer of ", size_, " bytes");
    return address;
  }
  if (address_) return address_;
  fail(Code::unsupported, "device ", device_->info().id, " gives no addresses of its memory");
}

const tenon_native_streams& Device::native_streams() const {
  const tenon_native_streams& table = plugin_->native_streams();
  if (!table.handle)
    fail(Code::unsupported, "device ", info_.id, " shares no streams and events with apps");
  return table;
}

void* Stream::native_handle() const {
  const tenon_native_streams& natives = device_->native_streams();
  return guarded(device_->plugin(), "native_streams.handle",
                 [&] { return natives.handle(handle_); });
}
void Stream::wait_native(void* event) {
  const tenon_native_streams& natives = device_->native_streams();
  call(*device_, kFaultStream, "native_streams.wait", [&] { return natives.wait(handle_, event); });
}
void Stream::record_native(void* event) {
  const tenon_native_streams& natives = device_->native_streams();
  call(*device_, kFaultStream, "native_streams.record",
       [&] { return natives.record(handle_, event); });
}

}  // namespace tenon::core
