// SPDX-License-Identifier: Apache-2.0
// What the cpu plugin makes one node of, and that the node computes what its parts compute.
#include "forms.hpp"

#include <bit>
#include <map>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// Numbers of the name's own that bf16 has, so that every dtype reads the same, in the dtype's
// bytes.
std::vector<char> content(const TensorType& type, const std::string& name) {
  std::vector<char> bytes(type.bytes());
  for (size_t i = 0; i < static_cast<size_t>(type.elements()); ++i) {
    const auto v = static_cast<float>(noise(std::hash<std::string>{}(name), i));
    const auto cut = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    if (type.dtype == f32)
      reinterpret_cast<uint32_t*>(bytes.data())[i] = uint32_t{cut} << 16;
    else
      reinterpret_cast<uint16_t*>(bytes.data())[i] = cut;
  }
  return bytes;
}

void each_of(const Graph& graph, uint32_t space,
             const std::function<void(const std::string&, const TensorType&)>& use) {
  for (uint32_t i = 0; i < tenon_graph_count(graph.handle(), space); ++i) {
    tenon_str name{};
    tenon_value value = 0;
    REQUIRE(!tenon_graph_name(graph.handle(), space, i, &name, &value, nullptr));
    use({name.data, name.size}, graph.type(Value{value}));
  }
}

// Every output of one run, as floats.
using Outputs = std::map<std::string, std::vector<float>>;

Outputs computed(const Form& form, const std::string& dtype, bool fuse,
                 const std::vector<Reported>& nodes) {
  const Graph graph = form.graph(dtype);
  Store store(runtime());
  each_of(graph, TENON_SPACE_WEIGHT, [&](const std::string& name, const TensorType& type) {
    const std::vector<char> bytes = content(type, name);
    store.set(TENON_SPACE_WEIGHT, name, type, bytes.data(), bytes.size());
  });
  const Executable executable(runtime(), graph, store,
                              {.device = "cpu:0", .allow_fallback = false, .fuse = fuse});
  if (fuse)
    check_nodes(executable, nodes);
  else
    CHECK(executable.report().find("joined: ") == std::string::npos);
  Context run(executable);
  each_of(graph, TENON_SPACE_INPUT, [&](const std::string& name, const TensorType& type) {
    const std::vector<char> bytes = content(type, name);
    run.set(name, type, bytes.data(), bytes.size());
  });
  run.run();
  Outputs all;
  for (const char* name : form.outputs) {
    const TensorType type = run.output_type(name);
    if (type.dtype == f32) {
      all[name] = run.get<float>(name);
      continue;
    }
    REQUIRE(type.dtype == bf16);
    std::vector<uint16_t> half(static_cast<size_t>(type.elements()));
    run.get(name, half.data(), half.size() * sizeof half[0]);
    for (const uint16_t v : half) all[name].push_back(std::bit_cast<float>(uint32_t{v} << 16));
  }
  return all;
}

void check_near(const Outputs& a, const Outputs& b, double most) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : a) {
    CAPTURE(name);
    const std::vector<float>& other = b.at(name);
    REQUIRE(values.size() == other.size());
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(std::abs(values[i] - other[i]) <= most * std::max(1.0f, std::abs(other[i])));
  }
}

// The parts in bf16 round once each, the node at its end: what both are measured by are the parts
// in f32.
void check_form(const Form& form, const std::vector<Reported>& nodes) {
  CAPTURE(std::string(form.name));
  const Outputs parts = computed(form, "f32", false, nodes);
  check_near(computed(form, "f32", true, nodes), parts, 1e-5);
  check_near(computed(form, "bf16", true, nodes), parts, 0x1p-8);
}

}  // namespace

TEST_SUITE("exec/forms") {
  TEST_CASE("forms: each is one node of its op, with the values of its parts") {
    for (const Form& form : forms()) check_form(form, one_node(form));
    check_form(projections(), one_node(projections()));
  }

  TEST_CASE("forms: a sum over columns stays behind the region that it reads") {
    check_form(
        sum_over_columns(),
        {{"elementwise_region", "joined: binary sub + unary square"},
         {"reduce",
          "not joined into elementwise_region: the reduced axes of the body are not the last "
          "ones"}});
  }
}
