// SPDX-License-Identifier: Apache-2.0
// Blobs of graphs and regions, read back through the SDK's reader.
#include "ir/blob.hpp"
#include "graphs.hpp"

using namespace tenon::core;

namespace {

tenon_blob open(const Blob& blob) {
  tenon_blob out{};
  const char* bad = tenon_blob_open(blob.data(), blob.size(), &out);
  REQUIRE_MESSAGE(bad == nullptr, "not accepted: ", std::string(bad ? bad : ""));
  return out;
}
std::string str(const tenon_blob& b, uint64_t offset) {
  const tenon_str s = tenon_blob_str(&b, offset);
  return std::string(s.data, s.size);
}
const tenon_blob_value& value(const tenon_blob& b, uint32_t v, uint32_t f = 0) {
  return *tenon_blob_value_at(&b, tenon_blob_function_at(&b, f), v);
}
std::string type_text(const tenon_blob& b, const tenon_blob_value& v) {
  return Type{v.dtype, Shape(std::span(tenon_blob_dims(&b, &v), v.rank))}.text();
}

constexpr std::string_view kStep = R"(graph "step" {
  input x: f32[2,4]
  weight w: f32[4,4] trainable
  weight fixed: f32[4]
  state n: i64[]
  const one: i64[] = {1}
  const big: f32[17] = 0x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
  h = matmul(x, w) {alpha=0.5, trans_b=true} @"mm"
  (v, i) = topk(h) {k=2}
  m = binary(n, one) {kind="add"}
  z = unary(big) {kind="exp"}
  y = binary(h, fixed) {kind="mul"}
  output "y" = y
  output "same" = y
  output "v" = v
  update n = m
}
)";

}  // namespace

TEST_SUITE("ir/blob") {
  TEST_CASE("write_blob: a graph reads back equal through the reader") {
    const Graph g = graph_of(kStep);
    const RegionBlob r = write_blob(g);
    const tenon_blob b = open(r.blob);
    REQUIRE(b.header->function_count == 1);
    const tenon_blob_function& f = *tenon_blob_function_at(&b, 0);
    CHECK(str(b, f.name) == "step");
    REQUIRE(f.value_count == r.values.size());
    REQUIRE(f.node_count == r.nodes.size());
    CHECK(f.value_count == g.value_count());
    for (uint32_t v = 0; v < f.value_count; ++v) {
      const ValueInfo& info = g[r.values[v]];
      CHECK(str(b, value(b, v).name) == info.name);
      CHECK(type_text(b, value(b, v)) == info.type.text());
      CHECK(value(b, v).space == static_cast<uint8_t>(info.space));
      CHECK(value(b, v).flags == (info.name == "n" ? TENON_VALUE_UPDATED : 0));
    }
    for (uint32_t n = 0; n < f.node_count; ++n) {
      const tenon_blob_node& node = *tenon_blob_node_at(&b, &f, n);
      const NodeInfo& info = g[r.nodes[n]];
      CHECK(str(b, node.domain) == "tenon");
      CHECK(str(b, node.op) == info.op->name());
      CHECK(str(b, node.provenance) == info.provenance);
      CHECK(node.version == info.op->schema->version);
      REQUIRE(node.operand_count == info.operands.size());
      for (uint32_t k = 0; k < node.operand_count; ++k)
        CHECK(r.values[tenon_blob_indices(&b, node.operands)[k]] == info.operands[k]);
      REQUIRE(node.output_count == info.outputs.size());
      for (uint32_t k = 0; k < node.output_count; ++k)
        CHECK(r.values[tenon_blob_indices(&b, node.outputs)[k]] == info.outputs[k]);
    }
    // y leaves under two names, once here; the update's value leaves too.
    std::vector<std::string> leaving;
    for (uint32_t k = 0; k < f.output_count; ++k)
      leaving.push_back(g[r.values[tenon_blob_indices(&b, f.outputs)[k]]].name);
    CHECK(leaving == std::vector<std::string>{"y", "v", "m"});
    CHECK(f.input_count == 6);
  }

  TEST_CASE("write_blob: attributes are there with name, type and content") {
    const RegionBlob r = write_blob(graph_of(kStep));
    const tenon_blob b = open(r.blob);
    tenon_node_view n = tenon_node_at(&b, 0, 0);
    CHECK(tenon_node_f64(&n, "alpha", 1.0) == 0.5);
    CHECK(tenon_node_bool(&n, "trans_b", 0) == 1);
    CHECK(tenon_node_bool(&n, "trans_a", 0) == 0);
    tenon_str unknown;
    tenon_node_operand(&n, 1);
    tenon_node_output(&n, 0);
    CHECK(tenon_node_unknown(&n, &unknown) == nullptr);
    tenon_node_view m = tenon_node_at(&b, 0, 2);
    CHECK(tenon_str_is(tenon_node_str(&m, "kind", ""), "add"));
  }

  TEST_CASE("write_blob: content of constants up to 64 bytes, no more") {
    const Graph g = graph_of(kStep);
    const RegionBlob r = write_blob(g);
    const tenon_blob b = open(r.blob);
    int seen = 0;
    for (uint32_t v = 0; v < r.values.size(); ++v) {
      const std::string& name = g[r.values[v]].name;
      if (name == "one") {
        REQUIRE(value(b, v).data != 0);
        CHECK(value(b, v).data_size == 8);
        int64_t number = 0;
        std::memcpy(&number, tenon_blob_at(&b, value(b, v).data), 8);
        CHECK(number == 1);
        ++seen;
      }
      if (name == "big") {
        CHECK(value(b, v).data == 0);
        ++seen;
      }
    }
    CHECK(seen == 2);
  }

  TEST_CASE("write_blob: every attribute type, and bodies as functions behind their parent") {
    auto inner = std::make_shared<Graph>(graph_of(
        "graph \"inner\" { input a: f32[2] y = unary(a) {kind=\"exp\"} output \"y\" = y }"));
    auto outer = std::make_shared<Graph>();
    outer->name = "outer";
    const Value a = outer->input("a", {kF32, {2}});
    outer->output(
        "y", (*outer)[outer->add_node(every_attr_op(), {a}, {{"fn", FunctionAttr(inner)}}, {true})]
                 .outputs[0]);
    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    g.add_node(every_attr_op(), {x},
               {{"i", int64_t{-5}},
                {"f", 2.5},
                {"b", true},
                {"s", std::string("text")},
                {"is", std::vector<int64_t>{1, -2}},
                {"fs", std::vector<double>{0.5, -0.25}},
                {"d", DTypeAttr{kBF16}},
                {"fn", FunctionAttr(outer)}},
               {true});
    const RegionBlob r = write_blob(g);
    const tenon_blob b = open(r.blob);
    REQUIRE(b.header->function_count == 3);
    CHECK(str(b, tenon_blob_function_at(&b, 1)->name) == "outer");
    CHECK(str(b, tenon_blob_function_at(&b, 2)->name) == "inner");
    tenon_node_view n = tenon_node_at(&b, 0, 0);
    CHECK(str(b, n.node->domain) == "org.example");
    CHECK(n.node->version == 3);
    CHECK(tenon_node_i64(&n, "i", 0) == -5);
    CHECK(tenon_node_f64(&n, "f", 0) == 2.5);
    CHECK(tenon_node_bool(&n, "b", 0) == 1);
    CHECK(tenon_str_is(tenon_node_str(&n, "s", ""), "text"));
    CHECK(tenon_node_dtype(&n, "d", 0) == kBF16);
    uint32_t count = 0;
    const int64_t* ints = tenon_node_ints(&n, "is", &count);
    REQUIRE(count == 2);
    CHECK(ints[1] == -2);
    const tenon_blob_attr* floats = tenon_node_attr(&n, "fs", TENON_ATTR_FLOATS);
    REQUIRE(floats != nullptr);
    REQUIRE(floats->count == 2);
    double last = 0;
    std::memcpy(&last, static_cast<const char*>(tenon_blob_at(&b, floats->bits)) + 8, 8);
    CHECK(last == -0.25);
    const tenon_blob_attr* fn = tenon_node_attr(&n, "fn", TENON_ATTR_FUNCTION);
    REQUIRE(fn != nullptr);
    CHECK(fn->bits == 1);
    tenon_node_view body = tenon_node_at(&b, 1, 0);
    CHECK(tenon_node_attr(&body, "fn", TENON_ATTR_FUNCTION)->bits == 2);
    tenon_node_view leaf = tenon_node_at(&b, 2, 0);
    CHECK(tenon_str_is(tenon_node_str(&leaf, "kind", ""), "exp"));
  }

  TEST_CASE("write_blob: lists of operands and outputs have sizes") {
    const Graph g = graph_of(R"(graph { input x: f32[2,3] weight a: f32[3,4] weight b: f32[3,5]
      weight c: f32[4] weight d: f32[5]
      (p, q) = batch_linear(x, [a, b], [c, d]) y = concat(p, q) {axis=1} z = unary(y) {kind="exp"} })");
    const RegionBlob r = write_blob(g);
    const tenon_blob b = open(r.blob);
    tenon_node_view products = tenon_node_at(&b, 0, 0), joined = tenon_node_at(&b, 0, 1),
                    plain = tenon_node_at(&b, 0, 2);
    CHECK(tenon_node_operand_list(&products, 0) == 2);
    CHECK(tenon_node_operand_list(&products, 1) == 2);
    CHECK(tenon_node_operand_list(&products, 2) == 0);
    CHECK(tenon_node_output_list(&products, 0) == 2);
    CHECK(tenon_node_operand_list(&joined, 0) == 2);
    CHECK(tenon_node_output_list(&joined, 0) == 0);
    CHECK(tenon_node_operand_list(&plain, 0) == 0);
  }

  TEST_CASE("write_blob: the lowest version of the format, and of an op, that says the same") {
    OpRecord every = every_attr_op();
    // As if version 3 had brought the operand z, and version 2 the attribute s.
    every.version_of = [](const NodeInfo& n) {
      return n.operands.size() > 1 ? 3u : n.attr("s") ? 2u : 1u;
    };
    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    g.add_node(every, {x}, {}, {true});
    g.add_node(every, {x}, {{"s", std::string("new")}}, {true});
    g.add_node(every, {x, x}, {{"s", std::string("new")}}, {true});
    const RegionBlob r = write_blob(g);
    const tenon_blob b = open(r.blob);
    CHECK(b.header->version == 2);
    CHECK(tenon_blob_hints(&b) == 0);
    for (uint32_t n = 0; n < 3; ++n) CHECK(tenon_node_at(&b, 0, n).node->version == n + 1);
  }

  TEST_CASE("write_blob, write_region: hints are in the header, which older writers end before") {
    const Graph g = graph_of(kStep);
    const RegionBlob whole = write_blob(g, 5), region = write_region(g, {}, {}, {}, 6);
    const tenon_blob of_graph = open(whole.blob), of_region = open(region.blob);
    CHECK(tenon_blob_hints(&of_graph) == 5);
    CHECK(tenon_blob_hints(&of_region) == 6);
    tenon_blob_header header{};
    header.hints = 7, header.header_size = TENON_BLOB_HEADER_SIZE_V1;
    const tenon_blob older{nullptr, 0, &header};
    CHECK(tenon_blob_hints(&older) == 0);
  }

  TEST_CASE("write_region: another node's value becomes an input, the other spaces stay") {
    const Graph g = graph_of(kStep);
    const Value h = g[NodeId{0}].outputs[0], fixed = g.find(Space::weight, "fixed"),
                n = g.find(Space::state, "n");
    const Value y = g[NodeId{4}].outputs[0], m = g[NodeId{2}].outputs[0],
                one = g[NodeId{2}].operands[1];
    const NodeId nodes[] = {2, 4};
    const Value inputs[] = {h, fixed, n, one}, outputs[] = {y, m};
    const RegionBlob r = write_region(g, nodes, inputs, outputs);
    const tenon_blob b = open(r.blob);
    CHECK(r.nodes == std::vector<NodeId>{2, 4});
    CHECK(r.values == std::vector<Value>{h, fixed, n, one, m, y});
    const int spaces[] = {TENON_SPACE_INPUT,    TENON_SPACE_WEIGHT, TENON_SPACE_STATE,
                          TENON_SPACE_CONSTANT, TENON_SPACE_NODE,   TENON_SPACE_NODE};
    for (uint32_t v = 0; v < 6; ++v) CHECK(value(b, v).space == spaces[v]);
    CHECK(value(b, 2).flags == TENON_VALUE_UPDATED);
    const tenon_blob_function& f = *tenon_blob_function_at(&b, 0);
    REQUIRE(f.input_count == 4);
    CHECK(tenon_blob_indices(&b, f.inputs)[3] == 3);
    REQUIRE(f.output_count == 2);
    CHECK(tenon_blob_indices(&b, f.outputs)[0] == 5);
    CHECK(tenon_blob_indices(&b, f.outputs)[1] == 4);
  }

  TEST_CASE("write_region: a value from outside that is no input is a bug that is said") {
    const Graph g = graph_of(kStep);
    const NodeId nodes[] = {4};
    CHECK_SAYS(refusal([&] { write_region(g, nodes, {}, {}); }, Code::internal),
               "binary reads a value from outside");
  }

  TEST_CASE("write_blob: requests and symbols must be gone") {
    const Graph open_shape = graph_of("graph { input x: f32[N] y = unary(x) {kind=\"exp\"} }");
    CHECK_SAYS(refusal([&] { write_blob(open_shape); }, Code::internal), "has no numeric type");
    const Graph request = graph_of("graph { input x: f32[] g = grad(x, x) }");
    CHECK_SAYS(refusal([&] { write_blob(request); }, Code::internal), "grad was not expanded");
  }

  TEST_CASE("write_blob: the same graph gives the same bytes") {
    const RegionBlob a = write_blob(graph_of(kStep)), b = write_blob(graph_of(kStep));
    REQUIRE(a.blob.size() == b.blob.size());
    CHECK(std::memcmp(a.blob.data(), b.blob.data(), a.blob.size()) == 0);
  }

  TEST_CASE("write_blob: 100,000 nodes") {
    const RegionBlob r = write_blob(chain(100000));
    const tenon_blob b = open(r.blob);
    CHECK(tenon_blob_function_at(&b, 0)->node_count == 100000);
  }
}
