// SPDX-License-Identifier: Apache-2.0
// What a plugin is told of exec and compile modes: the mode, lanes and waits of a binding, and the
// parts that are prepared ahead.
#include <doctest/doctest.h>

#include <thread>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "options.hpp"
#include "tenon/prepare.h"

using namespace tenon::core;

namespace {

tenon_prepare preparing;
uint32_t parts;
std::vector<uint32_t> prepared;
bool fails;

void reset(bool with_prepare) {
  fake::reset();
  preparing = {sizeof preparing, [](tenon_program*) { return parts; },
               [](tenon_program*, uint32_t index) -> tenon_status* {
                 if (fails) return fake::failure(TENON_OUT_OF_MEMORY, "no room for code");
                 prepared.push_back(index);
                 return nullptr;
               }};
  fake::table.get_extension = [](tenon_plugin*, tenon_str id) -> const void* {
    return std::string_view(id.data, id.size) == TENON_PREPARE_ID ? &preparing : nullptr;
  };
  if (!with_prepare) fake::table.get_extension = nullptr;
  parts = 3;
  prepared.clear();
  fails = false;
}

std::shared_ptr<Device> device() { return Host(only({fake::entry})).open("fake"); }

std::shared_ptr<Program> compile(const std::shared_ptr<Device>& on, const CompileOptions& options) {
  const std::vector<uint64_t> graph = fake::graph();
  return on->compile(graph.data(), graph.size() * 8, options);
}

Binding binding_on(const std::shared_ptr<Device>& on) {
  Binding binding;
  const auto buffer = on->buffer(256);
  for (int i = 0; i < 6; ++i) binding.values.push_back({buffer, i * 16u});
  for (int i = 0; i < 3; ++i) binding.scratch.push_back({buffer, 128});
  return binding;
}

}  // namespace

TEST_SUITE("host/modes") {
  TEST_CASE("lanes: a device that takes them gets each step's and the waits; rebound, none") {
    reset(false);
    fake::answers.devices[0].flags |= TENON_DEVICE_LANES;
    const auto on = device();
    REQUIRE(on->info().lanes);
    const auto program = compile(on, {.exec_mode = TENON_EXEC_MULTI_STREAM});
    CHECK(fake::answers.compiled.exec_mode == TENON_EXEC_MULTI_STREAM);
    Binding binding = binding_on(on);
    const Lanes lanes{.count = 2, .lane = {0, 1, 0}, .waits = {{2, 1}}};
    binding.lanes = &lanes;
    const auto instance = on->instantiate(program, binding);
    CHECK(fake::answers.lanes == std::vector<uint32_t>{0, 1, 0});
    REQUIRE(fake::answers.waits.size() == 1);
    CHECK(fake::answers.waits[0].step == 2);
    CHECK(fake::answers.waits[0].after == 1);
    binding.lanes = nullptr;
    instance->rebind(binding);
    CHECK(fake::answers.lanes.empty());
    CHECK(fake::answers.waits.empty());
  }

  TEST_CASE("lanes: never for a device that takes none") {
    reset(false);
    const auto on = device();
    REQUIRE_FALSE(on->info().lanes);
    const auto program = compile(on, {});
    Binding binding = binding_on(on);
    const Lanes lanes{.count = 2, .lane = {0, 1, 0}};
    binding.lanes = &lanes;
    CHECK_THROWS_WITH_AS(on->instantiate(program, binding), doctest::Contains("2 lanes"), Error);
    const Lanes one;
    binding.lanes = &one;
    on->instantiate(program, binding);
    CHECK(fake::answers.lanes.empty());
  }

  TEST_CASE("aot: a plugin with parts is asked for them, one without compiles all at once") {
    reset(true);
    const auto program = compile(device(), {.aot = true});
    CHECK((fake::answers.compiled.flags & TENON_COMPILE_AOT) == 0);
    REQUIRE(program->part_count() == 3);
    program->prepare(2);
    CHECK(prepared == std::vector<uint32_t>{2});
    fails = true;
    CHECK_THROWS_WITH_AS(program->prepare(0), doctest::Contains("no room for code"), Error);
    parts = UINT32_MAX;
    CHECK_THROWS_WITH_AS(program->part_count(), doctest::Contains("prepare.count"), Error);

    reset(false);
    const auto whole = compile(device(), {.aot = true});
    CHECK((fake::answers.compiled.flags & TENON_COMPILE_AOT) != 0);
    CHECK(whole->part_count() == 0);
  }

  TEST_CASE("aot: a prepare extension that is not whole is none") {
    for (const int hole : {0, 1, 2}) {
      reset(true);
      if (hole == 0) preparing.struct_size = 16;
      if (hole == 1) preparing.count = nullptr;
      if (hole == 2) preparing.part = nullptr;
      CHECK(compile(device(), {})->part_count() == 0);
    }
  }
}
