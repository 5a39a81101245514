// SPDX-License-Identifier: Apache-2.0
// Convolutions and columns: shapes, refusals, costs, hand-computed values, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/conv");

namespace {

Tensor counted(Shape shape, double first = 1) {
  std::vector<double> data(static_cast<size_t>(shape.elements()));
  for (size_t k = 0; k < data.size(); ++k) data[k] = first + static_cast<double>(k);
  return tensor(kF64, shape, std::move(data));
}

}  // namespace

TEST_CASE("conv: shapes of one to three spatial axes") {
  Rig r;
  const Value line = r(kF32, {2, 6, 30}), image = r(kF16, {2, 6, 10, 9}),
              volume = r(kF64, {1, 2, 5, 6, 7});
  CHECK(r.infer(op::conv{.stride = {2}, .pads = {1, 2}, .x = line, .w = r(kF32, {4, 6, 5})}) ==
        "f32[2,4,15]");
  CHECK(
      r.infer(op::conv{.dilation = {3, 2}, .groups = 3, .x = image, .w = r(kF16, {9, 2, 3, 2})}) ==
      "f16[2,9,4,7]");
  CHECK(r.infer(op::conv{.x = volume, .w = r(kF64, {3, 2, 5, 1, 2})}) == "f64[1,3,1,6,6]");
  CHECK(r.infer(op::conv{.x = r(kF32, {0, 1, 4}), .w = r(kF32, {2, 1, 2})}) == "f32[0,2,3]");
  op::conv kept{.x = line, .w = r(kF32, {4, 6, 5}), .want_pre_act = true};
  CHECK(r.infer(kept, 1) == "f32[2,4,26]");
  CHECK(r.infer(op::conv_backward_input{
            .stride = {2}, .size = {31}, .dy = r(kF32, {2, 4, 14}), .w = r(kF32, {4, 6, 5})}) ==
        "f32[2,6,31]");
  CHECK(r.infer(op::conv_backward_weight{.groups = 2,
                                         .kernel = {3, 3},
                                         .dy = r(kF32, {2, 4, 3, 2}),
                                         .x = r(kF32, {2, 6, 5, 4})}) == "f32[4,3,3,3]");
}

TEST_CASE("conv_transpose: shapes") {
  Rig r;
  const Value x = r(kF32, {2, 6, 4, 5});
  CHECK(r.infer(op::conv_transpose{.stride = {2, 2}, .x = x, .w = r(kF32, {6, 3, 2, 2})}) ==
        "f32[2,3,8,10]");
  op::conv_transpose n{.stride = {2, 3}, .pads = {1, 0, 1, 2}, .groups = 2};
  n.output_padding = {1, 2}, n.x = x, n.w = r(kF32, {6, 3, 3, 3});
  CHECK(r.infer(n) == "f32[2,6,8,15]");
  n.output_padding = {1, 3};
  r.refuses(n, Code::invalid_argument, {"output_padding", "less than 3", "[1,3]"});
  r.refuses(op::conv_transpose{.x = x, .w = r(kF32, {3, 6, 2, 2})}, Code::shape_mismatch,
            {"operand w", "6 channels along axis 0"});
  r.refuses(op::conv_transpose{.pads = {9, 0, 9, 0}, .x = x, .w = r(kF32, {6, 1, 2, 2})},
            Code::invalid_argument, {"pads", "pixels along spatial axis 0"});
}

TEST_CASE("conv: refusals") {
  Rig r;
  const Value x = r(kF32, {1, 4, 5, 5}), w = r(kF32, {2, 4, 3, 3});
  r.refuses(op::conv{.x = r(kF32, {4, 5}), .w = w}, Code::shape_mismatch,
            {"operand x", "1 to 3 spatial axes"});
  r.refuses(op::conv{.x = r(kI32, {1, 4, 5, 5}), .w = w}, Code::dtype_mismatch, {"operand x"});
  r.refuses(op::conv{.x = x, .w = r(kF16, {2, 4, 3, 3})}, Code::dtype_mismatch, {"w", "f16"});
  r.refuses(op::conv{.groups = 3, .x = x, .w = w}, Code::shape_mismatch, {"3 groups"});
  r.refuses(op::conv{.x = x, .w = r(kF32, {2, 3, 3, 3})}, Code::shape_mismatch,
            {"operand w", "4 channels", "[2,3,3,3]"});
  r.refuses(op::conv{.stride = {1}, .x = x, .w = w}, Code::invalid_argument,
            {"stride", "2 entries"});
  r.refuses(op::conv{.dilation = {1, 0}, .x = x, .w = w}, Code::invalid_argument,
            {"dilation", "[1,0]"});
  r.refuses(op::conv{.pads = {1, 1}, .x = x, .w = w}, Code::invalid_argument,
            {"pads", "4 entries"});
  r.refuses(op::conv{.x = x, .w = r(kF32, {2, 4, 0, 3})}, Code::shape_mismatch,
            {"1 to 2^31 - 1 taps"});
  r.refuses(op::conv{.x = x, .w = r(kF32, {2, 4, 6, 3})}, Code::shape_mismatch,
            {"extent 6", "5 padded"});
  r.refuses(op::conv{.x = x, .w = w, .bias = r(kF32, {3})}, Code::shape_mismatch, {"bias"});
  r.refuses(op::conv{.x = x, .w = w, .bias = r(kF16, {2})}, Code::dtype_mismatch, {"bias"});
  r.refuses(op::conv{.x = x, .w = w, .residual = x}, Code::shape_mismatch, {"residual"});
  r.refuses(op::conv{.act_alpha = 0.5, .x = x, .w = w}, Code::invalid_argument, {"act_alpha"});
  r.refuses(op::conv_backward_input{.size = {6, 5}, .dy = x, .w = r(kF32, {4, 4, 3, 3})},
            Code::shape_mismatch, {"dy", "[1,4,4,3]"});
  r.refuses(op::conv_backward_weight{.kernel = {3}, .dy = x, .x = x}, Code::invalid_argument,
            {"kernel", "2 entries"});
  // Numbers whose products do not fit into 64 bits.
  const int64_t most = (int64_t{1} << 31) - 1;
  r.refuses(op::conv{.pads = {most, most, most, most},
                     .x = r(kF32, {1 << 20, 1, 1, 1}),
                     .w = r(kF32, {1, 1, 1, 1})},
            Code::invalid_argument, {"overflows"});
  r.refuses(
      op::im2col{
          .kernel = {most, most}, .pads = {most, most, most, most}, .x = r(kF32, {1, 1, 1, 1})},
      Code::invalid_argument, {"overflows"});
}

TEST_CASE("conv: values, and zeros outside of x") {
  const Function square = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::conv{.x = in[0], .w = in[1]});
  };
  CHECK(forward(square, {counted({1, 1, 3, 3}), counted({1, 1, 2, 2})}).data ==
        std::vector<double>{37, 47, 67, 77});
  const Function ends = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::conv{.stride = {2},
                          .pads = {1, 1},
                          .groups = 2,
                          .act = "relu",
                          .x = in[0],
                          .w = in[1],
                          .bias = in[2],
                          .residual = in[3]});
  };
  // Windows of channel 0: (0,1,2), (2,3,0) times 1 2 3; of channel 1: (0,4,5), (5,6,0) times -1 0 1.
  const Tensor y =
      forward(ends, {counted({1, 2, 3}), tensor(kF64, {2, 1, 3}, {1, 2, 3, -1, 0, 1}),
                     tensor(kF64, {2}, {10, -7}), tensor(kF64, {1, 2, 2}, {0, -100, 3, 1})});
  CHECK(y.data == std::vector<double>{18, 0, 1, 0});
}

TEST_CASE("conv_backward_weight: the weight of each window's tap") {
  const Function dw = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::conv_backward_weight{.kernel = {2}, .dy = in[0], .x = in[1]});
  };
  // Two examples: 1·1 + 2·2 + 3·4 + 4·5, 1·2 + 2·3 + 3·5 + 4·6.
  CHECK(forward(dw, {counted({2, 1, 2}), counted({2, 1, 3})}).data == std::vector<double>{37, 47});
}

TEST_CASE("conv: costs") {
  Rig r;
  const auto flops = [&](const auto& n) { return product_flops(r.graph, r.graph[r.graph.add(n)]); };
  const Value x = r(kF32, {2, 6, 5, 5}), w = r(kF32, {4, 3, 3, 3}), dy = r(kF32, {2, 4, 3, 3});
  const double each = 2.0 * 2 * 4 * 9 * 27;
  CHECK(flops(op::conv{.groups = 2, .x = x, .w = w}) == each);
  CHECK(flops(op::conv_backward_input{.groups = 2, .size = {5, 5}, .dy = dy, .w = w}) == each);
  CHECK(flops(op::conv_backward_weight{.groups = 2, .kernel = {3, 3}, .dy = dy, .x = x}) == each);
  CHECK(flops(op::conv_transpose{.groups = 2, .x = dy, .w = w}) == each);
  CHECK(flops(op::im2col{.kernel = {3, 3}, .x = x}) == 0);
}

TEST_SUITE_END();
