// SPDX-License-Identifier: Apache-2.0
// Several runtimes in one process: they load, run and unload in many threads, each with the plugins'
// state of its own.
#include <atomic>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr const char* kText = R"(graph {
  input x: f32[64,32]
  weight w: f32[32,48]
  h = matmul(x, w)
  y = softmax(h)
  output "y" = y
})";

std::vector<float> values(size_t count, uint64_t key) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(noise(key, i));
  return out;
}

// A runtime with one executable on it, which outlives the caller's handle of the runtime.
class Model {
 public:
  Model(const Runtime& on, const std::string& device) : store_(on) {
    store_.set(TENON_SPACE_WEIGHT, "w", {32, 48}, values(32 * 48, 7));
    executable_ = std::make_unique<Executable>(on, Graph::parse(kText), store_,
                                               ExecutableOptions{.device = device});
  }
  std::vector<float> run() {
    Context context(*executable_);
    context.set("x", {64, 32}, values(64 * 32, 3));
    context.run();
    return context.get<float>("y");
  }

 private:
  Store store_;
  std::unique_ptr<Executable> executable_;
};

RuntimeOptions options(uint32_t threads) {
  return {.plugin_dirs = {TENON_TEST_PLUGINS}, .threads = threads, .use_environment = false};
}

}  // namespace

TEST_SUITE("exec/runtimes") {
  TEST_CASE("eight threads load, run and unload runtimes while two others run on theirs") {
    const std::string devices[] = {"cpu:0", "template:0"};
    std::vector<float> expected[2];
    for (int d = 0; d < 2; ++d) expected[d] = Model(runtime(), devices[d]).run();
    std::atomic<bool> stop = false;
    std::atomic<int> wrong = 0, runs = 0, lives = 0;
    std::vector<std::thread> threads;
    for (int d = 0; d < 2; ++d) {
      threads.emplace_back([&, d] {
        Model model(runtime(), devices[d]);
        while (!stop) {
          wrong += model.run() != expected[d];
          ++runs;
        }
      });
    }
    std::vector<std::thread> loaders;
    for (int t = 0; t < 8; ++t) {
      loaders.emplace_back([&, t] {
        for (int life = 0; life < 6; ++life) {
          const int d = (t + life) % 2;
          auto own = std::make_unique<Runtime>(options(1 + static_cast<uint32_t>(t + life) % 3));
          Model model(*own, devices[d]);
          own.reset();  // the model keeps its plugins
          wrong += model.run() != expected[d];
          ++lives;
        }
      });
    }
    for (std::thread& t : loaders) t.join();
    stop = true;
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
    CHECK(lives == 48);
    CHECK(runs > 0);
  }
}
