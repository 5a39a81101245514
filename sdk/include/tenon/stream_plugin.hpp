// SPDX-License-Identifier: Apache-2.0
//
// The comfort layer for a device with its own memory and streams (a GPU). Like plugin.hpp, with
// three differences: open() returns a StreamDevice, kernels enqueue work on Call::stream, and the
// host gets streams and events. template_stream is a complete plugin of this kind.
//
//   constexpr PluginSpec kSpec{
//       .name = "mine", .version = "1.0.0", .vendor = "me",
//       .rows = kRows, .devices = devices, .open = open, .streams = true};
//   TENON_STREAM_PLUGIN(kSpec, "mine", TENON_ISA_BASELINE)
//
// The layer also
//  - records and replays programs that run often, if the device can;
//  - runs lanes in several streams, if DeviceSpec::flags contains TENON_DEVICE_LANES;
//  - times steps, if the device has timers;
//  - reports failures that kernels find in the data.
//
// A kernel that finds bad data reports it to Call::error, in device memory. error_words.hpp has both
// forms; the device chooses one (StreamDevice::error_scheme). The layer makes the text of the
// failure: Kernel::describe, or the text of the cpu plugin for tenon's own ops.
#pragma once

#include "error_words.hpp"
#include "plugin.hpp"

namespace tenon::sdk {

// An open device with streams. Streams and events are handles of its driver. All functions may be
// called by several threads at the same time and throw Failure (DEVICE_LOST, OUT_OF_MEMORY, ...).
// The layer wraps each run in Device::run().
//
// Several streams may use one allocation at the same time. Ranges that one of them writes do not
// overlap with ranges that others use at that time. backend.h states the rules ("Streams and
// events", "Memory"); the layer passes them on unchanged.
class StreamDevice : public Device {
 public:
  using Device::allocate, Device::deallocate;

  // ---- Memory
  //
  //   has_addresses()  allocate() returns                 a kernel gets its operands as
  //   true             an address (CUDA, HIP)             addresses: Call::in(k), out(k), scratch
  //   false            a handle of the driver (cl_mem)    places: Call::input(k), output(k),
  //                                                       scratch_place
  //
  // The layer does arithmetic on addresses only. A place is the handle and an offset in bytes.
  bool has_addresses() const override = 0;

  // A device that has other kinds of memory than DEVICE overrides these. With addresses, they are
  // valid on the host and on the device alike.
  void* allocate(uint64_t bytes, uint64_t alignment, uint32_t kind) override {
    if (kind == TENON_MEMORY_DEVICE) return allocate(bytes, alignment);
    throw Failure(TENON_UNSUPPORTED, "this device has no memory of kind " + std::to_string(kind));
  }
  void deallocate(void* memory, uint64_t bytes, uint32_t /*kind*/) noexcept override {
    deallocate(memory, bytes);
  }

  // Returns the host's address of memory of another kind than DEVICE; with
  // TENON_DEVICE_HOST_ADDRESSABLE, of any memory.
  virtual void* host_address(void* memory) { return has_addresses() ? memory : nullptr; }

  // ---- Memory that somebody else allocated (optional)

  virtual bool imports() const { return false; }
  // Makes the memory usable and returns the address or handle for kernels. Throws Failure if the
  // device cannot read and write all of it.
  virtual void* import_memory(void* address, uint64_t /*bytes*/) { return address; }
  // Undoes import_memory(); `memory` is what that returned.
  virtual void forget_memory(void* /*memory*/, uint64_t /*bytes*/) noexcept {}

  // ---- Streams and events

  virtual void* stream_create() = 0;
  virtual void stream_destroy(void* stream) noexcept = 0;  // waits for the work of the stream
  virtual void stream_synchronize(void* stream) = 0;
  // The event may belong to another device of the plugin. If the driver cannot wait for it, wait in
  // the host.
  virtual void stream_wait(void* stream, void* event) = 0;
  // An event that was never recorded is done: nothing waits for it.
  virtual void* event_create() = 0;
  // Does not wait. Waits and callbacks that were asked for before still end when the work is done.
  virtual void event_destroy(void* event) noexcept = 0;
  // From here on the event stands for this point. Earlier waits and callbacks keep the earlier one.
  virtual void event_record(void* event, void* stream) = 0;
  virtual bool event_done(void* event) = 0;
  virtual void event_synchronize(void* event) = 0;
  // Calls `callback` exactly once, on any thread, also if the device is lost. If the event is done,
  // the call may come before this function returns. The last one comes before the destructor of the
  // device returns.
  virtual void event_on_done(void* event, void (*callback)(void*), void* user) = 0;

  // ---- Copies: in the order of the stream. Sizes are positive.
  //
  // With nullptr for the stream, a copy is done on return. It is not ordered with streams and must
  // not wait for them: they may be busy with other ranges of the same allocation, or wait for an
  // event that the calling thread records later. The host copies like this only from bytes that no
  // work in flight writes, and only to bytes that no work in flight uses.

  virtual void write(Place target, const void* source, uint64_t size, void* stream) = 0;
  virtual void read(void* target, Place source, uint64_t size, void* stream) = 0;
  // source is memory of `from`, which may be this device.
  virtual void copy(Place target, StreamDevice& from, Place source, uint64_t size,
                    void* stream) = 0;

  // ---- Error words and records: see error_words.hpp

  virtual ErrorScheme error_scheme() const { return ErrorScheme::word; }

  // Only for ErrorScheme::word, and only for a device that has a better way than these: the word in
  // memory of allocate(), and copies by write() and read().
  struct ErrorWord {
    void* device = nullptr;  // 8 bytes, an address or a handle: Call::error
    volatile uint64_t* host = nullptr;
  };
  virtual ErrorWord error_word_create() {
    auto host = std::make_unique<uint64_t>(kNoError);
    const ErrorWord word{allocate(sizeof kNoError, 64), host.get()};
    try {
      write({word.device, 0}, &kNoError, sizeof kNoError, nullptr);
    } catch (...) {
      deallocate(word.device, sizeof kNoError);
      throw;
    }
    static_cast<void>(host.release());
    return word;
  }
  virtual void error_word_destroy(const ErrorWord& word) noexcept {
    deallocate(word.device, sizeof kNoError);
    delete word.host;
  }
  virtual void error_word_reset(const ErrorWord& word, void* stream) {  // to kNoError
    write({word.device, 0}, &kNoError, sizeof kNoError, stream);
  }
  // Copies the word to the host, in the order of the stream. Does nothing if kernels write the host
  // copy themselves. Either way the host copy is final after the stream was synchronized. It is not
  // part of a capture.
  virtual void error_word_fetch(const ErrorWord& word, void* stream) {
    read(const_cast<uint64_t*>(word.host), {word.device, 0}, sizeof kNoError, stream);
  }

  // ---- Recordings (optional): the steps of a program, enqueued by one call. Reports of bad data
  // and timers are not part of them. There are two ways to make one; choose what the driver has.

  // Capture of a stream: all kernels of the program take part unchanged.
  virtual bool records() const { return false; }
  // From here on, work enqueued on the stream is captured instead of executed. Another stream joins
  // the capture when it waits for an event recorded in the capture, and leaves it when this stream
  // waits for an event recorded in the other one.
  virtual void record_begin(void* /*stream*/) {}
  // Ends the capture and returns it. Throws if something could not be captured; the stream is
  // usable again in any case.
  virtual void* record_end(void* /*stream*/) { return nullptr; }

  // Or built step by step, for a driver that does not capture (command buffers of OpenCL and
  // Vulkan). Launchers add the work (Launch::recording), so this needs Kernel::bind of all kernels
  // of a program; other programs run step by step. Used if records() is false.
  virtual bool builds_recordings() const { return false; }
  // Returns an empty recording. What is added to it runs in the order of adding, also where the
  // program has several lanes.
  virtual void* recording_begin() { return nullptr; }
  // Completes the recording. If this or a launcher throws, the next call is recording_destroy().
  virtual void recording_end(void* /*recording*/) {}

  // Of both. Recordings are replayed several times, on any stream.
  virtual void replay(void* /*recording*/, void* /*stream*/) {}
  virtual void recording_destroy(void* /*recording*/) noexcept {}

  // ---- Timers (optional): events with a time, for traces

  virtual bool has_timers() const { return false; }
  virtual void* timer_create() { return nullptr; }
  virtual void timer_destroy(void* /*timer*/) noexcept {}
  virtual void timer_record(void* /*timer*/, void* /*stream*/) {}
  // Returns seconds between two timers. The work before both is done.
  virtual double timer_elapsed(void* /*from*/, void* /*to*/) { return 0; }

  // ---- Choices (optional): tuning results as text, see choices.h

  virtual std::vector<std::string> choice_texts() { return {}; }
  virtual void take_choice(std::string_view /*text*/) {}

  // ---- Ranges (optional): names for profilers that show what host threads enqueue. If
  // shows_ranges() is true when a program is compiled, each of its steps is enqueued between
  // range_begin() and range_end(). The name states graph, node and kernel. Ranges nest per thread.

  virtual bool shows_ranges() const { return false; }
  virtual void range_begin(const std::string& /*name*/) {}
  virtual void range_end() noexcept {}
};

}  // namespace tenon::sdk

#include "layer/stream_backend.hpp"

#define TENON_STREAM_PLUGIN(spec, kinds, isa)                                                   \
  static_assert(::tenon::sdk::layer::no_host_rows(spec),                                        \
                "a row of this stream plugin computes in host memory (kHostOnly), for example " \
                "sdk::strided_copy: write a maker that enqueues work on Call::stream");         \
  TENON_PLUGIN_OF(::tenon::sdk::layer::stream_backend_table, spec, kinds, isa)
