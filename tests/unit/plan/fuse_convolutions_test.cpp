// SPDX-License-Identifier: Apache-2.0
// What a convolution takes in of its readers, and what stays apart.
#include "plan/rewrite/fuse_convolutions.hpp"

#include <doctest/doctest.h>

#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kInputs =
    "input x: f32[2,3,6,5] weight w: f32[4,3,3,3] trainable weight b: f32[4] "
    "input r: f32[2,4,4,3] const k: f32[4,1,1] = {1, 2, 3, 4} const s: f32[1,4,1,1] = {1, 2, 3, 4} "
    "const half: f32[] = {0.5} const row: f32[3] = {1, 2, 3} const four: f32[4,1] = {1, 2, 3, 4} "
    "const endless: f32[4,1,1] = {1, inf, 1, 1} ";

Graph joined(std::string_view statements, bool native = true) {
  return rewritten(cat(kInputs, statements),
                   [&](const Graph& g) { return join_convolutions(g, answering(native)); });
}

// The ops, and of the convolution also what it was given: "conv[bias residual relu]".
std::string shown(const Graph& g) {
  std::string text;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    text += cat(n ? " " : "", g[n].op->name());
    if (g[n].op != &record_of("conv")) continue;
    const auto conv = decode<op::conv>(g[n]);
    text += cat("[", conv.bias ? "bias " : "", conv.residual ? "residual " : "", conv.act, "]");
  }
  return text;
}
std::string shown_of(std::string_view statements) { return shown(joined(statements)); }

}  // namespace

TEST_SUITE("plan/fuse_convolutions") {
  TEST_CASE("join: bias, residual and activation, in this order") {
    CHECK(shown_of("y = conv(x, w) z = binary(y, k) {kind=\"add\"} output \"z\" = z") ==
          "reshape conv[bias none]");
    CHECK(shown_of("y = conv(x, w, b) z = unary(y) {kind=\"relu\"} output \"z\" = z") ==
          "conv[bias relu]");
    CHECK(shown_of(R"(y = conv(x, w, b) t = binary(r, y) {kind="add"} z = unary(t) {kind="silu"}
      output "z" = z)") == "conv[bias residual silu]");
    const Graph g = joined(R"(y = conv(x, w) t = binary(y, k) {kind="sub"}
      u = binary(t, r) {kind="add"} z = unary(u) {kind="leaky_relu", alpha=0.3} output "z" = z)");
    CHECK(shown(g) == "reshape unary conv[bias residual leaky_relu]");
    CHECK(decode<op::conv>(g[NodeId{2}]).act_alpha == 0.3);
    CHECK(g[NodeId{2}].note == "joined: conv + binary sub + binary add + unary leaky_relu");
  }

  TEST_CASE("join: a batch norm's factor goes into the filters, and into a bias before it") {
    const Graph g = joined(R"(y = conv(x, w, b) t = binary(y, k) {kind="mul"}
      z = binary(s, t) {kind="add"} output "z" = z)");
    CHECK(shown(g) == "reshape reshape binary binary reshape binary conv[bias none]");
    CHECK(g.type(decode<op::conv>(g[NodeId{6}]).w).text() == "f32[4,3,3,3]");
    CHECK(shown_of("y = conv(x, w) z = binary(y, half) {kind=\"mul\"} output \"z\" = z")
              .ends_with("conv[none]"));
  }

  TEST_CASE("join: what a convolution cannot do stays apart") {
    const auto apart = [](std::string_view reader) {
      const std::string text = shown_of(cat("y = conv(x, w) z = ", reader, " output \"z\" = z"));
      CHECK_MESSAGE(text.starts_with("conv[none] "), text);
    };
    apart("binary(y, row) {kind=\"add\"}");  // per column
    apart("binary(y, r) {kind=\"sub\"}");    // a residual is added
    apart("binary(k, y) {kind=\"sub\"}");
    apart("binary(y, r) {kind=\"mul\"}");
    apart("binary(y, y) {kind=\"add\"}");
    apart("binary(y, endless) {kind=\"mul\"}");  // a zero weight would become NaN
    apart("unary(y) {kind=\"floor\"}");
    apart("unary(y) {kind=\"is_nan\"}");
    apart("cast(y) {to=f16}");
  }

  TEST_CASE("join: a factor per row is none per channel, though lengths agree") {
    // Four rows and four channels: [4,1] runs along the rows.
    CHECK(shown_of("y = conv(x, w) z = binary(y, four) {kind=\"add\"} output \"z\" = z") ==
          "conv[none] binary");
    CHECK(shown_of("y = conv(x, w) z = binary(y, four) {kind=\"mul\"} output \"z\" = z") ==
          "conv[none] binary");
  }

  TEST_CASE("join: filters that change, and factors that are no constants, are not scaled") {
    CHECK(shown_of(R"(y = conv(x, w) z = binary(y, k) {kind="mul"} v = binary(w, w) {kind="add"}
      output "z" = z update w = v)") == "conv[none] binary binary");
    CHECK(shown_of(R"(input f: f32[4,1,1] y = conv(x, w) z = binary(y, f) {kind="mul"}
      output "z" = z)") == "conv[none] binary");
    CHECK(shown_of(R"(input f: f32[4,1,1] y = conv(x, w) z = binary(y, f) {kind="add"}
      output "z" = z)") == "reshape conv[bias none]");
    // Halves would be rounded twice.
    CHECK(shown_of(R"(input h: f16[1,2,3,3] weight m: f16[2,2,2,2] const f: f16[2,1,1] = {2, 3}
      y = conv(h, m) z = binary(y, f) {kind="mul"} output "z" = z)") == "conv[none] binary");
  }

  TEST_CASE("join: values that others read stay") {
    CHECK(shown_of(R"(y = conv(x, w) z = unary(y) {kind="relu"} output "y" = y output "z" = z)") ==
          "conv[none] unary");
    CHECK(shown_of(R"(y = conv(x, w) z = binary(y, k) {kind="add"} v = unary(z) {kind="relu"}
      output "z" = z output "v" = v)") == "reshape conv[bias none] unary");
    CHECK(shown_of(R"((y, p) = conv(x, w) {act="relu"} z = unary(y) {kind="exp"} output "p" = p
      output "z" = z)") == "conv[relu] unary");
  }

  TEST_CASE("join: only what the device takes") {
    const Graph g = joined("y = conv(x, w) z = unary(y) {kind=\"relu\"} output \"z\" = z", false);
    CHECK(shown(g) == "conv[none] unary");
    CHECK(g[NodeId{1}].note == "not joined into conv: not this one");
  }
}
