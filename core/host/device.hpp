// SPDX-License-Identifier: Apache-2.0
// What the rest of the core sees of plugins: devices and the objects on them, owned, checked and
// throwing. Nothing here trusts a plugin; what a plugin says is copied and validated once.
//
// Every object keeps its owners alive (buffer, stream, event, program -> device -> plugin; instance
// -> program and the buffers it is bound to). Threads: as backend.h says of the slot behind a call;
// [object] for Instance::run and rebind, [any-thread] for the rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/buffer.hpp"
#include "host/event.hpp"
#include "host/fault.hpp"
#include "host/instance.hpp"
#include "host/program.hpp"
#include "host/status.hpp"
#include "host/stream.hpp"
#include "tenon/backend.h"
#include "tenon/native_streams.h"

namespace tenon::core {

class Plugin;

struct DeviceInfo {
  std::string kind;             // "cpu"
  uint32_t index = 0;           // within the kind, over all plugins of a Host
  std::string id;               // "cpu:0"
  std::string name;             // of the hardware
  std::string reason;           // not empty: cannot be opened, and why
  std::string plugin;           // name of its plugin
  uint64_t memory_size = 0;     // bytes, 0 = unknown
  uint64_t max_allocation = 0;  // bytes of the largest buffer; never 0
  uint64_t alignment = 64;      // bytes, a power of two
  bool host_addressable = false;
  bool host_threads = false;  // a synchronous run computes in the calling thread
  bool rebind_dear = false;
  bool lanes = false;  // runs several at once
  uint32_t device_class = TENON_DEVICE_CLASS_UNKNOWN;
};

// What a device does with memory of the app.
struct ImportInfo {
  uint64_t alignment = 0;                   // bytes, a power of two; 0 = it imports none
  uint32_t dlpack_type = 0, dlpack_id = 0;  // its name in DLPack; type 0 = none
};

struct Verdict {
  bool native = false;
  uint32_t reason = TENON_REASON_NONE;  // TENON_REASON_*, when not native
  std::string text;                     // the reason for people
  double cost = 0;                      // seconds, 0 = unknown
  uint32_t group = TENON_NONE;          // claimed all or none; TENON_NONE = by itself
  bool hosted = false;                  // the host runs it, on this device; set by the planner
};

struct CompileOptions {
  bool aot = false;            // all code is wanted at once: see Device::compile
  uint64_t scratch_limit = 0;  // bytes per step that a program should stay below, 0 = no limit
  uint32_t exec_mode = TENON_EXEC_DEFAULT;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // index: among the devices of the plugin. threads: 0 = the process's budget. free_idle: may be
  // empty; see free_idle() below.
  Device(std::shared_ptr<Plugin> plugin, uint32_t index, DeviceInfo info, uint32_t threads,
         std::shared_ptr<Faults> faults, std::function<void(const Device&)> free_idle = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Plugin& plugin() const { return *plugin_; }
  Faults& faults() const { return *faults_; }
  // Frees memory of this device that nobody uses at the moment. Calls that fail with a retryable
  // status (buffer, compile, instantiate, rebind, prepare, derive) are made again after it, once.
  void free_idle() const {
    if (free_idle_) free_idle_(*this);
  }
  uint64_t allocated() const { return allocated_; }  // bytes of all its buffers of kind DEVICE
  bool has_streams() const;
  tenon_device* handle() const { return handle_; }

  // size > 0; contents undefined. name: what it is for, for reports. kind: TENON_MEMORY_*; fails
  // with unsupported if the device does not have it.
  std::shared_ptr<Buffer> buffer(uint64_t size, std::string_view name = {},
                                 uint32_t kind = TENON_MEMORY_DEVICE);
  const ImportInfo& import_info() const { return import_info_; }
  // A buffer over memory of the app, which `owner` keeps in place; size > 0. Fails with unsupported
  // if the device imports none, and with invalid_argument if it cannot reach the memory.
  std::shared_ptr<Buffer> import_buffer(void* address, uint64_t size, std::string_view name,
                                        std::shared_ptr<void> owner);
  // Fails with unsupported if the plugin shares no streams and events with apps.
  const tenon_native_streams& native_streams() const;
  // One verdict per node of function 0. blob: 8-aligned, see blob.h.
  std::vector<Verdict> query(const void* blob, size_t size);
  // aot: a plugin that can do it in parts (Program::prepare) is left to be asked for them.
  std::shared_ptr<Program> compile(const void* blob, size_t size,
                                   const CompileOptions& options = {});
  std::shared_ptr<Instance> instantiate(std::shared_ptr<Program> program, const Binding& binding);
  // Only with has_streams(). native_handle: a foreign stream to adopt, or null.
  std::unique_ptr<Stream> stream(void* native_handle = nullptr);
  std::unique_ptr<Event> event();

 private:
  ImportInfo read_import_info() const noexcept;
  std::shared_ptr<Buffer> own(tenon_buffer* handle, uint64_t size, uint64_t counted,
                              std::shared_ptr<void> owner = {});

  std::shared_ptr<Plugin> plugin_;
  friend class Buffer;
  std::shared_ptr<Faults> faults_;
  std::function<void(const Device&)> free_idle_;
  DeviceInfo info_;
  ImportInfo import_info_;
  std::atomic<uint64_t> allocated_{0};
  tenon_device* handle_ = nullptr;
};

}  // namespace tenon::core
