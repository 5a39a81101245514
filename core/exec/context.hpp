// SPDX-License-Identifier: Apache-2.0
// A context: what one run in flight owns. Inputs, outputs, working memory and the programs'
// instances, so that contexts of one executable never see each other's data.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/app_tensor.hpp"
#include "exec/executable.hpp"

namespace tenon::core {

// One run from its place in line to its end. Drives itself: blocking in the caller's thread, or
// from worker to worker.
class Flight;
// The buffers and instances of a context for one plan.
struct Lease;

// Events of the app that one run waits for, or records behind its work.
struct AppEvents {
  struct Event {
    const Device* device;
    void* native;
  };
  std::vector<Event> waits{}, records{};
};

// Keeps an output of a run as it is: no run writes the buffer while this lives.
class SharedOutput {
 public:
  SharedOutput() = default;
  SharedOutput(std::shared_ptr<Buffer> buffer, std::shared_ptr<std::atomic<uint32_t>> readers)
      : buffer_(std::move(buffer)), readers_(std::move(readers)) {
    readers_->fetch_add(1, std::memory_order_relaxed);
  }
  SharedOutput(SharedOutput&&) = default;
  SharedOutput& operator=(SharedOutput&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(readers_, other.readers_);
    return *this;
  }
  ~SharedOutput() {
    if (readers_) readers_->fetch_sub(1, std::memory_order_release);
  }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }  // null without elements

 private:
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<std::atomic<uint32_t>> readers_;
};

// Where an output is. device: null = host memory.
struct OutputPlace {
  void* address = nullptr;
  const Device* device = nullptr;
};

class Context {
 public:
  explicit Context(std::shared_ptr<Executable> executable);
  ~Context();  // waits for a run under way

  // dense content; strides are the caller's business. Ends a binding of the input. While a run is
  // under way, this is for the runs after it.
  void set(std::string_view input, const Type& type, std::span<const std::byte> content);
  // Following runs read the input, or write the output, of this name in memory of the app.
  void bind(std::string_view name, std::shared_ptr<AppTensor> memory);
  void unbind(std::string_view name);

  // Following runs use a stream of the app on a device of the executable; null: one of their own.
  void use_stream(std::string_view device, void* native);
  void* native_stream(std::string_view device);
  // The next run waits for an event of the app, or records one behind its work.
  void wait_event(std::string_view device, void* native);
  void record_event(std::string_view device, void* native);
  // The callback comes when an asynchronous run ends, before others see the end. It does not throw.
  void on_end(std::function<void(Code)> callback);

  void run();
  void run_async();
  bool done();
  void wait();  // throws the run's failure, once
  // Ends the run under way before its next step, with code cancelled. [any thread]
  void cancel() { cancel_.store(1, std::memory_order_relaxed); }

  // The type and the device live until the next run.
  const Type& output_type(std::string_view output);
  const Device& output_device(std::string_view output);
  void get(std::string_view output, void* data, uint64_t size);
  // Of an output of the last run; the next run may write it. Null without elements.
  OutputPlace output_place(std::string_view output);
  // Fails if the output is in memory of the app.
  SharedOutput share_output(std::string_view output);
  Executable& executable() const { return *executable_; }

 private:
  friend class Flight;
  struct Input {
    Type type;
    Bytes content;
    uint64_t version = 0;                // of the content; 0: not set
    std::shared_ptr<AppTensor> bound{};  // in place of the content
  };
  struct NextInput {
    Type type;
    Bytes content;
  };
  void take_next_inputs();
  void note_set(Input& input, const Type& type);
  void refuse_missing(std::span<const std::string_view> inputs) const;
  Lease& prepare();
  bool uses_app_memory() const;
  void find_entries(Lease& lease);
  void place(Lease& lease);
  void place_inputs(Lease& lease);
  void place_outputs(Lease& lease);
  void make_streams(const Plan& plan);
  void bind(Lease& lease, RunTrace* trace);
  void bind_instances(Lease& lease);
  void write_inputs(Lease& lease, RunTrace* trace);
  void write_numbers(Lease& lease);
  void finish_outputs(Lease& lease, uint64_t run, RunTrace* trace);
  void wait_for_app(const Lease& lease, const AppEvents& events);
  void record_for_app(const Lease& lease, const AppEvents& events);
  void bind_entries(Lease& lease, RunTrace* trace);
  AppTensor* bound_to(std::string_view name) const;
  void check_apart(std::string_view who, const AppTensor& memory, bool is_output) const;
  void forget(const std::shared_ptr<AppTensor>& memory, bool release);
  uint32_t number_of(std::string_view output);  // in Plan::outputs
  const std::shared_ptr<Buffer>& buffer_of(uint32_t output);
  bool is_extent(uint32_t output) const;
  const Type& type_of(uint32_t output);
  void refuse_padded(uint32_t output);
  std::shared_ptr<Device> device_named(std::string_view id) const;
  std::shared_ptr<Stream> stream_on(const std::shared_ptr<Device>& device);
  void add_event(std::vector<AppEvents::Event>& list, std::string_view device, void* native);
  const AppTensor* written_by_last(std::string_view output) const;
  void forbid_in_flight(const char* what);
  std::shared_ptr<Flight> launch();

  std::shared_ptr<Executable> executable_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::map<std::string, NextInput> next_inputs_;  // set while a run is under way
  std::map<std::string, std::shared_ptr<AppTensor>, std::less<>> bound_outputs_;
  uint64_t bindings_ = 1;  // number of changes to the bindings
  uint64_t versions_ = 0;  // of contents of inputs
  std::map<const Device*, std::shared_ptr<Stream>> app_streams_;
  AppEvents events_;  // for the next run
  std::function<void(Code)> on_end_;
  CancelWord cancel_{0};
  std::map<const Device*, std::shared_ptr<Stream>> own_streams_;
  std::vector<std::shared_ptr<Stream>> streams_;  // [device], null where the plugin has none
  std::vector<std::shared_ptr<Lease>> leases_;    // last used first
  std::shared_ptr<Lease> last_;                   // of the run under way, or the last one
  bool has_results_ = false;                      // it went well
  uint64_t last_run_ = 0;                         // its number
  std::shared_ptr<Flight> flight_;
};

}  // namespace tenon::core
