// SPDX-License-Identifier: Apache-2.0
// Training and generation on a device with hostile memory and late events, and on the primitives
// alone, against the cpu.
#include "rig.hpp"

#include <algorithm>

using namespace tenon;
using namespace tenon::test;

namespace {
const std::vector<float>& cpu_losses() {
  static const std::vector<float> losses = train("cpu:0", 20);
  return losses;
}
bool has(const std::string& report, const std::string& what) {
  return report.find(what) != std::string::npos;
}

// A figure of the wanted device's memory, the first in the report.
uint64_t memory_of(const Executable& executable, const std::string& name) {
  const std::string report = executable.report();
  const size_t memory = report.find("\"memory\":"), at = report.find("\"" + name + "\":", memory);
  REQUIRE(at != std::string::npos);
  return std::stoull(report.substr(at + name.size() + 3));
}
}  // namespace

TEST_SUITE("exec/adversary") {
  TEST_CASE("devices: two, which the host cannot address") {
    int seen = 0;
    for (const DeviceEntry& d : runtime().devices()) {
      if (d.kind != "adversary") continue;
      ++seen;
      CHECK_FALSE(d.host_addressable);
      CHECK(d.max_allocation == 1 << 20);
    }
    CHECK(seen == 2);
  }

  TEST_CASE("training: the cpu learns") {
    const auto& losses = cpu_losses();
    CHECK(losses.front() == doctest::Approx(std::log(256)).epsilon(0.05));
    CHECK(losses.back() < 0.7f * losses.front());
  }

  TEST_CASE("training: the adversary has the cpu's losses, with nodes that fall back inside") {
    for (const char* device : {"adversary:0", "adversary:1"}) {
      CAPTURE(std::string(device));
      Store store(runtime());
      set_weights(store, small_model());
      Trainer trainer(device, store);
      const std::string report = trainer.executable().report();
      CHECK(has(report, "\"verdict\":\"fallback\""));
      CHECK(has(report, "rsqrt"));
      CHECK(has(report, "\"verdict\":\"decomposed\""));
      CHECK(furthest(trainer.steps(20), cpu_losses()) < 1e-4);
    }
  }

  TEST_CASE("training: two contexts at once, in two threads and on two devices") {
    std::vector<float> losses[3];
    std::vector<std::thread> threads;
    const char* devices[] = {"adversary:0", "adversary:0", "adversary:1"};
    for (size_t i = 0; i < 3; ++i)
      threads.emplace_back([&, i] { losses[i] = train(devices[i], 10); });
    for (auto& t : threads) t.join();
    const std::vector<float> expected(cpu_losses().begin(), cpu_losses().begin() + 10);
    for (const auto& l : losses) CHECK(furthest(l, expected) < 1e-4);
  }

  TEST_CASE("generation: greedy text is the cpu's") {
    const auto expected = generate("cpu:0", 20, 0, {.temperature = 0});
    CHECK(generate("adversary:0", 20, 0, {.temperature = 0}) == expected);
    CHECK(generate("adversary:1", 20, 0, {.temperature = 0}) == expected);
  }

  TEST_CASE("generation: prefill and decode on one cache give what the whole sequence gives") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      Store store(runtime());
      set_weights(store, small_model(), 6);
      std::vector<int64_t> tokens = kPrompt;
      for (const int64_t next : generate(device, store, 8, 0, {.temperature = 0})) {
        const auto length = static_cast<int64_t>(tokens.size());
        const Executable whole(runtime(), lm::logits_graph(small_model(), length), store,
                               {.device = device});
        Context context(whole);
        context.set("tokens", {1, length}, tokens);
        context.run();
        const auto logits = context.get<float>("logits");
        const auto last = logits.end() - small_model().vocab;
        CHECK(next == std::max_element(last, logits.end()) - last);
        tokens.push_back(next);
      }
    }
  }

  TEST_CASE("generation: sampling, which falls back, depends on the seed alone") {
    const lm::SampleOptions options{.temperature = 1, .top_k = 50, .top_p = 0.95};
    const auto cpu = generate("cpu:0", 20, 7, options);
    CHECK(generate("adversary:0", 20, 7, options) == cpu);
    CHECK(generate("cpu:0", 20, 8, options) != cpu);
  }

  TEST_CASE("template: the primitives alone train a model with the cpu's losses") {
    CHECK(furthest(train("template:0", 50), train("cpu:0", 50)) < 1e-4);
  }

  TEST_CASE("limit: an arena of several buffers of at most 1 MiB") {
    Graph g("wide");
    constexpr int64_t kSize = 200'000;  // 800 kB: one per buffer
    const Value x = g.input("x", {f32, {kSize}});
    std::vector<Value> parts;
    for (int i = 0; i < 6; ++i)
      parts.push_back(
          g.add(op::binary{.kind = "mul", .a = x, .b = g.scalar(static_cast<float>(i))}));
    // Read in the other order, so that all of them live at once.
    Value sum = parts[5];
    for (int i = 4; i >= 0; --i)
      sum = g.add(
          op::binary{.kind = "max",
                     .a = sum,
                     .b = g.add(op::unary{.kind = "neg", .x = parts[static_cast<size_t>(i)]})});
    g.output("y", sum);
    Store store(runtime());
    const Executable executable(runtime(), g, store, {.device = "adversary:0"});
    Context context(executable);
    std::vector<float> values(kSize);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 100);
    context.set("x", values);
    for (int i = 0; i < 2; ++i) {
      context.run();
      for (float& v : values) v *= 5;
      CHECK(context.get<float>("y") == values);
      for (float& v : values) v /= 5;
    }
    const uint64_t peak = memory_of(executable, "peak");
    CHECK(peak > kSize * 4);  // more than one buffer holds
    CHECK(peak >= memory_of(executable, "bound"));
  }

  TEST_CASE("fallback: what a transfer carries keeps its bytes until then") {
    constexpr int64_t kSize = 32;
    const auto outputs = [&](const char* device) {
      Graph g("chains");
      const Value x = g.input("x", {f32, {kSize, kSize}});
      std::vector<float> input;
      for (uint64_t i = 0; i < kSize * kSize; ++i)
        input.push_back(static_cast<float>((2 + noise(1, i)) / kSize));
      Value last = x;
      for (int i = 0; i < 6; ++i) {
        last = g.add(op::matmul{.a = x, .b = last});
        const Value squared = g.add(op::binary{.kind = "mul", .a = last, .b = last});
        g.output("y" + std::to_string(i), g.add(op::unary{.kind = "rsqrt", .x = squared}));
      }
      Store store(runtime());
      const Executable executable(runtime(), g, store, {.device = device, .fuse = false});
      Context context(executable);
      context.set("x", {kSize, kSize}, input);
      context.run();
      std::vector<std::vector<float>> all;
      for (int i = 0; i < 6; ++i) all.push_back(context.get<float>("y" + std::to_string(i)));
      return all;
    };
    const auto expected = outputs("cpu:0"), got = outputs("adversary:0");
    for (size_t i = 0; i < expected.size(); ++i) CHECK(furthest(got[i], expected[i]) < 1e-3);
  }

  TEST_CASE("limit: a tensor larger than the largest buffer is refused, by size and device") {
    Graph g("large");
    const Value x = g.input("x", {f32, {1000}});
    const Value big = g.add(op::expand{.shape = {400, 1000}, .x = x});
    const Value grown = g.add(op::unary{.kind = "exp", .x = big}, "grow");
    g.output("y", g.add(op::reduce{.kind = "sum", .x = grown}));
    Store store(runtime());
    tenon_code code = TENON_OK;
    const auto compile = [&] { Executable(runtime(), g, store, {.device = "adversary:0"}); };
    CHECK(says(error_of(compile, &code), {"1600000", "1048576", "adversary:0", "grow"}));
    CHECK(code == TENON_OUT_OF_MEMORY);

    Graph h("large.input");
    const Value y = h.input("y", {f32, {300, 1000}});
    h.output("z", h.add(op::reduce{.kind = "sum", .x = y}));
    const Executable executable(runtime(), h, store, {.device = "adversary:1"});
    Context context(executable);
    context.set("y", {300, 1000}, std::vector<float>(300'000, 1.0f));
    CHECK(says(error_of([&] { context.run(); }, &code), {"1200000", "1048576", "adversary:1"}));
    CHECK(code == TENON_OUT_OF_MEMORY);
  }

  TEST_CASE("limit: a plan over 16 GiB is made, or refused by size, before anything is allocated") {
    constexpr int64_t kSize = int64_t{1} << 30;  // of f32: 4 GiB
    Graph g("huge");
    const Value k = g.input("k", {f32, {}});
    Value v = g.input("x", {f32, {kSize}});
    std::vector<Value> parts;
    for (int i = 0; i < 5; ++i) {
      v = g.add(op::cumsum{.x = g.add(op::binary{.kind = "mul", .a = v, .b = k})});
      parts.push_back(v);
    }
    // Each is made of the one before and read in the other order, so that all of them live at once.
    for (int i = 3; i >= 0; --i)
      v = g.add(op::binary{.kind = "max", .a = v, .b = parts[static_cast<size_t>(i)]});
    g.output("y", g.add(op::reduce{.kind = "sum", .x = v}));
    const Store store(runtime());
    runtime().set_fault({.calls = TENON_FAULT_ALLOCATE, .nth = 0});
    const Executable executable(runtime(), g, store, {.device = "cpu:0"});
    const uint64_t peak = memory_of(executable, "peak"), bound = memory_of(executable, "bound");
    tenon_code code = TENON_OK;
    const auto compile = [&] { Executable(runtime(), g, store, {.device = "adversary:0"}); };
    const std::string text = error_of(compile, &code);
    CHECK(runtime().lift_fault() == 0);
    CHECK(bound > uint64_t{16} << 30);
    CHECK(peak >= bound);
    CHECK(static_cast<double>(peak) <= 1.05 * static_cast<double>(bound));
    CHECK(says(text, {"4294967296", "1048576", "adversary:0"}));
    CHECK(code == TENON_OUT_OF_MEMORY);
  }

  TEST_CASE("fallback: denied, it is an error that names op, node and reason") {
    Store store(runtime());
    set_weights(store, small_model());
    const Graph g = lm::eval_graph(small_model(), kBatch);
    tenon_code code = TENON_OK;
    const auto compile = [&] {
      Executable(runtime(), g, store, {.device = "adversary", .allow_fallback = false});
    };
    CHECK(says(error_of(compile, &code), {"rms_norm", "model.layers.0.input_layernorm", "rsqrt"}));
    CHECK(code == TENON_UNSUPPORTED);
  }

  TEST_CASE("memory: the peak of a training step stays near its lower bound") {
    Store store(runtime());
    set_weights(store, small_model());
    for (const char* device : {"cpu:0", "template:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      const Trainer trainer(device, store);
      const uint64_t peak = memory_of(trainer.executable(), "peak"),
                     bound = memory_of(trainer.executable(), "bound");
      CHECK(bound > 0);
      CHECK(peak >= bound);
      CHECK(static_cast<double>(peak) <= 1.05 * static_cast<double>(bound));
    }
  }
}
