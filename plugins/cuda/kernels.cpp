// SPDX-License-Identifier: Apache-2.0
// Joins the families' rows. A family that is not listed is not native yet: the planner decomposes
// its ops.
#include "kernels.hpp"

#include <algorithm>
#include <cstdlib>

namespace tenon::cuda {

constinit sdk::Row row_table[kRowCapacity] = {};

namespace {

[[maybe_unused]] const bool joined = [] {
  sdk::Row* end = row_table;
  const auto join = [&end](std::span<const sdk::Row> family) {
    if (family.size() > static_cast<size_t>(row_table + kRowCapacity - end)) std::abort();
    end = std::ranges::copy(family, end).out;
  };
  join(attention_rows());
  join(channel_norm_rows());
  join(elementwise_rows());
  join(grouped_matmul_rows());
  join(index_rows());
  join(matmul_rows());
  join(norm_rows());
  join(optimizer_rows());
  join(order_rows());
  join(pool_rows());
  join(random_rows());
  join(reduce_rows());
  join(region_rows());
  join(rope_rows());
  join(scan_rows());
  join(shape_rows());
  join(softmax_rows());
  return true;
}();

}  // namespace
}  // namespace tenon::cuda
