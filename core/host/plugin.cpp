// SPDX-License-Identifier: Apache-2.0
// Validates a plugin's table, creates it, and enumerates its devices.
#include "host/plugin.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/c_struct.hpp"
#include "host/call.hpp"
#include "host/guest_kernels.hpp"
#include "host/host_table.hpp"
#include "ops/registry.hpp"
#include "tenon/op.h"
#include "tenon/version.h"

namespace tenon::core {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

// The slots that every plugin must have, in the order of the table.
void check_required(const std::string& name, const tenon_backend& table) {
#define TENON_REQUIRED(slot) \
  if (!table.slot) fail(Code::incompatible, "plugin ", name, ": required slot " #slot " is null")
  TENON_REQUIRED(create);
  TENON_REQUIRED(shutdown);
  TENON_REQUIRED(enumerate);
  TENON_REQUIRED(device_open);
  TENON_REQUIRED(device_close);
  TENON_REQUIRED(buffer_create);
  TENON_REQUIRED(buffer_destroy);
  TENON_REQUIRED(buffer_write);
  TENON_REQUIRED(buffer_read);
  TENON_REQUIRED(query);
  TENON_REQUIRED(query_release);
  TENON_REQUIRED(compile);
  TENON_REQUIRED(program_info);
  TENON_REQUIRED(program_destroy);
  TENON_REQUIRED(instantiate);
  TENON_REQUIRED(instance_destroy);
  TENON_REQUIRED(run);
#undef TENON_REQUIRED
}

// Streams and events: all or none.
void check_streams(const std::string& name, const tenon_backend& table) {
  struct SlotState {
    const char* name;
    bool present;
  };
#define TENON_SLOT(slot) \
  { #slot, table.slot != nullptr }
  const SlotState slots[] = {
      TENON_SLOT(stream_create), TENON_SLOT(stream_destroy),    TENON_SLOT(stream_synchronize),
      TENON_SLOT(event_create),  TENON_SLOT(event_destroy),     TENON_SLOT(event_record),
      TENON_SLOT(event_query),   TENON_SLOT(stream_wait_event), TENON_SLOT(event_wait),
      TENON_SLOT(event_on_done),
  };
#undef TENON_SLOT
  const auto present = [](const SlotState& s) { return s.present; };
  const SlotState* has = std::ranges::find_if(slots, present);
  const SlotState* lacks = std::ranges::find_if_not(slots, present);
  if (has != std::end(slots) && lacks != std::end(slots)) {
    fail(Code::incompatible, "plugin ", name, ": has ", has->name, " but not ", lacks->name,
         "; streams and events come together or not at all");
  }
}

}  // namespace

void rethrow_as_lie(const Plugin& plugin, const char* slot) {
  std::string what;
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;  // the end of a cancelled thread, which must continue
  } catch (const std::exception& e) {
    if (const char* text = e.what()) what = ": " + copy_text({text, std::strlen(text)});
  } catch (...) {
  }
  plugin.lied(slot, "threw an exception", what);
}

std::recursive_mutex& load_mutex() {
  // never destroyed, because images may unload at exit
  static std::recursive_mutex& the = *new std::recursive_mutex;
  return the;
}

std::string version_range(uint32_t major, uint32_t minor_min, uint32_t minor_max) {
  std::string text = cat(major, ".", minor_min);
  if (minor_max != minor_min) text += cat(" to ", major, ".", minor_max);
  return text;
}

void check_version(const std::string& subject, uint32_t major, uint32_t minor_min,
                   uint32_t minor_max) {
  const tenon_host& host = *host_table();
  if (minor_min > minor_max) {
    fail(Code::incompatible, subject,
         " claims an ABI range that is empty: ", version_range(major, minor_min, minor_max));
  }
  if (major == host.abi_major && minor_min <= host.abi_minor_max &&
      minor_max >= host.abi_minor_min) {
    return;
  }
  fail(Code::incompatible, subject, " wants ABI ", version_range(major, minor_min, minor_max),
       ", host tenon ", copy_text(host.version), " offers ",
       version_range(host.abi_major, host.abi_minor_min, host.abi_minor_max));
}

AgreedTable negotiate(tenon_backend_entry_fn entry, const char* origin) {
  take_refusal();
  const tenon_backend* given = [&] {
    const ActiveCall active(origin, TENON_BACKEND_ENTRY_NAME);
    return entry(host_table());
  }();
  const std::string refusal = take_refusal();
  if (!given) {
    fail(Code::incompatible,
         "the plugin's entry refused: ", refusal.empty() ? "it gave no reason" : refusal);
  }
  // The versions are checked before everything whose layout depends on them.
  if (!TENON_HAS(tenon_backend, given, vendor)) {
    fail(Code::incompatible, "the plugin's table is too small: ", given->struct_size,
         " bytes, needed are ", TENON_BACKEND_SIZE_V1);
  }
  const std::string name = copy_text(given->name);
  if (!is_word(name)) {
    fail(Code::incompatible, "the plugin's name is '", name,
         "', expected up to 64 of a-z, 0-9, '_', '-' and '.'");
  }
  check_version("plugin " + name, given->abi_major, given->abi_minor_min, given->abi_minor_max);
  if (given->struct_size < TENON_BACKEND_SIZE_V1) {
    fail(Code::incompatible, "plugin ", name, ": its table is too small: ", given->struct_size,
         " bytes, needed are ", TENON_BACKEND_SIZE_V1);
  }
  AgreedTable agreed;
  std::memcpy(&agreed.table, given, std::min<uint64_t>(given->struct_size, sizeof agreed.table));
  agreed.minor = std::min(given->abi_minor_max, host_table()->abi_minor_max);
  check_required(name, agreed.table);
  check_streams(name, agreed.table);
  return agreed;
}

Plugin::Plugin(const AgreedTable& agreed, uint32_t threads)
    : table_(agreed.table),
      minor_(agreed.minor),
      name_(copy_text(table_.name)),
      version_(copy_text(table_.version)),
      vendor_(copy_text(table_.vendor)),
      kept_name_(kept_text(name_)) {
  const std::lock_guard lock(load_mutex());
  const tenon_create_options options = {sizeof options, minor_, threads};
  checked(*this, "create", [&] { return table_.create(host_table(), &options, &handle_); });
  // handle_ is not checked: a plugin without state may return null.
  try {
    find_profiler();
    find_derived_weights();
    find_prepare();
    find_choices();
    find_import_memory();
    find_native_streams();
  } catch (...) {
    shut_down();
    throw;
  }
}

void Plugin::find_derived_weights() {
  find<tenon_derived_weights>(TENON_DERIVED_WEIGHTS_ID, TENON_DERIVED_WEIGHTS_SIZE_V1,
                              derived_weights_,
                              [](const tenon_derived_weights& t) { return t.derive != nullptr; });
}

void Plugin::find_prepare() {
  find<tenon_prepare>(TENON_PREPARE_ID, TENON_PREPARE_SIZE_V1, prepare_,
                      [](const tenon_prepare& t) { return t.count && t.part; });
}

// Unlike an extension without which everything works, a table that is not whole is an error.
template <class Table>
Table Plugin::table_of(const char* id, uint64_t least) const {
  Table table{};
  const auto* given = static_cast<const Table*>(find_extension(id));
  if (!given) return table;
  if (given->struct_size < least)
    fail(Code::incompatible, "plugin ", name_, ": its ", id, " is too small: ", given->struct_size,
         " bytes, needed are ", least);
  std::memcpy(&table, given, std::min<uint64_t>(given->struct_size, sizeof table));
  return table;
}

template <class Row>
std::vector<Row> Plugin::rows_of(const char* id, const Row* rows, uint64_t stride, uint64_t least,
                                 uint32_t count) const {
  constexpr uint32_t kMost = 4096;
  const std::string who = cat("plugin ", name_, ": its ", id);
  if (count > kMost)
    fail(Code::incompatible, who, " has ", count, " entries, the limit is ", kMost);
  std::vector<Row> out;
  for (uint32_t i = 0; i < count; ++i) out.push_back(element(rows, stride, least, i, who));
  return out;
}

void Plugin::register_ops() const {
  const auto ops = table_of<tenon_ops>(TENON_OPS_ID, TENON_OPS_SIZE_V1);
  const auto kernels = table_of<tenon_kernels>(TENON_KERNELS_ID, TENON_KERNELS_SIZE_V1);
  const auto descriptions =
      rows_of(TENON_OPS_ID, ops.ops, ops.op_stride, TENON_OP_DESC_SIZE_V1, ops.op_count);
  std::vector<GuestKernel> guests =
      read_guest_kernels(rows_of(TENON_KERNELS_ID, kernels.rows, kernels.row_stride,
                                 TENON_KERNEL_ROW_SIZE_V1, kernels.row_count),
                         name_);
  core::register_ops(descriptions, name_);
  add_guest_kernels(std::move(guests));
}

void Plugin::warn_not_whole(const char* id) const {
  log(LogLevel::warning, cat("plugin ", name_, ": its ", id, " is not whole: not used"));
}

const void* Plugin::find_extension(std::string_view id) const {
  if (!table_.get_extension) return nullptr;
  return guarded(*this, "get_extension", [&] {
    return table_.get_extension(handle_, {id.data(), id.size()});
  });
}

Plugin::~Plugin() { shut_down(); }

void Plugin::shut_down() noexcept {
  const std::lock_guard lock(load_mutex());
  give_back(*this, "shutdown", [&] { table_.shutdown(handle_); });
}

DeviceInfo Plugin::read_device(const tenon_device_info* info, uint32_t position) const {
  const std::string which = cat("device ", position);
  if (!info) lied("enumerate", which, " is null");
  if (info->struct_size < TENON_DEVICE_INFO_SIZE_V1) {
    lied("enumerate", which, ": its description is too small: ", info->struct_size,
         " bytes, needed are ", TENON_DEVICE_INFO_SIZE_V1);
  }
  DeviceInfo device;
  device.plugin = name_;
  device.kind = copy_text(info->kind);
  device.name = copy_text(info->name);
  device.reason = copy_text(info->reason);
  if (!is_word(device.kind) || device.kind[0] < 'a' || device.kind[0] > 'z') {
    lied("enumerate", which, ": its kind is '", device.kind,
         "', expected up to 64 of a-z, 0-9, '_', '-' and '.', a letter first");
  }
  if (device.kind == "auto") {
    lied("enumerate", which, ": its kind is 'auto', which stands for any device");
  }
  device.memory_size = info->memory_size;
  device.max_allocation = info->max_allocation ? info->max_allocation : info->memory_size;
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  device.max_allocation = std::min(device.max_allocation ? device.max_allocation : kMost, kMost);
  device.alignment = info->alignment ? info->alignment : 64;
  if ((device.alignment & (device.alignment - 1)) != 0 || device.alignment > (1u << 30)) {
    lied("enumerate", which, ": its alignment is ", device.alignment,
         ", expected a power of two up to 2^30");
  }
  device.host_addressable = (info->flags & TENON_DEVICE_HOST_ADDRESSABLE) != 0;
  device.host_threads = (info->flags & TENON_DEVICE_HOST_THREADS) != 0;
  device.rebind_dear = (info->flags & TENON_DEVICE_REBIND_DEAR) != 0;
  device.lanes = (info->flags & TENON_DEVICE_LANES) != 0;
  // A class of a later version is unknown here.
  if (TENON_HAS(tenon_device_info, info, device_class) &&
      info->device_class <= TENON_DEVICE_CLASS_ACCELERATOR)
    device.device_class = info->device_class;
  if (device.host_addressable && !table_.buffer_address) {
    lied("enumerate", which, " is host-addressable, but the slot buffer_address is null");
  }
  return device;
}

void Plugin::enumerate() {
  constexpr uint32_t kMostDevices = 1024;
  const std::lock_guard lock(load_mutex());
  const tenon_device_list* list = nullptr;
  checked(*this, "enumerate", [&] { return table_.enumerate(handle_, &list); });
  if (!list) lied("enumerate", "succeeded without a list");
  if (list->struct_size < TENON_DEVICE_LIST_SIZE_V1) {
    lied("enumerate", "the list is too small: ", list->struct_size, " bytes, needed are ",
         TENON_DEVICE_LIST_SIZE_V1);
  }
  if (list->count > kMostDevices) {
    lied("enumerate", "says ", list->count, " devices, at most ", kMostDevices, " are allowed");
  }
  if (list->count != 0 && !list->devices) {
    lied("enumerate", "says ", list->count, " devices, but gives none");
  }
  note_ = copy_text(list->note);
  for (uint32_t i = 0; i < list->count; ++i) devices_.push_back(read_device(list->devices[i], i));
}

}  // namespace tenon::core
