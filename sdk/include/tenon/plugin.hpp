// SPDX-License-Identifier: Apache-2.0
// The comfort layer: a table of rows (kernel.hpp) and a device of host memory become a complete
// tenon_backend. The layer negotiates, answers queries, compiles, instantiates and runs; an author
// writes kernels and a Device.
//
//   std::vector<DeviceSpec> devices(const tenon_host*) { return {{.kind = "mini", .name = "a
//   loop"}}; } std::unique_ptr<Device> open(const tenon_host*, uint32_t index, uint32_t threads);
//   constexpr PluginSpec kSpec{.name = "mini", .version = "1.0.0", .vendor = "me", .rows = kRows,
//                              .devices = devices, .open = open};
//   TENON_PLUGIN(kSpec, "mini", TENON_ISA_BASELINE)
//
// Runs are synchronous (no streams): the host calls from workers of its own; stream_plugin.hpp is
// the same for a device with memory and streams of its own. How a graph becomes
// steps, and what the layer promises to kernels, is told in layer/lowering.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "kernel.hpp"
#include "manifest.h"

namespace tenon::sdk {

struct DeviceSpec {
  std::string kind{};           // "cpu"
  std::string name{};           // of the hardware, for people
  std::string reason{};         // not empty: seen, but cannot be opened, and why
  uint64_t memory_size = 0;     // bytes, 0 = unknown
  uint64_t max_allocation = 0;  // bytes, 0 = memory_size
  uint64_t alignment = 64;      // of buffers and of what the host places in them; a power of two
  uint32_t flags = 0;           // TENON_DEVICE_*; the layer adds HOST_ADDRESSABLE and HOST_THREADS
};

// One opened device of host memory. All functions may be called from several threads at once.
class Device {
 public:
  virtual ~Device() = default;
  // Throws std::bad_alloc when there is no memory.
  virtual void* allocate(uint64_t bytes, uint64_t alignment) = 0;
  virtual void deallocate(void* memory, uint64_t bytes) noexcept = 0;
  // Calls body(arg) once, which runs all the steps of one run; a place for a task arena. body does
  // not throw.
  virtual void run(void (*body)(void*), void* arg) { body(arg); }
};

// All of a plugin, as a constexpr variable. name is lower case without spaces.
struct PluginSpec {
  std::string_view name, version, vendor;
  std::span<const Row> rows{};
  std::span<const FamilyRows> families{};  // (optional) more rows, family by family
  std::vector<DeviceSpec> (*devices)(const tenon_host*);
  std::string (*note)() = nullptr;  // (optional) why there is no device, or a remark
  // May be slow and may throw: Failure, or anything else. threads is at least 1.
  std::unique_ptr<Device> (*open)(const tenon_host*, uint32_t index, uint32_t threads);
  void (*shutdown)() = nullptr;  // (optional) every object is gone by now
  bool streams = false;          // open makes StreamDevices; for TENON_STREAM_PLUGIN
};

}  // namespace tenon::sdk

#include "layer/backend.hpp"
#include "layer/views.hpp"

// Defines the entry and the manifest over a table of doors. spec: a constexpr PluginSpec; kinds: a
// literal, device kinds separated by commas; isa: TENON_ISA_*, the least that loading the file
// needs. TENON_ENTRY_SYMBOL renames the entry, for a plugin that is linked into its host.
#ifndef TENON_ENTRY_SYMBOL
#define TENON_ENTRY_SYMBOL tenon_backend_entry
#endif
#define TENON_PLUGIN(spec, kinds, isa) \
  TENON_PLUGIN_OF(::tenon::sdk::layer::backend_table, spec, kinds, isa)
#define TENON_PLUGIN_OF(table, spec, kinds, isa)                                             \
  TENON_MANIFEST_PLACED static constinit const tenon_manifest_note tenon_manifest_note_ =    \
      ::tenon::sdk::layer::manifest_note(spec, kinds, isa);                                  \
  static constinit const tenon_backend tenon_backend_table_ =                                \
      table(spec, [](const tenon_host* host, uint32_t, tenon_plugin** out_plugin) noexcept { \
        return ::tenon::sdk::layer::create(spec, host, out_plugin);                          \
      });                                                                                    \
  extern "C" __attribute__((visibility("default"))) const tenon_backend* TENON_ENTRY_SYMBOL( \
      const tenon_host* host) {                                                              \
    return ::tenon::sdk::layer::agree(tenon_backend_table_, host) ? &tenon_backend_table_    \
                                                                  : nullptr;                 \
  }
