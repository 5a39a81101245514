// SPDX-License-Identifier: Apache-2.0
// Claims that depend on what stands beside a node: groups, costs, and claims that are taken back
// when the region is seen. Results are those of cpu:0.
#include <atomic>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using nlohmann::json;

struct Outcome {
  std::vector<float> y;
  json report;

  const json& node(std::string_view name) const {
    for (const json& n : report["nodes"])
      if (n["name"] == name) return n;
    FAIL("no node ", std::string(name), " in ", report["nodes"].dump());
    return report;
  }
  size_t count(std::string_view op) const {
    size_t n = 0;
    for (const json& r : report["nodes"]) n += r["op"] == op;
    return n;
  }
};

Outcome outcome(const std::string& device, const std::string& text, bool fallback = true) {
  const Graph g = Graph::parse(text, "claims");
  Store store(runtime());
  const Executable executable(runtime(), g, store, {.device = device, .allow_fallback = fallback});
  Context run(executable);
  std::vector<float> x(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(noise(1, i));
  run.set("x", {4, 6}, x);
  run.run();
  return {run.get<float>("y"), json::parse(executable.report())};
}

Outcome checked(const std::string& text, bool fallback = true) {
  Outcome seen = outcome("fickle:0", text, fallback);
  const Outcome expected = outcome("cpu:0", text);
  REQUIRE(seen.y.size() == expected.y.size());
  for (size_t i = 0; i < seen.y.size(); ++i)
    CHECK(seen.y[i] == doctest::Approx(expected.y[i]).epsilon(1e-5));
  return seen;
}

std::string graph(const std::string& statements) {
  return "graph { input x: f32[4,6] const two: f32[] = {2} " + statements + " output \"y\" = y }";
}

}  // namespace

TEST_SUITE("exec/claims") {
  TEST_CASE("group: taken whole") {
    const Outcome o = checked(graph(R"(
      e = unary(x) {kind="exp"} @ "e" y = reduce(e) {kind="sum", axes=[1]} @ "s")"));
    CHECK(o.node("e")["verdict"] == "native");
    CHECK(o.node("s")["verdict"] == "native");
    CHECK(o.report["regions"].size() == 1);
  }

  TEST_CASE("group: refused whole, when one of it is refused") {
    const Outcome o = checked(graph(R"(
      e = unary(x) {kind="exp"} @ "e" y = reduce(e) {kind="sum", axes=[0]} @ "s")"));
    CHECK(o.node("e")["verdict"] == "fallback");
    CHECK(o.node("e")["reason"] == "claimed only together with a node that is refused");
    CHECK(o.node("s")["verdict"] == "fallback");
    CHECK(o.node("s")["reason"] == "sums along the last axis only");
  }

  TEST_CASE("group: no region takes a node out of it") {
    const Outcome o = checked(graph(R"(
      a = binary(x, two) {kind="mul"} b = binary(a, x) {kind="add"}
      e = unary(b) {kind="exp"} @ "e" s = reduce(e) {kind="sum", axes=[1], keepdims=true} @ "s"
      d = binary(e, s) {kind="div"} y = binary(d, x) {kind="add"})"));
    CHECK(o.node("e")["op"] == "unary");
    CHECK(o.node("s")["op"] == "reduce");
    CHECK(o.count("elementwise_region") == 2);
    CHECK(o.report["regions"].size() == 1);
  }

  TEST_CASE("cost: what its device calls dear is decomposed, a group among its parts") {
    const Outcome o = checked(graph(R"(y = softmax(x) {axis=1} @ "p")"));
    CHECK(o.node("p")["verdict"] == "decomposed");
    CHECK(says(o.node("p")["reason"], {"would take 1e+06 us", "otherwise it is"}));
    CHECK(o.report["regions"].size() == 1);
    CHECK(o.report["regions"][0]["device"] == "fickle:0");
  }

  TEST_CASE("withdrawn: a region too many is taken apart, and the report says so") {
    const Outcome o = checked(graph(R"(
      a = binary(x, two) {kind="mul"} b = binary(a, x) {kind="add"}
      m = reduce(b) {kind="max", axes=[1], keepdims=true}
      c = binary(x, m) {kind="sub"} d = unary(c) {kind="abs"}
      n = reduce(d) {kind="prod", axes=[1], keepdims=true}
      e = binary(x, n) {kind="mul"} f = binary(e, two) {kind="add"} @ "f"
      o = reduce(f) {kind="min", axes=[1], keepdims=true} @ "o"
      g = unary(f) {kind="neg"} @ "g" y = binary(g, o) {kind="sub"} @ "y")"));
    CHECK(o.count("elementwise_region") == 2);
    CHECK(says(o.report.dump(),
               {"claimed at first, refused in its region: two fused nodes are enough"}));
    for (const json& n : o.report["nodes"]) CHECK(n["verdict"] == "native");
  }

  TEST_CASE("withdrawn: a node goes elsewhere, and says why") {
    const Outcome o = checked(graph(R"(
      a = binary(x, two) {kind="mul"} b = binary(a, x) {kind="add"}
      m = cumsum(b) {axis=1} t = unary(m) {kind="tanh"} @ "t" y = cumsum(t) {axis=1})"));
    CHECK(o.count("elementwise_region") == 1);
    CHECK(o.node("t")["verdict"] == "fallback");
    CHECK(o.node("t")["reason"] ==
          "claimed at first, refused in its region: tanh only without fused nodes");
  }

  TEST_CASE("withdrawn: a kernel that does not build, its node is decomposed or goes elsewhere") {
    const Log log;
    const Outcome o = checked(graph(R"(
      m = cumsum(x) {axis=1} g = unary(m) {kind="gelu"} @ "g" n = cumsum(g) {axis=1}
      t = unary(n) {kind="atan"} @ "t" k = cumsum(t) {axis=1} y = unary(k) {kind="ceil"} @ "c")"));
    CHECK(o.node("g")["verdict"] == "decomposed");
    CHECK(o.node("g")["reason"] == "unary_gelu does not build: line 1: unknown function gelu");
    for (const char* name : {"t", "c"}) CHECK(o.node(name)["verdict"] == "fallback");
    CHECK(says(o.node("t")["reason"], {"unary_atan does not build"}));
    CHECK(
        says(o.report["remarks"].dump(), {"fickle: compile", "unary_", "its claim is withdrawn"}));
    CHECK(log.says("its claim is withdrawn"));
  }

  TEST_CASE("withdrawn: for nodes of this form only, and for the life of the device") {
    const std::string few =
        "input few: f32[3,6] n = unary(few) {kind=\"ceil\"} @ \"n\" output \"few\" = n";
    for (int i = 0; i < 2; ++i) {
      const Graph g =
          Graph::parse(graph(R"(y = unary(x) {kind="ceil"} @ "large" )" + few), "forms");
      Store store(runtime());
      const json report =
          json::parse(Executable(runtime(), g, store, {.device = "fickle:0"}).report());
      for (const json& n : report["nodes"])
        CHECK(n["verdict"] == (n["name"] == "large" ? "fallback" : "native"));
    }
  }

  TEST_CASE("withdrawn: a kernel that does not build for strides reads a dense copy") {
    const Outcome o = checked(graph(R"(
      p = transpose(x) {perm=[1,0]} f = unary(p) {kind="floor"} @ "strided"
      q = transpose(f) {perm=[1,0]} d = unary(x) {kind="floor"} @ "dense"
      y = binary(q, d) {kind="add"})"));
    for (const char* name : {"strided", "dense"}) CHECK(o.node(name)["verdict"] == "native");
  }

  TEST_CASE("withdrawn: by another thread between query and compile") {
    const Graph g = Graph::parse(graph(R"(
      m = unary(x) {kind="gelu"} @ "g" n = cumsum(m) {axis=1} y = unary(n) {kind="atan"} @ "t")"),
                                 "threads");
    for (int round = 0; round < 20; ++round) {
      // A device of its own, which has withdrawn nothing yet.
      const Runtime fresh({.plugin_files = {TENON_TEST_PLUGINS "/tenon_plugin_fickle.so"},
                           .threads = 2,
                           .use_environment = false});
      Store store(fresh);
      std::atomic<int> planned = 0;
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
          const std::string text = error_of([&] {
            const Executable executable(fresh, g, store, {.device = "fickle:0"});
            ++planned;
          });
          if (text != "no error") MESSAGE(text);
        });
      for (std::thread& t : threads) t.join();
      CHECK(planned == 4);
    }
  }

  TEST_CASE("withdrawn: without fallback the error names the kernel and why it does not build") {
    const std::string text = error_of([&] {
      outcome("fickle:0", graph(R"(m = cumsum(x) {axis=1} y = unary(m) {kind="atan"} @ "t")"),
              false);
    });
    CHECK(says(text, {"'t'", "unary_atan does not build: line 1: unknown function atan"}));
  }

  TEST_CASE("withdrawn: with nowhere to go it is the joining that is given up") {
    const Outcome o = checked(graph(R"(
      a = binary(x, two) {kind="mul"} b = binary(a, x) {kind="add"}
      m = cumsum(b) {axis=1} t = unary(m) {kind="tanh"} @ "t" y = cumsum(t) {axis=1})"),
                              false);
    CHECK(o.count("elementwise_region") == 0);
    CHECK(o.node("t")["verdict"] == "native");
  }
}
