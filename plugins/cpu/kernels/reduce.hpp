// SPDX-License-Identifier: Apache-2.0
// Reductions of floats: what the vector code and the code that spreads the work agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tenon/types.h"

namespace tenon::cpu {

enum class ReduceKind : uint8_t { sum, sum_square, l1, max, min, prod, logsumexp };

// What a run of elements comes to: value, and for logsumexp value = the maximum m, scale = the sum
// of e^(x - m).
struct Partial {
  double value = 0;
  double scale = 0;
};

// A kind of reduce over floats: how partial results join and what they come to.
struct Reduction {
  ReduceKind kind{};
  bool mean = false, root = false;

  Partial join(Partial a, Partial b) const;
  double finish(Partial p, int64_t n) const;  // of n elements in all
};
// The reduction of that name, if it is one of floats.
std::optional<Reduction> find_reduction(std::string_view kind);
// Element i of y, rounded once.
void store_reduced(tenon_dtype dtype, double v, void* y, int64_t i);

// Of n contiguous elements of a float dtype; n = 0 gives the identity.
Partial reduce_run(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t n);

// Columns [0, n) of `rows` rows that lie `stride` elements apart, as doubles. Kinds sum,
// sum_square, l1, max and min.
void reduce_columns(ReduceKind kind, tenon_dtype dtype, const void* x, int64_t rows, int64_t stride,
                    int64_t n, double* y);

}  // namespace tenon::cpu
