// SPDX-License-Identifier: Apache-2.0
// The state behind the opaque pointers of the ABI, and the conversion of exceptions to statuses.
// Included at the end of plugin.hpp.
#pragma once

#include <exception>
#include <new>

#include "program.hpp"
#include "withdrawn.hpp"

namespace tenon::sdk::layer {

struct PluginState {
  const tenon_host* host;
  const PluginSpec* spec;
  Runtime runtime;
  std::unique_ptr<State> state;
  std::vector<Row> rows;  // those of the spec, then those of its families
  std::vector<DeviceSpec> devices;
  std::string note;
  std::vector<tenon_device_info> infos;
  std::vector<const tenon_device_info*> info_pointers;
  tenon_device_list list;
  std::vector<tenon_op_desc> ops;
  tenon_ops op_list;
  tenon_kernels kernels;
};

struct DeviceState {
  PluginState* plugin;
  DeviceSpec spec;
  std::unique_ptr<Device> device;
  Withdrawn withdrawn{};
};

struct Buffer {
  DeviceState* device;
  void* memory;  // an address, or a handle if Device::has_addresses() is false
  uint64_t size;
  uint32_t kind;  // TENON_MEMORY_*
  bool imported = false;
};

struct CompiledProgram {
  DeviceState* device;
  Program program;
  uint32_t exec_mode = TENON_EXEC_DEFAULT;
  std::vector<const StepBody*> parts{};  // steps with work before the first run
};

struct QueryResult {
  tenon_query_result result;
  std::vector<tenon_verdict> verdicts;
  std::deque<std::string> texts;
};

inline tenon_str str(std::string_view s) { return {s.data(), s.size()}; }

// Converts between state and ABI pointer.
template <class State, class Handle>
State* behind(Handle* handle) {
  return reinterpret_cast<State*>(handle);
}

struct Where {
  const PluginState* plugin;
  const char* function;
  uint64_t run_id = 0;
  uint32_t step = TENON_NONE;
  const std::string* label = nullptr;  // name of the step, for the text
};

inline tenon_status* status(const Where& where, tenon_code code, std::string_view text,
                            int64_t index = -1, uint32_t flags = 0) noexcept {
  tenon_status_desc d{};
  d.struct_size = sizeof(d);
  d.code = code;
  d.flags = flags;
  d.text = str(text);
  d.run_id = where.run_id;
  d.step = where.step;
  d.index = index;
  try {
    const std::string origin = std::string(where.plugin->spec->name) + ": " + where.function;
    const std::string labelled =
        where.label ? *where.label + ": " + std::string(text) : std::string();
    if (where.label) d.text = str(labelled);
    d.origin = str(origin);
    return where.plugin->host->make_status(&d);
  } catch (...) {
    d.text = str(text);
    d.origin = str(where.plugin->spec->name);
    return where.plugin->host->make_status(&d);
  }
}

// Call it in a catch block.
inline tenon_status* status_of_exception(const Where& where) noexcept {
  try {
    throw;
  } catch (const ClaimWithdrawn& e) {
    return status(where, e.code(), e.what(), -1, TENON_STATUS_WITHDRAWN);
  } catch (const Failure& e) {
    const bool memory = e.code() == TENON_OUT_OF_MEMORY;
    return status(where, e.code(), e.what(), e.index(), memory ? TENON_STATUS_RETRYABLE : 0);
  } catch (const Refusal& e) {
    return status(where, TENON_UNSUPPORTED, e.what());
  } catch (const std::bad_alloc&) {
    return status(where, TENON_OUT_OF_MEMORY, "out of host memory", -1, TENON_STATUS_RETRYABLE);
  } catch (const std::exception& e) {
    return status(where, TENON_INTERNAL, e.what());
  } catch (...) {
    return status(where, TENON_INTERNAL, "an exception of unknown type");
  }
}

// Calls body and converts exceptions to a status. body returns nothing, or throws Failure.
template <class Body>
tenon_status* guarded(const Where& where, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_of_exception(where);
  }
}

inline void check(bool ok, const std::string& text) {
  if (!ok) throw Failure(TENON_INVALID_ARGUMENT, text);
}

}  // namespace tenon::sdk::layer
