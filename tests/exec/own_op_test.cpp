// SPDX-License-Identifier: Apache-2.0
// Ops of one's own through the host API: registered by the app and by plugins, decomposed, native
// through kernels of another plugin, differentiated, as text; and descriptions and rules that lie.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "ops.hpp"
#include "rig.hpp"

using namespace tenon;
using json = nlohmann::json;

namespace my {
using tenon::Function, tenon::Value;
#define TENON_OPS "own_op_test.def"
#define TENON_OPS_DOMAIN "my"
#include <tenon/op_structs.inl>
}  // namespace my

namespace {

void same_shape(rules::Shape& s, Value x) {
  s.want_float(x, "x");
  s.out(0, s.type(x));
}

// y = x³, with a gradient of its own and without one.
void cube_shape(rules::Shape& s, const my::cube& n) { same_shape(s, n.x); }
void cube_decompose(rules::Decompose& d, const my::cube& n) {
  d.out(0, d.times(n.x, d.times(n.x, n.x)));
}
void cube_gradient(rules::Gradient& g, const my::cube& n) {
  if (g.wants(n.x)) g.give(n.x, g.times(g.dy(), g.times(g.times(n.x, n.x), 3)));
}
constexpr OpRules<my::cube> kCube{
    .shape = cube_shape, .decompose = cube_decompose, .gradient = cube_gradient};

void plain_shape(rules::Shape& s, const my::plain_cube& n) { same_shape(s, n.x); }
void plain_decompose(rules::Decompose& d, const my::plain_cube& n) {
  d.out(0, d.add(my::cube{.x = n.x}));
}
constexpr OpRules<my::plain_cube> kPlainCube{.shape = plain_shape, .decompose = plain_decompose};

// Its decomposition is itself.
void endless_shape(rules::Shape& s, const my::endless& n) { same_shape(s, n.x); }
void endless_decompose(rules::Decompose& d, const my::endless& n) {
  d.out(0, d.add(my::endless{.x = n.x}));
}
constexpr OpRules<my::endless> kEndless{.shape = endless_shape, .decompose = endless_decompose};

// The first operand may be absent, and either output may be without an upstream gradient.
void scaled_shape(rules::Shape& s, const my::scaled& n) {
  s.out(0, s.type(n.b));
  s.out(1, s.type(n.b));
}
void scaled_decompose(rules::Decompose& d, const my::scaled& n) {
  d.out(0, n.a ? d.times(n.a, n.b) : d.times(n.b, 2.0));
  d.out(1, d.unary("neg", n.b));
}
void scaled_gradient(rules::Gradient& g, const my::scaled& n) {
  if (n.a && g.wants(n.a) && g.dy(0)) g.give(n.a, g.times(g.dy(0), n.b));
  if (!g.wants(n.b)) return;
  if (g.dy(0)) g.give(n.b, n.a ? g.times(g.dy(0), n.a) : g.times(g.dy(0), 2.0));
  if (g.dy(1)) g.give(n.b, g.unary("neg", g.dy(1)));  // added to the first one
}
double scaled_flops(const rules::Cost& c, const my::scaled& n) { return c.elements(n.b); }
constexpr OpRules<my::scaled> kScaled{.shape = scaled_shape,
                                      .decompose = scaled_decompose,
                                      .gradient = scaled_gradient,
                                      .flops = scaled_flops};

// No device has a kernel for it.
void bare_shape(rules::Shape& s, const my::bare& n) { same_shape(s, n.x); }
constexpr OpRules<my::bare> kBare{.shape = bare_shape};

const Runtime& machine() {
  static const Runtime the = [] {
    const std::string guests = TENON_GUEST_PLUGINS;
    return Runtime({.plugin_dirs = {TENON_TEST_PLUGINS},
                    .plugin_files = {guests + "/tenon_plugin_guest.so"},
                    .threads = 2,
                    .use_environment = false});
  }();
  return the;
}

void register_all() {
  static const bool once = [] {
    register_op(op_desc<my::cube, kCube>());
    register_op(op_desc<my::plain_cube, kPlainCube>());
    register_op(op_desc<my::endless, kEndless>());
    register_op(op_desc<my::bare, kBare>());
    return true;
  }();
  static_cast<void>(once);
}

struct Ran {
  std::map<std::string, std::vector<double>> outputs;
  json report;
};
Ran run(const Graph& g, const std::map<std::string, std::vector<double>>& inputs,
        ExecutableOptions options) {
  const Store store(machine());
  const Executable exe(machine(), g, store, options);
  Context context(exe);
  for (const auto& [name, values] : inputs)
    context.set(name, {static_cast<int64_t>(values.size())}, values);
  context.run();
  Ran out{.outputs = {}, .report = json::parse(exe.report())};
  for (const auto& name : {"y", "g", "sum"}) {
    try {
      out.outputs[name] = context.get<double>(name);
    } catch (const Error&) {
    }
  }
  return out;
}

template <class Call>
void refuses(tenon_code code, std::initializer_list<std::string_view> words, Call call) {
  try {
    call();
  } catch (const Error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(std::string(code_name(e.code())) == code_name(code));
    for (const std::string_view word : words) {
      CAPTURE(word);
      CHECK(text.find(word) != std::string::npos);
    }
    return;
  }
  FAIL_CHECK("not refused");
}

// Σ 3x² · weight over an op that computes x³.
template <class Op>
Graph cube_graph() {
  Graph g;
  const Value x = g.input("x", {f64, {3}});
  const Value y = g.add(Op{.x = x}, "the cube");
  g.output("y", y);
  const Value loss = g.add(op::reduce{.kind = "sum", .x = y});
  g.output("g", g.gradients(loss, {x})[0]);
  return g;
}

TEST_CASE("own op: decomposed on every device, with its gradient") {
  register_all();
  const std::vector<double> x = {1, -2, 0.5}, y = {1, -8, 0.125}, dx = {3, 12, 0.75};
  for (const char* device : {"cpu", "template", "adversary"})
    for (const bool decompose : {false, true}) {
      CAPTURE(device);
      CAPTURE(decompose);
      const ExecutableOptions o{.device = device, .decompose_all = decompose};
      CHECK(run(cube_graph<my::cube>(), {{"x", x}}, o).outputs["y"] == y);
      CHECK(run(cube_graph<my::cube>(), {{"x", x}}, o).outputs["g"] == dx);
      // An op that is written in another one of the app's own.
      CHECK(run(cube_graph<my::plain_cube>(), {{"x", x}}, o).outputs["y"] == y);
      CHECK(run(cube_graph<my::plain_cube>(), {{"x", x}}, o).outputs["g"] == dx);
    }
  const json report = run(cube_graph<my::cube>(), {{"x", x}}, {.device = "template"}).report;
  bool named = false;
  for (const json& n : report["nodes"])
    if (n["name"] == "the cube") {
      named = true;
      CHECK(n["op"] == "my:cube");
      CHECK(n["verdict"] == "decomposed");
    }
  CHECK(named);
}

TEST_CASE("own op: second order") {
  register_all();
  Graph g;
  const Value x = g.input("x", {f64, {3}});
  const Value y = g.add(my::cube{.x = x});
  const Value first = g.gradients(g.add(op::reduce{.kind = "sum", .x = y}), {x})[0];
  g.output("y", first);
  g.output("g", g.gradients(g.add(op::reduce{.kind = "sum", .x = first}), {x})[0]);
  CHECK(run(g, {{"x", {1, -2, 0.5}}}, {.device = "cpu"}).outputs["g"] ==
        std::vector<double>{6, -12, 3});
}

TEST_CASE("own op: gradient rules of several outputs and absent operands") {
  register_op(op_desc<my::scaled, kScaled>());
  struct Case {
    bool a, y, z;  // the operand is there, the loss depends on the output
    double da, db;
  };
  // a = 3, b = 5
  for (const Case& c :
       {Case{true, true, false, 5, 3}, Case{true, false, true, 0, -1}, Case{true, true, true, 5, 2},
        Case{false, true, false, 0, 2}, Case{false, true, true, 0, 1}}) {
    CAPTURE(c.a);
    CAPTURE(c.y);
    CAPTURE(c.z);
    Graph g;
    const Value a = g.input("a", {f64, {1}}), b = g.input("b", {f64, {1}});
    const Node n = g.add(
        my::scaled{.f32_precision = 3, .a = c.a ? a : Value{}, .b = b, .want_z = c.z}, "scaled");
    Value loss = n[c.y ? 0 : 1];
    if (c.y && c.z) loss = g.add(op::binary{.kind = "add", .a = n[0], .b = n[1]});
    const std::vector<Value> d = g.gradients(g.add(op::reduce{.kind = "sum", .x = loss}), {a, b});
    g.output("y", d[0]);
    g.output("g", d[1]);
    for (const char* device : {"cpu", "template"}) {
      Ran ran = run(g, {{"a", {3}}, {"b", {5}}}, {.device = device});
      CHECK(ran.outputs["y"] == std::vector<double>{c.da});
      CHECK(ran.outputs["g"] == std::vector<double>{c.db});
    }
  }
}

TEST_CASE("own op: fused around") {
  register_all();
  Graph g;
  const Value x = g.input("x", {f64, {3}});
  const Value before = g.add(op::binary{.kind = "add", .a = x, .b = g.scalar(1.0)});
  const Value cube = g.add(my::cube{.x = before});
  g.output("y", g.add(op::unary{.kind = "relu", .x = cube}));
  size_t steps[2];
  for (const bool fuse : {true, false}) {
    Ran ran = run(g, {{"x", {1, -2, 0}}}, {.device = "cpu", .fuse = fuse});
    CHECK(ran.outputs["y"] == std::vector<double>{8, 0, 1});
    steps[fuse] = ran.report["steps"].size();
  }
  CHECK(steps[true] < steps[false]);
}

TEST_CASE("own op: equal nodes are merged, others are not") {
  static_cast<void>(machine());
  const auto nodes = [](int64_t first, int64_t second) {
    Graph g;
    const Value x = g.input("x", {i64, {5}});
    const Value a = g.add(guest::collatz{.most = first, .x = x}, "a");
    const Value b = g.add(guest::collatz{.most = second, .x = x}, "b");
    g.output("steps", g.add(op::binary{.kind = "sub", .a = a, .b = b}));
    const Store store(machine());
    const Executable exe(machine(), g, store, {.device = "cpu"});
    Context context(exe);
    context.set("x", {5}, std::vector<int64_t>{27, 1, 27, 1, 27});
    context.run();
    size_t count = 0;
    const json report = json::parse(exe.report());
    for (const json& n : report["nodes"]) count += n["op"] == "guest:collatz";
    return std::pair(count, context.get<int64_t>("steps")[0]);
  };
  CHECK(nodes(1000, 1000) == std::pair<size_t, int64_t>(1, 0));
  CHECK(nodes(1000, 7) == std::pair<size_t, int64_t>(2, 104));
}

TEST_CASE("own op: a commutative one is merged with its operands exchanged") {
  const auto node_count = [](const char* name, uint32_t flags) {
    tenon_op_desc op = op_desc<guest::pair, guest::kPair>();
    op.domain = detail::str("merge");
    op.name = detail::str(name);
    op.flags = flags;
    register_op(op);
    const std::string call = std::string("merge:") + name;
    const Graph g =
        Graph::parse("graph { input a: f64[2] input b: f64[2] p = " + call + "(a, b) q = " + call +
                     "(b, a) y = binary(p, q) {kind=\"add\"} output \"y\" = y }");
    const Store store(machine());
    const json report =
        json::parse(Executable(machine(), g, store, {.device = "template"}).report());
    size_t count = 0;
    for (const json& n : report["nodes"]) count += n["op"] == call;
    return count;
  };
  CHECK(node_count("ordered", 0) == 2);
  CHECK(node_count("exchanged", TENON_OP_COMMUTATIVE) == 1);
}

TEST_CASE("own op: symbolic sizes, and a recomputed segment") {
  register_all();
  for (const bool recompute : {false, true}) {
    Graph g;
    const Value x = g.input("x", {f64, {g.symbol("n")}});
    const Value y = g.add(my::cube{.x = x});
    const Value z = g.add(my::cube{.x = y});
    if (recompute) g.checkpoint({x}, {z});
    g.output("y", z);
    g.output("g", g.gradients(g.add(op::reduce{.kind = "sum", .x = z}), {x})[0]);
    for (const std::vector<double>& at : {std::vector<double>{1, 2}, {-1, 0.5, 2}}) {
      const Store store(machine());
      const Executable exe(machine(), g, store, {.device = "cpu"});
      Context context(exe);
      context.set("x", {static_cast<int64_t>(at.size())}, at);
      context.run();
      const auto value = context.get<double>("y"), gradient = context.get<double>("g");
      for (size_t i = 0; i < at.size(); ++i) {
        CHECK(value[i] == std::pow(at[i], 9));
        CHECK(gradient[i] == doctest::Approx(9 * std::pow(at[i], 8)));
      }
    }
  }
}

TEST_CASE("own op: absent positions at the end, with a kernel and a rule in C") {
  static_cast<void>(machine());
  for (const bool all : {false, true}) {
    Graph g;
    const Value a = g.input("a", {f64, {2}}), b = g.input("b", {f64, {2}});
    const Node n = g.add(guest::pair{.a = a, .b = all ? b : Value{}, .want_sign = all}, "pair");
    g.output("y", n[0]);
    if (all) g.output("g", n[1]);
    for (const char* device : {"cpu", "template"}) {
      CAPTURE(device);
      Ran ran = run(g, {{"a", {2, -3}}, {"b", {5, 7}}}, {.device = device});
      CHECK(ran.outputs["y"] == (all ? std::vector<double>{10, -21} : std::vector<double>{2, -3}));
      if (all) CHECK(ran.outputs["g"] == std::vector<double>{1, -1});
      std::string verdict;
      for (const json& r : ran.report["nodes"])
        if (r["name"] == "pair") verdict = r["verdict"];
      CHECK(verdict == (std::string(device) == "cpu" ? "native" : "decomposed"));
    }
  }
  // Both rows refuse: both say why.
  Graph g;
  const Value a = g.input("a", {f32, {2}});
  g.output("y", g.add(guest::pair{.a = a}, "pair"));
  const Store store(machine());
  const Executable exe(machine(), g, store, {.device = "cpu"});
  CHECK(json::parse(exe.report())["nodes"][0]["reason"] == "the first row refuses; expected f64");
}

TEST_CASE("own op: text names domain and version") {
  register_all();
  const std::string text = cube_graph<my::plain_cube>().print();
  CHECK(text.find("my:plain_cube(") != std::string::npos);
  CHECK(Graph::parse(text).print() == text);
  refuses(TENON_INVALID_ARGUMENT, {"f:1:29: ", "there is no op 'my:cub'"},
          [] { Graph::parse("graph { input x: f64[2] y = my:cub(x) output \"y\" = y }", "f"); });
  refuses(TENON_INVALID_ARGUMENT, {"'my:cube' of version 2"},
          [] { Graph::parse("graph { input x: f64[2] y = my:cube/2(x) output \"y\" = y }", "f"); });
  // A newer version: text of the older one says so, and a graph without a version means the newest.
  tenon_op_desc newer = op_desc<my::cube, kCube>();
  newer.name = detail::str("aged");
  register_op(newer);
  Graph old = Graph::parse("graph { input x: f64[2] y = my:aged(x) output \"y\" = y }");
  CHECK(old.print().find("my:aged(x)") != std::string::npos);
  newer.version = 3;
  register_op(newer);
  CHECK(old.print().find("my:aged/1(x)") != std::string::npos);
  CHECK(Graph::parse(old.print()).print() == old.print());
  CHECK(Graph::parse("graph { input x: f64[2] y = my:aged(x) output \"y\" = y }")
            .print()
            .find("my:aged(x)") != std::string::npos);
  // The lowest version that covers the one that is asked for.
  CHECK(Graph::parse("graph { input x: f64[2] y = my:aged/2(x) output \"y\" = y }")
            .print()
            .find("my:aged(x)") != std::string::npos);
}

TEST_CASE("own op: without a decomposition it runs only where it is native") {
  register_all();
  Graph g;
  g.output("y", g.add(my::bare{.x = g.input("x", {f64, {3}})}, "layer 3"));
  refuses(TENON_UNSUPPORTED,
          {"no device takes my:bare 'layer 3'", "template:0: no kernel for op my:bare version 1",
           "cpu:0: no kernel for op my:bare version 1", "the op has no decomposition"},
          [&] {
            run(g, {{"x", {1, 2, 3}}}, {.device = "template"});
          });
  Graph h;
  const Value x = h.input("x", {f64, {3}});
  const Value y = h.add(my::bare{.x = x}, "layer 3");
  h.output("g", h.gradients(h.add(op::reduce{.kind = "sum", .x = y}), {x})[0]);
  refuses(TENON_UNSUPPORTED, {"my:bare 'layer 3': has no gradient and no decomposition"}, [&] {
    run(h, {{"x", {1, 2, 3}}}, {.device = "cpu"});
  });
}

TEST_CASE("own op: a decomposition that leads to itself is refused") {
  register_all();
  Graph g;
  const Value x = g.input("x", {f64, {3}});
  const Value y = g.add(my::endless{.x = x}, "loop");
  g.output("y", y);
  refuses(TENON_INVALID_ARGUMENT, {"my:endless", "does not come to an end"}, [&] {
    run(g, {{"x", {1, 2, 3}}}, {.device = "cpu"});
  });
  g.output("g", g.gradients(g.add(op::reduce{.kind = "sum", .x = y}), {x})[0]);
  refuses(TENON_INVALID_ARGUMENT, {"my:endless", "does not come to an end"}, [&] {
    run(g, {{"x", {1, 2, 3}}}, {.device = "cpu"});
  });
  // Twice over, so that it grows fast.
  tenon_op_desc twice = op_desc<my::endless, kEndless>();
  twice.name = detail::str("twice");
  twice.decompose = [](void*, const tenon_op_call* c) {
    tenon_node_desc n{};
    n.struct_size = sizeof n;
    n.domain = detail::str("my");
    n.op = detail::str("twice");
    n.operands = c->operands;
    n.operand_count = n.output_count = 1;
    tenon_value first = TENON_NONE, second = TENON_NONE;
    c->add_node(c, &n, &first);
    n.operands = &first;
    c->add_node(c, &n, &second);
    c->give(c, 0, second);
  };
  register_op(twice);
  const Graph grows = Graph::parse(
      "graph { input x: f64[3] y = my:twice(x) l = reduce(y) {kind=\"sum\"} d = grad(l, x) "
      "output \"g\" = d }");
  refuses(TENON_INVALID_ARGUMENT, {"my:twice", "does not come to an end"}, [&] {
    run(grows, {{"x", {1, 2, 3}}}, {.device = "cpu"});
  });
}

// ---- ops and kernels of a plugin

TEST_CASE("own op: of a plugin, in the list with its parts") {
  static_cast<void>(machine());
  register_all();
  bool found = false, mine = false;
  for (const OpEntry& op : list_ops()) {
    mine |= op.full_name() == "my:cube" && op.origin == "the app";
    if (op.full_name() != "guest:weighted") continue;
    found = true;
    CHECK(op.origin == "guest");
    CHECK(op.family == "guest");
    CHECK(op.has_decomposition);
    CHECK_FALSE(op.has_gradient);
    CHECK(op.signature ==
          "guest:weighted(xs..., bias?) {weights=[], scale=1, kind=\"plain\"} -> (y, sum?)");
    CHECK(op.values == "kind=plain|negative");
    REQUIRE(op.parts.size() == 7);
    CHECK(detail::string(op.parts[0].name) == "weights");
    CHECK(op.parts[0].type == TENON_ARG_FLOATS);
    CHECK(op.parts[1].default_float == 1);
    CHECK(detail::string(op.parts[2].values) == "plain negative");
    CHECK(op.parts[3].kind == TENON_PART_OPERAND_LIST);
    CHECK(op.parts[4].kind == TENON_PART_OPTIONAL_OPERAND);
    CHECK(op.parts[6].kind == TENON_PART_OPTIONAL_OUTPUT);
  }
  CHECK(found);
  CHECK(mine);
}

TEST_CASE("own op: lists, optional operands and outputs, attributes of every type") {
  static_cast<void>(machine());
  Graph g;
  const Value a = g.input("a", {f64, {2}}), b = g.input("b", {f64, {2}});
  const Value bias = g.input("bias", {f64, {2}});
  const Node n = g.add(guest::weighted{.weights = {2, -1},
                                       .scale = 0.5,
                                       .kind = "negative",
                                       .xs = {a, b},
                                       .bias = bias,
                                       .want_sum = true});
  g.output("y", n[0]);
  g.output("sum", n[1]);
  for (const std::string& text : {g.print(), Graph::parse(g.print()).print()}) {
    const Graph read = Graph::parse(text);
    Ran ran = run(read, {{"a", {1, 2}}, {"b", {4, 10}}, {"bias", {100, 200}}}, {.device = "cpu"});
    CHECK(ran.outputs["y"] == std::vector<double>{101, 203});
    CHECK(ran.outputs["sum"] == std::vector<double>{304});
  }
  Graph plain;
  const Value x = plain.input("x", {f64, {2}});
  plain.output("y", plain.add(guest::weighted{.xs = {x, x, x}}, "w"));
  Ran ran = run(plain, {{"x", {1, -2}}}, {.device = "template"});
  CHECK(ran.outputs["y"] == std::vector<double>{3, -6});
  bool named = false;
  for (const json& node : ran.report["nodes"])
    if (node["name"] == "w") {
      named = true;
      CHECK(node["flops"] == 12);
    }
  CHECK(named);
  refuses(TENON_INVALID_ARGUMENT,
          {"guest:weighted 'here': attribute weights: expected 1 entries, got 2"}, [&] {
            plain.add(guest::weighted{.weights = {1, 2}, .xs = {x}}, "here");
          });
  refuses(TENON_INVALID_ARGUMENT, {"attribute kind: expected one of plain negative, given 'odd'"},
          [&] { plain.add(guest::weighted{.kind = "odd", .xs = {x}}, "here"); });
  refuses(TENON_INVALID_ARGUMENT, {"operand xs is an empty list"},
          [&] { plain.add(guest::weighted{}, "here"); });
}

Graph collatz_graph(int64_t rank = 1) {
  Graph g;
  std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
  dims.back() = 5;
  g.output("steps", g.add(guest::collatz{.x = g.input("x", {i64, dims})}, "walk"));
  return g;
}

TEST_CASE("own op: native through a kernel of another plugin") {
  const Store store(machine());
  for (const char* device : {"cpu", "template"}) {
    CAPTURE(device);
    const Executable exe(machine(), collatz_graph(), store, {.device = device});
    Context context(exe);
    context.set("x", {5}, std::vector<int64_t>{1, 2, 3, 27, 97});
    context.run();
    CHECK(context.get<int64_t>("steps") == std::vector<int64_t>{0, 1, 7, 111, 118});
    const json report = json::parse(exe.report());
    CHECK(report["nodes"][0]["op"] == "guest:collatz");
    CHECK(report["nodes"][0]["verdict"] == "native");
    // Bad data: the kernel's own text and index, with the node.
    context.set("x", {5}, std::vector<int64_t>{1, 2, 3, -4, 97});
    refuses(TENON_NUMERIC_ERROR, {"walk", "expected x >= 1, got -4"}, [&] { context.run(); });
    context.set("x", {5}, std::vector<int64_t>{5, 5, 5, 5, 5});
    context.run();
    CHECK(context.get<int64_t>("steps") == std::vector<int64_t>{5, 5, 5, 5, 5});
  }
  refuses(TENON_UNSUPPORTED, {"guest:collatz 'walk'", "cpu:0: expected at most 2 axes"},
          [&] { Executable(machine(), collatz_graph(3), store, {.device = "cpu"}); });
  refuses(TENON_UNSUPPORTED, {"adversary:0: no kernel for op guest:collatz version 1"}, [&] {
    Executable(machine(), collatz_graph(), store, {.device = "adversary", .allow_fallback = false});
  });
  // A device without the kernel falls back to the cpu plugin.
  const Executable exe(machine(), collatz_graph(), store, {.device = "adversary"});
  CHECK(json::parse(exe.report())["nodes"][0]["verdict"] == "fallback");
}

TEST_CASE("own op: a kernel of another plugin, in many threads") {
  const Store store(machine());
  const Executable exe(machine(), collatz_graph(), store, {.device = "cpu"});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Context context(exe);
      for (int round = 0; round < 50; ++round) {
        context.set("x", {5}, std::vector<int64_t>(5, int64_t{1} << t));
        context.run();
        right += context.get<int64_t>("steps") == std::vector<int64_t>(5, t);
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 200);
}

TEST_CASE("own op: a second plugin that describes it differently is refused") {
  static_cast<void>(machine());
  const std::string guests = TENON_GUEST_PLUGINS;
  refuses(TENON_INCOMPATIBLE,
          {"tenon_plugin_guest_other.so", "ops: ", "op guest:collatz version 1",
           "by plugin guest; plugin guest_other describes it differently: part 0, most"},
          [&] {
            Runtime({.plugin_files = {guests + "/tenon_plugin_guest_other.so"},
                     .use_environment = false,
                     .use_builtin_dir = false});
          });
  // The same plugin in another runtime, and the same description from the app, are welcome.
  const Runtime again({.plugin_files = {guests + "/tenon_plugin_guest.so"},
                       .use_environment = false,
                       .use_builtin_dir = false});
  CHECK(again.devices().empty());
  CHECK(again.plugins()[0].code == TENON_OK);
  register_op(op_desc<guest::collatz, guest::kCollatz>());
}

// ---- descriptions that are not valid

struct Description {
  tenon_op_desc op = op_desc<guest::weighted, guest::kWeighted>();
  std::vector<tenon_op_part> parts;
  Description() : parts(op.parts, op.parts + op.part_count) {
    op.domain = detail::str("bad");
    op.name = detail::str("op");
  }
  void add() {
    op.parts = parts.data();
    op.part_count = static_cast<uint32_t>(parts.size());
    register_op(op);
  }
};

TEST_CASE("own op: descriptions are checked") {
  const auto wrong = [](tenon_code code, std::initializer_list<std::string_view> words,
                        const std::function<void(Description&)>& change) {
    Description d;
    change(d);
    refuses(code, words, [&] { d.add(); });
  };
  using D = Description;
  const auto kBad = TENON_INVALID_ARGUMENT;
  refuses(kBad, {"op is NULL"}, [] { detail::check(tenon_op_register(nullptr)); });
  wrong(kBad, {"struct_size is 0"}, [](D& d) { d.op.struct_size = 0; });
  wrong(kBad, {"shape rule is NULL"}, [](D& d) { d.op.struct_size = 96; });
  wrong(kBad, {"domain: expected up to 64", "got ''"}, [](D& d) { d.op.domain = {}; });
  wrong(kBad, {"domain other than tenon"}, [](D& d) { d.op.domain = detail::str("tenon"); });
  wrong(kBad, {"name: expected up to 64", "a:b"}, [](D& d) { d.op.name = detail::str("a:b"); });
  wrong(kBad, {"is at NULL"}, [](D& d) { d.op.name = {nullptr, 5}; });
  wrong(kBad, {"family: expected"}, [](D& d) { d.op.family = detail::str("a b"); });
  wrong(kBad, {"op bad:op: version: expected 1 or more"}, [](D& d) { d.op.version = 0; });
  wrong(kBad, {"flags: 8 are not known"}, [](D& d) { d.op.flags = 8; });
  wrong(kBad, {"its shape rule is NULL"}, [](D& d) { d.op.shape = nullptr; });
  wrong(kBad, {"not differentiable, and has a gradient"}, [](D& d) {
    d.op.flags = TENON_OP_NOT_DIFFERENTIABLE;
    d.op.gradient = d.op.decompose;
  });
  wrong(kBad, {"has no parts"}, [](D& d) { d.parts.clear(); });
  wrong(kBad, {"has 300 parts, the limit is 256"}, [](D& d) { d.parts.resize(300); });
  wrong(kBad, {"the stride is 8"}, [](D& d) { d.op.part_stride = 8; });
  wrong(kBad, {"the stride is 73"}, [](D& d) { d.op.part_stride = 73; });
  wrong(kBad, {"part 0: kind 0 is unknown"}, [](D& d) { d.parts[0].kind = 0; });
  wrong(kBad, {"part 0: kind 9 is unknown"}, [](D& d) { d.parts[0].kind = 9; });
  wrong(kBad, {"part 1: expected a name", "got '1x'"},
        [](D& d) { d.parts[1].name = detail::str("1x"); });
  wrong(kBad, {"two parts are named weights"}, [](D& d) { d.parts[3].name = d.parts[0].name; });
  wrong(kBad, {"has no output"}, [](D& d) { d.parts.resize(5); });
  wrong(kBad, {"output sum stands behind a list of outputs"},
        [](D& d) { d.parts[5].kind = TENON_PART_OUTPUT_LIST; });
  wrong(kBad, {"attribute weights: type 9 is unknown"}, [](D& d) { d.parts[0].type = 9; });
  wrong(TENON_UNSUPPORTED, {"attribute weights: a registered op cannot have a function"},
        [](D& d) { d.parts[0].type = TENON_ARG_FUNCTION; });
  wrong(kBad, {"attribute weights: only a string or a dtype can have a list of values"},
        [](D& d) { d.parts[0].values = detail::str("a b"); });
  wrong(kBad, {"attribute kind: the default 'plain' is not among its values other"},
        [](D& d) { d.parts[2].values = detail::str("other"); });
  wrong(kBad, {"attribute kind: 'odd' is no dtype"}, [](D& d) {
    d.parts[2].type = TENON_ARG_DTYPE;
    d.parts[2].values = detail::str("f32 odd");
  });
  wrong(kBad, {"attribute scale: the default 99 is no dtype"}, [](D& d) {
    d.parts[1].type = TENON_ARG_DTYPE;
    d.parts[1].default_int = 99;
  });
  wrong(kBad, {"attribute scale: expected the default 0 or 1, got 2"}, [](D& d) {
    d.parts[1].type = TENON_ARG_BOOL;
    d.parts[1].default_int = 2;
  });
  for (const OpEntry& op : list_ops()) CHECK(op.domain != "bad");
}

TEST_CASE("own op: another description of a registered op is refused, with the difference") {
  const auto differs = [](std::string_view what, const std::function<void(Description&)>& change) {
    Description d;
    d.op.name = detail::str("differs");
    d.add();
    d.add();  // the same one again
    change(d);
    refuses(TENON_INCOMPATIBLE,
            {"op bad:differs version 1 is registered already, by the app; the app describes it "
             "differently: ",
             what},
            [&] { d.add(); });
  };
  using D = Description;
  differs("number of parts 7 and 6", [](D& d) { d.parts.pop_back(); });
  differs("part 1, scale", [](D& d) { d.parts[1].default_float = 2; });
  differs("part 1, scale and factor", [](D& d) { d.parts[1].name = detail::str("factor"); });
  differs("part 4, bias", [](D& d) { d.parts[4].kind = TENON_PART_OPERAND; });
  differs("the values of kind", [](D& d) { d.parts[2].values = detail::str("plain"); });
  differs("flags", [](D& d) { d.op.flags = TENON_OP_COMMUTATIVE; });
  differs("which rules there are", [](D& d) { d.op.flops = nullptr; });
}

// ---- rules that lie

using CCall = const tenon_op_call*;

// An op x -> y in C, with these rules.
tenon_op_desc c_op(const char* name, void (*shape)(void*, CCall),
                   void (*decompose)(void*, CCall) = nullptr,
                   void (*gradient)(void*, CCall) = nullptr) {
  static tenon_op_part parts[2];
  parts[0] = parts[1] = {};
  parts[0].name = detail::str("x");
  parts[0].kind = TENON_PART_OPERAND;
  parts[1].name = detail::str("y");
  parts[1].kind = TENON_PART_OUTPUT;
  tenon_op_desc op{};
  op.struct_size = sizeof op;
  op.domain = detail::str("lies");
  op.name = detail::str(name);
  op.version = 1;
  op.parts = parts;
  op.part_stride = sizeof *parts;
  op.part_count = 2;
  op.shape = shape;
  op.decompose = decompose;
  op.gradient = gradient;
  return op;
}
void honest_shape(void*, CCall c) { c->give_type(c, 0, c->operand_types); }

// Adds the node, and compiles it with a gradient.
void use(const char* name) {
  const std::string text = std::string("graph { input x: f64[3] y = lies:") + name +
                           "(x) @ \"n\" l = reduce(y) {kind=\"sum\"} d = grad(l, x) "
                           "output \"y\" = y output \"g\" = d }";
  run(Graph::parse(text), {{"x", {1, 2, 3}}}, {.device = "cpu"});
}

TEST_CASE("own op: what rules give is checked") {
  const auto lie = [](const tenon_op_desc& op, tenon_code code,
                      std::initializer_list<std::string_view> words) {
    register_op(op);
    const std::string name = detail::string(op.name);
    CAPTURE(name);
    refuses(code, words, [&] { use(name.c_str()); });
  };
  const auto kBad = TENON_INVALID_ARGUMENT;
  lie(c_op("silent", [](void*, CCall) {}), kBad, {"lies:silent 'n'", "output y has no type"});
  lie(c_op("more", [](void*, CCall c) { c->give_type(c, 1, c->operand_types); }), kBad,
      {"lies:more 'n': its shape rule: gives a type for output 1, the node has 1"});
  lie(c_op("null", [](void*, CCall c) { c->give_type(c, 0, nullptr); }), kBad,
      {"its shape rule: output y is NULL"});
  lie(c_op("rank",
           [](void*, CCall c) {
             tenon_tensor_type t = *c->operand_types;
             t.rank = 60000;
             c->give_type(c, 0, &t);
           }),
      TENON_UNSUPPORTED, {"output y: expected at most 8 axes, got 60000"});
  lie(c_op("dims",
           [](void*, CCall c) {
             tenon_tensor_type t = *c->operand_types;
             t.dims[0] = -3;
             c->give_type(c, 0, &t);
           }),
      TENON_SHAPE_MISMATCH, {"output y: expected dims >= 0, got -3 on axis 0"});
  lie(c_op("huge",
           [](void*, CCall c) {
             tenon_tensor_type t = *c->operand_types;
             t.rank = 2;
             t.dims[0] = t.dims[1] = INT64_MAX;
             c->give_type(c, 0, &t);
           }),
      kBad, {"lies:huge 'n': its shape rule"});
  lie(c_op("dtype",
           [](void*, CCall c) {
             tenon_tensor_type t = *c->operand_types;
             t.dtype = 999;
             c->give_type(c, 0, &t);
           }),
      TENON_DTYPE_MISMATCH, {"output y: the dtype 999 is unknown"});
  lie(c_op("throws", [](void*, CCall) { throw std::runtime_error("boo"); }), TENON_INTERNAL,
      {"lies:throws 'n': its shape rule threw an exception: boo"});
  lie(c_op("builds",
           [](void*, CCall c) {
             tenon_value v = 0;
             c->add_node(c, nullptr, &v);
           }),
      kBad, {"its shape rule: must not call add_node"});
  lie(c_op("code", [](void*, CCall c) { c->fail(c, 12345, detail::str("why")); }), TENON_INTERNAL,
      {"lies:code 'n': why"});
  lie(c_op("first",
           [](void*, CCall c) {
             c->fail(c, TENON_SHAPE_MISMATCH, detail::str("the first"));
             c->fail(c, TENON_INVALID_ARGUMENT, detail::str("the second"));
             c->give_type(c, 7, nullptr);
           }),
      TENON_SHAPE_MISMATCH, {"lies:first 'n': the first"});

  lie(c_op("value", honest_shape, [](void*, CCall c) { c->give(c, 0, 4000000); }), kBad,
      {"lies:value 'n': its decomposition: output y: no value of the graph"});
  lie(c_op("output", honest_shape, [](void*, CCall c) { c->give(c, 3, c->operands[0]); }), kBad,
      {"there is no output 3, the node has 1"});
  lie(c_op("type", honest_shape,
           [](void*, CCall c) {
             const double one = 1;
             tenon_tensor_type t{};
             t.struct_size = sizeof t;
             t.dtype = TENON_DTYPE_F64;
             c->give(c, 0, c->constant(c, &t, &one, sizeof one));
           }),
      kBad, {"lies:type 'n': its decomposition gives output y as f64[], expected f64[3]"});
  lie(c_op("constant", honest_shape,
           [](void*, CCall c) { c->give(c, 0, c->constant(c, c->operand_types, nullptr, 24)); }),
      kBad, {"its decomposition: data is NULL"});
  lie(c_op("bytes", honest_shape,
           [](void*, CCall c) { c->give(c, 0, c->constant(c, c->operand_types, c, 8)); }),
      kBad, {"constant f64[3]: expected 24 bytes, got 8"});
  lie(c_op("node", honest_shape,
           [](void*, CCall c) {
             tenon_node_desc n{};
             n.struct_size = sizeof n;
             n.op = detail::str("unary");
             const tenon_value x[1] = {77};
             n.operands = x;
             n.operand_count = n.output_count = 1;
             tenon_value y = 5;
             c->add_node(c, &n, &y);
             c->give(c, 0, y);
           }),
      kBad, {"lies:node 'n': its decomposition: unary"});
  lie(c_op("request", honest_shape,
           [](void*, CCall c) {
             tenon_node_desc n{};
             n.struct_size = sizeof n;
             n.op = detail::str("grad");
             tenon_value y = 5;
             c->add_node(c, &n, &y);
           }),
      kBad, {"its decomposition: op grad: a rule cannot ask for gradients"});
  lie(c_op("upstream", honest_shape, [](void*, CCall c) { c->give(c, 0, c->upstream(c, 0)); }),
      kBad, {"its decomposition: must not call upstream"});

  const auto identity = [](void*, CCall c) { c->give(c, 0, c->operands[0]); };
  lie(c_op("operand", honest_shape, identity,
           [](void*, CCall c) { c->give(c, 9, c->upstream(c, 0)); }),
      kBad, {"lies:operand 'n': its gradient: there is no operand 9"});
  lie(c_op("dy", honest_shape, identity, [](void*, CCall c) { c->upstream(c, 9); }), kBad,
      {"its gradient: there is no output 9, the node has 1"});
  lie(c_op("scalar", honest_shape, identity,
           [](void*, CCall c) {
             const double one = 1;
             tenon_tensor_type t{};
             t.struct_size = sizeof t;
             t.dtype = TENON_DTYPE_F64;
             c->give(c, 0, c->constant(c, &t, &one, sizeof one));
           }),
      kBad, {"its gradient: operand x: expected a gradient of type f64[3], got f64[]"});
  // A gradient that gives nothing is zero.
  register_op(c_op("nothing", honest_shape, identity, [](void*, CCall) {}));
  use("nothing");
}

TEST_CASE("own op: costs are checked") {
  tenon_op_desc op =
      c_op("cost", honest_shape, [](void*, CCall c) { c->give(c, 0, c->operands[0]); });
  op.flops = [](void*, CCall) { return -1.0; };
  register_op(op);
  refuses(TENON_INVALID_ARGUMENT,
          {"lies:cost 'n': its cost rule gives -1, expected a finite number >= 0"}, [] {
            run(Graph::parse("graph { input x: f64[3] y = lies:cost(x) @ \"n\" output \"y\" = y }"),
                {{"x", {1, 2, 3}}}, {.device = "cpu"});
          });
}

TEST_CASE("own op: registered and used by many threads at once") {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const std::string name = "t" + std::to_string((t + round) % 10);
        tenon_op_desc op = op_desc<my::cube, kCube>();
        op.name = detail::str(name);
        op.domain = detail::str("threads");
        register_op(op);
        const Graph g =
            Graph::parse("graph { input x: f64[2] y = threads:" + name + "(x) output \"y\" = y }");
        right += g.print().find("threads:" + name) != std::string::npos;
        right += tenon_op_count() > 0;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 320);
  int count = 0;
  for (const OpEntry& op : list_ops()) count += op.domain == "threads";
  CHECK(count == 10);
}

}  // namespace
