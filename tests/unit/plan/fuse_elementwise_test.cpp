// SPDX-License-Identifier: Apache-2.0
// What becomes a fused body, what stays out and why, with devices that are rules over nodes.
#include "plan/rewrite/fuse_elementwise.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

// A device that claims what `takes` says; counts what it was asked.
struct Rule {
  std::function<bool(const Graph&)> takes = [](const Graph&) { return true; };
  int asked = 0;

  // `takes` sees the fused body's body.
  Query query() {
    return [this](const Graph& graph, uint32_t) {
      ++asked;
      CHECK(graph.node_count() == 1);
      Verdict v;
      v.native = takes(*std::get<FunctionAttr>(*graph[NodeId{0}].attr("body")));
      if (!v.native) v.reason = TENON_REASON_OP, v.text = "not this one";
      return std::vector<Verdict>{v};
    };
  }
};

Graph joined(std::string_view statements, Rule rule = {}) {
  return rewritten(statements, [&](const Graph& g) { return fuse_elementwise(g, rule.query()); });
}

// "fused(x,y)=mul,add>2" for each node: operands, kinds of the steps, number of outputs.
std::string shown(const Graph& g) {
  std::string text;
  const auto kinds = [](const NodeInfo& n) {
    const AttrValue* kind = n.attr("kind");
    return kind ? std::get<std::string>(*kind) : std::string(n.op->name());
  };
  for (NodeId n = 0; n < g.node_count(); ++n) {
    text += n ? " " : "";
    const AttrValue* body = g[n].attr("body");
    text += body ? "fused(" : kinds(g[n]) + "(";
    for (size_t k = 0; k < g[n].operands.size(); ++k)
      text += (k ? "," : "") + g[g[n].operands[k]].name;
    text += ")";
    if (!body) continue;
    const Graph& b = *std::get<FunctionAttr>(*body);
    for (NodeId s = 0; s < b.node_count(); ++s) text += (s ? "," : "=") + kinds(b[s]);
    text += cat(">", g[n].outputs.size());
  }
  return text;
}

constexpr std::string_view kInputs =
    "input x: f32[4,6] input y: f32[4,6] input c: f32[4,1] input r: f32[6] input s: f32[] "
    "const k: f32[] = {1.5} ";

std::string shown_of(std::string_view statements, Rule rule = {}) {
  return shown(joined(cat(kInputs, statements), std::move(rule)));
}

}  // namespace

TEST_SUITE("plan/fuse_elementwise") {
  TEST_CASE("join: a chain with a constant becomes one fused body, in order") {
    const Graph g = joined(cat(kInputs, R"(
      a = binary(x, k) {kind="mul"} b = unary(a) {kind="gelu"} z = binary(b, y) {kind="mul"}
      output "z" = z)"));
    CHECK(shown(g) == "fused(x,y)=mul,gelu,mul>1");
    CHECK(g[NodeId{0}].note == "joined: binary mul + unary gelu + binary mul");
    CHECK(g[g.outputs()[0].value].name == "z");
  }

  TEST_CASE("join: [N,1], [D] and [] broadcast inside; a scalar declared late is an operand") {
    CHECK(shown_of(R"(
      a = binary(x, c) {kind="sub"} b = binary(r, a) {kind="mul"} d = binary(b, s) {kind="add"}
      output "d" = d)") == "fused(x,c,r,s)=sub,mul,add>1");
    CHECK(shown_of(R"(
      a = unary(x) {kind="exp"} late = reduce(y) {kind="sum"} d = binary(late, a) {kind="mul"}
      output "d" = d)") == "sum(y) fused(x,late)=exp,mul>1");
  }

  TEST_CASE("join: what has another shape stays outside") {
    CHECK(shown_of(R"(
      a = unary(c) {kind="exp"} b = binary(x, a) {kind="mul"} d = unary(b) {kind="neg"}
      output "d" = d)") == "exp(c) fused(x,a)=mul,neg>1");
  }

  TEST_CASE("join: a compare with two readers is read twice inside") {
    CHECK(shown_of(R"(
      m = compare(x, y) {kind="lt"} a = where(m, x, y) b = where(m, y, x)
      d = binary(b, a) {kind="sub"} output "d" = d)") == "fused(x,y)=lt,where,where,sub>1");
  }

  TEST_CASE("join: a value that leaves is an output beside the one it is read for") {
    const Graph g = joined(cat(kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="tanh"} output "a" = a output "b" = b)"));
    REQUIRE(shown(g) == "fused(x,y)=add,tanh>2");
    CHECK(g.outputs()[0].value == g[NodeId{0}].outputs[1]);
    CHECK(g.outputs()[1].value == g[NodeId{0}].outputs[0]);
  }

  TEST_CASE("join: a reader behind the fused body keeps its value as an output") {
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="tanh"} m = matmul(a, b) {trans_b=true}
      output "m" = m)") == "fused(x,y)=add,tanh>2 matmul(a,b)");
  }

  TEST_CASE("join: no fused body around a node in between") {
    // softmax reads a and makes what d reads: a cannot stand in d's fused body.
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="add"} m = softmax(a) b = unary(a) {kind="tanh"}
      d = binary(b, m) {kind="mul"} output "d" = d)") ==
          "add(x,y) softmax(a) fused(a,m)=tanh,mul>1");
  }

  TEST_CASE("join: a reduction ends a fused body, and its operand may leave too") {
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="sub"} b = unary(a) {kind="square"}
      d = reduce(b) {kind="sum", axes=[1]} output "d" = d)") == "fused(x,y)=sub,square,sum>1");
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="sub"} d = reduce(a) {kind="max", axes=[1]} output "d" = d
      output "a" = a)") == "fused(x,y)=sub,max>2");
  }

  TEST_CASE("join: a reduction that the device does not take stays behind its fused body") {
    Rule rule{
        [](const Graph& body) { return !(body[body.node_count() - 1].op->traits & kReduction); }};
    const Graph g = joined(cat(kInputs, R"(
      a = binary(x, y) {kind="sub"} b = unary(a) {kind="square"}
      d = reduce(b) {kind="sum", axes=[1]} output "d" = d)"),
                           rule);
    CHECK(shown(g) == "fused(x,y)=sub,square>1 sum(b)");
    CHECK(g[NodeId{1}].note == "not joined into elementwise_region: not this one");
  }

  TEST_CASE("join: what is not claimed stays as it was, and says so once") {
    Rule rule{[](const Graph&) { return false; }};
    const Graph g = joined(cat(kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} d = unary(b) {kind="neg"}
      output "d" = d)"),
                           rule);
    CHECK(shown(g) == "add(x,y) exp(a) neg(b)");
    CHECK(g[NodeId{2}].note == "not joined into elementwise_region: not this one");
    CHECK(g[NodeId{1}].note.empty());
  }

  TEST_CASE("join: what the device takes in no fused body stays outside, the rest is joined") {
    int whole = 0;
    Rule rule{[&](const Graph& body) {
      whole += body.node_count() > 1;
      for (NodeId n = 0; n < body.node_count(); ++n)
        if (body[n].op->name() == "cast") return false;
      return true;
    }};
    const Graph g = joined(cat(kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} d = cast(b) {to=f64}
      e = cast(d) {to=f32} f = unary(e) {kind="neg"} h = binary(f, y) {kind="mul"}
      output "h" = h)"),
                           rule);
    CHECK(shown(g) == "fused(x,y)=add,exp>1 cast(b) cast(d) fused(e,y)=neg,mul>1");
  }

  TEST_CASE("join: beside each other, by one reading of what both read") {
    // As rope is written: neither half reads the other.
    CHECK(shown_of(R"(
      a = binary(x, c) {kind="mul"} b = binary(y, r) {kind="mul"} d = binary(a, b) {kind="sub"}
      e = binary(y, c) {kind="mul"} f = binary(x, r) {kind="mul"} h = binary(e, f) {kind="add"}
      j = concat(d, h) {axis=1} output "j" = j)") ==
          "fused(x,c,y,r)=mul,mul,sub,mul,mul,add>2 concat(d,h)");
    // What stands between reads the first: it cannot wait, but the second may come earlier.
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="mul"} b = unary(a) {kind="exp"} s1 = softmax(b)
      d = binary(x, y) {kind="sub"} e = unary(d) {kind="exp"} f = binary(e, x) {kind="mul"}
      m = matmul(s1, f) {trans_b=true} output "m" = m)") ==
          "fused(x,y)=mul,exp,sub,exp,mul>2 softmax(b) matmul(s1,f)");
    // One that reads what is made between stays where it is.
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="mul"} b = unary(a) {kind="exp"} s1 = softmax(b)
      d = binary(x, s1) {kind="sub"} e = binary(d, y) {kind="mul"} output "e" = e)") ==
          "fused(x,y)=mul,exp>1 softmax(b) fused(x,s1,y)=sub,mul>1");
  }

  TEST_CASE("join: beside each other only while little has to live longer for it") {
    const auto nodes = [](std::string_view shared) {
      return joined(cat("input x: f32[4,6] input y: f32[4,6] input c: f32[4,1] input p: f32[4,6] "
                        "input q: f32[4,6] a = binary(",
                        shared, R"(, y) {kind="mul"} b = binary(a, p) {kind="add"}
                        d = binary()",
                        shared, R"(, x) {kind="mul"} e = binary(d, q) {kind="add"}
                        output "b" = b output "e" = e)"))
          .node_count();
    };
    CHECK(nodes("c") == 2);  // they share a column, and read two whole values each
    CHECK(joined(R"(input x: f32[4,6] input y: f32[4,6] input p: f32[4,6]
      a = binary(x, y) {kind="mul"} b = unary(a) {kind="exp"}
      d = binary(x, p) {kind="mul"} e = unary(d) {kind="neg"} output "b" = b output "e" = e)")
              .node_count() == 1);
  }

  TEST_CASE("join: two reductions are two fused bodies") {
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="sub"} b = unary(a) {kind="square"}
      d = reduce(b) {kind="sum", axes=[1]} e = binary(x, y) {kind="mul"}
      f = reduce(e) {kind="sum", axes=[1]} output "d" = d output "f" = f)") ==
          "fused(x,y)=sub,square,sum>1 fused(x,y)=mul,sum>1");
  }

  TEST_CASE("join: a reduction comes last where a step joins its fused body later") {
    // h reads x too and is made at once; the reduction closes the body.
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="sub"} b = unary(a) {kind="square"}
      d = reduce(b) {kind="sum", axes=[1]} h = binary(x, y) {kind="mul"} j = unary(h) {kind="exp"}
      output "d" = d output "j" = j)") == "fused(x,y)=sub,square,mul,exp,sum>2");
  }

  TEST_CASE("join: nodes of two devices and grouped nodes stay apart") {
    Rule rule;
    Graph g = graph_of(cat("graph { ", kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} d = unary(b) {kind="neg"}
      e = unary(d) {kind="tanh"} output "e" = e })"));
    const auto mark = [&](NodeId n, uint32_t device, uint32_t group) {
      Marks marks;
      marks.device = device, marks.source = n, marks.group = group;
      g.set_marks(n, marks);
    };
    mark(0, 0, kNone), mark(1, 0, kNone), mark(2, 1, kNone), mark(3, 1, kNone);
    const Graph two = fuse_elementwise(g, rule.query());
    CHECK(shown(two) == "fused(x,y)=add,exp>1 fused(b)=neg,tanh>1");
    CHECK(two[NodeId{0}].device == 0);
    CHECK(two[NodeId{1}].device == 1);
    CHECK(two[NodeId{1}].source == kNone);
    mark(2, 0, 3), mark(3, 0, kNone);
    CHECK(shown(fuse_elementwise(g, rule.query())) == "fused(x,y)=add,exp>1 neg(b) tanh(d)");
  }

  TEST_CASE("join: what comes of one node still stands for it") {
    Rule rule;
    Graph g = graph_of(cat("graph { ", kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} output "b" = b })"));
    Marks marks;
    marks.source = 6;
    g.set_marks(0, marks), g.set_marks(1, marks);
    CHECK(fuse_elementwise(g, rule.query())[NodeId{0}].source == 6);
  }

  TEST_CASE("join: why not is told behind what was said before, and not again") {
    Rule rule{[](const Graph&) { return false; }};
    Graph g = graph_of(cat("graph { ", kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} output "b" = b })"));
    g.set_note(NodeId{1}, "raised: two nodes");
    const std::string both = "raised: two nodes; not joined into elementwise_region: not this one";
    const Graph once = fuse_elementwise(g, rule.query());
    CHECK(once[NodeId{1}].note == both);
    CHECK(fuse_elementwise(once, rule.query())[NodeId{1}].note == both);
    g.set_note(NodeId{1}, both + " but that");  // what begins alike is another note
    CHECK(fuse_elementwise(g, rule.query())[NodeId{1}].note ==
          both + " but that; not joined into elementwise_region: not this one");
  }

  TEST_CASE("join: each form is asked for once") {
    Rule rule;
    Graph g = graph_of(cat("graph { ", kInputs, R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} m = softmax(b)
      d = binary(m, y) {kind="add"} e = unary(d) {kind="exp"} output "e" = e })"));
    CHECK(shown(fuse_elementwise(g, rule.query())) ==
          "fused(x,y)=add,exp>1 softmax(b) fused(m,y)=add,exp>1");
    CHECK(rule.asked == 1);
  }

  TEST_CASE("join: a recomputed copy joins only its like") {
    CHECK(shown_of(R"(
      a = binary(x, y) {kind="add"} b = unary(a) {kind="exp"} clone 1
      d = unary(b) {kind="neg"} clone 1 output "d" = d)") == "add(x,y) fused(a)=exp,neg>1");
  }

  TEST_CASE("join: halves are rounded between two steps, a cast is rounded as it is") {
    const std::string h = "input h: bf16[5] input o: f32[5] ";
    CHECK(shown(joined(h + R"(
      a = unary(h) {kind="exp"} b = unary(a) {kind="neg"} output "b" = b output "a" = a)")) ==
          "fused(h)=exp,cast,neg>2");
    CHECK(shown(joined(h + R"(
      a = cast(o) {to=bf16} b = unary(a) {kind="neg"} output "b" = b)")) == "fused(o)=cast,neg>1");
  }

  TEST_CASE("join: a value between two fused bodies of halves is rounded where they become one") {
    for (int length = 30; length <= 70; ++length) {
      CAPTURE(length);
      std::string chain = "input x: bf16[5] ";
      for (int k = 0; k < length; ++k)
        chain += cat("v", k, " = unary(", k ? cat("v", k - 1) : "x", ") {kind=\"tanh\"} ");
      const Graph g = joined(cat(chain, "output \"y\" = v", length - 1));
      CHECK(g.node_count() == static_cast<uint32_t>(length + 31) / 32);
    }
  }

  TEST_CASE("join: no more steps, operands and outputs than a body may have") {
    std::string chain(kInputs);
    for (int k = 0; k < 100; ++k)
      chain += cat("v", k, " = unary(", k ? cat("v", k - 1) : "x", ") {kind=\"tanh\"} ");
    Graph g = joined(chain + "output \"y\" = v99");
    REQUIRE(g.node_count() == 2);
    CHECK(std::get<FunctionAttr>(*g[NodeId{1}].attr("body"))->node_count() == 64);
    CHECK(std::get<FunctionAttr>(*g[NodeId{0}].attr("body"))->node_count() == 36);

    std::string wide;
    for (int k = 0; k < 20; ++k) wide += cat("input i", k, ": f32[3] ");
    wide += "v0 = unary(i0) {kind=\"neg\"} ";
    for (int k = 1; k < 20; ++k)
      wide += cat("v", k, " = binary(v", k - 1, ", i", k, ") {kind=\"add\"} ");
    g = joined(wide + "output \"y\" = v19");
    REQUIRE(g.node_count() == 2);
    CHECK(g[NodeId{1}].operands.size() == 16);

    std::string many(kInputs);
    for (int k = 0; k < 6; ++k)
      many += cat("v", k, " = unary(", k ? cat("v", k - 1) : "x", ") {kind=\"tanh\"} output \"v", k,
                  "\" = v", k, " ");
    g = joined(many);
    REQUIRE(g.node_count() == 2);
    CHECK(g[NodeId{1}].outputs.size() == 4);
    CHECK(g[NodeId{0}].outputs.size() == 2);
  }
}
