// SPDX-License-Identifier: Apache-2.0
// Recomputed segments: which nodes, what is kept, what the clones are, and that gradients stay what
// they were.
#include "grad/checkpoint.hpp"

#include "grad/grad.hpp"
#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/build.hpp"
#include "ops/evaluate.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;

namespace {

Value value_named(const Graph& g, std::string_view name) {
  for (uint32_t v = 0; v < g.value_count(); ++v)
    if (g[Value{v}].name == name) return {v};
  FAIL("no value ", std::string(name));
  return {};
}

std::vector<std::string> names_of(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<std::string> out;
  for (NodeId n : nodes) out.push_back(g[g[n].outputs[0]].name);
  return out;
}

// Two layers of tanh(x·w), the second of which has a residual; loss and both gradients.
constexpr std::string_view kTwoLayers = R"(graph {
  input x: f64[3,4]
  weight w: f64[4,4]
  weight u: f64[4,4]
  a = matmul(x, w)
  b = unary(a) {kind="tanh"}
  c = unary(b) {kind="sin"}
  d = matmul(c, u)
  e = unary(d) {kind="tanh"}
  f = binary(e, c) {kind="add"}
  l = reduce(f) {kind="sum_square"}
  (dw, du) = grad(l, w, u)
  output "dw" = dw
  output "du" = du
})";

std::vector<std::vector<double>> gradients(const Graph& g) {
  Values given;
  int key = 0;
  for (uint32_t v = 0; v < g.value_count(); ++v) {
    if (g[Value{v}].space != Space::input && g[Value{v}].space != Space::weight) continue;
    std::vector<double> numbers;
    for (Dim i = 0; i < g.type({v}).shape.elements(); ++i)
      numbers.push_back(std::sin(1.0 + 7 * key + static_cast<double>(i)));
    given[Value{v}] = tensor(kF64, g.type({v}).shape, numbers);
    ++key;
  }
  std::vector<std::vector<double>> out;
  for (const Output& o : g.outputs()) out.push_back(evaluate(g, given, {o.value})[0].data);
  return out;
}

size_t clones(const Graph& g) {
  size_t count = 0;
  for (NodeId n = 0; n < g.node_count(); ++n) count += g[n].clone != 0;
  return count;
}

void mark(Graph& g, std::string_view from, std::string_view to) {
  const Value first = value_named(g, from), last = value_named(g, to);
  checkpoint(g, nodes_between(g, std::span(&first, 1), std::span(&last, 1)));
}

}  // namespace

TEST_SUITE("grad/checkpoint") {
  TEST_CASE("between: what depends on the first and leads to the last") {
    const Graph g = graph_of(R"(graph {
      input x: f32[2,2]
      weight w: f32[2,2]
      p = unary(w) {kind="exp"}
      a = matmul(x, p)
      aside = unary(a) {kind="sin"}
      b = unary(a) {kind="tanh"}
      c = binary(b, x) {kind="add"}
      output "c" = c
      output "aside" = aside
    })");
    const Value x = value_named(g, "x"), c = value_named(g, "c"), a = value_named(g, "a"),
                w = value_named(g, "w");
    CHECK(names_of(g, nodes_between(g, std::span(&x, 1), std::span(&c, 1))) ==
          std::vector<std::string>{"a", "b", "c"});
    CHECK(names_of(g, nodes_between(g, std::span(&a, 1), std::span(&c, 1))) ==
          std::vector<std::string>{"b", "c"});
    CHECK(names_of(g, nodes_between(g, std::span(&w, 1), std::span(&c, 1))) ==
          std::vector<std::string>{"p", "a", "b", "c"});
    CHECK_THROWS_WITH_AS(nodes_between(g, std::span(&c, 1), std::span(&x, 1)),
                         doctest::Contains("no node leads"), Error);
  }

  TEST_CASE("gradients: the same numbers, from clones of what is not kept") {
    const Graph plain = expand_grads(graph_of(kTwoLayers));
    Graph g = graph_of(kTwoLayers);
    mark(g, "x", "c");
    mark(g, "c", "f");
    CHECK(clones(plain) == 0);
    const Graph out = expand_grads(g);
    CHECK_NOTHROW(verify(out));
    CHECK(gradients(out) == gradients(plain));
    // Of the first segment a and b run again, of the second d and e (tanh's rule reads e): c and f
    // are read outside.
    std::vector<std::string> again;
    for (NodeId n = 0; n < out.node_count(); ++n)
      if (out[n].clone) again.push_back(std::string(out[n].op->name()));
    CHECK(again == std::vector<std::string>{"matmul", "unary", "matmul", "unary"});
    // The later segment comes first in the backward pass, and each has a number of its own.
    const Graph merged = simplify(out);
    CHECK(clones(merged) == 4);
    CHECK(gradients(merged) == gradients(plain));
  }

  TEST_CASE("gradients: nothing of a segment but what others read lives past the forward pass") {
    Graph g = graph_of(kTwoLayers);
    mark(g, "x", "c");
    const Graph out = simplify(expand_grads(g));
    // Originals of the segment, by op and place: matmul 0, tanh 1, sin 2.
    NodeId first_clone = kNone;
    for (NodeId n = out.node_count(); n-- > 0;)
      if (out[n].clone) first_clone = n;
    REQUIRE(first_clone != kNone);
    for (NodeId n = first_clone; n < out.node_count(); ++n)
      for (Value v : out[n].operands) {
        if (!v || out[v].space != Space::node) continue;
        CHECK(out[v].node != 0);
        CHECK(out[v].node != 1);
      }
  }

  TEST_CASE("marks: the first call's stays; they survive text, passes and decomposition") {
    Graph g = graph_of(kTwoLayers);
    mark(g, "x", "c");
    mark(g, "x", "f");
    CHECK(g[NodeId{0}].recompute == 1);
    CHECK(g[NodeId{2}].recompute == 1);
    CHECK(g[NodeId{3}].recompute == 2);
    const std::string text = print(g);
    CHECK(text.find("recompute 2") != std::string::npos);
    CHECK(print(parse(text, "again")) == text);
    CHECK(print(simplify(g)).find("recompute 2") != std::string::npos);
  }

  TEST_CASE("marks: nodes of different segments are not merged") {
    Graph g = graph_of(R"(graph {
      input x: f32[2]
      a = unary(x) {kind="exp"} recompute 1
      b = unary(x) {kind="exp"}
      y = binary(a, b) {kind="add"}
      output "y" = y
    })");
    CHECK(simplify(g).node_count() == 3);
  }

  TEST_CASE("a segment without a gradient's need leaves no clone") {
    Graph g = graph_of(R"(graph {
      input x: f64[2]
      weight w: f64[2]
      a = binary(x, w) {kind="add"}
      b = binary(a, x) {kind="add"}
      l = reduce(b) {kind="sum"}
      d = grad(l, w)
      output "d" = d
    })");
    mark(g, "x", "b");
    const Graph out = expand_grads(g);
    CHECK(clones(out) == 0);
    CHECK(gradients(out) == std::vector<std::vector<double>>{{1, 1}});
  }

  TEST_CASE("optional outputs: the clone gives them, the first run need not") {
    Graph g = graph_of(R"(graph {
      input x: f64[3,4]
      weight w: f64[4]
      a = unary(x) {kind="sin"}
      n = rms_norm(a, w)
      t = unary(n) {kind="tanh"}
      s = unary(t) {kind="sin"}
      l = reduce(s) {kind="sum"}
      d = grad(l, w)
      output "d" = d
    })");
    const auto plain = gradients(expand_grads(g));
    mark(g, "x", "t");
    const Graph out = simplify(expand_grads(g));
    CHECK(gradients(out) == plain);
    for (NodeId n = 0; n < out.node_count(); ++n) {
      if (out[n].op->name() != "rms_norm") continue;
      const bool saves = out[n].outputs.size() > 1 && out[n].outputs[1];
      CHECK(saves == (out[n].clone != 0));
    }
  }

  TEST_CASE("second order: a gradient of a gradient through a segment") {
    constexpr std::string_view text = R"(graph {
      input x: f64[3]
      a = unary(x) {kind="sin"}
      b = unary(a) {kind="exp"}
      c = binary(b, a) {kind="mul"}
      l = reduce(c) {kind="sum"}
      d = grad(l, x)
      m = reduce(d) {kind="sum_square"}
      e = grad(m, x)
      output "e" = e
    })";
    Graph g = graph_of(text);
    mark(g, "x", "c");
    const auto plain = gradients(expand_grads(graph_of(text)));
    const Graph out = expand_grads(g);
    CHECK_NOTHROW(verify(out));
    CHECK(gradients(out) == plain);
  }
}
