// SPDX-License-Identifier: Apache-2.0
// binary, compare, logical, unary, cast, where, swiglu: types, refusals, values, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"
#include "tenon/unary.hpp"

using namespace tenon::core;
using tenon::kUnaryKinds;
using tenon::UnaryInfo;
using tenon::UnaryKind;

TEST_SUITE_BEGIN("ops/elementwise");

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Function unary(std::string kind, double alpha = TENON_UNSET, double beta = TENON_UNSET) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::unary{.kind = kind, .alpha = alpha, .beta = beta, .x = in[0]});
  };
}
Function binary(std::string kind) {
  return [=](Builder& b, const std::vector<Value>& in) { return b.binary(kind, in[0], in[1]); };
}
double value(const Function& f, double x, DType t = kF64) {
  return forward(f, {tensor(t, {1}, {x})})[0];
}
double slope(const Function& f, double x, DType t = kF64) {
  return gradients(f, {tensor(t, {1}, {x})}, {true})[0][0];
}
bool smooth(const UnaryInfo& u) {
  switch (u.kind) {
    using enum UnaryKind;
    case floor:
    case ceil:
    case trunc:
    case round:
    case is_nan:
    case is_inf:
      return false;
    default:
      return true;
  }
}
// Inside the domain and off the kinks.
Tensor domain(const UnaryInfo& u, double scale) {
  Tensor x = noise({5, 3}, scale, 3);
  for (double& v : x.data) {
    switch (u.kind) {
      using enum UnaryKind;
      case log:
      case log2:
      case log1p:
      case sqrt:
      case rsqrt:
        v = std::fabs(v) + 0.1;
        break;
      case reciprocal:
        v += v < 0 ? -0.2 : 0.2;
        break;
      case acosh:
        v = std::fabs(v) + 1.1;
        break;
      case asin:
      case acos:
      case atanh:
        v = std::sin(v) * 0.9;
        break;
      case tan:
        v = std::sin(v);
        break;
      default:
        v += v < 0 ? -1e-3 : 1e-3;
    }
  }
  return x;
}

}  // namespace

TEST_CASE("binary: broadcasts and keeps the dtype") {
  Rig r;
  const Value a = r(kF16, {3, 1, 4}), b = r(kF16, {2, 1});
  CHECK(r.infer(op::binary{.kind = "add", .a = a, .b = b}) == "f16[3,2,4]");
  CHECK(r.infer(op::binary{.kind = "mod", .a = r(kU8, {0, 3}), .b = r(kU8, {3})}) == "u8[0,3]");
  CHECK(r.infer(op::binary{.kind = "max", .a = r(kBool, {2}), .b = r(kBool, {})}) == "bool[2]");
}

TEST_CASE("binary: refusals") {
  Rig r;
  const Value f = r(kF32, {3}), i = r(kI32, {3}), flag = r(kBool, {3});
  r.refuses(op::binary{.kind = "plus", .a = f, .b = f}, Code::invalid_argument,
            {"kind", "add", "plus"});
  r.refuses(op::binary{.kind = "add", .a = f, .b = i}, Code::dtype_mismatch,
            {"operand b", "f32", "i32[3]"});
  r.refuses(op::binary{.kind = "add", .a = flag, .b = flag}, Code::dtype_mismatch,
            {"add", "bool[3]"});
  r.refuses(op::binary{.kind = "atan2", .a = i, .b = i}, Code::dtype_mismatch, {"atan2", "i32[3]"});
  r.refuses(op::binary{.kind = "mul", .a = f, .b = r(kF32, {2})}, Code::shape_mismatch,
            {"[3]", "[2]"});
}

TEST_CASE("binary: gradients with broadcast operands at two scales") {
  for (const char* kind :
       {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod", "atan2"}) {
    for (double scale : {0.05, 4.0}) {
      CAPTURE(kind);
      CAPTURE(scale);
      Tensor a = noise({3, 1, 4}, scale, 1), b = noise({2, 1}, scale, 2);
      for (double& v : b.data) v += v < 0 ? -scale : scale;
      if (std::string_view(kind) == "pow")
        for (double& v : a.data) v = std::fabs(v) + 0.2;
      CHECK(gradient_error(binary(kind), {a, b}, {}, 1e-6 * scale) < 2e-6);
    }
  }
}

TEST_CASE("binary: a tie of max halves the gradient, NaN passes it to both") {
  const std::vector<Tensor> at = {tensor(kF64, {4}, {2, 1, 3, kNan}),
                                  tensor(kF64, {4}, {2, 2, 2, 2})};
  const auto g = gradients(
      [](Builder& b, const auto& in) -> Value {
        return b.over(b.max(in[0], in[1]), b.unary("cos", b.iota({4}, 0, kF64)));
      },
      at, {true, true});
  CHECK(g[0].data == std::vector<double>{0.5, 0, 1, 1});
  CHECK(g[1].data == std::vector<double>{0.5, 1, 0, 1});
}

TEST_CASE("binary: pow has finite gradients at a base or exponent of 0") {
  const std::vector<Tensor> at = {tensor(kF64, {4}, {0, 0, 0, 3}), tensor(kF64, {4}, {0, 1, 2, 0})};
  const auto g = gradients(
      [](Builder& b, const auto& in) -> Value {
        return b.over(b.binary("pow", in[0], in[1]), b.unary("cos", b.iota({4}, 0, kF64)));
      },
      at, {true, true});
  CHECK(g[0].data == std::vector<double>{0, 1, 0, 0});
  CHECK(g[1][0] == 0);
  CHECK(g[1][1] == 0);
  CHECK(g[1][2] == 0);
  CHECK(g[1][3] == doctest::Approx(std::log(3)));
}

TEST_CASE("compare and logical: give bool") {
  Rig r;
  const Value i = r(kI8, {2, 1}), flag = r(kBool, {3});
  CHECK(r.infer(op::compare{.kind = "le", .a = i, .b = r(kI8, {5})}) == "bool[2,5]");
  CHECK(r.infer(op::logical{.kind = "not", .a = flag}) == "bool[3]");
  CHECK(r.infer(op::logical{.kind = "xor", .a = flag, .b = r(kBool, {2, 1})}) == "bool[2,3]");
}

TEST_CASE("compare and logical: refusals") {
  Rig r;
  const Value f = r(kF32, {3}), flag = r(kBool, {3});
  r.refuses(op::compare{.kind = "equal", .a = f, .b = f}, Code::invalid_argument,
            {"kind", "eq", "equal"});
  r.refuses(op::compare{.kind = "eq", .a = f, .b = flag}, Code::dtype_mismatch,
            {"operand b", "bool[3]"});
  r.refuses(op::compare{.kind = "eq", .a = r(TENON_DTYPE_C64, {3}), .b = r(TENON_DTYPE_C64, {3})},
            Code::dtype_mismatch, {"operand a", "c64[3]"});
  r.refuses(op::logical{.kind = "and", .a = flag, .b = f}, Code::dtype_mismatch,
            {"operand b", "f32[3]"});
  r.refuses(op::logical{.kind = "and", .a = flag}, Code::invalid_argument, {"operand b", "two"});
  r.refuses(op::logical{.kind = "not", .a = flag, .b = flag}, Code::invalid_argument,
            {"operand b", "one"});
}

TEST_CASE("unary: keeps the type, the tests give bool") {
  Rig r;
  const Value x = r(kBF16, {2, 3});
  CHECK(r.infer(op::unary{.kind = "gelu", .x = x}) == "bf16[2,3]");
  CHECK(r.infer(op::unary{.kind = "is_inf", .x = x}) == "bool[2,3]");
  CHECK(r.infer(op::unary{.kind = "relu", .x = r(kI32, {4})}) == "i32[4]");
  CHECK(r.infer(op::unary{.kind = "round", .ste = true, .x = x}) == "bf16[2,3]");
}

TEST_CASE("unary: refusals") {
  Rig r;
  const Value x = r(kF32, {3});
  r.refuses(op::unary{.kind = "swish", .x = x}, Code::invalid_argument, {"kind", "silu", "swish"});
  r.refuses(op::unary{.kind = "exp", .x = r(kI32, {3})}, Code::dtype_mismatch, {"exp", "i32[3]"});
  r.refuses(op::unary{.kind = "relu", .alpha = 0.1, .x = x}, Code::invalid_argument,
            {"alpha", "relu"});
  r.refuses(op::unary{.kind = "elu", .beta = 0.1, .x = x}, Code::invalid_argument, {"beta", "elu"});
  r.refuses(op::unary{.kind = "elu", .alpha = kInf, .x = x}, Code::invalid_argument,
            {"alpha", "finite", "inf"});
  r.refuses(op::unary{.kind = "sign", .ste = true, .x = x}, Code::invalid_argument,
            {"ste", "sign"});
}

TEST_CASE("unary: gradients of every kind at two scales") {
  for (const UnaryInfo& u : kUnaryKinds) {
    if (!smooth(u)) continue;
    for (double scale : {0.05, 4.0}) {
      CAPTURE(std::string(u.name));
      CAPTURE(scale);
      CHECK(gradient_error(unary(std::string(u.name)), {domain(u, scale)}, {}, 1e-6 * scale) <
            2e-6);
    }
  }
}

TEST_CASE("unary: gradients with parameters") {
  const Tensor x = noise({11}, 4, 5);
  for (const char* kind : {"leaky_relu", "elu", "silu"})
    CHECK(gradient_error(unary(kind, 1.7), {x}) < 2e-6);
  CHECK(gradient_error(unary("selu", 1.3, 0.7), {x}) < 2e-6);
  CHECK(gradient_error(unary("hard_sigmoid", 1. / 6, 0.4), {x}) < 2e-6);
}

TEST_CASE("unary: gradients of gradients of every kind") {
  for (const UnaryInfo& u : kUnaryKinds) {
    if (!smooth(u)) continue;
    CAPTURE(std::string(u.name));
    CHECK(second_order_error(unary(std::string(u.name)), {domain(u, 1.5)}) < 1e-5);
  }
}

TEST_CASE("unary: flat kinds have a gradient of zero, or pass it straight through") {
  const Tensor x = tensor(kF64, {3}, {-1.5, 0.5, 2.7});
  for (const char* kind : {"floor", "ceil", "trunc", "round", "sign"})
    CHECK(gradients(unary(kind), {x}, {true})[0].data == std::vector<double>{0, 0, 0});
  const auto ste = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::unary{.kind = "round", .ste = true, .x = in[0]});
  };
  const auto g = gradients(ste, {x}, {true});
  CHECK(g[0][1] == doctest::Approx(std::cos(1)));
}

TEST_CASE("unary: values at the edges") {
  CHECK(std::isnan(value(unary("relu"), kNan)));
  CHECK(value(unary("relu"), -3) == 0);
  CHECK(value(unary("sigmoid"), -1000) == 0);
  CHECK(value(unary("sigmoid"), 1000) == 1);
  CHECK(value(unary("sigmoid"), -700) == doctest::Approx(std::exp(-700)));
  CHECK(value(unary("softplus"), 1000) == 1000);
  CHECK(value(unary("softplus"), -kInf) == 0);
  CHECK(value(unary("elu"), -kInf) == -1);
  CHECK(value(unary("selu"), 2) == doctest::Approx(2.1014019747));
  CHECK(value(unary("selu"), -1) == doctest::Approx(-1.1113307378));
  CHECK(std::isnan(value(unary("gelu"), -kInf)));
  CHECK(value(unary("gelu"), kInf) == kInf);
  CHECK(value(unary("gelu"), -5) == doctest::Approx(-1.43325828922e-6).epsilon(1e-10));
  CHECK(value(unary("gelu_tanh"), 1) == doctest::Approx(0.8411919906));
  CHECK(value(unary("silu"), -1) == doctest::Approx(-0.2689414214));
  CHECK(value(unary("mish"), 1) == doctest::Approx(0.8650983883));
  CHECK(value(unary("hard_swish"), 1) == doctest::Approx(2.0 / 3));
  CHECK(value(unary("hard_sigmoid"), -3) == 0);
  CHECK(value(unary("softsign"), -3) == -0.75);
  CHECK(forward(unary("square"), {tensor(kI32, {1}, {-7})})[0] == 49);
}

TEST_CASE(
    "unary: gelu and the slope of erf keep their digits in f64, which kernels are judged by") {
  struct Known {
    const char* kind;
    double x, value;
  };
  // From a computation with 50 digits.
  for (const Known& k :
       {Known{"gelu", -5, -0x1.80bcbae98063dp-20}, Known{"gelu", -9.25, -0x1.ea502e7e9d8d4p-64},
        Known{"gelu", -15.3, -0x1.c02c526c0a8aap-171}, Known{"gelu", -20, -0x1.1876296f504b2p-290},
        Known{"gelu", -30.1, -0x1.17178d2143cf8p-655}, Known{"gelu", -37, -0x1.1bbe62e6f3e25p-989}})
    CHECK(value(unary(k.kind), k.x) == doctest::Approx(k.value).epsilon(2e-15));
  CHECK(slope(unary("erf"), 20.3) == doctest::Approx(0x1.92d64850d41eap-595).epsilon(2e-15));
  CHECK(slope(unary("gelu"), -20.7) == doctest::Approx(-0x1.ef54b3cdae209p-307).epsilon(4e-15));
}

TEST_CASE("unary: half dtypes compute wide and round once") {
  // x·σ(x) in bf16 steps would give another neighbour.
  const double x = 1.0625;
  const double exact = x / (1 + std::exp(-x));
  CHECK(value(unary("silu"), x, kBF16) == tensor(kBF16, {1}, {exact})[0]);
  CHECK(value(unary("gelu"), -3.5, kF16) ==
        tensor(kF16, {1}, {-3.5 * std::erfc(3.5 / std::sqrt(2)) / 2})[0]);
}

TEST_CASE("unary: slopes at the kinks and poles") {
  CHECK(slope(unary("relu"), 0) == 0);
  CHECK(slope(unary("abs"), 0) == 0);
  CHECK(slope(unary("hard_swish"), 3) == 1);
  CHECK(slope(unary("hard_swish"), -3) == 0);
  CHECK(slope(unary("sqrt"), 0) == kInf);
  CHECK(std::isnan(slope(unary("sqrt"), -1)));
  CHECK(slope(unary("rsqrt"), 0) == -kInf);
  CHECK(slope(unary("reciprocal"), 0) == -kInf);
  // Squares that overflow where the slope does not.
  CHECK(slope(unary("atan"), 1e160) == doctest::Approx(1e-320));
  CHECK(slope(unary("atan"), -1e20, kF32) == tensor(kF32, {1}, {1e-40})[0]);
  CHECK(slope(unary("atan"), kInf) == 0);
  CHECK(slope(unary("softsign"), 1e160) == doctest::Approx(1e-320));
  CHECK(slope(unary("reciprocal"), -1e160) == doctest::Approx(-1e-320));
  CHECK(slope(unary("gelu_tanh"), 1e30, kF32) == 1);
  CHECK(slope(unary("gelu_tanh"), -1e30, kF32) == 0);
  CHECK(slope(unary("elu"), 1000) == 1);
}

TEST_CASE("activation_backward: refusals") {
  Rig r;
  const Value x = r(kF32, {3});
  using Op = op::activation_backward;
  r.refuses(Op{.kind = "is_nan", .x = x, .dy = x}, Code::unsupported, {"is_nan", "derivative"});
  r.refuses(Op{.kind = "gelu", .from_output = true, .x = x, .dy = x}, Code::unsupported,
            {"from_output", "gelu"});
  r.refuses(Op{.kind = "relu", .x = x, .dy = r(kF32, {1})}, Code::shape_mismatch,
            {"dy", "[3]", "f32[1]"});
  r.refuses(Op{.kind = "relu", .x = x, .dy = r(kF16, {3})}, Code::dtype_mismatch, {"dy", "f16[3]"});
  r.refuses(Op{.kind = "relu", .x = r(kI32, {3}), .dy = r(kI32, {3})}, Code::dtype_mismatch,
            {"x", "i32[3]"});
}

TEST_CASE("cast, copy, where: types and refusals") {
  Rig r;
  const Value x = r(kF32, {2, 3});
  CHECK(r.infer(op::cast{.to = kI64, .x = x}) == "i64[2,3]");
  CHECK(r.infer(op::copy{.x = x}) == "f32[2,3]");
  CHECK(r.infer(op::where{.cond = r(kBool, {4, 1, 1}), .a = x, .b = r(kF32, {})}) == "f32[4,2,3]");
  r.refuses(op::cast{.x = x}, Code::invalid_argument, {"attribute to", "required"});
  r.refuses(op::cast{.to = kI32, .x = r(TENON_DTYPE_C64, {3})}, Code::unsupported, {"c64[3]"});
  r.refuses(op::where{.cond = x, .a = x, .b = x}, Code::dtype_mismatch,
            {"cond", "bool", "f32[2,3]"});
  r.refuses(op::where{.cond = r(kBool, {3}), .a = x, .b = r(kI32, {3})}, Code::dtype_mismatch,
            {"b", "i32[3]"});
  r.refuses(op::where{.cond = r(kBool, {4}), .a = x, .b = x}, Code::shape_mismatch,
            {"[4]", "[2,3]"});
}

TEST_CASE("stop_gradient: its type, and gradients that leave it out") {
  Rig r;
  CHECK(r.infer(op::stop_gradient{.x = r(kI64, {2, 3})}) == "i64[2,3]");
  const auto product = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.times(in[0], b.add(op::stop_gradient{.x = b.times(in[0], in[1])}));
  };
  const auto g = gradients(product, {tensor(kF32, {1}, {2}), tensor(kF32, {1}, {7})}, {true, true});
  CHECK(g[0].data == std::vector<double>{14});
  CHECK(g[1].data == std::vector<double>{0});
}

TEST_CASE("where, cast, copy: gradients") {
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.where(b.compare("gt", in[0], in[1]), b.copy(b.times(in[0], in[0])),
                   b.times(in[1], in[0]));
  };
  CHECK(gradient_error(f, {noise({3, 1, 4}, 2, 1), noise({2, 1}, 2, 2)}) < 2e-6);
  const auto rounded = [](Builder& b, const std::vector<Value>& in) { return b.cast(in[0], kF64); };
  const auto g = gradients(rounded, {tensor(kF32, {2}, {1, 2})}, {true});
  CHECK(g[0].type.text() == "f32[2]");
  CHECK(g[0][1] == static_cast<float>(std::cos(1)));
}

TEST_CASE("swiglu: types and refusals") {
  Rig r;
  const Value gate = r(kF16, {2, 6}), up = r(kF16, {2, 6});
  CHECK(r.infer(op::swiglu{.gate = gate, .up = up}) == "f16[2,6]");
  CHECK(r.infer(op::swiglu{.gate_first = false, .gate = gate}) == "f16[2,3]");
  r.refuses(op::swiglu{.act = "tanh", .gate = gate}, Code::invalid_argument,
            {"act", "silu", "tanh"});
  r.refuses(op::swiglu{.gate = r(kF16, {2, 5})}, Code::shape_mismatch,
            {"gate", "even", "f16[2,5]"});
  r.refuses(op::swiglu{.gate = r(kF16, {})}, Code::shape_mismatch, {"gate", "even"});
  r.refuses(op::swiglu{.gate = gate, .up = r(kF16, {6})}, Code::shape_mismatch,
            {"up", "[2,6]", "f16[6]"});
  r.refuses(op::swiglu{.gate_first = false, .gate = gate, .up = up}, Code::invalid_argument,
            {"gate_first"});
  const Value dy = r(kF16, {2, 3});
  CHECK(r.infer(op::swiglu_backward{.dy = dy, .gate = gate}) == "f16[2,6]");
  r.refuses(op::swiglu_backward{.dy = dy, .gate = gate, .want_dup = true}, Code::invalid_argument,
            {"dup"});
  r.refuses(op::swiglu_backward{.dy = dy, .gate = gate, .up = up}, Code::shape_mismatch,
            {"dy", "[2,6]"});
}

TEST_CASE("swiglu: gradients in both forms, first and second order") {
  for (const char* act : {"silu", "gelu", "gelu_tanh", "sigmoid"}) {
    CAPTURE(act);
    const auto apart = [&](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::swiglu{.act = act, .gate = in[0], .up = in[1]});
    };
    for (double scale : {0.05, 4.0})
      CHECK(gradient_error(apart, {noise({3, 5}, scale, 1), noise({3, 5}, scale, 2)}, {},
                           1e-6 * scale) < 2e-6);
    CHECK(second_order_error(apart, {noise({2, 3}, 1, 1), noise({2, 3}, 1, 2)}) < 1e-5);
    for (bool gate_first : {true, false}) {
      const auto packed = [&](Builder& b, const std::vector<Value>& in) -> Value {
        return b.add(op::swiglu{.act = act, .gate_first = gate_first, .gate = in[0]});
      };
      CHECK(gradient_error(packed, {noise({3, 6}, 2, 1)}) < 2e-6);
    }
  }
}
