// SPDX-License-Identifier: Apache-2.0
// Faults that an app or a test requested (tenon_runtime_fault in tenon_debug.h): calls of plugins
// fail without reaching the plugin. Without a fault, nothing is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "base/error.hpp"

namespace tenon::core {

class Plugin;
struct DeviceInfo;

// Groups of slots that can fail. The values are those of TENON_FAULT_* in tenon_debug.h.
enum FaultCall : uint32_t {
  kFaultOpen = 1,           // device_open
  kFaultAllocate = 2,       // buffer_create
  kFaultWrite = 4,          // buffer_write
  kFaultRead = 8,           // buffer_read
  kFaultCopy = 16,          // buffer_copy
  kFaultQuery = 32,         // query
  kFaultCompile = 64,       // compile
  kFaultInstantiate = 128,  // instantiate, rebind
  kFaultRun = 256,          // run, derive
  kFaultStream = 512,       // creating, recording and chaining streams and events
  kFaultWait = 1024,        // waiting for them; fails after the wait
};

struct Fault {
  std::string device{};  // an id, a kind, or empty: any
  uint32_t calls = 0;    // FaultCall, combined; 0: all
  uint64_t nth = 1;      // which of these calls fails; 0: none, they are only counted
  Code code = Code::internal;
  bool lasting = false;  // all later calls fail too
};

// Thread-safe. After a fault with code device_lost, every later call of that device fails until the
// fault is removed.
class Faults {
 public:
  // Both return the number of calls that the previous fault counted.
  uint64_t set(const Fault& fault);
  uint64_t lift();

  // Throws DeviceError if this call must fail.
  void meet(const DeviceInfo& device, const Plugin& plugin, FaultCall call, const char* slot) {
    if (active_.load(std::memory_order_acquire)) strike(device, plugin, call, slot);
  }

 private:
  void strike(const DeviceInfo& device, const Plugin& plugin, FaultCall call, const char* slot);

  std::atomic<bool> active_ = false;
  std::mutex mutex_;  // guards the members below
  Fault fault_;
  uint64_t met_ = 0;
  std::set<std::string> lost_;  // ids
};

}  // namespace tenon::core
