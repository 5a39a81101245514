// SPDX-License-Identifier: Apache-2.0
// grouped_matmul: types, refusals, values by hand, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/grouped_matmul");

namespace {

// Operands x, w and perhaps p; ids or offsets as constants.
Function product(std::vector<int64_t> ids, std::vector<int64_t> offsets, bool trans_w = false) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::grouped_matmul n{.trans_w = trans_w, .x = in[0], .w = in[1]};
    if (offsets.empty())
      n.ids = b.ints(kI64, ids);
    else
      n.offsets = b.ints(kI64, offsets);
    if (in.size() > 2) n.p = in[2];
    return b.add(n);
  };
}

void is_out_of_range(const Function& f, const std::vector<Tensor>& at) {
  try {
    forward(f, at);
    FAIL_CHECK("it ran");
  } catch (const Error& e) {
    CHECK(e.code() == Code::index_out_of_range);
  }
}

}  // namespace

TEST_CASE("grouped_matmul: types") {
  Rig r;
  const Value x = r(kBF16, {7, 5}), w = r(kBF16, {3, 5, 4}), ids = r(kI32, {7});
  CHECK(r.infer(op::grouped_matmul{.x = x, .w = w, .ids = ids}) == "bf16[7,4]");
  CHECK(r.infer(op::grouped_matmul{.trans_w = true,
                                   .x = x,
                                   .w = r(kBF16, {3, 4, 5}),
                                   .offsets = r(kI64, {4}),
                                   .p = r(kF32, {7})}) == "bf16[7,4]");
  op::grouped_matmul_backward back{.dy = r(kBF16, {7, 4}), .x = x, .w = w, .ids = ids};
  back.want_dw = back.want_dp = true;
  CHECK(r.infer(back, 1) == "bf16[3,5,4]");
  CHECK(r.infer(back, 2) == "bf16[7]");
  back.p = r(kF32, {7});
  CHECK(r.infer(back, 2) == "f32[7]");
}

TEST_CASE("grouped_matmul: refusals") {
  Rig r;
  const Value x = r(kF16, {7, 5}), w = r(kF16, {3, 5, 4}), ids = r(kI32, {7}),
              offsets = r(kI32, {4});
  using Op = op::grouped_matmul;
  r.refuses(Op{.x = x, .w = w}, Code::invalid_argument, {"ids and offsets", "neither"});
  r.refuses(Op{.x = x, .w = w, .ids = ids, .offsets = offsets}, Code::invalid_argument,
            {"ids and offsets", "both"});
  r.refuses(Op{.trans_w = true, .x = x, .w = w, .ids = ids}, Code::shape_mismatch,
            {"operand w", "5", "4", "f16[3,5,4]"});
  r.refuses(Op{.x = x, .w = r(kF32, {3, 5, 4}), .ids = ids}, Code::dtype_mismatch, {"w", "f16"});
  r.refuses(Op{.x = r(kF16, {5}), .w = w, .ids = ids}, Code::shape_mismatch, {"x", "rank 2"});
  r.refuses(Op{.x = x, .w = w, .ids = r(kF32, {7})}, Code::dtype_mismatch, {"ids", "f32[7]"});
  r.refuses(Op{.x = x, .w = w, .ids = offsets}, Code::shape_mismatch, {"ids", "[7]", "i32[4]"});
  r.refuses(Op{.x = x, .w = w, .offsets = ids}, Code::shape_mismatch, {"offsets", "[4]", "i32[7]"});
  r.refuses(Op{.x = x, .w = w, .ids = ids, .p = r(kBF16, {7})}, Code::dtype_mismatch,
            {"p", "f16 or f32", "bf16[7]"});
  r.refuses(Op{.x = x, .w = r(kF16, {0, 5, 4}), .ids = ids}, Code::shape_mismatch,
            {"w", "one expert"});
  r.refuses(op::grouped_matmul_backward{.dy = x, .x = x, .w = w, .ids = ids, .want_dx = true},
            Code::shape_mismatch, {"dy", "[7,4]", "f16[7,5]"});
}

TEST_CASE("grouped_matmul: values by hand") {
  const Tensor x = tensor(kF32, {4, 2}, {1, 2, NAN, NAN, 3, 4, 5, 6});
  const Tensor w = tensor(kF32, {3, 2, 1}, {1, 10, NAN, NAN, 2, 3});
  const Tensor p = tensor(kF32, {4}, {2, NAN, 1, -1});
  const std::vector<double> want = {42, 0, 18, -28};
  CHECK(forward(product({0, -1, 2, 2}, {}), {x, w, p}).data == want);
  const Tensor sorted = tensor(kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(forward(product({}, {0, 1, 1, 3}), {sorted, w}).data == std::vector<double>{21, 18, 28});
  const Tensor turned = tensor(kF32, {3, 1, 2}, w.data);
  CHECK(forward(product({}, {0, 1, 1, 3}, true), {sorted, turned}).data ==
        std::vector<double>{21, 18, 28});
}

TEST_CASE("grouped_matmul: experts and offsets that do not exist") {
  const std::vector<Tensor> at = {noise({3, 2}, 1, 1), noise({2, 2, 4}, 1, 2)};
  is_out_of_range(product({0, 2, 1}, {}), at);
  is_out_of_range(product({0, -2, 1}, {}), at);
  is_out_of_range(product({}, {1, 2, 3}), at);
  is_out_of_range(product({}, {0, 4, 3}), at);
  is_out_of_range(product({}, {0, 1, 2}), at);
}

TEST_CASE("grouped_matmul: gradients with dropped rows and idle experts") {
  for (const double scale : {0.05, 4.0})
    for (const bool trans : {false, true}) {
      CAPTURE(scale);
      CAPTURE(trans);
      const Tensor x = noise({5, 3}, scale, 1), p = noise({5}, 2, 3);
      const Tensor w = noise(trans ? Shape{4, 2, 3} : Shape{4, 3, 2}, scale, 2);
      const std::vector<int64_t> ids = {3, -1, 0, 3, 1}, offsets = {0, 2, 2, 4, 5};
      CHECK(gradient_error(product(ids, {}, trans), {x, w, p}) < 2e-6);
      CHECK(gradient_error(product(ids, {}, trans), {x, w}) < 2e-6);
      CHECK(gradient_error(product({}, offsets, trans), {x, w, p}) < 2e-6);
      CHECK(gradient_error(product(ids, {}, trans), {x, w, p}, {false, true, false}) < 2e-6);
    }
  const std::vector<Tensor> at = {noise({3, 2}, 1, 1), noise({2, 2, 2}, 1, 2), noise({3}, 1, 3)};
  CHECK(second_order_error(product({1, -1, 1}, {}), at) < 1e-5);
}

TEST_SUITE_END();
