// SPDX-License-Identifier: Apache-2.0
// The text form: print and parse are each other's inverse; errors have a place.
#include <limits>
#include <random>

#include "graphs.hpp"
#include "ir/verify.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kExample = R"(graph "mlp" {
  symbols N
  input x: f32[N,4]
  weight w: f32[4] trainable
  weight frozen: bf16[2,2]
  state n: i64[]
  const c: f32[2] = {1.0, 2.5}
  y = rms_norm(x, w) {eps=1e-06} @"layers.0"
  (values, idx) = topk(y) {k=3}
  m = binary(n, n) {kind="add"} @"step" clone 2
  output "y" = values
  output "again" = values
  update n = m
}
)";

Graph parse_every(std::string_view text) { return parse(text, "test", find_every); }

}  // namespace

TEST_SUITE("ir/text") {
  TEST_CASE("print: gives back the text that was parsed") {
    const Graph g = graph_of(kExample);
    CHECK(print(g) == kExample);
    CHECK(g.name == "mlp");
    CHECK(g.symbols() == std::vector<std::string>{"N"});
    const Value x = g.find(Space::input, "x");
    CHECK(g.type(x).shape[0] == ~Dim{0});
    CHECK(g.type(x).shape[1] == 4);
    CHECK(g[g.find(Space::weight, "w")].trainable);
    CHECK(!g[g.find(Space::weight, "frozen")].trainable);
    REQUIRE(g.node_count() == 3);
    CHECK(g[NodeId{0}].provenance == "layers.0");
    CHECK(std::get<double>(*g[NodeId{0}].attr("eps")) == 1e-6);
    CHECK(g[NodeId{2}].clone == 2);
    CHECK(g.outputs().size() == 2);
    CHECK(g.update_of(g.find(Space::state, "n")) == g[NodeId{2}].outputs[0]);
  }

  TEST_CASE("print: a graph with attributes of every type comes back the same") {
    auto body = std::make_shared<Graph>();
    body->name = "body";
    const Value a = body->input("a", {kF32, {2}});
    body->output("r", (*body)[body->add(op::unary{.kind = "exp", .x = a})].outputs[0]);

    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    const double inf = std::numeric_limits<double>::infinity();
    const Attrs attrs = {{"i", std::numeric_limits<int64_t>::min()},
                         {"f", 0.1 + 0.2},
                         {"b", true},
                         {"s", std::string("a \"quote\"\\ \n tab\t nul\0 end \xc3\xa9", 29)},
                         {"is", std::vector<int64_t>{-1, 0, INT64_MAX}},
                         {"fs", std::vector<double>{-inf, inf, -0.0, 1e300, 5e-324, 3}},
                         {"d", DTypeAttr{TENON_DTYPE_F8E4M3}},
                         {"fn", FunctionAttr(body)}};
    const NodeId n = g.add_node(every_attr_op(), {x}, attrs, {true, true}, "here");
    g.output("y", g[n].outputs[1]);

    const std::string text = print(g);
    const Graph back = parse_every(text);
    CHECK(print(back) == text);
    const NodeInfo& node = back[NodeId{0}];
    REQUIRE(node.attrs.size() == attrs.size());
    for (size_t k = 0; k + 1 < attrs.size(); ++k) {
      CAPTURE(attrs[k].name);
      CHECK(node.attrs[k].name == attrs[k].name);
      CHECK((node.attrs[k].value == attrs[k].value));
    }
    CHECK(std::signbit(std::get<std::vector<double>>(node.attrs[5].value)[2]));
    CHECK(print(*std::get<FunctionAttr>(node.attrs[7].value)) == print(*body));
    CHECK_SAYS(text, "= org.example:every/3(x) {");
    verify(back);
  }

  TEST_CASE("print: a region's body stands in the text as a nested graph") {
    const std::string text = R"(graph {
  input x: f32[2,3]
  y = elementwise_region(x) {body=graph {
    input a: f32[2,3]
    const c: f32[] = {1.5}
    b = binary(a, c) {kind="mul"}
    r = reduce(b) {kind="sum", axes=[1]}
    output "r" = r
  }}
  output "y" = y
}
)";
    const Graph g = parse(text, "region");
    CHECK(print(g, false) == text);
    CHECK(g.type(g.outputs()[0].value) == Type{kF32, {2}});
  }

  TEST_CASE("print: lists of operands stand in brackets where they do not take all that follows") {
    const auto node_of = [](const std::string& statement) {
      const std::string text =
          "graph {\n  input x: f32[2,3]\n  weight a: f32[3,4]\n  weight b: "
          "f32[3,5]\n  weight c: f32[4]\n  weight d: f32[5]\n  " +
          statement + "\n}\n";
      const Graph g = parse(text, "lists");
      CHECK(print(g, false) == text);
      verify(g);
      return g[NodeId{0}];
    };
    const NodeInfo biased = node_of("(p, q) = batch_linear(x, [a, b], [c, d])");
    CHECK(biased.lists == std::vector<uint32_t>{2, 2});
    CHECK(biased.operands.size() == 5);
    CHECK(node_of("(p, q) = batch_linear(x, a, b)").lists == std::vector<uint32_t>{2, 0});
    CHECK(node_of("y = concat(x, x, x)").lists == std::vector<uint32_t>{3});

    const auto refuses = [](const char* statement, const char* words) {
      const std::string text =
          cat("graph { input x: f32[2,3] weight a: f32[3,4] weight c: f32[4] ", statement, " }");
      CHECK_SAYS(refusal([&] { parse(text, "lists"); }, Code::invalid_argument), words);
    };
    refuses("y = batch_linear(x, [], [c])", "operand bs is an empty list");
    refuses("y = batch_linear(x, [a], [c], [c])", "an operand, and no list");
    refuses("y = batch_linear(x, [a], [c], x)", "got 4 operands, the op takes at most 3");
    refuses("y = unary([x]) {kind=\"exp\"}", "an operand, and no list");
    // Brackets around the list of an op that has one alone mean the same.
    CHECK(parse("graph { input x: f32[2] y = concat([x, x]) }", "t")[NodeId{0}].lists ==
          std::vector<uint32_t>{2});
  }

  TEST_CASE("print: a NaN attribute comes back a NaN") {
    Graph g;
    const Value x = g.input("x", {kF32, {2}});
    g.add_node(every_attr_op(), {x}, {{"f", std::nan("")}}, {true});
    const Graph back = parse_every(print(g));
    CHECK(std::isnan(std::get<double>(*back[NodeId{0}].attr("f"))));
  }

  TEST_CASE("print: constants keep every bit, as a list or as bytes") {
    auto raw = [](std::initializer_list<int> bytes) {
      auto data = std::make_shared<Bytes>();
      for (int b : bytes) data->push_back(static_cast<std::byte>(b));
      return data;
    };
    struct Case {
      Type type;
      std::shared_ptr<const Bytes> data;
      std::string_view text;
    };
    const Case cases[] = {
        {{kF32, {2}}, bytes_of({0.1f, -0.0f}), "{0.1, -0.0}"},
        {{kF32, {2}}, bytes_of({INFINITY, 1e-45f}), "{inf, 1e-45}"},
        {{kF32, {1}}, raw({1, 0, 0xc0, 0x7f}), "0x0100c07f"},  // a NaN with a payload
        {{kF16, {1}}, raw({0x66, 0x2e}), "{0.0999755859375}"},
        {{kI64, {1}},
         raw({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
         "{9223372036854775807}"},
        {{kU64, {1}},
         raw({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
         "{18446744073709551615}"},
        {{kI8, {2}}, raw({0x80, 0x7f}), "{-128, 127}"},
        {{kBool, {2}}, raw({0, 1}), "{0, 1}"},
        {{kBool, {1}}, raw({2}), "0x02"},
        {{TENON_DTYPE_U4, {3}}, raw({0x21, 0x03}), "0x2103"},
        {{kF32, {0, 3}}, raw({}), "{}"},
        {{kF64, {}}, raw({0, 0, 0, 0, 0, 0, 0xf0, 0x3f}), "{1.0}"},
    };
    for (const Case& c : cases) {
      Graph g;
      g.output("y", g.constant(c.type, c.data));
      const std::string text = print(g);
      CHECK_SAYS(text, cat("= ", c.text, "\n"));
      const Graph back = graph_of(text);
      const Value v = back.outputs()[0].value;
      CHECK(back.type(v) == c.type);
      CHECK(*back[v].data == *c.data);
    }
  }

  TEST_CASE("print: names that are no words, taken or reserved stand as strings") {
    Graph g;
    const Value a = g.input("a b", {kF32, {}});
    const Value b = g.input("input", {kF32, {}});
    const Value c = g.input("c", {kF32, {}});
    const Value w = g.weight("c", {kF32, {}}, false);
    const Value s = g[g.add(op::binary{.kind = "add", .a = a, .b = b})].outputs[0];
    g.set_name(s, "c");
    const Value t = g[g.add(op::binary{.kind = "add", .a = c, .b = w})].outputs[0];
    g.output("out \"1\"", s);
    g.output("t", t);
    const std::string text = print(g);
    CHECK(text ==
          "graph {\n"
          "  input %0 \"a b\": f32[]\n"
          "  input %1 \"input\": f32[]\n"
          "  input c: f32[]\n"
          "  weight %2 \"c\": f32[]\n"
          "  %3 \"c\" = binary(%0, %1) {kind=\"add\"}\n"
          "  %4 = binary(c, %2) {kind=\"add\"}\n"
          "  output \"out \\\"1\\\"\" = %3\n"
          "  output \"t\" = %4\n"
          "}\n");
    const Graph back = graph_of(text);
    CHECK(print(back) == text);
    CHECK(back.find(Space::input, "a b"));
    CHECK(back.find(Space::weight, "c"));
  }

  TEST_CASE("print: absent operands and outputs keep their positions") {
    const std::string text =
        "graph {\n"
        "  input dy: f32[2,4]\n"
        "  input x: f32[2,4]\n"
        "  input r: f32[2,4]\n"
        "  (_, g) = layer_norm_backward(dy, x, r0)\n"
        "}\n";
    Graph g = graph_of(
        "graph { input dy: f32[2,4] input x: f32[2,4] input gamma: f32[4] input d: f32[2,4]\n"
        "(_, dgamma) = layer_norm_backward(dy, x, gamma, _, _, d) }");
    CHECK_SAYS(print(g), "  (_, dgamma) = layer_norm_backward(dy, x, gamma, _, _, d)\n");
    const NodeInfo& n = g[NodeId{0}];
    CHECK(n.operands.size() == 6);
    CHECK(!n.operands[3]);
    CHECK(n.operands[5]);
    CHECK(!n.outputs[0]);
    CHECK_SAYS(refusal([&] { graph_of(text); }),
               "test:5:39: expected a value defined above, got 'r0'");
  }

  TEST_CASE("print: types stand behind the nodes when asked for") {
    const Graph g = graph_of("graph { input x: f32[3,4] (v, i) = topk(x) {k=2} }");
    CHECK_SAYS(print(g, true), "(v, i) = topk(x) {k=2}  # f32[3,2] i64[3,2]\n");
    CHECK(print(graph_of(print(g, true)), true) == print(g, true));
  }

  TEST_CASE("parse: blanks, line ends and comments do not matter") {
    const Graph g = graph_of(
        "# first\ngraph{input x:f32[ 2 , 3 ]# "
        "shape\r\n\ty=unary(x){kind=\"exp\"}output\"y\"=y}#end");
    CHECK(g.type(g.outputs()[0].value).text() == "f32[2,3]");
  }

  TEST_CASE("parse: an error names file, line, column, what was expected and what came") {
    struct Case {
      std::string_view text, says;
      Code code = Code::invalid_argument;
    };
    const Case cases[] = {
        {"", "test:1:1: expected 'graph', got the end of the text"},
        {"graph {", "test:1:8: expected a statement or '}', got the end of the text"},
        {"graph {\n  input x f32[2]\n}", "test:2:11: expected ':', got 'f32'"},
        {"graph { input x: f31[2] }", "test:1:18: expected a dtype such as f32, got 'f31'"},
        {"graph { input x: f32[-2] }", "test:1:22: expected a dim >= 0, got -2"},
        {"graph { input x: f32[1,1,1,1,1,1,1,1,1] }", "expected at most 8 dims, got '1'"},
        {"graph { input x: f32[4294967296,4294967296] }",
         "test:1:18: shape [4294967296,4294967296]: its size overflows"},
        {"graph { input x: f32[99999999999999999999] }",
         "expected a dim, got '99999999999999999999'"},
        {"graph { input x: f32[2] input x: f32[2] }", "test:1:31: value 'x' exists already"},
        {"graph { weight w: f32[N] }", "test:1:16: weight 'w': only inputs may have symbolic dims"},
        {"graph { const c: f32[2] = {1.0} }", "test:1:31: expected ',', got '}'"},
        {"graph { const c: f32[2] = {1, 2, 3} }", "expected '}', got ','"},
        {"graph { const c: i8[1] = {200} }", "expected element 0 of i8[1], got '200'"},
        {"graph { const c: u8[1] = {-1} }", "expected element 0 of u8[1], got '-1'"},
        {"graph { const c: f32[1] = 0x00 }", "expected a list, or 0x and 4 bytes, got '0x00'"},
        {"graph { const c: f32[1] = 0x0000000g }",
         "test:1:27: expected hexadecimal digits, got '0x0000000g'"},
        {"graph { const c: f32[1000000000000] = {1.0 }", "expected ',', got '}'"},
        {"graph { y = nothing() }", "test:1:13: there is no op 'nothing'"},
        {"graph { y = other:unary() }", "there is no op 'other:unary'"},
        {"graph { input x: f32[] y = unary/9(x) }", "there is no op 'unary' of version 9"},
        {"graph { input x: f32[] y = unary(x) {kind=\"exp\", knd=1} }",
         "test:1:50: unary: has no attribute 'knd'"},
        {"graph { input x: f32[] y = unary(x) {kind=exp} }", "expected a string, got 'exp'"},
        {"graph { input x: f32[] y = unary(x) {kind=\"exp\", kind=\"exp\"} }",
         "unary: attribute kind is given twice"},
        {"graph { input x: f32[] y = unary(x) {kind=\"foo\"} @\"p\" }",
         "test:1:24: unary 'p': attribute kind"},
        {"graph { y = unary(y) {kind=\"exp\"} }",
         "test:1:19: expected a value defined above, got 'y'"},
        {"graph { input x: f32[2,3] (v, v) = topk(x) {k=1} }",
         "test:1:31: value 'v' exists already"},
        {"graph { input x: f32[2,3] (_, v) = topk(x) {k=1} }",
         "topk: output values is not optional"},
        {"graph { input x: f32[2,3] (a, b, c) = topk(x) {k=1} }",
         "topk: got 3 outputs, the op has 2"},
        {"graph { input x: f32[] output \"y\" = x output \"y\" = x }",
         "test:1:39: output 'y' exists already"},
        {"graph { input x: f32[] update x = x }",
         "update: the target is neither a weight nor state"},
        {"graph { state s: f32[2] input x: f32[3] update s = x }",
         "update 's': expected f32[2], got f32[3]", Code::shape_mismatch},
        {"graph { input x: f32[2] input z: f32[3] y = binary(x, z) {kind=\"add\"} }",
         "test:1:41: binary: shapes [2] and [3] do not broadcast", Code::shape_mismatch},
        {"graph { input \"x\": f32[] }", "expected a value's name, got \"x\""},
        {"graph { input state: f32[] }",
         "test:1:15: expected a value's name, got the keyword 'state'"},
        {"graph { input %0: f32[] }", "test:1:15: input: the name is empty"},
        {"graph { } x", "test:1:11: expected the end of the text, got 'x'"},
        {"graph { output \"a", "test:1:18: expected a closing quote"},
        {"graph { output \"a\\q\"", "after a backslash"},
        {"graph { $ }", "test:1:9: a character that means nothing here: '$'"},
        {"graph { \x80 }", "a byte that means nothing here: 128"},
    };
    for (const Case& c : cases) {
      CAPTURE(c.text);
      CHECK_SAYS(refusal([&] { graph_of(c.text); }, c.code), c.says);
    }
  }

  TEST_CASE("parse: function bodies may not nest without end") {
    std::string text = "graph { input x: f32[] y = org.example:every(x) {fn=";
    std::string open;
    for (int i = 0; i < 100000; ++i) open += text;
    CHECK_SAYS(refusal([&] { parse_every(open); }),
               "expected at most 8 function bodies inside each other");
  }

  TEST_CASE("parse: 100,000 nodes come back in near-linear time") {
    const Graph g = chain(100000);
    const std::string text = print(g);
    const Graph back = graph_of(text);
    CHECK(back.node_count() == 100000);
    CHECK(print(back) == text);
  }

  TEST_CASE("parse: damaged text is parsed or refused, never more") {
    const std::string valid = std::string(kExample) + R"(# more
    )";
    const std::string rich = R"(graph "rich" {
  input x: f32[2,6]
  input ids: i32[3]
  weight w: f32[6,4] trainable
  state s: f32[2,4]
  const c: f32[2] = {1.0, -inf}
  const h: u4[3] = 0x2103
  %0 = matmul(x, w) {trans_b=false, alpha=0.5} @"mm"
  a = reshape(%0) {shape=[4, -1]}
  b = transpose(%0) {perm=[1, 0]}
  d = cast(%0) {to=f16}
  (e, _) = layer_norm(%0)
  f = gather(w, ids) {axis=0, oob="clamp"}
  g = reduce(%0) {kind="sum", axes=[0, 1]}
  (dw) = grad(g, w)
  p = pad(%0) {before=[1, 0], after=[0, 2], mode="constant", value=-0.0}
  q = concat(%0, s) {axis=1}
  r = narrow(q) {start=[0, 7], len=[2, 4], step=[1, -2]}
  t = iota() {shape=[2, 3], axis=1, dtype=i32, start=-2.0}
  z = org.example:every(x) {i=3, f=nan, s="\x00\n", is=[1, 2], fs=[1.0, inf], d=bf16, fn=graph {
    input a: f32[2]
    y = unary(a) {kind="gelu"}
    output "y" = y
  }}
  output "g" = g
  update s = %0
}
)";
    const std::string_view pieces[] = {
        "graph", "{",  "}",       "(",        ")",       "[",
        "]",     "=",  ",",       "\"",       "@",       "_",
        "-1",    "0",  "8",       "%0",       "f32",     "i64",
        "bool",  "x",  "nan",     "0x",       "null",    "1e99",
        "sum",   "/1", "9999999", "\"topk\"", "clone 1", "-9223372036854775808"};
    std::mt19937 random(7);
    auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
    int parsed = 0, refused = 0;
    for (const std::string& text : {valid, rich}) {
      CHECK(parse_every(text).node_count() > 0);
      for (int i = 0; i < 6000; ++i) {
        std::string bad = text;
        for (size_t edits = 1 + below(3); edits > 0; --edits) {
          const size_t at = below(bad.size()), length = std::min(bad.size() - at, below(12));
          switch (below(5)) {
            case 0:
              bad[at] = static_cast<char>(random());
              break;
            case 1:
              bad.erase(at, length);
              break;
            case 2:
              bad.insert(at, bad.substr(below(bad.size() - length), length));
              break;
            case 3:
              bad.replace(at, std::min<size_t>(length, 3), pieces[below(std::size(pieces))]);
              break;
            default:
              bad.resize(std::max<size_t>(at, 1));
              break;
          }
          if (bad.empty()) bad = "g";
        }
        try {
          const Graph g = parse_every(bad);
          verify(g);
          CHECK(print(parse_every(print(g))) == print(g));
          ++parsed;
        } catch (const Error& e) {
          if (e.code() == Code::internal) FAIL_CHECK("internal error: ", e.what(), "\n", bad);
          ++refused;
        }
      }
    }
    CHECK(parsed > 100);
    CHECK(refused > 1000);
  }
}
