// SPDX-License-Identifier: Apache-2.0
// Faults that were asked for: which call fails, with what, and that nothing is left behind.
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "host/status.hpp"
#include "options.hpp"

using namespace tenon::core;
using fake::answers;

namespace {

// Everything that can fail, once, in a fixed order.
void use_everything(Host& host) {
  const auto device = host.open("fake");
  const std::vector<uint64_t> graph = fake::graph();
  device->query(graph.data(), graph.size() * 8);
  const auto program = device->compile(graph.data(), graph.size() * 8);
  Binding binding;
  const auto small = device->buffer(256), large = device->buffer(512);
  binding.values.assign(6, {small, 0});
  binding.scratch.assign(3, {small, 0});
  const auto instance = device->instantiate(program, binding);
  const auto stream = device->stream();
  const auto event = device->event();
  float content[4] = {1, 2, 3, 4};
  small->write(0, content, sizeof content, stream.get());
  copy(*large, 0, *small, 0, sizeof content, stream.get());
  instance->run(1, stream.get(), event.get());
  stream->record(*event);
  stream->wait(*event);
  event->on_done([] {});
  if (!event->done()) throw std::logic_error("an event of the fake is not done");
  event->wait();
  stream->synchronize();
  binding.values.assign(6, {large, 0});
  instance->rebind(binding);
  large->read(0, content, sizeof content);
}
constexpr const char* kSlots[] = {
    "device_open",        "query",         "compile",       "buffer_create",
    "buffer_create",      "instantiate",   "stream_create", "event_create",
    "buffer_write",       "buffer_copy",   "run",           "event_record",
    "stream_wait_event",  "event_on_done", "event_query",   "event_wait",
    "stream_synchronize", "rebind",        "buffer_read"};

// Those that change nothing when they fail.
bool is_made_again(std::string_view slot) {
  for (const char* s : {"device_open", "compile", "buffer_create", "instantiate", "stream_create",
                        "event_create", "rebind"})
    if (slot == s) return true;
  return false;
}

std::string failure(const std::function<void()>& call, Code* code = nullptr) {
  try {
    call();
  } catch (const DeviceError& e) {
    if (code) *code = e.code();
    CHECK(e.retryable() == (e.code() == Code::out_of_memory));
    CHECK(e.step() == TENON_NONE);
    return e.what();
  }
  return "no failure";
}

}  // namespace

TEST_SUITE("host/fault") {
  TEST_CASE("each call in turn: its slot is named, nothing is left behind") {
    for (const Code code : {Code::out_of_memory, Code::io_error}) {
      fake::reset();
      Host host(only({fake::entry}));
      uint64_t nth = 1;
      for (const char* slot : kSlots) {
        const uint64_t last = nth + (code == Code::out_of_memory && is_made_again(slot) ? 1 : 0);
        host.faults().set({.nth = nth, .code = code, .lasting = true});
        Code given = Code::ok;
        CHECK(failure([&] { use_everything(host); }, &given) ==
              cat("plugin fake: ", slot, ": fault asked for, call ", last, " on fake:0"));
        CHECK(given == code);
        CHECK(host.faults().lift() == last);
        ++nth;
        CHECK(answers.opened == 0);
        CHECK(answers.buffers == 0);
        CHECK(answers.programs == 0);
        CHECK(answers.instances == 0);
        CHECK(live_status_count() == 0);
      }
      host.faults().set({.nth = nth});
      CHECK(failure([&] { use_everything(host); }) == "no failure");
      CHECK(host.faults().lift() == std::size(kSlots));
    }
  }

  TEST_CASE("short of memory: idle memory is freed, and a call that may be repeated succeeds") {
    fake::reset();
    Host host(only({fake::entry}));
    std::vector<std::string> freed;
    host.when_short([&](const Device& device) { freed.push_back(device.info().id); });
    uint64_t nth = 1;
    for (const char* slot : kSlots) {
      CAPTURE(slot);
      freed.clear();
      host.faults().set({.nth = nth++, .code = Code::out_of_memory});
      const bool again = is_made_again(slot);
      CHECK((failure([&] { use_everything(host); }) == "no failure") == again);
      host.faults().lift();
      CHECK(freed == std::vector<std::string>(again ? 1 : 0, "fake:0"));
    }
    host.faults().set({.calls = kFaultAllocate, .nth = 1, .code = Code::io_error});
    CHECK(failure([&] { use_everything(host); }) != "no failure");
    CHECK(freed.empty());  // not for lack of memory
  }

  TEST_CASE("a wait that fails has waited, and its own failure comes first") {
    fake::reset();
    Host host(only({fake::entry}));
    const auto device = host.open("fake");
    const auto stream = device->stream();
    host.faults().set({.calls = kFaultWait, .code = Code::cancelled});
    answers.pending = fake::failure(TENON_NUMERIC_ERROR, "a NaN");
    CHECK(failure([&] { stream->synchronize(); }) == "plugin fake: stream_synchronize: a NaN");
    CHECK(answers.pending == nullptr);
    CHECK(failure([&] { stream->synchronize(); }) ==
          "plugin fake: stream_synchronize: fault asked for, call 1 on fake:0");
  }

  TEST_CASE("kinds, devices, counting, lasting") {
    fake::reset();
    answers.devices.push_back(answers.devices[0]);
    Host host(only({fake::entry}));
    const auto first = host.open("fake:0"), second = host.open("fake:1");
    host.faults().set({.device = "fake:1", .calls = kFaultAllocate | kFaultRead, .nth = 2});
    first->buffer(8);
    first->buffer(8);
    const auto buffer = second->buffer(8);
    char byte = 1;
    buffer->write(0, &byte, 1);
    CHECK(failure([&] { buffer->read(0, &byte, 1); }) != "no failure");
    CHECK(failure([&] { buffer->read(0, &byte, 1); }) == "no failure");
    CHECK(host.faults().set({.device = "fake", .nth = 2, .lasting = true}) == 3);
    CHECK(failure([&] { first->buffer(8); }) == "no failure");
    CHECK(failure([&] { first->buffer(8); }) != "no failure");
    CHECK(failure([&] { second->buffer(8); }) != "no failure");
    CHECK(host.faults().set({.device = "other", .nth = 1}) == 3);
    CHECK(failure([&] { first->buffer(8); }) == "no failure");
    CHECK(host.faults().set({.nth = 0}) == 0);
    CHECK(failure([&] { first->buffer(8); }) == "no failure");
    CHECK(host.faults().lift() == 1);
    CHECK(host.faults().lift() == 0);
  }

  TEST_CASE("device lost: the device that was hit stays lost, the other does not") {
    fake::reset();
    answers.devices.push_back(answers.devices[0]);
    Host host(only({fake::entry}));
    auto first = host.open("fake:0"), second = host.open("fake:1");
    host.faults().set({.calls = kFaultRead, .code = Code::device_lost});
    const auto buffer = first->buffer(8);
    char byte = 0;
    Code code = Code::ok;
    CHECK(failure([&] { buffer->read(0, &byte, 1); }) ==
          "plugin fake: buffer_read: fault asked for, call 1 on fake:0");
    CHECK(failure([&] { first->buffer(8); }, &code) ==
          "plugin fake: buffer_create: fault asked for, fake:0 is lost");
    CHECK(code == Code::device_lost);
    CHECK(failure([&] { second->buffer(8); }) == "no failure");
    host.faults().lift();
    CHECK(failure([&] { first->buffer(8); }) == "no failure");
  }

  TEST_CASE("threads: exactly one of eight gets the one fault") {
    fake::reset();
    Host host(only({fake::entry}));
    const auto device = host.open("fake");
    const auto stream = device->stream();
    const auto event = device->event();
    host.faults().set({.calls = kFaultStream, .nth = 1000});
    std::vector<int> failures(8);
    std::vector<std::thread> threads;
    for (int& count : failures)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          try {
            stream->record(*event);
          } catch (const DeviceError&) {
            ++count;
          }
        }
      });
    for (auto& t : threads) t.join();
    int all = 0;
    for (const int count : failures) all += count;
    CHECK(all == 1);
    CHECK(host.faults().lift() == 4000);
  }
}
