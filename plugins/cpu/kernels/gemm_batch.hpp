// SPDX-License-Identifier: Apache-2.0
// Products that share a, c_t = a·b_t, in one parallel loop: a is packed once, and few rows read all
// b as one stream. Each result has the bits that Gemm alone gives (on the tile unit: of ordinary
// numbers). Where the products would go different ways they run one after another.
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
  };
  // Takes finished sums of product t.
  using Sink = FunctionRef<void(size_t t, const GemmBlock&)>;

  GemmBatch() = default;
  GemmBatch(int64_t m, int64_t k, GemmOperand a, std::span<const Part> parts, bool direct,
            F32Precision precision);

  // To see whether b_t may come packed, and to say that it does.
  Gemm& product(size_t t) { return products_[t]; }
  uint64_t scratch() const;
  double flops() const;
  void run(const void* a, const void* const* b, void* const* c, void* scratch, Sink sink) const;

 private:
  struct Run;
  bool go_one_way();
  uint64_t shared(size_t t) const;
  uint64_t own() const;
  void run_over_columns(const Run& run) const;
  void run_over_rows(const Run& run) const;

  std::vector<Gemm> products_;
  std::vector<int64_t> ends_;  // units of the products up to each, where a piece is of columns
  size_t first_ = 0;           // that has columns
  bool together_ = false;
};

}  // namespace tenon::cpu
