// SPDX-License-Identifier: Apache-2.0
// The comfort layer for a device with memory and streams of its own: as plugin.hpp, but open makes
// a StreamDevice, kernels enqueue on Call::stream, and the host gets streams and events. The layer
// records a program that runs again (a graph) where the device can, runs core's lanes on streams
// where DeviceSpec::flags has TENON_DEVICE_LANES, measures steps where the device has timers, and
// reports what kernels found wrong with the data.
//
//   constexpr PluginSpec kSpec{.name = "mine", ..., .rows = kRows, .open = open, .streams = true};
//   TENON_STREAM_PLUGIN(kSpec, "mine", TENON_ISA_BASELINE)
//
// A kernel that finds bad data takes the smallest of the error word (Call::error, 8 bytes of device
// memory, all bits set = no failure) and error_value(step, code, index), atomically: so what is
// reported is the first bad index of the first bad step, whatever the order of threads.
#pragma once

#include "plugin.hpp"

namespace tenon::sdk {

inline constexpr uint64_t kNoError = ~uint64_t{0};
inline constexpr int kErrorCodeShift = 40, kErrorStepShift = 44;
// What a kernel writes: step in the highest 20 bits, code in 4, index in 40.
constexpr uint64_t error_value(uint64_t step, tenon_code code, uint64_t index) {
  return step << kErrorStepShift | uint64_t{code} << kErrorCodeShift | index;
}

// One opened device with streams. Pointers to memory are the device's own; streams and events are
// native handles. All functions may be called from several threads at once and throw Failure
// (DEVICE_LOST, OUT_OF_MEMORY, ...). Device::run surrounds whatever launches kernels.
class StreamDevice : public Device {
 public:
  // ---- Streams and events. destroy waits for the work of a stream, not for that behind an event.
  virtual void* stream_create() = 0;
  virtual void stream_destroy(void* stream) noexcept = 0;
  virtual void stream_synchronize(void* stream) = 0;
  virtual void stream_wait(void* stream, void* event) = 0;
  virtual void* event_create() = 0;
  virtual void event_destroy(void* event) noexcept = 0;
  virtual void event_record(void* event, void* stream) = 0;
  virtual bool event_done(void* event) = 0;
  virtual void event_synchronize(void* event) = 0;
  // Calls back exactly once, also when the device is lost, on any thread.
  virtual void event_on_done(void* event, void (*callback)(void*), void* user) = 0;

  // ---- Memory. With a stream in its order; with nullptr done on return. Sizes are not 0.
  virtual void write(void* target, const void* source, uint64_t size, void* stream) = 0;
  virtual void read(void* target, const void* source, uint64_t size, void* stream) = 0;
  // source lies on `from`, which may be this device.
  virtual void copy(void* target, StreamDevice& from, const void* source, uint64_t size,
                    void* stream) = 0;

  // ---- Error words: 8 bytes on the device and their image in host memory.
  struct ErrorWord {
    void* device = nullptr;
    volatile uint64_t* host = nullptr;
  };
  virtual ErrorWord error_word_create() = 0;
  virtual void error_word_destroy(const ErrorWord& word) noexcept = 0;
  virtual void error_word_reset(const ErrorWord& word, void* stream) = 0;  // to kNoError
  // To the host, in the stream's order. Nothing where the kernels that report write there as well;
  // then the host's word may be written until the stream was waited for.
  virtual void error_word_fetch(const ErrorWord& word, void* stream) = 0;

  // ---- Recording (optional): between begin and end what is enqueued on the stream is kept instead
  // of run; so is what is enqueued on another stream from where it waits for an event of the
  // recording, until this one waits for an event of that one. end throws when something could not
  // be recorded; the stream is usable again then.
  virtual bool records() const { return false; }
  virtual void record_begin(void*) {}
  virtual void* record_end(void*) { return nullptr; }
  virtual void replay(void* /*recording*/, void* /*stream*/) {}
  virtual void recording_destroy(void*) noexcept {}

  // ---- Timers (optional): events that know when the device passed them, for traces.
  virtual bool has_timers() const { return false; }
  virtual void* timer_create() { return nullptr; }
  virtual void timer_destroy(void*) noexcept {}
  virtual void timer_record(void* /*timer*/, void* /*stream*/) {}
  // Seconds from one to another; both are passed.
  virtual double timer_elapsed(void* /*from*/, void* /*to*/) { return 0; }

  // ---- Choices (optional; choices.h): what was chosen by timing, as text, and one to be taken
  // where it fits.
  virtual std::vector<std::string> choice_texts() { return {}; }
  virtual void take_choice(std::string_view /*text*/) {}

  // ---- Ranges (optional): is a profiler attached that shows what the host's threads enqueue?
  // Asked when a program is compiled. Then each step of it is enqueued between begin and end, whose
  // name says graph, node and kernel; ranges of a thread nest.
  virtual bool shows_ranges() const { return false; }
  virtual void range_begin(const std::string& /*name*/) {}
  virtual void range_end() noexcept {}
};

}  // namespace tenon::sdk

#include "layer/stream_backend.hpp"

#define TENON_STREAM_PLUGIN(spec, kinds, isa) \
  TENON_PLUGIN_OF(::tenon::sdk::layer::stream_backend_table, spec, kinds, isa)
