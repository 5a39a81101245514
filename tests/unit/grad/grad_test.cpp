// SPDX-License-Identifier: Apache-2.0
// The reverse walk, with ops that the test makes up.
#include "grad/grad.hpp"

#include <cmath>

#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/evaluate.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;
using K = tenon::OpPart::Kind;

namespace {

Graph expanded(std::string_view text) {
  Graph g = expand_grads(graph_of(text));
  verify(g);
  for (NodeId n = 0; n < g.node_count(); ++n) CHECK(g[n].op->schema->level != tenon::OpLevel::meta);
  return g;
}

// Output `name`, with numbers for inputs and weights in the order of their making.
std::vector<double> value_of(const Graph& g, std::string_view name,
                             const std::vector<std::vector<double>>& numbers) {
  Values given;
  size_t next = 0;
  for (uint32_t v = 0; v < g.value_count(); ++v)
    if (g[Value{v}].space == Space::input || g[Value{v}].space == Space::weight)
      given[Value{v}] = tensor(g.type({v}).dtype, g.type({v}).shape, numbers.at(next++));
  for (const Output& o : g.outputs())
    if (o.name == name) return evaluate(g, given, {o.value})[0].data;
  FAIL("no output ", std::string(name));
  return {};
}

bool has_op(const Graph& g, std::string_view name) {
  for (NodeId n = 0; n < g.node_count(); ++n)
    if (g[n].op->name() == name) return true;
  return false;
}

using Doubles = std::vector<double>;

constexpr tenon::OpPart kUnaryParts[] = {{.kind = K::operand, .name = "x"},
                                         {.kind = K::output, .name = "y"}};
void same_as_operand(Infer& i, const Graph& g, const NodeInfo& n) {
  i.out(0, g.type(n.operands[0]));
}

// cube(x) = x·x·x, known by its decomposition only.
constexpr tenon::OpSchema kCubeSchema{.name = "cube",
                                      .family = "test",
                                      .version = 1,
                                      .level = tenon::OpLevel::core,
                                      .first = kUnaryParts,
                                      .part_count = 2};
const OpRecord kCube{.domain = "test",
                     .schema = &kCubeSchema,
                     .shape = same_as_operand,
                     .lower = [](Lower& l, const Graph&, const NodeInfo& n) {
                       const Value x = n.operands[0];
                       l.out(0, l.b.times(l.b.times(x, x), x));
                       return true;
                     }};
// twice_cube(x) = 2·cube(x): its decomposition must be decomposed again.
constexpr tenon::OpSchema kTwiceSchema{.name = "twice_cube",
                                       .family = "test",
                                       .version = 1,
                                       .level = tenon::OpLevel::core,
                                       .first = kUnaryParts,
                                       .part_count = 2};
const OpRecord kTwice{.domain = "test",
                      .schema = &kTwiceSchema,
                      .shape = same_as_operand,
                      .lower = [](Lower& l, const Graph&, const NodeInfo& n) {
                        const NodeId cube = l.b.graph.add_node(kCube, {n.operands[0]}, {}, {true});
                        l.out(0, l.b.times(l.b.graph[cube].outputs[0], 2));
                        return true;
                      }};
// Neither gradient nor decomposition.
constexpr tenon::OpSchema kOpaqueSchema{.name = "opaque",
                                        .family = "test",
                                        .version = 1,
                                        .level = tenon::OpLevel::core,
                                        .first = kUnaryParts,
                                        .part_count = 2};
const OpRecord kOpaque{.domain = "test", .schema = &kOpaqueSchema, .shape = same_as_operand};
// A gradient rule of the wrong type.
constexpr tenon::OpSchema kWrongSchema{.name = "wrong",
                                       .family = "test",
                                       .version = 1,
                                       .level = tenon::OpLevel::core,
                                       .first = kUnaryParts,
                                       .part_count = 2};
const OpRecord kWrong{.domain = "test",
                      .schema = &kWrongSchema,
                      .shape = same_as_operand,
                      .grad = [](Grad& g, const Graph&, const NodeInfo& n) {
                        g.give(n.operands[0], g.b.sum(g.dy(), {0}));
                      }};
// A gradient rule that refuses.
constexpr tenon::OpSchema kRefusedSchema{.name = "refused",
                                         .family = "test",
                                         .version = 1,
                                         .level = tenon::OpLevel::core,
                                         .first = kUnaryParts,
                                         .part_count = 2};
const OpRecord kRefused{
    .domain = "test",
    .schema = &kRefusedSchema,
    .shape = same_as_operand,
    .grad = [](Grad& g, const Graph&, const NodeInfo&) { g.refuse("x", "it is a table"); }};

const OpRecord* find_test_op(std::string_view domain, std::string_view name, uint32_t version) {
  for (const OpRecord* r : {&kCube, &kTwice, &kOpaque, &kWrong, &kRefused})
    if (domain == "test" && r->name() == name) return r;
  return find_record(domain, name, version);
}
Graph with_test_ops(std::string_view text) { return parse(text, "test", find_test_op); }

}  // namespace

TEST_SUITE("grad") {
  TEST_CASE("walk: product rule, both operands") {
    const Graph g = expanded(
        "graph { input x: f64[3] weight w: f64[3] p = binary(x, w) {kind=\"mul\"} l = reduce(p) "
        "{kind=\"sum\"}"
        " (dx, dw) = grad(l, x, w) output \"dx\" = dx output \"dw\" = dw }");
    CHECK(value_of(g, "dx", {{1, 2, 3}, {4, 5, 6}}) == Doubles{4, 5, 6});
    CHECK(value_of(g, "dw", {{1, 2, 3}, {4, 5, 6}}) == Doubles{1, 2, 3});
  }

  TEST_CASE("walk: gradients of several readers are summed") {
    const Graph g = expanded(
        "graph { input x: f64[2] s = binary(x, x) {kind=\"mul\"} t = binary(s, x) {kind=\"add\"} l "
        "= reduce(t) {kind=\"sum\"}"
        " d = grad(l, x) output \"d\" = d }");
    CHECK(value_of(g, "d", {{3, -1}}) == Doubles{7, -1});
  }

  TEST_CASE("walk: a broadcast operand's gradient has its shape") {
    const Graph g = expanded(
        "graph { input x: f64[2,3] input b: f64[3] p = binary(x, b) {kind=\"mul\"} l = reduce(p) "
        "{kind=\"sum\"}"
        " d = grad(l, b) output \"d\" = d }");
    CHECK(g.type(g.outputs()[0].value).text() == "f64[3]");
    CHECK(value_of(g, "d", {{1, 2, 3, 4, 5, 6}, {1, 1, 1}}) == Doubles{5, 7, 9});
  }

  TEST_CASE("walk: the loss and values on the way may be asked for too") {
    const Graph g = expanded(
        "graph { input x: f64[] s = binary(x, x) {kind=\"mul\"} l = binary(s, s) {kind=\"mul\"}"
        " (dl, ds, dx) = grad(l, l, s, x) output \"dl\" = dl output \"ds\" = ds output \"dx\" = dx "
        "}");
    CHECK(value_of(g, "dl", {{3}}) == Doubles{1});
    CHECK(value_of(g, "ds", {{3}}) == Doubles{18});
    CHECK(value_of(g, "dx", {{3}}) == Doubles{108});
  }

  TEST_CASE("walk: what does not reach the loss gets zeros of its type") {
    const Graph g = expanded(
        "graph { input x: f64[2] weight w: bf16[3] l = reduce(x) {kind=\"sum\"} (d, dw) = grad(l, "
        "x, w)"
        " output \"d\" = d output \"dw\" = dw }");
    CHECK(value_of(g, "d", {{5, 6}, {1, 2, 3}}) == Doubles{1, 1});
    CHECK(value_of(g, "dw", {{5, 6}, {1, 2, 3}}) == Doubles{0, 0, 0});
    CHECK(g.type(g.outputs()[1].value).text() == "bf16[3]");
  }

  TEST_CASE("walk: a later use of a wrt does not count") {
    const Graph g = expanded(
        "graph { input x: f64[2] l = reduce(x) {kind=\"sum\"} d = grad(l, x) y = binary(d, x) "
        "{kind=\"mul\"}"
        " output \"d\" = d output \"y\" = y }");
    CHECK(value_of(g, "d", {{5, 6}}) == Doubles{1, 1});
    CHECK(value_of(g, "y", {{5, 6}}) == Doubles{5, 6});
  }

  TEST_CASE("walk: integer and bool paths carry none, beside one that does") {
    const Graph g = expanded(
        "graph { input x: f64[3] const z: f64[] = {0.0} m = compare(x, z) {kind=\"gt\"} y = "
        "where(m, x, z)"
        " i = cast(x) {to=i64} f = cast(i) {to=f64} t = binary(y, f) {kind=\"mul\"} l = reduce(t) "
        "{kind=\"sum\"}"
        " d = grad(l, x) output \"d\" = d }");
    CHECK(value_of(g, "d", {{-1.5, 2.5, 3.5}}) == Doubles{0, 2, 3});
  }

  TEST_CASE(
      "walk: a way that is cut where nothing is differentiable is refused, never a silent zero") {
    CHECK_SAYS(
        refusal(
            [] {
              expand_grads(graph_of(
                  "graph { input x: f64[3] i = cast(x) {to=i64} @\"quantize\" f = cast(i) {to=f64}"
                  " l = reduce(f) {kind=\"sum\"} d = grad(l, x) output \"d\" = d }"));
            },
            Code::unsupported),
        "cast 'quantize': has no gradient, and the way from wrt 'x' to the loss leads through it");
  }

  TEST_CASE("walk: quantized integers carry a gradient to what dequantizes them") {
    const Graph g = expanded(
        "graph { input x: f64[3] const s: f64[] = {0.5} q = quantize(x, s) {to=i8} y = "
        "dequantize(q, s) t = binary(y, x) {kind=\"mul\"} l = reduce(t) {kind=\"sum\"}"
        " d = grad(l, x) output \"d\" = d }");
    // y + x where the level is in range, else y alone: 100 has the level 127.
    CHECK(value_of(g, "d", {{1.3, -2, 100}}) == Doubles{1.5 + 1.3, -2.0 - 2.0, 63.5});
  }

  TEST_CASE("walk: quantized integers carry no gradient through a cast or into functions") {
    const auto message = [](const std::string& way) {
      return refusal(
          [&] {
            expand_grads(
                graph_of("graph { input x: f64[3] input c: bool[] const s: f64[] = {0.5}"
                         " q = quantize(x, s) {to=i8} " +
                         way + " l = reduce(y) {kind=\"sum\"} d = grad(l, x) }"));
          },
          Code::unsupported);
    };
    CHECK_SAYS(message("y = cast(q) {to=f64}"), "a cast from i8 to f64 has no derivative");
    const std::string function =
        "graph { input q: i8[3] input s: f64[] y = dequantize(q, s) output \"y\" = y }";
    CHECK_SAYS(
        message("y = if(c, [q, s]) {then_branch=" + function + ", else_branch=" + function + "}"),
        "carry no gradient into functions; hint: dequantize them before the node");
    CHECK_SAYS(message("(z, y) = scan([s], [q]) {body=graph { input s: f64[] input q: i8[] y = "
                       "dequantize(q, s) output \"s\" = s output \"y\" = y }}"),
               "carry no gradient into functions; hint: dequantize them before the node");
  }

  TEST_CASE("walk: the seed has the loss's dtype and shape") {
    const Graph g = expanded(
        "graph { input x: bf16[1,1] y = unary(x) {kind=\"neg\"} d = grad(y, x) output \"d\" = d }");
    CHECK(g.type(g.outputs()[0].value).text() == "bf16[1,1]");
    CHECK(value_of(g, "d", {{2}}) == Doubles{-1});
  }

  TEST_CASE("walk: a forward output that the rule needs becomes wanted") {
    const Graph g = expanded(
        "graph { input x: f64[2,4] weight w: f64[4] y = rms_norm(x, w) q = binary(y, y) "
        "{kind=\"mul\"} l = reduce(q) {kind=\"sum\"}"
        " (dx, dw) = grad(l, x, w) output \"dx\" = dx output \"dw\" = dw }");
    REQUIRE(g[NodeId{0}].outputs.size() == 2);
    CHECK(g[NodeId{0}].outputs[1]);
    CHECK(has_op(g, "rms_norm_backward"));
  }

  TEST_CASE("walk: gradient nodes say whose they are") {
    const Graph g = expanded(
        "graph { input x: f64[2] y = unary(x) {kind=\"exp\"} @\"layer\" z = unary(y) "
        "{kind=\"sin\"} l = reduce(z) {kind=\"sum\"} @\"loss\""
        " d = grad(l, x) output \"d\" = d }");
    std::vector<std::string> seen;
    for (NodeId n = 3; n < g.node_count(); ++n)
      if (seen.empty() || seen.back() != g[n].provenance) seen.push_back(g[n].provenance);
    CHECK(seen == std::vector<std::string>{"grad of loss", "grad of unary", "grad of layer"});
    CHECK(g[g.outputs()[0].value].name == "d");
  }

  TEST_CASE("walk: gradients of gradients") {
    // l = Σ x³, g = 3x², m = Σ g² = Σ 9x⁴, d = 36x³
    const Graph g = expanded(
        "graph { input x: f64[2] s = binary(x, x) {kind=\"mul\"} c = binary(s, x) {kind=\"mul\"} l "
        "= reduce(c) {kind=\"sum\"}"
        " g = grad(l, x) q = binary(g, g) {kind=\"mul\"} m = reduce(q) {kind=\"sum\"} d = grad(m, "
        "x)"
        " output \"g\" = g output \"d\" = d }");
    CHECK(value_of(g, "g", {{2, -1}}) == Doubles{12, 3});
    CHECK(value_of(g, "d", {{2, -1}}) == Doubles{288, -36});
  }

  TEST_CASE("walk: two requests on one loss share nothing that is wrong") {
    const Graph g = expanded(
        "graph { input x: f64[] input z: f64[] p = binary(x, z) {kind=\"mul\"} dx = grad(p, x) dz "
        "= grad(p, z)"
        " output \"dx\" = dx output \"dz\" = dz }");
    CHECK(value_of(g, "dx", {{2}, {3}}) == Doubles{3});
    CHECK(value_of(g, "dz", {{2}, {3}}) == Doubles{2});
  }

  TEST_CASE("decompose: an op without a gradient is written in others, as often as it takes") {
    const Graph g = expand_grads(with_test_ops(
        "graph { input x: f64[2] y = test:twice_cube(x) l = reduce(y) {kind=\"sum\"} d = grad(l, x)"
        " output \"y\" = y output \"d\" = d }"));
    verify(g);
    CHECK(!has_op(g, "twice_cube"));
    CHECK(!has_op(g, "cube"));
    CHECK(value_of(g, "d", {{2, -1}}) == Doubles{24, 6});
    CHECK(value_of(g, "y", {{2, -1}}) == Doubles{16, -2});
  }

  TEST_CASE("decompose: what lies off the way is left as it is") {
    const Graph g = expand_grads(with_test_ops(
        "graph { input x: f64[2] input z: f64[2] y = test:cube(z) p = binary(x, y) {kind=\"mul\"} "
        "l = reduce(p) {kind=\"sum\"}"
        " after = test:cube(x) d = grad(l, x) output \"d\" = d output \"after\" = after }"));
    int cubes = 0;
    for (NodeId n = 0; n < g.node_count(); ++n) cubes += g[n].op->name() == "cube";
    CHECK(cubes == 2);
  }

  TEST_CASE("refusals name op, node and operand") {
    auto says = [](std::string_view op, Code code) {
      return refusal(
          [&] {
            expand_grads(
                with_test_ops(cat("graph { input x: f64[2] y = test:", op,
                                  "(x) @\"here\" l = reduce(y) {kind=\"sum\"} d = grad(l, x) }")));
          },
          code);
    };
    CHECK(says("opaque", Code::unsupported) ==
          "opaque 'here': has no gradient and no decomposition");
    CHECK(says("refused", Code::unsupported) ==
          "refused 'here': no gradient for operand x: it is a table");
    CHECK(says("wrong", Code::internal) ==
          "wrong 'here': its gradient rule gives f64[1] for an operand of type f64[2]");
  }

  TEST_CASE("map: values of the old graph are found, requests lead to their gradients") {
    const Graph from = with_test_ops(
        "graph { input x: f64[2] y = test:cube(x) l = reduce(y) {kind=\"sum\"} d = grad(l, x) "
        "output \"d\" = d }");
    ValueMap map;
    const Graph g = expand_grads(from, &map);
    CHECK(map[from.inputs()[0]] == g.inputs()[0]);
    CHECK(g[g[map[from[NodeId{0}].outputs[0]]].node].op->name() == "binary");
    CHECK(map[from[NodeId{2}].outputs[0]] == g.outputs()[0].value);
  }

  TEST_CASE("nothing asked for: the graph is the same") {
    const Graph g = chain(3);
    CHECK(print(expand_grads(g)) == print(g));
  }

  TEST_CASE("two layers, end to end: every gradient is the difference quotient") {
    const std::string_view text = R"(graph {
      input x: f64[3,4]
      weight gamma: f64[4]
      weight up: f64[4,6]
      weight gate: f64[4,6]
      weight down: f64[6,4]
      h = rms_norm(x, gamma)
      u = matmul(h, up)
      g = matmul(h, gate)
      s = swiglu(g, u)
      o = matmul(s, down)
      r = binary(o, x) {kind="add"}
      n = rms_norm(r, gamma)
      p = softmax(n) {log=true}
      q = unary(p) {kind="gelu"}
      l = reduce(q) {kind="sum"}
      (dx, dgamma, dup, dgate, ddown) = grad(l, x, gamma, up, gate, down)
      output "l" = l
      output "x" = dx
      output "gamma" = dgamma
      output "up" = dup
      output "gate" = dgate
      output "down" = ddown
    })";
    const Graph g = expanded(text);
    const Graph small = simplify(g);
    verify(small);
    for (double scale : {0.05, 4.0}) {
      std::vector<std::vector<double>> at;
      unsigned seed = 3;
      for (Shape s : {Shape{3, 4}, Shape{4}, Shape{4, 6}, Shape{4, 6}, Shape{6, 4}})
        at.push_back(noise(s, scale, seed++).data);
      const std::pair<std::string_view, size_t> wrt[] = {
          {"x", 0}, {"gamma", 1}, {"up", 2}, {"gate", 3}, {"down", 4}};
      for (const auto& [name, k] : wrt) {
        const Doubles gradient = value_of(g, name, at);
        const Doubles again = value_of(small, name, at);
        for (size_t i = 0; i < gradient.size(); ++i) {
          const double step = 1e-6 * scale, middle = at[k][i];
          at[k][i] = middle + step;
          const double above = value_of(g, "l", at)[0];
          at[k][i] = middle - step;
          const double below = value_of(g, "l", at)[0];
          at[k][i] = middle;
          const double quotient = (above - below) / (2 * step);
          CAPTURE(name);
          CAPTURE(i);
          CHECK(std::abs(gradient[i] - quotient) < 2e-5 * (1 + std::abs(quotient)));
          CHECK(std::abs(gradient[i] - again[i]) < 1e-9 * (1 + std::abs(gradient[i])));
        }
      }
    }
  }

  TEST_CASE("a chain of 100,000 nodes, without recursion") {
    Graph g;
    const Value x = g.input("x", {kF32, {}});
    Value v = x;
    for (int i = 0; i < 100000; ++i) v = g[g.add(op::unary{.kind = "neg", .x = v})].outputs[0];
    g.output("d", g[g.add(op::grad{.loss = v, .wrt = {x}})].outputs[0]);
    const Graph out = expand_grads(g);
    CHECK(out.node_count() >= 200000);
    CHECK(simplify(out).node_count() == 0);
  }
}
