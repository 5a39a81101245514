// SPDX-License-Identifier: Apache-2.0
// The comfort layer over a plugin that misbehaves on request, linked into the test: what authors'
// code may throw, and how the layer answers.
#define TENON_ENTRY_SYMBOL naughty_entry
#include <doctest/doctest.h>
#include <tenon/plugin.hpp>

#include "fake_host.hpp"

namespace tenon::test {

namespace {

using sdk::Kernel;
using sdk::Node;
namespace op = sdk::op;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

int runs = 0, shutdowns = 0, binds = 0;
bool no_memory = false;

class Naughty final : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    if (no_memory) throw std::bad_alloc();
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(64));
  }
  void run(void (*body)(void*), void* arg) override {
    ++runs;
    body(arg);
  }
};

// kind says what goes wrong.
Kernel make_unary(const op::unary& n, const Node&) {
  if (n.kind == "throws") throw std::logic_error("make is broken");
  if (n.kind == "throws an int") throw 5;
  if (n.kind == "empty") return {};
  if (n.kind == "bound")
    return {.bind = [](const sdk::Call& c) -> sdk::Launcher {
      ++binds;
      return [x = c.in<float>(0), y = c.out<float>(0)](const sdk::Launch& at) {
        CHECK(at.stream == nullptr);
        CHECK(at.recording == nullptr);
        *y = *x + 1;
      };
    }};
  const auto run = [kind = n.kind, count = n.x.type().elements()](const sdk::Call& c) {
    if (kind == "no memory") throw std::bad_alloc();
    if (kind == "bug") throw std::logic_error("run is broken");
    if (kind == "int") throw 5;
    for (int64_t i = 0; i < count; ++i) c.out<float>(0)[i] = c.in<float>(0)[i] + 1;
  };
  return {.run = run, .label = "unary_" + n.kind};
}

// Takes transposed operands, but none that skip elements.
int strided_makes = 0;
Kernel make_square(const op::activation_backward& n, const Node&) {
  const sdk::Type& x = n.x.type();
  if (x.rank == 1 && x.strides[0] != 1) throw sdk::Refusal::shape("no gaps, please");
  ++strided_makes;
  const auto run = [count = x.elements()](const sdk::Call& c) {
    for (int64_t i = 0; i < count; ++i) c.out<float>(0)[i] = c.in<float>(0)[i] * c.in<float>(0)[i];
  };
  return {.run = run};
}

// Tuning halves what it may take, or breaks its word.
int tunings = 0;
bool tuned_beyond = false;
Kernel make_tuned(const op::softmax&, const Node&) {
  const auto run = [](const sdk::Call& c) {
    static_cast<char*>(c.scratch)[0] = 1;
    c.out<float>(0)[0] = 1;
  };
  Kernel kernel{.run = run, .scratch = 1024};
  kernel.tune = [](uint64_t most) {
    ++tunings;
    return tuned_beyond ? most + 1 : most / 2;
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<op::unary, make_unary>(),
    sdk::row<op::softmax, make_tuned>(),
    sdk::row<op::activation_backward, make_square>(sdk::kStrided),
    sdk::row<op::narrow, sdk::view_narrow>(sdk::kStrided),
};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "naughty", .name = "ready"},
          {.kind = "naughty", .name = "asleep", .reason = "it sleeps"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Naughty>();
}
struct Counted final : sdk::State {
  ~Counted() override { ++shutdowns; }
};
constexpr sdk::PluginSpec kSpec{.name = "naughty",
                                .version = "3.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .create = [](const sdk::Runtime&) -> std::unique_ptr<sdk::State> {
                                  return std::make_unique<Counted>();
                                },
                                .devices = devices,
                                .open = open};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::kSpec, "naughty", TENON_ISA_BASELINE)

namespace tenon::test {

TEST_SUITE("abi/layer/static") {
  TEST_CASE("run: one Device::run per run, around all steps; shutdown is told") {
    shutdowns = runs = 0;
    {
      const Plugin plugin(naughty_entry);
      BlobBuilder b;
      const uint32_t x = b.input({kF32, {2}}),
                     y = b.node("unary", {x}, {{kF32, {2}}}, {{"kind", "a"}});
      b.output(b.node("unary", {y}, {{kF32, {2}}}, {{"kind", "b"}}));
      CHECK(list_of<float>(plugin.run(b, {bytes_of(Floats{1, 2})})[0]) == Floats{3, 4});
      CHECK(runs == 1);
    }
    CHECK(shutdowns == 1);
  }

  TEST_CASE("run: whatever a kernel throws becomes a status of its step") {
    const Plugin plugin(naughty_entry);
    const auto problem_of = [&](const std::string& kind) {
      BlobBuilder b;
      b.output(b.node("unary", {b.input({kF32, {1}})}, {{kF32, {1}}}, {{"kind", kind}}));
      Problem p;
      plugin.run(b, {bytes_of(Floats{1})}, &p);
      return p;
    };
    const Problem memory = problem_of("no memory"), bug = problem_of("bug"),
                  number = problem_of("int");
    CHECK(memory.code == TENON_OUT_OF_MEMORY);
    CHECK((memory.flags & TENON_STATUS_RETRYABLE) != 0);
    CHECK(bug.code == TENON_INTERNAL);
    CHECK(bug.text == "unary_bug: run is broken");
    CHECK(bug.step == 0);
    CHECK(bug.run_id == 1);
    CHECK(bug.origin == "naughty: run");
    CHECK(number.code == TENON_INTERNAL);
  }

  TEST_CASE("query: whatever a maker throws is a refusal; an empty kernel is a refusal") {
    const Plugin plugin(naughty_entry);
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {1}});
    b.node("unary", {x}, {{kF32, {1}}}, {{"kind", "throws"}});
    b.node("unary", {x}, {{kF32, {1}}}, {{"kind", "empty"}});
    b.node("unary", {x}, {{kF32, {1}}}, {{"kind", "fine"}});
    b.node("unary", {x}, {{kF32, {1}}}, {{"kind", "throws an int"}});
    const std::vector<Verdict> v = plugin.query(b);
    CHECK(v[0].reason == TENON_REASON_OTHER);
    CHECK(v[0].text == "make is broken");
    CHECK(v[1].text == "its kernel is empty");
    CHECK(v[2].native);
    CHECK(v[3].text == "an exception of unknown type");
  }

  TEST_CASE("strides: a maker that refuses them is asked again with a copy") {
    const Plugin plugin(naughty_entry);
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {4}});
    const uint32_t gaps =
        b.node("narrow", {x}, {{kF32, {2}}}, {{"len", Ints{2}}, {"step", Ints{2}}});
    const uint32_t head = b.node("narrow", {x}, {{kF32, {2}}}, {{"len", Ints{2}}});
    b.output(b.node("activation_backward", {gaps, x}, {{kF32, {2}}}));
    b.output(b.node("activation_backward", {head, x}, {{kF32, {2}}}));
    const std::vector<Bytes> out = plugin.run(b, {bytes_of(Floats{1, 2, 3, 4})});
    CHECK(list_of<float>(out[0]) == Floats{1, 9});
    CHECK(list_of<float>(out[1]) == Floats{1, 4});
    // Two views, two kernels, one copy; the plugin has no copy row, so the layer's own runs.
    CHECK(Bound(plugin, b).info().step_count == 5);
  }

  TEST_CASE("compile: tuning has the last word on scratch, asked once and under the limit") {
    const Plugin plugin(naughty_entry);
    BlobBuilder b;
    b.output(b.node("softmax", {b.input({kF32, {1}})}, {{kF32, {1}}}));
    tunings = 0;
    CHECK(plugin.query(b)[0].native);
    CHECK(tunings == 0);
    CHECK(Bound(plugin, b).info().steps[0].scratch_size == 512);
    CHECK(tunings == 1);
    CHECK(list_of<float>(plugin.run(b, {bytes_of(Floats{5})})[0]) == Floats{1});
    CHECK(tunings == 2);

    const std::vector<uint64_t> blob = b.bytes();
    const auto compile = [&](uint64_t limit, tenon_program*& program) {
      const tenon_compile_options options{sizeof(options), 0, 0, limit};
      return Plugin::problem(plugin.table().compile(plugin.device(), blob.data(), blob.size() * 8,
                                                    &options, &program));
    };
    tenon_program* program = nullptr;
    REQUIRE(compile(100, program).code == TENON_OK);
    CHECK(plugin.table().program_info(program)->steps[0].scratch_size == 50);
    plugin.table().program_destroy(program);
    tuned_beyond = true;
    const Problem p = compile(0, program);
    tuned_beyond = false;
    CHECK(p.code == TENON_INVALID_ARGUMENT);
    CHECK(p.text == "softmax: tuning chose 1025 bytes of scratch of at most 1024");
  }

  TEST_CASE("device_open: a device that is not ready says why") {
    const Plugin plugin(naughty_entry);
    tenon_device* device = nullptr;
    const Problem p =
        Plugin::problem(plugin.table().device_open(plugin.state(), 1, nullptr, &device));
    CHECK(p.code == TENON_UNSUPPORTED);
    CHECK(p.text == "asleep: it sleeps");
  }

  TEST_CASE("buffer_create: no memory is out of memory, to be tried again") {
    const Plugin plugin(naughty_entry);
    tenon_buffer* buffer = nullptr;
    no_memory = true;
    const tenon_buffer_options options = buffer_options(64);
    const Problem p =
        Plugin::problem(plugin.table().buffer_create(plugin.device(), &options, &buffer));
    no_memory = false;
    CHECK(p.code == TENON_OUT_OF_MEMORY);
    CHECK((p.flags & TENON_STATUS_RETRYABLE) != 0);
    CHECK(live_statuses() == 0);
  }

  TEST_CASE("bind: a kernel on host memory is bound once, and computes in each run") {
    const Plugin plugin(naughty_entry);
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {1}});
    b.output(b.node("unary", {x}, {{kF32, {1}}}, {{"kind", std::string("bound")}}));
    Bound bound(plugin, b);
    REQUIRE(bound.compile_problem().code == TENON_OK);
    binds = 0;
    REQUIRE(bound.instantiate().code == TENON_OK);
    for (const float v : {1.F, 2.F}) {
      bound.set_input(0, bytes_of(Floats{v}));
      CHECK(bound.run().code == TENON_OK);
      CHECK(list_of<float>(bound.output(0)) == Floats{v + 1});
    }
    CHECK(binds == 1);
  }
}

}  // namespace tenon::test
