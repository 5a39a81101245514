// SPDX-License-Identifier: Apache-2.0
// Types, shapes and broadcasting; what a graph checks when nodes are appended.
#include "graphs.hpp"

using namespace tenon::core;

TEST_SUITE("ir/type") {
  TEST_CASE("broadcast: numpy's rules, zero dims included") {
    CHECK(broadcast({3, 1}, {4}, "t") == Shape{3, 4});
    CHECK(broadcast({}, {2}, "t") == Shape{2});
    CHECK(broadcast({0}, {1}, "t") == Shape{0});
    CHECK(broadcast({2, 0}, {2, 1}, "t") == Shape{2, 0});
    CHECK_SAYS(refusal([] { broadcast({0}, {2}, "t"); }, Code::shape_mismatch),
               "t: shapes [0] and [2] do not broadcast");
  }

  TEST_CASE("type_bytes: sub-byte dtypes round up, large shapes stay exact") {
    CHECK(type_bytes({TENON_DTYPE_I4, {3}}) == 2);
    CHECK(type_bytes({kF32, {0, 5}}) == 0);
    CHECK(type_bytes({kBF16, {}}) == 2);
    CHECK(type_bytes({kF64, {1 << 20, 1 << 20}}) == uint64_t{1} << 43);
  }

  TEST_CASE("elements: a size that does not fit 63 bits in bytes is refused") {
    CHECK(Shape{int64_t{1} << 55}.elements() == int64_t{1} << 55);
    CHECK(type_bytes({kF64, {int64_t{1} << 55}}) == uint64_t{1} << 58);
    CHECK_SAYS(refusal([] { Shape{int64_t{1} << 56}.elements(); }), "overflows");
    CHECK_SAYS(refusal([] { Shape{1 << 30, 1 << 30, 1 << 30}.elements(); }), "overflows");
  }

  TEST_CASE("axis: negatives count from the end") {
    CHECK(normalize_axis(-1, 3, "t") == 2);
    CHECK_SAYS(refusal([] { normalize_axis(3, 3, "t"); }), "t: axis 3 is outside [-3, 3)");
  }
}

TEST_SUITE("ir/graph") {
  TEST_CASE("names: unique in their space, not across") {
    Graph g;
    g.input("x", {kF32, {}});
    g.weight("x", {kF32, {}});
    CHECK_SAYS(refusal([&] { g.input("x", {kF32, {}}); }), "input 'x' exists already");
    CHECK_SAYS(refusal([&] { g.state("", {kF32, {}}); }), "state: the name is empty");
    CHECK_SAYS(refusal(
                   [&] {
                     g.input("y", {TENON_DTYPE_NONE, {}});
                   },
                   Code::dtype_mismatch),
               "dtype");
    CHECK_SAYS(refusal([&] {
                 g.weight("w", {kF32, {g.symbol("N")}});
               }),
               "only inputs may have symbolic dims");
  }

  TEST_CASE("symbols: the same name is the same symbol") {
    Graph g;
    CHECK(g.symbol("N") == g.symbol("N"));
    CHECK(g.symbol("N") != g.symbol("M"));
    CHECK(g.symbol_name(g.symbol("M")) == "M");
  }

  TEST_CASE("add_node: attributes equal to their default are left out, in the entry's order") {
    Graph g;
    const Value x = g.input("x", {kF32, {2, 3}});
    const NodeId n = g.add_node(record_of("topk"), {x}, {{"axis", int64_t{-1}}, {"k", int64_t{2}}},
                                {true, true});
    REQUIRE(g[n].attrs.size() == 1);
    CHECK(g[n].attrs[0].name == "k");
    CHECK(g.type(g[n].outputs[1]).text() == "i64[2,2]");
  }

  TEST_CASE("add_node: an integer serves where a float attribute is meant, nothing else does") {
    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    const NodeId n = g.add_node(record_of("unary"), {x},
                                {{"kind", std::string("elu")}, {"alpha", int64_t{2}}}, {true});
    CHECK(std::get<double>(*g[n].attr("alpha")) == 2.0);
    auto bad = [&](Attrs attrs) {
      return refusal([&] { g.add_node(record_of("unary"), {x}, std::move(attrs), {true}); });
    };
    CHECK_SAYS(bad({{"kind", true}}), "unary: attribute kind: expected string, got bool");
    CHECK_SAYS(bad({}), "unary: attribute kind is required");
    CHECK_SAYS(bad({{"kind", std::string("exp")}, {"k", true}}), "unary: has no attribute 'k'");
    CHECK_SAYS(bad({{"kind", std::string("exp")}, {"kind", std::string("exp")}}),
               "attribute kind is given twice");
  }

  TEST_CASE("add_node: arity is checked") {
    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    auto bad = [&](std::vector<Value> operands, std::vector<bool> outputs) {
      return refusal([&] {
        g.add_node(record_of("binary"), std::move(operands), {{"kind", std::string("add")}},
                   std::move(outputs), "here");
      });
    };
    CHECK_SAYS(bad({x}, {true}), "binary 'here': operand b is missing");
    CHECK_SAYS(bad({x, x, x}, {true}), "binary 'here': got 3 operands, the op takes at most 2");
    CHECK_SAYS(bad({x, Value{77}}, {true}), "binary 'here': an operand is no value of this graph");
    CHECK_SAYS(bad({x, x}, {true, true}), "binary 'here': got 2 outputs, the op has 1");
    CHECK_SAYS(bad({x, x}, {}), "binary 'here': output y is not optional");
    CHECK(g.node_count() == 0);
    CHECK(g.value_count() == 1);
  }

  TEST_CASE("add_node: types wait for symbols") {
    Graph g;
    const Value x = g.input("x", {kF32, {g.symbol("N")}});
    const NodeId n = g.add(op::unary{.kind = "exp", .x = x});
    CHECK(g.type(g[n].outputs[0]).dtype == TENON_DTYPE_NONE);
  }

  TEST_CASE("want_output: an optional output appears once, with its type") {
    Graph g = graph_of("graph { input x: f32[2,4] weight w: f32[4] y = rms_norm(x, w) }");
    const Value r = g.want_output(0, 1);
    CHECK(g.type(r).text() == "f32[2,1]");
    CHECK(g.want_output(0, 1) == r);
    CHECK(g[NodeId{0}].outputs.size() == 2);
    CHECK(g[r].node == 0);
    CHECK(g[r].output == 1);
  }

  TEST_CASE("update: one per target, of its type") {
    Graph g;
    const Value s = g.state("s", {kF32, {2}}), x = g.input("x", {kF32, {2}});
    const Value n = g.input("n", {kF32, {g.symbol("N")}});
    CHECK_SAYS(refusal([&] { g.update(x, x); }), "neither a weight nor state");
    g.update(s, x);
    CHECK(g.update_of(s) == x);
    CHECK_SAYS(refusal([&] { g.update(s, x); }), "update 's' exists already");
    const Value t = g.state("t", {kF32, {2}});
    g.update(t, n);  // known once N is
    CHECK(g.update_of(t) == n);
  }

  TEST_CASE("constant: content must fill the type") {
    Graph g;
    CHECK_SAYS(refusal([&] {
                 g.constant({kF32, {2}}, bytes_of({1}));
               }),
               "constant f32[2]: expected 8 bytes, got 4");
    CHECK_SAYS(refusal([&] { g.constant({kF32, {2}}, nullptr); }), "expected 8 bytes, got 0");
  }
}
