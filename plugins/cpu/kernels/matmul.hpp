// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the matmul family.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "elementwise.hpp"
#include "gemm.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Attributes of matmul, linear and batch_linear. matmul leaves some at their defaults.
struct Attributes {
  bool trans_a, trans_b;
  double alpha;
  tenon_dtype out_dtype;
  std::string_view precision;
  F32Precision f32_precision() const {
    return precision == "tf32" ? F32Precision::tf32 : F32Precision::ieee;
  }
};

// The last two dims of an operand as a matrix, and its batch dims.
struct Matrix {
  int64_t rows, cols;
  GemmOperand layout;
  std::span<const int64_t> batch;
};
Matrix matrix_of(const sdk::Type& t, bool left, bool transposed);

// Refuses dtypes that products do not support.
void check_types(const Attributes& at, const sdk::Type& a, const sdk::Type& b, const sdk::Type& y);

// Steps after the sums. Positions are -1 for absent operands.
struct Epilogue {
  tenon_dtype sum, y;
  double alpha = 1;
  int bias = -1, residual = -1, pre_act = -1, out = 0;
  tenon_dtype bias_dtype = TENON_DTYPE_NONE;
  std::optional<Activation> act;
  int64_t n = 0;  // columns of y

  bool plain() const {
    return alpha == 1 && bias < 0 && residual < 0 && pre_act < 0 && !act && sum == y;
  }
  void take_bias(const sdk::Value& value);
  void run(const sdk::Call& c, const GemmBlock& block, int64_t first_row) const;

 private:
  void activate(void* sums, int64_t count) const;
};

sdk::Kernel make_batch_linear(const sdk::op::batch_linear& n, const sdk::Node& node);
sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node);

}  // namespace tenon::cpu
