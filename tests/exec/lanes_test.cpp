// SPDX-License-Identifier: Apache-2.0
// Exec and compile modes on a device whose streams are threads that overtake each other: every mode
// gives the bits of one stream, failures name their node, and what a device cannot do is told.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using nlohmann::json;

struct Mode {
  const char* name;
  uint32_t exec = TENON_EXEC_DEFAULT, lanes = 0;
  bool aot = false;
};
constexpr Mode kModes[] = {{"default"},
                           {"graph", TENON_EXEC_GRAPH},
                           {"eager", TENON_EXEC_EAGER},
                           {"lanes 1", TENON_EXEC_MULTI_STREAM, 1},
                           {"lanes 2", TENON_EXEC_MULTI_STREAM, 2},
                           {"lanes 4", TENON_EXEC_MULTI_STREAM, 0},
                           {"lanes 7 aot", TENON_EXEC_MULTI_STREAM, 7, true},
                           {"aot", TENON_EXEC_STREAM, 0, true}};

// TENON_LANES_DEVICE: another device with lanes.
std::string lanes_device() {
  const char* device = std::getenv("TENON_LANES_DEVICE");
  return device ? device : "lanes:0";
}

ExecutableOptions options(const Mode& mode, const std::string& device = lanes_device()) {
  return {.device = device,
          .allow_fallback = false,
          .exec_mode = mode.exec,
          .lanes = mode.lanes,
          .aot = mode.aot};
}

// All bytes of weights and state.
std::map<std::string, std::vector<char>> contents(const Store& store) {
  std::map<std::string, std::vector<char>> all;
  for (const uint32_t space : {TENON_SPACE_WEIGHT, TENON_SPACE_STATE})
    for (const std::string& name : store.names(space)) {
      auto& bytes = all[name + (space == TENON_SPACE_WEIGHT ? " w" : " s")];
      bytes.resize(store.type(space, name).bytes());
      store.get(space, name, bytes.data(), bytes.size());
    }
  return all;
}

struct Trained {
  std::vector<float> losses;
  std::map<std::string, std::vector<char>> store;
  json report;
};

Trained trained(const ExecutableOptions& o, int64_t steps) {
  Store store(runtime());
  set_weights(store, small_model());
  const Graph graph = lm::train_graph(small_model(), {.batch = kBatch});
  store.add_missing(graph);
  const Executable executable(runtime(), graph, store, o);
  Context run(executable);
  Trained out;
  for (int64_t s = 0; s < steps; ++s) {
    run.set("tokens", {kBatch, small_model().context + 1}, tokens_of(small_model(), s));
    run.set("lr", 3e-3f);
    run.run();
    out.losses.push_back(run.get_scalar<float>("loss"));
  }
  out.store = contents(store);
  out.report = json::parse(executable.report());
  return out;
}

uint64_t peak(const json& report) { return report["memory"][0]["peak"].get<uint64_t>(); }

// A graph of many small nodes, most of them readable by several, with updates of state.
Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  Graph g("random");
  std::vector<Value> values = {g.input("x", {f32, {4, 6}}), g.input("y", {f32, {4, 6}})};
  const Value w = g.weight("w", {f32, {6, 6}}), state = g.state("s", {f32, {4, 6}});
  values.push_back(state);
  const auto any = [&] { return values[random() % values.size()]; };
  for (int i = 0; i < 60; ++i) {
    switch (random() % 5) {
      case 0:
        values.push_back(g.add(op::matmul{.a = any(), .b = w}));
        break;
      case 1:
        values.push_back(g.add(op::unary{.kind = "tanh", .x = any()}));
        break;
      case 2:
        values.push_back(g.add(op::softmax{.x = any()}));
        break;
      default:
        values.push_back(
            g.add(op::binary{.kind = random() % 2 ? "add" : "mul", .a = any(), .b = any()}));
    }
  }
  g.update(state, g.add(op::unary{.kind = "sin", .x = values.back()}));
  for (int i = 0; i < 3; ++i) g.output("o" + std::to_string(i), values[values.size() - 1 - i * 7]);
  return g;
}

std::vector<std::vector<float>> run_random(uint32_t seed, const Mode& mode, size_t* waits) {
  const Graph graph = random_graph(seed);
  Store store(runtime());
  std::vector<float> numbers(36);
  for (size_t i = 0; i < 36; ++i) numbers[i] = static_cast<float>(0.4 * noise(7, i));
  store.set(TENON_SPACE_WEIGHT, "w", {6, 6}, numbers);
  store.add_missing(graph);
  ExecutableOptions o = options(mode);
  o.simplify = seed % 2 == 0;
  const Executable executable(runtime(), graph, store, o);
  if (waits) *waits += json::parse(executable.report())["regions"][0]["waits"].get<size_t>();
  Context run(executable);
  std::vector<std::vector<float>> out;
  numbers.resize(24);
  for (int i = 0; i < 4; ++i) {
    run.set("x", {4, 6}, numbers);
    run.set("y", {4, 6}, numbers);
    run.run();
    for (const char* name : {"o0", "o1", "o2"}) out.push_back(run.get<float>(name));
    out.push_back(store.get<float>(TENON_SPACE_STATE, "s"));
  }
  return out;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

// Two gathers that do not touch each other, one with an index out of range, then one that reads
// both.
Graph gathers() {
  Graph g("gathers");
  const Value x = g.input("x", {f32, {4, 2}});
  const Value good = g.input("good", {i64, {3}}), bad = g.input("bad", {i64, {3}});
  const Value a = g.add(op::gather{.data = x, .indices = good}, "first");
  const Value b = g.add(op::gather{.data = x, .indices = bad}, "second");
  g.output("y", g.add(op::binary{.kind = "add", .a = a, .b = b}, "sum"));
  return g;
}

}  // namespace

TEST_SUITE("exec/lanes") {
  TEST_CASE("training: every mode gives the bits of one stream") {
    const Trained stream = trained(options({"stream", TENON_EXEC_STREAM}), 5);
    CHECK(furthest(stream.losses, train("template:0", 5)) < 1e-5);
    CHECK(stream.report["regions"][0]["lanes"] == 1);
    for (const Mode& mode : kModes) {
      CAPTURE(std::string(mode.name));
      const Trained other = trained(options(mode), 5);
      CHECK(other.losses == stream.losses);
      CHECK(other.store == stream.store);
      const uint32_t lanes = other.report["regions"][0]["lanes"];
      if (mode.exec != TENON_EXEC_MULTI_STREAM || mode.lanes == 1) {
        CHECK(lanes == 1);
        CHECK(peak(other.report) == peak(stream.report));
        continue;
      }
      CHECK(lanes > 1);
      CHECK(lanes <= (mode.lanes ? mode.lanes : 4));
      CHECK(other.report["regions"][0]["waits"] > 0);
      const double more =
          static_cast<double>(peak(other.report)) / static_cast<double>(peak(stream.report));
      MESSAGE(std::string(mode.name), ": ", lanes, " lanes, ",
              other.report["regions"][0]["waits"].dump(), " waits of ",
              other.report["steps"].size(), " steps, memory x ", more);
      CHECK(more >= 1);
      CHECK(more < 2);
      CHECK(other.report["exec"] == "multi_stream");
    }
  }

  TEST_CASE("random graphs: lanes give the bits of one stream, recorded and not") {
    size_t waits = 0;
    for (uint32_t seed = 0; seed < 24; ++seed) {
      CAPTURE(seed);
      const auto expected = run_random(seed, {"stream", TENON_EXEC_STREAM}, nullptr);
      for (const uint32_t lanes : {2u, 3u, 8u}) {
        CAPTURE(lanes);
        CHECK(same_bits(run_random(seed, {"", TENON_EXEC_MULTI_STREAM, lanes}, &waits), expected));
      }
      CHECK(same_bits(run_random(seed, {"", TENON_EXEC_EAGER}, nullptr), expected));
      CHECK(same_bits(run_random(seed, {"", TENON_EXEC_GRAPH}, nullptr), expected));
    }
    CHECK(waits > 200);
  }

  TEST_CASE("report: lanes of steps, and the steps that they wait for") {
    const Trained t = trained(options({"", TENON_EXEC_MULTI_STREAM, 3}), 1);
    std::set<uint32_t> lanes;
    size_t waits = 0;
    for (size_t s = 0; s < t.report["steps"].size(); ++s) {
      const json& step = t.report["steps"][s];
      lanes.insert(step["lane"].get<uint32_t>());
      for (const json& after : step["after"]) {
        ++waits;
        REQUIRE(after.get<size_t>() < s);
        CHECK(t.report["steps"][after.get<size_t>()]["lane"] != step["lane"]);
      }
    }
    CHECK(lanes.size() == t.report["regions"][0]["lanes"]);
    CHECK(waits == t.report["regions"][0]["waits"]);
  }

  TEST_CASE("a device without lanes: one lane, told in the log and in the report, same bits") {
    const Log log;
    const Trained t = trained(options({"", TENON_EXEC_MULTI_STREAM, 4}, "lanes:1"), 3);
    for (const char* words : {"4 lanes were asked for", "lanes:1 runs one", "plugin lanes"})
      CHECK(log.says(words));
    CHECK(t.report["regions"][0]["lanes"] == 1);
    CHECK(says(t.report["regions"][0]["lanes_note"], {"plugin lanes", "one lane"}));
    CHECK(t.losses == trained(options({"", TENON_EXEC_STREAM}), 3).losses);
  }

  TEST_CASE("bad data: named by step and index in every mode, and the next run is good") {
    const Graph graph = gathers();
    for (const Mode& mode : kModes) {
      CAPTURE(std::string(mode.name));
      Store store(runtime());
      const Executable executable(runtime(), graph, store, options(mode));
      Context run(executable);
      run.set("x", {4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
      run.set("good", std::vector<int64_t>{0, 1, 2});
      for (int i = 0; i < 4; ++i) {
        const bool fails = i % 2 == 1;
        run.set("bad", std::vector<int64_t>{3, fails ? 9 : 2, 1});
        tenon_code code = TENON_OK;
        const std::string text = error_of([&] { run.run(); }, &code);
        if (!fails) {
          CHECK(text == "no error");
          CHECK(run.get<float>("y") == std::vector<float>{8, 10, 8, 10, 8, 10});
          continue;
        }
        CHECK(code == TENON_INDEX_OUT_OF_RANGE);
        CHECK(says(text, {"gather 'second'", "at position 1 is outside axis 0 of length 4"}));
        if (lanes_device() != "lanes:0") CHECK(says(text, {"operand indices: index 9 at"}));
      }
    }
  }

  TEST_CASE("run_async: lanes, several contexts at once") {
    const auto expected = run_random(3, {"", TENON_EXEC_STREAM}, nullptr);
    std::vector<std::thread> threads;
    std::vector<char> good(4);
    for (size_t i = 0; i < good.size(); ++i)
      threads.emplace_back([&, i] {
        good[i] = same_bits(run_random(3, {"", TENON_EXEC_MULTI_STREAM, 3}, nullptr), expected);
      });
    for (auto& t : threads) t.join();
    CHECK(good == std::vector<char>(4, 1));
  }

  TEST_CASE("trace: steps of a stream device have times of its own, lanes and names") {
    const std::string path = "lanes_test_trace.json";
    const Graph graph = random_graph(5);
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "w", {6, 6}, std::vector<float>(36, 0.1f));
    store.add_missing(graph);
    const Executable executable(runtime(), graph, store, options({"", TENON_EXEC_MULTI_STREAM, 3}));
    Context run(executable);
    run.set("x", {4, 6}, std::vector<float>(24, 0.5f));
    run.set("y", {4, 6}, std::vector<float>(24, 0.25f));
    for (int i = 0; i < 3; ++i) run.run();
    const auto before = run.get<float>("o0");
    runtime().start_trace();
    for (int i = 0; i < 3; ++i) run.run();
    runtime().save_trace(path);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::remove(path.c_str());
    std::set<int64_t> rows;
    size_t steps = 0;
    const json trace = json::parse(text.str()), report = json::parse(executable.report());
    for (const json& e : trace["traceEvents"]) {
      if (e["ph"] != "X" || e["cat"] != "step") continue;
      ++steps;
      rows.insert(e["tid"].get<int64_t>());
      CHECK(e["dur"].get<double>() > 0);
      CHECK(!e["args"]["op"].get<std::string>().empty());
    }
    size_t work = 0;
    for (const json& s : report["steps"]) work += s["label"] != "view";
    CHECK(steps == 3 * work);
    CHECK(work > 20);
    CHECK(rows.size() == 3);
    CHECK(run.get<float>("o0") == before);
  }

  TEST_CASE("aot: progress counts to the end, in the calling thread; stopping it is an error") {
    const Graph graph = random_graph(8);
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "w", {6, 6}, std::vector<float>(36, 0.1f));
    store.add_missing(graph);
    std::vector<std::pair<uint32_t, uint32_t>> seen;
    ExecutableOptions o = options({"", TENON_EXEC_DEFAULT, 0, true});
    const auto caller = std::this_thread::get_id();
    o.progress = [&](uint32_t done, uint32_t total) {
      CHECK(std::this_thread::get_id() == caller);
      seen.emplace_back(done, total);
      return true;
    };
    const Executable executable(runtime(), graph, store, o);
    REQUIRE(seen.size() >= 2);
    CHECK(seen.front().first == 0);
    CHECK(seen.back().first == seen.back().second);
    CHECK(seen.back().second > 10);
    for (size_t i = 1; i < seen.size(); ++i) CHECK(seen[i - 1].first <= seen[i].first);
    CHECK(json::parse(executable.report())["compile"] == "aot");

    o.progress = [&](uint32_t done, uint32_t) { return done < 2; };
    tenon_code code = TENON_OK;
    CHECK(says(error_of([&] { Executable(runtime(), graph, store, o); }, &code),
               {"compiling ahead was stopped", " of ", "parts"}));
    CHECK(code == TENON_CANCELLED);
    seen.clear();
    o.aot = false;
    o.progress = [&](uint32_t, uint32_t) { return seen.emplace_back(0, 0), true; };
    Executable(runtime(), graph, store, o);
    CHECK(seen.empty());
  }

  TEST_CASE("aot: symbols compile when a run brings numbers, and the context may live longest") {
    Graph g("symbols");
    const int64_t n = g.symbol("N");
    const Value x = g.input("x", {f32, {n}});
    g.output("y", g.add(op::unary{.kind = "exp", .x = x}));
    Store store(runtime());
    int calls = 0;
    std::optional<Context> run;
    {
      ExecutableOptions o = options({"", TENON_EXEC_DEFAULT, 0, true});
      o.progress = [&calls](uint32_t, uint32_t) { return ++calls > 0; };
      run.emplace(Executable(runtime(), g, store, o));
    }
    CHECK(calls == 0);
    run->set("x", std::vector<float>(5, 0.0f));
    run->run();
    CHECK(calls >= 2);
    CHECK(run->get<float>("y") == std::vector<float>(5, 1.0f));
  }

  TEST_CASE("options: what is unknown or does not go together is refused") {
    const Graph graph = gathers();
    Store store(runtime());
    const auto refused = [&](uint32_t exec, uint32_t lanes) {
      tenon_code code = TENON_OK;
      const std::string text = error_of(
          [&] {
            Executable(runtime(), graph, store,
                       {.device = lanes_device(), .exec_mode = exec, .lanes = lanes});
          },
          &code);
      CHECK(code == TENON_INVALID_ARGUMENT);
      return text;
    };
    CHECK(says(refused(9, 0), {"exec_mode 9"}));
    CHECK(says(refused(TENON_EXEC_STREAM, 2), {"lanes 2", "stream"}));
    CHECK(says(refused(TENON_EXEC_MULTI_STREAM, 33), {"lanes 33", "32"}));
  }
}
