// SPDX-License-Identifier: Apache-2.0
// Which products of one left operand become one node, where it stands, and what stays apart.
#include "plan/rewrite/fuse_products.hpp"

#include <doctest/doctest.h>

#include "grad/grad.hpp"
#include "plan/rewrite/fuse.hpp"
#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kInputs =
    "input x: f32[4,6] weight q: f32[6,8] trainable weight k: f32[6,5] weight v: f32[6,5] "
    "weight r: f32[5,6] weight c: f32[8] weight d: f32[5] ";

Graph joined(std::string_view statements, bool native = true) {
  return rewritten(cat(kInputs, statements),
                   [&](const Graph& g) { return join_products(g, answering(native)); });
}

// "batch_linear(x,q,k) unary(.)": ops with the names of their operands, a dot where there is none.
std::string shown(const Graph& g) {
  std::string text;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    text += cat(n ? " " : "", g[n].op->name(), "(");
    for (size_t k = 0; k < g[n].operands.size(); ++k) {
      const Value v = g[n].operands[k];
      text += cat(k ? "," : "", !v ? "-" : g[v].space == Space::node ? "." : g[v].name);
    }
    text += ")";
  }
  return text;
}

std::string shown_of(std::string_view statements) { return shown(joined(statements)); }

}  // namespace

TEST_SUITE("plan/fuse_products") {
  TEST_CASE("join: three projections of different widths, results in their places") {
    const Graph g = joined(R"(a = matmul(x, q) b = matmul(x, k) e = matmul(x, v)
      output "e" = e output "a" = a output "b" = b)");
    CHECK(shown(g) == "batch_linear(x,q,k,v)");
    CHECK(g[NodeId{0}].note == "joined: matmul + matmul + matmul");
    CHECK(g.outputs()[0].value == g[NodeId{0}].outputs[2]);
    CHECK(g.outputs()[1].value == g[NodeId{0}].outputs[0]);
    CHECK(g.outputs()[2].value == g[NodeId{0}].outputs[1]);
  }

  TEST_CASE("join: a reader between two products reads the joined node's result") {
    const Graph g = joined(R"(a = matmul(x, q) t = unary(a) {kind="exp"} b = matmul(x, k)
      s = unary(b) {kind="neg"} output "a" = a output "t" = t output "s" = s)");
    CHECK(shown(g) == "batch_linear(x,q,k) unary(.) unary(.)");
    CHECK(g[NodeId{1}].operands[0] == g[NodeId{0}].outputs[0]);
    CHECK(g[NodeId{2}].operands[0] == g[NodeId{0}].outputs[1]);
    CHECK(g.outputs()[0].value == g[NodeId{0}].outputs[0]);
  }

  TEST_CASE("join: linear and matmul, with biases; those without are a node of their own") {
    CHECK(shown_of(R"(a = linear(x, q, c) b = linear(x, k, d) output "a" = a output "b" = b)") ==
          "batch_linear(x,q,k,c,d)");
    CHECK(shown_of(R"(a = linear(x, q) b = matmul(x, k) output "a" = a output "b" = b)") ==
          "batch_linear(x,q,k)");
    CHECK(shown_of(R"(a = linear(x, q, c) b = matmul(x, k) e = linear(x, v, d) s = matmul(x, v)
      output "a" = a output "b" = b output "e" = e output "s" = s)") ==
          "batch_linear(x,q,v,c,d) batch_linear(x,k,v)");
  }

  TEST_CASE("join: what is another form of product stays apart") {
    const auto apart = [](std::string_view second) {
      const std::string text =
          shown_of(cat("a = matmul(x, q) b = ", second, " output \"a\" = a output \"b\" = b"));
      CHECK_MESSAGE(text.find("batch_linear") == text.npos, text);
    };
    apart("matmul(x, r) {trans_b=true}");
    apart("matmul(x, k) {alpha=2.0}");
    apart("matmul(x, k) {f32_precision=\"tf32\"}");
    apart("matmul(x, k) clone 1");
    apart("linear(x, k) {act=\"relu\"}");
    apart("linear(x, k, d)");
    CHECK(shown_of(R"(input y: f32[4,6] a = matmul(x, q) b = matmul(y, q)
      output "a" = a output "b" = b)") == "matmul(x,q) matmul(y,q)");
    CHECK(shown_of(R"(input s: f32[4,5] a = linear(x, k, _, s) b = linear(x, v, _, s)
      output "a" = a output "b" = b)") == "linear(x,k,-,s) linear(x,v,-,s)");
    CHECK(shown_of(R"((a, z) = linear(x, k) {act="gelu"} b = matmul(x, v)
      output "a" = a output "z" = z output "b" = b)") == "linear(x,k) matmul(x,v)");
    CHECK(shown_of(R"(input s: f32[3,6,5] a = matmul(x, s) b = matmul(x, s) {alpha=1.0}
      output "a" = a output "b" = b)") == "matmul(x,s) matmul(x,s)");
    CHECK(shown_of(R"(input i: i8[4,6] input j: i8[6,3] input l: i8[6,2]
      a = matmul(i, j) {out_dtype=i32} b = matmul(i, l) {out_dtype=i32}
      output "a" = a output "b" = b)") == "matmul(i,j) matmul(i,l)");
  }

  TEST_CASE("join: halves whose results differ in dtype stay apart, those told and meant join") {
    constexpr std::string_view kHalves =
        "input h: bf16[4,6] weight m: bf16[6,8] weight n: bf16[6,5] ";
    CHECK(shown_of(cat(kHalves, R"(a = matmul(h, m) b = matmul(h, n) {out_dtype=f32}
      output "a" = a output "b" = b)")) == "matmul(h,m) matmul(h,n)");
    CHECK(shown_of(cat(kHalves, R"(a = matmul(h, m) b = matmul(h, n) {out_dtype=bf16}
      output "a" = a output "b" = b)")) == "batch_linear(h,m,n)");
  }

  TEST_CASE("join: a matrix that a node makes is not waited for") {
    CHECK(shown_of(R"(t = unary(k) {kind="exp"} a = matmul(x, q) b = matmul(x, t)
      output "a" = a output "b" = b)") == "unary(k) matmul(x,q) matmul(x,.)");
    CHECK(shown_of(R"(t = unary(d) {kind="exp"} a = linear(x, k, d) b = linear(x, v, t)
      output "a" = a output "b" = b)") == "unary(d) linear(x,k,d) linear(x,v,.)");
    // Its left operand may be made by one.
    CHECK(shown_of(R"(t = unary(x) {kind="exp"} a = matmul(t, q) b = matmul(t, k)
      output "a" = a output "b" = b)") == "unary(x) batch_linear(.,q,k)");
  }

  TEST_CASE("join: a weight that is updated later stays an operand of its own") {
    const Graph g = joined(R"(a = matmul(x, q) b = matmul(x, k) s = binary(q, q) {kind="add"}
      output "a" = a output "b" = b update q = s)");
    CHECK(shown(g) == "batch_linear(x,q,k) binary(q,q)");
    CHECK(g.updates()[0].value == g[NodeId{1}].outputs[0]);
  }

  TEST_CASE("join: gates, activations and residuals come first, the gradient before") {
    Graph g = graph_of(cat("graph { ", kInputs, R"(
      gate = matmul(x, k) up = matmul(x, v) act = unary(gate) {kind="silu"}
      y = binary(act, up) {kind="mul"} loss = reduce(y) {kind="sum"} dq = grad(loss, k)
      output "y" = y output "dq" = dq })"));
    g = join_products(fuse(expand_grads(fuse(g, answering(true))), answering(true)),
                      answering(true));
    CHECK_NOTHROW(verify(g));
    CHECK(shown(g).starts_with("batch_linear(x,k,v) swiglu(.,.)"));
    CHECK(shown(g).find("batch_linear", 1) == std::string::npos);  // none of the gradient
  }

  TEST_CASE("join: what is not claimed stays as it was, and says so once") {
    const Graph g =
        joined(R"(a = matmul(x, q) b = matmul(x, k) output "a" = a output "b" = b)", false);
    CHECK(shown(g) == "matmul(x,q) matmul(x,k)");
    CHECK(g[NodeId{0}].note.empty());
    CHECK(g[NodeId{1}].note == "not joined into batch_linear: not this one");
  }

  TEST_CASE("join: products alone are not asked for, equal groups once") {
    int asked = 0;
    const Graph one = graph_of(cat("graph { ", kInputs, "a = matmul(x, q) output \"a\" = a }"));
    CHECK(shown(join_products(one, answering(true, &asked))) == "matmul(x,q)");
    CHECK(asked == 0);
    const Graph two = graph_of(cat("graph { ", kInputs, R"(input y: f32[4,6]
      a = matmul(x, q) b = matmul(x, k) e = matmul(y, q) s = matmul(y, k)
      output "a" = a output "b" = b output "e" = e output "s" = s })"));
    CHECK(shown(join_products(two, answering(true, &asked))) ==
          "batch_linear(x,q,k) batch_linear(y,q,k)");
    CHECK(asked == 1);
  }

  TEST_CASE("join: very many products are several nodes") {
    std::string many;
    for (int i = 0; i < 600; ++i)
      many += cat("weight w", i, ": f32[6,1] y", i, " = matmul(x, w", i, ") output \"y", i,
                  "\" = y", i, " ");
    const Graph g = joined(many);
    REQUIRE(g.node_count() == 3);
    CHECK(g[NodeId{0}].outputs.size() == TENON_BLOB_MAX_OPERANDS / 4);
    CHECK(g.outputs()[599].value == g[NodeId{2}].outputs.back());
  }
}
