// SPDX-License-Identifier: Apache-2.0
// What one runtime chose by timing another takes: an algorithm of cuBLASLt, where it is offered.
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// What a runtime of its own chose for the graph, given another's choices.
std::string chosen(const std::string& given) {
  const Runtime runtime(runtime_options());
  CHECK(runtime.choices() == "{}");
  runtime.take_choices(given);
  Expected expected;
  Machine machine({.device = "cuda:0"}, runtime);
  machine.fill();
  machine.compile();
  CHECK(machine.step(0) == expected.step(0));
  return runtime.choices();
}

// The same choices with another number for the algorithm.
std::string with_algorithm(std::string choices, char number) {
  const size_t at = choices.rfind("\\n0 1 0");
  REQUIRE(at != choices.npos);
  choices[at + 4] = number;
  return choices;
}

}  // namespace

TEST_SUITE("stub/choices") {
  TEST_CASE("taken where it is offered, and told again; else the runtime chooses itself") {
    stub_set("algorithms", 3);
    const std::string own = chosen("{}");
    CHECK(has(own, "{\"cuda\":[\"cuBLASLt "));
    CHECK(chosen(own) == own);
    const std::string second = with_algorithm(own, '2'), none = with_algorithm(own, '7');
    CHECK(chosen(second) == second);
    CHECK(chosen(none) == own);
    stub_set("algorithms", 1);  // a library that no longer has it
    CHECK(chosen(second) == own);
    stub_set("algorithms", 3);
    check_clean();
  }

  TEST_CASE("given to a device that is open: for what it compiles from then on") {
    stub_set("algorithms", 3);
    {
      const Runtime runtime(runtime_options());
      Machine machine({.device = "cuda:0"}, runtime);
      machine.fill();
      const Executable opens(runtime, Graph::parse("graph { }", "opens"), machine.store(),
                             {.device = "cuda:0"});
      const std::string second = with_algorithm(chosen("{}"), '2');
      runtime.take_choices(second);
      machine.compile();
      CHECK(runtime.choices() == second);
    }
    check_clean();
  }

  TEST_CASE("what is no list of choices is refused, what is no choice is ignored") {
    const std::string own = chosen("{}");
    CHECK(chosen(R"({"cuda":["","a","\n","a\nb"],"other":["x\n1"]})") == own);
    const Runtime runtime(runtime_options());
    for (const char* text : {"", "[]", "{", R"({"cuda":"x"})", R"({"cuda":[1]})"}) {
      tenon_code code = TENON_OK;
      CHECK(has(error_of([&] { runtime.take_choices(text); }, &code), "a list of strings"));
      CHECK(code == TENON_INVALID_ARGUMENT);
    }
    check_clean();
  }
}
