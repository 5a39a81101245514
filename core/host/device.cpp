// SPDX-License-Identifier: Apache-2.0
// Devices over the plugin's table: opens them, and makes all objects on them.
#include "host/device.hpp"

#include <cmath>
#include <utility>

#include "host/call.hpp"
#include "tenon/blob.h"

namespace tenon::core {

Device::Device(std::shared_ptr<Plugin> plugin, uint32_t index, DeviceInfo info, uint32_t threads,
               std::shared_ptr<Faults> faults, std::function<void(const Device&)> free_idle)
    : plugin_(std::move(plugin)),
      faults_(std::move(faults)),
      free_idle_(std::move(free_idle)),
      info_(std::move(info)) {
  if (!info_.reason.empty()) {
    fail(Code::unsupported, "device ", info_.id, " (", info_.name,
         ") cannot be opened: ", info_.reason);
  }
  const tenon_device_options options = {sizeof(tenon_device_options), threads, 0};
  handle_ = made<tenon_device>(*this, kFaultOpen, "device_open", [&](tenon_device** out) {
    return plugin_->table().device_open(plugin_->handle(), index, &options, out);
  });
  import_info_ = read_import_info();
}
Device::~Device() {
  give_back(*plugin_, "device_close", [&] { plugin_->table().device_close(handle_); });
}

bool Device::has_streams() const { return plugin_->has_streams(); }

// Without memory for the object, the plugin gets its buffer back.
std::shared_ptr<Buffer> Device::own(tenon_buffer* handle, uint64_t size, uint64_t counted,
                                    std::shared_ptr<void> owner) {
  try {
    return std::make_shared<Buffer>(shared_from_this(), handle, size, counted, std::move(owner));
  } catch (const std::bad_alloc&) {
    give_back(*plugin_, "buffer_destroy", [&] { plugin_->table().buffer_destroy(handle); });
    throw;
  }
}

std::shared_ptr<Buffer> Device::buffer(uint64_t size, std::string_view name, uint32_t kind) {
  if (size == 0) fail(Code::invalid_argument, "a buffer of size 0 on ", info_.id);
  if (kind == TENON_MEMORY_DEVICE && size > info_.max_allocation) {
    fail(Code::out_of_memory, "a buffer of ", size, " bytes on ", info_.id, ", which allows ",
         info_.max_allocation);
  }
  const tenon_buffer_options options = {sizeof options, size, {name.data(), name.size()}, kind, 0};
  auto* handle = made<tenon_buffer>(*this, kFaultAllocate, "buffer_create", [&](auto** out) {
    return plugin_->table().buffer_create(handle_, &options, out);
  });
  auto buffer = own(handle, size, kind == TENON_MEMORY_DEVICE ? size : 0);
  if (info_.host_addressable || (kind != TENON_MEMORY_DEVICE && plugin_->table().buffer_address)) {
    buffer->address_ = guarded(*plugin_, "buffer_address",
                               [&] { return plugin_->table().buffer_address(handle); });
    const auto address = reinterpret_cast<uintptr_t>(buffer->address());
    if (address == 0) {
      plugin_->lied("buffer_address", info_.id, " gave no host address for a buffer of ", size,
                    " bytes");
    }
    if (address % info_.alignment != 0) {
      plugin_->lied("buffer_address", "a buffer of ", size, " bytes on ", info_.id,
                    " is not aligned to ", info_.alignment);
    }
  }
  return buffer;
}

namespace {

// Releases what query gave, also when a check of it throws.
class QueryAnswer {
 public:
  QueryAnswer(const Device& device, const void* blob, size_t size) : device_(device) {
    call(device, kFaultQuery, "query",
         [&] { return table_of(device).query(device.handle(), blob, size, &result_); });
    if (!result_) device.plugin().lied("query", "succeeded without a result");
  }
  ~QueryAnswer() {
    give_back(device_.plugin(), "query_release",
              [&] { table_of(device_).query_release(device_.handle(), result_); });
  }
  QueryAnswer(const QueryAnswer&) = delete;
  QueryAnswer& operator=(const QueryAnswer&) = delete;

  std::vector<Verdict> verdicts(uint32_t node_count) const {
    const Plugin& plugin = device_.plugin();
    if (result_->struct_size < TENON_QUERY_RESULT_SIZE_V1) {
      plugin.lied("query", "the result is too small: ", result_->struct_size, " bytes");
    }
    if (result_->count != node_count) {
      plugin.lied("query", "gave ", result_->count, " verdicts for a graph of ", node_count,
                  " nodes");
    }
    if (node_count == 0) return {};
    if (!result_->verdicts) plugin.lied("query", "says ", node_count, " verdicts, but gives none");
    if (result_->verdict_stride < TENON_VERDICT_SIZE_V1 || result_->verdict_stride % 8 != 0 ||
        result_->verdict_stride > 1 << 20) {
      plugin.lied("query", "verdicts are ", result_->verdict_stride,
                  " bytes apart, expected a multiple of 8 from ", TENON_VERDICT_SIZE_V1);
    }
    std::vector<Verdict> all(node_count);
    for (uint32_t i = 0; i < node_count; ++i) all[i] = verdict(i);
    return all;
  }

 private:
  Verdict verdict(uint32_t node) const {
    const auto* raw = reinterpret_cast<const tenon_verdict*>(
        reinterpret_cast<const std::byte*>(result_->verdicts) + node * result_->verdict_stride);
    Verdict v;
    v.native = raw->verdict == TENON_VERDICT_NATIVE;
    v.group = raw->group;
    v.cost = raw->cost;
    if (!std::isfinite(v.cost) || v.cost < 0) {
      device_.plugin().lied("query", "the cost of node ", node, " is ", v.cost);
    }
    if (v.native) return v;
    v.reason = raw->reason;
    v.text = copy_text(raw->text);
    if (raw->verdict != TENON_VERDICT_REFUSED) {
      v.reason = TENON_REASON_OTHER;
      v.text = cat("verdict ", raw->verdict, " is not known to this host");
    } else if (v.text.empty()) {
      v.text = cat("the plugin gave no reason, code ", v.reason);
    }
    return v;
  }

  const Device& device_;
  const tenon_query_result* result_ = nullptr;
};

}  // namespace

std::vector<Verdict> Device::query(const void* blob, size_t size) {
  tenon_blob graph;
  if (const char* bad = tenon_blob_open(blob, size, &graph)) fail(Code::corrupt, "query: ", bad);
  return QueryAnswer(*this, blob, size).verdicts(tenon_blob_function_at(&graph, 0)->node_count);
}

std::shared_ptr<Program> Device::compile(const void* blob, size_t size,
                                         const CompileOptions& options) {
  tenon_compile_options raw{};
  raw.struct_size = sizeof raw;
  raw.flags = options.aot && !plugin_->prepare().part ? TENON_COMPILE_AOT : 0;
  raw.exec_mode = options.exec_mode;
  raw.scratch_limit = options.scratch_limit;
  auto* handle = made<tenon_program>(*this, kFaultCompile, "compile", [&](tenon_program** out) {
    return plugin_->table().compile(handle_, blob, size, &raw, out);
  });
  return std::make_shared<Program>(shared_from_this(), handle, blob, size);
}

std::shared_ptr<Instance> Device::instantiate(std::shared_ptr<Program> program,
                                              const Binding& binding) {
  check(&program->device() == this, "instantiate: a program of ", program->device().info().id,
        " on ", info_.id);
  return std::make_shared<Instance>(std::move(program), binding);
}

std::unique_ptr<Stream> Device::stream(void* native_handle) {
  check(has_streams(), "plugin ", plugin_->name(), " has no streams");
  auto* handle = made<tenon_stream>(*this, kFaultStream, "stream_create", [&](tenon_stream** out) {
    return plugin_->table().stream_create(handle_, native_handle, out);
  });
  return std::make_unique<Stream>(shared_from_this(), handle);
}

std::unique_ptr<Event> Device::event() {
  check(has_streams(), "plugin ", plugin_->name(), " has no events");
  auto* handle = made<tenon_event>(*this, kFaultStream, "event_create", [&](tenon_event** out) {
    return plugin_->table().event_create(handle_, out);
  });
  return std::make_unique<Event>(shared_from_this(), handle);
}

}  // namespace tenon::core
