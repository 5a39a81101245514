// SPDX-License-Identifier: Apache-2.0
// Regions and transfers of several devices at once, with and without streams.
#include <doctest/doctest.h>

#include "exec/context.hpp"
#include "host/options.hpp"
#include "meeting/meeting.hpp"
#include "ops/build.hpp"

namespace tenon::core {
namespace {

using meeting::meeting;
using Floats = std::vector<float>;
const Type kType{TENON_DTYPE_F32, Shape{1000}};

Value binary(Graph& g, const char* kind, Value a, Value b) {
  return g[g.add(op::binary{.kind = kind, .a = a, .b = b})].outputs[0];
}

struct Rig {
  std::shared_ptr<Runtime> runtime =
      std::make_shared<Runtime>(only({cpu_entry, meet_entry, flow_entry}));
  std::shared_ptr<Store> store = std::make_shared<Store>();
  Rig() { meeting().reset(); }
  std::shared_ptr<Executable> executable(const Graph& graph, const char* device) {
    return std::make_shared<Executable>(
        runtime, graph, store,
        ExecutableOptions{.device = device, .plan = {.simplify = false, .fuse = false}});
  }
};

Floats run(Context& context, bool async, const char* output) {
  const Floats x(1000, 3);
  context.set("x", kType, std::as_bytes(std::span(x)));
  if (async) {
    context.run_async();
    context.wait();
  } else {
    context.run();
  }
  Floats y(1000);
  context.get(output, y.data(), y.size() * sizeof(float));
  return y;
}

std::vector<std::string> devices_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const PlannedRegion& r : plan.regions) out.push_back(plan.devices[r.device]->info().kind);
  return out;
}

TEST_SUITE("exec/overlap") {
  // a leaves the first device for the subtraction; the product does not need it, and ends only
  // after the subtraction has begun.
  Graph product_beside_a_transfer(bool back) {
    Graph g;
    const Value x = g.input("x", kType);
    const Value a = binary(g, "add", x, x), b = binary(g, "sub", a, x);
    const Value c = binary(g, "mul", x, x);
    g.output("b", b);
    g.output("c", back ? binary(g, "add", b, c) : c);
    return g;
  }

  TEST_CASE("a transfer and the region that needs it run beside a region that does not") {
    for (const char* device : {"meet:0", "flow:0"})
      for (const bool back : {false, true})
        for (const bool async : {false, true}) {
          CAPTURE(std::string(device));
          CAPTURE(back);
          CAPTURE(async);
          Rig r;
          const auto executable = r.executable(product_beside_a_transfer(back), device);
          const std::string kind(device, 4);
          std::vector<std::string> expected = {kind, kind, "cpu"};
          if (back) expected.push_back(kind);
          CHECK(devices_of(executable->plan_for({})->plan) == expected);
          Context context(executable);
          for (int i = 0; i < 3; ++i) {
            meeting().reset();
            CHECK(run(context, async, "c") == Floats(1000, back ? 12 : 9));
            CHECK_FALSE(meeting().missed());
            Floats b(1000);
            context.get("b", b.data(), b.size() * sizeof(float));
            CHECK(b == Floats(1000, 3));
          }
        }
  }

  TEST_CASE(
      "a failure in one of several regions ends the run with its name, and the next is right") {
    for (const char* device : {"meet:0", "flow:0"})
      for (const bool async : {false, true}) {
        CAPTURE(std::string(device));
        CAPTURE(async);
        Rig r;
        Context context(r.executable(product_beside_a_transfer(true), device));
        CHECK(run(context, async, "c") == Floats(1000, 12));
        Faults& faults = r.runtime->host.faults();
        for (const uint32_t calls : {uint32_t{kFaultRun}, kFaultRead | kFaultWrite | kFaultCopy})
          for (uint64_t nth = 1;; ++nth) {
            CAPTURE(calls);
            CAPTURE(nth);
            meeting().reset();
            meeting().subtract();  // nobody waits for a region that does not run
            faults.set({.calls = calls, .nth = nth, .code = Code::internal});
            std::string message;
            try {
              run(context, async, "c");
            } catch (const Error& e) {
              message = e.what();
            }
            if (faults.lift() < nth) break;
            CHECK(message.find("fault asked for") != std::string::npos);
            meeting().reset();
            CHECK(run(context, async, "c") == Floats(1000, 12));
          }
      }
  }

  TEST_CASE("many chains between two devices: values are those of one device") {
    Graph g;
    const Value x = g.input("x", kType);
    std::vector<Value> ends;
    for (int chain = 0; chain < 6; ++chain) {
      Value v = x;
      for (int i = 0; i <= chain; ++i) {
        v = binary(g, i % 2 ? "sub" : "add", v, x);
        if (i % 3 == 2) v = binary(g, "add", v, ends.empty() ? x : ends.back());
      }
      ends.push_back(v);
    }
    Value sum = ends[0];
    for (size_t i = 1; i < ends.size(); ++i) sum = binary(g, i % 2 ? "sub" : "add", sum, ends[i]);
    g.output("y", sum);
    Rig r;
    Context alone(r.executable(g, "cpu:0"));
    const Floats right = run(alone, false, "y");
    for (const char* device : {"meet:0", "flow:0"}) {
      const auto executable = r.executable(g, device);
      CHECK(executable->plan_for({})->plan.regions.size() > 3);
      for (const bool async : {false, true}) {
        Context context(executable);
        for (int i = 0; i < 20; ++i) CHECK(run(context, async, "y") == right);
      }
    }
  }
}

}  // namespace
}  // namespace tenon::core
