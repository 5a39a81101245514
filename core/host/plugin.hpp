// SPDX-License-Identifier: Apache-2.0
// A loaded plugin: its validated table and its devices. Shuts down with the last object that it
// created. The image is never unmapped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "host/device.hpp"
#include "tenon/choices.h"
#include "tenon/derived_weights.h"
#include "tenon/import_memory.h"
#include "tenon/native_streams.h"
#include "tenon/prepare.h"
#include "tenon/profiler.h"

namespace tenon::core {

// Locked by every call that backend.h marks [load].
std::recursive_mutex& load_mutex();

// The table of an entry, accepted by this host. A copy, in which slots beyond the plugin's
// struct_size are null.
struct AgreedTable {
  tenon_backend table{};
  uint32_t minor = 0;  // the highest common one
};
// origin: the plugin's file; the text must never be freed (active_call.hpp).
AgreedTable negotiate(tenon_backend_entry_fn entry, const char* origin);

// "0.1" or "1.2 to 1.4".
std::string version_range(uint32_t major, uint32_t minor_min, uint32_t minor_max);
// Throws if the two sides have no version in common. subject: who requires it, for the message.
void check_version(const std::string& subject, uint32_t major, uint32_t minor_min,
                   uint32_t minor_max);

class Plugin {
 public:
  // Calls create.
  // threads: how many may compute for the plugin at the same time.
  Plugin(const AgreedTable& agreed, uint32_t threads);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Lists the devices, once. The host assigns their index and id.
  void enumerate();

  const tenon_backend& table() const { return table_; }
  tenon_plugin* handle() const { return handle_; }
  uint32_t minor() const { return minor_; }
  const std::string& name() const { return name_; }
  const char* kept_name() const { return kept_name_; }  // outlives the plugin: see active_call.hpp
  const std::string& version() const { return version_; }
  const std::string& vendor() const { return vendor_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  const std::string& note() const { return note_; }  // why there is no device, or a remark
  bool has_streams() const { return table_.stream_create != nullptr; }
  // Null slots if the plugin does not measure steps.
  const tenon_profiler& profiler() const { return profiler_; }
  // Null slots if the plugin imports no memory, or shares no streams.
  const tenon_import_memory& import_memory() const { return import_memory_; }
  const tenon_native_streams& native_streams() const { return native_streams_; }
  // A null slot if the plugin derives no weights.
  const tenon_derived_weights& derived_weights() const { return derived_weights_; }
  // Null slots if the plugin has no choices.
  const tenon_choices& choices() const { return choices_; }
  // Registers the ops of the plugin and its kernels for devices of other plugins. Throws if one of
  // them cannot be, and then registers nothing.
  void register_ops() const;
  // Null slots if the plugin prepares nothing in parts.
  const tenon_prepare& prepare() const { return prepare_; }

  // Throws an error that says which slot returned something invalid.
  template <class... Parts>
  [[noreturn]] void lied(const char* slot, const Parts&... parts) const {
    fail(Code::internal, "plugin ", name_, ": ", slot, ": ", parts...);
  }

 private:
  void find_profiler();
  void find_derived_weights();
  void find_prepare();
  void find_choices();
  void find_import_memory();
  void find_native_streams();
  template <class Table>
  Table table_of(const char* id, uint64_t least) const;
  template <class Row>
  std::vector<Row> rows_of(const char* id, const Row* rows, uint64_t stride, uint64_t least,
                           uint32_t count) const;
  // Copies the fields of an extension that the plugin has. If it is not whole (shorter than `least`,
  // the size of its first version, or without a slot), logs that and leaves `out` empty.
  template <class T>
  void find(const char* id, uint64_t least, T& out, bool (*whole)(const T&)) const;
  const void* find_extension(std::string_view id) const;
  void warn_not_whole(const char* id) const;
  void shut_down() noexcept;
  DeviceInfo read_device(const tenon_device_info* info, uint32_t position) const;

  tenon_backend table_;
  uint32_t minor_;
  std::string name_, version_, vendor_;
  const char* kept_name_;
  tenon_plugin* handle_ = nullptr;
  tenon_profiler profiler_{};
  tenon_derived_weights derived_weights_{};
  tenon_prepare prepare_{};
  tenon_choices choices_{};
  tenon_import_memory import_memory_{};
  tenon_native_streams native_streams_{};
  std::vector<DeviceInfo> devices_;
  std::string note_;
};

template <class T>
void Plugin::find(const char* id, uint64_t least, T& out, bool (*whole)(const T&)) const {
  const auto* found = static_cast<const T*>(find_extension(id));
  if (!found) return;
  T taken{};
  if (found->struct_size >= least)
    std::memcpy(&taken, found, std::min<uint64_t>(found->struct_size, sizeof taken));
  if (!whole(taken)) return warn_not_whole(id);
  out = taken;
}

}  // namespace tenon::core
