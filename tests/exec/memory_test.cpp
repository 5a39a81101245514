// SPDX-License-Identifier: Apache-2.0
// Plans of the language models that tenon bench trains: memory near its lower bound. Nothing runs.
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
