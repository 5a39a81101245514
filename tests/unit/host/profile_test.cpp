// SPDX-License-Identifier: Apache-2.0
// The profiler of a plugin: used when it is whole, believed when its times can be.
#include <doctest/doctest.h>

#include "fake_plugin.hpp"
#include "host/host.hpp"
#include "options.hpp"
#include "tenon/profiler.h"

using namespace tenon::core;

namespace {

tenon_profiler profiler;
std::vector<tenon_step_time> answer;  // what the plugin says
int measured_runs;
bool fails;

void reset() {
  fake::reset();
  profiler = {
      sizeof profiler,
      [](tenon_instance*, const tenon_run_args*) -> tenon_status* {
        ++measured_runs;
        return nullptr;
      },
      [](tenon_instance*, tenon_step_time* out, uint64_t stride, uint32_t count) -> tenon_status* {
        if (fails) return fake::failure(TENON_INTERNAL, "the clock stopped");
        REQUIRE(stride == sizeof *out);
        for (uint32_t i = 0; i < count && i < answer.size(); ++i) out[i] = answer[i];
        return nullptr;
      }};
  fake::table.get_extension = [](tenon_plugin*, tenon_str id) -> const void* {
    return std::string_view(id.data, id.size) == TENON_PROFILER_ID ? &profiler : nullptr;
  };
  answer.clear();
  measured_runs = 0;
  fails = false;
}

std::shared_ptr<Instance> instance() {
  const auto device = Host(only({fake::entry})).open("fake");
  const std::vector<uint64_t> graph = fake::graph();
  const auto program = device->compile(graph.data(), graph.size() * 8);
  Binding binding;
  const auto buffer = device->buffer(256);
  for (int i = 0; i < 6; ++i) binding.values.push_back({buffer, i * 16u});
  for (int i = 0; i < 3; ++i) binding.scratch.push_back({buffer, 128});
  return device->instantiate(program, binding);
}

}  // namespace

TEST_SUITE("host/profile") {
  TEST_CASE("times: copied per step when they lie within the run, unknown ones stay unknown") {
    reset();
    const auto i = instance();
    REQUIRE(i->can_measure());
    i->run_measured(7);
    CHECK(measured_runs == 1);
    answer = {{100, 120, 0, 0}, {0, 0, 0, 0}, {110, 200, 1, 0}};
    const auto times = i->step_times(100, 200);
    REQUIRE(times.size() == 3);
    CHECK(times[0].end_ns == 120);
    CHECK(times[1].begin_ns == 0);
    CHECK(times[2].lane == 1);
    CHECK(times[2].begin_ns == 110);
  }

  TEST_CASE("times that cannot be: none are believed") {
    reset();
    const auto i = instance();
    for (const tenon_step_time wrong :
         {tenon_step_time{99, 120, 0, 0}, tenon_step_time{150, 201, 0, 0},
          tenon_step_time{150, 140, 0, 0}, tenon_step_time{INT64_MIN, INT64_MAX, 0, 0}}) {
      answer = {{100, 120, 0, 0}, wrong, {110, 200, 1, 0}};
      CHECK(i->step_times(100, 200).empty());
    }
    fails = true;
    CHECK_THROWS_WITH_AS(i->step_times(100, 200), doctest::Contains("the clock stopped"), Error);
  }

  TEST_CASE("a profiler that is not whole is none") {
    for (const int part : {0, 1, 2}) {
      reset();
      if (part == 0) profiler.struct_size = 16;
      if (part == 1) profiler.run = nullptr;
      if (part == 2) profiler.times = nullptr;
      CHECK(!instance()->can_measure());
    }
    reset();
    fake::table.get_extension = nullptr;
    CHECK(!instance()->can_measure());
  }
}
