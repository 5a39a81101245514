// SPDX-License-Identifier: Apache-2.0
// matmul, linear, lora_matmul and batch_linear: types, refusals, gradients of every form.
#include <cmath>

#include "evaluate.hpp"
#include "grad/grad.hpp"
#include "ops/record.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/matmul");

namespace {

struct Form {
  Shape a, b;
  bool trans_a = false, trans_b = false;
};

// Vectors, flags, batches on either side and on both, shared matrices.
const Form kForms[] = {
    {{3, 5}, {5, 2}},
    {{5, 3}, {5, 2}, true},
    {{3, 5}, {2, 5}, false, true},
    {{5, 3}, {2, 5}, true, true},
    {{5}, {5}},
    {{5}, {5, 2}},
    {{5}, {2, 5}, false, true},
    {{3, 5}, {5}},
    {{5, 3}, {5}, true},
    {{4, 3, 5}, {5}},
    {{5}, {4, 5, 2}},
    {{4, 3, 5}, {5, 2}},
    {{4, 3, 5}, {2, 5}, false, true},
    {{4, 5, 3}, {5, 2}, true},
    {{4, 3, 5}, {1, 5, 2}},
    {{3, 5}, {4, 5, 2}},
    {{2, 1, 3, 5}, {4, 5, 2}},
    {{2, 1, 3, 5}, {4, 2, 5}, false, true},
    {{2, 4, 5, 3}, {4, 5, 2}, true},
    {{1, 3, 5}, {1, 1, 5, 2}},
    {{3, 1}, {1, 2}},
};

}  // namespace

TEST_CASE("matmul: shapes as numpy.matmul, with flags and batches") {
  Rig r;
  const auto y = [&](Shape a, Shape b, bool ta = false, bool tb = false) {
    return r.infer(op::matmul{.trans_a = ta, .trans_b = tb, .a = r(kF32, a), .b = r(kF32, b)});
  };
  CHECK(y({3, 5}, {5, 2}) == "f32[3,2]");
  CHECK(y({5, 3}, {2, 5}, true, true) == "f32[3,2]");
  CHECK(y({5}, {5}) == "f32[]");
  CHECK(y({5}, {4, 5, 2}) == "f32[4,2]");
  CHECK(y({4, 3, 5}, {5}) == "f32[4,3]");
  CHECK(y({2, 1, 3, 5}, {4, 5, 2}) == "f32[2,4,3,2]");
  CHECK(y({3, 0}, {0, 2}) == "f32[3,2]");
  const Value h = r(kBF16, {3, 5}), i = r(kI8, {3, 5});
  CHECK(r.infer(op::matmul{.trans_b = true, .a = h, .b = h}) == "bf16[3,3]");
  CHECK(r.infer(op::matmul{.trans_b = true, .out_dtype = kF32, .a = h, .b = h}) == "f32[3,3]");
  CHECK(r.infer(op::matmul{.trans_b = true, .out_dtype = kI32, .a = i, .b = i}) == "i32[3,3]");
}

TEST_CASE("matmul: integers of 32 and 64 bits keep their dtype") {
  Rig r;
  for (const DType t : {kI32, kI64, kU32, kU64}) {
    const Value a = r(t, {3, 5}), b = r(t, {5, 2});
    CHECK(r.infer(op::matmul{.a = a, .b = b}) == cat(dtype_name(t), "[3,2]"));
    CHECK(r.infer(op::matmul{.out_dtype = t, .a = a, .b = b}) == cat(dtype_name(t), "[3,2]"));
    r.refuses(op::matmul{.out_dtype = t == kI32 ? kI64 : kI32, .a = a, .b = b},
              Code::dtype_mismatch, {"out_dtype", dtype_name(t)});
    r.refuses(op::matmul{.alpha = 0.5, .a = a, .b = b}, Code::invalid_argument, {"alpha", "0.5"});
  }
  r.refuses(op::matmul{.a = r(kI32, {3, 5}), .b = r(kI64, {5, 2})}, Code::dtype_mismatch,
            {"operand b", "i32", "i64[5,2]"});
}

TEST_CASE("products: a half beside f32 gives f32") {
  Rig r;
  const Value a = r(kF32, {3, 5}), h = r(kF16, {3, 5}), b = r(kF32, {5, 2}), w = r(kBF16, {5, 2});
  CHECK(r.infer(op::matmul{.a = a, .b = w}) == "f32[3,2]");
  CHECK(r.infer(op::matmul{.out_dtype = kF32, .a = h, .b = b}) == "f32[3,2]");
  CHECK(r.infer(op::linear{.a = a, .b = w, .bias = r(kF32, {2})}) == "f32[3,2]");
  CHECK(r.infer(op::batch_linear{.a = a, .bs = {w, b}, .count_ys = 2}, 1) == "f32[3,2]");
  r.refuses(op::matmul{.out_dtype = kBF16, .a = a, .b = w}, Code::dtype_mismatch,
            {"out_dtype", "f32", "bf16"});
  r.refuses(op::linear{.a = a, .b = w, .bias = r(kBF16, {2})}, Code::dtype_mismatch,
            {"bias", "f32", "bf16[2]"});
}

TEST_CASE("matmul: refusals") {
  Rig r;
  const Value a = r(kF32, {3, 5}), b = r(kF32, {5, 2}), i = r(kI8, {3, 3}), w = r(kI16, {3, 3});
  using Op = op::matmul;
  r.refuses(Op{.a = a, .b = a}, Code::shape_mismatch, {"operand b", "5", "3", "f32[3,5]"});
  r.refuses(Op{.a = a, .b = r(kF64, {5, 2})}, Code::dtype_mismatch,
            {"operand b", "f32", "f64[5,2]"});
  r.refuses(Op{.a = r(kBF16, {3, 5}), .b = r(kF16, {5, 2})}, Code::dtype_mismatch,
            {"operand b", "bf16", "f16[5,2]"});
  r.refuses(Op{.a = r(kF64, {3, 5}), .b = r(kF16, {5, 2})}, Code::dtype_mismatch,
            {"operand b", "f64", "f16[5,2]"});
  r.refuses(Op{.a = r(kF32, {}), .b = b}, Code::shape_mismatch, {"operand a", "rank 1", "scalar"});
  r.refuses(Op{.trans_a = true, .a = r(kF32, {5}), .b = b}, Code::invalid_argument,
            {"trans_a", "rank 1"});
  r.refuses(Op{.a = r(kF32, {2, 3, 5}), .b = r(kF32, {3, 5, 2})}, Code::shape_mismatch,
            {"[2]", "[3]"});
  r.refuses(Op{.out_dtype = kF64, .a = a, .b = b}, Code::dtype_mismatch,
            {"out_dtype", "f32", "f64"});
  r.refuses(Op{.a = i, .b = i}, Code::dtype_mismatch, {"out_dtype", "i32", "none"});
  r.refuses(Op{.alpha = 2, .out_dtype = kI32, .a = i, .b = i}, Code::invalid_argument,
            {"alpha", "2"});
  r.refuses(Op{.a = w, .b = w}, Code::dtype_mismatch, {"operand a", "i16[3,3]"});
  r.refuses(Op{.alpha = NAN, .a = a, .b = b}, Code::invalid_argument, {"alpha", "nan"});
  r.refuses(Op{.f32_precision = "fp8", .a = a, .b = b}, Code::invalid_argument,
            {"f32_precision", "tf32", "fp8"});
}

TEST_CASE("matmul: gradients of every form") {
  for (const Form& form : kForms) {
    CAPTURE(form.a.text());
    CAPTURE(form.b.text());
    const auto f = [&](Builder& b, const std::vector<Value>& in) {
      return b.matmul(in[0], in[1], form.trans_a, form.trans_b, 0.7);
    };
    CHECK(gradient_error(f, {noise(form.a, 2, 1), noise(form.b, 2, 2)}) < 2e-6);
    CHECK(gradient_error(f, {noise(form.a, 2, 1), noise(form.b, 2, 2)}, {false, true}) < 2e-6);
  }
}

TEST_CASE("matmul: a shared b gets its gradient from one product, with no sum") {
  Graph g;
  const Value a = g.input("a", {kBF16, {4, 3, 5}}), w = g.weight("w", {kBF16, {5, 2}});
  Builder b(g);
  const Value loss = b.sum(b.matmul(a, w), {0, 1, 2}, false);
  const NodeId request = g.add(op::grad{.loss = loss, .wrt = {w}});
  g.output("dw", g[request].outputs[0]);
  const Graph expanded = expand_grads(g);
  int products = 0, sums = 0;
  for (NodeId n = 0; n < expanded.node_count(); ++n) {
    products += expanded[n].op->name() == "matmul";
    sums += expanded[n].op->name() == "reduce";
  }
  CHECK(products == 2);
  CHECK(sums == 1);
}

TEST_CASE("matmul: half gradients of a broadcast batch sum in f32") {
  // 300 · 1 is 300 in f32, which bf16 rounds to 300; a bf16 sum stops at 256.
  const std::vector<Tensor> at = {tensor(kBF16, {300, 1, 1}, std::vector<double>(300, 1)),
                                  tensor(kBF16, {2, 1, 1, 1}, {1, 1})};
  Graph g;
  const Value a = g.input("a", at[0].type), w = g.input("w", at[1].type);
  Builder b(g);
  const Value loss = b.sum(b.matmul(a, w), {0, 1, 2, 3}, false);
  const NodeId request = g.add(op::grad{.loss = loss, .wrt = {w}});
  g.output("dw", g[request].outputs[0]);
  const Graph expanded = expand_grads(g);
  Values given;
  given[expanded.inputs()[0]] = at[0];
  given[expanded.inputs()[1]] = at[1];
  const Tensor dw = evaluate(expanded, given, {expanded.outputs()[0].value})[0];
  CHECK(dw.type.text() == "bf16[2,1,1,1]");
  CHECK(dw.data == std::vector<double>{300, 300});
}

TEST_CASE("linear: types and refusals") {
  Rig r;
  const Value a = r(kBF16, {4, 3, 5}), b = r(kBF16, {5, 2}), res = r(kBF16, {4, 3, 2});
  using Op = op::linear;
  CHECK(r.infer(Op{.act = "gelu", .a = a, .b = b, .bias = r(kF32, {2}), .residual = res}) ==
        "bf16[4,3,2]");
  CHECK(r.infer(Op{.out_dtype = kF32, .a = a, .b = b, .want_pre_act = true}, 1) == "f32[4,3,2]");
  r.refuses(Op{.act = "swish", .a = a, .b = b}, Code::invalid_argument, {"act", "silu", "swish"});
  r.refuses(Op{.act = "is_nan", .a = a, .b = b}, Code::invalid_argument, {"act", "is_nan"});
  r.refuses(Op{.act_alpha = 1, .a = a, .b = b}, Code::invalid_argument, {"act_alpha"});
  r.refuses(Op{.act = "gelu", .act_alpha = 1, .a = a, .b = b}, Code::invalid_argument,
            {"act_alpha", "gelu"});
  r.refuses(Op{.a = a, .b = b, .bias = r(kF16, {2})}, Code::dtype_mismatch,
            {"bias", "bf16 or f32", "f16[2]"});
  r.refuses(Op{.a = a, .b = b, .bias = r(kF32, {1, 2})}, Code::shape_mismatch,
            {"bias", "[2]", "f32[1,2]"});
  r.refuses(Op{.a = a, .b = b, .residual = r(kBF16, {3, 2})}, Code::shape_mismatch,
            {"residual", "[4,3,2]"});
  const Value column = r(kBF16, {5});  // of rank 1, which the result does not show
  CHECK(r.infer(Op{.a = a, .b = column, .bias = r(kF32, {1})}) == "bf16[4,3]");
  CHECK(r.infer(Op{.a = column, .b = b, .bias = r(kF32, {2})}) == "bf16[2]");
  CHECK(r.infer(Op{.a = column, .b = column, .residual = r(kBF16, {})}) == "bf16[]");
  r.refuses(Op{.a = a, .b = column, .bias = r(kF32, {3})}, Code::shape_mismatch,
            {"bias", "[1]", "f32[3]"});
  r.refuses(Op{.a = r(kI8, {2, 2}), .b = r(kI8, {2, 2})}, Code::dtype_mismatch,
            {"operand a", "i8[2,2]"});
}

TEST_CASE("linear: value of the whole epilogue by hand") {
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::linear{
        .alpha = 0.5, .act = "relu", .a = in[0], .b = in[1], .bias = in[2], .residual = in[3]});
  };
  const Tensor y = forward(f, {tensor(kF32, {1, 2}, {1, 2}), tensor(kF32, {2, 2}, {3, -4, 5, 1}),
                               tensor(kF32, {2}, {1, -1}), tensor(kF32, {1, 2}, {10, 20})});
  CHECK(y.data == std::vector<double>{0.5 * 13 + 1 + 10, 20});
}

TEST_CASE("linear: gradients with every part, first and second order") {
  for (const char* act : {"none", "gelu", "relu", "sigmoid"}) {
    for (bool residual : {false, true}) {
      CAPTURE(act);
      CAPTURE(residual);
      const auto f = [&](Builder& b, const std::vector<Value>& in) -> Value {
        return b.add(op::linear{.trans_b = true,
                                .alpha = 0.7,
                                .act = act,
                                .a = in[0],
                                .b = in[1],
                                .bias = in[2],
                                .residual = residual ? in[3] : Value{}});
      };
      std::vector<Tensor> at = {noise({2, 3, 4}, 1, 1), noise({5, 4}, 1, 2), noise({5}, 1, 3)};
      if (residual) at.push_back(noise({2, 3, 5}, 1, 4));
      CHECK(gradient_error(f, at) < 2e-6);
      CHECK(second_order_error(f, at, {true, true, true, false}) < 1e-5);
    }
  }
}

TEST_CASE("linear: vectors on either side") {
  struct Form {
    Shape a, b, bias;
  };
  for (const Form& s : {Form{{3, 4}, {4}, {1}}, Form{{2, 3, 4}, {4}, {1}}, Form{{4}, {4, 5}, {5}},
                        Form{{4}, {4}, {1}}}) {
    const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
      return b.add(op::linear{.act = "gelu", .a = in[0], .b = in[1], .bias = in[2]});
    };
    CHECK(gradient_error(f, {noise(s.a, 1, 1), noise(s.b, 1, 2), noise(s.bias, 1, 3)}) < 2e-6);
  }
}

TEST_CASE("linear: gradient through both y and pre_act") {
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    const Results r =
        b.add(op::linear{.act = "gelu", .a = in[0], .b = in[1], .want_pre_act = true});
    return b.times(r[0], r[1]);
  };
  CHECK(gradient_error(f, {noise({3, 4}, 1, 1), noise({4, 2}, 1, 2)}) < 2e-6);
  const auto only_pre = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::linear{.act = "floor", .a = in[0], .b = in[1], .want_pre_act = true})[1];
  };
  CHECK(gradient_error(only_pre, {noise({3, 4}, 1, 1), noise({4, 2}, 1, 2)}) < 2e-6);
}

TEST_CASE("lora_matmul: types and refusals") {
  Rig r;
  const Value x = r(kBF16, {4, 3, 5}), w = r(kBF16, {5, 2}), a = r(kBF16, {5, 1}),
              b = r(kBF16, {1, 2});
  using Op = op::lora_matmul;
  CHECK(r.infer(Op{.x = x, .w = w, .a = a, .b = b}) == "bf16[4,3,2]");
  CHECK(r.infer(Op{.x = r(kBF16, {5}), .w = w, .a = r(kBF16, {5, 0}), .b = r(kBF16, {0, 2})}) ==
        "bf16[2]");
  r.refuses(Op{.x = x, .w = r(kBF16, {4, 2}), .a = a, .b = b}, Code::shape_mismatch,
            {"operand w", "[5,2]", "bf16[4,2]"});
  r.refuses(Op{.x = x, .w = w, .a = a, .b = r(kBF16, {2, 2})}, Code::shape_mismatch,
            {"operand b", "[1,2]", "bf16[2,2]"});
  r.refuses(Op{.x = x, .w = w, .a = r(kF32, {5, 1}), .b = b}, Code::dtype_mismatch,
            {"operand a", "bf16", "f32[5,1]"});
  r.refuses(Op{.x = r(kBF16, {}), .w = w, .a = a, .b = b}, Code::shape_mismatch,
            {"operand x", "rank 1"});
  r.refuses(Op{.scale = INFINITY, .x = x, .w = w, .a = a, .b = b}, Code::invalid_argument,
            {"scale", "inf"});
}

TEST_CASE("lora_matmul: value by hand, one rounding of the sum, gradients") {
  const auto f = [](Builder& b, const std::vector<Value>& in) -> Value {
    return b.add(op::lora_matmul{.scale = 0.5, .x = in[0], .w = in[1], .a = in[2], .b = in[3]});
  };
  const Tensor y = forward(f, {tensor(kF32, {2}, {1, 2}), tensor(kF32, {2, 1}, {3, 4}),
                               tensor(kF32, {2, 1}, {5, 6}), tensor(kF32, {1, 1}, {7})});
  CHECK(y.data == std::vector<double>{11 + 0.5 * 17 * 7});
  // 256 + (1 + 2^-8): 257 + 2^-8 rounds up to 258; the inner product alone would be 1 in bf16.
  const Tensor half = forward(f, {tensor(kBF16, {1, 2}, {1, 1}), tensor(kBF16, {2, 1}, {256, 0}),
                                  tensor(kBF16, {2, 1}, {1, 0x1p-8}), tensor(kBF16, {1, 1}, {2})});
  CHECK(half.data == std::vector<double>{258});
  for (const double scale : {0.05, 2.0})
    CHECK(gradient_error(f, {noise({2, 3, 4}, scale, 1), noise({4, 5}, scale, 2),
                             noise({4, 2}, scale, 3), noise({2, 5}, scale, 4)}) < 2e-6);
  CHECK(second_order_error(f, {noise({2, 3}, 1, 1), noise({3, 2}, 1, 2), noise({3, 1}, 1, 3),
                               noise({1, 2}, 1, 4)}) < 1e-5);
}

TEST_CASE("batch_linear: types and refusals") {
  Rig r;
  using Op = op::batch_linear;
  const Value a = r(kF32, {2, 3, 5}), b = r(kF32, {5, 4}), c = r(kF32, {5, 1});
  CHECK(r.infer(Op{.a = a, .bs = {b, c}, .count_ys = 2}, 0) == "f32[2,3,4]");
  CHECK(r.infer(Op{.a = a, .bs = {b, c}, .count_ys = 2}, 1) == "f32[2,3,1]");
  CHECK(
      r.infer(Op{.trans_a = true, .trans_b = true, .a = c, .bs = {r(kF32, {7, 5})}, .count_ys = 1},
              0) == "f32[1,7]");
  CHECK(r.infer(Op{.a = r(kF32, {5}), .bs = {b}, .count_ys = 1}, 0) == "f32[4]");
  const Value h = r(kBF16, {3, 5}), w = r(kBF16, {5, 4});
  const Value bias = r(kF32, {4});
  CHECK(r.infer(Op{.out_dtype = kF32, .a = h, .bs = {w}, .biases = {bias}, .count_ys = 1}, 0) ==
        "f32[3,4]");
  CHECK(r.infer(Op{.a = h, .bs = {w}, .biases = {bias}, .count_ys = 1}, 0) == "bf16[3,4]");

  r.refuses(Op{.a = a, .bs = {b, r(kF32, {4, 5})}, .count_ys = 2}, Code::shape_mismatch,
            {"operand bs: entry 1", "length of 5", "f32[4,5]"});
  r.refuses(Op{.a = a, .bs = {b, r(kF64, {5, 4})}, .count_ys = 2}, Code::dtype_mismatch,
            {"operand bs: entry 1", "f64[5,4]"});
  r.refuses(Op{.a = a, .bs = {r(kF32, {5})}, .count_ys = 1}, Code::shape_mismatch,
            {"operand bs: entry 0", "rank 2", "f32[5]"});
  r.refuses(Op{.a = a, .bs = {r(kF32, {2, 5, 4})}, .count_ys = 1}, Code::shape_mismatch,
            {"operand bs: entry 0", "rank 2", "f32[2,5,4]"});
  r.refuses(Op{.trans_a = true, .a = r(kF32, {2, 5, 3}), .bs = {b}, .count_ys = 1},
            Code::shape_mismatch, {"operand a", "rank 2 with trans_a", "f32[2,5,3]"});
  r.refuses(Op{.a = a, .bs = {b, c}, .biases = {bias}, .count_ys = 2}, Code::invalid_argument,
            {"operand biases", "none, or one for each of 2 matrices", "got 1"});
  r.refuses(Op{.a = a, .bs = {b}, .biases = {r(kF32, {1})}, .count_ys = 1}, Code::shape_mismatch,
            {"operand biases: entry 0", "[4]", "f32[1]"});
  r.refuses(Op{.a = a, .bs = {b}, .biases = {r(kF64, {4})}, .count_ys = 1}, Code::dtype_mismatch,
            {"operand biases: entry 0", "f32", "f64[4]"});
  r.refuses(Op{.a = a, .bs = {b, c}, .count_ys = 1}, Code::invalid_argument,
            {"output ys: expected 2, got 1"});
  r.refuses(Op{.alpha = INFINITY, .a = a, .bs = {b}, .count_ys = 1}, Code::invalid_argument,
            {"alpha", "inf"});
  r.refuses(Op{.a = r(kI8, {3, 5}), .bs = {r(kI8, {5, 4})}, .count_ys = 1}, Code::dtype_mismatch,
            {"operand a", "i8[3,5]"});
}

TEST_CASE("batch_linear: values by hand, gradients") {
  const auto f = [](Builder& b, const std::vector<Value>& in) {
    return b.add(op::batch_linear{
        .alpha = 2, .a = in[0], .bs = {in[1], in[2]}, .biases = {in[3], in[4]}, .count_ys = 2});
  };
  const std::vector<Tensor> at = {tensor(kF32, {1, 2}, {1, 2}), tensor(kF32, {2, 1}, {3, 4}),
                                  tensor(kF32, {2, 2}, {5, 6, 7, 8}), tensor(kF32, {1}, {-1}),
                                  tensor(kF32, {2}, {10, 20})};
  const auto result = [&](size_t t) {
    return forward([&](Builder& b, const std::vector<Value>& in) -> Value { return f(b, in)[t]; },
                   at);
  };
  CHECK(result(0).data == std::vector<double>{2 * 11 - 1});
  CHECK(result(1).data == std::vector<double>{2 * 19 + 10, 2 * 22 + 20});
  // Both results take part.
  const auto both = [&](Builder& b, const std::vector<Value>& in) -> Value {
    const auto y = f(b, in);
    return b.times(y[0], y[1]);
  };
  for (const double scale : {0.05, 2.0})
    CHECK(gradient_error(both,
                         {noise({3, 4}, scale, 1), noise({4, 1}, scale, 2), noise({4, 5}, scale, 3),
                          noise({1}, scale, 4), noise({5}, scale, 5)}) < 2e-6);
}
