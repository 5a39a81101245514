// SPDX-License-Identifier: Apache-2.0
// Reductions of floats: shared by the vector code and the code that distributes the work.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tenon/types.h"

namespace tenon::cpu {

enum class ReduceKind : uint8_t { sum, sum_square, l1, max, min, prod, logsumexp };

// The partial result of a run of elements. For logsumexp: value is the maximum m, scale is the sum
// of e^(x - m).
struct Partial {
  double value = 0;
  double scale = 0;
};

// A kind of reduction over floats: how to combine and finish partial results.
struct Reduction {
  ReduceKind kind{};
  bool mean = false, root = false;

  Partial join(Partial a, Partial b) const;
  // Joins n partial results of columns, for the kinds of reduce_columns().
  void join_columns(double* into, const double* row, int64_t n) const;
  double finish(Partial p, int64_t n) const;  // of n elements in all
};
// The float reduction of that name, if it exists.
std::optional<Reduction> find_reduction(std::string_view kind);
// Writes element i of y, rounded once.
void store_reduced(tenon_dtype dtype, double v, void* y, int64_t i);

// Reduces n contiguous elements of a float dtype; n = 0 gives the identity.
Partial reduce_run(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t n);

// Reduces columns [0, n) of `rows` rows, `stride` elements apart, in double. For the kinds sum,
// sum_square, l1, max and min.
void reduce_columns(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t rows, int64_t stride,
                    int64_t n, double* y);

}  // namespace tenon::cpu
