// SPDX-License-Identifier: Apache-2.0
// One executable on several devices: who gets what, and that results stay what they are.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using nlohmann::json;

constexpr const char* kBoth = "adversary:0,adversary:1";

lm::Config four_layers() {
  lm::Config config = small_model();
  config.layers = 4;
  return config;
}

// Devices by the names of nodes.
std::map<std::string, std::string> places_of(const Executable& executable) {
  std::map<std::string, std::string> out;
  const json report = json::parse(executable.report());
  for (const json& n : report["nodes"]) out[n["name"]] = n["device"];
  return out;
}

json memory_on(const Executable& executable, const std::string& device) {
  const json report = json::parse(executable.report());
  for (const json& m : report["memory"])
    if (m["device"] == device) return m;
  FAIL("no memory of ", device);
  return {};
}
uint64_t needed_on(const Executable& executable, const std::string& device) {
  const json m = memory_on(executable, device);
  uint64_t sum = 0;
  for (const char* part :
       {"peak", "weights", "derived_weights", "state", "constants", "inputs", "outputs"})
    sum += m[part].get<uint64_t>();
  return sum;
}

std::string failure_of(const Graph& graph, const ExecutableOptions& options,
                       tenon_code code = TENON_INVALID_ARGUMENT) {
  Store store(runtime());
  store.add_missing(graph);
  try {
    const Executable executable(runtime(), graph, store, options);
    static_cast<void>(executable.report());
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  FAIL("accepted");
  return {};
}

bool says(const std::string& text, std::initializer_list<const char*> words) {
  const bool all = std::ranges::all_of(
      words, [&](const char* word) { return text.find(word) != std::string::npos; });
  if (!all) MESSAGE(text);
  return all;
}

Graph two_towers() {
  return Graph::parse(R"(graph {
    input x: f32[64,64]
    weight a: f32[64,64]
    weight b: f32[64,64]
    a0 = matmul(x, a) a1 = matmul(a0, a) a2 = matmul(a1, a) a3 = matmul(a2, a)
    b0 = matmul(x, b) b1 = matmul(b0, b) b2 = matmul(b1, b) b3 = matmul(b2, b)
    y = binary(a3, b3) {kind="add"}
    output "y" = y
  })",
                      "two towers");
}

}  // namespace

TEST_SUITE("exec/devices") {
  TEST_CASE("training: layers are spread over two devices, with the losses of one") {
    const std::vector<float> one = train("adversary:0", 4, four_layers());
    for (const uint32_t mode :
         {TENON_EXEC_DEFAULT, TENON_EXEC_STREAM, TENON_EXEC_GRAPH, TENON_EXEC_EAGER}) {
      CAPTURE(mode);
      Store store(runtime());
      set_weights(store, four_layers());
      const Graph graph = lm::train_graph(four_layers(), {.batch = kBatch});
      store.add_missing(graph);
      const Executable executable(runtime(), graph, store, {.device = kBoth, .exec_mode = mode});
      Context run(executable);
      std::vector<float> losses;
      for (int64_t step = 0; step < 4; ++step) {
        run.set("tokens", {kBatch, four_layers().context + 1}, tokens_of(four_layers(), step));
        run.set("lr", 3e-3f);
        run.run();
        losses.push_back(run.get_scalar<float>("loss"));
      }
      CHECK(losses == one);

      // Layers stay whole, in their order; the gradients are with them.
      const auto places = places_of(executable);
      std::vector<std::string> of_layer;
      for (int layer = 0; layer < 4; ++layer) {
        const std::string name = "model.layers." + std::to_string(layer);
        of_layer.push_back(places.at(name + ".self_attn.o_proj"));
        CHECK(places.at("grad of " + name + ".mlp.down_proj") ==
              places.at(name + ".mlp.down_proj"));
      }
      CHECK(std::ranges::is_sorted(of_layer));
      CHECK(of_layer.front() == "adversary:0");
      CHECK(of_layer.back() == "adversary:1");
      const uint64_t first = needed_on(executable, "adversary:0"),
                     second = needed_on(executable, "adversary:1");
      CHECK(std::max(first, second) < 3 * std::min(first, second));
    }
  }

  TEST_CASE("limits: what one device may not hold trains on two; what none may hold is refused") {
    const Graph graph = lm::train_graph(four_layers(), {.batch = kBatch});
    uint64_t alone = 0;
    {
      Store store(runtime());
      set_weights(store, four_layers());
      store.add_missing(graph);
      const Executable whole(runtime(), graph, store, {.device = "adversary:0"});
      alone = needed_on(whole, "adversary:0");
    }
    const uint64_t limit = alone * 2 / 3;
    const std::string why =
        failure_of(graph, {.device = "adversary:0", .memory_limits = {limit}}, TENON_OUT_OF_MEMORY);
    CHECK(says(why, {"adversary:0: the graph needs", "weights", "its limit is"}));
    CHECK(says(failure_of(graph, {.device = kBoth, .memory_limits = {alone / 4, alone / 4}},
                          TENON_OUT_OF_MEMORY),
               {"adversary:", "its limit is"}));

    Store store(runtime());
    set_weights(store, four_layers());
    store.add_missing(graph);
    // Unequal limits: the second device gets the larger part.
    const Executable split(runtime(), graph, store,
                           {.device = kBoth, .memory_limits = {limit * 3 / 4, limit}});
    CHECK(needed_on(split, "adversary:0") <= limit * 3 / 4);
    CHECK(needed_on(split, "adversary:1") <= limit);
    CHECK(memory_on(split, "adversary:1")["limit"] == limit);
    CHECK(memory_on(split, "cpu:0")["limit"] == 0);
    Context run(split);
    std::vector<float> losses;
    for (int64_t step = 0; step < 3; ++step) {
      run.set("tokens", {kBatch, four_layers().context + 1}, tokens_of(four_layers(), step));
      run.set("lr", 3e-3f);
      run.run();
      losses.push_back(run.get_scalar<float>("loss"));
    }
    CHECK(losses == train("adversary:0", 3, four_layers()));
  }

  TEST_CASE("homes: executables of one store agree on where weights and state are") {
    const std::vector<int64_t> one = generate("adversary:0", 12, 5, {});
    CHECK(generate(kBoth, 12, 5, {}) == one);

    Store store(runtime());
    set_weights(store, four_layers());
    const Graph training = lm::train_graph(four_layers(), {.batch = kBatch}),
                decoding = lm::decode_graph(four_layers(), {});
    store.add_missing(training);
    store.add_missing(decoding);
    // Two thirds on the second one, which no graph would choose by itself.
    const Executable first(runtime(), training, store,
                           {.device = kBoth, .memory_limits = {2 << 20, 4 << 20}});
    const Executable second(runtime(), decoding, store, {.device = kBoth});
    const auto places = places_of(first), after = places_of(second);
    for (int layer = 0; layer < 4; ++layer)
      for (const char* node : {".self_attn.o_proj", ".mlp.down_proj"}) {
        const std::string name = "model.layers." + std::to_string(layer) + node;
        CHECK(after.at(name) == places.at(name));
      }
    // Each weight is on one device; those of norms on the cpu, because the adversary has no rsqrt.
    uint64_t weights = 0, placed = 0;
    for (const auto& w : decoding.named(TENON_SPACE_WEIGHT))
      weights += 4 * static_cast<uint64_t>(decoding.type(w.value).elements());
    for (const char* device : {"adversary:0", "adversary:1", "cpu:0"})
      placed += memory_on(second, device)["weights"].get<uint64_t>();
    CHECK(placed == weights);
  }

  TEST_CASE("store: contents move to whichever executable runs, and are right everywhere") {
    const Graph count = Graph::parse(R"(graph {
      input x: f32[8]
      state s: f32[8]
      state t: f32[8]
      a = binary(s, x) {kind="add"}
      b = binary(t, a) {kind="add"}
      update s = a
      update t = b
      output "b" = b
    })",
                                     "count");
    Store store(runtime());
    store.add_missing(count);
    const Executable both(runtime(), count, store, {.device = kBoth}),
        one(runtime(), count, store, {.device = "cpu:0"});
    Context first(both), second(one);
    float s = 0, t = 0;
    for (int i = 0; i < 6; ++i) {
      Context& run = i % 2 ? second : first;
      const auto x = static_cast<float>(i + 1);
      run.set("x", std::vector<float>(8, x));
      run.run();
      s += x, t += s;
      CHECK(run.get<float>("b") == std::vector<float>(8, t));
      CHECK(store.get<float>(TENON_SPACE_STATE, "s") == std::vector<float>(8, s));
    }
    std::set<std::string> used;
    for (const auto& [name, device] : places_of(both)) used.insert(device);
    CHECK(used == std::set<std::string>{"adversary:0", "adversary:1"});
  }

  TEST_CASE("pins: nodes go where the app says, by any list of plugins") {
    const Graph graph = two_towers();
    Store store(runtime());
    std::vector<float> a = noise_of(1, 64 * 64), b = noise_of(2, 64 * 64), x = noise_of(3, 64 * 64);
    for (auto* v : {&a, &b, &x})
      for (float& f : *v) f /= 8;
    store.set(TENON_SPACE_WEIGHT, "a", {64, 64}, a);
    store.set(TENON_SPACE_WEIGHT, "b", {64, 64}, b);
    const auto result = [&](const ExecutableOptions& options) {
      const Executable executable(runtime(), graph, store, options);
      Context run(executable);
      run.set("x", {64, 64}, x);
      run.run();
      return run.get<float>("y");
    };
    const std::vector<float> y = result({.device = "template:0"});
    CHECK(furthest(result({.device = "template:0,adversary:1,cpu"}), y) < 1e-4);
    for (const ExecutableOptions& options : std::vector<ExecutableOptions>{
             {.device = "cpu:0,template:0", .pins = {{"b?", "template:0"}}},
             {.device = "cpu:0,adversary:0,template:0",
             .pins = {{"[ab]1", "adversary:0"}, {"*[02]", "template"}}},
             {.device = "adversary:1,adversary:0", .pins = {{"a*", "adversary:0"}}}}) {
      const Executable executable(runtime(), graph, store, options);
      const auto places = places_of(executable);
      if (options.pins.size() == 1) {
        for (const auto& [name, device] : places)
          if (name[0] == options.pins[0].first[0]) CHECK(device == options.pins[0].second);
      } else {
        CHECK(places.at("a1") == "adversary:0");
        CHECK(places.at("b1") == "adversary:0");
        CHECK(places.at("a0") == "template:0");
        CHECK(places.at("y") == "template:0");  // with a3, whose weight a2 has there
      }
      CHECK(furthest(result(options), y) < 1e-4);
    }
    const Log log;
    const Executable idle(runtime(), graph, store,
                          {.device = "cpu:0", .pins = {{"layer*", "cpu:0"}}});
    CHECK(log.says("pin 'layer*': no node has a name that matches"));
    CHECK(json::parse(idle.report())["remarks"][0] ==
          "pin 'layer*': no node has a name that matches");
  }

  TEST_CASE("refusals: the next device of the list takes what one refuses, the cpu comes last") {
    // The adversary has no cumsum.
    const Graph graph = Graph::parse(R"(graph { input x: f32[4,8]
      e = unary(x) {kind="exp"} c = cumsum(e) {axis=1} output "c" = c })",
                                     "cumsum");
    const auto place = [&](const std::string& list, bool fallback) {
      Store store(runtime());
      const Executable executable(runtime(), graph, store,
                                  {.device = list, .allow_fallback = fallback});
      const json report = json::parse(executable.report());
      for (const json& n : report["nodes"])
        if (n["name"] == "c") {
          CHECK(n["verdict"] == "fallback");
          CHECK(says(n["reason"], {"does not sum up"}));
          return n["device"].get<std::string>();
        }
      return std::string();
    };
    CHECK(place("adversary:0", true) == "cpu:0");
    CHECK(place("adversary:0,template:0", true) == "template:0");
    CHECK(place("adversary:0,template:0", false) == "template:0");
    CHECK(place("adversary:0,adversary:1,template:0", false) == "template:0");
    CHECK(place("adversary:0,cpu,template:0", true) == "cpu:0");
    CHECK(says(failure_of(graph, {.device = kBoth, .allow_fallback = false}, TENON_UNSUPPORTED),
               {"cumsum 'c'", "adversary:0: ", "adversary:1: "}));
  }

  TEST_CASE("lists: what is wrong with one is said") {
    const Graph graph = two_towers();
    CHECK(says(failure_of(graph, {.device = "adversary:0,"}), {"an empty one"}));
    CHECK(says(failure_of(graph, {.device = ",adversary:0"}), {"an empty one"}));
    CHECK(says(failure_of(graph, {.device = "adversary:0,auto"}), {"'auto', which stands alone"}));
    CHECK(says(failure_of(graph, {.device = "adversary:0,template,adversary"}),
               {"adversary:0 is named twice"}));
    CHECK(says(failure_of(graph, {.device = "adversary:0,nothing:0"}, TENON_NOT_FOUND),
               {"nothing:0"}));
    CHECK(says(failure_of(graph, {.device = kBoth, .pins = {{"a*", "cpu:0"}}}),
               {"pin 'a*'", "adversary:0, adversary:1", "got 'cpu:0'"}));
    CHECK(says(failure_of(graph, {.device = kBoth, .memory_limits = {1, 2, 3}}),
               {"memory limits", "2 devices, got 3"}));
  }

  TEST_CASE("at once: parts that nothing orders overlap") {
    const Graph graph = two_towers();
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "a", {64, 64}, noise_of(1, 64 * 64));
    store.set(TENON_SPACE_WEIGHT, "b", {64, 64}, noise_of(2, 64 * 64));
    const Executable executable(runtime(), graph, store, {.device = kBoth});
    Context run(executable);
    run.set("x", {64, 64}, noise_of(3, 64 * 64));
    // Which thread is when given a processor is chance; two regions in a row would never overlap.
    bool overlapped = false;
    for (int i = 0; i < 200 && !overlapped; ++i) {
      runtime().start_trace();
      run.run();
      std::map<std::string, std::pair<double, double>> spans;  // by device: of the regions
      const json trace = json::parse(runtime().stop_trace());
      for (const json& e : trace["traceEvents"]) {
        if (e["ph"] != "X" || !e.contains("args") || !e["args"].contains("device")) continue;
        const double begin = e["ts"], end = begin + e["dur"].get<double>();
        const auto [at, fresh] =
            spans.try_emplace(e["args"]["device"].get<std::string>(), begin, end);
        if (!fresh) {
          at->second.first = std::min(at->second.first, begin);
          at->second.second = std::max(at->second.second, end);
        }
      }
      if (spans.size() < 2) continue;
      const auto &a = spans.begin()->second, &b = spans.rbegin()->second;
      overlapped = std::max(a.first, b.first) < std::min(a.second, b.second);
    }
    CHECK(overlapped);
  }

  TEST_CASE("bound memory: an input that two devices read, and outputs of both") {
    const Graph graph = Graph::parse(R"(graph {
      input x: f32[64,64]
      weight a: f32[64,64]
      weight b: f32[64,64]
      p = matmul(x, a)
      q = matmul(x, b)
      output "p" = p
      output "q" = q
    })",
                                     "both");
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "a", {64, 64}, noise_of(1, 64 * 64));
    store.set(TENON_SPACE_WEIGHT, "b", {64, 64}, noise_of(2, 64 * 64));
    const auto run_on = [&](const std::string& device, std::vector<float>& x, bool bound) {
      const Executable executable(runtime(), graph, store, {.device = device});
      Context run(executable);
      std::vector<float> p(64 * 64), q(64 * 64);
      if (bound) {
        run.bind("x", {64, 64}, std::span(x));
        run.bind("p", {64, 64}, std::span(p));
        run.bind("q", {64, 64}, std::span(q));
      } else {
        run.set("x", {64, 64}, x);
      }
      for (int i = 0; i < 3; ++i) {
        x[0] = static_cast<float>(i);
        if (!bound) run.set("x", {64, 64}, x);
        run.run();
      }
      return bound ? std::pair(p, q) : std::pair(run.get<float>("p"), run.get<float>("q"));
    };
    std::vector<float> x = noise_of(3, 64 * 64);
    CHECK(run_on(kBoth, x, true) == run_on("adversary:0", x, false));
  }
}
