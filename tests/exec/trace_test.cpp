// SPDX-License-Identifier: Apache-2.0
// The trace of runs: what its JSON says, and that it hinders nobody.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
using nlohmann::json;

namespace {

// y = gelu(x·w + b), then its softmax. x [4,6], w [6,8].
struct Model {
  Graph g{"small"};
  Store store{runtime()};
  Model() {
    const Value x = g.input("x", {f32, {4, 6}}), w = g.weight("w", {f32, {6, 8}}),
                b = g.weight("b", {f32, {8}});
    const Value z = g.add(op::matmul{.a = x, .b = w}, "fc");
    const Value y = g.add(op::binary{.kind = "add", .a = z, .b = b}, "fc.bias");
    const Value h = g.add(op::unary{.kind = "gelu", .x = y}, "act");
    g.output("y", g.add(op::softmax{.x = h}, "top"));
    store.set(TENON_SPACE_WEIGHT, "w", {6, 8}, std::vector<float>(48, 0.5f));
    store.set(TENON_SPACE_WEIGHT, "b", {8}, std::vector<float>(8, 0.25f));
  }
  Executable on(const std::string& device) const {
    return Executable(runtime(), g, store, {.device = device});
  }
};

void set_x(Context& context) { context.set("x", {4, 6}, std::vector<float>(24, 1)); }

// Checks what every trace must have; returns the slices, and the names of processes.
struct Parsed {
  std::vector<json> slices;
  std::map<int, std::string> processes;

  explicit Parsed(const std::string& text) {
    const json all = json::parse(text);
    for (const json& e : all.at("traceEvents")) {
      if (e.at("ph") == "M") {
        if (e.at("name") == "process_name") processes[e.at("pid")] = e.at("args").at("name");
        continue;
      }
      REQUIRE(e.at("ph") == "X");
      CHECK(e.at("ts").get<double>() >= 0);
      CHECK(e.at("dur").get<double>() >= 0);
      slices.push_back(e);
    }
    check_nesting();
  }
  std::vector<json> of(const std::string& category) const {
    std::vector<json> out;
    for (const json& e : slices)
      if (e.at("cat") == category) out.push_back(e);
    return out;
  }

 private:
  // Those of one thread are nested or apart, and come with the outer one first.
  void check_nesting() const {
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> open;
    for (const json& e : slices) {
      auto& stack = open[{e.at("pid"), e.at("tid")}];
      const double begin = e.at("ts"), end = begin + e.at("dur").get<double>();
      constexpr double kRounding = 0.0005;
      while (!stack.empty() && stack.back().second <= begin + kRounding) stack.pop_back();
      if (!stack.empty()) CHECK(end <= stack.back().second + kRounding);
      stack.push_back({begin, end});
    }
  }
};

double sum_of(const std::vector<json>& slices) {
  double sum = 0;
  for (const json& e : slices) sum += e.at("dur").get<double>();
  return sum;
}

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

TEST_SUITE("exec/trace") {
  TEST_CASE("a run on the cpu: its steps by name, in order, within the region, within the run") {
    Model m;
    const Executable executable = m.on("cpu:0");
    Context context(executable);
    set_x(context);
    context.run();
    const auto start = std::chrono::steady_clock::now();
    runtime().start_trace();
    for (int i = 0; i < 3; ++i) context.run();
    const Parsed trace(runtime().stop_trace());
    const double wall =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    context.run();  // leaves nothing

    const auto runs = trace.of("run"), regions = trace.of("region"), steps = trace.of("step");
    REQUIRE(runs.size() == 3);
    REQUIRE(regions.size() == 3);
    REQUIRE(steps.size() == 6);
    CHECK(sum_of(runs) <= wall);
    for (size_t r = 0; r < 3; ++r) {
      CHECK(runs[r].at("name") == "run small");
      CHECK(regions[r].at("args").at("measured") == true);
      const json &first = steps[2 * r], &second = steps[2 * r + 1];
      for (const json* e : {&first, &second, &regions[r]}) {
        CHECK(e->at("args").at("run") == runs[r].at("args").at("run"));
        CHECK(e->at("args").at("device") == "cpu:0");
        CHECK(e->at("tid") == runs[r].at("tid"));
        CHECK(e->at("pid") == runs[r].at("pid"));
      }
      CHECK(first.at("ts").get<double>() + first.at("dur").get<double>() <=
            second.at("ts").get<double>() + 0.0005);
      CHECK(first.at("dur").get<double>() + second.at("dur").get<double>() <=
            regions[r].at("dur").get<double>() + 0.0005);
      CHECK(regions[r].at("dur").get<double>() <= runs[r].at("dur").get<double>() + 0.0005);
    }
    const json fc = steps[0].at("args"), top = steps[1].at("args");
    CHECK(fc.at("op") == "linear");
    CHECK(fc.at("node") == "fc");
    CHECK(fc.at("provenance") == "fc");
    CHECK(fc.at("note") == "joined: matmul + binary add + unary gelu");
    CHECK(fc.at("bytes") == 4 * (4 * 6 + 6 * 8 + 8 + 4 * 8));
    CHECK(top.at("op") == "softmax");
    CHECK(top.at("node") == "top");
    CHECK(top.at("bytes") == 4 * 2 * 4 * 8);
    CHECK(!top.contains("flops"));
  }

  TEST_CASE("what goes to the device and comes back is there by name and size, and nothing twice") {
    Model m;
    const Executable executable = m.on("cpu:0");
    Context context(executable);
    const auto traced = [&] {
      runtime().start_trace();
      context.run();
      context.get<float>("y");
      return Parsed(runtime().stop_trace());
    };
    set_x(context);
    const Parsed first = traced();
    set_x(context);
    const Parsed second = traced(), third = traced();
    const auto is = [](const json& e, const char* name, uint64_t bytes) {
      return e.at("name") == name && e.at("args").at("bytes") == bytes;
    };
    REQUIRE(first.of("write").size() == 1);
    CHECK(is(first.of("write")[0], "write x", 4 * 4 * 6));
    std::vector<json> fills = first.of("fill");
    REQUIRE(fills.size() == 2);
    CHECK(is(fills[0], "fill b", 4 * 8) != is(fills[1], "fill b", 4 * 8));
    CHECK(is(fills[0], "fill w", 4 * 6 * 8) != is(fills[1], "fill w", 4 * 6 * 8));
    CHECK(second.of("write").size() == 1);
    CHECK(third.of("write").empty());
    for (const Parsed* p : {&second, &third}) {
      CHECK(p->of("fill").empty());
      REQUIRE(p->of("read").size() == 1);
      CHECK(is(p->of("read")[0], "read y", 4 * 4 * 8));
      CHECK(p->of("read")[0].at("args").at("run") == p->of("run")[0].at("args").at("run"));
    }
  }

  TEST_CASE("a device with streams that does not measure: one slice per region, on its own track") {
    Model m;
    const Executable executable = m.on("adversary:0");
    Context context(executable);
    set_x(context);
    for (const bool async : {false, true}) {
      CAPTURE(async);
      runtime().start_trace();
      if (async) context.run_async(), context.wait();
      if (!async) context.run();
      const Parsed trace(runtime().stop_trace());
      CHECK(trace.of("run").size() >= 1);
      std::vector<json> on_device;
      for (const json& e : trace.of("region"))
        if (trace.processes.at(e.at("pid")) == "adversary:0") on_device.push_back(e);
      REQUIRE(!on_device.empty());
      for (const json& e : on_device) CHECK(e.at("args").at("measured") == false);
      for (const json& e : trace.of("step")) CHECK(e.at("args").at("device") != "adversary:0");
    }
  }

  TEST_CASE("a training step with fallbacks: copies are there, and every node has its name") {
    Store store(runtime());
    set_weights(store, small_model());
    Trainer trainer("adversary:0", store);
    trainer.step(0);
    runtime().start_trace();
    const float traced = trainer.step(1);
    const Parsed trace(runtime().stop_trace());
    CHECK(std::isfinite(traced));
    CHECK(!trace.of("copy").empty());
    CHECK(!trace.of("wait").empty());
    CHECK(trace.of("bind").size() == 1);
    for (const json& e : trace.of("step")) {
      CHECK(!e.at("name").get<std::string>().empty());
      CHECK(e.at("args").contains("op"));
      CHECK(!e.at("args").at("node").get<std::string>().empty());
    }
  }

  TEST_CASE("threads: each has its own track, and a trace changes no result") {
    Model m;
    const Executable executable = m.on("cpu:0");
    Context plain(executable);
    set_x(plain);
    plain.run();
    const auto expected = plain.get<float>("y");
    runtime().start_trace();
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        Context context(executable);
        set_x(context);
        for (int i = 0; i < 20; ++i) {
          if (i % 2) context.run_async(), context.wait();
          if (i % 2 == 0) context.run();
          wrong += context.get<float>("y") != expected;
        }
      });
    for (auto& t : threads) t.join();
    const Parsed trace(runtime().stop_trace());
    CHECK(wrong == 0);
    CHECK(trace.of("region").size() == 80);
    CHECK(trace.of("step").size() == 160);
  }

  TEST_CASE("a run that fails leaves a record that says so") {
    Graph g("bad");
    const Value rows = g.input("rows", {f32, {3, 2}}), at = g.input("at", {i64, {1}});
    g.output("y", g.add(op::gather{.data = rows, .indices = at}, "pick"));
    const Store store(runtime());
    const Executable executable(runtime(), g, store, {.device = "cpu:0"});
    Context context(executable);
    context.set("rows", {3, 2}, std::vector<float>(6, 1));
    context.set("at", std::vector<int64_t>{7});
    runtime().start_trace();
    CHECK_THROWS_AS(context.run(), Error);
    const Parsed trace(runtime().stop_trace());
    REQUIRE(trace.of("run").size() == 1);
    CHECK(trace.of("run")[0].at("args").at("failed") == true);
    CHECK(trace.of("step").empty());
  }

  TEST_CASE("limits and misuse: one trace at a time, what is over the limit is counted") {
    Model m;
    const Executable executable = m.on("cpu:0");
    Context context(executable);
    set_x(context);
    context.run();  // those that follow write nothing
    CHECK(says(error_of([] { runtime().stop_trace(); }), {"none is recording"}));
    runtime().start_trace(12);  // room for two runs: run, bind, region and two steps each
    CHECK(says(error_of([] { runtime().start_trace(); }), {"one is recording already"}));
    for (int i = 0; i < 5; ++i) context.run();
    const json all = json::parse(runtime().stop_trace());
    CHECK(all.at("otherData").at("runs") == 2);
    CHECK(all.at("otherData").at("dropped_runs") == 3);
  }

  TEST_CASE("save: written beside and renamed; a bad path is told and the trace goes on") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("tenon_trace_" + std::to_string(getpid()));
    fs::create_directory(folder);
    const std::string path = folder / "trace.json";
    std::ofstream(path) << "older";
    Model m;
    const Executable executable = m.on("cpu:0");
    Context context(executable);
    set_x(context);
    runtime().start_trace();
    context.run();
    CHECK(says(error_of([&] { runtime().save_trace((folder / "none" / "t.json").string()); }),
               {"none/t.json"}));
    CHECK(content_of(path) == "older");
    runtime().save_trace(path);
    CHECK(Parsed(content_of(path)).of("step").size() == 2);
    CHECK(std::distance(fs::directory_iterator(folder), {}) == 1);
    fs::remove_all(folder);
  }
}
