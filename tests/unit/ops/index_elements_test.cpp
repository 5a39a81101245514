// SPDX-License-Identifier: Apache-2.0
// gather_elements and scatter_elements_add: types, refusals, values by hand, gradients.
#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/index_elements");

namespace {

Function gather(int64_t axis, const std::string& oob, const Tensor& indices) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    const std::vector<int64_t> list(indices.data.begin(), indices.data.end());
    const Value at = b.reshape(b.ints(kI64, list), indices.type.shape);
    return b.add(op::gather_elements{.axis = axis, .oob = oob, .data = in[0], .indices = at});
  };
}
// Without a base: zeros of `shape`.
Function scatter(int64_t axis, const std::string& oob, const Tensor& indices, Shape shape) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    const std::vector<int64_t> list(indices.data.begin(), indices.data.end());
    op::scatter_elements_add n{.axis = axis, .oob = oob, .updates = in[0]};
    n.indices = b.reshape(b.ints(kI64, list), indices.type.shape);
    if (in.size() > 1)
      n.base = in[1];
    else
      n.shape = Ints(shape.begin(), shape.end());
    return b.add(n);
  };
}

}  // namespace

TEST_CASE("gather_elements, scatter_elements_add: types") {
  Rig r;
  const Value data = r(kBool, {4, 6, 5}), ids = r(kI32, {2, 9, 5});
  CHECK(r.infer(op::gather_elements{.axis = 1, .data = data, .indices = ids}) == "bool[2,9,5]");
  CHECK(r.infer(op::gather_elements{.axis = -2, .data = data, .indices = ids}) == "bool[2,9,5]");
  const Value updates = r(kF16, {2, 9, 5});
  CHECK(r.infer(op::scatter_elements_add{
            .axis = 1, .shape = {4, 6, 5}, .updates = updates, .indices = ids}) == "f16[4,6,5]");
  CHECK(r.infer(op::scatter_elements_add{
            .axis = 1, .updates = updates, .indices = ids, .base = r(kF16, {3, 1, 7})}) ==
        "f16[3,1,7]");
}

TEST_CASE("gather_elements, scatter_elements_add: refusals") {
  Rig r;
  const Value data = r(kF32, {4, 6}), ids = r(kI64, {4, 2});
  using Gather = op::gather_elements;
  r.refuses(Gather{.axis = 1, .data = data, .indices = r(kF32, {4, 2})}, Code::dtype_mismatch,
            {"indices", "f32[4,2]"});
  r.refuses(Gather{.axis = 1, .data = data, .indices = r(kI64, {2})}, Code::shape_mismatch,
            {"indices", "rank 2"});
  r.refuses(Gather{.axis = 0, .data = data, .indices = r(kI64, {4, 7})}, Code::shape_mismatch,
            {"indices", "6", "axis 1", "data", "i64[4,7]"});
  r.refuses(Gather{.axis = 2, .data = data, .indices = ids}, Code::invalid_argument, {"axis 2"});
  r.refuses(Gather{.oob = "wrap", .data = data, .indices = ids}, Code::invalid_argument,
            {"oob", "wrap"});
  r.refuses(Gather{.data = r(kF32, {}), .indices = r(kI64, {})}, Code::shape_mismatch,
            {"data", "rank >= 1"});
  r.refuses(Gather{.axis = 1, .data = r(kF32, {4, 0}), .indices = ids}, Code::index_out_of_range,
            {"indices", "length 0"});
  using Scatter = op::scatter_elements_add;
  r.refuses(Scatter{.axis = 1, .shape = {4, 6}, .updates = data, .indices = ids},
            Code::shape_mismatch, {"updates", "[4,2]", "f32[4,6]"});
  r.refuses(Scatter{.axis = 1, .updates = r(kF32, {4, 2}), .indices = ids}, Code::shape_mismatch,
            {"shape", "base"});
  r.refuses(Scatter{.axis = 1, .shape = {3, 6}, .updates = r(kF32, {4, 2}), .indices = ids},
            Code::shape_mismatch, {"indices", "axis 0", "attribute shape"});
  r.refuses(Scatter{.axis = 1, .shape = {4, 6}, .updates = r(kBool, {4, 2}), .indices = ids},
            Code::dtype_mismatch, {"updates", "bool"});
  r.refuses(Scatter{.shape = {1, 2}, .updates = r(kF32, {4, 2}), .indices = ids, .base = data},
            Code::invalid_argument, {"shape", "[4,6]", "[1,2]"});
}

TEST_CASE("gather_elements, scatter_elements_add: values by hand") {
  const Tensor data = tensor(kF32, {2, 3}, {10, 11, 12, 20, 21, 22});
  const Tensor across = tensor(kI64, {2, 2}, {2, -3, 0, -1});
  CHECK(forward(gather(1, "error", across), {data}).data == std::vector<double>{12, 10, 20, 22});
  const Tensor down = tensor(kI64, {3, 2}, {1, 0, 0, 1, 1, 1});  // cropped to two columns
  CHECK(forward(gather(0, "error", down), {data}).data ==
        std::vector<double>{20, 11, 10, 21, 20, 21});
  const Tensor updates = tensor(kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(forward(scatter(0, "error", down, {2, 3}), {updates}).data ==
        std::vector<double>{3, 2, 0, 6, 10, 0});
  CHECK(forward(scatter(0, "error", down, {}), {updates, data}).data ==
        std::vector<double>{13, 13, 12, 26, 31, 22});
}

TEST_CASE("gather_elements: an index outside its axis and inside the tensor is out of range") {
  const Tensor data = tensor(kF32, {2, 3}, {10, 11, 12, 20, 21, 22});
  const Tensor past = tensor(kI64, {1, 1}, {3});
  try {
    forward(gather(1, "error", past), {data});
    FAIL_CHECK("it ran");
  } catch (const Error& e) {
    CHECK(e.code() == Code::index_out_of_range);
  }
  CHECK(forward(gather(1, "skip", past), {data}).data == std::vector<double>{0});
  CHECK(forward(gather(1, "clamp", past), {data}).data == std::vector<double>{12});
  CHECK(forward(gather(1, "clamp", tensor(kI64, {1, 1}, {-9})), {data}).data ==
        std::vector<double>{10});
}

TEST_CASE("gather_elements, scatter_elements_add: gradients follow the policy") {
  const Tensor indices = tensor(kI64, {2, 4}, {2, -3, 0, 2, 1, 1, -1, 0});
  const Tensor outside = tensor(kI64, {2, 4}, {2, -9, 0, 7, 1, 3, -4, 0});
  const Tensor data = noise({2, 3}, 2, 1), updates = noise({2, 4}, 2, 2);
  for (const std::string oob : {"error", "skip", "clamp"}) {
    CAPTURE(oob);
    const Tensor& at = oob == "error" ? indices : outside;
    CHECK(gradient_error(gather(1, oob, at), {data}) < 2e-6);
    CHECK(gradient_error(scatter(1, oob, at, {2, 3}), {updates}) < 2e-6);
    CHECK(gradient_error(scatter(1, oob, at, {}), {updates, data}) < 2e-6);
  }
}

TEST_SUITE_END();
