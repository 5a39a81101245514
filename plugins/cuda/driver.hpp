// SPDX-License-Identifier: Apache-2.0
// The CUDA driver: our own declarations of what we call in libcuda, found at run time. Values are
// those that the driver's documentation fixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/arguments.cuh"
#include "library.hpp"
#include "tenon/backend.h"

namespace tenon::cuda {

using Result = int;
using DeviceId = int;
using Address = unsigned long long;  // of device memory
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using EntryPoint = struct EntryPointHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Pool = struct PoolHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

struct PoolLocation {
  int type = 1;  // device
  int id = 0;
};
struct PoolProperties {
  int allocation = 1;  // pinned
  int handles = 0;     // not shared between processes
  PoolLocation location{};
  void* security = nullptr;
  size_t most = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);
struct PoolAccess {
  PoolLocation location{};
  int flags = 3;  // read and write
};

struct LaunchAttribute {
  int which = 6;  // may begin before the kernel that was launched before it has ended
  int padding = 0;
  int allowed = 1;
  unsigned char reserved[60] = {};
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {
  unsigned blocks[3]{}, threads[3]{}, shared = 0;
  Stream stream = nullptr;
  const LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

using args::TensorMap;
static_assert(sizeof(TensorMap) == 128);

namespace result {
inline constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, no_device = 100,
                        not_ready = 600;
}
namespace attribute {
inline constexpr int multiprocessors = 16, integrated = 18, compute_mode = 20, l2_bytes = 38,
                     major = 75, minor = 76, shared_per_block_optin = 97, memory_pools = 115;
inline constexpr int pool_release_threshold = 4, function_dynamic_shared = 8;
// Attributes of an address.
inline constexpr int pointer_memory = 2, pointer_device = 9;
}  // namespace attribute
inline constexpr unsigned kStreamNonBlocking = 1, kEventTiming = 0, kEventNoTiming = 2,
                          kHostPortable = 1, kHostMapped = 2, kManagedGlobal = 1;
inline constexpr int kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kOldestDriver = 12000;  // CUDA 12.0
inline constexpr int kRecordsEarlyStarts = 12030;

// libcuda, or why there is none.
struct Driver {
#define CALL(need, name, symbol, arguments) Result(*name) arguments = nullptr;
#include "driver_calls.def"
  Library library{};
  std::string reason{};  // not empty: cannot be used
  int version = 0;       // 13000 = 13.0

  explicit operator bool() const { return reason.empty(); }
  bool has_graphs() const;
  // Can a kernel begin before the one before it has ended, in a graph too?
  bool has_early_starts() const { return launch_with && version >= kRecordsEarlyStarts; }
  // "cuName: name of the result (what it means)"
  std::string describe(const char* call, Result r) const;
  // Throws sdk::Failure of the fitting class unless r is success.
  void check(const char* call, Result r) const;
};

// "13.0" of 13000.
std::string version_text(int version);

// Of the process: searched when first asked for.
const Driver& driver();
tenon_code code_of(Result r);

// TENON_CUDA(stream_synchronize, stream) calls and checks.
#define TENON_CUDA(name, ...) \
  ::tenon::cuda::driver().check(#name, ::tenon::cuda::driver().name(__VA_ARGS__))

}  // namespace tenon::cuda
