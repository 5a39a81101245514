// SPDX-License-Identifier: Apache-2.0
// The plugin "flow": streams are threads.
#define TENON_ENTRY_SYMBOL flow_entry
#include <tenon/stream_plugin.hpp>

#include <cstring>

#include "lanes/stream.hpp"
#include "meeting.hpp"

namespace tenon::meeting {
namespace {

using lanes::Event;
using lanes::Stream;

std::shared_ptr<Event>& event_of(void* e) { return *static_cast<std::shared_ptr<Event>*>(e); }
Stream& stream_of(void* s) { return *static_cast<Stream*>(s); }

class Flow final : public sdk::StreamDevice {
 public:
  bool has_addresses() const override { return true; }
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(64));
  }
  void* stream_create() override { return new Stream(1); }
  void stream_destroy(void* s) noexcept override { delete &stream_of(s); }
  void stream_synchronize(void* s) override { stream_of(s).synchronize(); }
  void stream_wait(void* s, void* e) override { stream_of(s).wait(event_of(e)); }
  void* event_create() override { return new std::shared_ptr<Event>(std::make_shared<Event>()); }
  void event_destroy(void* e) noexcept override { delete &event_of(e); }
  void event_record(void* e, void* s) override { stream_of(s).record(event_of(e)); }
  bool event_done(void* e) override {
    Event& event = *event_of(e);
    const std::lock_guard lock(event.mutex);
    return !event.open.contains(event.recorded);
  }
  void event_synchronize(void* e) override {
    Event& event = *event_of(e);
    uint64_t ticket;
    {
      const std::lock_guard lock(event.mutex);
      ticket = event.recorded;
    }
    event.wait(ticket);
  }
  void event_on_done(void* e, void (*callback)(void*), void* user) override {
    Event& event = *event_of(e);
    {
      const std::lock_guard lock(event.mutex);
      if (event.open.contains(event.recorded)) {
        event.calls.emplace_back(event.recorded, [=] { callback(user); });
        return;
      }
    }
    callback(user);
  }
  void write(sdk::Place target, const void* source, uint64_t size, void* s) override {
    move(target.address(), source, size, s);
  }
  void read(void* target, sdk::Place source, uint64_t size, void* s) override {
    move(target, source.address(), size, s);
  }
  void copy(sdk::Place target, StreamDevice&, sdk::Place source, uint64_t size, void* s) override {
    move(target.address(), source.address(), size, s);
  }
  ErrorWord error_word_create() override {
    auto* words = new uint64_t[2]{sdk::kNoError, sdk::kNoError};
    return {words, words + 1};
  }
  void error_word_destroy(const ErrorWord& word) noexcept override {
    delete[] static_cast<uint64_t*>(word.device);
  }
  void error_word_reset(const ErrorWord& word, void* s) override {
    stream_of(s).post([word] { *static_cast<uint64_t*>(word.device) = sdk::kNoError; });
  }
  void error_word_fetch(const ErrorWord& word, void* s) override {
    stream_of(s).post([word] { *word.host = *static_cast<uint64_t*>(word.device); });
  }

 private:
  static void move(void* target, const void* source, uint64_t size, void* s) {
    if (!s) return static_cast<void>(std::memcpy(target, source, size));
    stream_of(s).post([=] { std::memcpy(target, source, size); });
  }
};

sdk::Kernel make_enqueued(const sdk::op::binary& n, const sdk::Node& node) {
  sdk::Kernel kernel = make_without_sub(n, node);
  kernel.run = [compute = std::move(kernel.run)](const sdk::Call& call) {
    stream_of(call.stream).post([&compute, call] { compute(call); });
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::binary, make_enqueued>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "flow", .name = "a test", .memory_size = 1 << 30}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Flow>();
}
constexpr sdk::PluginSpec kSpec{.name = "flow",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open,
                                .streams = true};

}  // namespace
}  // namespace tenon::meeting

TENON_STREAM_PLUGIN(tenon::meeting::kSpec, "flow", TENON_ISA_BASELINE)
