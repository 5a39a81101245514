// SPDX-License-Identifier: Apache-2.0
// Which products read a half as it is.
#include "plan/rewrite/fuse_halves.hpp"

#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

// Claims what `takes` says of the operands' dtypes.
using Takes = std::function<bool(DType a, DType b)>;
Query products(Takes takes) {
  return [takes](const Graph& graph, uint32_t) {
    REQUIRE(graph.node_count() == 1);
    const auto& operands = graph[NodeId{0}].operands;
    Verdict v;
    v.native = takes(graph.type(operands[0]).dtype, graph.type(operands[1]).dtype);
    v.text = "not these";
    return std::vector<Verdict>{v};
  };
}

std::string shown(
    std::string_view statements, const Takes& takes = [](DType, DType) { return true; }) {
  const Query query = products(takes);
  const Graph g =
      rewritten(cat("input x: f32[2,3] input h: f16[2,3] weight w: bf16[3,4] weight u: f16[3,4] ",
                    statements),
                [&](const Graph& graph) { return read_halves(graph, query); });
  std::string text;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    text += cat(n ? " " : "", g[n].op->name(), "(");
    for (size_t k = 0; k < g[n].operands.size(); ++k)
      text += cat(k ? "," : "", g[g[n].operands[k]].name);
    text += cat(")", g[n].note.empty() ? "" : " [", g[n].note, g[n].note.empty() ? "" : "]");
  }
  return text;
}

}  // namespace

TEST_SUITE("plan/halves") {
  TEST_CASE("b: a cast weight is read as it is; the cast stays for others") {
    CHECK(shown(R"(c = cast(w) {to=f32} y = matmul(x, c) output "y" = y)") ==
          "cast(w) matmul(x,w) [reads a half: cast + matmul]");
    CHECK(shown(R"(c = cast(w) {to=f32} y = linear(x, c) {act="relu"} z = unary(c) {kind="neg"}
      output "y" = y output "z" = z)") ==
          "cast(w) linear(x,w) [reads a half: cast + linear] unary(c)");
  }

  TEST_CASE("a: a cast input beside f32") {
    CHECK(shown(R"(weight f: f32[3,4] c = cast(h) {to=f32} y = matmul(c, f) output "y" = y)") ==
          "cast(h) matmul(h,f) [reads a half: cast + matmul]");
  }

  TEST_CASE("both: one of them, or it would be a product of halves") {
    CHECK(shown(R"(c = cast(h) {to=f32} d = cast(u) {to=f32} y = matmul(c, d) output "y" = y)") ==
          "cast(h) cast(u) matmul(c,u) [reads a half: cast + matmul]");
    // Where the device does not take b so, a.
    CHECK(shown(R"(c = cast(h) {to=f32} d = cast(u) {to=f32} y = matmul(c, d) output "y" = y)",
                [](DType a, DType) { return a == kF16; }) ==
          "cast(h) cast(u) matmul(h,d) [reads a half: cast + matmul]");
  }

  TEST_CASE("refused: it stays as it was, and says why") {
    CHECK(shown(R"(c = cast(w) {to=f32} y = matmul(x, c) output "y" = y)", [](DType, DType) {
            return false;
          }) == "cast(w) matmul(x,c) [reads no half: not these]");
  }

  TEST_CASE("other casts stay") {
    CHECK(shown(R"(input d: f64[2,3] c = cast(w) {to=f64} y = matmul(d, c) output "y" = y)") ==
          "cast(w) matmul(d,c)");
    CHECK(shown(R"(weight i: i8[3,4] c = cast(i) {to=f32} y = matmul(x, c) output "y" = y)") ==
          "cast(i) matmul(x,c)");
  }
}
