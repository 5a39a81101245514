// SPDX-License-Identifier: Apache-2.0
// Each function of a StreamDevice in a few calls of the driver. stream_plugin.hpp states what they
// promise.
#include "device.hpp"

#include <tenon/handle_map.hpp>

namespace tenon::sample_stream {

namespace {

using simulator::Event;
using simulator::Queue;
using simulator::Recording;
using RecordingPtr = std::shared_ptr<Recording>;

Queue& queue_of(void* stream) { return *static_cast<Queue*>(stream); }
Event& event_of(void* event) { return *static_cast<Event*>(event); }

// Turns errors of the driver into failures that the host understands.
template <class Body>
void checked(Body body) {
  try {
    body();
  } catch (const simulator::Lost& e) {
    throw sdk::Failure(TENON_DEVICE_LOST, e.what());
  }
}

class Device final : public sdk::StreamDevice {
 public:
  explicit Device(const simulator::Properties& properties) : driver_(properties) {}

  // ---- Memory

  // Memory of this driver has handles. A device with addresses returns true, and its kernels use
  // Call::in(k), out(k) and scratch.
  bool has_addresses() const override { return false; }
  void* allocate(uint64_t bytes, uint64_t) override { return driver_.allocate(bytes); }
  void deallocate(void* memory, uint64_t) noexcept override { driver_.release(memory); }

  // ---- Streams and events

  void* stream_create() override { return new Queue(driver_); }
  void stream_destroy(void* s) noexcept override { delete &queue_of(s); }
  void stream_synchronize(void* s) override {
    checked([&] { queue_of(s).finish(); });
  }
  void stream_wait(void* s, void* e) override { queue_of(s).wait(event_of(e)); }
  void* event_create() override { return new Event; }
  void event_destroy(void* e) noexcept override { delete &event_of(e); }
  void event_record(void* e, void* s) override { queue_of(s).record(event_of(e)); }
  bool event_done(void* e) override {
    checked([&] { driver_.check(); });
    return event_of(e).done();
  }
  void event_synchronize(void* e) override {
    event_of(e).wait();
    checked([&] { driver_.check(); });
  }
  void event_on_done(void* e, void (*callback)(void*), void* user) override {
    event_of(e).on_done([=] { callback(user); });
  }

  // ---- Copies

  void write(sdk::Place target, const void* source, uint64_t size, void* s) override {
    on(s, [&](Queue& queue) { queue.write(part_of(target), source, size); });
  }
  void read(void* target, sdk::Place source, uint64_t size, void* s) override {
    on(s, [&](Queue& queue) { queue.read(target, part_of(source), size); });
  }
  void copy(sdk::Place target, StreamDevice& from, sdk::Place source, uint64_t size,
            void* s) override {
    const simulator::Device& owner = static_cast<Device&>(from).driver_;
    on(s, [&](Queue& queue) { queue.copy(part_of(target), part_of(source), size, &owner); });
  }

  // ---- Error records: the SDK keeps them in memory of allocate(), by write() and read()

  sdk::ErrorScheme error_scheme() const override { return sdk::ErrorScheme::records; }

  // ---- Code

  CodeCache& codes() { return codes_; }
  bool has_atomics() const { return driver_.properties().atomics; }

  // ---- Recordings: captured from streams, or built by launchers. A backend needs one of them.

  bool records() const override { return driver_.properties().captures; }
  void record_begin(void* s) override { queue_of(s).begin_recording(); }
  void* record_end(void* s) override { return recordings_.add(queue_of(s).end_recording()); }

  bool builds_recordings() const override { return !driver_.properties().captures; }
  void* recording_begin() override { return recordings_.add(std::make_shared<Recording>(driver_)); }
  void recording_end(void* recording) override { recordings_.at(recording)->end(); }

  // Where a launcher adds a command: to the recording or the queue.
  template <class Add>
  void at(const sdk::Launch& launch, Add add) {
    if (launch.recording)
      add(*recordings_.at(launch.recording));
    else
      add(queue_of(launch.stream));
  }

  void replay(void* recording, void* s) override { queue_of(s).replay(recordings_.at(recording)); }
  void recording_destroy(void* recording) noexcept override { recordings_.take(recording); }

  // ---- Timers

  bool has_timers() const override { return true; }
  void* timer_create() override { return new Event; }
  void timer_destroy(void* timer) noexcept override { delete &event_of(timer); }
  void timer_record(void* timer, void* s) override { queue_of(s).record(event_of(timer)); }
  double timer_elapsed(void* from, void* to) override {
    return std::chrono::duration<double>(event_of(to).time() - event_of(from).time()).count();
  }

 private:
  // Without a stream: in a queue of its own, which other streams do not hold up.
  template <class Body>
  void on(void* stream, Body body) {
    if (stream) return body(queue_of(stream));
    Queue own(driver_);
    body(own);
    checked([&] { own.finish(); });
  }

  simulator::Device driver_;
  CodeCache codes_{};
  // The driver gives recordings by a shared pointer, the SDK wants one pointer.
  sdk::HandleMap<RecordingPtr> recordings_{};
};

}  // namespace

std::unique_ptr<sdk::Device> open_device(const sdk::Runtime&, uint32_t index, uint32_t) {
  return std::make_unique<Device>(simulator::kDevices[index]);
}

sdk::Launcher launcher(sdk::Device* device, const simulator::CodePtr& code,
                       simulator::Arguments arguments) {
  const auto launch =
      std::make_shared<const simulator::Launch>(simulator::Launch{code, std::move(arguments)});
  return [launch, device = static_cast<Device*>(device)](const sdk::Launch& at) {
    device->at(at, [&](auto& to) { to.launch(launch); });
  };
}
sdk::Launcher copier(sdk::Device* device, simulator::Part target, simulator::Part source,
                     uint64_t bytes) {
  return [=, device = static_cast<Device*>(device)](const sdk::Launch& at) {
    device->at(at, [&](auto& to) { to.copy(target, source, bytes); });
  };
}

CodeCache& codes_of(const sdk::Node& node) { return static_cast<Device*>(node.device())->codes(); }
bool has_atomics(const sdk::Node& node) {
  return static_cast<const Device*>(node.device())->has_atomics();
}

}  // namespace tenon::sample_stream
