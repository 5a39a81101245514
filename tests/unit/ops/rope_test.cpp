// SPDX-License-Identifier: Apache-2.0
// rope: types and refusals of its layouts, widths and positions.
#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/rope");

TEST_CASE("rope: three layouts, tables by position or per token") {
  Rig r;
  const Value table = r(kF32, {16, 4});
  CHECK(r.infer(op::rope{.x = r(kF32, {2, 5, 3, 8}), .cos = table, .sin = table}) ==
        "f32[2,5,3,8]");
  CHECK(r.infer(
            op::rope{.layout = "bhsd", .x = r(kBF16, {2, 3, 5, 8}), .cos = table, .sin = table}) ==
        "bf16[2,3,5,8]");
  CHECK(
      r.infer(op::rope{
          .layout = "bsh", .num_heads = 3, .x = r(kF32, {2, 5, 24}), .cos = table, .sin = table}) ==
      "f32[2,5,24]");
  CHECK(r.infer(op::rope{
            .n_rot = 8, .offset = 11, .x = r(kF32, {2, 5, 3, 10}), .cos = table, .sin = table}) ==
        "f32[2,5,3,10]");
  const Value token = r(kF64, {2, 5, 4});
  CHECK(r.infer(op::rope{.x = r(kF64, {2, 5, 3, 8}), .cos = token, .sin = token}) ==
        "f64[2,5,3,8]");
  CHECK(r.infer(op::rope{.x = r(kF32, {2, 99, 3, 8}),
                         .cos = table,
                         .sin = table,
                         .position_ids = r(kI32, {2, 99})}) == "f32[2,99,3,8]");
}

TEST_CASE("rope: widths and positions") {
  Rig r;
  const Value x = r(kF32, {2, 5, 3, 8}), table = r(kF32, {16, 4}), ids = r(kI64, {2, 5});
  const Value token = r(kF32, {2, 5, 4}), wide = r(kF32, {16, 8});
  const Code shape = Code::shape_mismatch, bad = Code::invalid_argument;
  r.refuses(op::rope{.n_rot = 7, .x = x, .cos = table, .sin = table}, shape,
            {"n_rot", "even", "7"});
  r.refuses(op::rope{.n_rot = 10, .x = x, .cos = table, .sin = table}, shape, {"n_rot", "8", "10"});
  r.refuses(op::rope{.x = x, .cos = wide, .sin = wide}, shape, {"cos", "n_rot/2", "f32[16,8]"});
  r.refuses(op::rope{.n_rot = 4, .x = x, .cos = table, .sin = table}, shape,
            {"cos", "[P,2]", "f32[16,4]"});
  r.refuses(op::rope{.x = x, .cos = table, .sin = wide}, shape, {"sin", "[16,4]", "f32[16,8]"});
  r.refuses(op::rope{.offset = 12, .x = x, .cos = table, .sin = table}, shape,
            {"12 + 5", "f32[16,4]"});
  r.refuses(op::rope{.offset = INT64_MAX, .x = x, .cos = table, .sin = table}, shape,
            {"offset + S"});
  r.refuses(op::rope{.offset = -1, .x = x, .cos = table, .sin = table}, bad, {"offset", "-1"});
  r.refuses(op::rope{.offset = 1, .x = x, .cos = table, .sin = table, .position_ids = ids}, bad,
            {"offset", "position_ids"});
  r.refuses(op::rope{.x = x, .cos = token, .sin = token, .position_ids = ids}, bad,
            {"position_ids"});
  r.refuses(op::rope{.x = x, .cos = table, .sin = table, .position_ids = r(kI64, {5})}, shape,
            {"position_ids", "[2,5]", "i64[5]"});
  r.refuses(op::rope{.x = x, .cos = table, .sin = table, .position_ids = r(kF32, {2, 5})},
            Code::dtype_mismatch, {"position_ids"});
  const Value half = r(kF16, {16, 4});
  r.refuses(op::rope{.x = r(kF16, {2, 5, 3, 8}), .cos = half, .sin = half}, Code::dtype_mismatch,
            {"cos", "f32", "f16[16,4]"});
  r.refuses(
      op::rope{
          .layout = "bsh", .num_heads = 5, .x = r(kF32, {2, 5, 24}), .cos = table, .sin = table},
      shape, {"num_heads", "5"});
  r.refuses(op::rope{.layout = "bsh", .x = r(kF32, {2, 5, 24}), .cos = table, .sin = table}, shape,
            {"num_heads", "0"});
  r.refuses(op::rope{.layout = "bsd", .x = x, .cos = table, .sin = table}, bad, {"layout", "bsd"});
}

TEST_CASE("rope: heads of no elements, in either pairing") {
  for (const bool interleaved : {false, true}) {
    const auto f = [=](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::rope{.interleaved = interleaved, .x = in[0], .cos = in[1], .sin = in[2]});
    };
    const Tensor x = tensor(kF32, {2, 3, 1, 0}, {}), table = tensor(kF32, {4, 0}, {});
    CHECK(forward(f, {x, table, table}).data.empty());
    CHECK(gradients(f, {x, table, table}, {true, true, true})[1].data.empty());
  }
}

TEST_CASE("rope_axial2d: types and refusals") {
  Rig r;
  using Grid = op::rope_axial2d;
  const Value x = r(kBF16, {2, 14, 3, 8});
  CHECK(r.infer(Grid{.width = 3, .height = 2, .exclude_tail = 2, .x = x}) == "bf16[2,14,3,8]");
  const Code bad = Code::invalid_argument, shape = Code::shape_mismatch;
  r.refuses(Grid{.width = 3, .x = x}, bad, {"attribute height", "given 0"});
  r.refuses(Grid{.width = -3, .height = 2, .x = x}, bad, {"attribute width", "given -3"});
  r.refuses(Grid{.width = 7, .height = 2, .theta = 0, .x = x}, bad, {"attribute theta", "> 0"});
  r.refuses(Grid{.width = 7, .height = 2, .exclude_tail = 15, .x = x}, bad,
            {"attribute exclude_tail", "0 to 14", "given 15"});
  r.refuses(Grid{.width = 3, .height = 2, .x = x}, shape,
            {"operand x", "whole grids of 3 x 2", "bf16[2,14,3,8]"});
  r.refuses(Grid{.width = 7, .height = 2, .x = r(kF32, {2, 14, 3, 6})}, shape,
            {"operand x", "multiple of 4", "f32[2,14,3,6]"});
  r.refuses(Grid{.width = 7, .height = 2, .x = r(kF32, {14, 3, 8})}, shape,
            {"operand x", "rank 4"});
  r.refuses(Grid{.width = 7, .height = 2, .x = r(kI32, {2, 14, 3, 8})}, Code::dtype_mismatch,
            {"operand x", "i32"});
}

TEST_SUITE_END();
