// SPDX-License-Identifier: Apache-2.0
// Dead code, common subexpressions, identities and folded constants.
#include "plan/rewrite/simplify.hpp"

#include <map>
#include <set>

#include "base/number.hpp"
#include "ir/graphs.hpp"
#include "ir/verify.hpp"

using namespace tenon::core;

namespace {

// The graph's nodes after the pass, one per line; the values it starts with and outputs left out.
std::string nodes_of(const Graph& g) {
  std::string out;
  const std::string text = print(g);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.find("(") != std::string::npos) out += line.substr(2) + "\n";
    at = end + 1;
  }
  return out;
}
std::string simplified(std::string_view text) {
  const Graph out = simplify(graph_of(text));
  verify(out);
  return nodes_of(out);
}
// What output "y" is after the pass, when that is no node: its name.
std::string becomes(std::string_view body) {
  const Graph out =
      simplify(graph_of(cat("graph { input x: f32[2,3] input n: i32[2,3] input b: bool[2,3] ", body,
                            " output \"y\" = y }")));
  verify(out);
  const ValueInfo& v = out[out.outputs()[0].value];
  return v.space == Space::node ? nodes_of(out) : v.name;
}

// Computes sums of f32 constants; anything else it cannot. Keeps what it was asked for.
struct Adder {
  std::vector<uint32_t> nodes{};  // per call
  std::vector<Bytes> operator()(const Graph& g) {
    nodes.push_back(g.node_count());
    std::map<Value, std::vector<float>> known;
    const auto numbers = [&](Value v) {
      if (const auto found = known.find(v); found != known.end()) return found->second;
      std::vector<float> out(g[v].data->size() / 4);
      std::memcpy(out.data(), g[v].data->data(), g[v].data->size());
      return out;
    };
    for (NodeId n = 0; n < g.node_count(); ++n) {
      if (g[n].op->name() != "binary") fail(Code::unsupported, "not here");
      const auto a = numbers(g[n].operands[0]), b = numbers(g[n].operands[1]);
      std::vector<float>& y = known[g[n].outputs[0]];
      for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
        y.push_back(a[a.size() == 1 ? 0 : i] + b[b.size() == 1 ? 0 : i]);
    }
    std::vector<Bytes> results;
    for (const Output& o : g.outputs()) {
      const std::vector<float> y = numbers(o.value);
      results.emplace_back(y.size() * 4);
      std::memcpy(results.back().data(), y.data(), y.size() * 4);
    }
    return results;
  }
};

}  // namespace

TEST_SUITE("plan/simplify") {
  TEST_CASE("dead code: goes, with the optional outputs that nobody reads") {
    CHECK(simplified("graph { input x: f32[2,4] weight w: f32[4] (y, r) = rms_norm(x, w) dead = "
                     "unary(r) {kind=\"exp\"}"
                     " output \"y\" = y }") == "y = rms_norm(x, w)\n");
    CHECK(simplified("graph { input x: f32[2,4] weight w: f32[4] (y, r) = rms_norm(x, w) output "
                     "\"y\" = y output \"r\" = r }") == "(y, r) = rms_norm(x, w)\n");
    CHECK(simplified("graph { input x: f32[2,4] (v, i) = topk(x) {k=1} output \"v\" = v }") ==
          "(v, i) = topk(x) {k=1}\n");
  }

  TEST_CASE("dead code: what an update needs stays; named values stay") {
    const Graph g = simplify(graph_of(
        "graph { input unused: f32[] state s: f32[] y = unary(s) {kind=\"exp\"} update s = y }"));
    CHECK(g.node_count() == 1);
    CHECK(g.inputs().size() == 1);
  }

  TEST_CASE("common subexpressions: equal op, attributes and operands; commuted too") {
    CHECK(simplified("graph { input x: f32[] input z: f32[] a = binary(x, z) {kind=\"add\"} b = "
                     "binary(z, x) {kind=\"add\"}"
                     " c = binary(a, b) {kind=\"mul\"} output \"c\" = c }") ==
          "a = binary(x, z) {kind=\"add\"}\nc = binary(a, a) {kind=\"mul\"}\n");
    CHECK(simplified("graph { input x: f32[] input z: f32[] a = binary(x, z) {kind=\"sub\"} b = "
                     "binary(z, x) {kind=\"sub\"}"
                     " c = binary(a, b) {kind=\"mul\"} output \"c\" = c }") ==
          "a = binary(x, z) {kind=\"sub\"}\nb = binary(z, x) {kind=\"sub\"}\nc = binary(a, b) "
          "{kind=\"mul\"}\n");
    CHECK(simplified("graph { input x: f32[] a = unary(x) {kind=\"elu\", alpha=2.0} b = unary(x) "
                     "{kind=\"elu\", alpha=3.0}"
                     " output \"a\" = a output \"b\" = b }") ==
          "a = unary(x) {kind=\"elu\", alpha=2.0}\nb = unary(x) {kind=\"elu\", alpha=3.0}\n");
  }

  TEST_CASE("common subexpressions: chains merge, and every name still finds its value") {
    const Graph g = graph_of(
        "graph { input x: f32[] a = unary(x) {kind=\"exp\"} b = unary(a) {kind=\"log1p\"}"
        " c = unary(x) {kind=\"exp\"} d = unary(c) {kind=\"log1p\"} output \"b\" = b output \"d\" "
        "= d }");
    ValueMap map;
    const Graph out = simplify(g, {}, &map);
    CHECK(out.node_count() == 2);
    CHECK(out.outputs()[0].value == out.outputs()[1].value);
    CHECK(map[g[NodeId{2}].outputs[0]] == out[NodeId{0}].outputs[0]);
    CHECK(map[g[NodeId{3}].outputs[0]] == out.outputs()[0].value);
  }

  TEST_CASE("common subexpressions: clones merge only with their own number") {
    CHECK(
        simplified(
            "graph { input x: f32[] a = unary(x) {kind=\"exp\"} b = unary(x) {kind=\"exp\"} clone 1"
            " c = unary(x) {kind=\"exp\"} clone 1 output \"a\" = a output \"b\" = b output \"c\" = "
            "c }") == "a = unary(x) {kind=\"exp\"}\nb = unary(x) {kind=\"exp\"} clone 1\n");
  }

  TEST_CASE("common subexpressions: equal constants are one, by content and type") {
    const Graph g =
        simplify(graph_of("graph { input x: f32[2] const a: f32[2] = {1.0, 2.0} const b: f32[2] = "
                          "{1.0, 2.0} const c: i32[2] = {1065353216, 1073741824}"
                          " p = binary(x, a) {kind=\"div\"} q = binary(x, b) {kind=\"div\"} output "
                          "\"p\" = p output \"q\" = q output \"c\" = c }"));
    CHECK(g.node_count() == 1);
    CHECK(g.outputs()[0].value == g.outputs()[1].value);
    CHECK(g.type(g.outputs()[2].value).dtype == kI32);
  }

  TEST_CASE("ordered nodes are never merged or dropped") {
    static constexpr tenon::OpPart parts[] = {{.kind = tenon::OpPart::Kind::operand, .name = "x"},
                                              {.kind = tenon::OpPart::Kind::output, .name = "y"}};
    static constexpr tenon::OpSchema schema{.name = "send",
                                            .family = "test",
                                            .version = 1,
                                            .level = tenon::OpLevel::core,
                                            .first = parts,
                                            .part_count = 2};
    static const OpRecord send{.domain = "test",
                               .schema = &schema,
                               .shape = [](Infer& i, const Graph& g,
                                           const NodeInfo& n) { i.out(0, g.type(n.operands[0])); },
                               .traits = kOrdered};
    Graph g;
    const Value x = g.input("x", {kF32, {}});
    g.add_node(send, {x}, {}, {true});
    g.add_node(send, {x}, {}, {true});
    CHECK(simplify(g).node_count() == 2);
  }

  TEST_CASE("algebra: what changes nothing goes") {
    CHECK(becomes("const k: f32[] = {1.0} y = binary(x, k) {kind=\"mul\"}") == "x");
    CHECK(becomes("const k: f32[1,3] = {1.0, 1.0, 1.0} y = binary(k, x) {kind=\"mul\"}") == "x");
    CHECK(becomes("const k: f32[] = {1.0} y = binary(x, k) {kind=\"div\"}") == "x");
    CHECK(becomes("const k: f32[] = {1.0} y = binary(x, k) {kind=\"pow\"}") == "x");
    CHECK(becomes("const k: f32[] = {0.0} y = binary(x, k) {kind=\"add\"}") == "x");
    CHECK(becomes("const k: i32[] = {0} y = binary(n, k) {kind=\"sub\"}") == "n");
    CHECK(becomes("a = unary(x) {kind=\"neg\"} y = unary(a) {kind=\"neg\"}") == "x");
    CHECK(becomes("a = logical(b) {kind=\"not\"} y = logical(a) {kind=\"not\"}") == "b");
    CHECK(becomes("a = transpose(x) y = transpose(a)") == "x");
    CHECK(becomes("y = transpose(x) {perm=[0, 1]}") == "x");
    CHECK(becomes("a = reshape(x) {shape=[6]} y = reshape(a) {shape=[2, 3]}") == "x");
    CHECK(becomes("y = expand(x) {shape=[2, 3]}") == "x");
    CHECK(becomes("y = narrow(x) {start=[0, 0], len=[2, 3]}") == "x");
    CHECK(becomes("y = pad(x) {before=[0, 0], after=[0, 0]}") == "x");
    CHECK(becomes("y = concat(x) {axis=1}") == "x");
    CHECK(becomes("y = where(b, x, x)") == "x");
    CHECK(becomes("const k: bool[] = {1} z = unary(x) {kind=\"exp\"} y = where(k, x, z)") == "x");
  }

  TEST_CASE("algebra: what could change a NaN, an infinity, a shape or a dtype stays") {
    CHECK(becomes("const k: f32[] = {0.0} y = binary(x, k) {kind=\"mul\"}") ==
          "y = binary(x, k) {kind=\"mul\"}\n");
    CHECK(becomes("y = binary(x, x) {kind=\"sub\"}") == "y = binary(x, x) {kind=\"sub\"}\n");
    CHECK(becomes("y = binary(x, x) {kind=\"div\"}") == "y = binary(x, x) {kind=\"div\"}\n");
    CHECK(becomes("y = compare(x, x) {kind=\"eq\"}") == "y = compare(x, x) {kind=\"eq\"}\n");
    CHECK(becomes("y = binary(x, x) {kind=\"max\"}") == "y = binary(x, x) {kind=\"max\"}\n");
    CHECK(becomes("const k: f32[] = {1.0} y = binary(k, x) {kind=\"div\"}").find("div") !=
          std::string::npos);
    CHECK(becomes("const k: f32[] = {0.0} y = binary(k, x) {kind=\"sub\"}").find("sub") !=
          std::string::npos);
    CHECK(becomes("const k: f32[2,2,3] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1} y = binary(x, k) "
                  "{kind=\"mul\"}")
              .find("mul") != std::string::npos);
    CHECK(becomes("const k: f32[] = {nan} y = binary(x, k) {kind=\"mul\"}").find("mul") !=
          std::string::npos);
    CHECK(becomes("const k: bool[] = {1} z = unary(x) {kind=\"exp\"} y = where(b, x, z)")
              .find("where") != std::string::npos);
    CHECK(becomes("y = narrow(x) {start=[1, 2], len=[2, 3], step=[-1, -1]}").find("narrow") !=
          std::string::npos);
    CHECK(becomes("y = copy(x)") == "y = copy(x)\n");
  }

  TEST_CASE("algebra: a sign goes before abs") {
    for (const char* x : {"x", "n"})
      CHECK(becomes(cat("a = unary(", x, ") {kind=\"neg\"} y = unary(a) {kind=\"abs\"}")) ==
            cat("y = unary(", x, ") {kind=\"abs\"}\n"));
    CHECK(becomes("a = unary(x) {kind=\"neg\"} y = unary(a) {kind=\"exp\"}").find("neg") !=
          std::string::npos);
  }

  TEST_CASE("algebra: casts there and back only where nothing is lost") {
    auto through = [](std::string_view from, std::string_view via, std::string_view to) {
      const Graph out =
          simplify(graph_of(cat("graph { input x: ", from, "[2] a = cast(x) {to=", via,
                                "} y = cast(a) {to=", to, "} output \"y\" = y }")));
      return out.node_count();
    };
    CHECK(through("bf16", "f32", "bf16") == 0);
    CHECK(through("f16", "f64", "f16") == 0);
    CHECK(through("u8", "bf16", "u8") == 0);
    CHECK(through("i32", "f64", "i32") == 0);
    CHECK(through("bool", "i8", "bool") == 0);
    CHECK(through("u32", "i64", "u32") == 0);
    CHECK(through("bf16", "f32", "f16") == 1);
    CHECK(through("f16", "f32", "i32") == 1);
    CHECK(through("i8", "i64", "u8") == 1);
    CHECK(through("u16", "f32", "f64") == 1);
    CHECK(through("f32", "bf16", "f32") == 2);
    CHECK(through("f16", "bf16", "f16") == 2);
    CHECK(through("i32", "f32", "i32") == 2);
    CHECK(through("u32", "i32", "u32") == 2);
    CHECK(through("i16", "bf16", "i16") == 2);
    CHECK(through("f32", "i32", "f32") == 2);
    CHECK(through("i32", "f64", "i8") == 2);  // saturates on this way, would wrap on the short one
    CHECK(through("i32", "f64", "bool") == 1);
    CHECK(through("f32", "bool", "f32") == 2);
  }

  TEST_CASE("algebra: shape ops join") {
    CHECK(simplified("graph { input x: f32[2,3,4] a = transpose(x) {perm=[1, 2, 0]} y = "
                     "transpose(a) {perm=[1, 0, 2]} output \"y\" = y }") ==
          "y = transpose(x) {perm=[2, 1, 0]}\n");
    CHECK(simplified("graph { input x: f32[1,3,1,4] y = transpose(x) {perm=[1, 0, 3, 2]} output "
                     "\"y\" = y }") == "y = reshape(x) {shape=[3, 1, 4, 1], allow_zero=true}\n");
    CHECK(simplified("graph { input x: f32[2,6] a = reshape(x) {shape=[12]} y = reshape(a) "
                     "{shape=[3, 4]} output \"y\" = y }") ==
          "y = reshape(x) {shape=[3, 4], allow_zero=true}\n");
    CHECK(simplified("graph { input x: f32[1] a = expand(x) {shape=[3, 1]} y = expand(a) "
                     "{shape=[2, 3, 5]} output \"y\" = y }") ==
          "y = expand(x) {shape=[2, 3, 5]}\n");
    CHECK(simplified("graph { input x: f32[1,3] y = reduce(x) {kind=\"sum\", axes=[0]} output "
                     "\"y\" = y }") == "y = reshape(x) {shape=[3], allow_zero=true}\n");
    CHECK(
        simplified(
            "graph { input x: f32[1,3] y = reduce(x) {kind=\"l1\", axes=[0]} output \"y\" = y }") ==
        "y = reduce(x) {kind=\"l1\", axes=[0]}\n");
  }

  TEST_CASE("algebra: broadcasting makes an expand needless, unless the shape needs it") {
    CHECK(simplified("graph { input x: f32[2,3] input s: f32[] e = expand(s) {shape=[2, 3]} y = "
                     "binary(x, e) {kind=\"sub\"} output \"y\" = y }") ==
          "y = binary(x, s) {kind=\"sub\"}\n");
    CHECK(simplified("graph { input t: f32[3] input s: f32[] e = expand(s) {shape=[2, 3]} y = "
                     "binary(t, e) {kind=\"sub\"} output \"y\" = y }") ==
          "e = expand(s) {shape=[2, 3]}\ny = binary(t, e) {kind=\"sub\"}\n");
    CHECK(simplified("graph { input x: f32[2,3] const one: f32[] = {1.0} e = expand(one) "
                     "{shape=[2, 3]} y = binary(e, x) {kind=\"mul\"}"
                     " output \"y\" = y }")
              .empty());
  }

  TEST_CASE("fold: what is constant is computed once") {
    Adder adder;
    const Graph g = graph_of(
        "graph { input x: f32[2] const a: f32[2] = {1.0, 2.0} const b: f32[] = {0.5} s = binary(a, "
        "b) {kind=\"add\"}"
        " t = binary(s, b) {kind=\"add\"} y = binary(x, t) {kind=\"mul\"} output \"y\" = y output "
        "\"t\" = t }");
    ValueMap map;
    const Graph out = simplify(g, std::ref(adder), &map);
    verify(out);
    CHECK(out.node_count() == 1);
    const Value t = out.outputs()[1].value;
    CHECK(*out[t].data == *bytes_of({2, 3}));
    CHECK(map[g[NodeId{1}].outputs[0]] == t);
    CHECK(adder.nodes == std::vector<uint32_t>{2});  // both in one graph
    CHECK(simplify(g).node_count() == 3);            // without a callback nothing is folded
  }

  TEST_CASE("fold: one graph for all, and a few for what cannot be computed among it") {
    // 40 sums of one chain each with their own number, and one exp in the midst.
    std::string text = "graph { input x: f32[2] const a: f32[2] = {1.0, 2.0} ";
    for (int k = 0; k < 40; ++k)
      text += cat("const c", k, ": f32[] = {", k, ".0} s", k, " = binary(a, c", k,
                  ") {kind=\"add\"} t", k, " = binary(s", k, ", a) {kind=\"add\"} y", k,
                  " = binary(x, t", k, ") {kind=\"mul\"} output \"y", k, "\" = y", k, " ");
    Adder good;
    CHECK(simplify(graph_of(text + "}"), std::ref(good)).node_count() == 40);
    CHECK(good.nodes == std::vector<uint32_t>{80});
    Adder some;
    const Graph out =
        simplify(graph_of(text + "e = unary(s7) {kind=\"exp\"} f = binary(e, a) {kind=\"add\"} "
                                 "g = binary(f, x) {kind=\"mul\"} output \"g\" = g }"),
                 std::ref(some));
    CHECK(out.node_count() == 43);  // e and f stay
    CHECK(some.nodes.size() < 30);
  }

  TEST_CASE("fold: a view that repeats stays, and what it repeats is folded") {
    Adder adder;
    const Graph out = simplify(
        graph_of("graph { input x: f32[100,100] const a: f32[1,2] = {1.0, 2.0} const b: f32[] = "
                 "{1.0} s = binary(a, b) {kind=\"add\"} r = expand(s) {shape=[5000, 2]} "
                 "y = reshape(r) {shape=[100, 100]} z = matmul(x, y) output \"z\" = z }"),
        std::ref(adder));
    CHECK(adder.nodes == std::vector<uint32_t>{1});
    CHECK(nodes_of(out).find("expand(") != std::string::npos);
    CHECK(nodes_of(out).find("binary(") == std::string::npos);
  }

  TEST_CASE("constants: large equal ones are one, by content and type") {
    Graph g;
    const auto large = [&](DType dtype, std::byte last) {
      auto data = std::make_shared<Bytes>(4 << 20);
      data->back() = last;
      return g.constant({dtype, {1 << 20}}, data);
    };
    const Value x = g.input("x", {kF32, {1 << 20}}), i = g.input("i", {kI32, {1 << 20}});
    int outputs = 0;
    const auto read = [&](Value a, Value b) {
      const NodeId n = g.add(op::binary{.kind = "add", .a = a, .b = b});
      g.output(std::to_string(outputs++), g[n].outputs[0]);
    };
    read(x, large(kF32, std::byte{0})), read(x, large(kF32, std::byte{0}));
    read(x, large(kF32, std::byte{1})), read(i, large(kI32, std::byte{0}));
    const Graph out = simplify(g);
    CHECK(out.node_count() == 3);
    std::set<Value> constants;
    for (NodeId n = 0; n < out.node_count(); ++n) constants.insert(out[n].operands[1]);
    CHECK(constants.size() == 3);
  }

  TEST_CASE("placed: nodes of two devices, and grouped ones, stay apart") {
    Graph g = graph_of(R"(graph { input x: f32[2] a = unary(x) {kind="exp"}
      b = unary(x) {kind="exp"} c = unary(x) {kind="exp"} d = unary(x) {kind="exp"}
      output "a" = a output "b" = b output "c" = c output "d" = d })");
    const auto mark = [&](NodeId n, uint32_t device, uint32_t group) {
      Marks marks;
      marks.device = device, marks.source = n, marks.group = group;
      g.set_marks(n, marks);
    };
    mark(0, 0, kNone), mark(1, 1, kNone), mark(2, 0, kNone), mark(3, 0, 4);
    const Graph out = simplify(g);
    REQUIRE(out.node_count() == 3);
    CHECK(out[NodeId{1}].device == 1);
    CHECK(out[NodeId{2}].group == 4);
    CHECK(out.outputs()[0].value == out.outputs()[2].value);
  }

  TEST_CASE("placed: large values of two decompositions are computed twice, small ones once") {
    const auto left = [](int64_t elements) {
      Graph g = graph_of(cat("graph { input x: f32[", elements, R"(] a = unary(x) {kind="exp"}
        b = unary(x) {kind="exp"} c = unary(x) {kind="exp"} output "a" = a output "b" = b
        output "c" = c })"));
      for (NodeId n = 0; n < 3; ++n) {
        Marks marks;
        marks.source = n / 2;  // the first two are of one node
        g.set_marks(n, marks);
      }
      return simplify(g).node_count();
    };
    CHECK(left(16) == 1);
    CHECK(left(1 << 20) == 2);
  }

  TEST_CASE(
      "placed: an identity that its device refuses is not applied, and leaves nothing behind") {
    const Graph g = graph_of(R"(graph { input x: f32[4,6]
      a = reshape(x) {shape=[24]} b = reshape(a) {shape=[6,4]} c = unary(b) {kind="exp"}
      d = cast(c) {to=f64} e = cast(d) {to=f32} f = binary(e, c) {kind="add"} output "f" = f })");
    int asked = 0;
    const auto with = [&](bool reshapes) {
      return simplify(g, {}, nullptr, [&, reshapes](const Graph& made, const NodeInfo& n) {
        ++asked;
        CHECK(made.type(n.outputs[0]).shape == Shape{6, 4});
        return reshapes || n.op->name() != "reshape";
      });
    };
    CHECK(nodes_of(with(true)).find("[24]") == std::string::npos);
    const Graph kept = with(false);
    verify(kept);
    CHECK(kept.node_count() == 4);  // both reshapes; the casts are one value
    CHECK(asked > 0);
  }

  TEST_CASE("placed: what leaves is made by a node") {
    const Graph g = graph_of(R"(graph { input x: f32[2] const one: f32[] = {1.0}
      const a: f32[2] = {1.0, 2.0} y = binary(x, one) {kind="mul"}
      z = binary(a, one) {kind="add"} output "y" = y output "z" = z })");
    Adder adder;
    CHECK(simplify(g, std::ref(adder)).node_count() == 0);
    const Graph placed =
        simplify(g, std::ref(adder), nullptr, [](const Graph&, const NodeInfo&) { return true; });
    verify(placed);
    REQUIRE(placed.node_count() == 2);
    for (const Output& o : placed.outputs()) CHECK(placed[o.value].space == Space::node);
  }

  TEST_CASE("fold: a node that cannot be computed stays") {
    Adder adder;
    const Graph out = simplify(
        graph_of(
            "graph { const a: f32[2] = {1.0, 2.0} y = unary(a) {kind=\"exp\"} output \"y\" = y }"),
        std::ref(adder));
    CHECK(out.node_count() == 1);
    CHECK(!adder.nodes.empty());
  }

  TEST_CASE("fold: not above the limit, not random, and no view that only repeats") {
    Adder adder;
    const Evaluate evaluate = std::ref(adder);
    CHECK(simplify(
              graph_of(
                  "graph { const a: f32[] = {1.0} y = expand(a) {shape=[100]} output \"y\" = y }"),
              evaluate)
              .node_count() == 1);
    CHECK(simplify(graph_of("graph { const r: i64[2] = {1, 2} y = random_bits(r) {shape=[4]} "
                            "output \"y\" = y }"),
                   evaluate)
              .node_count() == 1);
    CHECK(simplify(graph_of("graph { const a: f32[1,200] = 0x" + std::string(1600, '0') +
                            " const b: f32[200,1] = 0x" + std::string(1600, '0') +
                            " y = binary(a, b) {kind=\"add\"} output \"y\" = y }"),
                   evaluate)
              .node_count() == 1);
    CHECK(adder.nodes.empty());
  }

  TEST_CASE("simplify: 100,000 nodes, in chains and duplicates") {
    CHECK(simplify(chain(100000)).node_count() == 100000);
    CHECK(simplify(chain(100000, "neg")).node_count() == 0);
    Graph g;
    const Value x = g.input("x", {kF32, {}});
    Value last;
    for (int i = 0; i < 100000; ++i) last = g[g.add(op::unary{.kind = "exp", .x = x})].outputs[0];
    g.output("y", last);
    CHECK(simplify(g).node_count() == 1);
  }
}
