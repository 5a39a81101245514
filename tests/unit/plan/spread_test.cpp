// SPDX-License-Identifier: Apache-2.0
// Where nodes go when the app names several devices.
#include "plan/rewrite/spread.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "grad/grad.hpp"
#include "ir/graphs.hpp"
#include "plan/report.hpp"
#include "plan/rewrite/raise.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;

namespace {

// A chain of products with square weights w0, w1 ... of these sizes in KiB, each named like its
// weight, and a relu without a name behind each.
Graph chain(std::initializer_list<int> sizes) {
  std::string text = "graph { input x: f32[2,16]\n";
  int k = 0;
  for (const int size : sizes) text += cat("weight w", k++, ": f32[", size, ",16,16]\n");
  std::string last = "x";
  for (k = 0; k < static_cast<int>(sizes.size()); ++k) {
    text += cat("s", k, " = reduce(w", k, ") {kind=\"sum\", axes=[0], keepdims=false}\n");
    text += cat("m", k, " = matmul(", last, ", s", k, ")\n");
    text += cat("r", k, " = unary(m", k, ") {kind=\"relu\"}\n");
    last = cat("r", k);
  }
  return graph_of(text + "output \"y\" = " + last + " }");
}

// The devices of the nodes in order: "0 0 1".
std::string devices_of(const Graph& g) {
  std::string out;
  for (NodeId n = 0; n < g.node_count(); ++n) out += cat(n ? " " : "", g[n].device);
  return out;
}

uint32_t device_of(const Graph& g, std::string_view name) {
  for (NodeId n = 0; n < g.node_count(); ++n)
    if (node_name(g, g[n]) == name) return g[n].device;
  FAIL("no node ", std::string(name));
  return 0;
}

std::string spread_over(Graph& g, std::initializer_list<SpreadDevice> devices,
                        const HomeOf& home = {}) {
  spread(g, std::vector(devices), home);
  return devices_of(g);
}

constexpr double kMiB = 1 << 20;

// Two layers and their optimizer, whose state is of the weights' sizes.
constexpr std::string_view kTraining = R"(graph {
  input x: f32[4,8]
  weight a: f32[8,32]
  weight b: f32[32,8]
  state ma: f32[8,32]
  state mb: f32[32,8]
  h = matmul(x, a) @"h"
  r = unary(h) {kind="relu"} @"r"
  y = matmul(r, b) @"y"
  loss = reduce(y) {kind="mean", axes=[0,1], keepdims=false} @"loss"
  (ga, gb) = grad(loss, a, b)
  na = binary(ma, ga) {kind="add"}
  nb = binary(mb, gb) {kind="add"}
  ua = binary(a, na) {kind="sub"}
  ub = binary(b, nb) {kind="sub"}
  qa = reduce(ga) {kind="sum_square", axes=[0,1], keepdims=false}
  qb = reduce(gb) {kind="sum_square", axes=[0,1], keepdims=false}
  q = binary(qa, qb) {kind="add"}
  update ma = na
  update mb = nb
  update a = ua
  update b = ub
  output "loss" = loss
  output "norm" = q
})";

}  // namespace

TEST_SUITE("plan/spread") {
  TEST_CASE("parts: equal devices get equal parts, and others by their memory") {
    Graph equal = chain({4, 4, 4, 4});
    CHECK(spread_over(equal, {{kMiB, 0}, {kMiB, 0}}) == "0 0 0 0 0 0 1 1 1 1 1 1");
    Graph third = chain({4, 4, 4, 4});
    CHECK(spread_over(third, {{3 * kMiB, 0}, {kMiB, 0}}) == "0 0 0 0 0 0 0 0 0 1 1 1");
    Graph three = chain({2, 2, 2});
    CHECK(spread_over(three, {{kMiB, 0}, {kMiB, 0}, {kMiB, 0}}) == "0 0 0 1 1 1 2 2 2");
    // A heavy layer counts for what it weighs.
    Graph heavy = chain({1, 1, 1, 3});
    CHECK(spread_over(heavy, {{kMiB, 0}, {kMiB, 0}}) == "0 0 0 0 0 0 0 0 0 1 1 1");
    Graph unknown = chain({4, 4});
    CHECK(spread_over(unknown, {{0, 0}, {kMiB, 0}}) == "0 0 0 1 1 1");
  }

  TEST_CASE("tiers: the next one gets what the first has no room for, and nothing else") {
    Graph fits = chain({4, 4, 4, 4});
    CHECK(spread_over(fits, {{kMiB, 0}, {kMiB, 1}}) == "0 0 0 0 0 0 0 0 0 0 0 0");
    const double layer = 4 * 16 * 16 * 4;
    Graph over = chain({4, 4, 4, 4});
    CHECK(spread_over(over, {{3 * layer, 0}, {kMiB, 1}}) == "0 0 0 0 0 0 0 0 0 1 1 1");
    Graph two = chain({4, 4, 4, 4});
    CHECK(spread_over(two, {{layer, 0}, {layer, 0}, {kMiB, 1}}) == "0 0 0 1 1 1 2 2 2 2 2 2");
    // Nowhere is room: the last one gets the rest.
    Graph none = chain({4, 4, 4, 4});
    CHECK(spread_over(none, {{layer, 0}, {layer, 1}}) == "0 0 0 1 1 1 1 1 1 1 1 1");
  }

  TEST_CASE("cuts: near the ideal point the narrowest value is carried over") {
    // The products are wide, the sums between them narrow; the ideal point lies in the middle of the
    // second layer, whose weights are small.
    Graph g = graph_of(R"(graph {
      input x: f32[1,64]
      weight a: f32[64,512]
      weight s: f32[512]
      weight b: f32[512,64]
      wide = matmul(x, a)
      act = unary(wide) {kind="relu"}
      scaled = binary(act, s) {kind="mul"}
      narrow = reduce(scaled) {kind="sum", axes=[1], keepdims=true}
      shifted = binary(narrow, s) {kind="add"}
      end = matmul(shifted, b)
      output "y" = end
    })");
    CHECK(spread_over(g, {{kMiB, 0}, {kMiB, 0}}) == "0 0 0 0 1 1");
  }

  TEST_CASE("gradients: they, and what an optimizer does, go to the device of the weight") {
    Graph g = graph_of(kTraining);
    const std::vector<SpreadDevice> devices = {{kMiB, 0}, {kMiB, 0}};
    const std::vector<double> bytes = spread(g, devices, {});
    CHECK(device_of(g, "h") == 0);
    CHECK(device_of(g, "y") == 1);
    for (const char* name : {"na", "ua", "qa"}) CHECK(device_of(g, name) == 0);
    for (const char* name : {"nb", "ub", "qb", "q"}) CHECK(device_of(g, name) == 1);
    // Each weight with its gradient and state, and what the layers make.
    const double weight = 8 * 32 * 4;
    CHECK(std::accumulate(bytes.begin(), bytes.end(), 0.0) ==
          doctest::Approx(6 * weight + 4 * (2 * 32 + 8 + 0.25) * 4));

    const Graph all = simplify(expand_grads(g));
    for (const Update& u : all.updates()) {
      const bool first = all[u.target].name.ends_with("a");
      CHECK(all[all[u.value].node].device == (first ? 0 : 1));
    }
    // Backward nodes carry the device of the node that they are of.
    uint32_t seen = 0;
    for (NodeId n = 0; n < all.node_count(); ++n) {
      const std::string& from = all[n].provenance;
      if (!from.starts_with("grad of ") || from == "grad of loss") continue;
      CHECK(all[n].device == device_of(g, from.substr(8)));
      ++seen;
    }
    CHECK(seen >= 3);
  }

  TEST_CASE("gradients: recomputed nodes stay on their device") {
    Graph g = graph_of(R"(graph {
      input x: f32[4,8]
      weight a: f32[8,32]
      weight b: f32[32,8]
      h = matmul(x, a) @"h" recompute 1
      r = unary(h) {kind="sin"} @"r" recompute 1
      y = matmul(r, b) @"y" recompute 2
      t = unary(y) {kind="sin"} @"t" recompute 2
      loss = reduce(t) {kind="mean", axes=[0,1], keepdims=false}
      (ga, gb) = grad(loss, a, b)
      output "ga" = ga
      output "gb" = gb
    })");
    spread(g, std::vector<SpreadDevice>{{kMiB, 0}, {kMiB, 0}}, {});
    REQUIRE(device_of(g, "h") == 0);
    REQUIRE(device_of(g, "y") == 1);
    const Graph all = expand_grads(g);
    uint32_t clones = 0;
    for (NodeId n = 0; n < all.node_count(); ++n)
      if (all[n].clone) {
        ++clones;
        CHECK(all[n].device == device_of(g, all[n].provenance));
      }
    CHECK(clones == 2);
  }

  TEST_CASE("homes: a graph follows the weights that lie somewhere already") {
    const auto home = [](Space space, std::string_view name) -> uint32_t {
      CHECK(space == Space::weight);
      return name == "w0" || name == "w1" || name == "w2" ? 1 : name == "w3" ? 0 : kNone;
    };
    Graph g = chain({4, 4, 4, 4});
    CHECK(spread_over(g, {{kMiB, 0}, {kMiB, 0}}, home) == "1 1 1 1 1 1 1 1 1 0 0 0");
    // One without a home goes with its neighbours.
    Graph more = chain({4, 4, 4, 4, 1});
    CHECK(spread_over(more, {{kMiB, 0}, {kMiB, 0}}, home) == "1 1 1 1 1 1 1 1 1 0 0 0 0 0 0");
    // State without a home that is read with a weight that has one goes there, and so does what is
    // made of it.
    Graph apply = graph_of(R"(graph {
      weight a: f32[8] weight b: f32[8]
      state ma: f32[8] state mb: f32[8]
      da = binary(ma, a) {kind="mul"} ra = unary(da) {kind="exp"}
      db = binary(mb, b) {kind="mul"} rb = unary(db) {kind="exp"}
      update ma = ra update mb = rb })");
    CHECK(spread_over(apply, {{kMiB, 0}, {kMiB, 0}}, [](Space space, std::string_view name) {
            return space == Space::weight ? (name == "a" ? 1u : 0u) : kNone;
          }) == "1 1 0 0");
    // A home on a device that is not of this graph counts for nothing.
    Graph elsewhere = chain({4, 4});
    CHECK(spread_over(elsewhere, {{kMiB, 0}, {kMiB, 0}},
                      [](Space, std::string_view) { return kNone; }) == "0 0 0 1 1 1");
  }

  TEST_CASE("no weights: what the nodes make is shared, and an empty graph is fine") {
    Graph g = graph_of(R"(graph { input x: f32[64]
      a = unary(x) {kind="exp"} b = unary(a) {kind="exp"} c = unary(b) {kind="exp"}
      d = unary(c) {kind="exp"} output "d" = d })");
    CHECK(spread_over(g, {{kMiB, 0}, {kMiB, 0}}) == "0 0 1 1");
    Graph empty = graph_of("graph { input x: f32[64] output \"x\" = x }");
    CHECK(spread_over(empty, {{kMiB, 0}, {kMiB, 0}}) == "");
  }

  TEST_CASE("pins: by name, the first that matches; nodes without a name follow") {
    Graph g = chain({4, 4, 4});
    const std::vector<Pin> pins = {{"m1", 1}, {"m*", 0}, {"nothing", 0}, {"?2", 1}};
    CHECK(pin_nodes(g, pins) == std::vector<std::string>{"nothing"});
    CHECK(device_of(g, "m0") == 0);
    CHECK(device_of(g, "m1") == 1);
    CHECK(device_of(g, "m2") == 0);  // an earlier pin
    CHECK(device_of(g, "s2") == 1);
    spread(g, std::vector<SpreadDevice>{{kMiB, 0}, {kMiB, 0}}, {});
    CHECK(device_of(g, "m1") == 1);
    CHECK(device_of(g, "m2") == 0);
    CHECK(device_of(g, "s2") == 1);

    Graph unnamed;
    Builder b(unnamed, "layer.0");
    const Value x = b.exp(unnamed.input("x", {kF32, {2}}));
    b.provenance = "";
    const Value y = b.exp(x);
    b.provenance = "layer.1";
    unnamed.output("z", b.exp(y));
    pin_nodes(unnamed, std::vector<Pin>{{"layer.0", 1}});
    CHECK(devices_of(unnamed) == "1 1 0");
    CHECK(unnamed[NodeId{1}].pinned);
    CHECK(!unnamed[NodeId{2}].pinned);
  }

  TEST_CASE("pins: forms with nodes on two devices are not raised") {
    constexpr std::string_view kSilu = R"(graph { input x: f32[8]
      s = unary(x) {kind="sigmoid"} y = binary(x, s) {kind="mul"} output "y" = y })";
    const auto ops = [&](std::vector<Pin> pins) {
      Graph g = graph_of(kSilu);
      pin_nodes(g, pins);
      const Graph raised = raise(g);
      for (NodeId n = 0; n < raised.node_count(); ++n) CHECK(raised[n].pinned == !pins.empty());
      return ops_of(raised) + ": " + devices_of(raised);
    };
    CHECK(ops({}) == "unary: 0");
    CHECK(ops({{"*", 1}}) == "unary: 1");
    CHECK(ops({{"s", 1}, {"y", 0}}) == "unary binary: 1 0");
  }

  TEST_CASE("pins: gradients go with the pinned node") {
    Graph g = graph_of(kTraining);
    pin_nodes(g, std::vector<Pin>{{"y", 0}, {"h", 1}});
    spread(g, std::vector<SpreadDevice>{{kMiB, 0}, {kMiB, 0}}, {});
    CHECK(device_of(g, "ua") == 1);
    CHECK(device_of(g, "ub") == 0);
    const Graph all = expand_grads(g);
    for (NodeId n = 0; n < all.node_count(); ++n)
      if (all[n].provenance == "grad of y") CHECK(all[n].pinned);
  }
}
