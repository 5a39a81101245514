// SPDX-License-Identifier: Apache-2.0
// A node that its device refuses, between two that it takes: a run goes from device to device and
// back.
#include <bit>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using nlohmann::json;

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

}  // namespace

TEST_SUITE("exec/fallback") {
  TEST_CASE("between: regions on both sides of it are recorded, in every mode the same") {
    const Graph graph = Graph::parse(R"(graph {
      input x: f32[4,6]
      state s: f32[4,6]
      const tenth: f32[] = {0.1}
      const two: f32[] = {2}
      a = binary(x, s) {kind="add"}
      b = binary(a, tenth) {kind="mul"}
      c = unary(b) {kind="asin"}
      d = binary(c, two) {kind="mul"}
      e = binary(d, x) {kind="add"}
      output "e" = e
      update s = e
    })",
                                     "fallback inside");
    const Log log;
    std::vector<std::vector<uint32_t>> first;
    for (const uint32_t mode :
         {TENON_EXEC_DEFAULT, TENON_EXEC_GRAPH, TENON_EXEC_EAGER, TENON_EXEC_MULTI_STREAM}) {
      CAPTURE(mode);
      Store store(runtime());
      store.add_missing(graph);
      const Executable executable(
          runtime(), graph, store,
          {.device = "lanes:0",
           .exec_mode = mode,
           .lanes = mode == TENON_EXEC_MULTI_STREAM ? uint32_t{3} : uint32_t{0}});
      const json report = json::parse(executable.report());
      std::vector<std::string> devices, fallen;
      for (const json& r : report["regions"]) devices.push_back(r["device"]);
      for (const json& n : report["nodes"])
        if (n["verdict"] == "fallback") fallen.push_back(n["name"]);
      CHECK(devices == std::vector<std::string>{"lanes:0", "cpu:0", "lanes:0"});
      CHECK(fallen == std::vector<std::string>{"c"});
      Context run(executable);
      std::vector<double> s(24);
      std::vector<std::vector<uint32_t>> seen;
      for (int i = 0; i < 5; ++i) {
        CAPTURE(i);
        std::vector<float> x(s.size());
        for (size_t k = 0; k < x.size(); ++k)
          x[k] = static_cast<float>(noise(static_cast<uint64_t>(i), k));
        run.set("x", {4, 6}, x);
        run.run();
        const auto e = run.get<float>("e"), state = store.get<float>(TENON_SPACE_STATE, "s");
        bool near = true;
        for (size_t k = 0; k < s.size(); ++k) {
          s[k] = 2 * std::asin(0.1 * (x[k] + s[k])) + x[k];
          near &= std::abs(e[k] - s[k]) < 1e-6 && std::abs(state[k] - s[k]) < 1e-6;
        }
        CHECK(near);
        seen.push_back(bits_of(e));
        seen.push_back(bits_of(state));
      }
      if (first.empty()) first = seen;
      CHECK(seen == first);
    }
    CHECK(!log.says("could not be recorded"));
  }
}
