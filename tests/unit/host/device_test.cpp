// SPDX-License-Identifier: Apache-2.0
// Devices and what lives on them, over a plugin that lies where the test wants it to.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "host/status.hpp"
#include "host/threads.hpp"
#include "options.hpp"

using namespace tenon::core;
using fake::answers;

namespace {

std::shared_ptr<Device> open(std::vector<tenon_backend_entry_fn> entries = {fake::entry},
                             const char* id = "fake", uint32_t threads = 0) {
  HostOptions o = only(std::move(entries));
  o.threads = threads;
  return Host(o).open(id);
}

}  // namespace

#define CHECK_FAILS(expression, words) \
  CHECK_THROWS_WITH_AS(expression, doctest::Contains(words), Error)

TEST_SUITE("host/device") {
  TEST_CASE("lifetime: objects keep their owners, the last one shuts the plugin down") {
    fake::reset();
    std::shared_ptr<Instance> instance;
    {
      const auto device = open();
      const std::vector<uint64_t> graph = fake::graph();
      const auto program = device->compile(graph.data(), graph.size() * 8);
      Binding binding;
      const auto buffer = device->buffer(256);
      for (int i = 0; i < 6; ++i) binding.values.push_back({buffer, i * 16u});
      for (int i = 0; i < 3; ++i) binding.scratch.push_back({buffer, 128});
      instance = device->instantiate(program, binding);
    }
    CHECK(answers.instances == 1);
    CHECK(answers.programs == 1);
    CHECK(answers.buffers == 1);
    CHECK(answers.opened == 1);
    CHECK(answers.shut_down == 0);
    CHECK(answers.bound[4].offset == 64);
    instance.reset();
    CHECK(answers.instances == 0);
    CHECK(answers.programs == 0);
    CHECK(answers.buffers == 0);
    CHECK(answers.opened == 0);
    CHECK(answers.shut_down == 1);
  }

  TEST_CASE("open: failures name plugin and slot; a given width reaches the plugin") {
    fake::reset();
    answers.open_fails = true;
    CHECK_FAILS(open(), "plugin fake: device_open: the card fell out");
    CHECK(answers.shut_down == 1);
    answers.open_fails = false;
    answers.opens_nothing = true;
    CHECK_FAILS(open(), "plugin fake: device_open: succeeded without a result");
    answers.opens_nothing = false;
    static const char reason[] = "it is in use";
    answers.devices[0].reason = {reason, sizeof reason - 1};
    CHECK_FAILS(open(), "device fake:0 (a fake device) cannot be opened: it is in use");
    answers.devices[0].reason = {};
    open({fake::entry}, "fake", 5);
    CHECK(answers.threads == 5);
  }

  TEST_CASE("create: each runtime tells the plugin its threads and the agreed version") {
    fake::reset();
    fake::table.abi_minor_max = TENON_ABI_MINOR + 7;  // a plugin of the future
    open({fake::entry}, "fake", 3);
    CHECK(answers.create.struct_size == sizeof answers.create);
    CHECK(answers.create.abi_minor == TENON_ABI_MINOR);
    CHECK(answers.create.threads == 3);
    open({fake::entry}, "fake", 5);
    CHECK(answers.create.threads == 5);
    open({fake::entry}, "fake");
    CHECK(answers.create.threads == available_threads());
    CHECK(answers.created == 3);
    CHECK(answers.shut_down == 3);
  }

  TEST_CASE("buffer: kind and name reach the plugin; a kind that the host sees has an address") {
    fake::reset();
    const auto device = open();
    device->buffer(8);
    CHECK(answers.buffer_kind == TENON_MEMORY_DEVICE);
    CHECK(answers.buffer_name.empty());
    const auto pinned = device->buffer(8, "staging", TENON_MEMORY_HOST_VISIBLE);
    CHECK(answers.buffer_kind == TENON_MEMORY_HOST_VISIBLE);
    CHECK(answers.buffer_name == "staging");
    CHECK(pinned->address() != nullptr);
    answers.no_address = true;
    CHECK_FAILS(device->buffer(8, "staging", TENON_MEMORY_UNIFIED), "gave no host address");
  }

  TEST_CASE("buffer: bounds, limits and addresses") {
    fake::reset();
    {
      const auto device = open();
      const auto buffer = device->buffer(100);
      const std::string text = "tensor", longer(101, 'x');
      buffer->write(94, text.data(), 6);
      CHECK(std::memcmp(static_cast<char*>(buffer->address()) + 94, "tensor", 6) == 0);
      char back[6];
      buffer->read(94, back, 6);
      CHECK(std::string(back, 6) == text);
      CHECK_FAILS(buffer->write(95, text.data(), 6), "6 bytes at 95 in a buffer of 100 on fake:0");
      CHECK_FAILS(buffer->write(~0ull, text.data(), 6), "a write");
      CHECK_FAILS(buffer->read(1, back, ~0ull), "a read");
      CHECK_NOTHROW(buffer->read(100, nullptr, 0));
      CHECK_FAILS(device->buffer(0), "size 0");
      CHECK_FAILS(device->buffer((1 << 20) + 1), "which allows 1048576");
      answers.no_address = true;
      CHECK_FAILS(device->buffer(8), "gave no host address");
      answers.no_address = false;
      answers.crooked_address = true;
      CHECK_FAILS(device->buffer(8), "is not aligned to 64");
    }
    CHECK(answers.buffers == 0);
  }

  TEST_CASE("copy: by the plugin within it, else through the host") {
    fake::reset();
    const auto copies = [](Device& to_device, Device& from_device) {
      constexpr uint64_t kSize = 64 * 1024;
      const auto to = to_device.buffer(kSize), from = from_device.buffer(kSize);
      std::string content(kSize, '?'), back(kSize, '!');
      for (uint64_t i = 0; i < kSize; ++i) content[i] = static_cast<char>(i * 7 % 251);
      from->write(0, content.data(), kSize);
      to->write(0, back.data(), kSize);
      copy(*to, 10, *from, 3, kSize - 20);
      to->read(0, back.data(), kSize);
      CHECK(back.substr(10, kSize - 20) == content.substr(3, kSize - 20));
      CHECK(back.substr(0, 10) == "!!!!!!!!!!");
      CHECK_FAILS(copy(*to, 20, *from, 0, kSize - 19), "a copy's target");
      CHECK_FAILS(copy(*to, 0, *from, 20, kSize - 19), "a copy's source");
      CHECK_FAILS(copy(*to, 0, *to, 8, 16), "overlaps itself");
    };
    const HostOptions o = only({fake::entry, fake::other_entry});
    for (const bool addressable : {true, false}) {
      answers.devices[0].flags = addressable ? TENON_DEVICE_HOST_ADDRESSABLE : 0;
      Host host(o);
      const auto a = host.open("fake:0"), b = host.open("fake:1");
      CHECK(&a->plugin() != &b->plugin());
      answers.native_copies = 0;
      copies(*a, *a);
      CHECK(answers.native_copies == 1);
      copies(*b, *a);
      CHECK(answers.native_copies == 1);
    }
    fake::table.buffer_copy = nullptr;
    Host host(o);
    const auto a = host.open("fake:0");
    answers.native_copies = 0;
    copies(*a, *a);
    CHECK(answers.native_copies == 0);
  }

  TEST_CASE("auto: the class of a device says which one comes first") {
    fake::reset();
    constexpr uint32_t kThreads = TENON_DEVICE_HOST_ADDRESSABLE | TENON_DEVICE_HOST_THREADS;
    struct Kind {
      const char* name;
      uint32_t device_class, flags;
    };
    // In the order in which they are taken.
    const Kind order[] = {{"discrete", TENON_DEVICE_CLASS_DISCRETE, 0},
                          {"accelerator", TENON_DEVICE_CLASS_ACCELERATOR, 0},
                          {"integrated", TENON_DEVICE_CLASS_INTEGRATED, 0},
                          {"unknown", TENON_DEVICE_CLASS_UNKNOWN, 0},
                          {"newer", 77, 0},  // of a later version: unknown here
                          {"threads", TENON_DEVICE_CLASS_CPU, kThreads},
                          {"other-cpu", TENON_DEVICE_CLASS_CPU, 0}};
    const tenon_device_info usual = answers.devices[0];
    // Each alone with those behind it, listed the other way round.
    for (size_t first = 0; first < std::size(order); ++first) {
      answers.devices.clear();
      for (size_t k = std::size(order); k-- > first;) {
        tenon_device_info info = usual;
        info.kind = {order[k].name, std::strlen(order[k].name)};
        info.device_class = order[k].device_class;
        info.flags = order[k].flags;
        // Of two unknown ones the first in the list is taken.
        if (std::string(order[k].name) == "newer" && first == 3) continue;
        answers.devices.push_back(info);
      }
      Host host(only({fake::entry}));
      CHECK(host.open("auto")->info().kind == order[first].name);
      for (const DeviceInfo& d : host.devices())
        if (d.kind == "newer") CHECK(d.device_class == TENON_DEVICE_CLASS_UNKNOWN);
    }
    // A plugin of an earlier version says nothing.
    fake::reset();
    answers.devices[0].device_class = TENON_DEVICE_CLASS_DISCRETE;
    answers.devices[0].struct_size = TENON_DEVICE_INFO_SIZE_V1;
    CHECK(Host(only({fake::entry})).devices()[0].device_class == TENON_DEVICE_CLASS_UNKNOWN);
    fake::reset();
  }

  TEST_CASE("query: verdicts are copied, lies are refused") {
    fake::reset();
    const auto device = open();
    const std::vector<uint64_t> graph = fake::graph();
    const auto query = [&] { return device->query(graph.data(), graph.size() * 8); };
    const std::vector<Verdict> verdicts = query();
    REQUIRE(verdicts.size() == 2);
    CHECK(verdicts[0].native);
    CHECK(verdicts[0].cost == 1e-6);
    CHECK_FALSE(verdicts[1].native);
    CHECK(verdicts[1].reason == TENON_REASON_DTYPE);
    CHECK(verdicts[1].text == "not f32");

    answers.verdicts[0].verdict = 9;  // from the future: not claimed
    CHECK_FALSE(query()[0].native);
    answers.verdicts[0].cost = std::numeric_limits<double>::quiet_NaN();
    CHECK_FAILS(query(), "the cost of node 0 is nan");
    answers.verdicts[0].cost = -1;
    CHECK_FAILS(query(), "the cost of node 0 is -1");
    answers.query.verdict_stride = 8;
    CHECK_FAILS(query(), "verdicts are 8 bytes apart");
    answers.query.verdicts = nullptr;
    CHECK_FAILS(query(), "says 2 verdicts, but gives none");
    answers.query.count = 3;
    CHECK_FAILS(query(), "gave 3 verdicts for a graph of 2 nodes");
    answers.query.struct_size = 8;
    CHECK_FAILS(query(), "the result is too small: 8 bytes");
    answers.query.struct_size = 0;
    CHECK_FAILS(query(), "plugin fake: query: succeeded without a result");
    CHECK_FAILS(device->query(graph.data(), 8), "query: the blob is shorter than its header");
  }

  TEST_CASE("compile: a failure keeps its code") {
    fake::reset();
    const auto device = open();
    const std::vector<uint64_t> graph = fake::graph();
    answers.compile_fails = true;
    try {
      device->compile(graph.data(), graph.size() * 8);
      FAIL("nothing was thrown");
    } catch (const DeviceError& e) {
      CHECK(e.code() == Code::out_of_memory);
      CHECK(std::string(e.what()) == "plugin fake: compile: no memory for code");
    }
  }

  TEST_CASE("instance: a run's failure carries run and step; rebinding with and without the slot") {
    fake::reset();
    for (const bool can_rebind : {true, false}) {
      if (!can_rebind) fake::table.rebind = nullptr;
      const auto device = open();
      const std::vector<uint64_t> graph = fake::graph();
      const auto program = device->compile(graph.data(), graph.size() * 8);
      Binding binding;
      const auto small = device->buffer(64), large = device->buffer(256);
      binding.values.assign(6, {small, 0});
      binding.scratch.assign(3, {small, 0});
      const auto instance = device->instantiate(program, binding);
      uint64_t seen = 0;
      answers.run = [&](const tenon_run_args& args) -> tenon_status* {
        seen = args.run_id;
        tenon_status_desc d{};
        d.struct_size = sizeof d;
        d.code = TENON_INDEX_OUT_OF_RANGE;
        d.run_id = args.run_id;
        d.step = 1;
        d.index = 5;
        return args.run_id == 41 ? fake::host->make_status(&d) : nullptr;
      };
      instance->run(40);
      CHECK(seen == 40);
      try {
        instance->run(41);
        FAIL("nothing was thrown");
      } catch (const DeviceError& e) {
        CHECK(e.run_id() == 41);
        CHECK(e.step() == 1);
        CHECK(e.index() == 5);
        CHECK(std::string(e.what()) == "plugin fake: run: failed without a reason");
      }
      binding.values.assign(6, {large, 128});
      instance->rebind(binding);
      CHECK(answers.rebinds == 1);  // the second round makes a new instance
      CHECK(answers.instances == 1);
      CHECK(answers.bound[0].offset == 128);
      binding.values[0].offset = 250;
      CHECK_FAILS(instance->rebind(binding), "value 0: 16 bytes at 250 in a buffer of 256");
      binding.values.pop_back();
      CHECK_FAILS(instance->rebind(binding), "a binding of 5 values");
    }
    CHECK(answers.instances == 0);
  }

  TEST_CASE("streams and events: failures of the work are thrown where it is waited for") {
    fake::reset();
    const auto device = open();
    REQUIRE(device->has_streams());
    const auto stream = device->stream();
    const auto event = device->event();
    stream->record(*event);
    stream->wait(*event);
    CHECK(event->done());
    int signals = 0;
    event->on_done([&] { ++signals; });
    CHECK(signals == 1);
    CHECK_NOTHROW(stream->synchronize());
    answers.pending = fake::failure(TENON_NUMERIC_ERROR, "sample: a logit is NaN");
    CHECK_FAILS(stream->synchronize(), "plugin fake: stream_synchronize: sample: a logit is NaN");
    answers.pending = fake::failure(TENON_DEVICE_LOST, "gone");
    CHECK_FAILS(event->wait(), "plugin fake: event_wait: gone");
    answers.pending =
        fake::failure(TENON_DEVICE_LOST, "gone", fake::failure(TENON_INTERNAL, "why"));
    CHECK_FAILS(event->done(), "event_query: gone: caused by fake: test: why");
    CHECK(live_status_count() == 0);
  }

  TEST_CASE("streams: absent as a whole, core does not ask for them") {
    fake::reset();
    tenon_backend& t = fake::table;
    t.stream_create = nullptr;
    t.stream_destroy = nullptr;
    t.stream_synchronize = nullptr;
    t.stream_wait_event = nullptr;
    t.event_create = nullptr;
    t.event_destroy = nullptr;
    t.event_record = nullptr;
    t.event_query = nullptr;
    t.event_wait = nullptr;
    t.event_on_done = nullptr;
    const auto device = open();
    CHECK_FALSE(device->has_streams());
    CHECK_FAILS(device->stream(), "plugin fake has no streams");
    CHECK_FAILS(device->event(), "plugin fake has no events");
  }
}
