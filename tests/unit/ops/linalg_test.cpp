// SPDX-License-Identifier: Apache-2.0
// lu, triangular_solve, cholesky and what is made of them: types, refusals, costs. Values and
// gradients: sdk/conformance/cases/linalg.cpp.
#include "ir/text.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/linalg");

TEST_CASE("linalg: types") {
  Rig r;
  const Value a = r(kF32, {5, 3, 4, 4}), one = r(kF64, {4, 4});
  CHECK(r.infer(op::lu{.a = a}) == "f32[5,3,4,4]");
  CHECK(r.infer(op::lu{.a = a}, 1) == "i32[5,3,4]");
  CHECK(r.infer(op::cholesky{.a = one}) == "f64[4,4]");
  CHECK(r.infer(op::triangular_solve{.a = a, .b = r(kF32, {3, 4, 2})}) == "f32[5,3,4,2]");
  CHECK(r.infer(op::triangular_solve{.a = one, .b = r(kF64, {7, 4, 2})}) == "f64[7,4,2]");
  CHECK(r.infer(op::inverse{.a = a}) == "f32[5,3,4,4]");
  CHECK(r.infer(op::det{.a = a}) == "f32[5,3]");
  CHECK(r.infer(op::det{.a = one}) == "f64[]");
  // The rank of b chooses between vectors and matrices.
  CHECK(r.infer(op::dense_solve{.a = a, .b = r(kF32, {5, 3, 4})}) == "f32[5,3,4]");
  CHECK(r.infer(op::dense_solve{.a = a, .b = r(kF32, {1, 3, 4})}) == "f32[5,3,4]");
  CHECK(r.infer(op::dense_solve{.a = a, .b = r(kF32, {5, 1, 4, 2})}) == "f32[5,3,4,2]");
  CHECK(r.infer(op::dense_solve{.a = one, .b = r(kF64, {4})}) == "f64[4]");
  CHECK(r.infer(op::dense_solve{.a = one, .b = r(kF64, {4, 0})}) == "f64[4,0]");
  CHECK(r.infer(op::dense_solve{.a = one, .b = r(kF64, {9, 4, 2})}) == "f64[9,4,2]");
  op::dense_solve n{.a = a, .b = r(kF32, {2, 5, 3, 4, 2})};
  n.want_lu = n.want_perm = true;
  CHECK(r.infer(n) == "f32[2,5,3,4,2]");
  CHECK(r.infer(n, 1) == "f32[5,3,4,4]");
  CHECK(r.infer(n, 2) == "i32[5,3,4]");
  CHECK(r.infer(op::lu_solve{.lu = a, .perm = r(kI32, {5, 3, 4}), .b = r(kF32, {5, 3, 4})}) ==
        "f32[5,3,4]");
}

TEST_CASE("linalg: refusals") {
  Rig r;
  const Value a = r(kF32, {3, 4, 4});
  r.refuses(op::lu{.a = r(kF16, {4, 4})}, Code::dtype_mismatch,
            {"operand a", "f32 or f64", "f16[4,4]"});
  r.refuses(op::lu{.a = r(kF32, {4, 3})}, Code::shape_mismatch,
            {"operand a", "square", "f32[4,3]"});
  r.refuses(op::det{.a = r(kF32, {4})}, Code::shape_mismatch, {"operand a", "square", "f32[4]"});
  r.refuses(op::lu{.on_singular = "stop", .a = a}, Code::invalid_argument,
            {"attribute on_singular", "keep error nan", "stop"});
  r.refuses(op::inverse{.on_singular = "keep", .a = a}, Code::invalid_argument,
            {"attribute on_singular", "error nan", "keep"});
  r.refuses(op::triangular_solve{.a = a, .b = r(kF32, {3, 5, 2})}, Code::shape_mismatch,
            {"operand b", "[..,4,m]", "f32[3,5,2]"});
  r.refuses(op::triangular_solve{.a = a, .b = r(kF32, {4})}, Code::shape_mismatch,
            {"operand b", "[..,4,m]", "f32[4]"});
  r.refuses(op::triangular_solve{.a = a, .b = r(kF64, {4, 2})}, Code::dtype_mismatch, {"b", "f64"});
  r.refuses(op::triangular_solve{.a = a, .b = r(kF32, {2, 4, 2})}, Code::shape_mismatch,
            {"[3]", "[2]"});
  using Solve = op::dense_solve;
  r.refuses(Solve{.a = a, .b = r(kF32, {3, 5, 4})}, Code::shape_mismatch,
            {"operand b", "matrices [..,4,m]", "f32[3,4,4]", "f32[3,5,4]"});
  r.refuses(Solve{.a = a, .b = r(kF32, {3, 5})}, Code::shape_mismatch,
            {"operand b", "vectors [..,4] of rank 2", "f32[3,5]"});
  r.refuses(Solve{.a = a, .b = r(kF32, {4})}, Code::shape_mismatch,
            {"operand b", "vectors [..,4] of rank 2", "f32[4]"});
  r.refuses(Solve{.a = a, .b = r(kF64, {3, 4})}, Code::dtype_mismatch, {"b", "f64"});
  r.refuses(op::lu_solve{.lu = a, .perm = r(kI64, {3, 4}), .b = r(kF32, {3, 4})},
            Code::dtype_mismatch, {"operand perm", "i32", "i64"});
  r.refuses(op::lu_solve{.lu = a, .perm = r(kI32, {4}), .b = r(kF32, {3, 4})}, Code::shape_mismatch,
            {"operand perm", "[3,4]", "[4]"});
}

TEST_CASE("linalg: costs") {
  Rig r;
  const auto flops = [&](const auto& op) {
    const NodeId n = r.graph.add(op);
    return product_flops(r.graph, r.graph[n]);
  };
  const Value a = r(kF32, {5, 6, 6}), b = r(kF32, {5, 6, 2});
  CHECK(flops(op::lu{.a = a}) == 5 * 144);
  CHECK(flops(op::cholesky{.a = a}) == 5 * 72);
  CHECK(flops(op::triangular_solve{.a = a, .b = b}) == 5 * 72);
  CHECK(flops(op::dense_solve{.a = a, .b = b}) == 5 * (144 + 144));
  CHECK(flops(op::lu_solve{.lu = a, .perm = r(kI32, {5, 6}), .b = b}) == 5 * 144);
  CHECK(flops(op::inverse{.a = a}) == 5 * 576);
  CHECK(flops(op::det{.a = a}) == 5 * 144);
}

TEST_CASE("linalg: a solution becomes factors and two triangles") {
  Rig r;
  op::dense_solve n{.on_singular = "nan", .a = r(kF32, {3, 4, 4}), .b = r(kF32, {3, 4})};
  const NodeInfo node = r.graph[r.graph.add(n)];
  Builder b(r.graph);
  std::vector<Value> made;
  REQUIRE(lower_into(b, node, made));
  CHECK(b.type(made[0]).text() == "f32[3,4]");
  r.graph.output("x", made[0]);
  const std::string text = print(r.graph);
  CAPTURE(text);
  CHECK(text.find("= lu(") != std::string::npos);
  CHECK(text.find("on_singular=\"nan\"") != std::string::npos);
  CHECK(text.find("= lu_solve(") != std::string::npos);
}

TEST_SUITE_END();
