// SPDX-License-Identifier: Apache-2.0
// Products as nodes of ONNX.
#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

struct Product {
  bool trans_a = false, trans_b = false;
  double alpha = 1;
  DType out_dtype = TENON_DTYPE_NONE;
  Value a{}, b{}, bias{};
};

Ref swapped(Call& c, const Ref& x, int rank) {
  Ints perm = count_up(rank);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return c.e.transpose(x, perm);
}

Ref write_product(Call& c, const Product& n) {
  Emitter& e = c.e;
  Ref a = c.in(n.a), b = c.in(n.b), bias = c.in(n.bias);
  const int rank_a = c.rank(n.a), rank_b = c.rank(n.b);
  if (is_integer(a.dtype)) {
    if (n.trans_a) a = swapped(c, a, rank_a);
    if (n.trans_b) b = swapped(c, b, rank_b);
    return e.add(tenon_dtype_bits(a.dtype) == 8 ? "MatMulInteger" : "MatMul", {a, b});
  }
  // The dtype of the result, and the one in which all is computed.
  DType to = n.out_dtype;
  if (to == TENON_DTYPE_NONE) to = a.dtype == b.dtype ? a.dtype : kF32;
  const bool plain = a.dtype == to && b.dtype == to && (!bias || bias.dtype == to);
  const bool gemm = rank_a == 2 && rank_b == 2 &&
                    (n.trans_a || n.trans_b || n.alpha != 1 || bias) &&
                    (to != kF64 || fits_f32(n.alpha));  // its attribute is f32
  const bool scales = !gemm && n.alpha != 1;
  const DType wide = plain && !scales ? to : acc_dtype(to);
  a = e.cast(a, wide);
  b = e.cast(b, wide);
  bias = e.cast(bias, wide);
  Ref y;
  if (gemm) {
    y = e.add("Gemm", {a, b, bias},
              {attribute("transA", n.trans_a), attribute("transB", n.trans_b),
               attribute("alpha", n.alpha)});
  } else {
    // With a vector on the other side, the factors change places instead.
    const bool exchange = (n.trans_a && rank_b == 1) || (n.trans_b && rank_a == 1);
    if (n.trans_a && !exchange) a = swapped(c, a, rank_a);
    if (n.trans_b && !exchange) b = swapped(c, b, rank_b);
    y = exchange ? e.add("MatMul", {b, a}) : e.add("MatMul", {a, b});
    if (scales) y = e.add("Mul", {y, e.scalar(wide, n.alpha)});
    if (bias) y = e.add("Add", {y, rank_b == 1 ? e.reshape(bias, {}) : bias});
  }
  return e.cast(y, to);
}

void write_matmul(Call& c) {
  const auto n = decode<op::matmul>(c.node);
  c.out(write_product(c, {.trans_a = n.trans_a,
                          .trans_b = n.trans_b,
                          .alpha = n.alpha,
                          .out_dtype = n.out_dtype,
                          .a = n.a,
                          .b = n.b}));
}

void write_linear(Call& c) {
  const auto n = decode<op::linear>(c.node);
  const Ref z = write_product(c, {.trans_a = n.trans_a,
                                  .trans_b = n.trans_b,
                                  .alpha = n.alpha,
                                  .out_dtype = n.out_dtype,
                                  .a = n.a,
                                  .b = n.b,
                                  .bias = n.bias});
  c.out(1, z);
  Ref y = n.act == "none" ? z : write_unary(c, n.act, n.act_alpha, n.act_beta, z);
  if (n.residual) y = c.e.add("Add", {y, c.in(n.residual)});
  c.out(0, y);
}

constexpr ExportRule kRules[] = {{"matmul", write_matmul}, {"linear", write_linear}};

}  // namespace

std::span<const ExportRule> matmul_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
