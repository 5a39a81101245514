// SPDX-License-Identifier: Apache-2.0
// Orders chosen for memory: what waits, what runs early, what keeps its place; never worse than the
// graph's own.
#include "plan/memory/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "ir/graphs.hpp"
#include "ops/build.hpp"

using namespace tenon::core;

namespace {

std::vector<NodeId> own_order(const Graph& g) {
  std::vector<NodeId> order(g.node_count());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

// Every node once, operands first, constraints kept.
void check_order(const Graph& g, const std::vector<NodeId>& order) {
  REQUIRE(order.size() == g.node_count());
  std::vector<uint32_t> at(order.size(), kNone);
  for (uint32_t i = 0; i < order.size(); ++i) {
    REQUIRE(order[i] < order.size());
    REQUIRE(at[order[i]] == kNone);
    at[order[i]] = i;
  }
  for (NodeId n = 0; n < g.node_count(); ++n)
    for (Value v : g[n].operands)
      if (v && g[v].space == Space::node) REQUIRE(at[g[v].node] < at[n]);
  for (const auto& [before, after] : order_constraints(g)) REQUIRE(at[before] < at[after]);
}

// Scheduled, checked, with where each node came to stand.
std::vector<uint32_t> places(const Graph& g) {
  const std::vector<NodeId> order = schedule(g);
  check_order(g, order);
  CHECK(order_peak(g, order) <= order_peak(g, own_order(g)));
  std::vector<uint32_t> at(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  return at;
}

constexpr tenon::OpPart kStepParts[] = {{.kind = tenon::OpPart::Kind::operand, .name = "x"},
                                        {.kind = tenon::OpPart::Kind::output, .name = "y"}};
constexpr tenon::OpSchema kStepSchema{.name = "step",
                                      .family = "test",
                                      .version = 1,
                                      .level = tenon::OpLevel::core,
                                      .first = kStepParts,
                                      .part_count = 2};
// An op with the trait that no op of ours has yet.
const OpRecord kStep{
    .domain = "test",
    .schema = &kStepSchema,
    .shape = [](Infer& i, const Graph& g, const NodeInfo& n) { i.out(0, g.type(n.operands[0])); },
    .traits = kOrdered};

}  // namespace

TEST_SUITE("plan/schedule") {
  TEST_CASE("peak: outputs and what dies, views, elementwise in place") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {256}});               // no intermediate
    const Value wide = b.expand(b.unsqueeze(x, 0), {4, 256});  // a view
    const Value a = b.matmul(wide, g.constant({kF32, {256, 8}}, std::make_shared<Bytes>(8192)));
    const Value c = b.exp(a);       // over a: 128 bytes once
    const Value d = b.sum(c, {1});  // 16 bytes beside c
    g.output("y", d);               // has a place of its own
    CHECK(order_peak(g, own_order(g)) == 128);
    g.output("c", c);
    CHECK(order_peak(g, own_order(g)) == 128);  // a alone
  }

  TEST_CASE("late: a big value that is cheap to make waits for its reader") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {64}});
    const Value big = b.times(b.expand(b.unsqueeze(x, 0), {1024, 64}), 2);  // 256 KiB, from little
    Value v = b.times(b.expand(b.unsqueeze(x, 0), {1024, 64}), 3);
    for (int i = 0; i < 6; ++i) v = b.matmul(v, b.zeros({kF32, {64, 64}}));
    const NodeId last = g[v].node;
    g.output("y", b.sum(b.plus(big, v), {0, 1}));
    const auto at = places(g);
    CHECK(at[g[big].node] > at[last]);
    CHECK(order_peak(g, schedule(g)) < order_peak(g, own_order(g)));
  }

  TEST_CASE("late: what would keep a bigger operand alive does not wait") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {512, 512}});
    const Value big = b.matmul(x, x), row = b.sum(big, {0});  // 1 MiB; its sum 2 KiB
    Value v = b.matmul(x, x);
    for (int i = 0; i < 4; ++i) v = b.matmul(v, x);
    g.output("y", b.plus(v, row));
    const auto at = places(g);
    CHECK(at[g[row].node] == at[g[big].node] + 1);
  }

  TEST_CASE("early: each update follows its gradient") {
    Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {128, 128}});
    std::vector<Value> gradients, next;
    for (int i = 0; i < 5; ++i) gradients.push_back(b.matmul(x, x, i % 2 == 1, false, 1.0 + i));
    for (int i = 0; i < 5; ++i) {
      const Value w = g.weight("w" + std::to_string(i), {kF32, {128, 128}});
      next.push_back(b.minus(w, gradients[static_cast<size_t>(i)]));
      g.update(w, next.back());
    }
    const auto at = places(g);
    for (size_t i = 0; i < 5; ++i) CHECK(at[g[next[i]].node] == at[g[gradients[i]].node] + 1);
    CHECK(order_peak(g, own_order(g)) == 5 * 65536);
    CHECK(order_peak(g, schedule(g)) == 65536);
  }

  TEST_CASE("clones: recomputed right before their first reader") {
    Graph g = graph_of(R"(graph {
      input x: f32[64,64]
      a = matmul(x, x)
      b = matmul(a, x)
      a2 = matmul(x, x) clone 1
      c = matmul(b, x)
      d = matmul(c, x)
      y = matmul(d, a2)
      output "y" = y
    })");
    const auto at = places(g);
    CHECK(at[2] + 1 == at[5]);
    CHECK(at[2] > at[4]);
  }

  TEST_CASE(
      "constraints: readers of old content come before its writer, ordered nodes keep their "
      "order") {
    Graph g;
    Builder b(g);
    const Value s = g.state("s", {kF32, {256, 256}}), x = g.input("x", {kF32, {256, 256}});
    const Value flat = b.reshape(s, {65536});
    const Value read = b.matmul(s, x), next = b.plus(s, x), late = b.exp(flat);
    g.update(s, next);
    const NodeId first = g.add_node(kStep, {x}, {}, {true});
    const NodeId second = g.add_node(kStep, {read}, {}, {true});
    const NodeId third = g.add_node(kStep, {x}, {}, {true});
    g.output("late", late);
    g.output("third", g[third].outputs[0]);
    const auto constraints = order_constraints(g);
    const auto has = [&](NodeId a, NodeId c) {
      return std::count(constraints.begin(), constraints.end(), std::pair(a, c)) == 1;
    };
    CHECK(has(g[read].node, g[next].node));
    CHECK(has(g[flat].node, g[next].node));
    CHECK_FALSE(has(g[late].node, g[next].node));  // stands behind it in the graph: it gets a copy
    CHECK(has(first, second));
    CHECK(has(second, third));
    places(g);
  }

  TEST_CASE("any graph: valid, never worse than its own order, the same every time") {
    std::mt19937 random(11);
    int better = 0;
    for (int round = 0; round < 300; ++round) {
      Graph g;
      Builder b(g);
      std::vector<Value> values = {g.input("x", {kF32, {16, 16}}), g.weight("w", {kF32, {16, 16}}),
                                   g.state("s", {kF32, {16, 16}})};
      const auto any = [&] { return values[random() % values.size()]; };
      const size_t count = random() % 60 + 2;
      for (size_t i = 0; i < count; ++i) {
        const Value v = any();
        switch (random() % 5) {
          case 0:
            values.push_back(b.matmul(v, any()));
            break;
          case 1:
            values.push_back(b.plus(v, any()));
            break;
          case 2:
            values.push_back(b.transpose(v, {1, 0}));
            break;
          case 3:
            values.push_back(b.plus(any(), b.sum(v, {0})));
            break;
          default:
            values.push_back(b.exp(v));
            break;
        }
      }
      g.output("y", values.back());
      if (g[values[values.size() / 2]].space == Space::node)
        g.update(values[2], values[values.size() / 2]);
      const std::vector<NodeId> order = schedule(g);
      check_order(g, order);
      CHECK(order == schedule(g));
      const uint64_t peak = order_peak(g, order), own = order_peak(g, own_order(g));
      REQUIRE(peak <= own);
      better += peak < own;
    }
    CHECK(better > 100);
  }
}
