// SPDX-License-Identifier: Apache-2.0
// What one runtime chose by timing another takes: an algorithm of cuBLASLt, where it is offered.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache.hpp"
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

  TEST_CASE("from the disk: taken where the library proposes it, else chosen anew") {
    std::string folder = (std::filesystem::temp_directory_path() / "tenon-stub-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()));
    setenv("TENON_CUDA_CACHE", folder.c_str(), 1);
    stub_set("algorithms", 3);
    const std::string own = chosen("{}");
    // The text of a choice is "workspace word word ...": another algorithm, soundly stored.
    const auto store = [&](const std::string& algorithm) {
      const std::string list = with_algorithm(own, algorithm[0]);
      const auto said = nlohmann::json::parse(list)["cuda"];
      REQUIRE(said.size() == 1);
      const auto text = said[0].get<std::string>();
      const size_t end = text.rfind('\n');
      CHECK(cuda::DiskCache(folder, cuda::kChoiceFiles)
                .keep(text.substr(0, end), text.substr(end + 1)));
    };
    store("2");
    CHECK(chosen("{}") == with_algorithm(own, '2'));
    store("7");  // of a library that was tampered with, or a file
    CHECK(chosen("{}") != with_algorithm(own, '7'));
    CHECK(chosen("{}") != with_algorithm(own, '7'));
    stub_set("algorithms", 1);
    setenv("TENON_CUDA_CACHE", "", 1);
    std::filesystem::remove_all(folder);
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
