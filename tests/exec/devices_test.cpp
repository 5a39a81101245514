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
  tenon_code got = TENON_OK;
  const std::string why =
      error_of([&] { const Executable executable(runtime(), graph, store, options); }, &got);
  CHECK(got == code);
  return why;
}

Graph two_towers(int size = 64) {
  const std::string type = "f32[" + std::to_string(size) + "," + std::to_string(size) + "]";
  std::string text = "graph { input x: " + type + "\n";
  for (const std::string name : {"a", "b"}) text += "weight " + name + ": " + type + "\n";
  for (const std::string name : {"a", "b"}) {
    std::string last = "x";
    for (int k = 0; k < 4; ++k) {
      const std::string next = name + std::to_string(k);
      text += next + " = matmul(" + last + ", " + name + ")\n";
      last = next;
    }
  }
  return Graph::parse(text + "y = binary(a3, b3) {kind=\"add\"} output \"y\" = y }", "two towers");
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
      Trainer trainer({.device = kBoth, .exec_mode = mode}, store, four_layers(),
                      lm::train_graph(four_layers(), {.batch = kBatch}));
      CHECK(trainer.steps(4) == one);

      // Layers stay whole, in their order; the gradients are with them.
      const Executable& executable = trainer.executable();
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
    // Unequal limits: the second device gets the larger part.
    Trainer trainer({.device = kBoth, .memory_limits = {limit * 3 / 4, limit}}, store,
                    four_layers(), lm::train_graph(four_layers(), {.batch = kBatch}));
    const Executable& split = trainer.executable();
    CHECK(needed_on(split, "adversary:0") <= limit * 3 / 4);
    CHECK(needed_on(split, "adversary:1") <= limit);
    CHECK(memory_on(split, "adversary:1")["limit"] == limit);
    CHECK(memory_on(split, "cpu:0")["limit"] == 0);
    CHECK(trainer.steps(3) == train("adversary:0", 3, four_layers()));
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

  TEST_CASE("homes: what only the optimizer reads is with its weight, in a graph of its own too") {
    lm::Config half = four_layers();
    half.dtype = bf16;
    const Graph accumulating = lm::accumulate_graph(half, {.batch = kBatch}),
                applying = lm::apply_graph(half, {.batch = kBatch});
    Store store(runtime());
    for (const auto& w : accumulating.named(TENON_SPACE_WEIGHT)) {
      const TensorType type = accumulating.type(w.value);
      const std::vector<uint16_t> ones(static_cast<size_t>(type.elements()), 0x3F80);
      store.set(TENON_SPACE_WEIGHT, w.name, type, ones.data(), ones.size() * 2);
    }
    store.add_missing(accumulating);
    store.add_missing(applying);
    const Executable first(runtime(), accumulating, store,
                           {.device = kBoth, .memory_limits = {3 << 20, 6 << 20}}),
        second(runtime(), applying, store, {.device = kBoth});
    const auto places = places_of(first), after = places_of(second);
    for (int layer = 0; layer < 4; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".mlp.down_proj";
      CHECK(after.at("optimizer of " + name + ".weight") == places.at(name));
    }
    // Neither weights nor moments cross; the sum over all gradients does, and the factor of it.
    const json report = json::parse(second.report());
    uint64_t transfers = 0;
    for (const json& r : report["regions"]) transfers += r["transfers_in"].get<uint64_t>();
    CHECK(transfers <= 12);
  }

  TEST_CASE("shared: a small weight that all layers read draws none of them away") {
    std::string text = "graph { input x: f32[64,64] weight t: f32[64]\n";
    std::string last = "x";
    for (int k = 0; k < 4; ++k) text += "weight w" + std::to_string(k) + ": f32[64,64]\n";
    for (int k = 0; k < 4; ++k) {
      const std::string n = std::to_string(k);
      text += "m" + n + " = matmul(" + last + ", w" + n + ")\ns" + n + " = binary(m" + n +
              ", t) {kind=\"mul\"}\n";
      last = "s" + n;
    }
    const Graph graph = Graph::parse(text + "output \"y\" = " + last + " }", "shared");
    Store store(runtime());
    store.add_missing(graph);
    const auto regions = [&](const ExecutableOptions& options) {
      const Executable executable(runtime(), graph, store, options);
      return json::parse(executable.report())["regions"].size();
    };
    CHECK(regions({.device = kBoth}) == 2);
    CHECK(regions({.device = kBoth}) == 2);  // follows the first
    CHECK(regions({.device = "template:0,adversary:0", .pins = {{"?0", "adversary:0"}}}) == 2);
  }

  TEST_CASE("tiers: the next one gets nothing while there is room, whatever was estimated") {
    std::string text = "graph { weight w: f32[64,1024]\n", last = "w";
    for (int k = 0; k < 20; ++k) {
      const std::string next = "n" + std::to_string(k);
      text += next + " = unary(" + last + ") {kind=\"neg\"}\n";
      last = next;
    }
    const Graph graph =
        Graph::parse(text + "l = reduce(" + last +
                         ") {kind=\"sum\", axes=[0,1], keepdims=false} g = grad(l, w) "
                         "output \"g\" = g output \"l\" = l }",
                     "negations");
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "w", {64, 1024}, noise_of(1, 64 * 1024));
    const Executable executable(
        runtime(), graph, store,
        {.device = "adversary:0,template:0", .memory_limits = {2 << 20, 0}});
    for (const auto& [name, device] : places_of(executable)) CHECK(device == "adversary:0");
  }

  TEST_CASE("tiers: a later executable leaves weights where the first had to put them") {
    const Graph training = lm::train_graph(four_layers(), {.batch = kBatch}),
                decoding = lm::decode_graph(four_layers(), {});
    Store store(runtime());
    set_weights(store, four_layers());
    store.add_missing(training);
    store.add_missing(decoding);
    const Log log;
    const ExecutableOptions options{.device = "adversary:0,template:0",
                                    .memory_limits = {4 << 20, 0}};
    const Executable first(runtime(), training, store, options),
        second(runtime(), decoding, store, options);
    const auto places = places_of(first), after = places_of(second);
    std::set<std::string> used;
    for (int layer = 0; layer < 4; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".mlp.down_proj";
      CHECK(after.at(name) == places.at(name));
      used.insert(places.at(name));
    }
    CHECK(used == std::set<std::string>{"adversary:0", "template:0"});
    CHECK(!log.says("weights are on other devices"));
    // A limit that these places exceed moves some, and that is told.
    ExecutableOptions less = options;
    less.memory_limits = {needed_on(second, "adversary:0") * 3 / 4, 0};
    const Executable third(runtime(), decoding, store, less);
    CHECK(needed_on(third, "adversary:0") <= less.memory_limits[0]);
    CHECK(log.says("weights are on other devices"));
    CHECK(says(third.report(), {"weights are on other devices"}));
  }

  TEST_CASE(
      "derived: what a weight alone decides is made where it is taken, for readers anywhere") {
    // The adversary has no cumsum: c is made on another device, although w and e are here.
    const Graph graph = Graph::parse(R"(graph { input x: f32[4,8] weight w: f32[4,8]
      c = cumsum(w) {axis=1} e = binary(x, c) {kind="mul"} output "e" = e })",
                                     "derived");
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "w", {4, 8}, std::vector<float>(32, 1));
    for (const ExecutableOptions& options : std::vector<ExecutableOptions>{
             {.device = "adversary:0"},
             {.device = "adversary:0,template:0"},
             {.device = "cpu:0,adversary:0", .pins = {{"e", "adversary:0"}, {"c", "cpu:0"}}}}) {
      CAPTURE(options.device);
      const Executable executable(runtime(), graph, store, options);
      Context run(executable);
      run.set("x", {4, 8}, std::vector<float>(32, 2));
      run.run();
      const auto e = run.get<float>("e");
      for (size_t i = 0; i < e.size(); ++i) CHECK(e[i] == 2 * static_cast<float>(i % 8 + 1));
    }
  }

  TEST_CASE("control flow and symbols: on a list as on one device") {
    const Graph loop = Graph::parse(R"(graph { input x: f32[4] weight a: f32[4,4] weight b: f32[4,4]
      h = matmul(x, a)
      (c, ys) = scan([h]) {length=3, body=graph { input h: f32[4] t = unary(h) {kind="tanh"}
        d = binary(t, t) {kind="add"} output "0" = d output "1" = t }}
      y = matmul(c, b) l = reduce(y) {kind="sum", axes=[0], keepdims=false}
      (ga, gb) = grad(l, a, b) output "y" = y output "ga" = ga output "gb" = gb })",
                                    "loop");
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "a", {4, 4}, noise_of(1, 16));
    store.set(TENON_SPACE_WEIGHT, "b", {4, 4}, noise_of(2, 16));
    const auto outputs = [&](const std::string& list) {
      const Executable executable(runtime(), loop, store, {.device = list});
      std::set<std::string> used;
      for (const auto& [name, device] : places_of(executable)) used.insert(device);
      CHECK(used.contains("adversary:1") == (list == kBoth));
      Context run(executable);
      run.set("x", {4}, noise_of(3, 4));
      run.run();
      return std::tuple(run.get<float>("y"), run.get<float>("ga"), run.get<float>("gb"));
    };
    CHECK(outputs(kBoth) == outputs("adversary:0"));

    Graph symbolic("symbolic");
    const int64_t n = symbolic.symbol("N");
    Value v = symbolic.input("x", {f32, {n, 8}});
    for (int k = 0; k < 4; ++k)
      v = symbolic.add(
          op::matmul{.a = v, .b = symbolic.weight("w" + std::to_string(k), {f32, {8, 8}})});
    symbolic.output("y", v);
    for (int k = 0; k < 4; ++k)
      store.set(TENON_SPACE_WEIGHT, "w" + std::to_string(k), {8, 8},
                noise_of(static_cast<uint64_t>(k), 64));
    const Executable both(runtime(), symbolic, store, {.device = kBoth}),
        one(runtime(), symbolic, store, {.device = "adversary:0"});
    Context first(both), second(one);
    for (const int64_t rows : {3, 5, 3, 1}) {
      for (Context* run : {&first, &second}) {
        run->set("x", {rows, 8}, noise_of(9, static_cast<size_t>(rows) * 8));
        run->run();
      }
      CHECK(first.get<float>("y") == second.get<float>("y"));
    }
    CHECK(json::parse(both.report({{"N", 3}}))["regions"].size() == 2);
    CHECK(both.report({{"N", 3}}) == both.report({{"N", 3}}));
  }

  TEST_CASE("options: an older app's end before them, and missing arrays are told") {
    const Graph graph = two_towers();
    Store store(runtime());
    store.add_missing(graph);
    const auto failure = [&](const tenon_executable_options& o) {
      tenon_executable* handle = nullptr;
      const std::string why = error_of([&] {
        tenon::detail::check(tenon_executable_create(runtime().handle(), graph.handle(),
                                                     store.handle(), &o, &handle));
      });
      tenon_executable_destroy(handle);
      return why;
    };
    tenon_executable_options o{};
    o.device = {"cpu:0", 5};
    o.pin_count = 1, o.memory_limit_count = 1;  // behind the end of an older struct
    o.struct_size = offsetof(tenon_executable_options, pin_patterns);
    CHECK(failure(o) == "no error");
    o.struct_size = sizeof o;
    CHECK(says(failure(o), {"pin_patterns"}));
    o.pin_count = 0;
    CHECK(says(failure(o), {"memory_limits"}));
    const uint64_t limits[] = {0};
    o.memory_limits = limits;
    CHECK(failure(o) == "no error");
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
    std::vector<float> a = noise_of(1, 64 * 64), b = noise_of(2, 64 * 64), x = noise_of(3, 64 * 64);
    for (auto* v : {&a, &b, &x})
      for (float& f : *v) f /= 8;
    std::map<std::string, std::string> places;
    const auto result = [&](const ExecutableOptions& options) {
      Store store(runtime());  // of its own: what others chose counts for nothing
      store.set(TENON_SPACE_WEIGHT, "a", {64, 64}, a);
      store.set(TENON_SPACE_WEIGHT, "b", {64, 64}, b);
      const Executable executable(runtime(), graph, store, options);
      places = places_of(executable);
      Context run(executable);
      run.set("x", {64, 64}, x);
      run.run();
      return run.get<float>("y");
    };
    // Apart, of the largest.
    const auto apart = [](const std::vector<float>& p, const std::vector<float>& q) {
      double most = 0, largest = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(p[i]) - q[i]));
        largest = std::max(largest, std::abs(static_cast<double>(q[i])));
      }
      return most / largest;
    };
    const std::vector<float> y = result({.device = "template:0"});
    CHECK(apart(result({.device = "template:0,adversary:1,cpu"}), y) < 1e-5);
    for (const ExecutableOptions& options : std::vector<ExecutableOptions>{
             {.device = "cpu:0,template:0", .pins = {{"b?", "template:0"}}},
             {.device = "cpu:0,adversary:0,template:0",
             .pins = {{"[ab]1", "adversary:0"}, {"*[02]", "template"}}},
             {.device = "adversary:1,adversary:0", .pins = {{"a*", "adversary:0"}}}}) {
      CHECK(apart(result(options), y) < 1e-5);
      if (options.pins.size() == 1) {
        for (const auto& [name, device] : places)
          if (name[0] == options.pins[0].first[0]) CHECK(device == options.pins[0].second);
      } else {
        CHECK(places.at("a1") == "adversary:0");
        CHECK(places.at("b1") == "adversary:0");
        CHECK(places.at("a0") == "template:0");
        CHECK(places.at("y") == "cpu:0");
      }
    }
    const Log log;
    Store store(runtime());
    store.add_missing(graph);
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
    const Graph graph = two_towers(384);
    Store store(runtime());
    store.set(TENON_SPACE_WEIGHT, "a", {384, 384}, noise_of(1, 384 * 384));
    store.set(TENON_SPACE_WEIGHT, "b", {384, 384}, noise_of(2, 384 * 384));
    const Executable executable(runtime(), graph, store, {.device = kBoth});
    const json report = json::parse(executable.report());
    REQUIRE(report["regions"].size() == 3);
    CHECK(report["regions"][1]["transfers_in"] == 0);
    Context run(executable);
    run.set("x", {384, 384}, noise_of(3, 384 * 384));
    // Which thread gets a processor when is chance; regions in a row would never overlap.
    bool overlapped = false;
    for (int i = 0; i < 20 && !overlapped; ++i) {
      runtime().start_trace();
      run.run();
      const json trace = json::parse(runtime().stop_trace());
      // Each region is there twice: as the host saw it begin, and until its end on the device.
      std::map<std::string, std::pair<double, double>> spans;
      for (const json& e : trace["traceEvents"]) {
        const std::string name = e.value("name", "");
        if (name != "region 0" && name != "region 1") continue;
        const double begin = e["ts"], end = begin + e["dur"].get<double>();
        const auto [at, fresh] = spans.try_emplace(name, begin, end);
        at->second.second = std::max(at->second.second, end);
      }
      REQUIRE(spans.size() == 2);
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
