// SPDX-License-Identifier: Apache-2.0
// The 2d pools: windows, refusals, ties and padding, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/pool");

namespace {

constexpr double kInf = INFINITY;

Function maximum(const op::maxpool2d& windows) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::maxpool2d n = windows;
    n.x = in[0];
    return b.add(n)[0];
  };
}
Function position(const op::maxpool2d& windows) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::maxpool2d n = windows;
    n.x = in[0], n.want_indices = true;
    return b.add(n)[1];
  };
}
Function average(const op::avgpool2d& windows) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::avgpool2d n = windows;
    n.x = in[0];
    return b.add(n);
  };
}

// Different numbers in no order.
Tensor shuffled(Shape shape) {
  std::vector<double> data(static_cast<size_t>(shape.elements()));
  for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<double>(k * 37 % 101) / 16;
  return tensor(kF64, shape, std::move(data));
}

}  // namespace

TEST_CASE("pools: how many windows there are") {
  Rig r;
  const auto count = [&](int64_t size, int64_t kernel, int64_t stride, int64_t pad, bool ceil_mode,
                         int64_t dilation = 1) {
    op::maxpool2d n{.kernel = {kernel, 1}, .stride = {stride, 1}};
    n.pads = {pad, 0, pad, 0}, n.dilation = {dilation, 1}, n.ceil_mode = ceil_mode;
    n.x = r(kF32, {1, 1, size, 1});
    return r.infer(n);
  };
  CHECK(count(5, 2, 2, 0, false) == "f32[1,1,2,1]");
  CHECK(count(5, 2, 2, 0, true) == "f32[1,1,3,1]");
  CHECK(count(6, 2, 2, 0, true) == "f32[1,1,3,1]");
  CHECK(count(5, 3, 2, 1, false) == "f32[1,1,3,1]");
  CHECK(count(7, 3, 1, 0, false, 3) == "f32[1,1,1,1]");
  CHECK(count(4, 3, 2, 1, true) == "f32[1,1,3,1]");
  // A third window would start at 5, in the padding at the end.
  CHECK(count(5, 2, 3, 1, true) == "f32[1,1,2,1]");
  const Value x = r(kI32, {2, 3, 4, 6});
  op::maxpool2d n{.kernel = {2, 3}, .x = x, .want_indices = true};
  CHECK(r.infer(n) == "i32[2,3,2,2]");
  CHECK(r.infer(n, 1) == "i64[2,3,2,2]");
  op::avgpool2d_backward back{.kernel = {2, 3}, .size = {5, 7}, .dy = r(kF16, {2, 3, 2, 2})};
  CHECK(r.infer(back) == "f16[2,3,5,7]");
  CHECK(r.infer(op::maxpool2d{.kernel = {2, 2}, .x = r(kF32, {0, 3, 4, 4})}) == "f32[0,3,2,2]");
}

TEST_CASE("pools: refusals") {
  Rig r;
  const Value x = r(kF32, {1, 2, 4, 4});
  using Max = op::maxpool2d;
  r.refuses(Max{.kernel = {2, 2}, .x = r(kF32, {2, 4, 4})}, Code::shape_mismatch, {"x", "rank 4"});
  r.refuses(Max{.x = x}, Code::invalid_argument, {"kernel", "2 entries", "[]"});
  r.refuses(Max{.kernel = {2, 0}, .x = x}, Code::invalid_argument, {"kernel", "[2,0]"});
  r.refuses(Max{.kernel = {int64_t{1} << 40, 2}, .x = x}, Code::invalid_argument,
            {"kernel", "2^31"});
  r.refuses(Max{.kernel = {2, 2}, .stride = {0, 1}, .x = x}, Code::invalid_argument,
            {"stride", "[0,1]"});
  r.refuses(Max{.kernel = {2, 2}, .dilation = {1}, .x = x}, Code::invalid_argument,
            {"dilation", "[1]"});
  r.refuses(Max{.kernel = {2, 2}, .pads = {0, 0, 0, 2}, .x = x}, Code::invalid_argument,
            {"pads", "extent 2", "axis 3"});
  r.refuses(Max{.kernel = {2, 3}, .dilation = {1, 2}, .x = x}, Code::shape_mismatch,
            {"extent 5", "4 padded", "axis 3"});
  r.refuses(Max{.kernel = {2, 2}, .x = r(kBool, {1, 2, 4, 4})}, Code::dtype_mismatch,
            {"x", "bool"});
  r.refuses(Max{.kernel = {1, 1}, .x = r(kF32, {1, 2, 0, 4})}, Code::invalid_argument,
            {"pixel", "axis 2"});
  r.refuses(op::avgpool2d{.kernel = {2, 2}, .x = r(kI32, {1, 2, 4, 4})}, Code::unsupported,
            {"integers", "i32[1,2,4,4]"});
  r.refuses(op::avgpool2d{.kernel = {2, 2}, .divisor_override = -1, .x = x}, Code::invalid_argument,
            {"divisor_override", "-1"});
  r.refuses(op::maxpool2d_backward{.kernel = {2, 2}, .dy = x, .x = x}, Code::shape_mismatch,
            {"dy", "[1,2,2,2]"});
  r.refuses(op::avgpool2d_backward{.kernel = {2, 2}, .size = {4}, .dy = x}, Code::invalid_argument,
            {"size", "[4]"});
}

TEST_CASE("maxpool2d: ties, NaN, padding and windows without taps") {
  const op::maxpool2d two{.kernel = {2, 2}};
  const auto at = [&](std::vector<double> x) {
    return forward(position(two), {tensor(kF32, {1, 1, 2, 2}, std::move(x))})[0];
  };
  CHECK(at({1, 5, 5, 5}) == 1);
  CHECK(at({7, NAN, NAN, 9}) == 2);
  CHECK(at({-kInf, -kInf, -kInf, -kInf}) == 0);
  CHECK(at({-kInf, -kInf, -3, -kInf}) == 2);
  const op::maxpool2d hole{
      .kernel = {1, 2}, .stride = {1, 1}, .pads = {0, 2, 0, 2}, .dilation = {1, 3}};
  const Tensor x = tensor(kF32, {1, 1, 1, 2}, {-4, -5});
  CHECK(forward(maximum(hole), {x}).data == std::vector<double>{-5, -kInf, -4});
  CHECK(forward(position(hole), {x}).data == std::vector<double>{1, -1, 0});
}

TEST_CASE("maxpool2d: a window of -inf still routes its gradient") {
  const auto dx = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::maxpool2d_backward{.kernel = {1, 2}, .dy = in[0], .x = in[1]});
  };
  const Tensor x = tensor(kF32, {1, 2, 1, 2}, {-kInf, -kInf, 1, NAN});
  const Tensor dy = tensor(kF32, {1, 2, 1, 1}, {3, 4});
  CHECK(forward(dx, {dy, x}).data == std::vector<double>{3, 0, 0, 4});
}

TEST_CASE("avgpool2d: what a window is divided by") {
  const Tensor x = tensor(kF64, {1, 1, 1, 3}, {6, 12, 24});
  op::avgpool2d n{.kernel = {1, 2}, .stride = {1, 2}, .pads = {0, 1, 0, 1}, .ceil_mode = true};
  // Windows {pad, 6}, {12, 24}; one that starts at 3 would lie in the padding.
  CHECK(forward(average(n), {x}).data == std::vector<double>{6, 18});
  n.count_include_pad = true;
  CHECK(forward(average(n), {x}).data == std::vector<double>{3, 18});
  n.divisor_override = 4;
  CHECK(forward(average(n), {x}).data == std::vector<double>{1.5, 9});
  // Beyond the padding nothing counts: {24, pad, beyond} has two.
  const op::avgpool2d over{.kernel = {1, 3},
                           .stride = {1, 2},
                           .pads = {0, 0, 0, 1},
                           .ceil_mode = true,
                           .count_include_pad = true};
  CHECK(forward(average(over), {x}).data == std::vector<double>{14, 12});
}

TEST_CASE("pools: gradients, also of the second order") {
  const op::maxpool2d max{.kernel = {3, 2},
                          .stride = {2, 1},
                          .pads = {1, 1, 0, 1},
                          .dilation = {1, 2},
                          .ceil_mode = true};
  CHECK(gradient_error(maximum(max), {shuffled({2, 1, 6, 5})}) < 2e-6);
  const auto squared = [&](Builder& b, const std::vector<Value>& in) -> Value {
    return maximum(max)(b, {b.times(in[0], in[0])});
  };
  CHECK(second_order_error(squared, {shuffled({1, 1, 4, 4})}) < 1e-5);
  for (const bool include : {false, true}) {
    CAPTURE(include);
    const op::avgpool2d mean{.kernel = {3, 2},
                             .stride = {2, 1},
                             .pads = {1, 1, 0, 1},
                             .ceil_mode = true,
                             .count_include_pad = include};
    CHECK(gradient_error(average(mean), {noise({2, 1, 6, 5}, 2, 1)}) < 2e-6);
    const auto back = [&](Builder& b, const std::vector<Value>& in) -> Value {
      op::avgpool2d_backward n{.kernel = mean.kernel, .stride = mean.stride, .pads = mean.pads};
      n.ceil_mode = true, n.count_include_pad = include;
      n.size = {6, 5}, n.dy = in[0];
      return b.add(n);
    };
    CHECK(gradient_error(back, {noise({1, 2, 3, 6}, 2, 1)}) < 2e-6);
  }
}

TEST_CASE("pool: shapes, refusals, and a product with a zero") {
  Rig r;
  op::pool n{
      .kind = "sum", .kernel = {2, 3, 2}, .stride = {1, 2, 3}, .x = r(kF32, {2, 3, 4, 7, 8})};
  CHECK(r.infer(n) == "f32[2,3,3,3,3]");
  op::pool line{.kind = "min", .kernel = {3}, .x = r(kI16, {1, 2, 10}), .want_indices = true};
  line.ceil_mode = true;
  CHECK(r.infer(line) == "i16[1,2,4]");
  CHECK(r.infer(line, 1) == "i64[1,2,4]");
  const Value x = r(kF32, {1, 2, 6});
  r.refuses(op::pool{.kind = "sum", .kernel = {2}, .x = x, .want_indices = true},
            Code::invalid_argument, {"indices", "max or min", "sum"});
  r.refuses(op::pool{.kind = "median", .kernel = {2}, .x = x}, Code::invalid_argument, {"kind"});
  r.refuses(op::pool{.kind = "max", .kernel = {2, 2}, .x = x}, Code::invalid_argument, {"kernel"});
  r.refuses(op::pool{.kind = "max", .kernel = {7}, .x = x}, Code::shape_mismatch, {"extent 7"});
  r.refuses(op::pool{.kind = "max", .kernel = {2}, .pads = {2, 0}, .x = x}, Code::invalid_argument,
            {"pads", "extent 2"});
  r.refuses(op::pool{.kind = "avg", .kernel = {2}, .x = r(kI32, {1, 2, 6})}, Code::unsupported,
            {"integers"});
  r.refuses(op::pool{.kind = "max", .kernel = {2}, .x = r(kF32, {2, 6})}, Code::shape_mismatch,
            {"1 to 3 spatial axes"});
  const Function product = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::pool{.kind = "prod", .kernel = {3}, .stride = {1}, .x = in[0]})[0];
  };
  const Tensor y = forward(product, {tensor(kF64, {1, 1, 4}, {2, 0, 3, 5})});
  CHECK(y.data == std::vector<double>{0, 0});
}

TEST_SUITE_END();
