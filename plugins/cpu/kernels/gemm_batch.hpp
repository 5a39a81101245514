// SPDX-License-Identifier: Apache-2.0
// Products with the same left operand, c_t = a·b_t, in one parallel loop: a is packed once, and
// with few rows all b are read in one sequence. Results equal those of Gemm, bit for bit (on AMX:
// for numbers in its range). If the plans of the products differ, they run one after another.
#pragma once

#include <span>
#include <vector>

#include "gemm.hpp"

namespace tenon::cpu {

class GemmBatch {
 public:
  struct Part {
    int64_t n;
    GemmOperand b;
    bool row_bits;  // see Gemm
  };
  // Receives finished sums of product t.
  using Sink = FunctionRef<void(size_t t, const GemmBlock&)>;

  GemmBatch() = default;
  GemmBatch(int64_t m, int64_t k, GemmOperand a, std::span<const Part> parts, bool direct,
            F32Precision precision);

  // Product t, to ask whether b_t should be packed, and to say that it is.
  Gemm& product(size_t t) { return products_[t]; }
  uint64_t scratch() const;
  double flops() const;
  void run(const void* a, const void* const* b, void* const* c, void* scratch, Sink sink) const;

 private:
  struct Run;
  bool have_equal_plans();
  uint64_t shared(size_t t) const;
  uint64_t own() const;
  void run_over_columns(const Run& run) const;
  void run_over_rows(const Run& run) const;

  std::vector<Gemm> products_;
  std::vector<int64_t> ends_;  // by columns: the last unit of each product
  size_t first_ = 0;           // the first product with columns
  bool fused_ = false;
};

}  // namespace tenon::cpu
