// SPDX-License-Identifier: Apache-2.0
// Programs: an honest declaration is copied, each kind of lie is refused by what it said.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "options.hpp"
#include "tenon/derived_weights.h"

using namespace tenon::core;
using fake::answers;

namespace {

std::shared_ptr<Program> compile() {
  Host host(only({fake::entry}));
  const std::vector<uint64_t> graph = fake::graph();
  return host.open("fake")->compile(graph.data(), graph.size() * 8);
}

// The text of the refusal, after a change of the honest program.
std::string refusal(const std::function<void()>& change) {
  fake::reset();
  change();
  answers.publish();
  try {
    compile();
  } catch (const Error& e) {
    CHECK(e.code() == Code::internal);
    CHECK(answers.programs == 0);  // released
    CHECK(answers.shut_down == 1);
    return e.what();
  }
  return "accepted";
}
// The same after a change of the raw description.
std::string raw_refusal(const std::function<void(tenon_program_info&)>& change) {
  fake::reset();
  change(answers.info);
  try {
    compile();
  } catch (const Error& e) {
    CHECK(answers.programs == 0);
    return e.what();
  }
  return "accepted";
}

}  // namespace

#define CHECK_SAYS(text, words) CHECK_MESSAGE((text).find(words) != std::string::npos, (text))

TEST_SUITE("host/program") {
  TEST_CASE("declaration: values, steps and aliases are copied") {
    fake::reset();
    const auto program = compile();
    answers.values.assign(6, {});  // nothing is looked at later
    REQUIRE(program->values().size() == 6);
    CHECK(program->values()[3].source == 3);
    CHECK(program->values()[3].size == 16);
    CHECK(program->values()[3].alignment == 64);
    CHECK(program->values()[4].source == TENON_NONE);
    REQUIRE(program->steps().size() == 3);
    CHECK(program->steps()[0].label == "add");
    CHECK(program->steps()[0].scratch == 32);
    CHECK(program->steps()[0].reads == std::vector<uint32_t>{0, 1});
    CHECK(program->steps()[1].node == 1);
    CHECK(program->steps()[1].writes == std::vector<uint32_t>{3});  // the view is not written
    REQUIRE(program->steps()[1].aliases.size() == 2);
    CHECK_FALSE(program->steps()[1].aliases[0].view);
    CHECK(program->steps()[1].aliases[1].view);
    CHECK(program->steps()[1].aliases[1].offset == 8);
  }

  TEST_CASE("declaration: an output that is an input needs no copy of its own") {
    CHECK(refusal([] {
            answers.values.pop_back();
            answers.steps.pop_back();
          }) == "accepted");
  }

  TEST_CASE("declaration: a view of the graph may have any size inside its base") {
    CHECK(refusal([] {
            answers.values.push_back({2, 0, 4, 0, {}});
            answers.values[2].source = TENON_NONE;
            answers.steps[1].reads = {2};
            answers.steps[1].aliases.push_back({TENON_ALIAS_VIEW, 2, 6, 0, 12});
          }) == "accepted");
  }

  TEST_CASE("description: sizes, strides and arrays") {
    CHECK_SAYS(refusal([] { answers.no_info = true; }), "plugin fake: program_info: gave nothing");
    CHECK_SAYS(raw_refusal([](auto& i) { i.struct_size = 40; }), "too small: 40 bytes");
    CHECK_SAYS(raw_refusal([](auto& i) { i.value_stride = 16; }), "values are 16 bytes apart");
    CHECK_SAYS(raw_refusal([](auto& i) { i.step_stride = 68; }), "steps are 68 bytes apart");
    CHECK_SAYS(raw_refusal([](auto& i) { i.alias_stride = 16; }), "aliases are 16 bytes apart");
    CHECK_SAYS(raw_refusal([](auto& i) { i.values = nullptr; }), "says 6 values, but gives none");
    CHECK_SAYS(raw_refusal([](auto& i) { i.steps = nullptr; }), "says 3 steps, but gives none");
    CHECK_SAYS(raw_refusal([](auto& i) { i.step_count = TENON_NONE; }), "says 4294967295 steps");
    CHECK_SAYS(raw_refusal([](auto&) { answers.raw_steps[0].reads = nullptr; }),
               "step 0 add reads 2 values, but names none");
    CHECK_SAYS(raw_refusal([](auto&) { answers.raw_steps[1].aliases = nullptr; }),
               "step 1 relu says 2 aliases, but gives none");
  }

  TEST_CASE("values: source, size and alignment") {
    CHECK_SAYS(refusal([] { answers.values[4].source = 9; }),
               "value 4 stands for value 9 of a graph of 4");
    CHECK_SAYS(refusal([] { answers.values[2].size = 24; }),
               "value 2 (of the graph: 2 c) has 24 bytes, its type has 16");
    CHECK_SAYS(refusal([] { answers.values[4].size = ~0ull; }), "value 4 has 18446744073709551615");
    CHECK_SAYS(refusal([] { answers.values[0].alignment = 24; }), "value 0 has alignment 24");
    CHECK_SAYS(refusal([] { answers.values[4].source = 2; }), "is listed twice");
    CHECK_SAYS(refusal([] {
                 answers.values.push_back({0, 0, 16, 0, {}});
                 answers.steps[2].writes.push_back(6);
               }),
               "is listed twice");
  }

  TEST_CASE("values: derived weights") {
    const auto add = [](uint32_t source, uint64_t size) {
      answers.values.push_back({source, 0, size, 0, {"packed", 6}});
      answers.steps[0].reads.push_back(6);
    };
    CHECK_SAYS(refusal([&] { add(1, 40); }),
               "value 6 is a derived weight, but the plugin has no tenon.derived_weights/1");
    static tenon_derived_weights derived{
        sizeof derived,
        [](tenon_program*, const tenon_derive_args*) -> tenon_status* { return nullptr; }};
    const auto offered = [&](const std::function<void()>& change) {
      const std::string text = refusal([&] {
        fake::table.get_extension = [](tenon_plugin*, tenon_str id) -> const void* {
          return std::string_view(id.data, id.size) == TENON_DERIVED_WEIGHTS_ID ? &derived
                                                                                : nullptr;
        };
        change();
      });
      return text;
    };
    CHECK_SAYS(offered([&] { add(1, 40); }), "accepted");
    CHECK_SAYS(offered([&] { add(0, 40); }), "is a derived weight, but its source is not a weight");
    CHECK_SAYS(offered([&] { add(TENON_NONE, 40); }),
               "is a derived weight, but its source is not a weight");
    CHECK_SAYS(offered([&] { add(1, 0); }), "derived weight without bytes");
    CHECK_SAYS(offered([&] {
                 add(1, 40);
                 answers.steps[0].writes.push_back(6);
               }),
               "is a derived weight, and written");
  }

  TEST_CASE("values: what enters and leaves is listed") {
    CHECK_SAYS(refusal([] {
                 answers.values[1].source = TENON_NONE;
                 answers.steps[0].reads = {0};
               }),
               "input 1 b of the graph is not listed");
    CHECK_SAYS(refusal([] { answers.values[3].source = TENON_NONE; }),
               "output 3 of the graph is not listed");
    CHECK_SAYS(refusal([] { answers.steps.erase(answers.steps.begin() + 1); }),
               "output 3 of the graph is not listed, or no step makes it");
  }

  TEST_CASE("steps: indices") {
    CHECK_SAYS(refusal([] { answers.steps[0].node = 2; }),
               "step 0 add stands for node 2 of a graph of 2");
    CHECK_SAYS(refusal([] { answers.steps[0].reads = {6}; }), "step 0 add reads value 6 of 6");
    CHECK_SAYS(refusal([] { answers.steps[0].writes = {60}; }), "step 0 add writes value 60 of 6");
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[0].from = 7; }), "aliases value 7 of 6");
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[0].kind = 3; }), "alias kind 3 is not known");
  }

  TEST_CASE("steps: every value is made once, before it is read") {
    CHECK_SAYS(refusal([] {
                 answers.steps[0].reads = {0, 1, 3};
               }),
               "step 0 add reads value 3 (of the graph: 3 d) before a step makes it");
    CHECK_SAYS(refusal([] {
                 answers.steps[1].writes = {2, 3};
               }),
               "step 1 relu makes value 2 (of the graph: 2 c), which is made already");
    CHECK_SAYS(refusal([] { answers.steps[0].writes = {1, 2}; }), "input 1 b of the graph");
    CHECK_SAYS(refusal([] { answers.steps[2].reads = {5}; }), "before a step makes it");
  }

  TEST_CASE("steps: scratch has a size that an address can have") {
    CHECK_SAYS(refusal([] { answers.steps[0].scratch = ~0ull; }), "bytes of scratch");
  }

  TEST_CASE("aliases: views lie inside what is made, and do not leave") {
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[1].offset = 9; }),
               "value 4 is a view of 8 bytes at 9 of value 2 (of the graph: 2 c), which has 16");
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[1].offset = ~0ull; }), "is a view of 8 bytes");
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[1].to = 2; }), "is an alias of itself");
    CHECK_SAYS(refusal([] {
                 answers.steps[1].aliases[1] = {TENON_ALIAS_VIEW, 2, 3, 0, 0};
               }),
               "is in place, but the step does not write it");
    CHECK_SAYS(refusal([] {
                 answers.steps[1].aliases = {{TENON_ALIAS_VIEW, 2, 3, 0, 0}};
               }),
               "output value 3 (of the graph: 3 d) is a view");
    CHECK_SAYS(refusal([] {
                 answers.steps[0].aliases = {{TENON_ALIAS_VIEW, 3, 4, 0, 0}};
                 answers.steps[1].aliases = {};
                 answers.steps[1].writes = {3};
               }),
               "step 0 add views value 3 (of the graph: 3 d) before a step makes it");
    CHECK_SAYS(refusal([] {
                 answers.steps[0].aliases = {{TENON_ALIAS_VIEW, 0, 4, 0, 0}};
               }),
               "makes value 4, which is made already");
  }

  TEST_CASE("aliases: in place of what the step reads, and not larger") {
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[0].from = 0; }),
               "value 0 (of the graph: 0 a) is in place, but the step does not read it");
    CHECK_SAYS(refusal([] { answers.steps[1].aliases[0].to = 5; }),
               "value 5 (of the graph: 0 a) is in place, but the step does not write it");
    CHECK_SAYS(refusal([] {
                 answers.values[4].size = 4;
                 answers.steps[1].aliases = {{TENON_ALIAS_VIEW, 2, 4, 0, 0}};
                 answers.steps[1].reads = {2};
                 answers.steps[1].writes = {3};
                 answers.steps[2].reads = {0, 4};
                 answers.steps[2].aliases = {{TENON_ALIAS_IN_PLACE, 4, 5, 0, 0}};
               }),
               "of 16 bytes cannot be in place of value 4 of 4");
  }
}
