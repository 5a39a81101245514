// SPDX-License-Identifier: Apache-2.0
// Rules: products of floats and of integers.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {

// Integers of 8 and 16 bits are multiplied as f64, which is exact below 2^53.
Value matmul_any(Builder& b, Value p, Value q, bool trans_p, bool trans_q) {
  const DType t = b.dtype(p);
  if (is_float(t) || tenon_dtype_bits(t) >= 32) return b.matmul(p, q, trans_p, trans_q);
  return b.cast(b.matmul(b.cast(p, kF64), b.cast(q, kF64), trans_p, trans_q), t);
}

namespace {

void matmul(Call& c) { c.out(matmul_any(c.b, c.value(0), c.value(1), false, false)); }

void gemm(Call& c) {
  Builder& b = c.b;
  const double alpha = c.f("alpha", 1.0), beta = c.f("beta", 1.0);
  const bool trans_a = c.flag("transA", false), trans_b = c.flag("transB", false);
  for (size_t k = 0; k < 2; ++k)
    if (c.rank(k) != 2) c.wrong("input ", k, ": expected a matrix, got ", c.type(k).text());
  const DType t = c.dtype(0);
  // Integers times a fraction are computed as f64.
  if (!is_float(t) && (alpha != 1 || (beta != 0 && beta != 1))) {
    Value y = b.times(
        b.matmul(b.cast(c.value(0), kF64), b.cast(c.value(1), kF64), trans_a, trans_b), alpha);
    if (c.has(2) && beta != 0) y = b.plus(y, b.times(b.cast(c.value(2), kF64), beta));
    return c.out(b.cast(y, t));
  }
  Value y = is_float(t) ? b.matmul(c.value(0), c.value(1), trans_a, trans_b, alpha)
                        : matmul_any(b, c.value(0), c.value(1), trans_a, trans_b);
  if (c.has(2) && beta != 0) y = b.plus(y, beta == 1 ? c.value(2) : b.times(c.value(2), beta));
  c.out(y);
}

void determinant(Call& c) {
  const DType t = c.dtype(0);
  const Value a = c.b.widen(c.value(0));
  c.out(c.b.cast(c.b.add(op::det{.a = a}), t));
}

constexpr Rule kRules[] = {
    {"MatMul", 1, matmul},
    {"Gemm", 7, gemm},
    {"Det", 11, determinant},
};

}  // namespace

std::span<const Rule> matmul_rules() { return kRules; }

}  // namespace tenon::core::onnx
