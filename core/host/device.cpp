// SPDX-License-Identifier: Apache-2.0
// Devices, buffers, streams, events and instances over the plugin's table. Programs: program.cpp.
#include "host/device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "host/call.hpp"
#include "tenon/blob.h"

namespace tenon::core {
namespace {

const tenon_backend& table_of(const Device& device) { return device.plugin().table(); }

tenon_stream* handle_of(Stream* stream) { return stream ? stream->handle() : nullptr; }

// Calls a slot that makes an object; success without one is a lie.
template <class Handle, class Make>
Handle* made(const Device& device, FaultCall kind, const char* slot, Make make) {
  Handle* handle = nullptr;
  call_again(device, kind, slot, [&] { return make(&handle); });
  if (!handle) device.plugin().lied(slot, "succeeded without a result");
  return handle;
}

void check_range(const Buffer& buffer, const char* what, uint64_t offset, uint64_t size) {
  if (offset <= buffer.size() && size <= buffer.size() - offset) return;
  fail(Code::invalid_argument, what, ": ", size, " bytes at ", offset, " in a buffer of ",
       buffer.size(), " on ", buffer.device().info().id);
}

}  // namespace

// ---- Streams and events

namespace {

// What events call back, by ticket: a plugin that calls twice, or late, finds nothing.
class Callbacks {
 public:
  static Callbacks& the() {
    static Callbacks& the = *new Callbacks;  // plugins may call while the process ends
    return the;
  }
  uintptr_t add(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++last_, std::move(callback));
    return last_;
  }
  std::function<void()> take(uintptr_t ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(ticket);
    if (found == waiting_.end()) return {};
    std::function<void()> callback = std::move(found->second);
    waiting_.erase(found);
    return callback;
  }
  static void signal(void* user) noexcept {
    if (const auto callback = the().take(reinterpret_cast<uintptr_t>(user))) callback();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::function<void()>> waiting_;
  uintptr_t last_ = 0;
};

}  // namespace

Event::Event(std::shared_ptr<Device> device, tenon_event* handle)
    : device_(std::move(device)), handle_(handle) {}
Event::~Event() {
  give_back(device_->plugin(), "event_destroy", [&] { table_of(*device_).event_destroy(handle_); });
}

bool Event::done() {
  uint32_t done = 0;
  checked(device_->plugin(), "event_query",
          [&] { return table_of(*device_).event_query(handle_, &done); });
  if (done != 0)
    device_->faults().meet(device_->info(), device_->plugin(), kFaultWait, "event_query");
  return done != 0;
}
void Event::wait() {
  call_wait(*device_, "event_wait", [&] { return table_of(*device_).event_wait(handle_); });
}
void Event::on_done(std::function<void()> callback) {
  const uintptr_t ticket = Callbacks::the().add(std::move(callback));
  try {
    call(*device_, kFaultStream, "event_on_done", [&] {
      return table_of(*device_).event_on_done(handle_, Callbacks::signal,
                                              reinterpret_cast<void*>(ticket));
    });
  } catch (...) {
    if (!Callbacks::the().take(ticket)) return;  // it failed, but called back: once is enough
    throw;
  }
}

Stream::Stream(std::shared_ptr<Device> device, tenon_stream* handle)
    : device_(std::move(device)), handle_(handle) {}
Stream::~Stream() {
  give_back(device_->plugin(), "stream_destroy",
            [&] { table_of(*device_).stream_destroy(handle_); });
}

void Stream::synchronize() {
  call_wait(*device_, "stream_synchronize",
            [&] { return table_of(*device_).stream_synchronize(handle_); });
}
void Stream::wait(Event& event) {
  call(*device_, kFaultStream, "stream_wait_event",
       [&] { return table_of(*device_).stream_wait_event(handle_, event.handle()); });
}
void Stream::record(Event& event) {
  call(*device_, kFaultStream, "event_record",
       [&] { return table_of(*device_).event_record(event.handle(), handle_); });
}

// ---- Buffers

Buffer::Buffer(std::shared_ptr<Device> device, tenon_buffer* handle, uint64_t size)
    : device_(std::move(device)), handle_(handle), size_(size) {
  device_->allocated_ += size_;
}
Buffer::~Buffer() {
  device_->allocated_ -= size_;
  give_back(device_->plugin(), "buffer_destroy",
            [&] { table_of(*device_).buffer_destroy(handle_); });
}

void Buffer::write(uint64_t offset, const void* source, uint64_t size, Stream* stream) {
  check_range(*this, "a write", offset, size);
  if (size == 0) return;
  call(*device_, kFaultWrite, "buffer_write", [&] {
    return table_of(*device_).buffer_write(handle_, offset, source, size, handle_of(stream));
  });
}
void Buffer::read(uint64_t offset, void* target, uint64_t size, Stream* stream) {
  check_range(*this, "a read", offset, size);
  if (size == 0) return;
  call(*device_, kFaultRead, "buffer_read", [&] {
    return table_of(*device_).buffer_read(handle_, offset, target, size, handle_of(stream));
  });
}

void copy(Buffer& to, uint64_t to_offset, Buffer& from, uint64_t from_offset, uint64_t size,
          Stream* stream) {
  check_range(to, "a copy's target", to_offset, size);
  check_range(from, "a copy's source", from_offset, size);
  if (size == 0) return;
  if (&to == &from && to_offset < from_offset + size && from_offset < to_offset + size) {
    fail(Code::invalid_argument, "a copy of ", size, " bytes from ", from_offset, " to ", to_offset,
         " of one buffer overlaps itself");
  }
  const Plugin& plugin = to.device().plugin();
  if (&plugin == &from.device().plugin() && plugin.table().buffer_copy) {
    call(to.device(), kFaultCopy, "buffer_copy", [&] {
      return plugin.table().buffer_copy(to.handle(), to_offset, from.handle(), from_offset, size,
                                        handle_of(stream));
    });
    return;
  }
  if (stream) stream->synchronize();
  if (void* source = from.address()) {
    to.write(to_offset, static_cast<const std::byte*>(source) + from_offset, size);
  } else if (void* target = to.address()) {
    from.read(from_offset, static_cast<std::byte*>(target) + to_offset, size);
  } else {
    std::vector<std::byte> staging(std::min<uint64_t>(size, 4 << 20));
    for (uint64_t at = 0; at < size; at += staging.size()) {
      const uint64_t part = std::min<uint64_t>(staging.size(), size - at);
      from.read(from_offset + at, staging.data(), part);
      to.write(to_offset + at, staging.data(), part);
    }
  }
}

// ---- Instances

namespace {

// A binding as the plugin sees it. That it fits the program is core's own duty.
struct RawBinding {
  std::vector<tenon_slot> values, scratch;
  std::vector<tenon_lane_wait> waits;
  tenon_binding binding{};

  RawBinding(const Program& program, const Binding& from) {
    check(from.values.size() == program.values().size() &&
              from.scratch.size() == program.steps().size(),
          "a binding of ", from.values.size(), " values and ", from.scratch.size(),
          " scratches for a program of ", program.values().size(), " and ", program.steps().size());
    for (size_t i = 0; i < from.values.size(); ++i) {
      values.push_back(slot(program, from.values[i], program.values()[i].size, "value", i));
    }
    for (size_t i = 0; i < from.scratch.size(); ++i) {
      scratch.push_back(slot(program, from.scratch[i], program.steps()[i].scratch, "scratch", i));
    }
    binding = {sizeof(tenon_binding),
               values.data(),
               scratch.data(),
               static_cast<uint32_t>(values.size()),
               static_cast<uint32_t>(scratch.size()),
               nullptr,
               nullptr,
               1,
               0};
    if (from.lanes && from.lanes->count > 1) add_lanes(program, *from.lanes);
  }

  void add_lanes(const Program& program, const Lanes& lanes) {
    check(program.device().info().lanes && lanes.lane.size() == program.steps().size(),
          "a binding of ", lanes.count, " lanes for ", program.steps().size(), " steps on ",
          program.device().info().id);
    for (const LaneWait& w : lanes.waits) waits.push_back({w.step, w.after});
    binding.lanes = lanes.lane.data();
    binding.waits = waits.data();
    binding.lane_count = lanes.count;
    binding.wait_count = static_cast<uint32_t>(waits.size());
  }

  static tenon_slot slot(const Program& program, const Slot& from, uint64_t size, const char* what,
                         size_t index) {
    if (!from.buffer) return {nullptr, 0};
    check(&from.buffer->device() == &program.device(), what, " ", index, ": its buffer is on ",
          from.buffer->device().info().id, ", its program on ", program.device().info().id);
    check(from.offset <= from.buffer->size() && size <= from.buffer->size() - from.offset, what,
          " ", index, ": ", size, " bytes at ", from.offset, " in a buffer of ",
          from.buffer->size());
    return {from.buffer->handle(), from.offset};
  }
};

// Each buffer once: bindings name the same few buffers again and again.
std::vector<std::shared_ptr<Buffer>> buffers_of(const Binding& binding) {
  std::vector<std::shared_ptr<Buffer>> all;
  for (const std::vector<Slot>* slots : {&binding.values, &binding.scratch}) {
    for (const Slot& slot : *slots) {
      if (slot.buffer && (all.empty() || all.back() != slot.buffer)) all.push_back(slot.buffer);
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

tenon_instance* make_instance(const Program& program, const RawBinding& raw) {
  const Device& device = program.device();
  return made<tenon_instance>(device, kFaultInstantiate, "instantiate", [&](tenon_instance** out) {
    return table_of(device).instantiate(program.handle(), &raw.binding, out);
  });
}

}  // namespace

Instance::Instance(std::shared_ptr<Program> program, const Binding& binding)
    : program_(std::move(program)), buffers_(buffers_of(binding)) {
  handle_ = make_instance(*program_, RawBinding(*program_, binding));
}
Instance::~Instance() { destroy(handle_); }

void Instance::destroy(tenon_instance* handle) noexcept {
  const Device& device = program_->device();
  give_back(device.plugin(), "instance_destroy",
            [&] { table_of(device).instance_destroy(handle); });
}

void Instance::run(uint64_t run_id, Stream* stream, Event* done) {
  check(!done || stream, "run: an event without a stream");
  const tenon_run_args args = {sizeof(tenon_run_args), run_id, handle_of(stream),
                               done ? done->handle() : nullptr};
  const Device& device = program_->device();
  call(device, kFaultRun, "run", [&] { return table_of(device).run(handle_, &args); });
}

void Instance::rebind(const Binding& binding) {
  const Device& device = program_->device();
  const RawBinding raw(*program_, binding);
  std::vector<std::shared_ptr<Buffer>> buffers = buffers_of(binding);
  if (table_of(device).rebind) {
    // Should it fail half-way, the instance may still look at the old ones.
    buffers_.insert(buffers_.end(), buffers.begin(), buffers.end());
    call_again(device, kFaultInstantiate, "rebind",
               [&] { return table_of(device).rebind(handle_, &raw.binding); });
  } else {
    tenon_instance* fresh = make_instance(*program_, raw);
    destroy(std::exchange(handle_, fresh));
  }
  buffers_ = std::move(buffers);
}

// ---- Devices

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
}
Device::~Device() {
  give_back(*plugin_, "device_close", [&] { plugin_->table().device_close(handle_); });
}

bool Device::has_streams() const { return plugin_->has_streams(); }

std::shared_ptr<Buffer> Device::buffer(uint64_t size) {
  if (size == 0) fail(Code::invalid_argument, "a buffer of size 0 on ", info_.id);
  if (size > info_.max_allocation) {
    fail(Code::out_of_memory, "a buffer of ", size, " bytes on ", info_.id, ", which allows ",
         info_.max_allocation);
  }
  auto* handle = made<tenon_buffer>(*this, kFaultAllocate, "buffer_create", [&](auto** out) {
    return plugin_->table().buffer_create(handle_, size, out);
  });
  auto buffer = std::make_shared<Buffer>(shared_from_this(), handle, size);
  if (info_.host_addressable) {
    buffer->address_ = guarded(*plugin_, "buffer_address",
                               [&] { return plugin_->table().buffer_address(handle); });
    const auto address = reinterpret_cast<uintptr_t>(buffer->address());
    if (address == 0) {
      plugin_->lied("buffer_address", info_.id,
                    " is host-addressable, but gave no address for a buffer of ", size, " bytes");
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
    if (!TENON_HAS(tenon_query_result, result_, count)) {
      plugin.lied("query", "the result is too small: ", result_->struct_size, " bytes");
    }
    if (result_->count != node_count) {
      plugin.lied("query", "gave ", result_->count, " verdicts for a graph of ", node_count,
                  " nodes");
    }
    if (node_count == 0) return {};
    if (!result_->verdicts) plugin.lied("query", "says ", node_count, " verdicts, but gives none");
    if (result_->verdict_stride < sizeof(tenon_verdict) || result_->verdict_stride % 8 != 0 ||
        result_->verdict_stride > 1 << 20) {
      plugin.lied("query", "verdicts are ", result_->verdict_stride,
                  " bytes apart, expected a multiple of 8 from ", sizeof(tenon_verdict));
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
  return QueryAnswer(*this, blob, size).verdicts(graph.functions[0].node_count);
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
