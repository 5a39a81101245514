// SPDX-License-Identifier: Apache-2.0
// What runs take of memory: plans near their lower bound, and buffers that are made once.
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct Size {
  const char* name;
  lm::Config config;
  int64_t batch;
};
const Size kSizes[] = {
    {"lm_s", {.dim = 128, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 344, .context = 128}, 16},
    {"lm_m", {.dim = 256, .layers = 6, .heads = 8, .kv_heads = 4, .ffn = 688, .context = 256}, 8},
    {"lm_l", {.dim = 512, .layers = 8, .heads = 8, .kv_heads = 4, .ffn = 1376, .context = 512}, 4},
};

}  // namespace

TEST_SUITE("exec/memory") {
  TEST_CASE("symbols: large, small and large again: what the first two made serves") {
    const Graph graph = Graph::parse(R"(graph {
      symbols N, M
      input x: f32[N,M]
      input y: f32[M]
      s = binary(x, y) {kind="add"}
      q = binary(s, s) {kind="mul"}
      t = binary(q, s) {kind="add"}
      z = reduce(t) {kind="sum", axes=[0]}
      output "z" = z
    })",
                                     "symbols");
    const Store store(runtime());
    for (const char* device : {"cpu:0", "adversary:0"})
      for (const bool large_first : {true, false}) {
        CAPTURE(std::string(device));
        CAPTURE(large_first);
        const Executable executable(runtime(), graph, store, {.device = device});
        Context run(executable);
        std::vector<uint64_t> made;  // buffers, by run
        for (int i = 0; i < 5; ++i) {
          CAPTURE(i);
          const bool large = (i % 2 == 0) == large_first;
          const int64_t n = large ? 200 : 3, m = large ? 1300 : 2;
          const auto value = static_cast<float>(i);
          runtime().set_fault({.calls = TENON_FAULT_ALLOCATE, .nth = 0});
          run.set("x", {n, m}, std::vector<float>(static_cast<size_t>(n * m), value));
          run.set("y", {m}, std::vector<float>(static_cast<size_t>(m), 1.0f));
          run.run();
          made.push_back(runtime().lift_fault());
          const float sum = static_cast<float>(n) * (value + 1) * (value + 2);
          CHECK(run.get<float>("z") == std::vector<float>(static_cast<size_t>(m), sum));
        }
        // Two inputs and an output of each size; the working memory of the large one serves both.
        CHECK(made[0] > 3);
        CHECK((made[1] == 3) == large_first);
        for (size_t i = 2; i < made.size(); ++i) CHECK(made[i] == 0);
      }
  }

  TEST_CASE("report: derived weights count on the device that keeps them") {
    const Graph graph = Graph::parse(R"(graph {
      input x: f32[4,64]
      weight w: f32[64,32]
      e = unary(w) {kind="exp"}
      y = matmul(x, e)
      output "y" = y
    })",
                                     "derived");
    const Store store(runtime());
    for (const char* device : {"cpu:0", "template:0"}) {
      CAPTURE(std::string(device));
      const Executable executable(runtime(), graph, store, {.device = device});
      const auto memory = nlohmann::json::parse(executable.report())["memory"][0];
      CHECK(memory["weights"] == 0);
      CHECK(memory["derived_weights"].get<uint64_t>() >= 64 * 32 * sizeof(float));
      CHECK(memory["derived_weights"].get<uint64_t>() < 2 * 64 * 32 * sizeof(float));
    }
  }

  TEST_CASE("training: the peak of the three models is within 5 % of its bound") {
    for (const Size& size : kSizes)
      for (const tenon_dtype dtype : {f32, bf16}) {
        uint64_t kept = 0;
        for (const bool checkpoint : {false, true}) {
          CAPTURE(std::string(size.name));
          CAPTURE(dtype);
          CAPTURE(checkpoint);
          lm::Config config = size.config;
          config.dtype = dtype;
          const Graph graph =
              lm::train_graph(config, {.batch = size.batch, .checkpoint = checkpoint});
          const Store store(runtime());
          const Executable executable(runtime(), graph, store, {.device = "cpu:0"});
          const auto memory = nlohmann::json::parse(executable.report())["memory"][0];
          CHECK(memory["device"] == "cpu:0");
          const auto peak = memory["peak"].get<uint64_t>(), bound = memory["bound"].get<uint64_t>();
          const double ratio = static_cast<double>(peak) / static_cast<double>(bound);
          MESSAGE(std::string(size.name), std::string(dtype == f32 ? " f32" : " bf16"),
                  std::string(checkpoint ? ", recomputed: " : ": "),
                  static_cast<double>(peak) / (1 << 20), " MiB, ", ratio, " of the bound");
          CHECK(bound > 0);
          CHECK(ratio >= 1);
          CHECK(ratio <= 1.05);
          if (checkpoint) CHECK(peak < kept);
          kept = peak;
        }
      }
  }
}
