// SPDX-License-Identifier: Apache-2.0
// Quantized tensors: types, refusals, costs, hand-computed values, gradients.
#include <cmath>
#include <limits>

#include "evaluate.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/quantized");

namespace {

using Doubles = std::vector<double>;
using In = std::vector<Value>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// x quantized by `scale`, about `zero`.
Doubles quantized(DType to, Doubles x, double scale, double zero) {
  const Function f = [&](Builder& b, const In& in) -> Value {
    return b.add(op::quantize{.to = to, .x = in[0], .scale = in[1], .zero_point = in[2]});
  };
  const Shape shape{static_cast<Dim>(x.size())};
  return forward(f, {tensor(kF32, shape, std::move(x)), tensor(kF32, {}, {scale}),
                     tensor(to, {}, {zero})})
      .data;
}

Doubles numbers(int64_t from, int64_t count) {
  Doubles all;
  for (int64_t k = 0; k < count; ++k) all.push_back(static_cast<double>(from + k));
  return all;
}

}  // namespace

TEST_CASE("quantize, dequantize: types") {
  Rig r;
  const Value x = r(kF16, {2, 6, 5}), s = r(kF32, {6});
  CHECK(r.infer(op::quantize{.x = x, .scale = s}) == "u8[2,6,5]");
  CHECK(r.infer(op::quantize{.x = x, .scale = s, .zero_point = r(DType{TENON_DTYPE_I4}, {6})}) ==
        "i4[2,6,5]");
  CHECK(r.infer(op::quantize{.axis = -1, .to = kI16, .x = x, .scale = r(kF16, {5})}) ==
        "i16[2,6,5]");
  CHECK(r.infer(op::quantize{.block = 4, .to = kI8, .x = x, .scale = r(kF32, {2, 2, 5})}) ==
        "i8[2,6,5]");
  CHECK(r.infer(op::quantize{.x = r(kF32, {}), .scale = r(kF32, {1})}) == "u8[]");
  const Value q = r(kI8, {2, 6, 5});
  CHECK(r.infer(op::dequantize{.q = q, .scale = r(kBF16, {6})}) == "bf16[2,6,5]");
  CHECK(r.infer(op::dequantize{.to = kF64, .q = q, .scale = s, .zero_point = r(kI8, {6})}) ==
        "f64[2,6,5]");
  CHECK(r.infer(op::dequantize{.axis = 0, .q = r(kI32, {0, 3}), .scale = r(kF32, {0})}) ==
        "f32[0,3]");
}

TEST_CASE("quantize, dequantize: refusals") {
  Rig r;
  const Value x = r(kF32, {2, 6}), s = r(kF32, {6}), q = r(kU8, {2, 6});
  r.refuses(op::quantize{.x = q, .scale = s}, Code::dtype_mismatch, {"operand x", "u8"});
  r.refuses(op::quantize{.x = x, .scale = r(kI8, {6})}, Code::dtype_mismatch, {"operand scale"});
  r.refuses(op::quantize{.to = kI32, .x = x, .scale = s}, Code::dtype_mismatch,
            {"attribute to", "i32"});
  r.refuses(op::quantize{.to = kI8, .x = x, .scale = s, .zero_point = r(kU8, {6})},
            Code::dtype_mismatch, {"zero_point", "expected i8", "u8[6]"});
  r.refuses(op::quantize{.x = x, .scale = s, .zero_point = r(kU8, {})}, Code::shape_mismatch,
            {"zero_point", "[6]"});
  r.refuses(op::quantize{.x = x, .scale = r(kF32, {2})}, Code::shape_mismatch,
            {"operand scale", "[6]", "f32[2]"});
  r.refuses(op::quantize{.axis = 2, .x = x, .scale = s}, Code::invalid_argument, {"2"});
  r.refuses(op::quantize{.block = 4, .x = x, .scale = r(kF32, {2, 3})}, Code::shape_mismatch,
            {"operand scale", "[2,2]"});
  r.refuses(op::quantize{.block = -1, .x = x, .scale = s}, Code::invalid_argument,
            {"attribute block", "-1"});
  Builder b(r.graph);
  for (const double bad : {0.0, -0.5, kInf, kNan})
    r.refuses(op::quantize{.x = x, .scale = b.scalar(kF32, bad)}, Code::invalid_argument,
              {"operand scale", "above 0", "element 0"});
  r.refuses(op::dequantize{.q = r(kI64, {6}), .scale = r(kF32, {})}, Code::dtype_mismatch,
            {"operand q", "i64"});
  r.refuses(op::dequantize{.to = kI32, .q = q, .scale = s}, Code::dtype_mismatch,
            {"attribute to", "i32"});
  r.refuses(op::dequantize{.q = q, .scale = s, .zero_point = r(kI8, {6})}, Code::dtype_mismatch,
            {"zero_point"});
}

TEST_CASE("quantize: halves to even, saturation, infinities, NaN") {
  CHECK(quantized(kI8, {-1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 100, -100}, 0.5, 0) ==
        Doubles{-2, -2, 0, 0, 2, 2, 127, -128});
  CHECK(quantized(kU8, {-kInf, kInf, kNan, 3e38, -3e38, 0}, 1e-3, 7) ==
        Doubles{0, 255, 7, 255, 0, 7});
  CHECK(quantized(kI16, {1e9, -1e9, 2.5}, 1, 3) == Doubles{32767, -32768, 5});
  CHECK(quantized(kU16, {65534.5, 65536, -1}, 1, 0) == Doubles{65534, 65535, 0});
  CHECK(quantized(DType{TENON_DTYPE_I4}, {3, -20, 20}, 1, -1) == Doubles{2, -8, 7});
  CHECK(quantized(DType{TENON_DTYPE_U4}, {3, -20, 20}, 1, 1) == Doubles{4, 0, 15});
  // The quotient is rounded as a division, not as a product with the inverse: in f32 both differ.
  const float scale = 0.1f;
  Doubles x, want;
  for (int k = 0; k < 200; ++k) {
    const float v = (static_cast<float>(k) + 0.5f) * scale;
    x.push_back(v);
    want.push_back(std::min(255.0, static_cast<double>(std::nearbyint(v / scale))));
  }
  CHECK(quantized(kU8, x, scale, 0) == want);
}

TEST_CASE("quantize: scales along an axis and of blocks") {
  const Tensor x = tensor(kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto with = [&](int64_t axis, int64_t block, Shape shape, Doubles scale, Doubles zero) {
    const Function f = [&](Builder& b, const In& in) -> Value {
      return b.add(op::quantize{
          .axis = axis, .block = block, .x = in[0], .scale = in[1], .zero_point = in[2]});
    };
    return forward(f,
                   {x, tensor(kF32, shape, std::move(scale)), tensor(kI8, shape, std::move(zero))})
        .data;
  };
  CHECK(with(1, 0, {3}, {1, 2, 0.5}, {0, 1, -1}) == Doubles{1, 2, 5, 4, 3, 11});
  CHECK(with(-2, 0, {2}, {1, 2}, {10, 20}) == Doubles{11, 12, 13, 22, 22, 23});
  CHECK(with(1, 2, {2, 2}, {1, 0.5, 0.25, 2}, {0, 1, 0, 2}) == Doubles{1, 2, 7, 16, 20, 5});
}

TEST_CASE("dequantize: values") {
  const Function f = [](Builder& b, const In& in) -> Value {
    return b.add(op::dequantize{.axis = 0, .q = in[0], .scale = in[1], .zero_point = in[2]});
  };
  const Tensor scale = tensor(kF32, {2}, {0.5, 2});
  CHECK(forward(f, {tensor(kI8, {2, 2}, {-128, 127, 3, 4}), scale, tensor(kI8, {2}, {127, -2})})
            .data == Doubles{-127.5, 0, 10, 12});
  CHECK(
      forward(f, {tensor(kI32, {2, 1}, {16777217, 100}), scale, tensor(kI32, {2}, {16777216, 50})})
          .data == Doubles{0.5, 100});
  // The scale of a channel of zeros may be 0, also in a constant.
  const Function constant = [](Builder& b, const In& in) -> Value {
    return b.add(op::dequantize{.q = in[0], .scale = b.scalar(kF32, 0)});
  };
  CHECK(forward(constant, {tensor(kI8, {2}, {0, 5})}).data == Doubles{0, 0});
}

TEST_CASE("quantize, dequantize: a pair passes the gradient where it does not clamp") {
  const Function f = [](Builder& b, const In& in) -> Value {
    const Value q = b.add(op::quantize{.to = kI8, .x = in[0], .scale = in[1]});
    return b.add(op::dequantize{.q = q, .scale = in[1]});
  };
  // The loss is the sum of cos(k) y[k]. Levels 3, -2, 200 (clamped to 127), -0 of x/s 2.6, -2.2, 200, -0.4.
  const std::vector<Tensor> g = gradients(
      f, {tensor(kF64, {4}, {1.3, -1.1, 100, -0.2}), tensor(kF64, {}, {0.5})}, {true, true});
  for (int k : {0, 1, 3}) CHECK(g[0][static_cast<size_t>(k)] == doctest::Approx(std::cos(k)));
  CHECK(g[0][2] == 0);
  // Inside, the slope of scale is level - x/s; outside, it is the bound.
  CHECK(g[1][0] == doctest::Approx(0.4 * std::cos(0) + 0.2 * std::cos(1) + 127 * std::cos(2) +
                                   0.4 * std::cos(3)));
}

TEST_CASE("dequantize: the gradient of scales, per number, axis and block") {
  for (const auto& [block, shape] :
       {std::pair{int64_t{0}, Shape{}}, std::pair{int64_t{0}, Shape{5}},
        std::pair{int64_t{2}, Shape{2, 3}}}) {
    const Function f = [&](Builder& b, const In& in) -> Value {
      const Value q = b.cast(b.iota({2, 5}, 1, kI32, 3, 7), kI8);
      return b.add(op::dequantize{.block = block, .q = q, .scale = in[0]});
    };
    CHECK(gradient_error(f, {noise(shape, 1, 3)}) < 1e-7);
  }
}

TEST_CASE("fake_quantize: values and the gradients of each estimator") {
  const auto of = [](const char* ste) {
    return Function([=](Builder& b, const In& in) -> Value {
      return b.add(op::fake_quantize{.qmin = -4,
                                     .qmax = 3,
                                     .ste = ste,
                                     .x = in[0],
                                     .scale = in[1],
                                     .zero_point = b.scalar_int(kI32, 1)});
    });
  };
  const Tensor x = tensor(kF64, {5}, {0.6, -2.3, 1.1, -9, kNan}), s = tensor(kF64, {}, {0.5});
  const Tensor y = forward(of("clipped"), {x, s});
  for (size_t k = 0; const double want : {0.5, -2.5, 1.0, -2.5}) CHECK(y[k++] == want);
  CHECK(std::isnan(y[4]));
  // The levels are 2, -4, 3, -17.
  const Tensor finite = tensor(kF64, {4}, {0.6, -2.3, 1.1, -9});
  const auto dx = [&](const char* ste, size_t k) {
    return gradients(of(ste), {finite, s}, {true, false})[0][k] / std::cos(static_cast<double>(k));
  };
  CHECK(dx("clipped", 1) == 1);
  CHECK(dx("clipped", 3) == 0);
  CHECK(dx("identity", 3) == 1);
  const double t = std::tanh(0.6 / 1.5);
  CHECK(dx("tanh", 0) == doctest::Approx(1 - t * t));
  CHECK(dx("hard_tanh", 2) == doctest::Approx(1 - 1.1 / 1.5));
  CHECK(dx("hard_tanh", 3) == 0);
}

TEST_CASE("lsq_quantize: values, and the gradients of x and scale") {
  const Function f = [](Builder& b, const In& in) -> Value {
    return b.add(op::lsq_quantize{
        .axis = 0, .qmin = -2, .qmax = 1, .grad_factor = 0.5, .x = in[0], .scale = in[1]});
  };
  const std::vector<Tensor> at = {tensor(kF64, {2, 3}, {0.3, -3, 2, 5, -1, 0.25}),
                                  tensor(kF64, {2}, {0.5, 2})};
  CHECK(forward(f, at).data == Doubles{0.5, -1, 0.5, 2, 0, 0});
  const std::vector<Tensor> g = gradients(f, at, {true, true});
  const auto w = [](int k) { return std::cos(k); };
  CHECK(g[0].data == Doubles{w(0), 0, 0, 0, w(4), w(5)});
  // x/s: 0.6 -6 4; 2.5 -0.5 0.125
  CHECK(g[1][0] == doctest::Approx(0.5 * (w(0) * 0.4 - 2 * w(1) + w(2))));
  CHECK(g[1][1] == doctest::Approx(0.5 * (w(3) + w(4) * 0.5 - w(5) * 0.125)));
  // A scale that is not positive counts as 1e-12 and learns nothing.
  const std::vector<Tensor> off = gradients(f, {at[0], tensor(kF64, {2}, {-1, 2})}, {false, true});
  CHECK(off[0][0] == 0);
  CHECK(off[0][1] == g[1][1]);
}

TEST_CASE("amax_observer: the largest magnitude, and its moving average") {
  const auto observed = [](const char* mode, Shape shape, Doubles state, Doubles x, size_t out) {
    const Function f = [&](Builder& b, const In& in) -> Value {
      return b.add(op::amax_observer{
          .mode = mode, .decay = 0.75, .qmax = 4, .x = in[0], .state = in[1]})[out];
    };
    const Dim rows = static_cast<Dim>(x.size()) / 2;
    return forward(f,
                   {tensor(kF32, {rows, 2}, std::move(x)), tensor(kF32, shape, std::move(state))})
        .data;
  };
  CHECK(observed("batch", {}, {9}, {1, -6, 2, 5}, 0) == Doubles{6});
  CHECK(observed("batch", {}, {9}, {1, -6, 2, 5}, 1) == Doubles{1.5});
  CHECK(observed("batch", {2}, {9, 9}, {1, -6, -2, 5}, 0) == Doubles{2, 6});
  CHECK(observed("ema", {2}, {4, 0}, {1, -6, -2, 5}, 0) == Doubles{3.5, 6});
  CHECK(observed("batch", {}, {1}, {}, 0) == Doubles{0});
  CHECK(observed("batch", {}, {1}, {}, 1) == Doubles{static_cast<float>(1e-12)});
  CHECK(std::isnan(observed("ema", {}, {2}, {1, kNan}, 0)[0]));
}

TEST_CASE("fake_quantize, lsq_quantize, amax_observer: refusals") {
  Rig r;
  const Value x = r(kF32, {2, 6}), s = r(kF32, {});
  r.refuses(op::fake_quantize{.qmin = 3, .qmax = 3, .x = x, .scale = s}, Code::invalid_argument,
            {"qmin", "less than qmax, 3"});
  r.refuses(op::fake_quantize{.qmax = 1 << 20, .x = x, .scale = s}, Code::invalid_argument,
            {"qmax", "65536"});
  r.refuses(op::fake_quantize{.x = x, .scale = s, .zero_point = r(kI8, {})}, Code::dtype_mismatch,
            {"zero_point", "i32"});
  r.refuses(op::fake_quantize{.ste = "soft", .x = x, .scale = s}, Code::invalid_argument, {"ste"});
  r.refuses(op::lsq_quantize{.x = x, .scale = r(kF32, {2})}, Code::shape_mismatch, {"scale"});
  r.refuses(op::lsq_quantize_backward{.dy = r(kF32, {6}), .x = x, .scale = s, .want_dx = true},
            Code::shape_mismatch, {"operand dy"});
  r.refuses(op::amax_observer{.x = x, .state = r(kF64, {})}, Code::dtype_mismatch,
            {"state", "f32"});
  r.refuses(op::amax_observer{.x = x, .state = r(kF32, {2})}, Code::shape_mismatch,
            {"state", "[6]"});
  r.refuses(op::amax_observer{.decay = 1.5, .x = x, .state = s}, Code::invalid_argument, {"decay"});
  r.refuses(op::amax_observer{.qmax = 0, .x = x, .state = s}, Code::invalid_argument, {"qmax"});
}

TEST_CASE("qmatmul, qconv: types and refusals") {
  Rig r;
  const Value a = r(kI8, {5, 1, 3, 4}), b = r(kU8, {2, 4, 6}), m = r(kF32, {6});
  CHECK(r.infer(op::qmatmul{.a = a, .b = b}) == "i32[5,2,3,6]");
  CHECK(r.infer(op::qmatmul{.to = kI8, .a = a, .b = b, .multiplier = m}) == "i8[5,2,3,6]");
  CHECK(r.infer(op::qmatmul{.a = a, .b = b, .multiplier = m, .y_zero = r(kU8, {1})}) ==
        "u8[5,2,3,6]");
  r.refuses(op::qmatmul{.a = r(kI16, {3, 4}), .b = b}, Code::dtype_mismatch, {"operand a", "i16"});
  r.refuses(op::qmatmul{.a = r(kI8, {4}), .b = b}, Code::shape_mismatch, {"operand a", "rank 2"});
  r.refuses(op::qmatmul{.a = a, .b = r(kU8, {3, 4})}, Code::shape_mismatch, {"operand b", "of 4"});
  r.refuses(op::qmatmul{.a = a, .b = b, .a_zero = r(kU8, {})}, Code::dtype_mismatch, {"a_zero"});
  r.refuses(op::qmatmul{.a = a, .b = b, .a_zero = r(kI8, {3})}, Code::shape_mismatch, {"a_zero"});
  r.refuses(op::qmatmul{.a = a, .b = b, .b_zero = r(kU8, {4})}, Code::shape_mismatch,
            {"b_zero", "[6]"});
  r.refuses(op::qmatmul{.a = a, .b = b, .bias = r(kF32, {6})}, Code::dtype_mismatch, {"bias"});
  r.refuses(op::qmatmul{.a = a, .b = b, .multiplier = m}, Code::invalid_argument,
            {"multiplier", "i32"});
  r.refuses(op::qmatmul{.to = kI8, .a = a, .b = b}, Code::invalid_argument, {"multiplier", "i8"});
  r.refuses(op::qmatmul{.to = kI8, .a = a, .b = b, .multiplier = r(kF16, {})}, Code::dtype_mismatch,
            {"multiplier", "f32"});
  r.refuses(op::qmatmul{.act = "gelu", .a = a, .b = b}, Code::invalid_argument, {"act"});
  const Value x = r(kU8, {2, 4, 5, 5}), w = r(kI8, {6, 2, 3, 3});
  CHECK(r.infer(op::qconv{.stride = {2, 1}, .pads = {1, 0, 1, 0}, .groups = 2, .x = x, .w = w}) ==
        "i32[2,6,3,3]");
  CHECK(r.infer(op::qconv{.groups = 2, .x = x, .w = w, .multiplier = m, .y_zero = r(kI8, {})}) ==
        "i8[2,6,3,3]");
  r.refuses(op::qconv{.x = x, .w = w}, Code::shape_mismatch, {"operand w", "4 channels"});
  r.refuses(op::qconv{.groups = 2, .x = x, .w = r(kI8, {6, 2, 6, 3})}, Code::shape_mismatch,
            {"extent 6"});
  r.refuses(op::qconv{.groups = 2, .x = x, .w = w, .w_zero = r(kI8, {2})}, Code::shape_mismatch,
            {"w_zero", "[6]"});
  const auto flops = [&](const auto& n) { return product_flops(r.graph, r.graph[r.graph.add(n)]); };
  CHECK(flops(op::qmatmul{.a = a, .b = b}) == 2.0 * 5 * 2 * 3 * 6 * 4);
  CHECK(flops(op::qconv{.groups = 2, .x = x, .w = w}) == 2.0 * 2 * 6 * 9 * 18);
}

TEST_CASE("qmatmul: exact sums for each pair of dtypes, zero points on both sides") {
  for (const DType ta : {kI8, kU8})
    for (const DType tb : {kI8, kU8}) {
      const double a0 = ta == kI8 ? -128 : 0, b0 = tb == kI8 ? -128 : 0;
      const Tensor a = tensor(ta, {2, 2}, {a0, a0 + 255, a0 + 3, a0 + 200});
      const Tensor b = tensor(tb, {2, 2}, {b0 + 255, b0, b0 + 1, b0 + 255});
      const Function f = [](Builder& g, const In& in) -> Value {
        return g.add(
            op::qmatmul{.a = in[0], .b = in[1], .a_zero = in[2], .b_zero = in[3], .bias = in[4]});
      };
      // a - a_zero: 0 255; 3 200. b - b_zero: 155 -200; -99 55.
      CHECK(forward(f, {a, b, tensor(ta, {}, {a0}), tensor(tb, {2}, {b0 + 100, b0 + 200}),
                        tensor(kI32, {2}, {1, -1})})
                .data ==
            Doubles{255 * -99 + 1, 255 * 55 - 1, 3 * 155 + 200 * -99 + 1, 3 * -200 + 200 * 55 - 1});
      const Function plain = [](Builder& g, const In& in) -> Value {
        return g.add(op::qmatmul{.act = "relu", .a = in[0], .b = in[1]});
      };
      const double b01 = b0 + 255, b10 = b0 + 1;
      CHECK(forward(plain, {a, b}).data[0] == std::max(0.0, a0 * b01 + (a0 + 255) * b10));
    }
}

TEST_CASE("qmatmul: the multiplier's product is rounded half to even, then cut to the range") {
  const auto scaled = [](DType to, const char* act, double multiplier, double zero) {
    const Function f = [=](Builder& g, const In& in) -> Value {
      return g.add(op::qmatmul{
          .to = to, .act = act, .a = in[0], .b = in[1], .multiplier = in[2], .y_zero = in[3]});
    };
    return forward(f, {tensor(kI8, {6, 1}, {1, 3, 5, -1, -3, 100}), tensor(kI8, {1, 1}, {1}),
                       tensor(kF32, {1}, {multiplier}), tensor(to, {}, {zero})})
        .data;
  };
  CHECK(scaled(kI8, "none", 0.5, 0) == Doubles{0, 2, 2, 0, -2, 50});
  CHECK(scaled(kI8, "none", 2, 100) == Doubles{102, 106, 110, 98, 94, 127});
  CHECK(scaled(kU8, "none", 2, 5) == Doubles{7, 11, 15, 3, 0, 205});
  CHECK(scaled(kU8, "relu", 2, 5) == Doubles{7, 11, 15, 5, 5, 205});
  CHECK(scaled(kI8, "relu", 2, -20) == Doubles{-18, -14, -10, -20, -20, 127});
}

TEST_CASE("qmatmul: sums beyond 32 bits") {
  const int64_t depth = 40000;  // 40000·255² > 2^31
  const std::vector<Tensor> at = {tensor(kU8, {1, depth}, Doubles(static_cast<size_t>(depth), 255)),
                                  tensor(kU8, {depth, 1}, Doubles(static_cast<size_t>(depth), 255)),
                                  tensor(kF32, {}, {0x1p-24})};
  const Function f = [](Builder& g, const In& in) -> Value {
    return g.add(op::qmatmul{.to = kU8, .a = in[0], .b = in[1], .multiplier = in[2]});
  };
  CHECK(forward(f, at).data == Doubles{155});  // 2601000000 / 2^24 = 155.03
}

TEST_CASE("qmatmul, qconv: decompositions stay small, whatever the sizes are") {
  // Whether there is a decomposition, and its nodes.
  const auto parts_of = [](const auto& add) -> std::pair<bool, size_t> {
    Graph g, lowered;
    const NodeInfo node = g[add(g)];
    Builder b(lowered);
    NodeInfo now = node;
    for (Value& v : now.operands)
      if (v) v = lowered.input(cat("x", v.id), g.type(v));
    std::vector<Value> results;
    const bool any = lower_into(b, now, results);
    return {any, lowered.node_count()};
  };
  const auto product = [](int64_t rows, int64_t depth) {
    return [=](Graph& g) {
      return g.add(op::qmatmul{.a = g.input("a", {kI8, {rows, depth}}),
                               .b = g.input("b", {kI8, {depth, rows}})});
    };
  };
  const auto [empty, few] = parts_of(product(0, int64_t{1} << 40));
  CHECK(empty);
  CHECK(few < 4);
  CHECK_FALSE(parts_of(product(1, int64_t{1} << 40)).first);
  CHECK(parts_of(product(1, 100)).first);
  const auto [no_images, nodes] = parts_of([](Graph& g) {
    const Dim wide = int64_t{1} << 20;
    return g.add(op::qconv{.pads = {1, 1, 1, 1},
                           .x = g.input("x", {kU8, {0, 1, wide, wide}}),
                           .w = g.input("w", {kI8, {1, 1, 3, 3}})});
  });
  CHECK(no_images);
  CHECK(nodes < 4);
}

TEST_CASE("qconv: values; padding counts as the zero point") {
  const Function f = [](Builder& b, const In& in) -> Value {
    return b.add(op::qconv{.stride = {2},
                           .pads = {1, 1},
                           .groups = 2,
                           .x = in[0],
                           .w = in[1],
                           .x_zero = in[2],
                           .w_zero = in[3],
                           .bias = in[4]});
  };
  // x - 3: -2 -1 0; 1 2 3. w - w_zero: 1 2 3; -1 0 1. Windows (pad,0,1), (1,2,pad).
  CHECK(forward(f, {tensor(kU8, {1, 2, 3}, numbers(1, 6)),
                    tensor(kI8, {2, 1, 3}, {2, 3, 4, -3, -2, -1}), tensor(kU8, {}, {3}),
                    tensor(kI8, {2}, {1, -2}), tensor(kI32, {2}, {10, -7})})
            .data == Doubles{10 - 4 - 3, 10 - 1 + 0, -7 + 2, -7 - 2});
  const Function plain = [](Builder& b, const In& in) -> Value {
    return b.add(op::qconv{.pads = {1, 1, 0, 0}, .x = in[0], .w = in[1]});
  };
  CHECK(forward(plain, {tensor(kU8, {1, 1, 2, 2}, {1, 2, 3, 4}),
                        tensor(kU8, {1, 1, 2, 2}, {1, 10, 100, 200})})
            .data == Doubles{200, 500, 610, 1121});
}

TEST_SUITE_END();
