// SPDX-License-Identifier: Apache-2.0
// Blocks: types, refusals, costs, decompositions, and the elements of each format.
#include <cmath>
#include <limits>
#include <memory>
#include <tenon/blocks.hpp>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/dequant");

namespace {

constexpr DType kQ4K = TENON_DTYPE_Q4_K, kQ8 = TENON_DTYPE_Q8_0;

// Byte b of a block is 37·b + 11; then the scale is 0.5 and the minimum 0.25.
std::vector<unsigned char> block_of(DType t) {
  std::vector<unsigned char> bytes(tenon_dtype_block(t).bytes);
  for (size_t b = 0; b < bytes.size(); ++b) bytes[b] = static_cast<unsigned char>(37 * b + 11);
  const auto half = [&](size_t at, unsigned char high) { bytes[at] = 0, bytes[at + 1] = high; };
  switch (t) {
    case TENON_DTYPE_Q2_K:
      half(80, 0x38), half(82, 0x34);
      break;
    case TENON_DTYPE_Q3_K:
      half(108, 0x38);
      break;
    case TENON_DTYPE_Q6_K:
      half(208, 0x38);
      break;
    case TENON_DTYPE_TQ1_0:
      half(52, 0x38);
      break;
    case TENON_DTYPE_TQ2_0:
      half(64, 0x38);
      break;
    case TENON_DTYPE_Q8_K:
      bytes[0] = bytes[1] = bytes[2] = 0, bytes[3] = 0x3f;
      break;
    case TENON_DTYPE_F8E4M3_128:
      bytes[0] = bytes[1] = bytes[2] = 0, bytes[3] = 0x3f;
      bytes[100] = 0x38;  // in place of NaN
      break;
    case TENON_DTYPE_MXFP4:
      bytes[0] = 127;
      break;
    case TENON_DTYPE_NVFP4:
      bytes[0] = 0x38, bytes[1] = 0x30, bytes[2] = 0x40, bytes[3] = 0x28;
      break;
    default:
      half(0, 0x38);
      if (t == TENON_DTYPE_Q4_1 || t == TENON_DTYPE_Q5_1 || t == TENON_DTYPE_Q4_K ||
          t == TENON_DTYPE_Q5_K)
        half(2, 0x34);
  }
  return bytes;
}

// Elements 0, 1, 17 and the last, and the sums of y[i] and of (i + 1)·y[i].
struct Golden {
  DType dtype;
  double y0, y1, y17, last, sum, weighted;
};
constexpr Golden kGolden[] = {
    {TENON_DTYPE_Q4_0, -1.5, 1, -.5, 0, -10.5, -259},
    {TENON_DTYPE_Q4_1, 7.75, 2.25, 6.25, 6.25, 130.5, 2123.5},
    {TENON_DTYPE_Q5_0, 4.5, -1, 0, .5, 7.5, 56},
    {TENON_DTYPE_Q5_1, 9.75, 12.25, 2.75, 2.75, 260.5, 4082.5},
    {TENON_DTYPE_Q8_0, 42.5, 61, -27, -24, -88, -4040},
    {TENON_DTYPE_Q2_K, 16.5, 0, -.75, 2.25, 1029.5, 121565},
    {TENON_DTYPE_Q3_K, 40.5, -54, 64, 21, 479, 88572.5},
    {TENON_DTYPE_Q4_K, 157.75, -12.75, -12.75, 24.25, 27220, 3786420},
    {TENON_DTYPE_Q5_K, 405.75, -12.75, -12.75, 54.25, 58108, 8013724},
    {TENON_DTYPE_Q6_K, -715.5, 848, 256, -30, 2306, 392210},
    {TENON_DTYPE_Q8_K, -48.5, -30, 10, 61, -64, 22720},
    {TENON_DTYPE_IQ4_NL, -17.5, 12.5, -5, .5, -128.5, -3459.5},
    {TENON_DTYPE_IQ4_XS, 32.5, -.5, 17.5, -8, -5502.5, -1045567},
    {TENON_DTYPE_TQ1_0, -.5, -.5, 0, -.5, -1, -65.5},
    {TENON_DTYPE_TQ2_0, 1, -.5, -.5, -.5, 64.5, 8622.5},
    {TENON_DTYPE_MXFP4, 0, 3, 3, 3, 12.5, 319},
    {TENON_DTYPE_NVFP4, -6, 2, -1, .125, -36.125, -1247.875},
    {TENON_DTYPE_Q1_0, .5, -.5, .5, .5, 0, -266},
    {TENON_DTYPE_Q2_0, 0, 0, .5, .5, 15, 406.5},
    {TENON_DTYPE_F8E4M3_128, -.05859375, -1.5, .0234375, -160, -440.962890625, -36810.080078125},
};

// The ops of a decomposition, joined by spaces.
template <class Op>
std::string decomposition(Rig& r, const Op& op) {
  const NodeId node = r.graph.add(op, "here");
  const NodeId before = r.graph.node_count();
  Builder b(r.graph);
  std::vector<Value> results(r.graph[node].outputs.size());
  const NodeInfo info = r.graph[node];
  Lower l(b, info, results);
  REQUIRE(info.op->lower(l, r.graph, info));
  CHECK(r.graph.type(results[0]).text() == r.graph.type(info.outputs[0]).text());
  std::string text;
  for (NodeId n = before; n < r.graph.node_count(); ++n)
    text += cat(n > before ? " " : "", r.graph[n].op->name());
  return text;
}

}  // namespace

TEST_CASE("decode_block: the known elements of each format") {
  for (const Golden& g : kGolden) {
    const std::string name(dtype_name(g.dtype));
    CAPTURE(name);
    const auto block = block_of(g.dtype);
    const int count = tenon_dtype_block(g.dtype).elements;
    float y[256];
    double wide[256], sum = 0, weighted = 0;
    tenon::sdk::decode_block(g.dtype, block.data(), y);
    tenon::sdk::decode_block(g.dtype, block.data(), wide);
    for (int i = 0; i < count; ++i) {
      CHECK(y[i] == wide[i]);
      sum += wide[i], weighted += (i + 1) * wide[i];
    }
    CHECK(y[0] == g.y0);
    CHECK(y[1] == g.y1);
    CHECK(y[17] == g.y17);
    CHECK(y[count - 1] == g.last);
    CHECK(sum == g.sum);
    CHECK(weighted == g.weighted);
  }
}

TEST_CASE("blocks: names, sizes, which are decoded") {
  int known = 0, decoded = 0;
  for (DType t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS_END; ++t) {
    const tenon_block block = tenon_dtype_block(t);
    CHECK(is_blocks(t) == (block.elements != 0));
    CHECK(tenon_dtype_bits(t) == 0);
    CHECK((tenon_dtype_known(t) != 0) == is_blocks(t));
    if (!is_blocks(t)) continue;
    ++known, decoded += tenon::sdk::is_decodable(t);
    CHECK(dtype_from_name(dtype_name(t)) == t);
    CHECK(type_bytes({t, {3, 2 * block.elements}}) == 6u * block.bytes);
  }
  CHECK(known == 28);
  CHECK(decoded == 21);
  CHECK(type_bytes({kQ4K, {4096, 4096}}) == 9437184);
  CHECK(type_bytes({kQ4K, {7, 0}}) == 0);
  CHECK_FALSE(is_blocks(kF32));
  CHECK_FALSE(is_blocks(TENON_DTYPE_BLOCKS_END));
  CHECK(tenon_dtype_block(kF32).elements == 0);
  CHECK(dtype_name(DType{0x104}) == "?");
  // Between the formats of GGUF files and those from 0x180 on.
  CHECK(tenon_dtype_block(DType{TENON_DTYPE_Q2_0 + 1}).elements == 0);
  CHECK(tenon_dtype_block(DType{TENON_DTYPE_F8E4M3_128 - 1}).elements == 0);
  CHECK(dtype_name(TENON_DTYPE_F8E4M3_128) == "f8e4m3_128");
}

TEST_CASE("blocks: where they may stand") {
  Graph g;
  const auto text_of = [](const auto& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(text_of([&] {
          g.weight("w", {kQ4K, {4, 128}});
        }) ==
        "weight 'w': q4_k[4,128]: expected a last dim that is a multiple of 256, a block of q4_k, "
        "got 128");
  CHECK(text_of([&] { g.weight("w", {kQ4K, {}}); }).find("got no dim") != std::string::npos);
  CHECK(text_of([&] {
          g.input("x", {kQ8, {g.symbol("N"), 32}});
        }).find("dims without symbols") != std::string::npos);
  CHECK(text_of([&] {
          g.constant({kQ8, {1, 32}}, std::make_shared<Bytes>(33));
        }) == "constant q8_0[1,32]: expected 34 bytes, got 33");
  const Value w = g.weight("w", {kQ8, {4, 64}});
  CHECK(text_of([&] { g.output("y", w); }) ==
        "output 'y': is q8_0[4,64]; outputs have no blocks: dequantize_blocks makes numbers of "
        "them");
  CHECK(text_of([&] { g.update(w, w); }) ==
        "update 'w': is q8_0[4,64]; weights of blocks are not updated");
  Builder b(g);
  CHECK(text_of([&] { b.transpose(w, {1, 0}); }).find("got q8_0[4,64]") != std::string::npos);
  CHECK(text_of([&] { b.cast(w, kF32); }).find("dequantize_blocks makes numbers") !=
        std::string::npos);
  CHECK(g.node_count() == 0);
}

TEST_CASE("blocks: a state is updated in rows, and its rows are moved") {
  Rig r;
  Graph& g = r.graph;
  const Value state = g.state("cache", {kQ8, {12, 2, 64}});
  const Value ids = r(kI64, {3}), x = r(kF32, {3, 2, 64});
  Builder b(g);
  const Value rows = b.cast(x, kQ8);
  CHECK(b.type(rows).text() == "q8_0[3,2,64]");
  const Value now = b.add(op::scatter{.base = state, .indices = ids, .updates = rows});
  CHECK(b.type(now).text() == "q8_0[12,2,64]");
  CHECK(b.type(b.reshape(now, {3, 4, 2, 64})).text() == "q8_0[3,4,2,64]");
  CHECK(r.infer(op::gather{.axis = 1, .data = now, .indices = r(kI64, {5})}) == "q8_0[12,5,64]");
  g.update(state, now);
  verify(g);

  r.refuses(op::gather{.axis = -1, .data = now, .indices = ids}, Code::unsupported,
            {"operand data", "q8_0[12,2,64]", "last axis"});
  r.refuses(op::scatter{.axis = 2, .base = now, .indices = ids, .updates = rows}, Code::unsupported,
            {"operand base", "last axis"});
  r.refuses(op::scatter{.base = now, .indices = ids, .updates = x}, Code::dtype_mismatch,
            {"updates", "f32[3,2,64]"});
  r.refuses(op::reshape{.shape = {12 * 2 * 4, 16}, .x = now}, Code::shape_mismatch,
            {"multiple of 32", "got 16"});
  r.refuses(op::cast{.to = kQ8, .x = r(kF32, {2, 33})}, Code::shape_mismatch,
            {"multiple of 32", "got 33"});
  r.refuses(op::cast{.to = kQ8, .x = r(kI32, {2, 32})}, Code::dtype_mismatch, {"operand x"});
  r.refuses(op::cast{.to = kQ4K, .x = r(kF32, {2, 256})}, Code::unsupported,
            {"expected q8_0", "q4_k"});
  r.refuses(op::cast{.to = kQ8, .x = now}, Code::dtype_mismatch, {"dequantize_blocks"});
}

TEST_CASE("blocks: as text") {
  const std::string text =
      "graph {\n"
      "  weight w: q4_0[2,32]\n"
      "  const c: q8_0[1,32] = 0x" +
      std::string(68, '1') +
      "\n"
      "  y = dequantize_blocks(w) {to=f16}\n"
      "  z = dequantize_blocks(c)\n"
      "  output \"y\" = y\n"
      "  output \"z\" = z\n"
      "}\n";
  CHECK(print(parse(text, "here")) == text);
  CHECK_THROWS_AS(parse("graph {\n  weight w: q4_0[2,31]\n}\n", "here"), Error);
  CHECK_THROWS_AS(parse("graph {\n  const c: q8_0[1,32] = {1}\n}\n", "here"), Error);
}

TEST_CASE("dequant: types") {
  Rig r;
  const Value w = r(kQ4K, {5, 512}), e = r(kQ8, {3, 4, 64});
  CHECK(r.infer(op::dequantize_blocks{.w = w}) == "f32[5,512]");
  CHECK(r.infer(op::dequantize_blocks{.to = kBF16, .w = e}) == "bf16[3,4,64]");
  CHECK(r.infer(op::dequant_matmul{.x = r(kF16, {2, 3, 512}), .w = w}) == "f16[2,3,5]");
  CHECK(r.infer(op::dequant_matmul{.x = r(kF32, {512}), .w = w, .bias = r(kF32, {5})}) == "f32[5]");
  CHECK(r.infer(op::grouped_dequant_matmul{
            .x = r(kBF16, {7, 64}), .w = e, .ids = r(kI32, {7}), .p = r(kF32, {7})}) ==
        "bf16[7,4]");
  CHECK(r.infer(op::dequant_rows{.to = kF16, .w = w, .ids = r(kI64, {2, 3})}) == "f16[2,3,512]");
}

TEST_CASE("dequant: refusals") {
  Rig r;
  const Value w = r(kQ4K, {5, 512}), e = r(kQ8, {3, 4, 64}), x = r(kF32, {2, 512});
  r.refuses(op::dequantize_blocks{.w = x}, Code::dtype_mismatch, {"operand w", "f32[2,512]"});
  r.refuses(op::dequantize_blocks{.w = r(DType{TENON_DTYPE_IQ1_S}, {1, 256})}, Code::unsupported,
            {"operand w", "iq1_s"});
  r.refuses(op::dequantize_blocks{.to = kI32, .w = w}, Code::dtype_mismatch, {"to", "i32"});
  r.refuses(op::dequant_matmul{.x = r(kF32, {2, 256}), .w = w}, Code::shape_mismatch,
            {"operand x", "512", "f32[2,256]"});
  r.refuses(op::dequant_matmul{.x = r(kF32, {}), .w = w}, Code::shape_mismatch, {"operand x"});
  r.refuses(op::dequant_matmul{.x = x, .w = e}, Code::shape_mismatch, {"operand w"});
  r.refuses(op::dequant_matmul{.compute = "int4", .x = x, .w = w}, Code::invalid_argument,
            {"compute", "int4", "int8"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .bias = r(kF16, {5})}, Code::dtype_mismatch,
            {"operand bias", "f16[5]"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .bias = r(kF32, {4})}, Code::shape_mismatch,
            {"operand bias"});
  const Value rows = r(kF32, {7, 64});
  r.refuses(op::grouped_dequant_matmul{.x = rows, .w = e}, Code::invalid_argument,
            {"ids and offsets", "neither"});
  r.refuses(op::grouped_dequant_matmul{.x = rows, .w = e, .ids = r(kI32, {6})},
            Code::shape_mismatch, {"operand ids"});
  r.refuses(op::grouped_dequant_matmul{.x = rows, .w = r(kQ8, {0, 4, 64}), .ids = r(kI32, {7})},
            Code::shape_mismatch, {"at least one expert"});
  r.refuses(op::dequant_rows{.w = w, .ids = x}, Code::dtype_mismatch, {"operand ids"});
  r.refuses(op::dequant_rows{.w = r(kQ8, {0, 32}), .ids = r(kI32, {1})}, Code::index_out_of_range,
            {"operand ids"});
}

TEST_CASE("dequant: types of a product with neighbours") {
  Rig r;
  const Value w = r(kQ4K, {6, 512}), x = r(kF16, {2, 3, 512}), gamma = r(kF16, {512});
  CHECK(r.infer(op::dequant_matmul{.x = x, .w = w, .gamma = gamma}) == "f16[2,3,6]");
  CHECK(r.infer(op::dequant_matmul{.gate = "gelu", .x = x, .w = w, .bias = r(kF32, {6})}) ==
        "f16[2,3,3]");
  const op::dequant_matmul all{.gate = "silu",
                               .eps = 0,
                               .x = x,
                               .w = w,
                               .gamma = r(kF32, {512}),
                               .residual = r(kF16, {2, 3, 512}),
                               .want_sum = true};
  CHECK(r.infer(all) == "f16[2,3,3]");
  CHECK(r.infer(all, 1) == "f16[2,3,512]");
  CHECK(r.infer(op::dequant_matmul{.gate = "relu", .x = r(kF32, {512}), .w = w}) == "f32[3]");
}

TEST_CASE("dequant: refusals of a product with neighbours") {
  Rig r;
  const Value w = r(kQ4K, {6, 512}), x = r(kF16, {2, 512}), gamma = r(kF16, {512});
  r.refuses(op::dequant_matmul{.gate = "silu", .x = r(kF32, {512}), .w = r(kQ4K, {5, 512})},
            Code::shape_mismatch, {"operand w", "even number of rows", "gate", "q4_k[5,512]"});
  r.refuses(op::dequant_matmul{.gate = "tanh", .x = x, .w = w}, Code::invalid_argument,
            {"gate", "tanh", "silu", "sigmoid"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .residual = x}, Code::invalid_argument,
            {"operand gamma", "operand residual"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .gamma = gamma, .want_sum = true},
            Code::invalid_argument, {"output sum", "operand residual"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .gamma = r(kBF16, {512})}, Code::dtype_mismatch,
            {"operand gamma", "f16 or f32", "bf16[512]"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .gamma = r(kF16, {6})}, Code::shape_mismatch,
            {"operand gamma", "[512]", "f16[6]"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .gamma = gamma, .residual = r(kF32, {2, 512})},
            Code::dtype_mismatch, {"operand residual", "f16", "f32"});
  r.refuses(op::dequant_matmul{.x = x, .w = w, .gamma = gamma, .residual = r(kF16, {512})},
            Code::shape_mismatch, {"operand residual", "[2,512]", "f16[512]"});
  for (const double eps : {-1e-6, std::numeric_limits<double>::infinity(), std::nan("")})
    r.refuses(op::dequant_matmul{.eps = eps, .x = x, .w = w, .gamma = gamma},
              Code::invalid_argument, {"attribute eps", "0 or more"});
}

TEST_CASE("dequant: costs count the bytes of blocks") {
  Graph g;
  const auto node = [&](const auto& op) -> const NodeInfo& { return g[g.add(op, "here")]; };
  const Value w = g.input("w", {kQ4K, {100, 512}}), x = g.input("x", {kF16, {3, 512}});
  const Value e = g.input("e", {kQ8, {8, 10, 64}}), rows = g.input("rows", {kF32, {2, 64}});
  const Value ids = g.input("ids", {kI32, {2}});
  const NodeInfo product = node(op::dequant_matmul{.x = x, .w = w});
  CHECK(product_flops(g, product) == 2.0 * 3 * 512 * 100);
  CHECK(least_bytes(g, product) == 100 * 288 + 2 * (3 * 512 + 3 * 100));
  // All of w multiplies, and half as many results leave.
  const Value gamma = g.input("gamma", {kF16, {512}});
  const NodeInfo gated = node(op::dequant_matmul{
      .gate = "silu", .x = x, .w = w, .gamma = gamma, .residual = x, .want_sum = true});
  CHECK(product_flops(g, gated) == 2.0 * 3 * 512 * 100);
  CHECK(least_bytes(g, gated) == 100 * 288 + 2 * (3 * 3 * 512 + 512 + 3 * 50));
  // Of eight experts, two at most have a row.
  const NodeInfo grouped = node(op::grouped_dequant_matmul{.x = rows, .w = e, .ids = ids});
  CHECK(product_flops(g, grouped) == 2.0 * 2 * 64 * 10);
  CHECK(least_bytes(g, grouped) == 2 * 10 * 68 + 4 * (2 * 64 + 2 * 10) + 8);
  const NodeInfo some = node(op::dequant_rows{.w = w, .ids = ids});
  CHECK(least_bytes(g, some) == 2 * 288 + 2 * 512 * 4 + 8);
}

TEST_CASE("dequant: decompositions") {
  Rig r;
  const Value w = r(kQ4K, {5, 256}), e = r(kQ8, {3, 4, 64});
  CHECK(decomposition(r, op::dequant_matmul{.x = r(kF16, {2, 256}), .w = w}) ==
        "dequantize_blocks cast matmul cast");
  CHECK(
      decomposition(r, op::dequant_matmul{.x = r(kF64, {2, 256}), .w = w, .bias = r(kF64, {5})}) ==
      "dequantize_blocks linear");
  const Value x = r(kF32, {2, 256}), gamma = r(kF32, {256});
  CHECK(decomposition(r, op::dequant_matmul{.x = x, .w = w, .gamma = gamma}) ==
        "rms_norm dequant_matmul");
  CHECK(decomposition(r, op::dequant_matmul{.gate = "silu", .x = x, .w = r(kQ4K, {6, 256})}) ==
        "dequant_matmul swiglu");
  CHECK(decomposition(r, op::dequant_matmul{.gate = "silu",
                                            .x = x,
                                            .w = r(kQ4K, {6, 256}),
                                            .gamma = gamma,
                                            .residual = x,
                                            .want_sum = true}) ==
        "residual_rms_norm dequant_matmul swiglu");
  CHECK(decomposition(
            r, op::grouped_dequant_matmul{.x = r(kF32, {7, 64}), .w = e, .ids = r(kI32, {7})}) ==
        "dequantize_blocks grouped_matmul");
  CHECK(decomposition(r, op::dequant_rows{.w = w, .ids = r(kI32, {7})}) ==
        "dequantize_blocks gather");
}

TEST_SUITE_END();
