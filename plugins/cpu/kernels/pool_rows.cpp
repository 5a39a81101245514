// SPDX-License-Identifier: Apache-2.0
// The forward pools: distribution of the rows of windows over threads.
#include "norm.hpp"
#include "pool.hpp"

namespace tenon::cpu {

PoolRows::PoolRows(const PoolWindows& windows, tenon_dtype dtype, PoolKind kind,
                   std::vector<double> divide_rows, std::vector<double> divide_columns)
    : windows_(windows),
      dtype_(dtype),
      kind_(kind),
      divide_rows_(std::move(divide_rows)),
      divide_columns_(std::move(divide_columns)),
      offsets_(windows.w.tap_offsets()),
      slots_(make_slots(windows.planes * windows.h.count,
                        pool_area(windows.w) * element_bytes(acc_dtype(dtype)),
                        (windows.h.kernel + 2) * windows.w.size * element_bytes(dtype))) {}

void PoolRows::run(const void* x, void* y, void* scratch) const {
  const PoolPlan plan{
      dtype_, kind_, windows_, offsets_.data(), divide_rows_.data(), divide_columns_.data()};
  slots_.run(scratch, [&](int64_t begin, int64_t end, void* area) {
    pool_forward(plan, x, y, begin, end, area);
  });
}

}  // namespace tenon::cpu
