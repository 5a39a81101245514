// SPDX-License-Identifier: Apache-2.0
// No device is named, and the rates of both are known: which one takes a graph. A training chooses
// as any other graph, and the graphs over its weights follow.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
using nlohmann::json;

namespace {

// Rates are kept below a folder of the test's own.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tenon-auto-" + std::to_string(getpid()));
  Folder() {
    std::filesystem::create_directories(path);
    setenv("XDG_CACHE_HOME", path.c_str(), 1);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

// What a run costs on a device, beside its work.
void set_run_seconds(const Runtime& rt, const char* device, double seconds) {
  const std::string file = json::parse(rt.rates(device)).at("file");
  std::ifstream in(file);
  json known = json::parse(in);
  known.at("rates").at("run_seconds") = seconds;
  std::ofstream(file) << known.dump();
}
void make_cheap(const Runtime& rt, const char* cheap, const char* dear) {
  set_run_seconds(rt, cheap, 1e-9);
  set_run_seconds(rt, dear, 1);
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

}  // namespace

TEST_CASE("auto: a training takes the cheaper device, and graphs over its weights follow it") {
  const Folder folder;
  const Runtime rt({.plugin_files = {TENON_TEST_PLUGINS "/tenon_plugin_lanes.so"},
                    .threads = 2,
                    .use_environment = false});
  const std::set<std::string> cpu = {"cpu:0"}, lanes = {"lanes:0"};
  const Graph train = training(), eval = forward(false), any = forward(true);

  // Without rates: the first accelerator.
  {
    Store store(rt);
    fill(store, train);
    CHECK(devices_of(Executable(rt, train, store)) == lanes);
    CHECK(devices_of(Executable(rt, any, store), true) == lanes);
  }
  for (const char* device : {"cpu:0", "lanes:0"}) (void)rt.calibrate(device, 0.002);
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
