// SPDX-License-Identifier: Apache-2.0
// What the rest of the core sees of plugins: devices and the objects on them, owned, checked and
// throwing. Nothing here trusts a plugin; what a plugin says is copied and validated once.
//
// Every object keeps its owners alive (buffer, stream, event, program -> device -> plugin; instance
// -> program and the buffers it is bound to). Threads: as backend.h says of the slot behind a call;
// [object] for Instance::run and rebind, [any-thread] for the rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "host/fault.hpp"
#include "tenon/backend.h"

namespace tenon::core {

class Plugin;
class Device;
class Stream;

struct DeviceInfo {
  std::string kind;             // "cpu"
  uint32_t index = 0;           // within the kind, over all plugins of a Host
  std::string id;               // "cpu:0"
  std::string name;             // of the hardware
  std::string reason;           // not empty: cannot be opened, and why
  std::string plugin;           // name of its plugin
  uint64_t memory_size = 0;     // bytes, 0 = unknown
  uint64_t max_allocation = 0;  // bytes of the largest buffer; never 0
  uint64_t alignment = 64;      // bytes, a power of two
  bool host_addressable = false;
  bool host_threads = false;  // a synchronous run computes in the calling thread
  bool rebind_dear = false;
  bool lanes = false;  // runs several at once
};

// A failure that a plugin reported.
class DeviceError : public Error {
 public:
  DeviceError(Code code, const std::string& text, uint64_t run_id, uint32_t step, int64_t index,
              bool retryable)
      : Error(code, text), run_id_(run_id), step_(step), index_(index), retryable_(retryable) {}
  uint64_t run_id() const { return run_id_; }    // 0 = none
  uint32_t step() const { return step_; }        // of the program, TENON_NONE = none
  int64_t index() const { return index_; }       // first bad flat index, -1 = none
  bool retryable() const { return retryable_; }  // the same call may succeed later

 private:
  uint64_t run_id_;
  uint32_t step_;
  int64_t index_;
  bool retryable_;
};

// Throws DeviceError unless status is null, and releases it. The first words of the text are the
// origin that the status names.
void check(tenon_status* status);
// The same with the first words "plugin NAME: SLOT: ".
void check(tenon_status* status, const Plugin& plugin, const char* slot);

class Event {
 public:
  Event(std::shared_ptr<Device> device, tenon_event* handle);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool done();  // throws the work's failure once it is done
  void wait();  // likewise
  // Calls back at most once, on any thread, perhaps this one, when the work is done. The callback
  // may only signal, and does not throw.
  void on_done(std::function<void()> callback);
  tenon_event* handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  tenon_event* handle_;
};

class Stream {
 public:
  Stream(std::shared_ptr<Device> device, tenon_stream* handle);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void synchronize();  // throws the first failure since the last synchronization
  void wait(Event& event);
  void record(Event& event);
  tenon_stream* handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  tenon_stream* handle_;
};

class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, tenon_buffer* handle, uint64_t size);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return *device_; }
  uint64_t size() const { return size_; }
  void write(uint64_t offset, const void* source, uint64_t size, Stream* stream = nullptr);
  void read(uint64_t offset, void* target, uint64_t size, Stream* stream = nullptr);
  void* address() const { return address_; }  // in host memory, null when the host cannot reach it
  tenon_buffer* handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  friend class Device;
  tenon_buffer* handle_;
  uint64_t size_;
  void* address_ = nullptr;
};

// Copies bytes; ranges do not overlap. Within a plugin that can, in order of the stream; else
// through the host: then stream (of either device, or null) is synchronized first and the copy is
// done on return.
void copy(Buffer& to, uint64_t to_offset, Buffer& from, uint64_t from_offset, uint64_t size,
          Stream* stream = nullptr);

struct Verdict {
  bool native = false;
  uint32_t reason = TENON_REASON_NONE;  // TENON_REASON_*, when not native
  std::string text;                     // the reason for people
  double cost = 0;                      // seconds, 0 = unknown
  uint32_t group = TENON_NONE;          // claimed all or none; TENON_NONE = by itself
};

struct ProgramValue {
  uint32_t source = TENON_NONE;  // value of the region's graph, or TENON_NONE
  uint64_t size = 0;             // bytes
  uint64_t alignment = 1;        // bytes, at least the device's; not for views
  std::string layout{};          // not empty: a derived weight
};

struct Alias {
  bool view = false;  // else in place
  uint32_t from = 0, to = 0;
  uint64_t offset = 0;  // bytes, views only
};

struct Step {
  uint32_t node = TENON_NONE;
  std::vector<uint32_t> reads, writes;  // a view is not in writes: its step's alias defines it
  std::vector<Alias> aliases;
  uint64_t scratch = 0;
  std::string label;
};

// A compiled region: what the plugin declared, validated. Holds for every program:
//  - a value of the graph has its type's size unless it is a view; what the region reads from
//    outside and what leaves it is listed;
//  - a source is listed once, except that one which enters and leaves may be listed twice: the copy
//    that a step writes is what leaves;
//  - a derived weight stands for a weight that the region's graph does not update, and its plugin
//    can derive; it is only read;
//  - every value is made once, by a step or as a view, before it is read; what enters is only read;
//  - views lie inside their base, and what leaves is no view.
class Program {
 public:
  Program(std::shared_ptr<Device> device, tenon_program* handle, const void* blob, size_t size);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Device& device() const { return *device_; }
  const std::vector<ProgramValue>& values() const { return values_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Makes a derived weight of the dense content; both buffers are of the program's device.
  void derive(uint32_t value, Buffer& dense, Buffer& derived) const;
  // What is still to be done before the first run, in parts that may be done in any thread; 0 when
  // the plugin does not tell. See prepare.h.
  uint32_t part_count() const;
  void prepare(uint32_t part) const;
  tenon_program* handle() const { return handle_; }

 private:
  void destroy() noexcept;

  std::shared_ptr<Device> device_;
  tenon_program* handle_;
  std::vector<ProgramValue> values_;
  std::vector<Step> steps_;
};

// `step` begins when `after`, an earlier step of another lane, is done.
struct LaneWait {
  uint32_t step = 0, after = 0;
  friend bool operator==(const LaneWait&, const LaneWait&) = default;
};

// Which steps of a program may run beside each other. A lane runs its steps in the order of the
// program; all lanes begin with the run, the run ends with the last of them.
struct Lanes {
  uint32_t count = 1;
  std::vector<uint32_t> lane{};   // per step; empty: one lane, no waits
  std::vector<LaneWait> waits{};  // in the order of `step`
};

struct Slot {
  std::shared_ptr<Buffer> buffer;  // null only for size 0 or what nobody touches
  uint64_t offset = 0;
};

struct Binding {
  std::vector<Slot> values;      // one per program value; a view's slot is its base plus its offset
  std::vector<Slot> scratch;     // one per step
  const Lanes* lanes = nullptr;  // null: one lane
};

// When a step ran, in nanoseconds of the host's monotonic clock; 0 to 0: it was not measured.
struct StepTime {
  int64_t begin_ns = 0, end_ns = 0;
  uint32_t lane = 0;
};

class Instance {
 public:
  Instance(std::shared_ptr<Program> program, const Binding& binding);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Without a stream: returns when done, throws the failure if there is one. With a stream:
  // enqueues, and records done behind the work when given.
  void run(uint64_t run_id, Stream* stream = nullptr, Event* done = nullptr);
  // Does the plugin measure the steps of a run?
  bool can_measure() const;
  // As run, measured.
  void run_measured(uint64_t run_id, Stream* stream = nullptr, Event* done = nullptr);
  // Of the last measured run, which went well between these times, in the order of the program's
  // steps. Empty when what the plugin says cannot be.
  std::vector<StepTime> step_times(int64_t begin_ns, int64_t end_ns);
  // New addresses; not while it runs. Makes a new instance where the plugin cannot rebind.
  void rebind(const Binding& binding);
  Program& program() const { return *program_; }

 private:
  void destroy(tenon_instance* handle) noexcept;

  std::shared_ptr<Program> program_;
  std::vector<std::shared_ptr<Buffer>> buffers_;  // what it is bound to
  tenon_instance* handle_ = nullptr;
};

struct CompileOptions {
  bool aot = false;            // all code is wanted at once: see Device::compile
  uint64_t scratch_limit = 0;  // bytes per step that a program should stay below, 0 = no limit
  uint32_t exec_mode = TENON_EXEC_DEFAULT;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // index: among the devices of the plugin. threads: 0 = the process's budget. free_idle: may be
  // empty; see free_idle() below.
  Device(std::shared_ptr<Plugin> plugin, uint32_t index, DeviceInfo info, uint32_t threads,
         std::shared_ptr<Faults> faults, std::function<void(const Device&)> free_idle = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Plugin& plugin() const { return *plugin_; }
  Faults& faults() const { return *faults_; }
  // Frees memory of this device that nobody uses at the moment. Calls that fail with a retryable
  // status (buffer, compile, instantiate, rebind, prepare, derive) are made again after it, once.
  void free_idle() const {
    if (free_idle_) free_idle_(*this);
  }
  uint64_t allocated() const { return allocated_; }  // bytes of all its buffers
  bool has_streams() const;
  tenon_device* handle() const { return handle_; }

  std::shared_ptr<Buffer> buffer(uint64_t size);  // size > 0; contents undefined
  // One verdict per node of function 0. blob: 8-aligned, see blob.h.
  std::vector<Verdict> query(const void* blob, size_t size);
  // aot: a plugin that can do it in parts (Program::prepare) is left to be asked for them.
  std::shared_ptr<Program> compile(const void* blob, size_t size,
                                   const CompileOptions& options = {});
  std::shared_ptr<Instance> instantiate(std::shared_ptr<Program> program, const Binding& binding);
  // Only with has_streams(). native_handle: a foreign stream to adopt, or null.
  std::unique_ptr<Stream> stream(void* native_handle = nullptr);
  std::unique_ptr<Event> event();

 private:
  std::shared_ptr<Plugin> plugin_;
  friend class Buffer;
  std::shared_ptr<Faults> faults_;
  std::function<void(const Device&)> free_idle_;
  DeviceInfo info_;
  std::atomic<uint64_t> allocated_{0};
  tenon_device* handle_ = nullptr;
};

}  // namespace tenon::core
