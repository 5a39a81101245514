// SPDX-License-Identifier: Apache-2.0
// Verdicts with devices that are lists of refused ops, and regions of random graphs.
#include "plan/rewrite/legalize.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"
#include "plan/memory/partition.hpp"
#include "plan/memory/schedule.hpp"

using namespace tenon::core;

namespace {

// A device that refuses these ops, and counts what it is asked.
struct Refusing {
  std::vector<std::set<std::string, std::less<>>> refused;  // per device
  std::vector<std::string> asked;

  Query query() {
    return [this](const Graph& graph, uint32_t d) {
      std::vector<Verdict> verdicts;
      for (NodeId n = 0; n < graph.node_count(); ++n) {
        const std::string name(graph[n].op->name());
        asked.push_back(name);
        Verdict v;
        v.native = !refused[d].contains(name);
        if (!v.native)
          v.reason = TENON_REASON_OP, v.text = "device " + std::to_string(d) + " has no " + name;
        verdicts.push_back(v);
      }
      return verdicts;
    };
  }
};

Graph three_ops() {
  Graph g;
  Builder b(g, "first");
  const Value x = g.input("x", {kF32, {4, 8}});
  const Value e = b.exp(x);
  b.provenance = "second";
  const Value s = b.add(op::softmax{.axis = 1, .x = e});
  b.provenance = "third";
  const Value c = b.add(op::cumsum{.axis = 1, .x = s});
  g.output("y", c);
  return g;
}

const NodeReport& of(const LegalGraph& legal, std::string_view name) {
  for (const NodeReport& r : legal.reports)
    if (r.name == name) return r;
  FAIL("no report of ", std::string(name));
  return legal.reports[0];
}

}  // namespace

TEST_SUITE("plan/legalize") {
  TEST_CASE("verdicts: native, decomposed and fallback, each with its reason") {
    Refusing device{.refused = {{"softmax", "cumsum"}, {}}, .asked = {}};
    const LegalGraph legal = legalize(three_ops(), {.devices = 2}, device.query());
    CHECK_NOTHROW(verify(legal.graph));
    CHECK(of(legal, "first").verdict == NodeVerdict::native);
    CHECK(of(legal, "first").reason == "");
    CHECK(of(legal, "second").verdict == NodeVerdict::decomposed);
    CHECK(of(legal, "second").reason == "device 0 has no softmax");
    CHECK(of(legal, "second").device == 0);
    CHECK(of(legal, "third").verdict == NodeVerdict::fallback);
    CHECK(of(legal, "third").reason == "device 0 has no cumsum");
    CHECK(of(legal, "third").device == 1);
    for (NodeId n = 0; n < legal.graph.node_count(); ++n) {
      const std::string_view name = legal.graph[n].op->name();
      CHECK(name != "softmax");
      CHECK(legal.graph[n].device == (name == "cumsum" ? 1u : 0u));
      CHECK(legal.reports[legal.graph[n].source].device == legal.graph[n].device);
    }
    CHECK(legal.graph.type(legal.graph.outputs()[0].value).text() == "f32[4,8]");
  }

  TEST_CASE("rates: what is only decomposed goes where it is cheaper, carried over and back") {
    // One device of fast memory, and one that is slow to reach; and the other way round.
    const auto rates = [](double copy, double step, double link) {
      return Rates{.copy = copy,
                   .run = step,
                   .step = step,
                   .fork = 0,
                   .to_device = link,
                   .from_device = link,
                   .transfer = 1e-6};
    };
    const auto legal_with = [](const std::vector<Rates>& known) {
      Refusing device{.refused = {{"softmax"}, {}}, .asked = {}};
      return legalize(three_ops(), {.devices = 2, .rates = known}, device.query());
    };
    const Rates quick = rates(1e12, 1e-7, 1e11), slow = rates(1e9, 1e-4, 1e11),
                far = rates(1e12, 1e-7, 1e3);
    const LegalGraph stays = legal_with({quick, slow});
    CHECK(of(stays, "second").verdict == NodeVerdict::decomposed);
    CHECK(of(stays, "second").device == 0);
    const LegalGraph goes = legal_with({slow, quick});
    CHECK_NOTHROW(verify(goes.graph));
    CHECK(of(goes, "first").device == 0);
    CHECK(of(goes, "second").verdict == NodeVerdict::fallback);
    CHECK(of(goes, "second").device == 1);
    CHECK(of(goes, "second")
              .reason.find(
                  "device 0 has no softmax; decomposed on the wanted device it would take") == 0);
    CHECK(of(goes, "third").device == 0);
    // The same device behind a slow link does not pay; nor does one whose rates are not known.
    CHECK(of(legal_with({slow, far}), "second").verdict == NodeVerdict::decomposed);
    CHECK(of(legal_with({slow}), "second").verdict == NodeVerdict::decomposed);
    CHECK(of(legal_with({}), "second").verdict == NodeVerdict::decomposed);
  }

  TEST_CASE("verdicts: without a second device the refusal names op, node and reason") {
    Refusing device{.refused = {{"cumsum"}}, .asked = {}};
    try {
      legalize(three_ops(), {.devices = 1}, device.query());
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Code::unsupported);
      for (const char* word : {"cumsum", "third", "device 0 has no cumsum"})
        CHECK_MESSAGE(std::string(e.what()).find(word) != std::string::npos, e.what());
    }
  }

  TEST_CASE(
      "verdicts: a refusal by both devices gives both reasons, and what the decomposition lacked") {
    Refusing device{.refused = {{"softmax", "reduce"}, {"softmax", "binary"}}, .asked = {}};
    try {
      legalize(three_ops(), {.devices = 2}, device.query());
      FAIL("accepted");
    } catch (const Error& e) {
      for (const char* word :
           {"second", "device 0 has no softmax", "device 0 has no reduce", "device 1 has no"})
        CHECK_MESSAGE(std::string(e.what()).find(word) != std::string::npos, e.what());
    }
  }

  TEST_CASE("several devices: each node on its own, what it refuses on the next in the list") {
    Graph g = three_ops();
    const auto want = [&](NodeId n, uint32_t device, bool pinned = false) {
      Marks marks = g[n];
      marks.device = device, marks.pinned = pinned;
      g.set_marks(n, marks);
    };
    want(0, 1), want(1, 2), want(2, 1);
    Refusing device{.refused = {{"cumsum"}, {"cumsum"}, {}}, .asked = {}};
    const LegalGraph legal = legalize(g, {.devices = 3}, device.query());
    CHECK(of(legal, "first").device == 1);
    CHECK(of(legal, "first").verdict == NodeVerdict::native);
    CHECK(of(legal, "second").device == 2);
    CHECK(of(legal, "third").device == 2);
    CHECK(of(legal, "third").verdict == NodeVerdict::fallback);
    CHECK(of(legal, "third").reason == "device 1 has no cumsum");
    // The first in the list comes before those behind the wanted one.
    Refusing last{.refused = {{}, {"cumsum"}, {}}, .asked = {}};
    CHECK(of(legalize(g, {.devices = 3}, last.query()), "third").device == 0);
    // With rates the cheapest gets it; a pinned node leaves its device only when it is refused.
    const auto rates = [](double copy) {
      return Rates{.copy = copy,
                   .run = 0,
                   .step = 1e-6,
                   .fork = 0,
                   .to_device = 1e12,
                   .from_device = 1e12,
                   .transfer = 1e-9};
    };
    const std::vector<Rates> known = {rates(1e6), rates(1e3), rates(1e9)};
    CHECK(of(legalize(g, {.devices = 3, .rates = known}, last.query()), "third").device == 2);
    Refusing softmax{.refused = {{}, {"softmax"}, {}}, .asked = {}};
    want(1, 1);
    CHECK(of(legalize(g, {.devices = 3, .rates = known}, softmax.query()), "second").device == 2);
    want(1, 1, true);
    const LegalGraph pinned = legalize(g, {.devices = 3, .rates = known}, softmax.query());
    CHECK(of(pinned, "second").device == 1);
    CHECK(of(pinned, "second").verdict == NodeVerdict::decomposed);
    want(2, 1, true);
    CHECK(of(legalize(g, {.devices = 3, .rates = known}, last.query()), "third").device == 2);

    Refusing all{.refused = {{"cumsum"}, {"cumsum"}, {"cumsum"}}, .asked = {}};
    const std::string names[] = {"a:0", "b:0", "c:0"};
    try {
      legalize(g, {.devices = 3, .names = names}, all.query());
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()) ==
            "no device takes cumsum 'third': b:0: device 1 has no cumsum; a:0: device 0 has no "
            "cumsum; c:0: device 2 has no cumsum");
    }
  }

  TEST_CASE("several devices: a group with a node that is wanted elsewhere falls apart") {
    Graph g = three_ops();
    const Query grouped = [](const Graph& graph, uint32_t d) {
      std::vector<Verdict> verdicts(graph.node_count());
      for (NodeId n = 0; n < graph.node_count(); ++n) {
        verdicts[n].native = true;
        if (d == 0 && graph.node_count() == 3 && n < 2) verdicts[n].group = 3;
      }
      return verdicts;
    };
    CHECK(of(legalize(g, {.devices = 2}, grouped), "first").verdict == NodeVerdict::native);
    Marks marks = g[NodeId{1}];
    marks.device = 1;
    g.set_marks(1, marks);
    const LegalGraph apart = legalize(g, {.devices = 2}, grouped);
    CHECK(of(apart, "first").verdict == NodeVerdict::fallback);
    CHECK(of(apart, "first").reason == "claimed only together with a node that is refused");
    CHECK(of(apart, "second").device == 1);
    for (NodeId n = 0; n < apart.graph.node_count(); ++n) CHECK(apart.graph[n].group == kNone);
  }

  TEST_CASE("verdicts: a refusal without a text is a refusal") {
    const Query silent = [](const Graph& graph, uint32_t d) {
      std::vector<Verdict> verdicts(graph.node_count());
      for (NodeId n = 0; n < graph.node_count(); ++n)
        verdicts[n].native = d == 1 || graph[n].op->name() != "cumsum";
      return verdicts;
    };
    const LegalGraph legal = legalize(three_ops(), {.devices = 2}, silent);
    CHECK(of(legal, "third").verdict == NodeVerdict::fallback);
    CHECK(of(legal, "third").reason == "refused, and the plugin does not say why");
    try {
      legalize(three_ops(), {.devices = 1}, silent);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Code::unsupported);
      CHECK(std::string(e.what()).find("cumsum 'third': device 0: refused") != std::string::npos);
    }
  }

  TEST_CASE("operands: a decomposition is asked about with the kinds of its node's operands") {
    // Takes products with a weight that no run changes, and none with an input.
    const Query picky = [&](const Graph& graph, uint32_t) {
      std::vector<Verdict> verdicts(graph.node_count());
      for (NodeId n = 0; n < graph.node_count(); ++n) {
        Verdict& v = verdicts[n];
        v.native = graph[n].op->primitive();
        v.text = "no composites";
        if (graph[n].op->name() != "matmul") continue;
        const ValueInfo& b = graph[graph[n].operands[1]];
        v.native = b.space == Space::weight && !graph.update_of(graph[n].operands[1]);
        v.text = "its matrix is no weight that stays";
      }
      return verdicts;
    };
    const auto verdicts = [&](std::string_view text) {
      const LegalGraph legal = legalize(graph_of(text), {.devices = 1}, picky);
      return legal.reports[0].verdict;
    };
    CHECK(verdicts(R"(graph { input x: f32[2,3] weight w: f32[3,4] y = linear(x, w)
      output "y" = y })") == NodeVerdict::decomposed);
    CHECK_THROWS_WITH_AS(verdicts(R"(graph { input x: f32[2,3] input w: f32[3,4] y = linear(x, w)
      output "y" = y })"),
                         doctest::Contains("its matrix is no weight that stays"), Error);
    CHECK_THROWS_WITH_AS(verdicts(R"(graph { input x: f32[2,3] weight w: f32[3,4] y = linear(x, w)
      n = binary(w, w) {kind="add"} update w = n output "y" = y })"),
                         doctest::Contains("its matrix is no weight that stays"), Error);
  }

  TEST_CASE("operands: one constant of a recipe serves its nodes, and stays the operand's") {
    Refusing device{.refused = {{"softmax"}}, .asked = {}};
    const LegalGraph legal = legalize(graph_of(R"(graph { const c: f32[2,3] = {1, 2, 3, 4, 5, 6}
      y = softmax(c) {axis=1} z = binary(y, c) {kind="add"} output "z" = z })"),
                                      {.devices = 1}, device.query());
    CHECK_NOTHROW(verify(legal.graph));
    size_t whole = 0;
    for (uint32_t v = 0; v < legal.graph.value_count(); ++v)
      if (const ValueInfo& info = legal.graph[Value{v}]; info.space == Space::constant)
        whole += info.type.shape.elements() == 6;
    CHECK(whole == 1);
  }

  TEST_CASE("groups: claimed all or none, also among the nodes of a decomposition") {
    // exp and softmax only together.
    const auto paired = [](std::set<std::string, std::less<>> refused) {
      return [refused](const Graph& graph, uint32_t d) {
        std::vector<Verdict> verdicts(graph.node_count());
        for (NodeId n = 0; n < graph.node_count(); ++n) {
          Verdict& v = verdicts[n];
          v.native = d == 1 || !refused.contains(graph[n].op->name());
          v.text = "no " + std::string(graph[n].op->name());
          if (d == 0 && n < 2 && graph.node_count() == 3) v.group = 5;
        }
        return verdicts;
      };
    };
    const LegalGraph both = legalize(three_ops(), {.devices = 2}, paired({}));
    REQUIRE(both.graph.node_count() == 3);
    CHECK(both.graph[NodeId{0}].group != kNone);
    CHECK(both.graph[NodeId{0}].group == both.graph[NodeId{1}].group);
    CHECK(both.graph[NodeId{2}].group == kNone);
    const LegalGraph none = legalize(three_ops(), {.devices = 2}, paired({"softmax"}));
    CHECK(of(none, "first").verdict == NodeVerdict::fallback);
    CHECK(of(none, "first").reason == "claimed only together with a node that is refused");
    CHECK(of(none, "second").verdict == NodeVerdict::decomposed);
    for (NodeId n = 0; n < none.graph.node_count(); ++n) CHECK(none.graph[n].group == kNone);
  }

  TEST_CASE("costs: a claim gives way to what its device says costs less") {
    const auto priced = [](double whole, double part) {
      return [=](const Graph& graph, uint32_t) {
        std::vector<Verdict> verdicts(graph.node_count());
        for (NodeId n = 0; n < graph.node_count(); ++n) {
          verdicts[n].native = true;
          verdicts[n].cost = graph[n].op->name() == "softmax" ? whole : part;
        }
        return verdicts;
      };
    };
    const LegalGraph stays = legalize(three_ops(), {.devices = 1}, priced(5e-6, 1e-5));
    CHECK(of(stays, "second").verdict == NodeVerdict::native);
    const LegalGraph goes = legalize(three_ops(), {.devices = 1}, priced(1e-3, 1e-6));
    CHECK(of(goes, "second").verdict == NodeVerdict::decomposed);
    CHECK(of(goes, "second").reason.find("the device would take 1000 us for it, otherwise it is") ==
          0);
    // A part whose cost is not known proves nothing.
    CHECK(of(legalize(three_ops(), {.devices = 1}, priced(1e-3, 0)), "second").verdict ==
          NodeVerdict::native);
  }

  TEST_CASE("costs: a group goes when its nodes together cost more than what else there is") {
    // The decomposition of softmax takes 4 us and more; exp has none, so the group stays.
    const auto grouped = [](std::string_view other) {
      return [=](const Graph& graph, uint32_t) {
        std::vector<Verdict> verdicts(graph.node_count());
        for (NodeId n = 0; n < graph.node_count(); ++n) {
          Verdict& v = verdicts[n];
          v.native = true;
          v.cost = 1e-6;
          const std::string_view name = graph[n].op->name();
          if (graph.node_count() == 3 && (name == "softmax" || name == other))
            v.cost = 1e-3, v.group = 2;
        }
        return verdicts;
      };
    };
    const LegalGraph stays = legalize(three_ops(), {.devices = 1}, grouped("unary"));
    CHECK(of(stays, "second").verdict == NodeVerdict::native);
    CHECK(of(stays, "first").verdict == NodeVerdict::native);
    const LegalGraph goes = legalize(three_ops(), {.devices = 1}, grouped("softmax"));
    CHECK(of(goes, "second").verdict == NodeVerdict::decomposed);
  }

  TEST_CASE("decompose_all: only primitives are left, and equal nodes are asked for once") {
    Graph g;
    Builder b(g);
    Value x = g.input("x", {kF32, {4, 8}});
    for (int i = 0; i < 20; ++i) x = b.add(op::softmax{.axis = 1, .x = x});
    g.output("y", x);
    Refusing device{.refused = {{}}, .asked = {}};
    const LegalGraph legal = legalize(g, {.devices = 1, .decompose_all = true}, device.query());
    for (NodeId n = 0; n < legal.graph.node_count(); ++n) CHECK(legal.graph[n].op->primitive());
    CHECK(legal.reports.size() == 20);
    for (const NodeReport& r : legal.reports) CHECK(r.verdict == NodeVerdict::decomposed);
    CHECK(device.asked.size() < 60);  // 20 nodes, and one decomposition
  }
}

namespace {

// A random graph of sums; each node on one of `devices`.
Graph random_graph(std::mt19937& random, uint32_t count, uint32_t devices,
                   std::vector<uint32_t>& device) {
  Graph g;
  Builder b(g);
  std::vector<Value> values = {g.input("x", {kF32, {2}}), g.weight("w", {kF32, {2}})};
  const auto any = [&] {
    return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 12)];
  };
  for (uint32_t i = 0; i < count; ++i) {
    values.push_back(b.plus(any(), any()));
    device.push_back(random() % devices);
  }
  g.output("last", values.back());
  g.output("some", values[2 + random() % count]);
  return g;
}

}  // namespace

TEST_SUITE("plan/partition") {
  TEST_CASE(
      "regions: every node once, all that a region reads was made before it, all that others read "
      "leaves") {
    std::mt19937 random(3);
    for (int round = 0; round < 60; ++round) {
      std::vector<uint32_t> device;
      const uint32_t devices = random() % 3 + 1;
      const Graph g = random_graph(random, random() % 80 + 1, devices, device);
      // With and without a bound on what is held up.
      const std::vector<double> short_work(devices, round % 2 ? 100 : 0);
      const std::vector<NodeId> order = schedule(g);
      std::vector<uint32_t> rank(g.node_count());
      for (uint32_t k = 0; k < order.size(); ++k) rank[order[k]] = k;
      const std::vector<Region> regions = partition(g, device, order, short_work);
      std::set<Value> made, needed_later;
      size_t count = 0;
      std::map<Value, size_t> maker;
      for (size_t r = 0; r < regions.size(); ++r) {
        const Region& region = regions[r];
        CHECK(std::ranges::is_sorted(region.nodes, {}, [&](NodeId n) { return rank[n]; }));
        const std::set<Value> inputs(region.inputs.begin(), region.inputs.end());
        CHECK(inputs.size() == region.inputs.size());
        for (const Value v : inputs)
          if (g[v].space == Space::node) {
            REQUIRE(made.contains(v));  // by an earlier region: no cycle between regions
            const auto& leaving = regions[maker[v]].outputs;
            CHECK(std::count(leaving.begin(), leaving.end(), v) == 1);
          }
        std::set<Value> inside = inputs;
        for (const NodeId n : region.nodes) {
          CHECK(device[n] == region.device);
          for (const Value v : g[n].operands) CHECK(inside.contains(v));
          for (const Value v : g[n].outputs) inside.insert(v), made.insert(v), maker[v] = r;
          ++count;
        }
      }
      CHECK(count == g.node_count());
      CHECK(made.size() == g.node_count());
      for (const Output& o : g.outputs()) {
        const auto& leaving = regions[maker[o.value]].outputs;
        CHECK(std::count(leaving.begin(), leaving.end(), o.value) == 1);
      }
    }
  }

  TEST_CASE("regions: what waits for another device holds nothing up that is worth a region") {
    Graph g;
    Builder b(g);
    Value a = g.input("a", {kF32, {64}}), c = g.input("c", {kF32, {64}});
    std::vector<uint32_t> device;
    for (int i = 0; i < 4; ++i) {
      a = b.exp(a), device.push_back(0);
      c = b.exp(c), device.push_back(1);
    }
    g.output("y", b.plus(a, c)), device.push_back(1);
    const double chain = 4 * 2 * 64 * 4;  // bytes
    const auto sizes = [&](double short_work) {
      std::string out;
      for (const Region& r :
           partition(g, device, schedule(g), std::vector<double>{short_work, short_work}))
        out += cat(r.device, ":", r.nodes.size(), " ");
      return out;
    };
    CHECK(sizes(chain) == "0:4 1:4 1:1 ");
    CHECK(sizes(chain + 1) == "0:4 1:5 ");
  }

  TEST_CASE("regions: independent chains on two devices are two regions") {
    Graph g;
    Builder b(g);
    Value a = g.input("a", {kF32, {2}}), c = g.input("c", {kF32, {2}});
    std::vector<uint32_t> device;
    for (int i = 0; i < 10; ++i) {
      a = b.exp(a), device.push_back(0);
      c = b.exp(c), device.push_back(1);
    }
    g.output("a", a);
    g.output("c", c);
    CHECK(partition(g, device, schedule(g)).size() == 2);
  }
}
