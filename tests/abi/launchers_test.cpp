// SPDX-License-Identifier: Apache-2.0
// Kernel::bind: arguments are set once for each binding, and launched in streams or in recordings
// that are built step by step. The device is a list of named things that it did.
#define TENON_ENTRY_SYMBOL launching_entry
#include <doctest/doctest.h>

#include <numeric>

#include "at_once.hpp"
#include "fake_host.hpp"

namespace tenon::test {

namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Launch;
using sdk::Node;
namespace op = sdk::op;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32, kI64 = TENON_DTYPE_I64;
using Floats = std::vector<float>;
using Names = std::vector<std::string>;

Names did;
std::string take_names() {
  const std::string all = std::accumulate(
      did.begin(), did.end(), std::string(),
      [](const std::string& a, const std::string& b) { return a + (a.empty() ? "" : " ") + b; });
  did.clear();
  return all;
}
int live_launchers = 0;
bool bind_fails = false, end_fails = false, ranges = false;
int builds = 1;  // 1: devices that are opened from here on build recordings

class Launching final : public AtOnce {
 public:
  using Work = std::function<void()>;
  using Recording = std::vector<Work>;

  sdk::ErrorScheme error_scheme() const override { return sdk::ErrorScheme::records; }
  void read(void* target, sdk::Place source, uint64_t size, void* stream) override {
    if (stream) did.emplace_back("fetch");
    AtOnce::read(target, source, size, stream);
  }
  bool builds_recordings() const override { return builds_; }
  void* recording_begin() override {
    did.emplace_back("begin");
    ++open_;
    return new Recording;
  }
  void recording_end(void*) override {
    did.emplace_back("end");
    if (end_fails) throw sdk::Failure(TENON_INTERNAL, "too long");
  }
  void replay(void* recording, void* stream) override {
    CHECK(stream != nullptr);
    did.emplace_back("replay");
    for (const Work& work : *static_cast<Recording*>(recording)) work();
  }
  void recording_destroy(void* recording) noexcept override {
    --open_;
    delete static_cast<Recording*>(recording);
  }
  bool shows_ranges() const override { return ranges; }
  void range_begin(const std::string& name) override {
    did.push_back("<" + name.substr(name.rfind(' ') + 1));
  }
  void range_end() noexcept override { did.emplace_back(">"); }
  ~Launching() override { CHECK(open_ == 0); }

 private:
  const bool builds_ = builds != 0;
  int open_ = 0;
};

// The name of a kernel, as what it does.
struct Alive {
  Alive() { ++live_launchers; }
  Alive(const Alive&) { ++live_launchers; }
  ~Alive() { --live_launchers; }
};

// exp: adds 1, with a launcher. neg: the same in run(). abs: a launcher that refuses to be bound.
Kernel make_unary(const op::unary& n, const Node&) {
  if (n.kind == "neg")
    return {.run = [](const Call& c) {
      did.emplace_back("run");
      c.out<float>(0)[0] = c.in<float>(0)[0] + 1;
    }};
  return {.bind = [kind = n.kind](const Call& c) -> sdk::Launcher {
    did.emplace_back("bind");
    CHECK(c.stream == nullptr);
    if (kind == "abs") return nullptr;
    if (bind_fails) throw sdk::Failure(TENON_OUT_OF_MEMORY, "no arguments");
    const auto* x = c.in<float>(0);
    auto* y = c.out<float>(0);
    return [x, y, alive = Alive()](const Launch& at) {
      CHECK((at.stream == nullptr) != (at.recording == nullptr));
      if (at.stream) {
        did.emplace_back("launch");
        *y = *x + 1;
      } else {
        did.emplace_back("add");
        static_cast<Launching::Recording*>(at.recording)->push_back([=] { *y = *x + 1; });
      }
    };
  }};
}
// Fails for an index that is not 0. Its place for reports is fixed too.
Kernel make_gather(const op::gather&, const Node&) {
  const auto bind = [](const Call& c) -> sdk::Launcher {
    CHECK(c.error != nullptr);
    CHECK(c.error == c.error_place.address());
    const auto work = [c] {
      const int64_t index = *c.in<int64_t>(1);
      if (index == 0)
        *c.out<float>(0) = *c.in<float>(0);
      else
        *static_cast<sdk::ErrorRecord*>(c.error) =
            sdk::ErrorRecord::of(TENON_INDEX_OUT_OF_RANGE, 0, index);
    };
    return [work](const Launch& at) {
      if (at.recording)
        static_cast<Launching::Recording*>(at.recording)->push_back(work);
      else
        work();
    };
  };
  return {.can_fail = true, .bind = bind};
}

constexpr sdk::Row kRows[] = {sdk::row<op::unary, make_unary>(),
                              sdk::row<op::gather, make_gather>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "launching", .name = "at once"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Launching>();
}
constexpr sdk::PluginSpec kSpec{.name = "launching",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open,
                                .streams = true};

}  // namespace
}  // namespace tenon::test

TENON_STREAM_PLUGIN(tenon::test::kSpec, "launching", TENON_ISA_BASELINE)

namespace tenon::test {

namespace {

BlobBuilder chain(const Names& kinds) {
  BlobBuilder b;
  uint32_t v = b.input({kF32, {1}});
  for (const std::string& kind : kinds) v = b.node("unary", {v}, {{kF32, {1}}}, {{"kind", kind}});
  b.output(v);
  return b;
}
float run(Bound& bound, float x) {
  bound.set_input(0, bytes_of(Floats{x}));
  const Problem p = bound.run();
  CHECK(p.text == "");
  return list_of<float>(bound.output(0))[0];
}

}  // namespace

TEST_SUITE("abi/launchers") {
  TEST_CASE("bind: once for each binding; each run launches with the addresses of the binding") {
    builds = 0;
    const Plugin plugin(launching_entry);
    {
      Bound bound(plugin, chain({"exp", "neg", "exp"}));
      REQUIRE(bound.compile_problem().code == TENON_OK);
      take_names();
      CHECK(bound.instantiate().code == TENON_OK);
      CHECK(take_names() == "bind bind");
      CHECK(live_launchers == 2);
      for (const float x : {1.F, 5.F, 7.F}) {
        CHECK(run(bound, x) == x + 3);
        CHECK(take_names() == "launch run launch");
      }
      // Another buffer for the input: new launchers replace the old ones.
      Bound other(plugin, chain({"exp", "neg", "exp"}));
      other.set_input(0, bytes_of(Floats{40}));
      bound.slot(0) = other.slot(0);
      take_names();
      CHECK(bound.rebind().code == TENON_OK);
      CHECK(take_names() == "bind bind");
      CHECK(live_launchers == 2);
      CHECK(bound.run().code == TENON_OK);
      CHECK(list_of<float>(bound.output(0)) == Floats{43});
    }
    CHECK(live_launchers == 0);
  }

  TEST_CASE("bind: a failure names the step and leaves the binding as it was") {
    builds = 0;
    const Plugin plugin(launching_entry);
    Bound bound(plugin, chain({"neg", "exp"}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    bind_fails = true;
    const Problem p = bound.rebind();
    bind_fails = false;
    CHECK(p.code == TENON_OUT_OF_MEMORY);
    CHECK(p.text == "unary: no arguments");
    CHECK(p.step == 1);
    CHECK(run(bound, 3) == 5);
    Bound none(plugin, chain({"abs"}));
    CHECK(none.instantiate().text == "unary: Kernel::bind returned no launcher");
  }

  TEST_CASE("recordings: built from launchers after the first run, and replayed") {
    builds = 1;
    const Plugin plugin(launching_entry);
    Bound bound(plugin, chain({"exp", "exp", "exp"}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    take_names();
    CHECK(run(bound, 1) == 4);
    CHECK(take_names() == "launch launch launch");
    CHECK(run(bound, 2) == 5);
    CHECK(take_names() == "begin add add add end replay");
    CHECK(run(bound, 3) == 6);
    CHECK(take_names() == "replay");
    CHECK(bound.rebind().code == TENON_OK);
    CHECK(run(bound, 4) == 7);
    CHECK(take_names() == "bind bind bind launch launch launch");
  }

  TEST_CASE("recordings: not for a program with a kernel without a launcher") {
    builds = 1;
    const Plugin plugin(launching_entry);
    Bound bound(plugin, chain({"exp", "neg"}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    take_names();
    for (const float x : {1.F, 2.F, 3.F}) CHECK(run(bound, x) == x + 2);
    CHECK(take_names() == "launch run launch run launch run");
  }

  TEST_CASE("recordings: one that fails is tried three times; the runs go on step by step") {
    builds = 1;
    const Plugin plugin(launching_entry);
    Bound bound(plugin, chain({"exp", "exp"}));
    REQUIRE(bound.instantiate().code == TENON_OK);
    CHECK(run(bound, 0) == 2);
    take_names();
    end_fails = true;
    for (int k = 0; k < 4; ++k) CHECK(run(bound, 1) == 3);
    end_fails = false;
    const std::string attempt = "begin add add end launch launch ";
    CHECK(take_names() == attempt + attempt + attempt + "launch launch");
  }

  TEST_CASE("recordings: reports of bad data are read after each replay, not in it") {
    builds = 1;
    const Plugin plugin(launching_entry);
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {1}});
    for (int k = 0; k < 2; ++k) {
      const uint32_t at = b.input({kI64, {1}});
      b.output(b.node("gather", {x, at}, {{kF32, {1}}}));
    }
    Bound bound(plugin, b);
    REQUIRE(bound.instantiate().code == TENON_OK);
    bound.set_input(0, bytes_of(Floats{9}));
    bound.set_input(1, bytes_of(std::vector<int64_t>{0}));
    take_names();
    for (const int64_t index : {0, 4, 0, -6}) {
      bound.set_input(2, bytes_of(std::vector<int64_t>{index}));
      const Problem p = bound.run();
      CHECK(p.text == (index == 0 ? ""
                                  : "gather: operand indices: index " + std::to_string(index) +
                                        " at position 0 is outside axis 0 of length 1"));
      if (index != 0) CHECK(p.step == 1);
    }
    CHECK(take_names() == "fetch begin end replay fetch replay fetch replay fetch");
  }

  TEST_CASE("ranges: each launch is in the range of its step") {
    builds = 0;
    ranges = true;
    const Plugin plugin(launching_entry);
    Bound bound(plugin, chain({"exp", "neg"}));
    ranges = false;
    REQUIRE(bound.instantiate().code == TENON_OK);
    take_names();
    CHECK(run(bound, 1) == 3);
    CHECK(take_names() == "<unary launch > <unary run >");
  }
}

}  // namespace tenon::test
