// SPDX-License-Identifier: Apache-2.0
// Rows of pools, dispatched by instruction set (pool_vector.cpp). "acc" is the accumulation type;
// a maximum keeps NaN.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

enum class PoolKind : uint8_t { max, sum };

// to[0, n) in acc = the maximum or sum over `taps` rows of x, which lie `step` elements apart; the
// identity without taps.
void pool_down(tenon_dtype dtype, PoolKind kind, const void* x, int64_t step, int64_t taps,
               int64_t n, void* to);
// y[0, n) = the maximum or sum over `taps` stretches of `columns` (acc), which begin at `offsets`.
// A sum is divided by divisor·divisors[i] (acc).
void pool_across(tenon_dtype dtype, PoolKind kind, const void* columns, const int64_t* offsets,
                 int64_t taps, int64_t n, double divisor, const void* divisors, void* y);
// Columns spread by phase, so that every tap of a row of windows is a contiguous stretch: column k
// at [t % stride][t / stride] with t = before + k, a phase being `phase` elements (acc). And back.
struct PoolSpread {
  int64_t n, before, stride, phase;
};
void pool_spread(tenon_dtype dtype, const PoolSpread& s, const void* row, void* to);
void pool_join(tenon_dtype dtype, const PoolSpread& s, void* from, void* row);

// A row of n windows: `rows` by `taps` spread columns each. Every window adds its dy to dx at its
// greatest tap. True when one had no tap above -inf: those are left out.
struct PoolRoute {
  const void* x;  // acc, and dx as well
  void* dx;
  int64_t rows, row_step;
  const int64_t* offsets;
  int64_t taps, n;
};
bool pool_route(tenon_dtype dtype, const PoolRoute& r, const void* dy);

// sums[0, n) (acc) += row / divisor
void pool_add_row(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums);

}  // namespace tenon::cpu
