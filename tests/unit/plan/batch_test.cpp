// SPDX-License-Identifier: Apache-2.0
// Which elementwise work becomes one batch, what closes one, and what stays apart.
#include "plan/rewrite/batch.hpp"

#include <doctest/doctest.h>

#include "plan/rewrite/fuse_elementwise.hpp"
#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

Graph batched(std::string_view statements, bool native = true) {
  return rewritten(statements, [&](const Graph& g) { return join_batches(g, answering(native)); });
}

// "2x(w,g,v,h)" for a batch of two sets, else the op's name, for each node.
std::string shown(const Graph& g) {
  std::string text;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    text += n ? " " : "";
    const AttrValue* sets = g[n].attr("sets");
    text += sets ? cat(std::get<int64_t>(*sets), "x(") : cat(g[n].op->name(), "(");
    for (size_t k = 0; k < g[n].operands.size(); ++k)
      text += (k ? "," : "") + g[g[n].operands[k]].name;
    text += ")";
  }
  return text;
}

constexpr std::string_view kInputs =
    "input a: f32[4,6] input b: f32[4,6] input c: f32[3,2] input d: f32[3,2] input r: f32[6] "
    "input s: f32[] const k: f32[] = {1.5} ";

std::string shown_of(std::string_view statements) {
  return shown(batched(cat(kInputs, statements)));
}

}  // namespace

TEST_SUITE("plan/batch") {
  TEST_CASE("join: updates of two weights and two sizes, by one learning rate") {
    const Graph g = batched(R"(
      weight w: f32[4,6] trainable weight v: f32[5,2] trainable input g: f32[4,6] input h: f32[5,2]
      input lr: f32[]
      p = elementwise_region(w, g, lr) {body=graph {
        input x: f32[4,6] input y: f32[4,6] input z: f32[]
        q = binary(y, z) {kind="mul"} n = binary(x, q) {kind="sub"} output "n" = n }}
      u = elementwise_region(v, h, lr) {body=graph {
        input x: f32[5,2] input y: f32[5,2] input z: f32[]
        q = binary(y, z) {kind="mul"} n = binary(x, q) {kind="sub"} output "n" = n }}
      update w = p update v = u output "p" = p output "u" = u)");
    CHECK(shown(g) == "2x(w,g,lr,v,h,lr)");
    CHECK(g[NodeId{0}].note == "joined: 2 times binary mul + binary sub");
    CHECK(g.outputs()[0].value == g[NodeId{0}].outputs[0]);
    CHECK(g.outputs()[1].value == g[NodeId{0}].outputs[1]);
    CHECK(g.updates()[1].value == g[NodeId{0}].outputs[1]);
  }

  TEST_CASE("join: nodes alone, with what stands between them; a constant goes into the body") {
    const Graph g = batched(cat(kInputs, R"(
      p = binary(a, k) {kind="mul"} m = softmax(b) q = binary(c, k) {kind="mul"}
      output "p" = p output "m" = m output "q" = q)"));
    CHECK(shown(g) == "softmax(b) 2x(a,c)");
    CHECK(g[NodeId{1}].note == "joined: 2 times binary mul");
  }

  TEST_CASE("join: kinds, constants, ranks, dtypes and clones tell forms apart") {
    CHECK(shown_of(R"(p = unary(a) {kind="exp"} q = unary(b) {kind="neg"}
      output "p" = p output "q" = q)") == "unary(a) unary(b)");
    CHECK(shown_of(R"(const l: f32[] = {2.5} p = binary(a, k) {kind="mul"}
      q = binary(b, l) {kind="mul"} output "p" = p output "q" = q)") == "binary(a,k) binary(b,l)");
    CHECK(shown_of(R"(p = unary(a) {kind="exp"} q = unary(r) {kind="exp"}
      output "p" = p output "q" = q)") == "unary(a) unary(r)");
    CHECK(shown_of(R"(input h: bf16[4,6] p = unary(a) {kind="exp"} q = unary(h) {kind="exp"}
      output "p" = p output "q" = q)") == "unary(a) unary(h)");
    CHECK(shown_of(R"(p = unary(a) {kind="exp"} q = unary(b) {kind="exp"} clone 1
      output "p" = p output "q" = q)") == "unary(a) unary(b)");
  }

  TEST_CASE("join: a reader closes its batch, through other nodes too, and the next one opens") {
    CHECK(shown_of(R"(p = unary(a) {kind="exp"} q = unary(p) {kind="exp"}
      output "q" = q)") == "unary(a) unary(p)");
    CHECK(shown_of(R"(p = unary(a) {kind="exp"} m = softmax(p) q = unary(m) {kind="exp"}
      output "q" = q)") == "unary(a) softmax(p) unary(m)");
    CHECK(shown_of(R"(
      p = unary(a) {kind="exp"} q = unary(c) {kind="exp"} t = unary(p) {kind="exp"}
      u = unary(q) {kind="exp"} output "t" = t output "u" = u)") == "2x(a,c) 2x(p,q)");
  }

  TEST_CASE("join: what two sets read as it is written over keeps them apart; a scalar does not") {
    // Both read a: a device that writes p over a would spoil q.
    CHECK(shown_of(R"(input e: f32[4,6] p = binary(a, b) {kind="add"} q = binary(a, e) {kind="add"}
      t = binary(c, d) {kind="add"} output "p" = p output "q" = q output "t" = t)") ==
          "binary(a,b) 2x(a,e,c,d)");
    CHECK(shown_of(R"(p = binary(a, b) {kind="mul"} q = binary(b, a) {kind="mul"}
      output "p" = p output "q" = q)") == "binary(a,b) binary(b,a)");
    CHECK(shown_of(R"(p = binary(a, s) {kind="mul"} q = binary(c, s) {kind="mul"}
      output "p" = p output "q" = q)") == "2x(a,s,c,s)");
  }

  TEST_CASE("join: large sets stay alone, many go into several batches") {
    CHECK(shown(batched(R"(input x: f32[40000] input y: f32[40000]
      p = unary(x) {kind="exp"} q = unary(y) {kind="exp"} output "p" = p output "q" = q)")) ==
          "unary(x) unary(y)");
    std::string many;
    for (int i = 0; i < 30; ++i)  // 240 KiB each
      many += cat("input i", i, ": f32[30720] v", i, " = unary(i", i, ") {kind=\"exp\"} output \"v",
                  i, "\" = v", i, " ");
    Graph g = batched(many);
    REQUIRE(g.node_count() == 4);
    CHECK(g[NodeId{0}].operands.size() == 8);  // below 2 MiB
    CHECK(g[NodeId{3}].operands.size() == 6);
    many.clear();
    for (int i = 0; i < 1500; ++i)
      many += cat("input i", i, ": f32[3] v", i, " = unary(i", i, ") {kind=\"exp\"} output \"v", i,
                  "\" = v", i, " ");
    g = batched(many);
    REQUIRE(g.node_count() == 2);
    CHECK(g[NodeId{0}].operands.size() == TENON_BLOB_MAX_OPERANDS);
    CHECK(shown(batched("input x: f32[0] input y: f32[0] p = unary(x) {kind=\"exp\"} "
                        "q = unary(y) {kind=\"exp\"} output \"p\" = p output \"q\" = q")) ==
          "unary(x) unary(y)");
  }

  TEST_CASE("join: what is not claimed stays as it was, and says so once") {
    const Graph g = batched(cat(kInputs, R"(p = unary(a) {kind="exp"} q = unary(b) {kind="exp"}
      output "p" = p output "q" = q)"),
                            false);
    CHECK(shown(g) == "unary(a) unary(b)");
    CHECK(g[NodeId{0}].note.empty());
    CHECK(g[NodeId{1}].note == "not joined into batch_elementwise_region: not this one");
  }

  TEST_CASE("join: each form is asked for once") {
    int asked = 0;
    const Graph g = graph_of(cat("graph { ", kInputs, R"(
      p = unary(a) {kind="exp"} q = unary(b) {kind="exp"} t = unary(p) {kind="exp"}
      u = unary(q) {kind="exp"} output "t" = t output "u" = u })"));
    CHECK(shown(join_batches(g, answering(true, &asked))) == "2x(a,b) 2x(p,q)");
    CHECK(asked == 1);
  }

  TEST_CASE("join: 100,000 nodes") {
    std::string text = "graph { ";
    for (int i = 0; i < 50'000; ++i)
      text += cat("input i", i, ": f32[3] v", i, " = unary(i", i, ") {kind=\"exp\"} w", i,
                  " = unary(v", i, ") {kind=\"neg\"} output \"w", i, "\" = w", i, " ");
    const Graph g = join_batches(graph_of(text + "}"), answering(true));
    // v0 is read before v1 is made, so no two exp come together; the neg do, 1024 at a time.
    CHECK(g.node_count() == 50'000 + 49);
    CHECK(join_batches(fuse_elementwise(graph_of(text + "}"), answering(true)), answering(true))
              .node_count() == 49);
  }
}
