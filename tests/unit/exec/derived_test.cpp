// SPDX-License-Identifier: Apache-2.0
// Derived weights: when they are made, who shares them, and that no run sees an old one. The plugin
// multiplies elementwise by a weight that it keeps in reverse order, and takes the maximum with it
// in the same layout with zeros before.
#define TENON_ENTRY_SYMBOL backward_entry
#include <doctest/doctest.h>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

#include "exec/context.hpp"
#include "host/options.hpp"
#include "ops/build.hpp"

namespace {

namespace sdk = tenon::sdk;
namespace op = tenon::sdk::op;

std::atomic<int> makes{0}, buffers{0};
std::atomic<bool> make_fails{false}, run_fails{false};

class Memory final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    ++buffers;
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    --buffers;
    ::operator delete(memory, std::align_val_t(64));
  }
};

// mul and max read a frozen b backward; add reads everything as it is.
sdk::Kernel make_binary(const op::binary& n, const sdk::Node& node) {
  const bool mul = n.kind == "mul", max = n.kind == "max";
  if (!mul && !max && n.kind != "add") throw sdk::Refusal::attribute("kind", n.kind);
  const int64_t count = node.out(0).type().elements();
  if (n.a.type().elements() != count || n.b.type().elements() != count)
    throw sdk::Refusal::shape("no broadcasting here");
  const bool backward = (mul || max) && n.b.frozen();
  const int64_t before = max ? count : 0;
  sdk::Kernel kernel;
  kernel.run = [count, backward, before, mul, max](const sdk::Call& c) {
    if (run_fails) throw std::runtime_error("no run today");
    const float *a = c.in<float>(0), *b = c.in<float>(1);
    for (int64_t i = 0; i < count; ++i) {
      const float right = b[backward ? before + count - 1 - i : i];
      c.out<float>(0)[i] = mul ? a[i] * right : max ? std::max(a[i], right) : a[i] + right;
    }
  };
  if (backward)
    kernel.derived.push_back({1, "backward", static_cast<uint64_t>(before + count) * sizeof(float),
                              [count, before](const void* dense, void* derived) {
                                if (make_fails) throw std::runtime_error("no derived weight today");
                                ++makes;
                                float* to = std::fill_n(static_cast<float*>(derived), before, 0.0f);
                                std::reverse_copy(static_cast<const float*>(dense),
                                                  static_cast<const float*>(dense) + count, to);
                              }});
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<op::binary, make_binary>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "backward", .name = "a test", .memory_size = 1 << 30}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Memory>();
}
constexpr sdk::PluginSpec kSpec{.name = "backward",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open};

}  // namespace

TENON_PLUGIN(kSpec, "backward", TENON_ISA_BASELINE)

namespace tenon::core {
namespace {

using Floats = std::vector<float>;
constexpr int64_t kCount = 3;
const Type kType{TENON_DTYPE_F32, Shape{kCount}};

std::span<const std::byte> bytes(const Floats& values) { return std::as_bytes(std::span(values)); }

struct Rig {
  std::shared_ptr<Runtime> runtime = std::make_shared<Runtime>(only({backward_entry}));
  std::shared_ptr<Store> store = std::make_shared<Store>();

  Rig() {
    makes = 0, make_fails = run_fails = false;
    set({1, 2, 3});
  }
  void set(const Floats& w) { store->set(Space::weight, "w", kType, bytes(w)); }
  std::shared_ptr<Executable> executable(const Graph& graph) {
    return std::make_shared<Executable>(runtime, graph, store,
                                        ExecutableOptions{.device = "backward:0", .plan = {}});
  }
};

Value binary(Graph& g, const char* kind, Value a, Value b) {
  return g[g.add(tenon::core::op::binary{.kind = kind, .a = a, .b = b})].outputs[0];
}

// y = x * w, and whatever else is asked for.
Graph product(bool dense_too = false) {
  Graph g;
  const Value x = g.input("x", kType), w = g.weight("w", kType);
  g.output("y", binary(g, "mul", x, w));
  if (dense_too) g.output("z", binary(g, "add", w, x));
  return g;
}

Floats run(Context& context, const char* output = "y", const Floats& x = {10, 100, 1000}) {
  context.set("x", kType, bytes(x));
  context.run();
  Floats y(kCount);
  context.get(output, y.data(), kCount * sizeof(float));
  return y;
}

TEST_SUITE("exec/derived") {
  TEST_CASE("made once, shared by executables, gone with the last") {
    Rig r;
    const int before = buffers;
    {
      Context one(r.executable(product())), two(r.executable(product()));
      CHECK(run(one) == Floats{10, 200, 3000});
      CHECK(makes == 1);
      const int after_one = buffers;
      CHECK(run(one) == Floats{10, 200, 3000});
      CHECK(run(two) == Floats{10, 200, 3000});
      CHECK(makes == 1);
      CHECK(buffers == after_one + 2);  // the second's input and output alone
    }
    CHECK(buffers == before);  // the dense weight was never needed on the device
  }

  TEST_CASE("made again when the weight is set") {
    Rig r;
    Context context(r.executable(product()));
    CHECK(run(context) == Floats{10, 200, 3000});
    r.set({4, 5, 6});
    CHECK(run(context) == Floats{40, 500, 6000});
    CHECK(makes == 2);
    CHECK(run(context) == Floats{40, 500, 6000});
    CHECK(makes == 2);
  }

  TEST_CASE("made again when another executable updates the weight, which reads it as it is") {
    Rig r;
    Graph g;
    const Value x = g.input("x", kType), w = g.weight("w", kType);
    g.update(w, binary(g, "add", w, x));
    g.output("y", binary(g, "mul", x, w));
    Context train(r.executable(g)), evaluate(r.executable(product()));
    CHECK(run(evaluate) == Floats{10, 200, 3000});
    CHECK(run(train, "y", {1, 1, 1}) == Floats{1, 2, 3});
    CHECK(makes == 1);
    CHECK(run(evaluate) == Floats{20, 300, 4000});
    CHECK(makes == 2);
  }

  TEST_CASE("layouts of one name and two sizes are two") {
    Rig r;
    Graph g;
    const Value x = g.input("x", kType), w = g.weight("w", kType);
    g.output("y", binary(g, "max", x, w));
    Context small(r.executable(product())), large(r.executable(g));
    for (int i = 0; i < 2; ++i) {
      CHECK(run(small) == Floats{10, 200, 3000});
      CHECK(run(large, "y", {2, 2, 2}) == Floats{2, 2, 3});
    }
    CHECK(makes == 2);
    r.set({4, 5, 6});
    CHECK(run(large, "y", {5, 5, 5}) == Floats{5, 5, 6});
    CHECK(run(small) == Floats{40, 500, 6000});
    CHECK(makes == 4);
  }

  TEST_CASE("a run that changes nothing leaves the generation; what changes the weight does not") {
    Rig r;
    const auto entry = r.store->find(Space::weight, "w");
    Context context(r.executable(product()));
    run(context);
    const uint64_t bound = entry->generation();
    run(context);
    CHECK(entry->generation() == bound);
    r.set({4, 5, 6});
    CHECK(entry->generation() != bound);
    CHECK(run(context) == Floats{40, 500, 6000});
  }

  TEST_CASE("undefined by another run: refused by who had bound it, until it is set") {
    Rig r;
    Graph g;
    const Value x = g.input("x", kType), w = g.weight("w", kType);
    g.update(w, binary(g, "add", w, x));
    g.output("y", binary(g, "add", x, x));
    Context train(r.executable(g)), evaluate(r.executable(product()));
    CHECK(run(evaluate) == Floats{10, 200, 3000});
    run_fails = true;
    CHECK_THROWS_WITH_AS(run(train), doctest::Contains("no run today"), Error);
    run_fails = false;
    CHECK_THROWS_WITH_AS(run(evaluate), doctest::Contains("weight 'w' is undefined"), Error);
    r.set({1, 1, 1});
    CHECK(run(evaluate) == Floats{10, 100, 1000});
  }

  TEST_CASE("beside a reader of the dense content") {
    Rig r;
    Context context(r.executable(product(true)));
    CHECK(run(context) == Floats{10, 200, 3000});
    CHECK(run(context, "z") == Floats{11, 102, 1003});
    r.set({0, 0, 7});
    CHECK(run(context) == Floats{0, 0, 7000});
    CHECK(run(context, "z") == Floats{10, 100, 1007});
  }

  TEST_CASE("a failure to make it fails the run, and the next run is right") {
    Rig r;
    Context context(r.executable(product()));
    make_fails = true;
    std::string text;
    try {
      run(context);
    } catch (const Error& e) {
      text = e.what();
    }
    CHECK_MESSAGE(text.find("no derived weight today") != std::string::npos, text);
    make_fails = false;
    CHECK(run(context) == Floats{10, 200, 3000});
  }

  TEST_CASE("a weight of another type is refused, as without") {
    Rig r;
    Context context(r.executable(product()));
    run(context);
    const Floats four{1, 2, 3, 4};
    r.store->set(Space::weight, "w", Type{TENON_DTYPE_F32, Shape{4}}, bytes(four));
    CHECK_THROWS_WITH_AS(run(context), doctest::Contains("weight 'w'"), Error);
    r.set({1, 1, 1});
    CHECK(run(context) == Floats{10, 100, 1000});
  }

  TEST_CASE("runs in several threads see whole weights while another sets them") {
    Rig r;
    r.set({0, 0, 0});
    std::atomic<bool> stop{false};
    std::atomic<int> torn{0}, runs{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 3; ++t)
      readers.emplace_back([&] {
        Context context(r.executable(product()));
        while (!stop) {
          const Floats y = run(context, "y", {1, 1, 1});
          torn += y[0] != y[1] || y[1] != y[2];
          ++runs;
        }
      });
    for (int i = 1; i <= 200 || runs < 200; ++i) {
      const auto v = static_cast<float>(i);
      r.set({v, v, v});
    }
    stop = true;
    for (auto& t : readers) t.join();
    CHECK(torn == 0);
  }
}

}  // namespace
}  // namespace tenon::core
