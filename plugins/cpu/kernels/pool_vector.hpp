// SPDX-License-Identifier: Apache-2.0
// Vector code of pools (pool_vector.cpp, pool_route_vector.cpp). "acc" is the accumulation type.
// Maxima propagate NaN.
#pragma once

#include <cstdint>

#include "pool_windows.hpp"
#include "tenon/types.h"

namespace tenon::cpu {

enum class PoolKind : uint8_t { max, sum };

struct PoolPlan {
  tenon_dtype dtype;
  PoolKind kind;
  PoolWindows windows;
  const int64_t* offsets;     // of the taps in the spread columns
  const double* divide_rows;  // for averages: the divisor of a window is the product of both
  const double* divide_columns;
};
// Rows [begin, end) of windows of all planes. area: pool_area numbers in acc.
void pool_forward(const PoolPlan& p, const void* x, void* y, int64_t begin, int64_t end,
                  void* area);
inline int64_t pool_area(const PoolLine& w) { return w.spread() + w.size + w.count; }

// One plane: spreads x, and adds the dy of each window to the spread dx at its largest tap. Skips
// windows without a tap above -inf, and returns true if there are any.
bool pool_route(const PoolPlan& p, const void* dy, const void* x, void* spread_x, void* spread_dx);
// Planes for which quarters() holds: each pixel belongs to at most one window. f32 and f64.
inline bool quarters(const PoolLine& w) {
  return w.kernel == 2 && w.stride == 2 && w.dilation == 1 && w.before == 0 &&
         2 * w.count <= w.size;
}
void pool_route_quarters(const PoolPlan& p, const void* dy, const void* x, void* dx, int64_t planes,
                         bool nontemporal);
// Converts the spread plane back.
void pool_join(const PoolPlan& p, void* spread, void* plane);

// sums[0, n) (acc) += row / divisor
void pool_add_row(tenon_dtype dtype, const void* row, int64_t n, double divisor, void* sums);

}  // namespace tenon::cpu
