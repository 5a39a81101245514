// SPDX-License-Identifier: Apache-2.0
// The choices of a plugin's devices: told while a device is open, given when one opens.
#include "host/choices.hpp"

#include <doctest/doctest.h>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "options.hpp"
#include "tenon/choices.h"

using namespace tenon::core;

namespace {

tenon_choices choices;
std::vector<std::string> told, taken;
bool fails;

void reset() {
  fake::reset();
  choices = {
      sizeof choices,
      [](tenon_device*, void (*put)(void* user, tenon_str choice), void* user) -> tenon_status* {
        for (const std::string& t : told) put(user, {t.data(), t.size()});
        if (fails) return fake::failure(TENON_INTERNAL, "forgotten");
        return nullptr;
      },
      [](tenon_device*, tenon_str choice) -> tenon_status* {
        taken.emplace_back(choice.data, choice.size);
        if (fails) return fake::failure(TENON_INTERNAL, "not this one");
        return nullptr;
      }};
  fake::table.get_extension = [](tenon_plugin*, tenon_str id) -> const void* {
    return std::string_view(id.data, id.size) == TENON_CHOICES_ID ? &choices : nullptr;
  };
  told.clear(), taken.clear();
  fails = false;
}

}  // namespace

TEST_SUITE("host/choices") {
  TEST_CASE("told of open devices alone, sorted, each once") {
    reset();
    told = {"b", "a", "b"};
    Host host(only({fake::entry}));
    CHECK(host.choices().empty());
    {
      const auto device = host.open("fake");
      CHECK(host.choices() == Host::Choices{{"fake", {"a", "b"}}});
    }
    CHECK(host.choices().empty());
  }

  TEST_CASE("given to devices that are open and to those that open later, of that plugin") {
    reset();
    Host host(only({fake::entry}));
    {
      const auto device = host.open("fake");
      host.take_choices({{"fake", {"a", "b"}}, {"other", {"c"}}});
      CHECK(taken == std::vector<std::string>{"a", "b"});
    }
    taken.clear();
    const auto again = host.open("fake");
    CHECK(taken == std::vector<std::string>{"a", "b"});
  }

  TEST_CASE("a plugin that fails is named; one that is not whole is not asked") {
    reset();
    told = {"a"};
    fails = true;
    Host host(only({fake::entry}));
    const auto device = host.open("fake");
    CHECK_THROWS_WITH_AS(host.choices(), doctest::Contains("fake: choices.list: forgotten"), Error);
    CHECK_THROWS_WITH_AS(take_choice(*device, "a"), doctest::Contains("choices.take: not this one"),
                         Error);
    CHECK_NOTHROW(host.take_choices({{"fake", {"a"}}}));  // logged; the device stays usable
    for (const int part : {0, 1, 2, 3}) {
      reset();
      told = {"a"};
      if (part == 0) choices.struct_size = 16;
      if (part == 1) choices.list = nullptr;
      if (part == 2) choices.take = nullptr;
      if (part == 3) fake::table.get_extension = nullptr;
      Host other(only({fake::entry}));
      const auto opened = other.open("fake");
      CHECK(other.choices().empty());
      take_choice(*opened, "a");
      CHECK(taken.empty());
    }
  }
}
