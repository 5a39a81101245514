// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the matmul family.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

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

// The products of a node: y is dense, one matrix after the other. b is the same for all with one_b.
struct Products {
  Matrix a, b;
  std::vector<int64_t> a_offsets{}, b_offsets{};  // of each product, in elements
  bool one_b = false;
};
Products products_of(bool trans_a, bool trans_b, const sdk::Type& a, const sdk::Type& b,
                     const sdk::Type& y);

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

// Of integers of 4 or 8 bytes, whose sums wrap.
sdk::Kernel make_integer_matmul(const sdk::op::matmul& n, const sdk::Node& node);
sdk::Kernel make_batch_linear(const sdk::op::batch_linear& n, const sdk::Node& node);
sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node);

}  // namespace tenon::cpu
