// SPDX-License-Identifier: Apache-2.0
//
// The comfort layer: turns a table of kernels (kernel.hpp) and a device with host memory into a
// complete plugin. The layer negotiates versions, answers queries, compiles, instantiates and runs.
// An author writes kernels and a Device:
//
//   std::vector<DeviceSpec> devices(const Runtime&) {
//     return {{.kind = "mini", .name = "a loop"}};
//   }
//   std::unique_ptr<Device> open(const Runtime&, uint32_t index, uint32_t threads);
//
//   constexpr PluginSpec kSpec{
//       .name = "mini", .version = "1.0.0", .vendor = "me",
//       .rows = kRows, .devices = devices, .open = open};
//   TENON_PLUGIN(kSpec, "mini", TENON_ISA_BASELINE)
//
// Runs are synchronous: the host calls them from its worker threads. For a device with its own
// memory and streams use stream_plugin.hpp. layer/lowering.hpp documents how a graph becomes steps,
// and what kernels may rely on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "kernel.hpp"
#include "kernels.h"
#include "manifest.h"
#include "op.h"

namespace tenon::sdk {

// A device, as enumerate() lists it.
struct DeviceSpec {
  std::string kind{};           // "cpu"
  std::string name{};           // the hardware, for people
  std::string reason{};         // not empty: the device was found but cannot be opened, and why
  uint64_t memory_size = 0;     // bytes, 0 = unknown
  uint64_t max_allocation = 0;  // bytes of the largest allocation, 0 = memory_size
  uint64_t alignment = 64;      // bytes, of every value; a power of two
  uint32_t flags = 0;           // TENON_DEVICE_*; the layer adds HOST_ADDRESSABLE and HOST_THREADS
  // TENON_DEVICE_CLASS_*. A device with host memory is a cpu, unless it says something else.
  uint32_t device_class = TENON_DEVICE_CLASS_UNKNOWN;
  // The alignment that imported memory needs, in bytes: a power of two, 0 = alignment.
  // Value::alignment() promises no more than this, or the size of an element if that is more.
  // Kernels that accept any address of an element need no more than 1.
  uint64_t import_alignment = 0;
  // How DLPack names the device. 0: kDLCPU for a device with host memory, else no name.
  uint32_t dlpack_type = 0, dlpack_id = 0;
};

// An open device with host memory. All functions may be called by several threads at the same time.
class Device {
 public:
  virtual ~Device() = default;
  virtual bool has_addresses() const { return true; }  // see StreamDevice
  // Returns memory aligned to `alignment`. Throws std::bad_alloc.
  virtual void* allocate(uint64_t bytes, uint64_t alignment) = 0;
  virtual void deallocate(void* memory, uint64_t bytes) noexcept = 0;
  // The same for a kind of memory, TENON_MEMORY_*. In host memory all kinds are the same.
  virtual void* allocate(uint64_t bytes, uint64_t alignment, uint32_t /*kind*/) {
    return allocate(bytes, alignment);
  }
  virtual void deallocate(void* memory, uint64_t bytes, uint32_t /*kind*/) noexcept {
    deallocate(memory, bytes);
  }
  // Calls body(arg) exactly once. body executes all steps of a run and does not throw. Override
  // this to enter a task arena.
  virtual void run(void (*body)(void*), void* arg) { body(arg); }
};

// What a plugin keeps for one runtime: derive from it. Several runtimes may load a plugin, each
// with a State of its own. It is made before all other objects of the runtime, and destroyed after
// them, in [load] calls (backend.h).
class State {
 public:
  virtual ~State() = default;
};

// The runtime that has loaded the plugin.
struct Runtime {
  const tenon_host* host = nullptr;
  uint32_t abi_minor = TENON_ABI_MINOR;  // the minor version of the ABI that both speak
  uint32_t threads = 1;                  // how many threads may compute for it at the same time
  State* state = nullptr;                // what PluginSpec::create made
};

// Makes the description of an op: tenon::op_desc of op.hpp, or the author's own function.
using OpDesc = tenon_op_desc (*)();

// A whole plugin, as a constexpr variable.
struct PluginSpec {
  std::string_view name, version, vendor;  // name: lower case, no spaces
  std::span<const Row> rows{};
  std::span<const FamilyRows> families{};  // (optional) more rows, one entry per op family
  // (optional) Makes the state for a runtime. No device work.
  std::unique_ptr<State> (*create)(const Runtime&) = nullptr;
  std::vector<DeviceSpec> (*devices)(const Runtime&) = nullptr;
  std::string (*note)(const Runtime&) = nullptr;  // (optional) why there is no device, or a remark
  // Opens device `index`. threads is at least 1. May be slow; may throw Failure or any exception.
  std::unique_ptr<Device> (*open)(const Runtime&, uint32_t index, uint32_t threads) = nullptr;
  bool streams = false;  // open() returns StreamDevices; for TENON_STREAM_PLUGIN
  // (for devices with streams) The handles of streams and events are those of the driver, so that
  // apps can share theirs: offers tenon.native_streams/1.
  bool native_streams = false;
  // (optional) Ops of the plugin's own, registered in every process that loads it.
  std::span<const OpDesc> ops{};
  // (optional) Kernels for devices of other plugins: host_kernel(), cuda_kernel() (cuda_kernel.hpp).
  // A plugin that has nothing but ops and such kernels needs neither devices nor open.
  std::span<const tenon_kernel_row> kernels{};
  // (optional, for devices with streams) The form of kernels that this plugin accepts from others,
  // and what makes a Kernel of one, or throws a Refusal. `kernel` starts with its struct_size.
  std::string_view kernel_form{};
  Kernel (*adopt)(const void* kernel, const Node& node) = nullptr;
  // True: compile() calls Kernel::prepare of all kernels. If one throws, the plugin withdraws its
  // claim on the node: it refuses nodes of this form from then on, and the host decomposes the node
  // or runs it elsewhere. For drivers whose compilers may fail. False: prepare is called later, and
  // a failure is an error of the run.
  bool withdraws = false;
};

}  // namespace tenon::sdk

#include "layer/backend.hpp"
#include "layer/views.hpp"

// TENON_PLUGIN defines the exported symbol and the manifest of a plugin.
//   spec    a constexpr PluginSpec
//   kinds   a string literal: device kinds, separated by commas
//   isa     TENON_ISA_*: the instruction set that the file needs to be loaded
// Define TENON_ENTRY_SYMBOL to rename the symbol, for a plugin that is linked into its host.
#ifndef TENON_ENTRY_SYMBOL
#define TENON_ENTRY_SYMBOL tenon_backend_entry
#endif
#define TENON_PLUGIN(spec, kinds, isa) \
  TENON_PLUGIN_OF(::tenon::sdk::layer::backend_table, spec, kinds, isa)
#define TENON_PLUGIN_OF(table, spec, kinds, isa)                                             \
  TENON_MANIFEST_PLACED static constinit const tenon_manifest_note tenon_manifest_note_ =    \
      ::tenon::sdk::layer::manifest_note(spec, kinds, isa);                                  \
  static constinit const tenon_backend tenon_backend_table_ =                                \
      table(spec, [](const tenon_host* host, const tenon_create_options* options,            \
                     tenon_plugin** out_plugin) noexcept {                                   \
        return ::tenon::sdk::layer::create(spec, host, options, out_plugin);                 \
      });                                                                                    \
  extern "C" __attribute__((visibility("default"))) const tenon_backend* TENON_ENTRY_SYMBOL( \
      const tenon_host* host) {                                                              \
    return ::tenon::sdk::layer::agree(tenon_backend_table_, host) ? &tenon_backend_table_    \
                                                                  : nullptr;                 \
  }
