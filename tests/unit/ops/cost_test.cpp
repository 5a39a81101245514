// SPDX-License-Identifier: Apache-2.0
// What ops cost, counted by hand.
#include "ops/cost.hpp"

#include <doctest/doctest.h>

#include <string>

#include "ir/text.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/cost");

namespace {

// A graph of one node.
Graph single(const std::string& inputs, const std::string& node) {
  Graph g = parse("graph {\n" + inputs + "\n" + node + "\n}\n", "cost");
  REQUIRE(g.node_count() == 1);
  return g;
}
double flops(const std::string& inputs, const std::string& node) {
  const Graph g = single(inputs, node);
  return product_flops(g, g[NodeId{0}]);
}
double bytes(const std::string& inputs, const std::string& node) {
  const Graph g = single(inputs, node);
  return least_bytes(g, g[NodeId{0}]);
}

// An op without products: the elements of its operands, then of its outputs, times their sizes.
struct Moved {
  const char *inputs, *node;
  double bytes;
};
const Moved kMoved[] = {
    // elementwise
    {"input a: f32[4,1] input b: f32[5]", "y = binary(a, b) {kind=\"add\"}", 4 * (4 + 5 + 20)},
    {"input a: f16[4,1] input b: f16[5]", "y = compare(a, b) {kind=\"lt\"}", 2 * (4 + 5) + 20},
    {"input a: bool[4] input b: bool[4]", "y = logical(a, b) {kind=\"and\"}", 12},
    {"input x: bf16[3,7]", "y = unary(x) {kind=\"gelu\"}", 2 * (21 + 21)},
    {"input x: f64[6]", "y = activation_backward(x, x) {kind=\"tanh\"}", 8 * (6 + 6 + 6)},
    {"input x: f32[6]", "y = cast(x) {to=bf16}", 4 * 6 + 2 * 6},
    {"input x: i4[6]", "y = copy(x)", 3 + 3},
    {"input c: bool[4] input a: f32[4] input b: f32[1]", "y = where(c, a, b)", 4 + 4 * (4 + 1 + 4)},
    {"input x: f32[3,8]", "y = swiglu(x)", 4 * (24 + 12)},
    {"input d: f32[3,4] input x: f32[3,8]", "y = swiglu_backward(d, x)", 4 * (12 + 24 + 24)},
    // reduce, softmax, order, scan
    {"input x: f32[4,6]", "y = reduce(x) {kind=\"sum\", axes=[1]}", 4 * (24 + 4)},
    {"input x: f16[4,6]", "y = softmax(x)", 2 * (24 + 24)},
    {"input x: f32[4,6]", "y = softmax_backward(x, x)", 4 * (24 + 24 + 24)},
    {"input x: f32[4,6] input l: i32[4]", "(loss, lse) = cross_entropy(x, l)",
     4 * 24 + 4 * 4 + 4 * (1 + 4)},
    {"input d: f32[] input x: f32[4,6] input l: i64[4]", "y = cross_entropy_backward(d, x, l)",
     4 + 4 * 24 + 8 * 4 + 4 * 24},
    {"input x: f32[4,6]", "y = argmax(x)", 4 * 24 + 8 * 4},
    {"input x: f32[4,6]", "y = argmin(x)", 4 * 24 + 8 * 4},
    {"input x: f32[4,6]", "(v, i) = topk(x) {k=2}", 4 * 24 + (4 + 8) * 8},
    {"input x: f32[4,6]", "(v, i) = sort(x)", 4 * 24 + (4 + 8) * 24},
    {"input x: f16[4,6]", "y = cumsum(x)", 2 * (24 + 24)},
    // random
    {"input r: i64[2]", "y = random_bits(r) {shape=[5]}", 16 + 4 * 5},
    {"input r: i64[2]", "y = random_uniform(r) {shape=[5]}", 16 + 4 * 5},
    {"input r: i64[2]", "y = random_normal(r) {shape=[5], dtype=f64}", 16 + 8 * 5},
    {"input x: f32[5] input r: i64[2]", "y = dropout(x, r)", 4 * (5 + 5) + 16},
    {"input x: f32[2,7] input r: i64[2]", "y = sample(x, r)", 4 * 14 + 16 + 8 * 2},
    // norm, channel_norm
    {"input x: f32[4,6] input g: f32[6]", "(y, m) = layer_norm(x, g)", 4 * (24 + 6 + 24 + 4)},
    {"input x: f32[4,6]", "(dx) = layer_norm_backward(x, x)", 4 * (24 + 24 + 24)},
    {"input x: f32[4,6]", "(y, s) = residual_layer_norm(x, x)", 4 * (24 + 24 + 24 + 24)},
    {"input x: f16[4,6] input g: f32[6]", "y = rms_norm(x, g)", 2 * 24 + 4 * 6 + 2 * 24},
    {"input x: f32[4,6] input g: f32[6]", "(dx, dg) = rms_norm_backward(x, x, g)",
     4 * (24 + 24 + 6 + 24 + 6)},
    {"input x: f32[4,6] input g: f32[6]", "y = residual_rms_norm(x, x, _, g)",
     4 * (24 + 24 + 6 + 24)},
    {"input x: f32[2,4,3]", "(y, m, r) = group_norm(x) {groups=2}", 4 * (24 + 24 + 4 + 4)},
    {"input x: f32[2,4,3]", "dx = group_norm_backward(x, x) {groups=2}", 4 * (24 + 24 + 24)},
    {"input x: f32[2,4,3,1] input g: f32[4]", "y = layer_norm2d(x, g)", 4 * (24 + 4 + 24)},
    {"input x: f32[2,4,3,1]", "dx = layer_norm2d_backward(x, x)", 4 * (24 + 24 + 24)},
    // rope
    {"input x: f16[2,3,4,8] input c: f32[3,4] input s: f32[3,4]", "y = rope(x, c, s)",
     2 * 192 + 4 * (12 + 12) + 2 * 192},
    // index: only the rows that indices name
    {"input t: f32[1000,8] input i: i32[3]", "y = gather(t, i)", 2 * 4 * 24 + 4 * 3},
    {"input d: f32[3,8] input i: i32[3]", "y = gather_backward(d, i) {dim=1000}",
     4 * (24 + 8000) + 4 * 3},
    {"input t: f32[1000,8] input i: i64[3] input u: f32[3,8]", "y = scatter(t, i, u)",
     2 * 4 * 24 + 8 * 3},
    {"input t: f32[1000,8] input i: i64[3] input u: f32[3,8]", "y = scatter_add(u, i, t)",
     3 * 4 * 24 + 8 * 3},
    {"input i: i64[3] input u: f32[3,8]", "y = scatter_add(u, i) {dim=1000}",
     4 * (24 + 8000) + 8 * 3},
    {"input x: f32[1000,8] input s: i64[2]", "y = dynamic_slice(x, s) {size=[1,8]}",
     2 * 4 * 8 + 8 * 2},
    {"input x: f32[1000,8] input u: f32[2,8] input s: i64[2]", "y = dynamic_update_slice(x, u, s)",
     2 * 4 * 16 + 8 * 2},
    {"input t: f32[1000,8] input i: i32[3,8]", "y = gather_elements(t, i)", 2 * 4 * 24 + 4 * 24},
    {"input t: f32[1000,8] input i: i32[3,8] input u: f32[3,8]",
     "y = scatter_elements_add(u, i, t)", 3 * 4 * 24 + 4 * 24},
    {"input i: i32[3,8] input u: f32[3,8]", "y = scatter_elements_add(u, i) {shape=[1000,8]}",
     4 * (24 + 8000) + 4 * 24},
    // scatter_reduce
    {"input t: f32[1000,8] input i: i64[3] input u: f32[3,8]",
     "y = scatter_reduce(t, i, u) {kind=\"max\"}", 3 * 4 * 24 + 8 * 3},
    {"input t: f32[1000,8] input i: i32[3,8] input u: f32[3,8]",
     "y = scatter_elements_reduce(t, i, u) {kind=\"mul\"}", 3 * 4 * 24 + 4 * 24},
    // shape
    {"input x: f32[1000,8]", "y = narrow(x) {start=[5,0], len=[2,8], step=[1,1]}", 2 * 4 * 16},
    {"input x: f32[2,8] input z: f32[3,8]", "y = concat(x, z)", 4 * (16 + 24 + 40)},
    {"input x: f32[2,8]", "y = transpose(x)", 4 * (16 + 16)},
    {"input x: f32[8]", "y = expand(x) {shape=[2,8]}", 4 * (8 + 16)},
    {"input x: f32[2,8]", "y = reshape(x) {shape=[16]}", 4 * (16 + 16)},
    {"input x: f32[3]", "y = pad(x) {before=[1], after=[2]}", 4 * (3 + 6)},
    {"", "y = iota() {shape=[5]}", 8 * 5},
    // pool
    {"input x: f32[1,2,4,4]", "(y, i) = maxpool2d(x) {kernel=[2,2]}", 4 * 32 + (4 + 8) * 8},
    {"input d: f32[1,2,2,2] input x: f32[1,2,4,4]",
     "y = maxpool2d_backward(d, x) {kernel=[2,2], stride=[2,2]}", 4 * (8 + 32 + 32)},
    {"input x: f32[1,2,4,4]", "y = avgpool2d(x) {kernel=[2,2], stride=[2,2]}", 4 * (32 + 8)},
    {"input d: f32[1,2,2,2]", "y = avgpool2d_backward(d) {kernel=[2,2], stride=[2,2], size=[4,4]}",
     4 * (8 + 32)},
    // resample
    {"input x: f32[1,2,4,4]", "y = resize(x) {sizes=[8,2]}", 4 * (32 + 32)},
    {"input d: f32[1,2,8,3]", "y = resize_backward(d) {sizes=[8,3], size=[4,4]}", 4 * (48 + 32)},
    {"input x: f32[1,2,4,4] input g: f32[1,3,5,2]", "y = grid_sample(x, g)", 4 * (32 + 30 + 30)},
    {"input d: f32[1,2,3,5] input x: f32[1,2,4,4] input g: f32[1,3,5,2]",
     "(y, h) = grid_sample_backward(d, x, g)", 4 * (30 + 32 + 30 + 32 + 30)},
    {"input x: f32[1,2,4,4] input r: f32[3,4] input i: i64[3]", "y = roi_align(x, r, i)",
     4 * (32 + 12 + 6) + 8 * 3},
    {"input d: f32[3,2,1,1] input x: f32[1,2,4,4] input r: f32[3,4] input i: i64[3]",
     "y = roi_align_backward(d, x, r, i)", 4 * (6 + 32 + 12 + 32) + 8 * 3},
    // optimizer
    {"input w: f32[6] input l: f32[]", "(n) = sgd(w, w, l)", 4 * (6 + 6 + 1 + 6)},
    {"input w: f32[6] input l: f32[] input s: i64[]", "(n, m, v) = adamw(w, w, w, w, l, s)",
     4 * (4 * 6 + 1 + 3 * 6) + 8},
    {"input w: f32[6] input l: f32[]", "(n, m) = lion(w, w, w, l)", 4 * (3 * 6 + 1 + 2 * 6)},
    // region
    {"input x: f32[2,3] input c: f32[2,1]",
     "(y, r) = elementwise_region(x, c) {body=graph { input x: f32[2,3] input c: f32[2,1] "
     "t = binary(x, c) {kind=\"add\"} r = reduce(t) {kind=\"sum\", axes=[1]} "
     "output \"y\" = t output \"r\" = r }}",
     4 * (6 + 2 + 6 + 2)},
    {"input x: f32[2,3] input z: f32[5]",
     "(y, w) = batch_elementwise_region(x, z) {sets=2, body=graph { input x: f32[2,3] "
     "t = unary(x) {kind=\"neg\"} output \"y\" = t }}",
     4 * (6 + 5 + 6 + 5)},
};

}  // namespace

TEST_CASE("cost: a product counts two for each multiplied pair, batches and flags included") {
  const std::string in =
      "input a: f32[3,5]\ninput t: f32[5,3]\ninput b: f32[4,5,2]\ninput v: f32[5]";
  CHECK(flops(in, "y = matmul(a, b)") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops(in, "y = matmul(t, b) {trans_a=true}") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops(in, "y = matmul(v, v)") == 10);
  CHECK(flops(in, "y = linear(a, b) {act=\"relu\"}") == 2.0 * 4 * 3 * 5 * 2);
  CHECK(flops("input t: f32[5,3]\ninput b: f32[4,5]\ninput c: f32[2,5]",
              "(p, q) = batch_linear(t, b, c) {trans_a=true, trans_b=true}") ==
        2.0 * 3 * 5 * (4 + 2));
  CHECK(flops("input x: f32[3,5]\ninput w: f32[5,4]\ninput a: f32[5,2]\ninput b: f32[2,4]",
              "y = lora_matmul(x, w, a, b)") == 2.0 * 3 * (5 * 4 + 5 * 2 + 2 * 4));
}

TEST_CASE("cost: experts are counted once for each row, each gradient that is wanted once") {
  const std::string in =
      "input x: f32[6,3]\ninput w: f32[2,3,4]\ninput i: i32[6]\ninput g: f32[6,4]";
  CHECK(flops(in, "y = grouped_matmul(x, w, i)") == 2.0 * 6 * 3 * 4);
  CHECK(flops(in, "(dx, dw) = grouped_matmul_backward(g, x, w, i)") == 2 * 2.0 * 6 * 3 * 4);
}

TEST_CASE("cost: attention counts the pairs that a causal mask and windows leave") {
  const std::string in =
      "input q: f32[2,4,3,8]\ninput k: f32[2,2,5,8]\ninput l: f32[2,4,3]\n"
      "input v: f32[2,2,5,6]\ninput d: f32[2,4,3,6]";
  CHECK(flops(in, "o = attention(q, k, k)") == 4.0 * 2 * 4 * 3 * 5 * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true}") == 4.0 * 2 * 4 * (1 + 2 + 3) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true, offset=3}") ==
        4.0 * 2 * 4 * (4 + 5 + 5) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {causal=true, offset=-2}") == 4.0 * 2 * 4 * 1 * 8);
  CHECK(flops(in, "(a, b, c) = attention_backward(q, q, k, k, q, l)") == 10.0 * 2 * 4 * 3 * 5 * 8);
  // Keys of the queries 0, 1, 2, at offset 1, with windows: 0..1, 1..2, 2..3; 0..3, 0..4, 1..4.
  CHECK(flops(in, "o = attention(q, k, k) {causal=true, offset=1, left_window=1}") ==
        4.0 * 2 * 4 * (2 + 2 + 2) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {offset=1, left_window=2, right_window=2}") ==
        4.0 * 2 * 4 * (4 + 5 + 4) * 8);
  CHECK(flops(in, "o = attention(q, k, k) {offset=9, left_window=2}") == 0);
  // Values of another dim than the keys.
  CHECK(flops(in, "o = attention(q, k, v)") == 2.0 * 2 * 4 * 3 * 5 * (8 + 6));
  CHECK(flops(in, "(a, b, c) = attention_backward(d, q, k, v, d, l)") ==
        2.0 * 2 * 4 * 3 * 5 * (3 * 8 + 2 * 6));
  CHECK(flops("input q: f32[2,3,4,8]\ninput k: f32[2,5,2,8]",
              "o = attention(q, k, k) {layout=\"bshd\"}") == 4.0 * 2 * 4 * 3 * 5 * 8);
}

TEST_CASE("cost: decode_attention reads the caches and writes a row of each sequence") {
  const std::string in =
      "input q: f16[2,4,8]\ninput k: f16[2,2,8]\ninput v: f16[2,2,6]\n"
      "input kc: f16[30,2,8]\ninput vc: f16[30,2,6]\ninput n: i64[2]\ninput t: i32[2,3]";
  const std::string plain = "(o, a, b) = decode_attention(q, k, v, kc, vc, n, n, n)",
                    blocks =
                        "(o, a, b) = decode_attention(q, k, v, kc, vc, n, n, n, _, _, _, t) "
                        "{block_size=3}";
  const double tokens = 2 * (2 * 4 * 8 + 2 * 4 * 6 + 2 * 2 * 2 * (8 + 6));
  CHECK(flops(in, plain) == 2.0 * 30 * 4 * (8 + 6));
  CHECK(bytes(in, plain) == tokens + 2 * 30 * 2 * (8 + 6));
  // Two sequences of up to nine keys.
  CHECK(flops(in, blocks) == 2.0 * 18 * 4 * (8 + 6));
  CHECK(bytes(in, blocks) == tokens + 2 * 18 * 2 * (8 + 6));
}

TEST_CASE("cost: products move each operand and each output once") {
  CHECK(bytes("input a: f16[4,3,5] input b: f16[5,2]", "y = matmul(a, b) {out_dtype=f32}") ==
        2 * (60 + 10) + 4 * 24);
  CHECK(bytes("input a: f32[3,5] input b: f32[5,2] input c: f32[2]", "y = linear(a, b, c)") ==
        4 * (15 + 10 + 2 + 6));
  CHECK(bytes("input t: f32[3,5] input b: f32[5,4] input c: f32[5,2]",
              "(p, q) = batch_linear(t, b, c)") == 4 * (15 + 20 + 10 + 12 + 6));
  CHECK(bytes("input x: f32[3,5]\ninput w: f32[5,4]\ninput a: f32[5,2]\ninput b: f32[2,4]",
              "y = lora_matmul(x, w, a, b)") == 4 * (15 + 20 + 10 + 8 + 12));
  const std::string experts =
      "input x: f32[6,3] input w: f32[2,3,4] input i: i32[6] input g: f32[6,4]";
  CHECK(bytes(experts, "y = grouped_matmul(x, w, i)") == 4 * (18 + 24 + 6 + 24));
  CHECK(bytes(experts, "(dx, dw) = grouped_matmul_backward(g, x, w, i)") ==
        4 * (24 + 18 + 24 + 6 + 18 + 24));
  const std::string heads = "input q: f16[2,4,3,8] input k: f16[2,2,5,8] input l: f32[2,4,3]";
  CHECK(bytes(heads, "o = attention(q, k, k)") == 2 * (192 + 160 + 160 + 192));
  const std::string blocks =
      "input q: f16[2,4,3,8] input k: f16[9,2,5,8] input n: i32[2] input t: i32[2,3]";
  CHECK(bytes(blocks, "o = attention(q, k, k, _, n, _, t)") ==
        2 * (192 + 2 * 6 * 80 + 192) + 4 * (2 + 6));
  CHECK(flops(blocks, "o = attention(q, k, k, _, n, _, t)") == 4.0 * 2 * 4 * 3 * 15 * 8);
  CHECK(bytes(heads, "(a, b, c) = attention_backward(q, q, k, k, q, l)") ==
        2 * (3 * 192 + 2 * 160 + 192 + 2 * 160) + 4 * 24);
}

TEST_CASE("cost: an op without products counts none, and moves what it must") {
  for (const Moved& m : kMoved) {
    CAPTURE(m.node);
    CHECK(flops(m.inputs, m.node) == 0);
    CHECK(bytes(m.inputs, m.node) == m.bytes);
  }
}

TEST_SUITE_END();
