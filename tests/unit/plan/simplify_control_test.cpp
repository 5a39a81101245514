// SPDX-License-Identifier: Apache-2.0
// Constant conditions, counted loops, loops written out, work moved out of loops.
#include "plan/rewrite/simplify_control.hpp"

#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "ops/control.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;

namespace {

Graph simplified(std::string_view text, const Evaluate& evaluate = {}) {
  Graph out = simplify(graph_of(text), evaluate);
  verify(out);
  return out;
}
const Graph& body_of(const Graph& g, NodeId n) { return *control_of(g, g[n]).functions.back(); }
NodeId control_in(const Graph& g) {
  for (NodeId n = 0; n < g.node_count(); ++n)
    if (is_control(g[n])) return n;
  return kNone;
}

std::string branch(const std::string& cond) {
  return cat(
      "graph { input x: f32[2] input c: bool[] const yes: bool[1] = {1} const no: bool[] = {0}"
      " y = if(",
      cond,
      ", [x]) {then_branch=graph { input x: f32[2] y = unary(x) "
      "{kind=\"exp\"} output \"y\" = y }, else_branch=graph { input x: f32[2] y = unary(x) "
      "{kind=\"tanh\"} z = unary(y) {kind=\"neg\"} output \"y\" = z }} output \"y\" = y }");
}

// c' = c + exp(w) for a number of trips, in which w is captured.
std::string sums(int trips, const std::string& body, const std::string& more = "") {
  return cat("graph { input c: f32[4] input w: f32[4] input s: f32[] ", more,
             " y = scan([c], [], [w, s]) {body=graph { input c: f32[4] input w: f32[4] "
             "input s: f32[] ",
             body, " output \"c\" = d }, length=", trips, "} output \"y\" = y }");
}

// A loop that runs while its counter is below `end`, and doubles x.
std::string counted(const std::string& end, const std::string& bound,
                    const std::string& step = "n") {
  return cat(
      "graph { input x: f32[2] input limit: i64[] const zero: i64[] = {0} const ten: i64[] = "
      "{10} (n, y) = while([zero, x], [",
      end,
      "]) {cond=graph { input n: i64[] input x: f32[2] "
      "input end: i64[] go = compare(n, end) {kind=\"lt\"} output \"go\" = go }, body=graph { "
      "input n: i64[] input x: f32[2] input end: i64[] const one: i64[] = {1} m = binary(",
      step,
      ", one) {kind=\"add\"} y = binary(x, x) {kind=\"add\"} output \"n\" = m output \"y\" = y }",
      bound, "} output \"y\" = y }");
}

// Says that a loop has so many trips, and keeps the bound that it was asked with.
struct Counter {
  int64_t trips = 0;
  int64_t* asked = nullptr;
  std::vector<Bytes> operator()(const Graph& g) const {
    std::vector<Bytes> out;
    for (const Output& o : g.outputs()) {
      const NodeId n = g[o.value].node;
      if (n == kNone || !is_control(g[n])) fail(Code::unsupported, "not here");
      *asked = control_of(g, g[n]).trips;
      Bytes bytes(8);
      std::memcpy(bytes.data(), &trips, 8);
      out.push_back(std::move(bytes));
    }
    return out;
  }
};

}  // namespace

TEST_SUITE("plan/simplify_control") {
  TEST_CASE("if: a constant condition leaves one branch; any other leaves both") {
    CHECK(ops_of(simplified(branch("yes"))) == "unary");
    CHECK(ops_of(simplified(branch("no"))) == "unary unary");
    CHECK(ops_of(simplified(branch("c"))) == "if");
  }

  TEST_CASE("scan: few nodes in all are written out, with names that tell the trip") {
    const std::string one = "d = binary(c, w) {kind=\"mul\"} @\"step\"";
    const Graph g = simplified(sums(3, one));
    CHECK(ops_of(g) == "binary binary binary");
    CHECK(g[NodeId{2}].provenance == "scan, function body, trip 2: step");
    CHECK(simplified(sums(64, one)).node_count() == 64);
    CHECK(ops_of(simplified(sums(65, one))) == "scan");
    const std::string two = "e = binary(c, w) {kind=\"mul\"} d = unary(e) {kind=\"tanh\"}";
    CHECK(simplified(sums(32, two)).node_count() == 64);
    CHECK(ops_of(simplified(sums(33, two))) == "scan");
    // No trips: the carry.
    CHECK(simplified(sums(0, one)).node_count() == 0);
  }

  TEST_CASE("scan: slices of less than a byte stay in a loop") {
    const auto text = [](const char* dtype, int trips) {
      return cat("graph { input x: ", dtype, "[", trips,
                 ",8] y = scan([], [x], []) {body=graph { input "
                 "x: ",
                 dtype, "[8] y = cast(x) {to=f32} output \"y\" = y }} output \"y\" = y }");
    };
    CHECK(control_in(simplified(text("u8", 3))) == kNone);
    CHECK(ops_of(simplified(text("u4", 3))) == "scan");
    CHECK(control_in(simplified(text("u4", 1))) == kNone);
  }

  TEST_CASE("a loop's fixed work moves out; a larger value that is cheap to make stays") {
    // exp(w) has the size of w; tanh(s) is read by an expansion that is larger than s.
    const Graph g = simplified(sums(100,
                                    "a = unary(w) {kind=\"exp\"} t = unary(s) {kind=\"tanh\"} e = "
                                    "expand(t) {shape=[4]} f = binary(c, a) {kind=\"mul\"} d = "
                                    "binary(f, e) {kind=\"add\"}"));
    CHECK(ops_of(g) == "unary unary scan");
    const Graph& body = body_of(g, 2);
    CHECK(ops_of(body).find("unary") == std::string::npos);
    CHECK(body.inputs().size() == 3);  // c and what moved out; neither w nor s is read
    CHECK(g[NodeId{1}].provenance.find("scan, function body: ") == 0);
    // A product moves out whatever its size; no other value that is larger than what makes it does.
    const Graph product = simplified(
        "graph { input c: f32[8,8] input a: f32[8,1] input b: f32[1,8] y = scan([c], [], [a, b]) "
        "{body=graph { input c: f32[8,8] input a: f32[8,1] input b: f32[1,8] p = matmul(a, b) d = "
        "binary(c, p) {kind=\"add\"} output \"d\" = d }, length=100} output \"y\" = y }");
    CHECK(ops_of(product) == "matmul scan");
    const Graph outer = simplified(
        "graph { input c: f32[8,8] input a: f32[8,1] input b: f32[1,8] y = scan([c], [], [a, b]) "
        "{body=graph { input c: f32[8,8] input a: f32[8,1] input b: f32[1,8] p = binary(a, b) "
        "{kind=\"mul\"} d = binary(c, p) {kind=\"add\"} output \"d\" = d }, length=100} output "
        "\"y\" = "
        "y }");
    CHECK(ops_of(outer) == "scan");
  }

  TEST_CASE("a node moves out with all outputs that are read, or not at all") {
    // The indices are larger than w.
    const Graph stays = simplified(sums(100,
                                        "(v, i) = sort(w) g = gather(c, i) d = binary(g, v) "
                                        "{kind=\"add\"}"));
    CHECK(ops_of(stays) == "scan");
    CHECK(ops_of(body_of(stays, 0)) == "sort gather binary");
    const Graph moves = simplified(sums(100, "(v, i) = sort(w) d = binary(c, v) {kind=\"add\"}"));
    CHECK(ops_of(moves) == "sort scan");
  }

  TEST_CASE("scan: what is large stays a loop") {
    // 32 trips of a node and 64 trips inside: nodes count as often as they run.
    CHECK(ops_of(simplified(sums(32,
                                 "e = scan([c], [], [w]) {body=graph { input c: f32[4] input w: "
                                 "f32[4] d = binary(c, w) {kind=\"mul\"} output \"d\" = d }, "
                                 "length=64} d = binary(e, w) {kind=\"add\"}"))) == "scan");
    const auto stacked = [](int size) {
      return cat("graph { input x: f32[4,", size,
                 "] y = scan([], [x], []) {body=graph { input x: f32[", size,
                 "] y = unary(x) {kind=\"exp\"} output \"y\" = y }} output \"y\" = y }");
    };
    CHECK(control_in(simplified(stacked(65536))) == kNone);
    CHECK(ops_of(simplified(stacked(65537))) == "scan");
  }

  TEST_CASE("a while's fixed work moves out unless it may fail") {
    const auto text = [](const char* work) {
      return cat(
          "graph { input x: f32[2] input w: f32[2] input at: i64[2] y = while([x], [w, at]) "
          "{cond=graph { input x: f32[2] input w: f32[2] input at: i64[2] s = reduce(x) "
          "{kind=\"sum\"} t = reduce(w) {kind=\"sum\"} go = compare(s, t) {kind=\"lt\"} output "
          "\"go\" = go }, body=graph { input x: f32[2] input w: f32[2] input at: i64[2] a = ",
          work, " y = binary(x, a) {kind=\"add\"} output \"y\" = y }} output \"y\" = y }");
    };
    const Graph g = simplified(text("unary(w) {kind=\"exp\"}"));
    CHECK(ops_of(g) == "reduce unary while");  // of the condition, of the body
    CHECK(ops_of(*control_of(g, g[NodeId{2}]).functions[0]) == "reduce compare");
    CHECK(ops_of(body_of(g, 2)) == "binary");
    CHECK(ops_of(simplified(text("gather(w, at)"))) == "reduce while");
  }

  TEST_CASE("carry that no trip changes, and what nobody reads, leaves the loop") {
    const Graph g = simplified(
        "graph { input a: f32[2] input b: f32[2] input c: f32[2] input x: f32[100,2] (p, q, r, ys, "
        "zs) "
        "= scan([a, b, c], [x], []) {body=graph { input a: f32[2] input b: f32[2] input c: f32[2] "
        "input "
        "x: f32[2] n = binary(a, b) {kind=\"add\"} m = binary(c, x) {kind=\"mul\"} output \"a\" = "
        "n "
        "output \"b\" = b output \"c\" = m output \"y\" = n output \"z\" = m }} output \"p\" = p "
        "output "
        "\"q\" = q output \"ys\" = ys }");
    CHECK(ops_of(g) == "scan");
    const Control c = control_of(g, g[NodeId{0}]);
    CHECK(c.carry.size() == 1);
    CHECK(c.captured.size() == 1);
    CHECK(c.xs.empty());
    CHECK(c.trips == 100);
    CHECK(ops_of(*c.functions[0]) == "binary");
    CHECK(g[g.outputs()[1].value].name == "b");
    // Nothing is left to run.
    CHECK(simplified(
              "graph { input a: f32[2] y = scan([a], [], []) {body=graph { input a: f32[2] output "
              "\"a\" = a }, length=100} output \"y\" = y }")
              .node_count() == 0);
  }

  TEST_CASE("while: known trips make a scan") {
    int64_t asked = -2;
    const auto trips = [&](const Graph& g) { return control_of(g, g[control_in(g)]).trips; };
    const Graph known = simplified(counted("ten", ""), Counter{100, &asked});
    CHECK(ops_of(known) == "scan");
    CHECK(trips(known) == 100);
    CHECK(asked == 4096);
    CHECK(control_in(simplified(counted("ten", ""), Counter{10, &asked})) == kNone);
    CHECK(trips(simplified(counted("ten", ", max_trip=70"), Counter{70, &asked})) == 70);
    CHECK(asked == 70);
    // Too many to be counted, a limit that a run brings, a counter that x decides: it stays.
    CHECK(ops_of(simplified(counted("ten", ""), Counter{4096, &asked})) == "while");
    CHECK(ops_of(simplified(counted("ten", ", max_trip=9999"), Counter{4096, &asked})) == "while");
    CHECK(ops_of(simplified(counted("limit", ""), Counter{100, &asked})) == "while");
    // Nothing counts without a callback, but a bound of no trips needs none.
    CHECK(ops_of(simplified(counted("ten", ""))) == "while");
    CHECK(simplified(counted("limit", ", max_trip=0")).node_count() == 0);
  }

  TEST_CASE("while: a constant condition") {
    const auto text = [](const char* go, const char* bound) {
      return cat(
          "graph { input x: f32[2] y = while([x], []) {cond=graph { input x: f32[2] const go: "
          "bool[] = {",
          go,
          "} output \"go\" = go }, body=graph { input x: f32[2] y = binary(x, x) "
          "{kind=\"add\"} output \"y\" = y }",
          bound, "} output \"y\" = y }");
    };
    CHECK(simplified(text("0", "")).node_count() == 0);
    CHECK(ops_of(simplified(text("1", ", max_trip=100"))) == "scan");
    CHECK(ops_of(simplified(text("1", ""))) == "while");  // never ends, but that is not ours to say
  }
}
