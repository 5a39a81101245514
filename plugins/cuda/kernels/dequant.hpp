// SPDX-License-Identifier: Apache-2.0
// What kernels that read blocks of quantized weights are told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../kernels.hpp"

namespace tenon::cuda {

// Elements of a unit, which a thread decodes: Unit in device/blocks.cuh.
int64_t unit_of(tenon_dtype format);

// The defines of device/blocks.cuh. Refuses formats that no op decodes.
std::vector<std::string> block_defines(const sdk::Value& w);

// TYPE, the dtype of elements.
std::string result_define(tenon_dtype to);

sdk::Kernel make_dequant_matmul(const sdk::op::dequant_matmul& n, const sdk::Node& node);
sdk::Kernel make_grouped_dequant_matmul(const sdk::op::grouped_dequant_matmul& n,
                                        const sdk::Node& node);

}  // namespace tenon::cuda
