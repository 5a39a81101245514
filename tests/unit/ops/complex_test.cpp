// SPDX-License-Identifier: Apache-2.0
// Complex numbers: types, refusals, decompositions.
#include "ops/record.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/complex");

TEST_CASE("views: types and refusals") {
  Rig r;
  const Value z = r(TENON_DTYPE_C64, {2, 3});
  CHECK(r.infer(op::view_as_real{.x = z}) == "f32[2,3,2]");
  CHECK(r.infer(op::view_as_real{.x = r(TENON_DTYPE_C128, {})}) == "f64[2]");
  CHECK(r.infer(op::view_as_complex{.x = r(kF32, {5, 2})}) == "c64[5]");
  CHECK(r.infer(op::view_as_complex{.x = r(kF64, {2})}) == "c128[]");
  r.refuses(op::view_as_real{.x = r(kF32, {2})}, Code::dtype_mismatch, {"operand x", "f32[2]"});
  r.refuses(op::view_as_real{.x = r(TENON_DTYPE_C64, {1, 1, 1, 1, 1, 1, 1, 1})}, Code::unsupported,
            {"rank 7"});
  r.refuses(op::view_as_complex{.x = r(kF16, {2})}, Code::dtype_mismatch, {"f32 or f64"});
  r.refuses(op::view_as_complex{.x = r(kF32, {2, 1})}, Code::shape_mismatch, {"pairs"});
  r.refuses(op::view_as_complex{.x = r(kF32, {})}, Code::shape_mismatch, {"pairs"});
}

TEST_CASE("arithmetic: which kinds take complex numbers") {
  Rig r;
  const Value z = r(TENON_DTYPE_C64, {4, 1}), w = r(TENON_DTYPE_C64, {3});
  for (const char* kind : {"add", "sub", "mul"})
    CHECK(r.infer(op::binary{.kind = kind, .a = z, .b = w}) == "c64[4,3]");
  r.refuses(op::binary{.kind = "div", .a = z, .b = w}, Code::dtype_mismatch, {"div", "c64[4,1]"});
  r.refuses(op::binary{.kind = "max", .a = z, .b = w}, Code::dtype_mismatch, {"max"});
  r.refuses(op::binary{.kind = "add", .a = z, .b = r(kF32, {3})}, Code::dtype_mismatch,
            {"operand b", "c64", "f32[3]"});
  r.refuses(op::binary{.kind = "add", .a = z, .b = r(TENON_DTYPE_C128, {3})}, Code::dtype_mismatch,
            {"c128[3]"});
  CHECK(r.infer(op::unary{.kind = "neg", .x = z}) == "c64[4,1]");
  r.refuses(op::unary{.kind = "abs", .x = z}, Code::dtype_mismatch, {"abs", "complex_abs"});
  r.refuses(op::unary{.kind = "exp", .x = z}, Code::dtype_mismatch, {"exp", "c64[4,1]"});
  r.refuses(op::reduce{.kind = "sum", .x = z}, Code::dtype_mismatch, {"c64[4,1]"});
  r.refuses(op::matmul{.a = z, .b = r(TENON_DTYPE_C64, {1, 2})}, Code::dtype_mismatch,
            {"c64[4,1]"});
}

TEST_CASE("conj, complex_abs, complex_norm_sq: types and refusals") {
  Rig r;
  CHECK(r.infer(op::conj{.x = r(TENON_DTYPE_C64, {3})}) == "c64[3]");
  CHECK(r.infer(op::complex_abs{.x = r(TENON_DTYPE_C64, {3})}) == "f32[3]");
  CHECK(r.infer(op::complex_norm_sq{.x = r(TENON_DTYPE_C128, {3, 0})}) == "f64[3,0]");
  r.refuses(op::conj{.x = r(kF32, {3})}, Code::dtype_mismatch, {"operand x", "c64 or c128"});
  r.refuses(op::complex_abs{.x = r(kI32, {3})}, Code::dtype_mismatch, {"operand x", "i32[3]"});
}

TEST_CASE("cast: to complex numbers and between them, never from them") {
  Rig r;
  CHECK(r.infer(op::cast{.to = TENON_DTYPE_C64, .x = r(kBF16, {3})}) == "c64[3]");
  CHECK(r.infer(op::cast{.to = TENON_DTYPE_C128, .x = r(TENON_DTYPE_C64, {3})}) == "c128[3]");
  r.refuses(op::cast{.to = kF32, .x = r(TENON_DTYPE_C64, {3})}, Code::unsupported,
            {"c64[3]", "view_as_real"});
  r.refuses(op::cast{.to = TENON_DTYPE_C64, .x = r(TENON_DTYPE_F8E4M3, {3})}, Code::unsupported,
            {"f8e4m3[3]", "f32 first"});
}

TEST_CASE("cast: only casts to complex numbers need a new plugin") {
  Graph g;
  const Value x = g.input("x", {kF32, {3}});
  const auto version = [&](DType to) {
    const NodeInfo& node = g[g.add(op::cast{.to = to, .x = x})];
    return node.op->lowest_version(node);
  };
  CHECK(version(kF64) == 1);
  CHECK(version(TENON_DTYPE_C64) == 2);
  CHECK(version(TENON_DTYPE_C128) == 2);
}

TEST_SUITE_END();
