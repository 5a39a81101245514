// SPDX-License-Identifier: Apache-2.0
// attention and attention_backward: types and refusals.
#include <limits>

#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/attention");

namespace {
op::attention grouped(Rig& r, DType t = kF32) {
  return {.q = r(t, {2, 6, 5, 8}), .k = r(t, {2, 3, 7, 8}), .v = r(t, {2, 3, 7, 4})};
}
}  // namespace

TEST_CASE("attention: o as q with v's width, lse per query in the accumulation dtype") {
  Rig r;
  op::attention n = grouped(r, kBF16);
  n.want_lse = true;
  CHECK(r.infer(n) == "bf16[2,6,5,4]");
  CHECK(r.infer(n, 1) == "f32[2,6,5]");
  op::attention swapped{.layout = "bshd",
                        .q = r(kF64, {2, 5, 6, 8}),
                        .k = r(kF64, {2, 7, 3, 8}),
                        .v = r(kF64, {2, 7, 3, 4}),
                        .want_lse = true};
  CHECK(r.infer(swapped) == "f64[2,5,6,4]");
  CHECK(r.infer(swapped, 1) == "f64[2,6,5]");
}

TEST_CASE("attention: masks broadcast to the scores") {
  Rig r;
  for (const Shape& shape :
       {Shape{}, Shape{7}, Shape{5, 1}, Shape{2, 1, 1, 7}, Shape{2, 6, 5, 7}}) {
    op::attention n = grouped(r);
    n.mask = r(kBool, shape);
    CHECK(r.infer(n) == "f32[2,6,5,4]");
  }
  op::attention n = grouped(r);
  n.mask = r(kBool, {2, 7});
  r.refuses(n, Code::shape_mismatch, {"mask", "[2,6,5,7]", "bool[2,7]"});
  n.mask = r(kF32, {1, 2, 6, 5, 7});
  r.refuses(n, Code::shape_mismatch, {"mask", "f32[1,2,6,5,7]"});
  n.mask = r(kI8, {5, 7});
  r.refuses(n, Code::dtype_mismatch, {"mask", "bool or f32", "i8[5,7]"});
  n.mask = r(kF64, {5, 7});
  r.refuses(n, Code::dtype_mismatch, {"mask", "f64[5,7]"});
}

TEST_CASE("attention: heads, lengths and options") {
  Rig r;
  op::attention n = grouped(r);
  n.q = r(kF32, {2, 5, 5, 8});
  r.refuses(n, Code::shape_mismatch, {"operand q", "multiple of the 3 heads", "5"});
  n = grouped(r);
  n.v = r(kF32, {2, 3, 8, 4});
  r.refuses(n, Code::shape_mismatch, {"operand v", "[2,3,7,4]", "f32[2,3,8,4]"});
  n = grouped(r);
  n.k = r(kF16, {2, 3, 7, 8});
  r.refuses(n, Code::dtype_mismatch, {"operand k", "f32", "f16"});
  n = grouped(r);
  n.kv_len = r(kI32, {2, 1});
  r.refuses(n, Code::shape_mismatch, {"kv_len", "[2]", "i32[2,1]"});
  n.kv_len = r(kF32, {2});
  r.refuses(n, Code::dtype_mismatch, {"kv_len", "f32[2]"});
  n.kv_len = r(kI64, {2});
  n.past_len = r(kI32, {2});
  CHECK(r.infer(n) == "f32[2,6,5,4]");
  n.offset = 3;
  r.refuses(n, Code::invalid_argument, {"offset", "past_len", "3"});
  n = grouped(r);
  n.softcap = -1;
  r.refuses(n, Code::invalid_argument, {"softcap", "-1"});
  n = grouped(r);
  n.left_window = -2;
  r.refuses(n, Code::invalid_argument, {"left_window", "-2"});
  n = grouped(r);
  n.scale = std::numeric_limits<double>::infinity();
  r.refuses(n, Code::invalid_argument, {"scale"});
  n = grouped(r);
  n.layout = "sbhd";
  r.refuses(n, Code::invalid_argument, {"layout", "sbhd"});
}

TEST_CASE("attention: keys and values may be blocks of elements") {
  constexpr DType kQ8 = TENON_DTYPE_Q8_0;
  Rig r;
  op::attention n{.q = r(kF16, {2, 6, 5, 64}),
                  .k = r(kQ8, {2, 3, 7, 64}),
                  .v = r(kQ8, {2, 3, 7, 32}),
                  .want_lse = true};
  CHECK(r.infer(n) == "f16[2,6,5,32]");
  CHECK(r.infer(n, 1) == "f32[2,6,5]");
  op::attention paged = n;
  paged.k = r(kQ8, {9, 3, 16, 64}), paged.v = r(kQ8, {9, 3, 16, 32});
  paged.kv_len = r(kI64, {2}), paged.block_table = r(kI32, {2, 4});
  CHECK(r.infer(paged) == "f16[2,6,5,32]");
  n.v = r(kF16, {2, 3, 7, 32});
  r.refuses(n, Code::dtype_mismatch, {"operand v", "q8_0 as operand k", "f16[2,3,7,32]"});
  n.k = r(kF16, {2, 3, 7, 64}), n.v = r(kQ8, {2, 3, 7, 32});
  r.refuses(n, Code::dtype_mismatch, {"operand v", "q8_0[2,3,7,32]"});
  n.k = r(DType{TENON_DTYPE_IQ1_S}, {2, 3, 7, 256});
  r.refuses(n, Code::unsupported, {"operand k", "iq1_s"});
}

TEST_CASE("attention: a block table makes pools of k and v") {
  Rig r;
  const auto paged = [&] {
    return op::attention{.layout = "bshd",
                         .q = r(kF16, {2, 5, 6, 8}),
                         .k = r(kF16, {9, 16, 3, 8}),
                         .v = r(kF16, {9, 16, 3, 4}),
                         .kv_len = r(kI64, {2}),
                         .block_table = r(kI32, {2, 4}),
                         .want_lse = true};
  };
  CHECK(r.infer(paged()) == "f16[2,5,6,4]");
  CHECK(r.infer(paged(), 1) == "f32[2,6,5]");
  op::attention n = paged();
  n.mask = r(kBool, {5, 64});
  CHECK(r.infer(n) == "f16[2,5,6,4]");
  n.mask = r(kBool, {5, 16});
  r.refuses(n, Code::shape_mismatch, {"mask", "[2,6,5,64]"});
  n = paged();
  n.layout = "bhsd", n.q = r(kF16, {2, 6, 5, 8}), n.k = r(kF16, {9, 3, 16, 8}),
  n.v = r(kF16, {9, 3, 16, 4});
  CHECK(r.infer(n) == "f16[2,6,5,4]");
  n = paged();
  n.kv_len = {};
  r.refuses(n, Code::invalid_argument, {"kv_len", "block_table", "none"});
  n = paged();
  n.block_table = r(kI64, {3, 4});
  r.refuses(n, Code::shape_mismatch, {"block_table", "[2,4]", "i64[3,4]"});
  n.block_table = r(kI64, {8});
  r.refuses(n, Code::shape_mismatch, {"block_table", "i64[8]"});
  n.block_table = r(kF32, {2, 4});
  r.refuses(n, Code::dtype_mismatch, {"block_table", "f32[2,4]"});
  n = paged();
  n.v = r(kF16, {8, 16, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand v", "[9,16,3,4]", "f16[8,16,3,4]"});
  n = paged();
  n.k = r(kF16, {0, 16, 3, 8}), n.v = r(kF16, {0, 16, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand k", "at least one block", "f16[0,16,3,8]"});
  n.block_table = r(kI64, {2, 0});
  CHECK(r.infer(n) == "f16[2,5,6,4]");
  n = paged();
  n.k = r(kF16, {9, 0, 3, 8}), n.v = r(kF16, {9, 0, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand k", "at least one key", "f16[9,0,3,8]"});
  n = paged();
  n.block_table = r(kI64, {2, int64_t{1} << 52});
  r.refuses(n, Code::invalid_argument, {"overflows"});
}

TEST_CASE("attention_backward: gradients as the operands, dmask for a float mask only") {
  Rig r;
  op::attention_backward n{.dout = r(kBF16, {2, 6, 5, 4}),
                           .q = r(kBF16, {2, 6, 5, 8}),
                           .k = r(kBF16, {2, 3, 7, 8}),
                           .v = r(kBF16, {2, 3, 7, 4}),
                           .o = r(kBF16, {2, 6, 5, 4}),
                           .lse = r(kF32, {2, 6, 5})};
  CHECK(r.infer(n, 0) == "bf16[2,6,5,8]");
  CHECK(r.infer(n, 1) == "bf16[2,3,7,8]");
  CHECK(r.infer(n, 2) == "bf16[2,3,7,4]");
  n.want_dmask = true;
  r.refuses(n, Code::invalid_argument, {"dmask", "none"});
  n.mask = r(kBool, {5, 7});
  r.refuses(n, Code::invalid_argument, {"dmask", "bool[5,7]"});
  n.mask = r(kBF16, {5, 7});
  CHECK(r.infer(n, 3) == "bf16[5,7]");
  n.lse = r(kBF16, {2, 6, 5});
  r.refuses(n, Code::dtype_mismatch, {"lse", "f32"});
  n.lse = r(kF32, {2, 5, 6});
  r.refuses(n, Code::shape_mismatch, {"lse", "[2,6,5]"});
}

TEST_SUITE_END();
