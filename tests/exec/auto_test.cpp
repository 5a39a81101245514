// SPDX-License-Identifier: Apache-2.0
// What rates decide: which device takes a graph if none is named, and how a training is split
// between two devices. A training chooses as any other graph, and the graphs over its weights follow.
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "rates.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
using nlohmann::json;

namespace {

// By what a run costs on a device, beside its work.
void make_cheap(const Runtime& rt, const char* cheap, const char* dear) {
  set_rates(rt, cheap, {{"run_seconds", 1e-9}});
  set_rates(rt, dear, {{"run_seconds", 1}});
}

Graph training() {
  Graph g("training");
  const Value x = g.input("x", {f32, {8, 4}}), w = g.weight("w", {f32, {4, 4}});
  const Value loss = g.mean(g.square(g.matmul(x, w)));
  g.output("loss", loss);
  g.minimize(loss, {.learning_rate = g.scalar(0.1f)});
  return g;
}
Graph forward(bool symbolic) {
  Graph g("forward");
  const int64_t n = symbolic ? g.symbol("n") : 8;
  g.output("y", g.matmul(g.input("x", {f32, {n, 4}}), g.weight("w", {f32, {4, 4}})));
  return g;
}

void fill(Store& store, const Graph& graph) {
  store.set(TENON_SPACE_WEIGHT, "w", {4, 4}, std::vector<float>(16, 0.25f));
  store.add_missing(graph);
}

std::set<std::string> devices_of(const Executable& e, bool symbolic = false) {
  const json report = symbolic ? json::parse(e.report({{"n", 3}})) : json::parse(e.report());
  std::set<std::string> ids;
  for (const json& r : report["regions"]) ids.insert(r["device"]);
  return ids;
}

Runtime with_lanes() {
  return Runtime({.plugin_files = {TENON_TEST_PLUGINS "/tenon_plugin_lanes.so"},
                  .threads = 2,
                  .use_environment = false});
}

// Both devices calibrated, once for all tests.
const Runtime& measured() {
  static const RatesFolder folder;
  static const Runtime rt = [] {
    Runtime made = with_lanes();
    for (const char* device : {"cpu:0", "lanes:0"}) (void)made.calibrate(device, 0.002);
    return made;
  }();
  return rt;
}

// Of a device that takes as many products as the other one in a second.
json close_rates(double copy, double run, double step, double transfer) {
  return {{"copy_bytes_per_second", copy},
          {"run_seconds", run},
          {"step_seconds", step},
          {"fork_seconds", 0},
          {"to_device_bytes_per_second", 1e10},
          {"from_device_bytes_per_second", 1e10},
          {"transfer_seconds", transfer},
          {"product_flops_per_second", {{"f32", 1e11}}}};
}

// A training step of a language model. Lanes decomposes all its composites.
struct Step {
  Step(const Runtime& rt, const lm::Config& config, int64_t batch, const char* device)
      : config(config), store(rt) {
    const Graph graph = lm::train_graph(config, {.batch = batch});
    set_weights(store, config);
    store.add_missing(graph);
    executable.emplace(rt, graph, store, ExecutableOptions{.device = device});
  }
  size_t regions() const { return json::parse(executable->report())["regions"].size(); }
  float loss() {
    Context run(*executable);
    run.set("tokens", {kBatch, config.context + 1}, tokens_of(config, 0));
    run.set("lr", 3e-3f);
    run.run();
    return run.get_scalar<float>("loss");
  }

  lm::Config config;
  Store store;
  std::optional<Executable> executable{};
};

}  // namespace

TEST_CASE("auto: without rates the first accelerator takes a training") {
  const RatesFolder folder;
  const Runtime rt = with_lanes();
  const Graph train = training(), any = forward(true);
  Store store(rt);
  fill(store, train);
  CHECK(devices_of(Executable(rt, train, store)) == std::set<std::string>{"lanes:0"});
  CHECK(devices_of(Executable(rt, any, store), true) == std::set<std::string>{"lanes:0"});
}

TEST_CASE("auto: a training takes the cheaper device, and graphs over its weights follow it") {
  const Runtime& rt = measured();
  const std::set<std::string> cpu = {"cpu:0"}, lanes = {"lanes:0"};
  const Graph train = training(), eval = forward(false), any = forward(true);

  make_cheap(rt, "cpu:0", "lanes:0");
  Store store(rt);
  fill(store, train);
  {
    // Nothing is decided by a graph that updates nothing.
    CHECK(devices_of(Executable(rt, eval, store)) == cpu);
    CHECK(devices_of(Executable(rt, any, store), true) == lanes);
  }
  CHECK(devices_of(Executable(rt, train, store)) == cpu);
  make_cheap(rt, "lanes:0", "cpu:0");
  CHECK(devices_of(Executable(rt, train, store)) == cpu);
  CHECK(devices_of(Executable(rt, eval, store)) == cpu);
  const Executable symbolic(rt, any, store);
  CHECK(devices_of(symbolic, true) == cpu);
  // A device that the app names is taken.
  // (What it would decompose is cheaper on the cpu.)
  CHECK(devices_of(Executable(rt, train, store, {.device = "lanes:0"})).contains("lanes:0"));
  // Another store decides anew.
  Store other(rt);
  fill(other, train);
  const Executable elsewhere(rt, train, other);
  CHECK(devices_of(elsewhere).contains("lanes:0"));
  CHECK(devices_of(Executable(rt, any, other), true) == lanes);
  // And they run.
  const std::vector<float> x(32, 0.5f);
  for (const Executable* e : {&elsewhere, &symbolic}) {
    Context run(*e);
    run.set("x", {8, 4}, x);
    run.run();
  }
}

// lm_s was cut into 54 to 106 regions between devices of close rates, and into 29 to 37 where lanes
// copies three times as fast, while each node was judged by itself.
TEST_CASE("split: a training step between devices of close rates has few regions") {
  const Runtime& rt = measured();
  const lm::Config lm_s{
      .dim = 128, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 344, .context = 128};
  const float loss = Step(rt, small_model(), kBatch, "cpu:0").loss();
  for (const double copy : {1e10, 1.5e10, 3e10})
    for (const double transfer : {1e-6, 1e-5, 5e-5}) {
      CAPTURE(copy);
      CAPTURE(transfer);
      set_rates(rt, "cpu:0", close_rates(1e10, 1e-5, 1e-6, 1e-7));
      set_rates(rt, "lanes:0", close_rates(copy, 4e-5, 2e-6, transfer));
      Step small(rt, small_model(), kBatch, "lanes:0");
      CHECK(small.regions() <= 3);
      CHECK(Step(rt, lm_s, 16, "lanes:0").regions() <= (copy < 2e10 ? 3 : 24));
      CHECK(small.loss() == doctest::Approx(loss).epsilon(1e-4));
    }
}
