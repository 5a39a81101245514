// SPDX-License-Identifier: Apache-2.0
// gather, the scatters and the dynamic slices: types and refusals.
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/index");

TEST_CASE("gather: the axis gives way to the indices' axes") {
  Rig r;
  const Value data = r(kF16, {5, 6, 7}), ids = r(kI32, {2, 3});
  CHECK(r.infer(op::gather{.data = data, .indices = ids}) == "f16[2,3,6,7]");
  CHECK(r.infer(op::gather{.axis = -1, .oob = "skip", .data = data, .indices = ids}) ==
        "f16[5,6,2,3]");
  CHECK(r.infer(op::gather{.axis = 1, .data = data, .indices = r(kI64, {})}) == "f16[5,7]");
  CHECK(r.infer(op::gather{.data = r(kF16, {0, 6}), .indices = r(kI64, {0})}) == "f16[0,6]");
  CHECK(r.infer(op::gather{.oob = "skip", .data = r(kF16, {0, 6}), .indices = ids}) ==
        "f16[2,3,6]");
}

TEST_CASE("gather: refusals") {
  Rig r;
  const Value data = r(kF16, {5, 6, 7}), ids = r(kI32, {2, 3});
  r.refuses(op::gather{.data = data, .indices = r(kF32, {2})}, Code::dtype_mismatch,
            {"indices", "f32[2]"});
  r.refuses(op::gather{.data = data, .indices = r(kU32, {2})}, Code::dtype_mismatch,
            {"indices", "u32[2]"});
  r.refuses(op::gather{.data = r(kF16, {}), .indices = ids}, Code::shape_mismatch,
            {"data", "rank >= 1"});
  r.refuses(op::gather{.axis = 3, .data = data, .indices = ids}, Code::invalid_argument,
            {"axis 3"});
  r.refuses(op::gather{.oob = "wrap", .data = data, .indices = ids}, Code::invalid_argument,
            {"oob", "wrap"});
  r.refuses(op::gather{.data = r(kF16, {0, 6}), .indices = ids}, Code::index_out_of_range,
            {"indices", "i32[2,3]"});
  r.refuses(op::gather{.oob = "clamp", .data = r(kF16, {0, 6}), .indices = ids},
            Code::index_out_of_range, {"indices"});
  r.refuses(op::gather{.data = data, .indices = r(kI64, Shape(Ints(7, 1)))}, Code::unsupported,
            {"rank 9"});
}

TEST_CASE("non_zero: a row for each element, or as many as the bound, and a column per axis") {
  Rig r;
  const Value x = r(kF16, {5, 2, 3});
  CHECK(r.infer(op::non_zero{.x = x}) == "i64[30,3]");
  CHECK(r.infer(op::non_zero{.bound = 7, .x = x}) == "i64[7,3]");
  CHECK(r.infer(op::non_zero{.bound = 40, .x = r(kBool, {})}) == "i64[40,0]");
  CHECK(r.infer(op::non_zero{.x = r(kU8, {0, 4})}) == "i64[0,2]");
  r.refuses(op::non_zero{.bound = -2, .x = x}, Code::invalid_argument, {"bound", "-2"});
  r.refuses(op::non_zero{.x = r(TENON_DTYPE_F8E4M3, {4})}, Code::dtype_mismatch, {"x", "f8e4m3"});
}

TEST_CASE("gather_backward: the indices' axes give way to dim") {
  Rig r;
  const Value dy = r(kF32, {5, 2, 3, 7}), ids = r(kI64, {2, 3});
  CHECK(r.infer(op::gather_backward{.axis = 1, .dim = 9, .dy = dy, .indices = ids}) ==
        "f32[5,9,7]");
  CHECK(r.infer(op::gather_backward{
            .axis = -2, .dim = 9, .padding_idx = -9, .dy = dy, .indices = ids}) == "f32[5,9,7]");
  r.refuses(op::gather_backward{.axis = 0, .dim = 9, .dy = dy, .indices = ids},
            Code::shape_mismatch, {"dy", "[2,3]", "axis 0"});
  r.refuses(op::gather_backward{.axis = 1, .dim = 9, .padding_idx = 9, .dy = dy, .indices = ids},
            Code::invalid_argument, {"padding_idx", "9"});
  r.refuses(op::gather_backward{.axis = 1, .dim = -1, .dy = dy, .indices = ids},
            Code::invalid_argument, {"dim", "-1"});
  r.refuses(op::gather_backward{.axis = 1, .dim = 0, .dy = dy, .indices = ids},
            Code::index_out_of_range, {"indices"});
  r.refuses(op::gather_backward{.dim = 9, .dy = r(kF32, {2}), .indices = r(kI64, {2, 1, 1})},
            Code::shape_mismatch, {"dy", "rank of indices"});
  r.refuses(op::gather_backward{.axis = 1, .dim = 9, .dy = r(kI32, {5, 2, 3, 7}), .indices = ids},
            Code::dtype_mismatch, {"dy"});
}

TEST_CASE("scatter: updates have the gathered shape") {
  Rig r;
  const Value base = r(kBool, {5, 6}), ids = r(kI32, {3}), rows = r(kBool, {3, 6});
  CHECK(r.infer(op::scatter{.base = base, .indices = ids, .updates = rows}) == "bool[5,6]");
  CHECK(
      r.infer(op::scatter{
          .axis = 1, .oob = "clamp", .base = base, .indices = ids, .updates = r(kBool, {5, 3})}) ==
      "bool[5,6]");
  r.refuses(op::scatter{.axis = 1, .base = base, .indices = ids, .updates = rows},
            Code::shape_mismatch, {"updates", "[5,3]", "bool[3,6]"});
  r.refuses(op::scatter{.base = base, .indices = ids, .updates = r(kU8, {3, 6})},
            Code::dtype_mismatch, {"updates", "bool", "u8[3,6]"});
  r.refuses(op::scatter{.base = r(kBool, {0, 6}), .indices = ids, .updates = rows},
            Code::index_out_of_range, {"indices"});
}

TEST_CASE("scatter_add: a base or an axis length") {
  Rig r;
  const Value ids = r(kI32, {3, 2}), updates = r(kF32, {4, 3, 2}), base = r(kF32, {4, 9});
  CHECK(r.infer(op::scatter_add{.axis = 1, .dim = 9, .updates = updates, .indices = ids}) ==
        "f32[4,9]");
  CHECK(r.infer(op::scatter_add{.axis = 1, .updates = updates, .indices = ids, .base = base}) ==
        "f32[4,9]");
  CHECK(
      r.infer(op::scatter_add{
          .axis = -1, .dim = 9, .oob = "skip", .updates = updates, .indices = ids, .base = base}) ==
      "f32[4,9]");
  r.refuses(op::scatter_add{.axis = 1, .dim = 8, .updates = updates, .indices = ids, .base = base},
            Code::invalid_argument, {"dim", "9", "8"});
  r.refuses(op::scatter_add{.axis = 0, .updates = updates, .indices = ids, .base = base},
            Code::shape_mismatch, {"updates", "[3,2,9]"});
  r.refuses(op::scatter_add{.axis = 1, .updates = updates, .indices = ids, .base = r(kF64, {4, 9})},
            Code::dtype_mismatch, {"base", "f32", "f64"});
  r.refuses(
      op::scatter_add{.axis = 1, .dim = 9, .oob = "clamp", .updates = updates, .indices = ids},
      Code::invalid_argument, {"oob", "clamp"});
  r.refuses(op::scatter_add{.dim = 9, .updates = r(kBool, {3}), .indices = r(kI32, {3})},
            Code::dtype_mismatch, {"updates", "bool"});
}

TEST_CASE("dynamic_slice, dynamic_update_slice: a block inside the operand") {
  Rig r;
  const Value x = r(kBF16, {5, 6}), start = r(kI32, {2});
  CHECK(r.infer(op::dynamic_slice{.size = {5, 2}, .x = x, .start = start}) == "bf16[5,2]");
  CHECK(r.infer(op::dynamic_slice{.x = r(kBF16, {}), .start = r(kI64, {0})}) == "bf16[]");
  r.refuses(op::dynamic_slice{.size = {6, 2}, .x = x, .start = start}, Code::shape_mismatch,
            {"axis 0", "6", "bf16[5,6]"});
  r.refuses(op::dynamic_slice{.size = {5}, .x = x, .start = start}, Code::invalid_argument,
            {"size", "one entry per axis"});
  r.refuses(op::dynamic_slice{.size = {-1, 1}, .x = x, .start = start}, Code::invalid_argument,
            {"size", "-1"});
  r.refuses(op::dynamic_slice{.size = {5, 2}, .x = x, .start = r(kI32, {1})}, Code::shape_mismatch,
            {"start", "[2]", "i32[1]"});
  r.refuses(op::dynamic_slice{.size = {5, 2}, .oob = "skip", .x = x, .start = start},
            Code::invalid_argument, {"oob", "skip"});
  CHECK(r.infer(op::dynamic_update_slice{.base = x, .update = r(kBF16, {1, 6}), .start = start}) ==
        "bf16[5,6]");
  r.refuses(op::dynamic_update_slice{.base = x, .update = r(kBF16, {1, 7}), .start = start},
            Code::shape_mismatch, {"update", "axis 1", "bf16[1,7]"});
  r.refuses(op::dynamic_update_slice{.base = x, .update = r(kBF16, {6}), .start = start},
            Code::shape_mismatch, {"update", "rank 2"});
  r.refuses(op::dynamic_update_slice{.base = x, .update = r(kF32, {1, 6}), .start = start},
            Code::dtype_mismatch, {"update"});
  r.refuses(op::dynamic_update_slice{.base = x, .update = r(kBF16, {1, 6}), .start = r(kF32, {2})},
            Code::dtype_mismatch, {"start"});
}

TEST_SUITE_END();
