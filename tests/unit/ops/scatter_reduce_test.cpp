// SPDX-License-Identifier: Apache-2.0
// scatter_reduce and scatter_elements_reduce: types, refusals, values by hand, gradients.
#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/scatter_reduce");

namespace {

using Slices = op::scatter_reduce;
using Elements = op::scatter_elements_reduce;

// Of base and updates.
template <class Op>
Function reduced(const std::string& kind, int64_t axis, const std::string& oob,
                 const Tensor& indices) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    const std::vector<int64_t> list(indices.data.begin(), indices.data.end());
    return b.add(Op{.kind = kind,
                    .axis = axis,
                    .oob = oob,
                    .base = in[0],
                    .indices = b.reshape(b.ints(kI64, list), indices.type.shape),
                    .updates = in[1]});
  };
}

}  // namespace

TEST_CASE("scatter_reduce, scatter_elements_reduce: the type of base") {
  Rig r;
  const Value base = r(kF16, {4, 9}), slices = r(kI32, {3, 2}), elements = r(kI64, {2, 5});
  CHECK(r.infer(Slices{.kind = "max",
                       .axis = -1,
                       .base = base,
                       .indices = slices,
                       .updates = r(kF16, {4, 3, 2})}) == "f16[4,9]");
  CHECK(r.infer(Elements{.kind = "mul",
                         .axis = 1,
                         .oob = "clamp",
                         .base = base,
                         .indices = elements,
                         .updates = r(kF16, {2, 5})}) == "f16[4,9]");
  CHECK(r.infer(Slices{.kind = "min",
                       .base = r(kBool, {4}),
                       .indices = r(kI64, {0}),
                       .updates = r(kBool, {0})}) == "bool[4]");
}

TEST_CASE("scatter_reduce, scatter_elements_reduce: refusals") {
  Rig r;
  const Value base = r(kF32, {4, 6}), ids = r(kI64, {3}), rows = r(kF32, {3, 6});
  r.refuses(Slices{.base = base, .indices = ids, .updates = rows}, Code::invalid_argument,
            {"attribute kind is required"});
  r.refuses(Slices{.kind = "add", .base = base, .indices = ids, .updates = rows},
            Code::invalid_argument, {"kind", "add", "mul max min"});
  r.refuses(Slices{.kind = "max", .oob = "clamp", .base = base, .indices = ids, .updates = rows},
            Code::invalid_argument, {"oob", "clamp"});
  r.refuses(Slices{.kind = "max", .base = base, .indices = rows, .updates = rows},
            Code::dtype_mismatch, {"indices", "f32[3,6]"});
  r.refuses(Slices{.kind = "max", .base = base, .indices = ids, .updates = r(kF64, {3, 6})},
            Code::dtype_mismatch, {"updates", "f32", "f64[3,6]"});
  r.refuses(Slices{.kind = "max", .axis = 1, .base = base, .indices = ids, .updates = rows},
            Code::shape_mismatch, {"updates", "[4,3]", "f32[3,6]"});
  r.refuses(Slices{.kind = "mul", .base = r(kBool, {4}), .indices = ids, .updates = r(kBool, {3})},
            Code::dtype_mismatch, {"base", "mul", "bool[4]"});
  r.refuses(Slices{.kind = "max", .base = r(kF32, {0, 6}), .indices = ids, .updates = rows},
            Code::index_out_of_range, {"indices", "length 0"});
  r.refuses(Slices{.kind = "max", .base = r(kF32, {}), .indices = ids, .updates = rows},
            Code::shape_mismatch, {"base", "rank >= 1"});
  const Value at = r(kI64, {4, 2});
  r.refuses(Elements{.kind = "max", .base = base, .indices = at, .updates = rows},
            Code::shape_mismatch, {"updates", "[4,2]", "f32[3,6]"});
  r.refuses(Elements{.kind = "max", .base = base, .indices = r(kI64, {4, 7}), .updates = rows},
            Code::shape_mismatch, {"indices", "6", "axis 1", "operand base"});
  r.refuses(Elements{.kind = "min",
                     .base = r(TENON_DTYPE_C64, {4, 6}),
                     .indices = at,
                     .updates = r(TENON_DTYPE_C64, {4, 2})},
            Code::dtype_mismatch, {"base", "min", "c64[4,6]"});
}

TEST_CASE("scatter_reduce, scatter_elements_reduce: values by hand") {
  const Tensor base = tensor(kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = tensor(kI64, {4}, {2, 0, -1, 0});
  const Tensor updates = tensor(kF32, {4, 2}, {9, 1, 2, -3, 4, 7, -1, 2});
  using Numbers = std::vector<double>;
  CHECK(forward(reduced<Slices>("max", 0, "error", rows), {base, updates}).data ==
        Numbers{2, 2, 3, 4, 9, 7});
  CHECK(forward(reduced<Slices>("min", 0, "error", rows), {base, updates}).data ==
        Numbers{-1, -3, 3, 4, 4, 1});
  CHECK(forward(reduced<Slices>("mul", 0, "error", rows), {base, updates}).data ==
        Numbers{-2, -12, 3, 4, 180, 42});
  const Tensor at = tensor(kI64, {2, 3}, {1, 5, -2, 0, 0, -3});
  const Tensor values = tensor(kF32, {2, 3}, {7, 8, 9, -4, 10, 11});
  CHECK(forward(reduced<Elements>("max", 1, "skip", at), {base, values}).data ==
        Numbers{9, 7, 10, 4, 5, 6});
  CHECK(forward(reduced<Elements>("mul", 1, "clamp", at), {base, values}).data ==
        Numbers{9, 112, -1320, 4, 5, 6});
  const Tensor none = tensor(kI64, {0, 3}, {});
  CHECK(
      forward(reduced<Elements>("min", 1, "error", none), {base, tensor(kF32, {0, 3}, {})}).data ==
      base.data);
}

TEST_CASE("scatter_reduce, scatter_elements_reduce: gradients of each kind and policy") {
  const Tensor inside = tensor(kI64, {2, 4}, {2, -3, 0, 2, 1, 1, -1, 0});
  const Tensor outside = tensor(kI64, {2, 4}, {2, -9, 0, 7, 1, 3, -4, 0});
  const Tensor rows = tensor(kI64, {4}, {2, 5, 0, 2});
  const Tensor base = noise({2, 3}, 2, 1), updates = noise({2, 4}, 2, 2),
               slices = noise({2, 4}, 2, 3);
  for (const std::string kind : {"mul", "max", "min"}) {
    CAPTURE(kind);
    for (const std::string oob : {"error", "skip", "clamp"}) {
      CAPTURE(oob);
      const Function f = reduced<Elements>(kind, 1, oob, oob == "error" ? inside : outside);
      CHECK(gradient_error(f, {base, updates}) < 2e-6);
      if (kind == "mul") CHECK(second_order_error(f, {base, updates}) < 2e-6);
    }
    const Function f = reduced<Slices>(kind, 1, "skip", rows);
    CHECK(gradient_error(f, {base, slices}) < 2e-6);
    if (kind == "mul") CHECK(second_order_error(f, {base, slices}) < 2e-6);
  }
}

TEST_CASE("scatter_reduce: the gradient of a product has no quotient by 0") {
  // Three factors at place 0, with one 0; two at place 1, both 0.
  const Tensor at = tensor(kI64, {3}, {0, 0, 1});
  const Tensor base = tensor(kF64, {2}, {2, 0}), updates = tensor(kF64, {3}, {0, 3, 0});
  const auto slopes =
      gradients(reduced<Slices>("mul", 0, "error", at), {base, updates}, {true, true});
  CHECK(slopes[0].data == std::vector<double>{0, 0});
  CHECK(slopes[1].data == std::vector<double>{6, 0, 0});
}

TEST_SUITE_END();
