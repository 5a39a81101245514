// SPDX-License-Identifier: Apache-2.0
// The comfort layer for devices with streams, over a device that does everything at once: steps are
// enqueued in named ranges while a profiler is attached, and as they are while none is.
#define TENON_ENTRY_SYMBOL ranging_entry
#include <doctest/doctest.h>

#include "at_once.hpp"
#include "fake_host.hpp"

namespace tenon::test {

namespace {

using sdk::Kernel;
using sdk::Node;
namespace op = sdk::op;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32;
using Floats = std::vector<float>;

bool attached = false;
std::vector<std::string> heard;

class Ranging final : public AtOnce {
 public:
  bool shows_ranges() const override { return attached; }
  void range_begin(const std::string& name) override { heard.push_back("+" + name); }
  void range_end() noexcept override { heard.emplace_back("-"); }
};

Kernel make_unary(const op::unary& n, const Node&) {
  const auto run = [kind = n.kind](const sdk::Call& c) {
    heard.push_back(kind);
    if (kind == "bad") throw sdk::Failure(TENON_INTERNAL, "it is bad");
    c.out<float>(0)[0] = c.in<float>(0)[0] + 1;
  };
  return {.run = run, .label = "unary_" + n.kind};
}

constexpr sdk::Row kRows[] = {sdk::row<op::unary, make_unary>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "ranging", .name = "at once"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Ranging>();
}
constexpr sdk::PluginSpec kSpec{.name = "ranging",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open,
                                .streams = true};

}  // namespace
}  // namespace tenon::test

TENON_STREAM_PLUGIN(tenon::test::kSpec, "ranging", TENON_ISA_BASELINE)

namespace tenon::test {

namespace {

std::vector<std::string> heard_of(const std::vector<std::string>& kinds, Problem* problem) {
  const Plugin plugin(ranging_entry);
  BlobBuilder b;
  uint32_t v = b.input({kF32, {1}});
  for (const std::string& kind : kinds) v = b.node("unary", {v}, {{kF32, {1}}}, {{"kind", kind}});
  b.output(v);
  heard.clear();
  plugin.run(b, {bytes_of(Floats{1})}, problem);
  return heard;
}

}  // namespace

TEST_SUITE("abi/ranges") {
  TEST_CASE("ranges: none while no profiler is attached") {
    attached = false;
    Problem problem;
    CHECK(heard_of({"a", "b"}, &problem) == std::vector<std::string>{"a", "b"});
    CHECK(problem.code == TENON_OK);
  }

  TEST_CASE("ranges: each step in one of its own name, closed when the step fails") {
    attached = true;
    Problem problem;
    const std::vector<std::string> said = heard_of({"a", "bad", "c"}, &problem);
    attached = false;
    REQUIRE(said.size() == 6);
    CHECK(said[0].ends_with("unary_a"));
    CHECK(said[1] == "a");
    CHECK(said[2] == "-");
    CHECK(said[3].ends_with("unary_bad"));
    CHECK(said[4] == "bad");
    CHECK(said[5] == "-");
    CHECK(problem.text == "unary_bad: it is bad");
    CHECK(problem.step == 1);
  }
}

}  // namespace tenon::test
