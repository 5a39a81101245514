// SPDX-License-Identifier: Apache-2.0
// Imports memory of the app, gives it native addresses, and shares streams and events with it.
#include "host/call.hpp"
#include "host/callbacks.hpp"

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
    warn_not_whole(TENON_NATIVE_STREAMS_ID);
    native_streams_ = {};
  }
}

ImportInfo Device::read_import_info() const {
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
  } catch (const Error& e) {
    log(LogLevel::warning, cat("device ", info_.id, " imports no memory of the app: ", e.what()));
    return {};
  }
}

namespace {

// Owners of memory that plugins have released. They are freed outside of the plugin's call: what
// frees them may call the same plugin, as for an output of tenon that became an input.
class ReleasedOwners {
 public:
  static ReleasedOwners& the() {
    static ReleasedOwners& the = *new ReleasedOwners;  // plugins may call while the process ends
    return the;
  }
  void add(std::shared_ptr<void> owner) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      owners_.push_back(std::move(owner));
    } catch (const std::bad_alloc&) {  // then the caller's reference is the last one
    }
  }
  void free() {
    std::vector<std::shared_ptr<void>> freed;
    const std::lock_guard lock(mutex_);
    freed.swap(owners_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> owners_;
};

}  // namespace

void free_released_memory() noexcept { ReleasedOwners::the().free(); }

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
  free_released_memory();  // of plugins that release later than buffer_destroy()
  void* ticket = Callbacks::the().add(
      [owner = std::move(owner)]() mutable { ReleasedOwners::the().add(std::move(owner)); });
  tenon_import_options options{};
  options.struct_size = sizeof options;
  options.address = address;
  options.size = size;
  options.name = {name.data(), name.size()};
  options.release = Callbacks::signal;
  options.user = ticket;
  tenon_buffer* handle = nullptr;
  try {
    handle = made<tenon_buffer>(
        *this, kFaultAllocate, "import_memory.import_buffer", [&](tenon_buffer** out) {
          return plugin_->import_memory().import_buffer(handle_, &options, out);
        });
  } catch (...) {
    Callbacks::the().take(ticket);
    throw;
  }
  std::shared_ptr<Buffer> buffer;
  try {
    buffer = std::make_shared<Buffer>(shared_from_this(), handle, size, TENON_MEMORY_DEVICE,
                                      Buffer::Memory::imported);
  } catch (...) {
    give_back(*plugin_, "buffer_destroy", [&] { plugin_->table().buffer_destroy(handle); });
    throw;
  }
  if (info_.host_addressable) buffer->address_ = address;
  return buffer;
}

void* Buffer::native_address() const {
  const Plugin& plugin = device_->plugin();
  if (!plugin.import_memory().address && address_) return address_;
  if (!plugin.import_memory().address)
    fail(Code::unsupported, "device ", device_->info().id, " gives no addresses of its memory");
  void* address = guarded(plugin, "import_memory.address",
                          [&] { return plugin.import_memory().address(handle_); });
  if (!address) plugin.lied("import_memory.address", "gave null for a buffer of ", size_, " bytes");
  return address;
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
