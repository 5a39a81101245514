// SPDX-License-Identifier: Apache-2.0
// The maker of lora_matmul, which has a file of its own.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cuda {

sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node);

}  // namespace tenon::cuda
