// SPDX-License-Identifier: Apache-2.0
// Faults that an app or a test asked for (tenon_runtime_fault in tenon.h): a call of a plugin fails
// in the plugin's stead. Nothing fails, and nothing is counted, until one is set.
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

// The slots that can fail, in groups; the values are tenon.h's TENON_FAULT_*.
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
  kFaultStream = 512,       // what makes, records and chains streams and events
  kFaultWait = 1024,        // what waits for them: fails after the wait
};

struct Fault {
  std::string device{};  // an id, a kind, or empty: any
  uint32_t calls = 0;    // FaultCall, joined; 0: all
  uint64_t nth = 1;      // among those calls from now on; 0: none, they are only counted
  Code code = Code::internal;
  bool lasting = false;  // all those calls after it as well
};

// Thread-safe. A fault of code device_lost loses the device that it hit: every later call of it
// fails, of whatever kind, until the fault is lifted.
class Faults {
 public:
  // Both return how many calls the fault before had counted, those that failed included.
  uint64_t set(const Fault& fault);
  uint64_t lift();

  // Throws DeviceError when this call is to fail.
  void meet(const DeviceInfo& device, const Plugin& plugin, FaultCall call, const char* slot) {
    if (active_.load(std::memory_order_acquire)) strike(device, plugin, call, slot);
  }

 private:
  void strike(const DeviceInfo& device, const Plugin& plugin, FaultCall call, const char* slot);

  std::atomic<bool> active_ = false;
  std::mutex mutex_;  // guards what follows
  Fault fault_;
  uint64_t met_ = 0;
  std::set<std::string> lost_;  // ids
};

}  // namespace tenon::core
