// SPDX-License-Identifier: Apache-2.0
// How many steps a training step of the smallest reference model is on backends of primitives:
// alone, with fused bodies, and with batches of them. Decompositions and joins are held to it.
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// lm_s of `tenon bench`, with its batch.
const lm::Config kModel{
    .dim = 128, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 344, .context = 128};
constexpr int64_t kModelBatch = 16;

// Steps of a run that are more than another look at the same memory.
size_t steps_on(const char* device) {
  const Graph graph = lm::train_graph(kModel, {.batch = kModelBatch});
  Store store(runtime());
  store.add_missing(graph);
  for (const lm::WeightSpec& w : lm::weight_specs(kModel))
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims,
              std::vector<float>(static_cast<size_t>(TensorType(f32, w.dims).elements())));
  // The adversary leaves two primitives to the cpu.
  const Executable executable(runtime(), graph, store, {.device = device});
  const auto report = nlohmann::json::parse(executable.report());
  size_t count = 0;
  for (const auto& step : report["steps"])
    count += !step["label"].get<std::string>().starts_with("view");
  return count;
}

}  // namespace

TEST_SUITE("exec/steps") {
  TEST_CASE("training step: primitives alone, with fused bodies, with batches") {
    // Its logits take 2 MiB, more than a buffer of the adversary is otherwise.
    setenv("TENON_ADVERSARY_LARGEST_MIB", "4", 1);
    struct {
      const char* device;
      size_t most;
    } constexpr devices[] = {
        {"fused:0", 346}, {"batches:0", 331}, {"template:0", 1354}, {"adversary:0", 1346}};
    for (const auto& d : devices) {
      CAPTURE(std::string(d.device));
      const size_t steps = steps_on(d.device);
      MESSAGE(std::string(d.device), ": ", steps, " steps");
      CHECK(steps <= d.most);
    }
  }
}
