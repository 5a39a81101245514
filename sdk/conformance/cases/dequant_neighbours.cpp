// SPDX-License-Identifier: Apache-2.0
// dequant_matmul with the norm before it, the sum that this norm reads, and the gate behind it.
#include "cases/dequant.hpp"

namespace tenon::conform {
namespace {

struct Form {
  std::string id;
  const char* sentence;
  int64_t blocks = 2, out = 32;
  Dims x = {1};  // before K
  bool bias = false, wide_bias = false;
  bool gamma = false, wide_gamma = false;
  bool residual = false, sum = false;
  const char* gate = "none";
  double eps = 1e-5;
};

// One row, as a device may take it, in every format.
std::vector<Form> basic_forms() {
  return {
      {.id = "norm", .sentence = "the norm of one row", .gamma = true},
      {.id = "norm-long",
       .sentence = "a sum, its norm and a gate, long rows",
       .blocks = 17,
       .out = 48,
       .bias = true,
       .gamma = true,
       .residual = true,
       .sum = true,
       .gate = "silu"},
  };
}

std::vector<Form> more_forms() {
  std::vector<Form> all = {
      {.id = "norm-odd",
       .sentence = "an odd number of columns, gamma and bias in the accumulation "
                   "dtype",
       .out = 37,
       .wide_bias = true,
       .gamma = true,
       .wide_gamma = true},
      {.id = "norm-wide-long",
       .sentence = "long rows, gamma in the accumulation dtype",
       .blocks = 17,
       .gamma = true,
       .wide_gamma = true},
      {.id = "residual",
       .sentence = "the norm of a sum that is not kept, a large eps",
       .blocks = 17,
       .out = 16,
       .gamma = true,
       .residual = true,
       .eps = 0.7},
      {.id = "sum",
       .sentence = "the norm of a sum that is kept",
       .out = 21,
       .bias = true,
       .gamma = true,
       .residual = true,
       .sum = true},
      {.id = "gate-slim", .sentence = "a gate, two columns", .out = 2, .gate = "silu"},
      {.id = "gate-even",
       .sentence = "a gate, 22 columns, a bias",
       .out = 22,
       .wide_bias = true,
       .gate = "gelu"},
      {.id = "gate-norm-even",
       .sentence = "a norm and a gate, 90 columns",
       .out = 90,
       .gamma = true,
       .gate = "sigmoid"},
      {.id = "gate-norm-many",
       .sentence = "a norm and a gate, many columns",
       .blocks = 1,
       .out = 4256,
       .gamma = true,
       .gate = "silu"},
      {.id = "vector",
       .sentence = "a vector, its norm and a gate",
       .x = {},
       .gamma = true,
       .gate = "gelu_tanh"},
      {.id = "rows",
       .sentence = "few rows, all neighbours",
       .x = {5},
       .bias = true,
       .gamma = true,
       .residual = true,
       .sum = true,
       .gate = "relu"},
      {.id = "batch",
       .sentence = "a batch, a norm, 22 columns and a gate",
       .out = 22,
       .x = {2, 3},
       .gamma = true,
       .gate = "gelu"},
      {.id = "many",
       .sentence = "many rows, all neighbours",
       .blocks = 3,
       .out = 64,
       .x = {130},
       .gamma = true,
       .residual = true,
       .sum = true,
       .gate = "silu"},
      {.id = "no-rows",
       .sentence = "no rows",
       .x = {0},
       .gamma = true,
       .residual = true,
       .sum = true,
       .gate = "silu"},
      {.id = "no-columns",
       .sentence = "no columns",
       .out = 0,
       .x = {3},
       .gamma = true,
       .residual = true,
       .sum = true,
       .gate = "silu"},
  };
  for (const char* gate : {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"}) {
    std::string id = gate;
    std::ranges::replace(id, '_', '-');
    all.push_back(
        {.id = "gate-" + id, .sentence = "a gate", .out = 64, .bias = true, .gate = gate});
    all.push_back({.id = "gate-norm-" + id,
                   .sentence = "a norm and a gate",
                   .out = 64,
                   .gamma = true,
                   .gate = gate});
  }
  return all;
}

Form model_form(tenon_dtype format, int64_t depth) {
  return {.id = std::to_string(depth),
          .sentence = "rows as models have them, all neighbours",
          .blocks = depth / block_of(format),
          .out = 64,
          .gamma = true,
          .residual = true,
          .sum = true,
          .gate = "silu"};
}

// What the product reads.
Value before_product(CaseBuilder& b, const op::dequant_matmul& n) {
  if (n.residual)
    return b.graph().add(
        op::residual_rms_norm{.eps = n.eps, .x = n.x, .residual = n.residual, .gamma = n.gamma})[0];
  return n.gamma ? b.graph().add(op::rms_norm{.eps = n.eps, .x = n.x, .gamma = n.gamma})[0] : n.x;
}

// The sizes of what is added up, and what roundings to the dtype on the way make of them.
Value scale_of(CaseBuilder& b, const op::dequant_matmul& n, const Tolerance& tolerance) {
  const double unit = tolerance.factor * unit_roundoff(b.own_acc()),
               rounding = unit_roundoff(b.own()) / unit;
  const auto times = [&](Value v, double factor) { return b.binary("mul", v, b.number(factor)); };
  const Value x = before_product(b, n);
  Value off = b.graph().add(op::matmul{.trans_b = true, .a = b.abs(x), .b = sizes_of(b, n.w)});
  if (n.gamma) off = times(off, 1 + rounding);
  if (n.bias) off = b.binary("add", off, b.abs(n.bias));
  if (n.gate == "none") return off;
  const Value product = b.graph().add(op::dequant_matmul{.x = x, .w = n.w, .bias = n.bias});
  off = b.binary("add", off, times(b.abs(product), rounding));
  const auto half = [&](Value v, int64_t which) {
    Dims len = b.graph().type(v).dims, start(len.size(), 0);
    len.back() /= 2;
    start.back() = which * len.back();
    return Value(b.graph().add(op::narrow{.start = start, .len = len, .x = v}));
  };
  // No gate is steeper than this.
  constexpr double kSlope = 1.2;
  const Value gate = b.unary(n.gate, half(product, 0)), up = half(product, 1);
  const Value up_with_error = b.binary("add", b.abs(up), times(half(off, 1), unit));
  return b.binary("add", times(b.binary("mul", half(off, 0), up_with_error), kSlope),
                  b.binary("mul", b.abs(gate), half(off, 1)));
}

void neighbour_row(Suite& s, tenon_dtype format, const Form& f, const char* compute) {
  const bool bytes = std::string_view(compute) == "int8";
  const int64_t depth = f.blocks * block_of(format);
  const Tolerance tolerance = bytes ? kOfBytes : product_of(depth);
  s.add({.id = "dequant-matmul-" + kebab(format) + "-beside-" + f.id + (bytes ? "-int8" : ""),
         .sentence = "dequant_matmul of " + dtype_text(format) + " with neighbours: " + f.sentence +
                     (bytes ? ", x as 8-bit integers" : ""),
         .dtypes = bytes ? DTypes{f32, bf16} : kFloats,
         .build =
             [=](CaseBuilder& b) {
               Dims x = f.x;
               x.push_back(depth);
               op::dequant_matmul n{.compute = compute, .gate = f.gate, .eps = f.eps};
               // Products of moderate size: a gate multiplies two of them.
               constexpr double kSize = 0.02;
               n.x = b.input("x", x, Fill::normal(f.gamma ? 1 : kSize));
               n.w = b.input("w", format, {f.out, depth}, Fill::blocks());
               if (f.bias || f.wide_bias)
                 n.bias = b.input("bias", f.wide_bias ? b.own_acc() : b.own(), {f.out},
                                  Fill::uniform(-1, 2));
               if (f.gamma)
                 n.gamma = b.input("gamma", f.wide_gamma ? b.own_acc() : b.own(), {depth},
                                   Fill::uniform(kSize / 2, kSize * 1.5));
               if (f.residual) n.residual = b.input("residual", x);
               n.want_sum = f.sum;
               const Node y = b.add(n);
               b.output("y", y[0]);
               b.scale("y", [&] { return scale_of(b, n, tolerance); });
               if (f.sum) b.output("sum", y[1], ulps(1));
             },
         .tolerance = tolerance,
         .decomposed = 2,
         .gradient = !bytes && f.x != Dims{0} && f.x != Dims{130} && f.out > 0 && f.out < 1000 &&
                     depth < 8192,
         .scales = {1}});
}

}  // namespace

void dequant_neighbour_rows(Suite& s, tenon_dtype format) {
  const bool all = format == TENON_DTYPE_Q4_K || format == TENON_DTYPE_Q8_0,
             models = format == TENON_DTYPE_Q4_K || format == TENON_DTYPE_F8E4M3_128;
  for (const Form& f : basic_forms())
    for (const char* compute : {"f32", "int8"}) neighbour_row(s, format, f, compute);
  if (all)
    for (const Form& f : more_forms()) neighbour_row(s, format, f, "f32");
  if (models)
    for (const int64_t depth : {4096, 5120, 8192})
      neighbour_row(s, format, model_form(format, depth), "f32");
}

}  // namespace tenon::conform
