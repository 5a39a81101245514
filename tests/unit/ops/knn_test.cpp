// SPDX-License-Identifier: Apache-2.0
// knn: types, refusals and costs. Neighbours and gradients: sdk/conformance/cases/knn.cpp.
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/knn");

TEST_CASE("knn: types") {
  Rig r;
  const Value x = r(kF32, {20, 8});
  CHECK(r.infer(op::knn{.k = 4, .x = x}) == "i32[20,4]");
  CHECK(r.infer(op::knn{.k = 4, .x = x}, 1) == "f32[20,4]");
  CHECK(r.infer(op::knn{.k = 30, .x = x, .y = r(kF32, {30, 8})}) == "i32[20,30]");
  CHECK(r.infer(op::knn{.k = 20, .exclude_self = false, .x = x}) == "i32[20,20]");
  CHECK(r.infer(op::knn{.k = 2, .x = r(kBF16, {5, 6, 3}), .y = r(kBF16, {5, 9, 3})}, 1) ==
        "f32[5,6,2]");
  CHECK(r.infer(op::knn{.k = 2, .exclude_self = false, .dist = r(kF64, {3, 7})}, 1) == "f64[3,2]");
  CHECK(r.infer(op::knn{.k = 6, .dist = r(kF32, {7, 7})}) == "i32[7,6]");
  CHECK(r.infer(op::knn{.k = 2, .x = r(kF32, {0, 8}), .y = r(kF32, {3, 8})}) == "i32[0,2]");
}

TEST_CASE("knn: refusals") {
  Rig r;
  const Value x = r(kF32, {20, 8});
  const Code bad = Code::invalid_argument;
  r.refuses(op::knn{}, bad, {"x and dist", "neither"});
  r.refuses(op::knn{.x = x, .dist = r(kF32, {20, 20})}, bad, {"x and dist", "both"});
  r.refuses(op::knn{.y = x, .dist = r(kF32, {20, 20})}, bad, {"operand y", "dist"});
  r.refuses(op::knn{.k = 0, .x = x}, bad, {"attribute k", "19", "given 0"});
  r.refuses(op::knn{.k = 20, .x = x}, bad, {"attribute k", "19", "given 20"});
  r.refuses(op::knn{.k = 4, .x = x, .y = r(kF32, {3, 8})}, bad, {"attribute k", "3", "given 4"});
  r.refuses(op::knn{.metric = "hamming", .x = x}, bad,
            {"attribute metric", "euclidean sqeuclidean cosine inner", "hamming"});
  r.refuses(op::knn{.x = r(kF32, {20, 0})}, bad, {"operand x", "coordinate", "[20,0]"});
  r.refuses(op::knn{.x = r(kI32, {20, 8})}, Code::dtype_mismatch, {"operand x", "i32"});
  r.refuses(op::knn{.x = x, .y = r(kF16, {20, 8})}, Code::dtype_mismatch, {"operand y", "f16"});
  const Code shape = Code::shape_mismatch;
  r.refuses(op::knn{.x = r(kF32, {20})}, shape, {"operand x", "rank >= 2", "[20]"});
  r.refuses(op::knn{.x = x, .y = r(kF32, {1, 20, 8})}, shape, {"operand y", "rank 2"});
  r.refuses(op::knn{.x = x, .y = r(kF32, {20, 7})}, shape, {"operand y", "[20,8]", "[20,7]"});
  r.refuses(op::knn{.dist = r(kF32, {7, 8})}, shape, {"operand dist", "square", "[7,8]"});
}

TEST_CASE("knn: costs") {
  Rig r;
  const NodeId node =
      r.graph.add(op::knn{.k = 4, .x = r(kF32, {2, 20, 8}), .y = r(kF32, {2, 30, 8})}, "here");
  CHECK(product_flops(r.graph, r.graph[node]) == 2.0 * 2 * 20 * 30 * 8);
  CHECK(least_bytes(r.graph, r.graph[node]) == 4.0 * 2 * (20 * 8 + 30 * 8 + 20 * 4 * 2));
}

TEST_SUITE_END();
