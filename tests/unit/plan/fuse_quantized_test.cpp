// SPDX-License-Identifier: Apache-2.0
// Which dequantized products become products of integers, with which multiplier, and which stay.
#include "plan/rewrite/fuse_quantized.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kInputs =
    "input q: u8[1,2,4,4] input a: i8[3,2] weight w: i8[2,2,3,3] weight m: i8[2,2] "
    "weight bq: i32[2] const sx: f32[] = {0.5} const zx: u8[] = {7} const za: i8[] = {-3} "
    "const sw: f32[2] = {0.25, 2} const zw: i8[2] = {0, 0} const sb: f32[2] = {0.125, 1} "
    "const sy: f32[1] = {0.125} const zy: u8[1] = {9} const odd: f32[2] = {0.125, 1.01} "
    "const one: f32[] = {1} const zb: i32[2] = {0, 0} const off: i32[2] = {0, 1} "
    "x = dequantize(q, sx, zx) f = dequantize(w, sw, zw) {axis=0} "
    "b = dequantize(bq, sb, zb) {axis=0} p = dequantize(a, sx, za) "
    "r = dequantize(m, sw, zw) {axis=1} ";

Graph joined(std::string_view statements, bool native = true) {
  return rewritten(cat(kInputs, statements),
                   [&](const Graph& g) { return join_quantized(g, answering(native)); });
}
// The last node, with what it was given.
std::string last_of(const Graph& g) {
  const NodeInfo& node = g[static_cast<NodeId>(g.node_count() - 1)];
  if (node.op == &record_of("qconv")) {
    const auto n = decode<op::qconv>(node);
    return cat("qconv[", n.act, n.bias ? " bias" : "", "]");
  }
  if (node.op == &record_of("qmatmul")) {
    const auto n = decode<op::qmatmul>(node);
    return cat("qmatmul[", n.act, n.bias ? " bias" : "", "]");
  }
  return std::string(node.op->name());
}
std::string made_of(std::string_view statements) { return last_of(joined(statements)); }

constexpr std::string_view kEnd = "t = quantize(y, sy, zy) output \"t\" = t";

}  // namespace

TEST_SUITE("plan/fuse_quantized") {
  TEST_CASE("join: convolutions, with bias and relu") {
    CHECK(made_of(cat("y = conv(x, f) ", kEnd)) == "qconv[none]");
    CHECK(made_of(cat("y = conv(x, f, b) ", kEnd)) == "qconv[none bias]");
    CHECK(made_of(cat("c = conv(x, f, b) y = unary(c) {kind=\"relu\"} ", kEnd)) ==
          "qconv[relu bias]");
    CHECK(made_of(cat("y = conv(x, f, b) {act=\"relu\"} ", kEnd)) == "qconv[relu bias]");
    const Graph g = joined(cat("y = conv(x, f) {stride=[2,1], pads=[1,0,1,0]} ", kEnd));
    const NodeInfo& node = g[static_cast<NodeId>(g.node_count() - 1)];
    const auto n = decode<op::qconv>(node);
    CHECK(n.stride == Ints{2, 1});
    CHECK(n.pads == Ints{1, 0, 1, 0});
    CHECK(node.note == "joined: conv + quantize");
    float multipliers[2];
    REQUIRE(g.type(n.multiplier).text() == "f32[2]");
    std::memcpy(multipliers, g[n.multiplier].data->data(), sizeof multipliers);
    CHECK(multipliers[0] == 1.0f);  // 0.5 * 0.25 / 0.125
    CHECK(multipliers[1] == 8.0f);
    CHECK(!n.w_zero);  // zeros
  }

  TEST_CASE("join: products") {
    CHECK(made_of(cat("y = matmul(p, r) ", kEnd)) == "qmatmul[none]");
    CHECK(made_of(cat("y = linear(p, r, b) {act=\"relu\"} ", kEnd)) == "qmatmul[relu bias]");
  }

  TEST_CASE("join: a transposed convolution whose windows do not overlap") {
    constexpr std::string_view kWeight =
        "weight v: i8[2,2,2,3] u = dequantize(v, sw, zw) {axis=1} ";
    const Graph g = joined(cat(kWeight, "y = conv_transpose(x, u, b) {stride=[2,3]} ", kEnd));
    const std::string ops = ops_of(g);
    constexpr std::string_view kMade =
        "transpose reshape reshape expand reshape qconv reshape transpose reshape";
    CHECK_MESSAGE(ops.ends_with(kMade), ops);
    for (NodeId n = 0; n < g.node_count(); ++n) {
      if (g[n].op != &record_of("qconv")) continue;
      const auto conv = decode<op::qconv>(g[n]);
      CHECK(g.type(conv.w).text() == "i8[12,2,1,1]");
      REQUIRE(g.type(conv.multiplier).text() == "f32[12]");
      float multipliers[12];
      std::memcpy(multipliers, g[conv.multiplier].data->data(), sizeof multipliers);
      for (int k = 0; k < 12; ++k) CHECK(multipliers[k] == (k < 6 ? 1.0f : 8.0f));
    }
    for (const std::string_view attributes :
         {"stride=[2,2]", "stride=[3,3]", "stride=[2,3], pads=[0,0,0,1]",
          "stride=[2,3], dilation=[1,2]", "stride=[2,3], output_padding=[1,0]"})
      CHECK_MESSAGE(
          made_of(cat(kWeight, "y = conv_transpose(x, u) {", attributes, "} ", kEnd)) == "quantize",
          attributes);
    CHECK(made_of(cat("weight v: i8[2,1,2,3] u = dequantize(v, sx, za) "
                      "y = conv_transpose(x, u) {stride=[2,3], groups=2} ",
                      kEnd)) == "quantize");
  }

  TEST_CASE("join: scales that are a weight, and their zero points") {
    constexpr std::string_view kWeights = "weight sl: f32[2] weight zl: i8[2] ";
    const Graph g =
        joined(cat(kWeights, "v = dequantize(m, sl, zl) {axis=1} y = matmul(p, v) ", kEnd));
    REQUIRE(last_of(g) == "qmatmul[none]");
    const NodeInfo& node = g[static_cast<NodeId>(g.node_count() - 1)];
    const auto n = decode<op::qmatmul>(node);
    CHECK(bool(n.b_zero));
    const auto by = decode<op::binary>(g[g[n.multiplier].node]);
    CHECK(by.kind == "mul");
    CHECK(g[by.a].name == "sl");
    float factor;
    std::memcpy(&factor, g[by.b].data->data(), sizeof factor);
    CHECK(factor == 4.0f);  // 0.5 / 0.125
    // Whether the bias has the scale of the sums is not known.
    CHECK(made_of(cat(kWeights, "v = dequantize(m, sl, zl) {axis=1} y = linear(p, v, b) ", kEnd)) ==
          "quantize");
    CHECK(made_of(cat(kWeights, "weight s1: f32[] v = dequantize(q, s1, zx) y = conv(v, f) ",
                      kEnd)) == "quantize");
  }

  TEST_CASE("join: what is no product of integers stays") {
    const auto stays = [](std::string_view statements) {
      const std::string text = made_of(statements);
      CHECK_MESSAGE(text == "quantize", cat(statements, ": ", text));
    };
    stays("y = conv(x, f) t = quantize(y, sb) output \"t\" = t");  // several scales
    stays("y = conv(x, f) t = quantize(y, sy) {to=i16} output \"t\" = t");
    stays(cat("y = conv(x, f) output \"y\" = y ", kEnd));  // y leaves as a float
    stays(cat("c = conv(x, f) y = unary(c) {kind=\"tanh\"} ", kEnd));
    stays(cat("y = matmul(p, r) {trans_b=true} ", kEnd));
    stays(cat("y = matmul(p, r) {alpha=2.0} ", kEnd));
    stays(cat("v = dequantize(bq, odd, zb) {axis=0} y = conv(x, f, v) ", kEnd));  // its scale
    stays(cat("v = dequantize(bq, sb, off) {axis=0} y = conv(x, f, v) ", kEnd));
    stays(cat("v = dequantize(w, sw, zw) {axis=1} y = conv(x, v) ", kEnd));  // per input channel
    stays(cat("v = dequantize(m, sw, zw) {axis=0} y = matmul(p, v) ", kEnd));
    stays(cat("input s: f32[] v = dequantize(q, s, zx) y = conv(v, f) ", kEnd));
    stays(cat("input h: f32[1,2,4,4] y = conv(h, f) ", kEnd));
  }

  TEST_CASE("join: only what the device takes") {
    const Graph g = joined(cat("y = conv(x, f) ", kEnd), false);
    CHECK(last_of(g) == "quantize");
    CHECK(g[static_cast<NodeId>(g.node_count() - 1)].note == "not joined into qconv: not this one");
  }
}
