// SPDX-License-Identifier: Apache-2.0
// Runs of several threads over one store and over one executable.
#include "rig.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

using namespace tenon;
using namespace tenon::test;

namespace {

std::vector<int32_t> held_out() { return tokens_of(small_model(), 1000); }

// The loss on fixed tokens with what the store holds.
class Evaluator {
 public:
  Evaluator(const char* device, Store& store)
      : executable_(runtime(), lm::eval_graph(small_model(), kBatch), store, {.device = device}),
        context_(executable_) {
    context_.set("tokens", {kBatch, small_model().context + 1}, held_out());
  }
  float run() {
    context_.run();
    return context_.get_scalar<float>("loss");
  }
  float run_async() {
    context_.run_async();
    context_.wait();
    return context_.get_scalar<float>("loss");
  }

 private:
  Executable executable_;
  Context context_;
};

}  // namespace

TEST_SUITE("exec/thread") {
  TEST_CASE(
      "one store: training beside evaluation is training alone, and each evaluation sees one "
      "step's weights") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      constexpr int kSteps = 12;
      std::vector<float> alone, at_step;
      {
        Store store(runtime());
        set_weights(store, small_model());
        Trainer trainer(device, store);
        Evaluator evaluator(device, store);
        at_step.push_back(evaluator.run());
        for (int s = 0; s < kSteps; ++s) {
          alone.push_back(trainer.step(s));
          at_step.push_back(evaluator.run());
        }
      }
      // Falling, all different, so that a value says its step.
      REQUIRE(std::ranges::adjacent_find(at_step, std::less_equal<>()) == at_step.end());

      Store store(runtime());
      set_weights(store, small_model());
      Trainer trainer(device, store);
      std::atomic<bool> stop = false;
      std::vector<float> seen[2];
      std::vector<std::thread> threads;
      for (size_t i = 0; i < 2; ++i)
        threads.emplace_back([&, i] {
          Evaluator evaluator(device, store);
          while (!stop) seen[i].push_back(i ? evaluator.run_async() : evaluator.run());
          seen[i].push_back(evaluator.run());
        });
      std::vector<float> beside;
      for (int s = 0; s < kSteps; ++s) {
        trainer.begin(s);
        if (s % 2) {
          trainer.context().run_async();
          trainer.context().wait();
        } else {
          trainer.context().run();
        }
        beside.push_back(trainer.context().get_scalar<float>("loss"));
      }
      stop = true;
      for (auto& t : threads) t.join();

      CHECK(beside == alone);  // to the bit
      for (const auto& losses : seen) {
        size_t step = 0;
        for (const float loss : losses) {
          const auto found =
              std::find(at_step.begin() + static_cast<std::ptrdiff_t>(step), at_step.end(), loss);
          REQUIRE_MESSAGE(found != at_step.end(), "an evaluation of ", loss,
                          " is that of no step from ", step);
          step = static_cast<size_t>(found - at_step.begin());
        }
        CHECK(step == kSteps);
      }
    }
  }

  TEST_CASE(
      "run_async: who waits before a worker came runs it himself, and the worker that comes late "
      "finds nothing") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      Graph g("short");
      const Value x = g.input("x", {f32, {4}}), total = g.state("total", {f32, {4}});
      const Value sum = g.add(op::binary{.kind = "add", .a = total, .b = x});
      g.update(total, sum);
      g.output("sum", sum);
      Store store(runtime());
      store.add_missing(g);
      const Executable executable(runtime(), g, store, {.device = device});
      constexpr int kThreads = 4, kRuns = 150;
      std::atomic<int> wrong = 0;
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          float last = 0;
          for (int i = 0; i < kRuns; ++i) {
            Context context(executable);  // gone before the worker looks
            context.set("x", std::vector<float>{1, 1, 1, 1});
            context.run_async();
            if ((i + t) % 3 == 0)
              while (!context.done()) std::this_thread::yield();
            context.wait();
            const float now = context.get<float>("sum")[3];
            wrong += !(now > last);
            last = now;
          }
        });
      for (auto& t : threads) t.join();
      CHECK(wrong == 0);
      CHECK(store.get<float>(TENON_SPACE_STATE, "total") ==
            std::vector<float>(4, kThreads * kRuns));
    }
  }

  TEST_CASE("one executable: eight threads, each with its own context and its own right answers") {
    for (const char* device : {"cpu:0", "template:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      Graph g("shared");
      const int64_t n = g.symbol("n");
      const Value x = g.input("x", {f32, {n, 8}}), w = g.weight("w", {f32, {8, 8}});
      const Value h = g.add(op::matmul{.a = x, .b = w});
      g.output("y", g.add(op::reduce{.kind = "sum", .axes = {1}, .x = g.add(op::softmax{.x = h})}));
      g.output("h", h);
      Store store(runtime());
      std::vector<float> identity(64);
      for (size_t i = 0; i < 8; ++i) identity[9 * i] = 3;
      store.set(TENON_SPACE_WEIGHT, "w", {8, 8}, identity);
      const Executable executable(runtime(), g, store, {.device = device});
      std::atomic<int> wrong = 0;
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
          Context context(executable);
          for (int i = 0; i < 60; ++i) {
            const int64_t rows = 1 + (i + t) % 5;
            std::vector<float> x(static_cast<size_t>(rows * 8));
            for (size_t k = 0; k < x.size(); ++k)
              x[k] = static_cast<float>((t * 31 + i + static_cast<int>(k)) % 11);
            context.set("x", {rows, 8}, x);
            context.run();
            const auto h = context.get<float>("h"), y = context.get<float>("y");
            bool right = h.size() == x.size() && y.size() == static_cast<size_t>(rows);
            for (size_t k = 0; right && k < x.size(); ++k) right = h[k] == 3 * x[k];
            for (const float sum : y) right = right && std::abs(sum - 1) < 1e-5f;
            wrong += !right;
          }
        });
      for (auto& t : threads) t.join();
      CHECK(wrong == 0);
    }
  }

  TEST_CASE(
      "several executables: eight threads compile, run, save, load and train, each with its own "
      "right answers") {
    const std::vector<float> alone = train("cpu:0", 3);
    const Runtime& shared = runtime();
    std::atomic<int> wrong = 0;
    const auto compile_and_run = [&](const char* device, int64_t width) {
      Graph g("own");
      const Value x = g.input("x", {f32, {width}});
      g.output("y", g.add(op::binary{.kind = "mul", .a = x, .b = g.scalar(2.0f)}));
      Store store(shared);
      const Executable executable(shared, g, store, {.device = device});
      Context context(executable);
      context.set("x", std::vector<float>(static_cast<size_t>(width), 3.0f));
      context.run_async();
      context.wait();
      wrong += context.get<float>("y") != std::vector<float>(static_cast<size_t>(width), 6.0f);
    };
    const auto save_and_load = [&](int thread) {
      const std::string file =
          (std::filesystem::temp_directory_path() / ("tenon-thread-" + std::to_string(::getpid()) +
                                                     "-" + std::to_string(thread) + ".safetensors"))
              .string();
      Store store(shared), again(shared);
      set_weights(store, small_model());
      store.save(TENON_SPACE_WEIGHT, file);
      again.load(TENON_SPACE_WEIGHT, file);
      std::filesystem::remove(file);
      // Going on from what was loaded is going on.
      wrong += Trainer("cpu:0", again).steps(3) != alone;
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        const char* devices[] = {"cpu:0", "template:0", "adversary:0"};
        for (int i = 0; i < 4; ++i) {
          compile_and_run(devices[(t + i) % 3], 1 + t % 2 + i);
          if (t < 3) save_and_load(t);
          if (t == 3) {
            const Runtime own({.plugin_dirs = {TENON_TEST_PLUGINS}, .use_environment = false});
            wrong += own.devices().size() < 4;
          }
        }
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("two devices: one store moves between them, and the last update counts") {
    Store store(runtime());
    Graph g("count");
    const Value s = g.state("s", {i64, {3}});
    g.update(s, g.add(op::binary{.kind = "add", .a = s, .b = g.constant<int64_t>({3}, {1, 2, 3})}));
    store.add_missing(g);
    const char* devices[] = {"cpu:0", "adversary:0", "adversary:1", "template:0"};
    std::vector<std::thread> threads;
    for (const char* device : devices)
      threads.emplace_back([&, device] {
        const Executable executable(runtime(), g, store, {.device = device});
        Context context(executable);
        for (int i = 0; i < 25; ++i) context.run();
      });
    for (auto& t : threads) t.join();
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "s") == std::vector<int64_t>{100, 200, 300});
  }
}
