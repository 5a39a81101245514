// SPDX-License-Identifier: Apache-2.0
// cumsum cumprod: types and refusals; values and gradients of cumprod.
#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/scan");

TEST_CASE("cumsum: floats and integers along any axis") {
  Rig r;
  CHECK(r.infer(op::cumsum{.axis = 0, .x = r(kF16, {2, 5})}) == "f16[2,5]");
  CHECK(r.infer(op::cumsum{.x = r(kU32, {0})}) == "u32[0]");
  CHECK(r.infer(op::cumsum{.x = r(kBool, {2, 3})}) == "i64[2,3]");
  r.refuses(op::cumsum{.x = r(TENON_DTYPE_C64, {2})}, Code::dtype_mismatch,
            {"operand x", "bool", "c64[2]"});
  r.refuses(op::cumsum{.axis = -3, .x = r(kF16, {2, 5})}, Code::invalid_argument, {"axis -3"});
}

TEST_CASE("cumprod: values of its decomposition, and gradients beside zeros") {
  Rig r;
  CHECK(r.infer(op::cumprod{.axis = 0, .x = r(kI8, {2, 5})}) == "i8[2,5]");
  CHECK(r.infer(op::cumprod{.x = r(kBool, {2})}) == "i64[2]");
  const auto product = [](bool exclusive, bool reverse) {
    return [=](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::cumprod{.exclusive = exclusive, .reverse = reverse, .x = in[0]});
    };
  };
  const Tensor x = tensor(kF64, {5}, {2, -3, 0, 5, 0.5});
  using Doubles = std::vector<double>;
  CHECK(forward(product(false, false), {x}).data == Doubles{2, -6, 0, 0, 0});
  CHECK(forward(product(true, false), {x}).data == Doubles{1, 2, -6, 0, 0});
  CHECK(forward(product(false, true), {x}).data == Doubles{0, 0, 0, 2.5, 0.5});
  CHECK(forward(product(true, true), {x}).data == Doubles{0, 0, 2.5, 0.5, 1});
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true})
      CHECK(gradient_error(product(exclusive, reverse), {x}) < 2e-6);
}

TEST_SUITE_END();
