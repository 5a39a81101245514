// SPDX-License-Identifier: Apache-2.0
// The table op -> kernel: one function per family, in kernels/<family>.cpp, joined by kernels.cpp.
#pragma once

#include <span>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

std::span<const sdk::Row> attention_rows();
std::span<const sdk::Row> channel_norm_rows();
std::span<const sdk::Row> elementwise_rows();
std::span<const sdk::Row> grouped_matmul_rows();
std::span<const sdk::Row> index_rows();
std::span<const sdk::Row> matmul_rows();
std::span<const sdk::Row> norm_rows();
std::span<const sdk::Row> optimizer_rows();
std::span<const sdk::Row> order_rows();
std::span<const sdk::Row> pool_rows();
std::span<const sdk::Row> random_rows();
std::span<const sdk::Row> reduce_rows();
std::span<const sdk::Row> region_rows();
std::span<const sdk::Row> rope_rows();
std::span<const sdk::Row> scan_rows();
std::span<const sdk::Row> shape_rows();
std::span<const sdk::Row> softmax_rows();

// All of them; what is left over has no name. Filled when the image is loaded.
inline constexpr size_t kRowCapacity = 128;
extern sdk::Row row_table[kRowCapacity];

}  // namespace tenon::cuda
