// SPDX-License-Identifier: Apache-2.0
// The comfort layer for devices with streams, over devices that do everything at once: operands as
// addresses or as handles with offsets, derived weights, and rows that belong to host memory.
#define TENON_ENTRY_SYMBOL placing_entry
#include <doctest/doctest.h>

#include <tenon/handle_map.hpp>

#include "at_once.hpp"
#include "fake_host.hpp"

namespace tenon::test {

namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Place;
namespace op = sdk::op;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32;
using Floats = std::vector<float>;

bool with_addresses = false;  // of devices that are opened from here on

// Handles of memory are those of a table of this device.
class Placing final : public AtOnce {
 public:
  bool has_addresses() const override { return addresses_; }
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    void* memory = AtOnce::allocate(bytes, alignment);
    if (addresses_) return memory;
    return blocks_.add(memory);
  }
  void deallocate(void* memory, uint64_t size) noexcept override {
    AtOnce::deallocate(addresses_ ? memory : *blocks_.take(memory), size);
  }
  unsigned char* at(Place place) const override {
    if (addresses_) return AtOnce::at(place);
    return static_cast<unsigned char*>(blocks_.at(place.handle)) + place.offset;
  }

 private:
  const bool addresses_ = with_addresses;
  sdk::HandleMap<void*> blocks_{};
};

// What the last kernels got.
struct Got {
  std::vector<Place> inputs{};
  Place output{}, scratch{};
  bool tables = false;  // of addresses
};
std::vector<Got> got;

// Adds 1 to each element of its operand 0.
Kernel recorded(const Node& node, const Placing* device) {
  const auto count = static_cast<size_t>(node.out(0).type().elements());
  const size_t inputs = node.input_count();
  return {
      .run =
          [=](const Call& c) {
            Got& g = got.emplace_back();
            g.tables = c.inputs != nullptr;
            for (size_t k = 0; k < inputs; ++k)
              g.inputs.push_back(g.tables ? Place{c.inputs[k], 0} : c.input(static_cast<int>(k)));
            g.output = g.tables ? Place{c.outputs[0], 0} : c.output(0);
            g.scratch = g.tables ? Place{c.scratch, 0} : c.scratch_place;
            Floats x(count);
            std::memcpy(x.data(), device->at(g.inputs[0]), 4 * count);
            for (float& v : x) ++v;
            std::memcpy(device->at(g.output), x.data(), 4 * count);
          },
      .scratch = 256};
}
const Placing* device_of(const Node& node) { return static_cast<const Placing*>(node.device()); }

Kernel make_concat(const op::concat&, const Node& node) { return recorded(node, device_of(node)); }
Kernel make_unary(const op::unary& n, const Node& node) {
  Kernel kernel = recorded(node, device_of(node));
  if (n.kind == "exp") return kernel;
  // The weight times 10; for other kinds there is nothing that makes it.
  sdk::Derived derived{.input = 0, .layout = "tenfold", .size = n.x.type().bytes()};
  if (n.kind == "neg")
    derived.enqueue = [=, device = device_of(node), count = n.x.type().elements()](const Call& c) {
      CHECK(c.stream != nullptr);
      const Place from = c.inputs ? Place{c.inputs[0], 0} : c.input(0),
                  to = c.outputs ? Place{c.outputs[0], 0} : c.output(0);
      for (int64_t k = 0; k < count; ++k)
        reinterpret_cast<float*>(device->at(to))[k] =
            10 * reinterpret_cast<const float*>(device->at(from))[k];
    };
  else
    derived.make = [](const void*, void*) {};
  kernel.derived = {derived};
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<op::unary, make_unary>(sdk::kStrided),
                              sdk::row<op::concat, make_concat>(),
                              sdk::row<op::narrow, sdk::view_narrow>(sdk::kStrided)};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "placing", .name = "at once"}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Placing>();
}
constexpr sdk::PluginSpec kSpec{.name = "placing",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open,
                                .streams = true};

// A family with a row for host memory.
constexpr sdk::Row kHostRows[] = {sdk::row<op::copy, sdk::strided_copy>(sdk::kStrided)};
std::span<const sdk::Row> host_rows() { return kHostRows; }
constexpr sdk::FamilyRows kFamilies[] = {host_rows};
constexpr sdk::PluginSpec kHostSpec{.name = "mixed",
                                    .version = "1.0",
                                    .vendor = "tests",
                                    .families = kFamilies,
                                    .devices = devices,
                                    .open = open,
                                    .streams = true};

}  // namespace
}  // namespace tenon::test

TENON_STREAM_PLUGIN(tenon::test::kSpec, "placing", TENON_ISA_BASELINE)

namespace tenon::test {

TEST_SUITE("abi/stream_layer") {
  TEST_CASE("operands: handles and offsets, or addresses; views are offsets of their base") {
    for (const bool addresses : {false, true}) {
      CAPTURE(addresses);
      with_addresses = addresses;
      const Plugin plugin(placing_entry);
      BlobBuilder b;
      const uint32_t x = b.input({kF32, {6}});
      const uint32_t whole = b.node("unary", {x}, {{kF32, {6}}}, {{"kind", std::string("exp")}});
      const uint32_t part =
          b.node("narrow", {x}, {{kF32, {3}}},
                 {{"start", std::vector<int64_t>{2}}, {"step", std::vector<int64_t>{1}}});
      const uint32_t y = b.node("unary", {part}, {{kF32, {3}}}, {{"kind", std::string("exp")}});
      b.output(whole);
      b.output(y);
      got.clear();
      const auto outputs = plugin.run(b, {bytes_of(Floats{0, 1, 2, 3, 4, 5})});
      CHECK(list_of<float>(outputs[1]) == Floats{3, 4, 5});
      REQUIRE(got.size() == 2);
      for (const Got& g : got) {
        CHECK(g.tables == addresses);
        CHECK(g.scratch);
        CHECK(g.output);
      }
      const Place base = got[0].inputs[0], view = got[1].inputs[0];
      CHECK(base.offset == 0);
      if (addresses) {
        CHECK(static_cast<char*>(view.handle) == static_cast<char*>(base.handle) + 8);
      } else {
        CHECK(view.handle == base.handle);
        CHECK(view.offset == 8);
      }
    }
  }

  TEST_CASE("operands: a tensor without elements has no memory") {
    for (const bool addresses : {false, true}) {
      CAPTURE(addresses);
      with_addresses = addresses;
      const Plugin plugin(placing_entry);
      BlobBuilder b;
      const uint32_t x = b.input({kF32, {2}}), none = b.input({kF32, {0}});
      b.output(b.node("concat", {x, none}, {{kF32, {2}}}, {{"axis", int64_t{0}}}));
      got.clear();
      CHECK(list_of<float>(plugin.run(b, {bytes_of(Floats{1, 2}), {}})[0]) == Floats{2, 3});
      REQUIRE(got.size() == 1);
      CHECK(got[0].inputs[0]);
      CHECK_FALSE(got[0].inputs[1]);
      CHECK(got[0].inputs[1].address() == nullptr);
    }
  }

  TEST_CASE(
      "derived weights: made on a stream of their own; without enqueue() the node is refused") {
    for (const bool addresses : {false, true}) {
      CAPTURE(addresses);
      with_addresses = addresses;
      const Plugin plugin(placing_entry);
      const auto graph = [](const std::string& kind) {
        BlobBuilder b;
        const uint32_t w = b.input({kF32, {2}}, TENON_SPACE_WEIGHT);
        b.output(b.node("unary", {w}, {{kF32, {2}}}, {{"kind", kind}}));
        return b;
      };
      const auto verdict = plugin.query(graph("abs"))[0];
      CHECK_FALSE(verdict.native);
      CHECK(verdict.text == "derived weight tenfold: nothing makes it; expected Derived::enqueue");

      Bound bound(plugin, graph("neg"));
      REQUIRE(bound.compile_problem().code == TENON_OK);
      const auto* derives = static_cast<const tenon_derived_weights*>(plugin.table().get_extension(
          plugin.state(), {TENON_DERIVED_WEIGHTS_ID, sizeof(TENON_DERIVED_WEIGHTS_ID) - 1}));
      REQUIRE(derives);
      uint32_t value = TENON_NONE;
      for (uint32_t v = 0; v < bound.info().value_count; ++v)
        if (bound.info().values[v].layout.size) value = v;
      REQUIRE(value != TENON_NONE);
      bound.set_input(0, bytes_of(Floats{1, 2}));
      const tenon_slot dense = bound.slot(0);
      const tenon_derive_args args{sizeof args,        &dense, &bound.slot(value),
                                   sizeof(tenon_slot), value,  0};
      CHECK(Plugin::problem(derives->derive(bound.program(), &args)).text == "");
      CHECK(bound.instantiate().code == TENON_OK);
      CHECK(bound.run().code == TENON_OK);
      CHECK(list_of<float>(bound.output(0)) == Floats{11, 21});
    }
  }

  TEST_CASE(
      "rows: a family whose kernels compute in host memory is refused when the plugin loads") {
    const tenon_host host = host_table();
    const tenon_create_options options{sizeof options, TENON_ABI_MINOR, 1};
    tenon_plugin* made = nullptr;
    const Problem p = Plugin::problem(sdk::layer::create(kHostSpec, &host, &options, &made));
    CHECK(p.code == TENON_INVALID_ARGUMENT);
    CHECK(p.text.find("row copy: its maker computes in host memory (kHostOnly)") == 0);
    CHECK(made == nullptr);
    CHECK(sdk::layer::no_host_rows(kSpec));
  }
}

}  // namespace tenon::test
