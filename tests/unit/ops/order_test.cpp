// SPDX-License-Identifier: Apache-2.0
// argmax, argmin, topk and sort: types and refusals.
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/order");

TEST_CASE("argmax, argmin: i64, the axis goes or stays as 1") {
  Rig r;
  const Value x = r(kF32, {2, 3, 4});
  CHECK(r.infer(op::argmax{.x = x}) == "i64[2,3]");
  CHECK(r.infer(op::argmin{.axis = 0, .keepdims = true, .x = x}) == "i64[1,3,4]");
  CHECK(r.infer(op::argmax{.axis = 1, .x = r(kF32, {0, 3})}) == "i64[0]");
  r.refuses(op::argmax{.axis = 0, .x = r(kF32, {0, 3})}, Code::shape_mismatch,
            {"operand x", "axis 0", "f32[0,3]"});
  CHECK(r.infer(op::argmin{.x = r(kBool, {2, 3})}) == "i64[2]");
  r.refuses(op::argmin{.x = r(TENON_DTYPE_F8E4M3, {3})}, Code::dtype_mismatch,
            {"operand x", "bool", "f8e4m3[3]"});
  r.refuses(op::argmax{.x = r(kF32, {})}, Code::invalid_argument, {"axis -1"});
}

TEST_CASE("topk: k within the axis") {
  Rig r;
  const Value x = r(kI16, {2, 5});
  CHECK(r.infer(op::topk{.k = 3, .x = x}) == "i16[2,3]");
  CHECK(r.infer(op::topk{.k = 2, .axis = 0, .x = x}, 1) == "i64[2,5]");
  CHECK(r.infer(op::topk{.k = 0, .x = x}) == "i16[2,0]");
  CHECK(r.infer(op::topk{.k = 1, .x = r(kBool, {2})}) == "bool[1]");
  r.refuses(op::topk{.k = 6, .x = x}, Code::invalid_argument, {"attribute k", "[0, 5]", "6"});
  r.refuses(op::topk{.k = -1, .x = x}, Code::invalid_argument, {"attribute k", "-1"});
}

TEST_CASE("sort: values and i64 indices of the same shape") {
  Rig r;
  CHECK(r.infer(op::sort{.x = r(kF64, {2, 5})}) == "f64[2,5]");
  CHECK(r.infer(op::sort{.axis = 0, .x = r(kU8, {2, 5})}, 1) == "i64[2,5]");
  CHECK(r.infer(op::sort{.x = r(kBool, {2, 5})}) == "bool[2,5]");
  r.refuses(op::sort{.axis = 2, .x = r(kF64, {2, 5})}, Code::invalid_argument, {"axis 2"});
}

TEST_SUITE_END();
