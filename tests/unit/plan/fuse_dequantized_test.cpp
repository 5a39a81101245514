// SPDX-License-Identifier: Apache-2.0
// Where dequantize moves, what it cancels with, and which readers get one of their own.
#include "plan/rewrite/fuse_dequantized.hpp"

#include <doctest/doctest.h>

#include "plan/rewrite/simplify.hpp"
#include "plan/rewritten.hpp"

using namespace tenon::core;

namespace {

constexpr std::string_view kInputs =
    "input q: u8[1,2,4,4] input p: u8[1,2,4,4] const s: f32[] = {0.5} const z: u8[] = {7} "
    "const one: f32[1] = {0.5} const seven: u8[1] = {7} const zero: u8[] = {0} "
    "const near: f32[] = {0.50000006} const eight: u8[] = {8} const zi: i8[] = {7} "
    "const many: f32[2] = {0.5, 0.5} const zs: u8[2] = {7, 7} const tiny: f32[] = {1e-39} "
    "x = dequantize(q, s, z) ";

// The ops of the live nodes, in their order.
std::string moved(std::string_view statements, bool native = true) {
  const Graph g = rewritten(cat(kInputs, statements),
                            [&](const Graph& g) { return move_integers(g, answering(native)); });
  return ops_of(simplify(g, {}));
}

}  // namespace

TEST_SUITE("plan/fuse_dequantized") {
  TEST_CASE("move: elements move as integers, and equal ends cancel") {
    constexpr std::string_view kEnd = "t = quantize(y, s, z) output \"t\" = t";
    CHECK(moved(cat("y = reshape(x) {shape=[2,16]} ", kEnd)) == "reshape");
    CHECK(moved(cat("y = transpose(x) {perm=[0,2,3,1]} ", kEnd)) == "transpose");
    CHECK(moved(cat("y = narrow(x) {start=[0,0,1,0], len=[1,2,2,4]} ", kEnd)) == "narrow");
    CHECK(moved(cat("y = resize(x) {sizes=[8,8]} ", kEnd)) == "resize");
    CHECK(moved(cat("w = dequantize(p, one, seven) y = concat(x, w) {axis=1} ", kEnd)) == "concat");
    CHECK(moved(cat("a = reshape(x) {shape=[2,16]} y = transpose(a) ", kEnd)) ==
          "reshape transpose");
    CHECK(moved("t = quantize(x, one, seven) u = reshape(t) {shape=[32]} output \"t\" = u") ==
          "reshape");
    CHECK(moved("y = reshape(x) {shape=[32]} output \"y\" = y") == "reshape dequantize");
  }

  TEST_CASE("move: ends that differ stay") {
    for (const std::string_view end :
         {"quantize(y, near, z)", "quantize(y, s, eight)", "quantize(y, s)", "quantize(y, s, zi)"})
      CHECK_MESSAGE(moved(cat("y = reshape(x) {shape=[32]} t = ", end, " output \"t\" = t")) ==
                        "reshape dequantize quantize",
                    end);
    CHECK(moved("v = dequantize(q, many, zs) y = reshape(v) {shape=[32]} t = quantize(y, s, z) "
                "output \"t\" = t") == "dequantize reshape quantize");
    // Products with subnormal numbers do not come back.
    CHECK(moved("v = dequantize(q, tiny, z) t = quantize(v, tiny, z) u = reshape(t) {shape=[32]} "
                "output \"t\" = u") == "dequantize quantize reshape");
    CHECK(moved("input i: f32[] v = dequantize(q, i, z) y = reshape(v) {shape=[32]} "
                "output \"y\" = y") == "dequantize reshape");
  }

  TEST_CASE("move: zero points that are absent are zeros") {
    CHECK(moved("v = dequantize(q, s) t = quantize(v, s, zero) u = reshape(t) {shape=[32]} "
                "output \"t\" = u") == "reshape");
  }

  TEST_CASE("move: what makes numbers stays, and what the device does not take") {
    constexpr std::string_view kEnd = "t = quantize(y, s, z) output \"t\" = t";
    CHECK(moved(cat("y = resize(x) {mode=\"linear\", sizes=[8,8]} ", kEnd)) ==
          "dequantize resize quantize");
    // Bodies read one element for many.
    CHECK(moved(cat("y = expand(x) {shape=[3,2,4,4]} ", kEnd)) == "dequantize expand quantize");
    CHECK(moved(cat("y = reduce(x) {kind=\"max\"} ", kEnd)) == "dequantize reduce quantize");
    CHECK(moved(cat("y = reshape(x) {shape=[32]} ", kEnd), false) == "dequantize reshape quantize");
  }

  TEST_CASE("move: quantize goes in front of a concat of other scales") {
    constexpr std::string_view kParts = "w = dequantize(p, near, z) y = concat(x, w) {axis=1} ";
    CHECK(moved(cat(kParts, "t = quantize(y, near, z) output \"t\" = t")) ==
          "dequantize quantize concat");
    CHECK(moved(cat(kParts, "t = quantize(y, near, z) output \"t\" = t output \"y\" = y")) ==
          "dequantize dequantize concat quantize");
    CHECK(moved("input f: f32[1,2,4,4] y = concat(x, f) {axis=1} t = quantize(y, near, z) "
                "output \"t\" = t") == "dequantize concat quantize");
  }

  TEST_CASE("repeat: each elementwise reader gets its own, others share one") {
    const auto repeated = [](std::string_view statements, bool native = true) {
      return ops_of(rewritten(cat(kInputs, statements), [&](const Graph& g) {
        return repeat_dequantize(g, answering(native));
      }));
    };
    constexpr std::string_view kTwo =
        "a = unary(x) {kind=\"abs\"} b = binary(x, x) {kind=\"mul\"} output \"a\" = a output \"b\" "
        "= b ";
    CHECK(repeated(kTwo) == "dequantize unary dequantize binary");
    CHECK(repeated(kTwo, false) == "dequantize unary binary");
    CHECK(repeated(cat(kTwo, "m = reduce(x) {kind=\"sum\", axes=[3]} output \"m\" = m")) ==
          "dequantize unary dequantize binary dequantize reduce");
    CHECK(repeated(cat(kTwo, "n = softmax(x) output \"n\" = n")) ==
          "dequantize dequantize unary dequantize binary softmax");
    CHECK(repeated(cat(kTwo, "output \"x\" = x")) ==
          "dequantize dequantize unary dequantize binary");
    CHECK(repeated("a = unary(x) {kind=\"abs\"} output \"a\" = a") == "dequantize unary");
  }
}
