// SPDX-License-Identifier: Apache-2.0
// Hints of a graph: the makers of a plugin see them in queries and when a program is compiled, also inside
// functions that the host runs.
#define TENON_ENTRY_SYMBOL listener_entry
#include <doctest/doctest.h>
#include <tenon/plugin.hpp>

#include <map>

#include "exec/context.hpp"
#include "host/options.hpp"
#include "ops/build.hpp"

namespace {

namespace sdk = tenon::sdk;
namespace op = tenon::sdk::op;

std::map<uint32_t, int> heard;  // hints, and how often a maker saw them

class Memory final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(64));
  }
};

sdk::Kernel make_unary(const op::unary& n, const sdk::Node& node) {
  ++heard[node.hints()];
  return {.run = [count = n.x.type().elements()](const sdk::Call& c) {
    for (int64_t i = 0; i < count; ++i) c.out<float>(0)[i] = -c.in<float>(0)[i];
  }};
}

constexpr sdk::Row kRows[] = {sdk::row<op::unary, make_unary>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "listener", .name = "a test", .memory_size = 1 << 20}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Memory>();
}
constexpr sdk::PluginSpec kSpec{.name = "listener",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open};

}  // namespace

TENON_PLUGIN(kSpec, "listener", TENON_ISA_BASELINE)

namespace tenon::core {
namespace {

// y = -x, once, or in each of three trips.
Graph negated(bool in_trips) {
  const Type type{TENON_DTYPE_F32, Shape{2}};
  const auto add = [](Graph& g, Value x) {
    return g[g.add(op::unary{.kind = "neg", .x = x})].outputs[0];
  };
  Graph g;
  const Value x = g.input("x", type);
  if (!in_trips) {
    g.output("y", add(g, x));
    return g;
  }
  Graph body;
  body.output("next", add(body, body.input("x", type)));
  const NodeId loop = g.add(op::scan{.body = std::make_shared<const Graph>(std::move(body)),
                                     .length = 3,
                                     .carry = {x},
                                     .count_ys = 1});
  g.output("y", g[loop].outputs[0]);
  return g;
}

std::vector<float> run(bool in_trips, bool batch_invariant) {
  heard.clear();
  const auto runtime = std::make_shared<Runtime>(only({listener_entry}));
  ExecutableOptions options{.device = "listener:0", .plan = {}};
  options.plan.batch_invariant = batch_invariant;
  options.plan.simplify = false;
  Context context(
      std::make_shared<Executable>(runtime, negated(in_trips), std::make_shared<Store>(), options));
  std::vector<float> x{1, -2}, y(2);
  context.set("x", Type{TENON_DTYPE_F32, Shape{2}}, std::as_bytes(std::span(x)));
  context.run();
  context.get("y", y.data(), y.size() * sizeof(float));
  return y;
}

TEST_SUITE("exec/hints") {
  TEST_CASE("makers see the hints of the graph, in a query and when a program is compiled") {
    for (const bool in_trips : {false, true})
      for (const uint32_t hints : {0U, TENON_HINT_BATCH_INVARIANT}) {
        CAPTURE(in_trips);
        CHECK(run(in_trips, hints != 0) == std::vector<float>{-1, 2});
        REQUIRE(heard.size() == 1);
        CHECK(heard.begin()->first == hints);
        CHECK(heard.begin()->second >= 2);
      }
  }
}

}  // namespace
}  // namespace tenon::core
