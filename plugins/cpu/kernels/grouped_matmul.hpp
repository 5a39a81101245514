// SPDX-License-Identifier: Apache-2.0
// Rows sorted by expert, for the products of grouped_matmul and of its gradients.
#pragma once

#include <algorithm>
#include <string>

#include "convert.hpp"
#include "gemm.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Assigns consecutive areas of scratch.
class Scratch {
 public:
  // Returns the offset of a new area.
  int64_t take(uint64_t bytes) {
    const uint64_t at = size_;
    size_ += (bytes + 63) / 64 * 64;
    return static_cast<int64_t>(at);
  }
  uint64_t size() const { return size_; }

 private:
  uint64_t size_ = 0;
};

// Row numbers in scratch, sorted by expert: order[starts[e]..starts[e + 1]) belong to expert e, and
// those from starts[E] on belong to no expert.
struct RowGroups {
  int64_t rows = 0, experts = 0;
  int64_t in = 0, out = 0;  // lengths of rows of x and of y
  bool trans_w = false;
  tenon_dtype dtype{}, index{}, p_dtype = TENON_DTYPE_NONE;
  int ids = -1, offsets = -1, p = -1;  // operands
  int64_t starts_at = 0, order_at = 0;

  struct Sorted {
    const int64_t* starts;
    const int64_t* order;
  };
  // Throws Failure for bad indices, before any output is written.
  Sorted sort(const sdk::Call& c) const;
  double scale(const sdk::Call& c, int64_t row) const;

  // The matrix [in, out] of an expert, and its transpose.
  GemmOperand matrix() const {
    return trans_w ? GemmOperand{dtype, 1, in} : GemmOperand{dtype, out, 1};
  }
  GemmOperand transposed() const {
    const GemmOperand m = matrix();
    return {dtype, m.col, m.row};
  }
};

// Shared by both ops. x, w, ids, offsets and p are checked already.
RowGroups row_groups(const sdk::Value& x, const sdk::Value& w, const sdk::Value& ids,
                     const sdk::Value& offsets, const sdk::Value& p, bool trans_w,
                     Scratch& scratch);

// Rows that are gathered and multiplied at a time.
inline constexpr int64_t kGroupRows = 1024;

// The largest scratch of make(1) to make(count).
template <class Make>
uint64_t max_scratch(int64_t count, Make&& make) {
  uint64_t largest = 0;
  for (int64_t k = 1; k <= count; ++k) largest = std::max(largest, make(k).scratch());
  return largest;
}

// Copies rows order[0, count) of x, of n elements each, to contiguous memory.
void gather_rows(const void* x, tenon_dtype dtype, int64_t n, const int64_t* order, int64_t count,
                 void* to);
// Row `row` of a dense matrix.
inline const char* row_at(const void* x, tenon_dtype dtype, int64_t n, int64_t row) {
  return static_cast<const char*>(x) + row * n * element_bytes(dtype);
}
inline char* row_at(void* x, tenon_dtype dtype, int64_t n, int64_t row) {
  return static_cast<char*>(x) + row * n * element_bytes(dtype);
}

sdk::Kernel make_grouped_matmul_backward(const sdk::op::grouped_matmul_backward& n,
                                         const sdk::Node& node);

}  // namespace tenon::cpu
