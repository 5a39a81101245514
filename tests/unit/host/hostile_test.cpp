// SPDX-License-Identifier: Apache-2.0
// Lies that need no graph: while a plugin is loaded, of its description, and of its callbacks. The
// lies of devices at work are in tests/exec/hostile_test.cpp.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/log.hpp"
#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "host/status.hpp"
#include "options.hpp"

using namespace tenon::core;
using fake::answers;

namespace {

// Why the plugin was not loaded.
std::string refusal(tenon_backend_entry_fn entry = fake::entry) {
  try {
    const Host host(only({entry}));
  } catch (const Error& e) {
    return e.what();
  }
  return "loaded";
}

}  // namespace

TEST_SUITE("host/hostile") {
  TEST_CASE("load: what throws is refused by slot, and what was created is shut down") {
    fake::reset();
    CHECK(refusal([](const tenon_host*) -> const tenon_backend* {
            throw std::runtime_error("thrown by the entry");
          }) == "cannot load static: negotiate: thrown by the entry");
    fake::table.create = [](const tenon_host*, const tenon_create_options*,
                            tenon_plugin**) -> tenon_status* { throw 1; };
    CHECK(refusal() == "cannot load static: create: plugin fake: create: threw an exception");
    CHECK(answers.shut_down == 0);
    fake::reset();
    fake::table.enumerate = [](tenon_plugin*, const tenon_device_list**) -> tenon_status* {
      throw std::runtime_error("a\033[2Jb");
    };
    CHECK(refusal() ==
          "cannot load static: enumerate: plugin fake: enumerate: threw an exception: a?[2Jb");
    CHECK(answers.shut_down == 1);
    fake::reset();
    fake::table.get_extension = [](tenon_plugin*, tenon_str) -> const void* { throw 1; };
    CHECK(refusal() ==
          "cannot load static: create: plugin fake: get_extension: threw an exception");
    CHECK(answers.created == 1);
    CHECK(answers.shut_down == 1);
  }

  TEST_CASE("shutdown: what throws there is logged") {
    fake::reset();
    fake::table.shutdown = [](tenon_plugin*) { throw std::runtime_error("not now"); };
    static std::string logged;
    logged.clear();
    set_log_sink(
        [](LogLevel level, std::string_view text, void*) {
          if (level == LogLevel::error) logged += text;
        },
        nullptr);
    CHECK(refusal() == "loaded");
    set_log_sink(nullptr, nullptr);
    CHECK(logged == "plugin fake: shutdown: threw an exception: not now");
  }

  TEST_CASE("table: sizes and texts that cannot be") {
    const auto with = [](auto change) {
      fake::reset();
      change(fake::table);
      return refusal();
    };
    // From the future: larger than what this host knows, and that is fine.
    CHECK(with([](tenon_backend& t) { t.struct_size = sizeof t + 4096; }) == "loaded");
    CHECK(with([](tenon_backend& t) { t.struct_size = 0; }).find("too small: 0 bytes") !=
          std::string::npos);
    CHECK(with([](tenon_backend& t) {
            t.name.size = ~uint64_t{0};
          }).find("the plugin's name is '(a text of 18446744073709551615 bytes)'") !=
          std::string::npos);
    CHECK(with([](tenon_backend& t) { t.name.data = nullptr; }).find("the plugin's name is '") !=
          std::string::npos);
    CHECK(with([](tenon_backend& t) { t.version = {nullptr, 5}; }) == "loaded");
    CHECK(with([](tenon_backend& t) { t.abi_minor_min = ~0u; }).find("range that is empty") !=
          std::string::npos);
    CHECK(with([](tenon_backend& t) { t.run = nullptr; }).find("required slot run is null") !=
          std::string::npos);
    CHECK(with([](tenon_backend& t) {
            t.buffer_address = nullptr;
          }).find("buffer_address is null") != std::string::npos);
  }

  TEST_CASE("description: absurd numbers of a device") {
    const auto with = [](auto change) {
      fake::reset();
      change(answers.devices[0]);
      return refusal();
    };
    CHECK(with([](tenon_device_info& i) {
            i.alignment = uint64_t{1} << 40;
          }).find("its alignment is 1099511627776") != std::string::npos);
    CHECK(with([](tenon_device_info& i) { i.alignment = ~uint64_t{0}; }).find("its alignment is") !=
          std::string::npos);
    CHECK(with([](tenon_device_info& i) { i.struct_size = ~uint64_t{0}; }) == "loaded");
    CHECK(with([](tenon_device_info& i) { i.name = {nullptr, ~uint64_t{0}}; }) == "loaded");
    fake::reset();
    answers.devices[0].max_allocation = ~uint64_t{0};
    Host host(only({fake::entry}));
    CHECK(host.devices()[0].max_allocation == std::numeric_limits<int64_t>::max());
    CHECK_THROWS_WITH_AS(host.open("fake")->buffer(uint64_t{1} << 63),
                         doctest::Contains("which allows 9223372036854775807"), Error);
  }

  TEST_CASE("description: kinds that a command line would take for something else") {
    for (const char* kind : {"auto", "--help", "-1", "0", ".", "_x"}) {
      fake::reset();
      answers.devices[0].kind = {kind, std::strlen(kind)};
      CHECK_MESSAGE(refusal().find("its kind is '" + std::string(kind) + "'") != std::string::npos,
                    refusal());
    }
    fake::reset();
    answers.devices[0].kind = {"auto-2", 6};
    CHECK(refusal() == "loaded");
  }

  TEST_CASE("events: a callback comes once, whatever the plugin does with it") {
    fake::reset();
    static void (*kept)(void*);
    static void* kept_user;
    fake::table.event_on_done = [](tenon_event*, void (*call)(void*), void* user) -> tenon_status* {
      kept = call;
      kept_user = user;
      call(user);
      call(user);
      return nullptr;
    };
    {
      Host twice(only({fake::entry}));
      const auto e = twice.open("fake")->event();
      int calls = 0;
      e->on_done([&] { ++calls; });
      CHECK(calls == 1);
    }
    kept(kept_user);  // and when all is gone
    fake::reset();
    fake::table.event_on_done = [](tenon_event*, void (*call)(void*), void* user) -> tenon_status* {
      call(user);
      return fake::failure(TENON_INTERNAL, "called, and failed");
    };
    {
      Host both(only({fake::entry}));
      const auto e = both.open("fake")->event();
      int calls = 0;
      e->on_done([&] { ++calls; });
      CHECK(calls == 1);
    }
    fake::reset();
    fake::table.event_on_done = [](tenon_event*, void (*)(void*), void*) -> tenon_status* {
      return fake::failure(TENON_INTERNAL, "failed");
    };
    Host fails(only({fake::entry}));
    const auto e = fails.open("fake")->event();
    int calls = 0;
    CHECK_THROWS_WITH_AS(e->on_done([&] { ++calls; }), "plugin fake: event_on_done: failed", Error);
    CHECK(calls == 0);
    CHECK(live_status_count() == 0);
  }
}
