// SPDX-License-Identifier: Apache-2.0
// Working memory: who shares it, and what is given back when memory is short. Plans: who waits for
// whom. The plugin adds, in scratch memory of the size of its operands times eight; the test counts
// its memory, limits it, and holds up its makers.
#define TENON_ENTRY_SYMBOL gauge_entry
#include <doctest/doctest.h>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

#include "exec/context.hpp"
#include "exec/lease.hpp"
#include "host/options.hpp"
#include "ops/build.hpp"

namespace {

namespace sdk = tenon::sdk;
namespace op = tenon::sdk::op;

constexpr uint64_t kScratchFactor = 8;

std::atomic<uint64_t> bytes_in_use{0}, peak_bytes{0};
std::atomic<uint64_t> most_bytes{0};  // 0 = no limit
std::atomic<int> binds{0}, failures_left{0}, runs{0};
std::atomic<uint64_t> scratch_limit_seen{0};

// Makers of `count` elements wait here.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t count = -1;
  int waiting = 0;
} gate;

class Memory final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    if (most_bytes && bytes_in_use + bytes > most_bytes)
      throw sdk::Failure(TENON_OUT_OF_MEMORY, "the gauge is full");
    bytes_in_use += bytes;
    peak_bytes = std::max(peak_bytes.load(), bytes_in_use.load());
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t bytes) noexcept override {
    bytes_in_use -= bytes;
    ::operator delete(memory, std::align_val_t(64));
  }
};

sdk::Kernel make_binary(const op::binary& n, const sdk::Node& node) {
  const int64_t count = node.out(0).type().elements();
  if (n.kind != "add" || n.a.type().elements() != count || n.b.type().elements() != count)
    throw sdk::Refusal::shape("equal shapes are added, nothing else");
  {
    std::unique_lock lock(gate.mutex);
    if (gate.count == count) {
      ++gate.waiting;
      gate.changed.notify_all();
      gate.changed.wait(lock, [&] { return gate.count != count; });
    }
  }
  sdk::Kernel kernel;
  kernel.scratch = static_cast<uint64_t>(count) * sizeof(float) * kScratchFactor;
  kernel.tune = [scratch = kernel.scratch](uint64_t limit) {
    scratch_limit_seen = limit;
    return std::min(scratch, limit);
  };
  kernel.prepare = [] { ++binds; };
  kernel.run = [count](const sdk::Call& c) {
    ++runs;
    if (failures_left > 0 && failures_left-- > 0)
      throw sdk::Failure(TENON_OUT_OF_MEMORY, "no room to run");
    auto* scratch = static_cast<float*>(c.scratch);
    for (int64_t i = 0; i < count; ++i) scratch[i] = c.in<float>(0)[i] + c.in<float>(1)[i];
    std::copy_n(scratch, count, c.out<float>(0));
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<op::binary, make_binary>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "gauge", .name = "a test", .memory_size = 1 << 20}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Memory>();
}
constexpr sdk::PluginSpec kSpec{.name = "gauge",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open};

}  // namespace

TENON_PLUGIN(kSpec, "gauge", TENON_ISA_BASELINE)

namespace tenon::core {
namespace {

using Floats = std::vector<float>;

struct Rig {
  std::shared_ptr<Runtime> runtime = std::make_shared<Runtime>(only({gauge_entry}));
  std::shared_ptr<Store> store = std::make_shared<Store>();

  Rig() { most_bytes = 0, binds = 0, failures_left = 0, runs = 0; }
  std::shared_ptr<Executable> executable(const Graph& graph) {
    return std::make_shared<Executable>(runtime, graph, store,
                                        ExecutableOptions{.device = "gauge:0", .plan = {}});
  }
};

// y = x + x, of `count` numbers or of a symbol.
Graph doubled(int64_t count) {
  Graph g;
  const Dim dim = count < 0 ? g.symbol("N") : count;
  const Value x = g.input("x", Type{TENON_DTYPE_F32, Shape{dim}});
  g.output("y", g[g.add(op::binary{.kind = "add", .a = x, .b = x})].outputs[0]);
  return g;
}

Floats run(Context& context, int64_t count, float value = 1) {
  const Floats x(static_cast<size_t>(count), value);
  context.set("x", Type{TENON_DTYPE_F32, Shape{count}}, std::as_bytes(std::span(x)));
  context.run();
  Floats y(static_cast<size_t>(count));
  context.get("y", y.data(), y.size() * sizeof(float));
  return y;
}
Floats twos(int64_t count) { return Floats(static_cast<size_t>(count), 2); }

constexpr int64_t kCount = 1024;
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr uint64_t kScratch = kBytes * kScratchFactor;

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

TEST_SUITE("exec/pool") {
  TEST_CASE("contexts of several executables that run in turn share their working memory") {
    Rig r;
    const uint64_t before = bytes_in_use;
    const auto small = r.executable(doubled(kCount / 2)), large = r.executable(doubled(kCount));
    Context a(large), b(large), c(small), d(small);
    CHECK(run(a, kCount) == twos(kCount));
    CHECK(bytes_in_use - before == 2 * kBytes + kScratch);
    CHECK(run(b, kCount) == twos(kCount));
    CHECK(run(c, kCount / 2) == twos(kCount / 2));
    CHECK(run(d, kCount / 2) == twos(kCount / 2));
    // Inputs and outputs are a context's own.
    CHECK(bytes_in_use - before == 6 * kBytes + kScratch);
    const int bound = binds;
    for (int i = 0; i < 3; ++i) {
      CHECK(run(a, kCount) == twos(kCount));
      CHECK(run(d, kCount / 2) == twos(kCount / 2));
      CHECK(run(b, kCount) == twos(kCount));
    }
    CHECK(binds == bound);  // all are bound to the same memory
    CHECK(bytes_in_use - before == 6 * kBytes + kScratch);
  }

  TEST_CASE("memory that a context has outgrown goes before the larger one is made") {
    Rig r;
    const auto executable = r.executable(doubled(-1));
    const uint64_t before = bytes_in_use;
    Context context(executable);
    uint64_t inputs_and_outputs = 0;
    for (const int64_t count : {10, 20, 40, 80}) {
      CHECK(run(context, count) == twos(count));
      inputs_and_outputs += 2 * static_cast<uint64_t>(count) * sizeof(float);
      const uint64_t scratch = static_cast<uint64_t>(count) * sizeof(float) * kScratchFactor;
      CHECK(bytes_in_use - before == inputs_and_outputs + scratch);
    }
    CHECK(run(context, 10) == twos(10));  // in the memory of 80
  }

  TEST_CASE("memory of a context that is gone serves the next one") {
    Rig r;
    const auto executable = r.executable(doubled(kCount));
    const uint64_t before = bytes_in_use;
    for (int i = 0; i < 3; ++i) {
      Context context(executable);
      CHECK(run(context, kCount) == twos(kCount));
      CHECK(bytes_in_use - before == 2 * kBytes + kScratch);
    }
    CHECK(bytes_in_use - before == kScratch);
  }

  TEST_CASE("the pool goes with the last executable of its device") {
    Rig r;
    const uint64_t before = bytes_in_use;
    {
      Context context(r.executable(doubled(kCount)));
      CHECK(run(context, kCount) == twos(kCount));
    }
    CHECK(bytes_in_use == before);
  }

  TEST_CASE("a device short of memory gets idle working memory back, and the call is made again") {
    Rig r;
    const uint64_t before = bytes_in_use;
    const auto first = r.executable(doubled(kCount));
    Context a(first);
    CHECK(run(a, kCount) == twos(kCount));
    SUBCASE("for working memory") {
      // Too large for what is idle, too much beside it.
      const auto second = r.executable(doubled(kCount + 64));
      most_bytes = before + 2 * kBytes + 2 * (kBytes + 256) + kScratch + 64 * 4 * kScratchFactor;
      Context b(second);
      CHECK(run(b, kCount + 64) == twos(kCount + 64));
      CHECK(run(a, kCount) == twos(kCount));
    }
    SUBCASE("for an input") {
      most_bytes = before + 2 * kBytes + kScratch;
      Context b(first);
      CHECK(message_of([&] { run(b, kCount); }).find("the gauge is full") != std::string::npos);
      most_bytes = before + 4 * kBytes + kScratch - 1;
      CHECK(message_of([&] { run(b, kCount); }).find("the gauge is full") != std::string::npos);
      most_bytes = before + 4 * kBytes + kScratch;
      CHECK(run(b, kCount) == twos(kCount));
      CHECK(run(a, kCount) == twos(kCount));
    }
    most_bytes = 0;
  }

  TEST_CASE("idle memory stays below a quarter of the device's") {
    Rig r;
    // 1 MiB: 64 KiB of scratch each, five in use at once, and idle afterwards.
    constexpr int64_t kEach = (64 << 10) / sizeof(float) / kScratchFactor;
    const auto executable = r.executable(doubled(kEach));
    const uint64_t before = bytes_in_use;
    constexpr int kContexts = 6;
    {
      std::vector<std::shared_ptr<Lease>> held;
      const auto plan = executable->plan_for({});
      for (int i = 0; i < kContexts; ++i) {
        held.push_back(std::make_shared<Lease>(plan));
        held.back()->borrow();
      }
      CHECK(bytes_in_use - before == kContexts * (64 << 10));
      for (const auto& lease : held) lease->give_back();
      CHECK(bytes_in_use - before == (256 << 10) + (64 << 10));  // the limit, and the last one
    }
  }

  TEST_CASE("a run that is short of memory is made again, unless it updates") {
    Rig r;
    Context context(r.executable(doubled(kCount)));
    failures_left = 1;
    CHECK(run(context, kCount) == twos(kCount));
    CHECK(runs == 2);
    failures_left = 2;
    CHECK(message_of([&] { run(context, kCount); }).find("no room to run") != std::string::npos);
    CHECK(runs == 4);
    CHECK(run(context, kCount) == twos(kCount));

    Graph g;
    const Type type{TENON_DTYPE_F32, Shape{2}};
    const Value x = g.input("x", type), total = g.state("total", type);
    const Value sum = g[g.add(op::binary{.kind = "add", .a = total, .b = x})].outputs[0];
    g.update(total, sum);
    g.output("y", sum);
    const Floats zeros(2);
    r.store->set(Space::state, "total", type, std::as_bytes(std::span(zeros)));
    Context updates(r.executable(g));
    CHECK(run(updates, 2) == Floats{1, 1});
    runs = 0, failures_left = 1;
    CHECK(message_of([&] { run(updates, 2); }).find("no room to run") != std::string::npos);
    CHECK(runs == 1);
  }

  TEST_CASE("a thread that needs a known plan does not wait for another one") {
    Rig r;
    const auto executable = r.executable(doubled(-1));
    Context known(executable), fresh(executable), same(executable);
    CHECK(run(known, 8) == twos(8));
    {
      const std::lock_guard lock(gate.mutex);
      gate.count = 16, gate.waiting = 0;
    }
    auto slow = std::async(std::launch::async, [&] { return run(fresh, 16); });
    {
      std::unique_lock lock(gate.mutex);
      gate.changed.wait(lock, [] { return gate.waiting > 0; });
    }
    auto quick = std::async(std::launch::async, [&] { return run(known, 8); });
    // Who needs the plan that is being made waits for it, and does not make it a second time.
    auto waits = std::async(std::launch::async, [&] { return run(same, 16); });
    constexpr auto kHang = std::chrono::minutes(5);
    CHECK(quick.wait_for(kHang) == std::future_status::ready);
    {
      const std::lock_guard lock(gate.mutex);
      CHECK(gate.waiting == 1);
      gate.count = -1;
    }
    gate.changed.notify_all();
    CHECK(quick.get() == twos(8));
    CHECK(slow.get() == twos(16));
    CHECK(waits.get() == twos(16));
  }

  TEST_CASE("a plan that cannot be made fails whoever waits for it, and is tried again") {
    Rig r;
    const auto executable = r.executable(doubled(-1));
    Context a(executable);
    r.runtime->host.faults().set({.calls = kFaultCompile, .nth = 1, .code = Code::internal});
    CHECK(message_of([&] { run(a, 8); }).find("fault asked for") != std::string::npos);
    r.runtime->host.faults().lift();
    CHECK(run(a, 8) == twos(8));
  }

  TEST_CASE("what is computed of a weight once takes no more memory than a run of it would") {
    Rig r;
    const Type type{TENON_DTYPE_F32, Shape{kCount}};
    const Floats ones(kCount, 1);
    r.store->set(Space::weight, "w", type, std::as_bytes(std::span(ones)));
    Graph g;
    const Value x = g.input("x", type), w = g.weight("w", type);
    const auto add = [&](Value a, Value b) {
      return g[g.add(op::binary{.kind = "add", .a = a, .b = b})].outputs[0];
    };
    Value sum = w;
    for (int i = 0; i < 10; ++i) sum = add(sum, w);
    g.output("y", add(x, sum));
    Context context(r.executable(g));
    const uint64_t before = bytes_in_use;
    peak_bytes = 0;
    CHECK(run(context, kCount) == Floats(kCount, 12));
    // The weight and its sum, x and y, and for the making two values and scratch at a time.
    CHECK(peak_bytes - before <= 6 * kBytes + 2 * kScratch);
    CHECK(runs == 10 + 1);
    CHECK(run(context, kCount) == Floats(kCount, 12));
    CHECK(runs == 10 + 2);
  }

  TEST_CASE("a program may take half of the memory that is left as scratch") {
    Rig r;
    const uint64_t whole = 1 << 20;
    {
      const auto executable = r.executable(doubled(1 << 10));
      CHECK(scratch_limit_seen == kScratch);  // there is room
    }
    const Type type{TENON_DTYPE_F32, Shape{160 << 10}};  // 640 KiB
    const Floats w(160 << 10);
    r.store->set(Space::weight, "w", type, std::as_bytes(std::span(w)));
    Graph g;
    const Value weight = g.weight("w", type);
    g.output("y", g[g.add(op::binary{.kind = "add", .a = weight, .b = weight})].outputs[0]);
    const auto executable = r.executable(g);
    CHECK(scratch_limit_seen == (whole - (640 << 10)) / 2);
  }
}

}  // namespace
}  // namespace tenon::core
