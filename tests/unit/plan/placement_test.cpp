// SPDX-License-Identifier: Apache-2.0
// Devices chosen by price, with prices computed by hand.
#include "plan/rewrite/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "ir/graphs.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"
#include "plan/memory/partition.hpp"
#include "plan/rewrite/legalize.hpp"
#include "plan/rewrite/price.hpp"

using namespace tenon::core;

namespace {

constexpr double kUs = 1e-6;

// A step costs 1 us, whatever it moves. So does each half of a transfer of 1000 bytes, and another
// 1 us its begin: 4 us in all. A region that begins costs `start`.
Rates rates(double start) {
  return {.copy = 1e18,
          .run = start + 1 * kUs,
          .step = 1 * kUs,
          .fork = 0,
          .to_device = 1e9,
          .from_device = 1e9,
          .transfer = 1 * kUs};
}
constexpr double kTransfer = 4 * kUs;  // of 1000 bytes

std::vector<NodeId> alone(const Graph& g) {
  std::vector<NodeId> out(g.node_count());
  std::iota(out.begin(), out.end(), 0u);
  return out;
}

NodePrices prices_of(const std::vector<std::vector<double>>& us) {
  NodePrices prices(static_cast<NodeId>(us.size()), static_cast<uint32_t>(us[0].size()));
  for (NodeId n = 0; n < us.size(); ++n)
    for (uint32_t d = 0; d < us[n].size(); ++d) prices.at(n, d) = us[n][d] * kUs;
  return prices;
}
constexpr double kNo = NodePrices::kNoDevice;

Graph exps(size_t nodes) {
  Graph g;
  Builder b(g);
  Value x = g.input("x", {kF32, {250}});
  for (size_t k = 0; k < nodes; ++k) x = b.exp(x);
  g.output("y", x);
  return g;
}

using Devices = std::vector<uint32_t>;

Devices placed(const Graph& g, const NodePrices& prices, const std::vector<Rates>& known) {
  return place_by_price(g, prices, alone(g), known);
}

// Devices that claim all ops but these, at no cost that they say.
Query refusing(std::vector<std::set<std::string, std::less<>>> refused) {
  return [refused](const Graph& graph, uint32_t d) {
    std::vector<Verdict> verdicts(graph.node_count());
    for (NodeId n = 0; n < graph.node_count(); ++n) {
      verdicts[n].native = !refused[d].contains(graph[n].op->name());
      if (!verdicts[n].native) verdicts[n].text = "no such kernel";
    }
    return verdicts;
  };
}

Devices devices_of(const LegalGraph& legal) {
  Devices out;
  for (const NodeReport& r : legal.reports) out.push_back(r.device);
  return out;
}

// Device 0 decomposes softmax into so many steps.
size_t steps_of_softmax() {
  const Query query = refusing({{"softmax"}});
  return legalize(graph_of("graph { input x: f32[250] y = softmax(x) {axis=0} output \"y\" = y }"),
                  {.devices = 1}, query)
      .graph.node_count();
}

// exp, then `count` times softmax and exp.
Graph softmaxes(size_t count) {
  Graph g;
  Builder b(g);
  Value x = b.exp(g.input("x", {kF32, {250}}));
  for (size_t k = 0; k < count; ++k) x = b.exp(b.add(op::softmax{.axis = 0, .x = x}));
  g.output("y", x);
  return g;
}

}  // namespace

TEST_SUITE("plan/placement") {
  TEST_CASE("chain: nodes that would alternate stay on one device") {
    const Graph g = exps(10);
    std::vector<std::vector<double>> us;
    for (int n = 0; n < 10; ++n) us.push_back(n % 2 ? std::vector{5., 1.} : std::vector{1., 5.});
    const NodePrices prices = prices_of(us);
    // Apart they gain 4 us each. Two transfers cost 8 us.
    for (const double start : {0., 10 * kUs}) {
      const std::vector<Rates> known(2, rates(start));
      CHECK(placed(g, prices, known) == Devices(10, 0));
      CHECK(price_of_placement(g, prices, Devices(10, 0), known) ==
            doctest::Approx(30 * kUs + start));
      // Nine values and the nine regions behind the first.
      const Devices apart = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
      CHECK(price_of_placement(g, prices, apart, known) ==
            doctest::Approx(10 * kUs + 9 * kTransfer + 10 * start));
    }
  }

  TEST_CASE("chain: the start of regions keeps a node that transfers alone would let go") {
    const Graph g = exps(5);
    const NodePrices prices = prices_of({{1, 9}, {1, 9}, {20, 1}, {1, 9}, {1, 9}});
    // It gains 19 us for two transfers of 4 us, and two regions.
    CHECK(placed(g, prices, {2, rates(0)}) == Devices{0, 0, 1, 0, 0});
    CHECK(placed(g, prices, {2, rates(5 * kUs)}) == Devices{0, 0, 1, 0, 0});
    CHECK(placed(g, prices, {2, rates(6 * kUs)}) == Devices(5, 0));
  }

  TEST_CASE("chain: a stretch that pays moves as a whole, with the nodes inside it") {
    const Graph g = exps(7);
    // Each node that is cheaper on device 1 gains 5 us, too little for two transfers. Three of them
    // gain 15 us; the two between them lose 1 us each; transfers cost 8 us, regions 4 us: 1 us is
    // left.
    const NodePrices prices = prices_of({{1, 9}, {6, 1}, {1, 2}, {6, 1}, {1, 2}, {6, 1}, {1, 9}});
    const std::vector<Rates> known(2, rates(2 * kUs));
    const Devices moved = {0, 1, 1, 1, 1, 1, 0};
    CHECK(placed(g, prices, known) == moved);
    CHECK(price_of_placement(g, prices, Devices(7, 0), known) == doctest::Approx(24 * kUs));
    CHECK(price_of_placement(g, prices, moved, known) == doctest::Approx(23 * kUs));
    CHECK(placed(g, prices, {2, rates(3 * kUs)}) == Devices(7, 0));
  }

  TEST_CASE("fan-out: a value is carried once, however many nodes read it") {
    Graph g;
    Builder b(g);
    const Value s = b.exp(g.input("x", {kF32, {250}}));
    for (int k = 0; k < 6; ++k) g.output(cat("y", k), b.exp(s));
    std::vector<std::vector<double>> us;
    for (NodeId n = 0; n < g.node_count(); ++n)
      us.push_back(n ? std::vector{2., 1.} : std::vector{1., kNo});
    const NodePrices prices = prices_of(us);
    REQUIRE(g.node_count() == 7);
    // Each reader gains 1 us, all of them 6 us. The transfer costs 4 us, the region 1 us.
    const Devices moved = {0, 1, 1, 1, 1, 1, 1};
    const std::vector<Rates> known(2, rates(1 * kUs));
    CHECK(price_of_placement(g, prices, Devices(7, 0), known) == doctest::Approx(14 * kUs));
    CHECK(price_of_placement(g, prices, moved, known) == doctest::Approx(13 * kUs));
    CHECK(placed(g, prices, known) == moved);
    CHECK(placed(g, prices, {2, rates(2 * kUs)}) == Devices(7, 0));
  }

  TEST_CASE("fan-in: nodes go where most of what one node reads is") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {250}});
    const Value a = b.exp(x), c = b.exp(x), d = b.exp(x);
    g.output("y", b.plus(b.plus(a, c), d));
    // The sums are cheaper on device 0 by 3 us, which is less than one transfer.
    const NodePrices prices = prices_of({{kNo, 1}, {kNo, 1}, {1, kNo}, {1, 4}, {1, 4}});
    CHECK(placed(g, prices, {2, rates(0)}) == Devices{1, 1, 0, 1, 0});
  }

  TEST_CASE("named values: fixed weights are free, what a run changes is carried to its readers") {
    const std::string_view fixed = R"(graph { weight w: f32[250] input x: f32[1]
      a = unary(x) {kind="exp"} r = binary(a, w) {kind="mul"} output "y" = r })";
    const std::string_view updated = R"(graph { weight w: f32[250] input x: f32[1]
      a = unary(x) {kind="exp"} r = binary(a, w) {kind="mul"} output "y" = r
      n = unary(w) {kind="neg"} update w = n })";
    // a is 4 bytes: its transfer costs 2 us and little more.
    const Graph f = graph_of(fixed), u = graph_of(updated);
    const std::vector<Rates> known(2, rates(0));
    CHECK(placed(f, prices_of({{1, kNo}, {5, 1}}), known) == Devices{0, 1});
    CHECK(price_of_placement(f, prices_of({{1, kNo}, {5, 1}}), Devices{0, 1}, known) ==
          doctest::Approx(4.008 * kUs));
    // The update is made on device 0, so another reader waits for 1000 bytes in each run.
    const NodePrices here = prices_of({{1, kNo}, {5, 1}, {1, kNo}});
    CHECK(price_of_placement(u, here, Devices{0, 1, 0}, known) == doctest::Approx(9.008 * kUs));
    CHECK(placed(u, here, known) == Devices{0, 0, 0});
    // If the update is made there, w is there.
    CHECK(placed(u, prices_of({{1, kNo}, {5, 1}, {1, 1}}), known) == Devices{0, 1, 1});
  }

  TEST_CASE("inputs: carried anyway to where a reader is wanted, at a price elsewhere, once") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {250}});
    for (int k = 0; k < 3; ++k) g.output(cat("y", k), b.exp(x));
    const std::vector<Rates> known(2, rates(0));
    const NodePrices prices = prices_of({{2, 1}, {2, 1}, {2, 1}});
    CHECK(price_of_placement(g, prices, Devices{0, 0, 0}, known) == doctest::Approx(6 * kUs));
    CHECK(price_of_placement(g, prices, Devices{1, 1, 1}, known) == doctest::Approx(5 * kUs));
    CHECK(placed(g, prices, known) == Devices{1, 1, 1});
    Marks marks = g[NodeId{0}];
    marks.device = 1;
    g.set_marks(0, marks);
    CHECK(price_of_placement(g, prices, Devices{1, 1, 1}, known) == doctest::Approx(3 * kUs));
  }

  TEST_CASE("starts: one region serves many nodes that would not pay for one each") {
    // Eight chains of two nodes. The second ones gain 10 us each on device 1 for 4 us; a region
    // costs 30 us.
    Graph g;
    Builder b(g);
    std::vector<std::vector<double>> us;
    const Value x = g.input("x", {kF32, {250}});
    for (int k = 0; k < 8; ++k) {
      g.output(cat("y", k), b.exp(b.exp(x)));
      us.push_back({1, kNo}), us.push_back({11, 1});
    }
    Devices moved;
    for (int k = 0; k < 8; ++k) moved.push_back(0), moved.push_back(1);
    const std::vector<Rates> known(2, rates(30 * kUs));
    CHECK(price_of_placement(g, prices_of(us), Devices(16, 0), known) ==
          doctest::Approx((96 + 30) * kUs));
    CHECK(price_of_placement(g, prices_of(us), moved, known) ==
          doctest::Approx((16 + 8 * 4 + 2 * 30) * kUs));
    CHECK(placed(g, prices_of(us), known) == moved);
    CHECK(placed(g, prices_of(us), {2, rates(60 * kUs)}) == Devices(16, 0));
  }

  TEST_CASE("three devices: stretches go to the cheapest of them that pays") {
    const Graph g = exps(8);
    const NodePrices prices = prices_of({{1, kNo, kNo},
                                         {20, 9, 1},
                                         {20, 9, 1},
                                         {1, 9, kNo},
                                         {1, 9, kNo},
                                         {kNo, 2, 9},
                                         {30, 2, 9},
                                         {1, kNo, kNo}});
    CHECK(placed(g, prices, {3, rates(1 * kUs)}) == Devices{0, 2, 2, 0, 0, 1, 1, 0});
    // With dear regions that stretch would lose 2 us: 38 us for 8 us and two regions. On device 1 it
    // joins the other one, with the nodes between: 22 us for 16 us, and no region more.
    const std::vector<Rates> dear(3, rates(16 * kUs));
    const Devices joined = {0, 1, 1, 1, 1, 1, 1, 0};
    CHECK(placed(g, prices, dear) == joined);
    CHECK(price_of_placement(g, prices, joined, dear) == doctest::Approx(98 * kUs));
    CHECK(price_of_placement(g, prices, Devices{0, 0, 0, 0, 0, 1, 1, 0}, dear) ==
          doctest::Approx(104 * kUs));
    CHECK(price_of_placement(g, prices, Devices{0, 2, 2, 0, 0, 1, 1, 0}, dear) ==
          doctest::Approx(106 * kUs));
  }

  TEST_CASE("together: nodes of a group move all or none") {
    const Graph g = exps(4);
    const std::vector<Rates> known(2, rates(0));
    // The second node gains 19 us and the third one loses 3 us, or 21 us, for transfers of 8 us.
    const NodePrices little = prices_of({{1, 9}, {20, 1}, {9, 12}, {1, 9}}),
                     much = prices_of({{1, 9}, {20, 1}, {9, 30}, {1, 9}});
    const std::vector<NodeId> pair = {0, 1, 1, 3};
    for (const NodePrices* prices : {&little, &much})
      CHECK(placed(g, *prices, known) == Devices{0, 1, 0, 0});
    CHECK(place_by_price(g, little, pair, known) == Devices{0, 1, 1, 0});
    CHECK(place_by_price(g, much, pair, known) == Devices(4, 0));
  }

  TEST_CASE("random graphs: no placement on two devices costs less, with three no move gains") {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
      const uint32_t devices = 2 + round % 2, count = 2 + random() % 7;
      Graph g;
      Builder b(g);
      std::vector<Value> values = {g.input("x", {kF32, {250}}), g.weight("w", {kF32, {250}})};
      for (uint32_t k = 0; k < count; ++k)
        values.push_back(
            b.plus(values[random() % values.size()], values[random() % values.size()]));
      g.output("y", values.back());
      if (random() % 2) g.update(values[1], values[2 + random() % count]);
      NodePrices prices(count, devices);
      for (NodeId n = 0; n < count; ++n) {
        Marks marks = g[n];
        marks.device = random() % devices;
        g.set_marks(n, marks);
        for (uint32_t d = 0; d < devices; ++d)
          if (d == marks.device || random() % 4) prices.at(n, d) = (1 + random() % 15) * kUs;
      }
      const std::vector<Rates> known(devices, rates(0));
      const Devices found = placed(g, prices, known);
      const auto price_of = [&](const Devices& at) {
        for (NodeId n = 0; n < count; ++n)
          if (prices.at(n, at[n]) == kNo) return kNo;
        return price_of_placement(g, prices, at, known);
      };
      double least = kNo;
      Devices at(count, 0);
      const auto visit = [&](auto&& self, uint32_t n) -> void {
        if (n == count) {
          least = std::min(least, price_of(at));
          return;
        }
        for (at[n] = 0; at[n] < devices; ++at[n]) self(self, n + 1);
        at[n] = 0;
      };
      if (devices == 2) {
        visit(visit, 0);
      } else {
        at = found;
        for (NodeId n = 0; n < count; ++n) {
          for (at[n] = 0; at[n] < devices; ++at[n]) least = std::min(least, price_of(at));
          at[n] = found[n];
        }
      }
      // A thousandth is what a node prefers to stay for.
      CHECK(price_of(found) <= least * (1 + 2e-3));
    }
  }
}

TEST_SUITE("plan/legalize by price") {
  TEST_CASE("chain: decomposed nodes that gain less than their regions cost stay") {
    const auto gain = static_cast<double>(steps_of_softmax() - 1) * kUs;
    REQUIRE(gain > 3 * kUs);
    // Two transfers cost a quarter of what a softmax gains, each of two regions as much as it gains.
    std::vector<Rates> known(2, rates(gain));
    for (Rates& r : known) r.transfer = gain / 16, r.to_device = r.from_device = 1e15;
    const Query query = refusing({{"softmax"}, {}});
    const Graph g = softmaxes(2);
    CHECK(devices_of(legalize(g, {.devices = 2, .rates = known}, query)) == Devices(5, 0));
    for (Rates& r : known) r.run = r.step + gain / 16;
    const LegalGraph goes = legalize(softmaxes(1), {.devices = 2, .rates = known}, query);
    CHECK(devices_of(goes) == Devices{0, 1, 0});
    CHECK(goes.reports[1].verdict == NodeVerdict::fallback);
  }

  TEST_CASE("chain: claimed nodes between nodes that leave follow them, and say why") {
    const auto gain = static_cast<double>(steps_of_softmax() - 1) * kUs;
    std::vector<Rates> known(2, rates(gain / 4));
    for (Rates& r : known) r.transfer = gain / 8, r.to_device = r.from_device = 1e15;
    // Each softmax gains `gain`, two transfers cost half of it, two regions the other half.
    // An exp costs the same on both.
    const Query query = refusing({{"softmax"}, {}});
    const LegalGraph legal = legalize(softmaxes(4), {.devices = 2, .rates = known}, query);
    CHECK(devices_of(legal) == Devices{0, 1, 1, 1, 1, 1, 1, 1, 0});
    CHECK(legal.reports[2].verdict == NodeVerdict::fallback);
    CHECK(legal.reports[2].reason ==
          "the nodes around it are on device 1, and carrying values to and fro would take longer");
    CHECK(legal.reports[1].reason.find(
              "no such kernel; decomposed on the wanted device it would take") == 0);
    // A pinned node stays.
    Graph pinned = softmaxes(4);
    Marks marks = pinned[NodeId{4}];
    marks.pinned = true;
    pinned.set_marks(4, marks);
    CHECK(devices_of(legalize(pinned, {.devices = 2, .rates = known}, query))[4] == 0);
    // Where the app names several devices, claims hold: among these, and to a fallback device.
    known.push_back(known[1]);
    const Query three = refusing({{"softmax"}, {"softmax"}, {}});
    const LegalGraph one = legalize(softmaxes(4), {.devices = 3, .rates = known}, three);
    CHECK(devices_of(one) == Devices{0, 2, 2, 2, 2, 2, 2, 2, 0});
    for (Rates& r : known) r.transfer /= 2;
    const Devices several =
        devices_of(legalize(softmaxes(4), {.devices = 3, .named = 2, .rates = known}, three));
    CHECK(several == Devices{0, 2, 0, 2, 0, 2, 0, 2, 0});
  }

  TEST_CASE("several named devices: what reads a weight stays where it was spread") {
    const Graph g = graph_of(R"(graph { input x: f32[250] weight w: f32[250]
      a = unary(x) {kind="exp"} s = softmax(w) {axis=0} r = binary(a, s) {kind="mul"}
      t = softmax(r) {axis=0} output "y" = t })");
    std::vector<Rates> known(3, rates(0));
    for (Rates& r : known) r.transfer = 1e-9, r.to_device = r.from_device = 1e15;
    const auto devices = [&](uint32_t named, std::set<std::string, std::less<>> refused) {
      return devices_of(legalize(g, {.devices = 3, .named = named, .rates = known},
                                 refusing({refused, refused, {}})));
    };
    CHECK(devices(1, {"softmax"}) == Devices{0, 2, 2, 2});
    CHECK(devices(2, {"softmax"}) == Devices{0, 0, 0, 2});
    CHECK(devices(2, {"softmax", "reduce"}) == Devices{0, 2, 0, 2});
  }

  TEST_CASE("fan-out: readers of a value pay for its transfer together, and it is moved once") {
    const auto gain = static_cast<double>(steps_of_softmax() - 1) * kUs;
    Graph g;
    Builder b(g);
    const Value s = b.exp(g.input("x", {kF32, {250}}));
    for (int k = 0; k < 6; ++k) g.output(cat("y", k), b.add(op::softmax{.axis = 0, .x = s}));
    // One of six readers gains less than the transfer costs.
    std::vector<Rates> known(2, rates(0));
    for (Rates& r : known) r.transfer = gain, r.to_device = r.from_device = 1e15;
    const LegalGraph legal =
        legalize(g, {.devices = 2, .rates = known}, refusing({{"softmax"}, {}}));
    CHECK(devices_of(legal) == Devices{0, 1, 1, 1, 1, 1, 1});
    size_t moved = 0;
    for (const CutRegion& cut : cut(legal.graph))
      for (Value v : cut.region.inputs)
        if (const NodeId m = legal.graph[v].node; m != kNone)
          moved += legal.graph[m].device != cut.region.device;
    CHECK(moved == 1);
    for (Rates& r : known) r.transfer = 4 * gain;
    CHECK(devices_of(legalize(g, {.devices = 2, .rates = known}, refusing({{"softmax"}, {}}))) ==
          Devices(7, 0));
  }

  TEST_CASE("three devices: a stretch goes to the cheapest, a node that only one takes to that") {
    const auto gain = static_cast<double>(steps_of_softmax() - 1) * kUs;
    std::vector<Rates> known(3, rates(gain / 4));
    for (Rates& r : known) r.transfer = gain / 8, r.to_device = r.from_device = 1e15;
    known[2].step /= 2, known[2].run -= known[2].step;
    CHECK(devices_of(legalize(softmaxes(3), {.devices = 3, .rates = known},
                              refusing({{"softmax"}, {}, {}}))) == Devices{0, 2, 2, 2, 2, 2, 0});
    // If device 2 has no exp either, it gets nothing: it would have to give every value back.
    CHECK(devices_of(legalize(softmaxes(3), {.devices = 3, .rates = known},
                              refusing({{"softmax"}, {}, {"unary"}}))) ==
          Devices{0, 1, 1, 1, 1, 1, 0});
    // Only device 1 takes softmax, at whatever price.
    known[1].transfer = 1;
    CHECK(devices_of(legalize(softmaxes(1), {.devices = 3, .rates = known},
                              refusing({{"softmax", "reduce"}, {}, {"softmax", "reduce"}}))) ==
          Devices{0, 1, 0});
  }

  TEST_CASE("claims: rates do not overrule them, costs that both devices say do") {
    std::vector<Rates> known(2, rates(0));
    known[0].step = known[0].run = 1000 * kUs;  // as rates tell, device 0 is slow
    const Graph g = exps(5);
    CHECK(devices_of(legalize(g, {.devices = 2, .rates = known}, refusing({{}, {}}))) ==
          Devices(5, 0));
    const auto saying = [](double first, double second) {
      return [=](const Graph& graph, uint32_t d) {
        std::vector<Verdict> verdicts(graph.node_count());
        for (Verdict& v : verdicts) v.native = true, v.cost = d == 0 ? first : second;
        return verdicts;
      };
    };
    // Five nodes gain 9 us each, for one input of 2 us.
    const LegalGraph all = legalize(g, {.devices = 2, .rates = known}, saying(10 * kUs, 1 * kUs));
    CHECK(devices_of(all) == Devices(5, 1));
    CHECK(all.reports[0].reason == "on the wanted device it would take 10 us, on device 1 1 us");
    CHECK(devices_of(legalize(g, {.devices = 2, .rates = known}, saying(1.3 * kUs, 1 * kUs))) ==
          Devices(5, 0));
    CHECK(devices_of(legalize(g, {.devices = 2, .rates = known}, saying(10 * kUs, 0))) ==
          Devices(5, 0));
  }
}
